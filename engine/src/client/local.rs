//! A member's Unix socket, whose every wait ends by a moment that the caller sets, signals or not.

use super::left;
use crate::frames::blocking::Pipe;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with, sockopt,
};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection to a member on this machine.
#[derive(Debug)]
pub(super) struct Local {
    stream: UnixStream,
    until: Instant,
}

impl Local {
    /// Connects by `until`: a member that hangs takes no more connections at some point, and connecting waits then.
    pub fn connect(path: &Path, until: Instant) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new(path)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left(until)?))?;
        loop {
            match connect(&socket, &address) {
                Ok(()) | Err(Errno::ISCONN) => break,
                Err(Errno::INTR) => {
                    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left(until)?))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { stream: UnixStream::from(socket), until })
    }

    /// Everything from now on must end within this time.
    pub fn limit(&mut self, within: Duration) {
        self.until = crate::clock::Clock.now() + within;
    }
}

impl Pipe for Local {
    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(left(self.until)?))?;
            match send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.until)?))?;
        self.stream.read(bytes)
    }
}
