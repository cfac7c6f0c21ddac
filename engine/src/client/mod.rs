//! A blocking connection to one member, for programs that run no threads of ours: the PKCS#11 module. One call at a
//! time; a connection that failed is dropped and made anew by its owner. It goes over the member's Unix socket, or by a
//! certificate over TLS (`remote`); `tls` is what members use too.

mod remote;
pub(crate) mod tls;

pub use remote::Credentials;

use crate::limits;
use crate::wire::blocking::{FrameStream, Pipe};
use crate::wire::frame::{self, Ask, NO_REQUEST, Reply};
use crate::wire::{Answer, ClientRequest, Failure, FailureKind, Hello, PROTOCOL, Request, Response};
use remote::Remote;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection; nothing was sent.
    #[error("not reachable: {0}")]
    Unreachable(io::Error),
    /// The connection failed before the answer: the request may have been carried out.
    #[error("the connection was lost before the answer: {0}")]
    Lost(io::Error),
    /// The member answered that it was not carried out, or that it is not known whether it was.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl CallError {
    /// True if it was the deadline that ended the call: another connection to this member would not do better.
    pub fn is_late(&self) -> bool {
        match self {
            Self::Unreachable(error) | Self::Lost(error) => {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
            Self::Failed(_) => false,
        }
    }
}

/// The two ways to a member.
#[derive(Debug)]
enum Stream {
    Local(UnixStream),
    Remote(Box<Remote>),
}

impl Stream {
    /// Everything from now on must end within this time.
    fn limit(&mut self, within: Duration) -> io::Result<()> {
        let within = within.max(Duration::from_millis(1));
        match self {
            Self::Local(stream) => {
                stream.set_read_timeout(Some(within))?;
                stream.set_write_timeout(Some(within))
            }
            Self::Remote(remote) => {
                remote.limit(within);
                Ok(())
            }
        }
    }
}

impl Pipe for Stream {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.send_all(bytes),
            Self::Remote(remote) => remote.send_all(bytes),
        }
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.receive(bytes),
            Self::Remote(remote) => remote.receive(bytes),
        }
    }
}

/// One connection to one member.
#[derive(Debug)]
pub struct Connection {
    frames: FrameStream<Stream>,
    next: u64,
}

impl Connection {
    /// Connects to the member that serves at this socket.
    ///
    /// # Errors
    /// Nobody serves there, or the member refuses this process.
    pub fn open(path: &Path) -> Result<Self, CallError> {
        let stream = UnixStream::connect(path).map_err(CallError::Unreachable)?;
        Self::greet(Stream::Local(stream))
    }

    /// Connects to the member at `host:port` as the application that the credentials name. Name look-up aside it takes
    /// at most twice [`limits::CONNECT`].
    ///
    /// # Errors
    /// Nobody serves there, it is no member of the group, or it refuses this application.
    pub fn open_remote(address: &str, credentials: &Credentials) -> Result<Self, CallError> {
        let remote = Remote::connect(address, credentials).map_err(CallError::Unreachable)?;
        Self::greet(Stream::Remote(Box::new(remote)))
    }

    fn greet(stream: Stream) -> Result<Self, CallError> {
        let mut connection = Self { frames: FrameStream::new(stream), next: NO_REQUEST + 1 };
        connection.frames.stream().limit(limits::CONNECT).map_err(CallError::Unreachable)?;
        let hello = Ask::<&Request>::Hello(Hello::application());
        let hello = frame::encode(NO_REQUEST, &hello, limits::FRAME_UNPROVEN_MAX_BYTES)
            .map_err(|e| CallError::Unreachable(io::Error::other(e.to_string())))?;
        connection.frames.write(&hello).map_err(CallError::Unreachable)?;
        match connection.read().map_err(CallError::Unreachable)? {
            (_, Reply::Welcome(theirs)) if theirs.protocol == PROTOCOL => Ok(connection),
            (_, Reply::Welcome(theirs)) => {
                let text =
                    format!("the member speaks protocol {} and this module {PROTOCOL}", theirs.protocol);
                Err(Failure::new(FailureKind::Forbidden, text).into())
            }
            (_, Reply::Refused(failure)) => Err(failure.into()),
            _ => Err(CallError::Unreachable(io::Error::other("the member did not say hello"))),
        }
    }

    /// Asks, and waits for the answer for at most `deadline`. After [`CallError::Lost`] the connection is of no more
    /// use.
    ///
    /// # Errors
    /// As [`CallError`] says.
    pub fn call(&mut self, request: &ClientRequest, deadline: Duration) -> Result<Answer, CallError> {
        let id = self.next;
        self.next += 1;
        let frame = frame::encode(id, &Ask::Request(RequestRef::Client(request)), limits::FRAME_MAX_BYTES)
            .map_err(|e| Failure::new(FailureKind::BadRequest, e))?;
        self.frames.stream().limit(deadline).map_err(CallError::Lost)?;
        self.frames.write(&frame).map_err(CallError::Lost)?;
        loop {
            match self.read().map_err(CallError::Lost)? {
                (answered, Reply::Response(Response::Client(answer))) if answered == id => return Ok(answer),
                (answered, Reply::Response(Response::Failed(failure))) if answered == id => {
                    return Err(failure.into());
                }
                (_, Reply::Pong) => {}
                (_, Reply::Refused(failure)) => return Err(failure.into()),
                _ => return Err(CallError::Lost(io::Error::other("the member answered another question"))),
            }
        }
    }

    fn read(&mut self) -> io::Result<(u64, Reply<Response>)> {
        match self.frames.read(limits::FRAME_MAX_BYTES) {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(frame::FrameError::Stream(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// [`Request`] with a borrowed body. Its variants stand in the same order.
#[derive(Debug, serde::Serialize)]
enum RequestRef<'a> {
    #[expect(dead_code, reason = "keeps the order of Request")]
    Member(()),
    Client(&'a ClientRequest),
}
