//! The ioctl that cuts a file system's power: what is not on its device yet is gone, and every later write fails.

use std::fs::File;
use std::path::Path;

/// FS_IOC_SHUTDOWN: _IOR('X', 125, __u32).
const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
/// Neither data nor journal is flushed first.
const NO_LOG_FLUSH: u32 = 2;

/// Cuts the power of the file system that is mounted here, as root.
pub fn cut(mounted: &Path) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", mounted.display());
    let root = File::open(mounted).map_err(told)?;
    // SAFETY: the opcode is FS_IOC_SHUTDOWN, whose argument is a pointer to a u32 that the kernel only reads.
    let result =
        unsafe { rustix::ioctl::ioctl(&root, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)) };
    result.map_err(|error| told(error.into()))
}
