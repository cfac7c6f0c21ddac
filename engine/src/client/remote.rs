//! TLS over a blocking TCP stream, for an application that proves itself by a certificate. Every wait ends by a moment
//! that the caller sets, and a peer that has gone is an error, not a SIGPIPE: the process is not ours.

use super::wait::{Timeout, Wait};
use super::{left, tcp, tls};
use crate::frames::blocking::Pipe;
use rustix::net::{SendFlags, send};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// What an application proves itself with. Clones share it. Never printed.
#[derive(Clone)]
pub struct Credentials(Arc<ClientConfig>);

impl Credentials {
    /// The application's certificate, its key (PKCS#8) and the group's authority, each in PEM.
    ///
    /// # Errors
    /// One is no such PEM, or they do not belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8], authority: &[u8]) -> Result<Self, String> {
        let read = |what: &str, pem: &[u8]| {
            CertificateDer::from_pem_slice(pem).map_err(|e| format!("the {what} cannot be read: {e}"))
        };
        let (certificate, authority) = (read("certificate", certificate)?, read("authority", authority)?);
        let key =
            PrivatePkcs8KeyDer::from_pem_slice(key).map_err(|e| format!("the key cannot be read: {e}"))?;
        let config = tls::mutual(&certificate, &authority, key.secret_pkcs8_der())
            .map_err(|e| format!("certificate, key and authority cannot be used together: {e}"))?;
        Ok(Self(config))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// A TLS connection to a member.
pub(super) struct Remote(StreamOwned<ClientConnection, Bounded>);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote(..)")
    }
}

impl Remote {
    /// Connects to the first of these that serves, and proves both sides to each other.
    pub fn connect(places: &[SocketAddr], credentials: &Credentials, wait: Wait) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "there is no address");
        for (tried, place) in places.iter().enumerate() {
            // One address that leads nowhere must leave time for the others.
            let shares = u32::try_from(places.len() - tried).unwrap_or(u32::MAX);
            let opened = left(wait.until)
                .and_then(|left| TcpStream::connect_timeout(place, (left / shares).min(wait.quiet)));
            match opened.and_then(|stream| Self::prove(stream, credentials, wait)) {
                Ok(remote) => return Ok(remote),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Proves both sides to each other over a connected stream.
    pub fn prove(stream: TcpStream, credentials: &Credentials, wait: Wait) -> io::Result<Self> {
        tcp::prepare(&stream)?;
        let (reading, writing) = (Timeout::default(), Timeout::default());
        let mut stream = Bounded { stream, wait, reading, writing };
        let mut session =
            ClientConnection::new(credentials.0.clone(), tls::server_name()).map_err(io::Error::other)?;
        while session.is_handshaking() {
            if session.complete_io(&mut stream)? == (0, 0) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Self(StreamOwned::new(session, stream)))
    }

    /// How long to wait from now on.
    pub fn limit(&mut self, wait: Wait) {
        self.0.sock.wait = wait;
    }
}

impl Pipe for Remote {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

/// A TCP stream whose waits end.
struct Bounded {
    stream: TcpStream,
    wait: Wait,
    reading: Timeout,
    writing: Timeout,
}

/// The kernel calls its timeouts `WouldBlock`, which TLS takes for "nothing yet".
fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Bounded {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut limit = self.wait.begin();
        loop {
            self.reading.set(limit.left()?, |left| self.stream.set_read_timeout(Some(left)))?;
            match self.stream.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => limit.interrupted(),
                read => return read.map_err(late),
            }
        }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut limit = self.wait.begin();
        loop {
            self.writing.set(limit.left()?, |left| self.stream.set_write_timeout(Some(left)))?;
            match send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => limit.interrupted(),
                sent => return sent.map_err(|errno| late(errno.into())),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
