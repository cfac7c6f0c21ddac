//! Finds out whether a member is back without waiting for it: a connection is begun, and whoever comes by later looks how
//! far it is. A member that is gone or stopped costs nobody a wait so.

use super::local::Local;
use super::remote::Remote;
use super::wait::Wait;
use super::{CallError, Connection, Credentials, Stream, greeting};
use crate::clock::Clock;
use crate::limits;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A member hangs up on whoever is connected for long and has not said hello: then it is connected to anew.
const STALE: Duration = Duration::from_millis(500);

/// A connection that has begun.
#[derive(Debug)]
pub struct Knock(Stage);

#[derive(Debug)]
enum Stage {
    /// The hello is sent.
    Greeting(Box<Connection>),
    /// The machine has not answered.
    Connecting(Connecting),
    /// It has come to its end.
    Over,
}

#[derive(Debug)]
struct Connecting {
    stream: TcpStream,
    place: SocketAddr,
    begun: Instant,
    others: Vec<SocketAddr>,
    credentials: Credentials,
}

impl Knock {
    /// Begins at a socket of this machine.
    ///
    /// # Errors
    /// Nobody serves there, or the member takes no connections now.
    pub fn at_socket(path: &Path) -> Result<Self, CallError> {
        let wait = greeting(limits::CONNECT);
        let local = Local::connect_at_once(path, wait).map_err(CallError::Unreachable)?;
        let mut connection = Connection::new(Stream::Local(local));
        connection.say_hello(wait)?;
        Ok(Self(Stage::Greeting(Box::new(connection))))
    }

    /// Begins at one of these addresses.
    ///
    /// # Errors
    /// Nobody serves there.
    pub fn at_addresses(places: Vec<SocketAddr>, credentials: &Credentials) -> Result<Self, CallError> {
        Ok(Self(connecting(places, credentials.clone())?))
    }

    /// Looks how far it is; the connection once it is there. It waits for nobody but a machine that has answered
    /// already, and for that for at most `limit`.
    ///
    /// # Errors
    /// Nobody serves there, or the member refuses this process.
    pub fn go_on(&mut self, limit: Duration) -> Result<Option<Connection>, CallError> {
        match std::mem::replace(&mut self.0, Stage::Over) {
            Stage::Greeting(mut connection) => {
                connection.frames.stream().limit(greeting(limits::CONNECT));
                match connection.hear_welcome() {
                    Err(error) if error.is_late() => {
                        self.0 = Stage::Greeting(connection);
                        Ok(None)
                    }
                    Ok(()) => {
                        connection.frames.stream().wait_again().map_err(CallError::Unreachable)?;
                        Ok(Some(*connection))
                    }
                    Err(error) => Err(error),
                }
            }
            Stage::Connecting(begun) => match connect(&begun.stream, &begun.place) {
                Ok(()) | Err(Errno::ISCONN) => begun.finish(greeting(limit)).map(Some),
                Err(Errno::ALREADY | Errno::INPROGRESS | Errno::INTR) => {
                    self.0 = Stage::Connecting(begun);
                    Ok(None)
                }
                Err(_) if !begun.others.is_empty() => {
                    self.0 = connecting(begun.others, begun.credentials)?;
                    Ok(None)
                }
                Err(errno) => Err(CallError::Unreachable(errno.into())),
            },
            Stage::Over => Err(CallError::Unreachable(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Connecting {
    /// The machine has answered.
    fn finish(self, wait: Wait) -> Result<Connection, CallError> {
        let proven = if Clock.now().saturating_duration_since(self.begun) < STALE {
            self.stream.set_nonblocking(false).map(|()| self.stream)
        } else {
            TcpStream::connect_timeout(&self.place, wait.quiet)
        };
        let proven = proven.and_then(|stream| Remote::prove(stream, &self.credentials, wait));
        let remote = proven.map_err(CallError::Unreachable)?;
        Connection::new(Stream::Remote(Box::new(remote))).greet(wait)
    }
}

/// Begins to connect to the first of these that can be begun with.
fn connecting(places: Vec<SocketAddr>, credentials: Credentials) -> Result<Stage, CallError> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "there is no address");
    let mut places = places.into_iter();
    while let Some(place) = places.next() {
        match begin(place) {
            Ok(stream) => {
                let (begun, others) = (Clock.now(), places.collect());
                return Ok(Stage::Connecting(Connecting { stream, place, begun, others, credentials }));
            }
            Err(error) => failed = error,
        }
    }
    Err(CallError::Unreachable(failed))
}

fn begin(place: SocketAddr) -> io::Result<TcpStream> {
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &place) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}
