//! A local client: one connection to the member on this machine, over its Unix socket.

use super::connection::{Connection, Watch};
use super::{LinkError, hello, unix};
use crate::limits;
use crate::wire::{Answer, ClientRequest, Failure, FailureKind, Hello, Request, Response};
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

/// A connection of a local client. Carries many calls at once. A lost connection is not made anew: connect again.
pub struct Client(Connection);

impl Client {
    /// Connects to the member that serves at this socket, within [`limits::CONNECT`].
    pub async fn connect_unix(path: &Path) -> Result<Self, Failure> {
        unix::check_length(path).map_err(|e| Failure::new(FailureKind::BadRequest, e))?;
        let connected = async {
            let stream =
                UnixStream::connect(path).await.map_err(|e| LinkError::Unreachable(e.to_string()))?;
            let (connection, theirs) = Connection::open(stream, &Hello::anonymous(), Watch::Kernel).await?;
            hello::judge_protocol(&theirs).map_err(LinkError::Refused)?;
            Ok(Self(connection))
        };
        let late = || LinkError::Unreachable(format!("no answer within {} ms", limits::CONNECT.as_millis()));
        let connected = timeout(limits::CONNECT, connected).await.unwrap_or_else(|_| Err(late()));
        connected.map_err(|error| {
            let mut failure = Failure::from(error);
            let hint = match failure.kind {
                FailureKind::Forbidden => "",
                _ => ". Is the member running ('keyraft serve'), and is this its socket?",
            };
            failure.message = format!("{}: {}{hint}", path.display(), failure.message);
            failure
        })
    }

    /// True once the connection is lost: connect again.
    pub fn is_closed(&self) -> bool {
        !self.0.is_open()
    }

    /// Asks, and waits for the answer for at most `deadline`.
    pub async fn call(&self, request: ClientRequest, deadline: Duration) -> Result<Answer, Failure> {
        match self.0.call(&Request::Client(request), Instant::now() + deadline).await? {
            Response::Client(answer) => Ok(answer),
            Response::Failed(failure) => Err(failure),
            Response::Member(_) | Response::Join(_) => {
                Err(Failure::new(FailureKind::Internal, "the member answered another question"))
            }
        }
    }
}
