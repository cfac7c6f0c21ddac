//! A member's Unix socket, whose every wait ends by a moment that the caller sets, signals or not.

use super::wait::{Timeout, Wait};
use crate::frames::blocking::Pipe;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with, sockopt,
};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to a member on this machine.
#[derive(Debug)]
pub(super) struct Local {
    stream: UnixStream,
    /// How long to wait.
    pub wait: Wait,
    reading: Timeout,
    writing: Timeout,
}

impl Local {
    /// Connects: a member that hangs takes no more connections at some point, and connecting waits then.
    pub fn connect(path: &Path, wait: Wait) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new(path)?;
        let mut limit = wait.begin();
        loop {
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit.left()?))?;
            match connect(&socket, &address) {
                Ok(()) | Err(Errno::ISCONN) => break,
                Err(Errno::INTR) => limit.interrupted(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self::new(UnixStream::from(socket), wait))
    }

    /// Connects without waiting, and never waits until [`Local::wait_again`].
    pub fn connect_at_once(path: &Path, wait: Wait) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self::new(UnixStream::from(socket), wait))
    }

    /// Waits from now on where it must.
    pub fn wait_again(&self) -> io::Result<()> {
        self.stream.set_nonblocking(false)
    }

    fn new(stream: UnixStream, wait: Wait) -> Self {
        Self { stream, wait, reading: Timeout::default(), writing: Timeout::default() }
    }
}

impl Pipe for Local {
    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut limit = self.wait.begin();
            let sent = loop {
                self.writing.set(limit.left()?, |left| self.stream.set_write_timeout(Some(left)))?;
                match send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                    Err(Errno::INTR) => limit.interrupted(),
                    sent => break sent?,
                }
            };
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut limit = self.wait.begin();
        loop {
            self.reading.set(limit.left()?, |left| self.stream.set_read_timeout(Some(left)))?;
            match self.stream.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => limit.interrupted(),
                read => return read,
            }
        }
    }
}
