//! A blocking connection to one member, for programs that run no threads of ours: the PKCS#11 module. One call at a
//! time; a connection that failed is dropped and made anew by its owner.

use crate::frames::blocking::FrameStream;
use crate::frames::frame::{self, Ask, NO_REQUEST, Reply};
use crate::limits;
use crate::wire::{Answer, ClientRequest, Failure, FailureKind, Hello, PROTOCOL, Request, Response};
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

/// One connection to one member over its Unix socket.
#[derive(Debug)]
pub struct Connection {
    frames: FrameStream,
    next: u64,
}

impl Connection {
    /// Connects to the member that serves at this socket.
    ///
    /// # Errors
    /// Nobody serves there, or the member refuses this process.
    pub fn open(path: &Path) -> Result<Self, CallError> {
        let stream = UnixStream::connect(path).map_err(CallError::Unreachable)?;
        let mut connection = Self { frames: FrameStream::new(stream), next: NO_REQUEST + 1 };
        connection.limit(limits::CONNECT).map_err(CallError::Unreachable)?;
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
        self.limit(deadline).map_err(CallError::Lost)?;
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

    fn limit(&self, deadline: Duration) -> io::Result<()> {
        let limit = Some(deadline.max(Duration::from_millis(1)));
        self.frames.stream().set_read_timeout(limit)?;
        self.frames.stream().set_write_timeout(limit)
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
