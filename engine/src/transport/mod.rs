//! How requests get from process to process: mutual TLS 1.3 between members, TLS with a pinned authority for
//! joiners, a Unix socket with peer credentials for local clients. One connection carries many requests at once;
//! answers come in any order.
//!
//! `hello` is pure. `stream` reads and writes frames. `connection` is the asking half of one
//! connection; `link` keeps one for each (member, lane), `client` and `join` use one alone. `server` is the
//! answering half, over TCP and over the Unix socket that `unix` binds; `application` answers the PKCS#11 module on
//! threads of its own, and `working` tells it that a long call is under way. `pki` makes and reads certificates, `tls`
//! turns them into configurations.
//!
//! What holds: nobody but a member with a certificate of the group's authority, at its place in the roster, may ask
//! what members ask. Whoever has none may only join. A frame's length is checked before memory is taken for it.
//! Garbage costs its sender the connection and nobody else anything. A dropped call leaves nothing behind.

mod application;
mod client;
mod connection;
mod hello;
mod join;
mod link;
pub mod pki;
mod random;
mod server;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod unix;
mod working;

pub use client::Client;
pub use join::{JoinClient, Pinned};
pub use link::Links;
pub use random::random_bytes;
pub use server::{serve_tcp, serve_unix};
pub use unix::bind_unix;

use crate::domain::{ApplicationName, Fingerprint, MemberId};
use crate::wire::{Failure, FailureKind, JoinAnswer, JoinRequest, Lane, Remedy, Request, Response};
use futures::future::BoxFuture;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use zeroize::Zeroizing;

/// A member's TLS identity. The key is wiped on drop and never printed.
#[derive(Clone)]
pub struct Identity {
    /// The member's certificate, DER.
    pub certificate: Vec<u8>,
    /// The group's authority certificate that signed it, DER; sent along, so that joiners can pin it.
    pub authority: Vec<u8>,
    /// The member's TLS key, PKCS#8 DER.
    pub key: Zeroizing<Vec<u8>>,
}

impl Identity {
    /// Says whether certificate, authority and key belong together, before anything is served with them.
    pub fn check(&self) -> Result<pki::Named, pki::PkiError> {
        tls::server(self)?;
        tls::mutual(self)?;
        pki::named(&self.certificate)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(..)")
    }
}

/// One accepted connection, unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Who asks, as far as the connection proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A member: its certificate, its hello and the roster agree. May ask everything.
    Member(MemberId),
    /// Somebody without a certificate. May only join.
    Unproven,
    /// An application: its certificate and the agreed list agree. May use the virtual slot and ask for the status.
    Application(ApplicationName),
    /// A process on this machine, as the kernel names it. May only ask as a client.
    Local {
        /// Its effective user.
        uid: u32,
        /// Its process id, where the kernel tells it.
        pid: Option<i32>,
    },
}

/// Answers requests. Calls run side by side, also those of one connection.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. The future is run to its end even if the caller goes away meanwhile (for at most
    /// [`crate::limits::OVERALL`]), and is dropped when the listener stops.
    fn handle(
        &self,
        connection: ConnectionId,
        caller: Caller,
        request: Request,
    ) -> BoxFuture<'static, Response>;

    /// Answers on the calling thread what needs no waiting for others; gives the request back otherwise. May block for
    /// as long as a token's call takes.
    fn handle_now(&self, _caller: &Caller, request: Request) -> Result<Response, Box<Request>> {
        Err(Box::new(request))
    }

    /// True while what [`Handler::handle_now`] does may never end: its callers are answered in its place.
    fn is_hung(&self) -> bool {
        false
    }

    /// The connection is gone and none of its requests is being answered any more.
    fn closed(&self, _connection: ConnectionId) {}

    /// True if the member is on the roster, or the application on the list, with this TLS key. Asked at each
    /// connection's begin and again every [`crate::limits::PING_EVERY`]: whoever is removed loses the connections it has.
    fn admits(&self, bearer: &pki::Bearer) -> bool;
}

/// Where members are.
pub trait Directory: Send + Sync + 'static {
    /// `host:port` of a member and its TLS key's fingerprint; None if it is not on the roster.
    fn address(&self, member: MemberId) -> Option<(String, Fingerprint)>;
}

/// The way to the other members: [`Links`], or a simulation's network.
pub trait Peers: Send + Sync + 'static {
    /// Asks a member and waits for its answer, for at most `deadline`. May be dropped at any time; the request may have
    /// been sent by then.
    fn call(
        &self,
        to: MemberId,
        lane: Lane,
        request: Request,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Response, LinkError>>;

    /// True if a member's process is gone: its machine has refused the last try to connect, and no connection to it is
    /// open. Not true of one that hangs or that no way leads to.
    fn is_absent(&self, member: MemberId) -> bool;

    /// Changes whenever some member has become absent.
    fn absences(&self) -> watch::Receiver<u64>;

    /// Closes the connections to a member and forgets what was learned of reaching it: it was removed, or its address or
    /// key changed.
    fn forget(&self, member: MemberId);

    /// Closes all connections; every later call is refused.
    fn close(&self);
}

/// How a joiner reaches a member that may admit it: [`Pinned`], or a simulation's network.
pub trait Sponsors: Send + Sync {
    /// Connects to `host:port`, and trusts whatever member the authority with this fingerprint signed. A failure whose
    /// remedy is another member means that nothing was sent.
    fn connect<'a>(
        &'a self,
        address: &'a str,
        authority: Fingerprint,
    ) -> BoxFuture<'a, Result<Box<dyn Sponsor>, Failure>>;
}

/// A joiner's connection to a member. The steps of a join run on one.
pub trait Sponsor: Send + Sync {
    /// Asks, and waits for the answer for at most `deadline`.
    fn call(&self, request: JoinRequest, deadline: Duration) -> BoxFuture<'_, Result<JoinAnswer, Failure>>;
}

/// Why a call brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The request was not sent: there is no connection, and why.
    #[error("not reachable: {0}")]
    Unreachable(String),
    /// The connection ended before the answer: the request may have been carried out.
    #[error("the connection was lost before the answer")]
    Lost,
    /// No answer in time: the request may have been or may yet be carried out.
    #[error("no answer before the deadline")]
    Deadline,
    /// One side refuses the other, or the request is over a limit; it was not carried out.
    #[error("refused: {0}")]
    Refused(String),
}

impl LinkError {
    /// What the caller may do. Adding an error forces this choice.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Unreachable(_) | Self::Lost => Remedy::TryAnotherMember,
            Self::Deadline => Remedy::TryAgain,
            Self::Refused(_) => Remedy::GiveUp,
        }
    }

    /// True if the request may have been carried out: a change must be repeated under its request id.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Lost | Self::Deadline)
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let kind = match &error {
            // Nothing was sent: another member may well do it.
            LinkError::Unreachable(_) => FailureKind::NotPrimary { primary: None },
            LinkError::Lost | LinkError::Deadline => FailureKind::Deadline,
            LinkError::Refused(_) => FailureKind::Forbidden,
        };
        Self::new(kind, error)
    }
}
