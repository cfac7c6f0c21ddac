//! A file system of its own whose power can be cut: ext4 on a loop device.

use crate::root::root;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmounted and forgotten when dropped, also by a failing test.
pub struct Drive {
    folder: tempfile::TempDir,
}

impl Drive {
    /// Makes one of `megabytes`; None if this is allowed to be skipped.
    pub fn new(megabytes: u64) -> Option<Self> {
        if !root("mounting a loop device") {
            return None;
        }
        let drive = Self { folder: tempfile::tempdir().expect("a folder") };
        File::create(drive.image()).and_then(|f| f.set_len(megabytes << 20)).expect("makes an image");
        let image = drive.image();
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-F"]).arg(&image));
        std::fs::create_dir(drive.path()).expect("makes a mount point");
        drive.mount();
        Some(drive)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()));
    }

    /// Drops everything that the device does not have yet; from now on every write fails.
    pub fn cut(&self) {
        shut_down(&self.path());
    }

    /// Power again: the file system finds what is on the device.
    pub fn restore(&self) {
        run(Command::new("umount").arg(self.path()));
        self.mount();
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // Lazily, so that it also works while a killed child's last handles are closing; the loop device goes with it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// FS_IOC_SHUTDOWN: _IOR('X', 125, __u32).
const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
/// Neither data nor journal is flushed first.
const NO_LOG_FLUSH: u32 = 2;

fn shut_down(mounted: &Path) {
    let root = File::open(mounted).expect("is mounted");
    // SAFETY: the opcode is FS_IOC_SHUTDOWN, whose argument is a pointer to a u32 that the kernel only reads.
    let result =
        unsafe { rustix::ioctl::ioctl(&root, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)) };
    result.expect("ext4 shuts down");
}
