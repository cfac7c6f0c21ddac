//! A blocking connection to one member, for programs that run no threads of ours: the PKCS#11 module. One call at a
//! time; a connection that failed is dropped and made anew by its owner. It goes over the member's Unix socket (`local`), or
//! by a certificate over TLS (`remote`); `tls` is what members use too. `knock` connects without waiting.

mod knock;
mod local;
mod remote;
pub(crate) mod tcp;
pub(crate) mod tls;
mod wait;

pub use knock::Knock;
pub use remote::Credentials;

use crate::clock::Clock;
use crate::frames::blocking::{FrameStream, Pipe};
use crate::frames::frame::{self, Ask, NO_REQUEST, Reply};
use crate::limits;
use crate::wire::{Answer, ClientRequest, Failure, FailureKind, Hello, PROTOCOL, Request, Response};
use local::Local;
use remote::Remote;
use rustix::io::Errno;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};
use wait::Wait;

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
    /// True if it was time that ended the call: another connection to this member would not do better. A connection that
    /// the kernel gave up (a dead way, found out while it was idle) is not late: a fresh one may do.
    pub fn is_late(&self) -> bool {
        let late =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        match self {
            Self::Unreachable(error) => late(error),
            // Our own waits end without the kernel's number.
            Self::Lost(error) => late(error) && Errno::from_io_error(error) != Some(Errno::TIMEDOUT),
            Self::Failed(_) => false,
        }
    }

    /// True if this process or its machine is short of something: it says nothing about the member.
    pub fn is_own(&self) -> bool {
        match self {
            Self::Unreachable(error) | Self::Lost(error) => matches!(
                Errno::from_io_error(error),
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
            ),
            Self::Failed(_) => false,
        }
    }
}

/// The two ways to a member.
#[derive(Debug)]
enum Stream {
    Local(Local),
    Remote(Box<Remote>),
}

impl Stream {
    /// How long to wait from now on.
    fn limit(&mut self, wait: Wait) {
        match self {
            Self::Local(local) => local.wait = wait,
            Self::Remote(remote) => remote.limit(wait),
        }
    }

    /// Waits from now on where it must, if it did not before.
    fn wait_again(&self) -> io::Result<()> {
        match self {
            Self::Local(local) => local.wait_again(),
            Self::Remote(_) => Ok(()),
        }
    }
}

impl Pipe for Stream {
    fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Local(local) => local.send_all(bytes),
            Self::Remote(remote) => remote.send_all(bytes),
        }
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(local) => local.receive(bytes),
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
    /// Connects to the member that serves at this socket, within `limit` and [`limits::CONNECT`], and with no more than
    /// [`limits::MEMBER_DEAD`] between two bytes.
    ///
    /// # Errors
    /// Nobody serves there, or the member refuses this process.
    pub fn open(path: &Path, limit: Duration) -> Result<Self, CallError> {
        let wait = greeting(limit);
        let local = Local::connect(path, wait).map_err(CallError::Unreachable)?;
        Self::new(Stream::Local(local)).greet(wait)
    }

    /// Connects to the member at `host:port` as the application that the credentials name, within the same limits; the
    /// look-up of the name has its own time.
    ///
    /// # Errors
    /// Nobody serves there, it is no member of the group, or it refuses this application.
    pub fn open_remote(address: &str, credentials: &Credentials, limit: Duration) -> Result<Self, CallError> {
        let places = look_up(address).map_err(CallError::Unreachable)?;
        Self::open_at(&places, credentials, limit)
    }

    /// The same at one of these addresses, the first that serves.
    ///
    /// # Errors
    /// As [`Connection::open_remote`] says.
    pub fn open_at(
        places: &[SocketAddr],
        credentials: &Credentials,
        limit: Duration,
    ) -> Result<Self, CallError> {
        let wait = greeting(limit);
        let remote = Remote::connect(places, credentials, wait).map_err(CallError::Unreachable)?;
        Self::new(Stream::Remote(Box::new(remote))).greet(wait)
    }

    fn new(stream: Stream) -> Self {
        Self { frames: FrameStream::new(stream), next: NO_REQUEST + 1 }
    }

    fn greet(mut self, wait: Wait) -> Result<Self, CallError> {
        self.say_hello(wait)?;
        self.hear_welcome()?;
        Ok(self)
    }

    fn say_hello(&mut self, wait: Wait) -> Result<(), CallError> {
        self.frames.stream().limit(wait);
        let hello = Ask::<&Request>::Hello(Hello::application());
        let hello = frame::encode(NO_REQUEST, &hello, limits::FRAME_UNPROVEN_MAX_BYTES)
            .map_err(|e| CallError::Unreachable(io::Error::other(e.to_string())))?;
        self.frames.write(&hello).map_err(CallError::Unreachable)
    }

    fn hear_welcome(&mut self) -> Result<(), CallError> {
        match self.read().map_err(CallError::Unreachable)? {
            (_, Reply::Welcome(theirs)) if theirs.protocol == PROTOCOL => Ok(()),
            (_, Reply::Welcome(theirs)) => {
                let text =
                    format!("the member speaks protocol {} and this module {PROTOCOL}", theirs.protocol);
                Err(Failure::new(FailureKind::Forbidden, text).into())
            }
            (_, Reply::Refused(failure)) => Err(failure.into()),
            _ => Err(CallError::Unreachable(io::Error::other("the member did not say hello"))),
        }
    }

    /// Sends a request, by `until` and with no more than `quiet` between two bytes. After [`CallError::Lost`] the
    /// connection is of no more use.
    ///
    /// # Errors
    /// As [`CallError`] says.
    pub fn send(
        &mut self,
        request: &ClientRequest,
        until: Instant,
        quiet: Duration,
    ) -> Result<Sent, CallError> {
        let id = self.next;
        self.next += 1;
        let frame = frame::encode(id, &Ask::Request(RequestRef::Client(request)), limits::FRAME_MAX_BYTES)
            .map_err(|e| Failure::new(FailureKind::BadRequest, e))?;
        self.frames.stream().limit(Wait { until, quiet });
        self.frames.write(&frame).map_err(CallError::Lost)?;
        Ok(Sent(id))
    }

    /// Asks, and waits for the answer, each within `limit`.
    ///
    /// # Errors
    /// As [`CallError`] says.
    pub fn call(&mut self, request: &ClientRequest, limit: Duration) -> Result<Answer, CallError> {
        let until = Clock.now() + limit;
        let mut sent = self.send(request, until, limit)?;
        loop {
            if let Heard::Answer(answer) = self.receive(&mut sent, until, limit)? {
                return Ok(answer);
            }
        }
    }

    /// Waits for the answer, or for the news that it is worked on, by `until` and with no more than `quiet` between two
    /// bytes. A member tells every [`limits::MEMBER_HEARTBEAT`] that it works, so a longer silence is no long
    /// operation. After [`CallError::Lost`] the connection is of no more use.
    ///
    /// # Errors
    /// As [`CallError`] says.
    pub fn receive(&mut self, sent: &mut Sent, until: Instant, quiet: Duration) -> Result<Heard, CallError> {
        self.frames.stream().limit(Wait { until, quiet });
        loop {
            match self.read().map_err(CallError::Lost)? {
                (id, Reply::Response(Response::Client(answer))) if id == sent.0 => {
                    return Ok(Heard::Answer(answer));
                }
                (id, Reply::Response(Response::Failed(failure))) if id == sent.0 => {
                    return Err(failure.into());
                }
                (id, Reply::Working) if id == sent.0 => return Ok(Heard::Working),
                // An answer may have overtaken the news that it was worked on.
                (_, Reply::Pong | Reply::Working) => {}
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

/// The addresses of `host:port`, at least one. A dead resolver may take many seconds to say that it has none.
///
/// # Errors
/// There is none, or nobody knows.
pub fn look_up(address: &str) -> io::Result<Vec<SocketAddr>> {
    let places: Vec<_> = address.to_socket_addrs()?.collect();
    if places.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address")));
    }
    Ok(places)
}

/// How long a greeting may take.
fn greeting(limit: Duration) -> Wait {
    Wait { until: Clock.now() + limit.min(limits::CONNECT), quiet: limits::MEMBER_DEAD }
}

/// What is left until then; an error once it has passed.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Clock.now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// What a member says while a request is on its way.
#[derive(Debug)]
pub enum Heard {
    /// The answer.
    Answer(Answer),
    /// It is being worked on.
    Working,
}

/// A request on its way: its answer bears this id.
#[derive(Debug)]
pub struct Sent(u64);

/// [`Request`] with a borrowed body. Its variants stand in the same order.
#[derive(Debug, serde::Serialize)]
enum RequestRef<'a> {
    #[expect(dead_code, reason = "keeps the order of Request")]
    Member(()),
    Client(&'a ClientRequest),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw_os_error())
    }

    #[test]
    fn a_connection_that_the_kernel_gave_up_is_not_late() {
        assert!(CallError::Lost(io::ErrorKind::TimedOut.into()).is_late());
        assert!(CallError::Lost(number(Errno::AGAIN)).is_late());
        assert!(!CallError::Lost(number(Errno::TIMEDOUT)).is_late());
        assert!(CallError::Unreachable(number(Errno::TIMEDOUT)).is_late());
        assert!(!CallError::Lost(number(Errno::PIPE)).is_late());
    }

    #[test]
    fn a_shortage_here_is_no_fault_of_the_member() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(CallError::Unreachable(number(errno)).is_own());
            assert!(CallError::Lost(number(errno)).is_own());
        }
        assert!(!CallError::Unreachable(number(Errno::CONNREFUSED)).is_own());
        assert!(!CallError::Lost(io::ErrorKind::UnexpectedEof.into()).is_own());
    }
}
