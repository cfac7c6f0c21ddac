//! The ioctl that makes a network device of a file: what is sent into it is read, and what is written comes out of it.

use rustix::fs::{Mode, OFlags, open};
use std::os::fd::OwnedFd;

/// TUNSETIFF: _IOW('T', 202, int).
const SET: rustix::ioctl::Opcode = 0x4004_54ca;
/// IFF_TUN | IFF_NO_PI: packets of IP, and nothing before them.
const KIND: u16 = 0x0001 | 0x1000;
/// IFNAMSIZ: a name and its end.
const NAME_BYTES: usize = 16;

/// struct ifreq, as far as the kernel reads it here.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    kind: u16,
    rest: [u8; 22],
}

/// Makes a device of this name, as root. It goes with its file.
pub fn device(name: &str) -> Result<OwnedFd, String> {
    let told = |error: rustix::io::Errno| format!("/dev/net/tun, {name}: {error}");
    let mut request = Request { name: [0; NAME_BYTES], kind: KIND, rest: [0; 22] };
    let bytes = name.as_bytes();
    // The last byte is the end of the name.
    let place = request.name[..NAME_BYTES - 1].get_mut(..bytes.len());
    place.ok_or_else(|| format!("{name} is too long a name for a network device"))?.copy_from_slice(bytes);
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open("/dev/net/tun", flags, Mode::empty()).map_err(told)?;
    // SAFETY: the opcode is TUNSETIFF, whose argument is a pointer to a struct ifreq of 40 bytes, which Request is.
    let made = unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::Setter::<SET, Request>::new(request)) };
    made.map_err(told)?;
    Ok(file)
}
