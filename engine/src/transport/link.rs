//! Links to other members: one connection for each (member, lane), made when it is first needed, made again after
//! it broke, with growing pauses while that fails.

use super::connection::{self, Connection, Watch};
use super::pki::PkiError;
use super::{Directory, Identity, LinkError, Peers, hello, random, tls};
use crate::client::tcp;
use crate::domain::{Fingerprint, GroupId, MemberId};
use crate::limits;
use crate::telemetry::Event;
use crate::wire::{Hello, Lane, Request, Response};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tracing::{debug, warn};

/// A member's links to the others. Cheap to share behind an [`Arc`]; [`Links::close`] ends them all.
pub struct Links(Arc<Inner>);

struct Inner {
    tls: Result<Arc<ClientConfig>, PkiError>,
    hello: Hello,
    directory: Arc<dyn Directory>,
    table: Mutex<Table>,
    /// Grows whenever some member has become absent.
    absences: watch::Sender<u64>,
}

#[derive(Default)]
struct Table {
    closed: bool,
    attempts: u64,
    slots: HashMap<(MemberId, Lane), Slot>,
    /// Members whose machine refused the last connection.
    absent: HashSet<MemberId>,
}

type Connected = Result<Arc<Connection>, LinkError>;
type Attempt = Shared<BoxFuture<'static, Connected>>;

/// One (member, lane).
enum Slot {
    /// Being made, by a task of its own: whoever waits for it may go away.
    Connecting { number: u64, failures: u32, attempt: Attempt },
    /// Made.
    Open(Arc<Connection>),
    /// Could not be made; not tried before `again`.
    Failed { failures: u32, again: Instant, why: LinkError },
}

impl Links {
    /// Links of a member with this identity. Connects nothing yet. The hello's lane is set by each call. An identity
    /// that cannot be used ([`Identity::check`]) shows in every call.
    pub fn new(identity: Identity, hello: Hello, directory: Arc<dyn Directory>) -> Self {
        let tls = tls::mutual(&identity);
        Self(Arc::new(Inner {
            tls,
            hello,
            directory,
            table: Mutex::default(),
            absences: watch::Sender::new(0),
        }))
    }

    #[cfg(test)]
    pub(super) fn open_connection(&self, to: MemberId, lane: Lane) -> Option<Arc<Connection>> {
        match self.0.table.lock().slots.get(&(to, lane)) {
            Some(Slot::Open(connection)) => Some(connection.clone()),
            _ => None,
        }
    }
}

impl Peers for Links {
    fn call(
        &self,
        to: MemberId,
        lane: Lane,
        request: Request,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Response, LinkError>> {
        let deadline = Instant::now() + deadline;
        async move {
            let connection = match self.0.find(to, lane)? {
                Found::Open(connection) => connection,
                Found::Connecting(attempt) => timeout_at(deadline, attempt).await.map_err(|_| {
                    LinkError::Unreachable(format!("no connection to {to} before the deadline"))
                })??,
            };
            connection.call(&request, deadline).await
        }
        .boxed()
    }

    fn is_absent(&self, member: MemberId) -> bool {
        let table = self.0.table.lock();
        let open = |(key, slot): (&(MemberId, Lane), &Slot)| match slot {
            Slot::Open(connection) => key.0 == member && connection.is_open(),
            Slot::Connecting { .. } | Slot::Failed { .. } => false,
        };
        table.absent.contains(&member) && !table.slots.iter().any(open)
    }

    fn absences(&self) -> watch::Receiver<u64> {
        self.0.absences.subscribe()
    }

    fn forget(&self, member: MemberId) {
        let mut table = self.0.table.lock();
        table.absent.remove(&member);
        for (_, slot) in table.slots.extract_if(|(to, _), _| *to == member) {
            slot.close("the member was forgotten");
        }
    }

    fn close(&self) {
        let mut table = self.0.table.lock();
        table.closed = true;
        for (_, slot) in table.slots.drain() {
            slot.close("this member is stopping");
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.close();
    }
}

impl Slot {
    fn close(self, why: &str) {
        if let Self::Open(connection) = self {
            connection.close(why);
        }
    }
}

enum Found {
    Open(Arc<Connection>),
    Connecting(Attempt),
}

impl Inner {
    /// The connection to use, or the attempt to wait for. While an attempt has just failed, its reason.
    fn find(self: &Arc<Self>, to: MemberId, lane: Lane) -> Result<Found, LinkError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(LinkError::Unreachable("this member is stopping".into()));
        }
        let failures = match table.slots.get(&(to, lane)) {
            Some(Slot::Open(connection)) if connection.is_open() => {
                return Ok(Found::Open(connection.clone()));
            }
            Some(Slot::Connecting { attempt, .. }) => return Ok(Found::Connecting(attempt.clone())),
            Some(Slot::Failed { again, why, .. }) if Instant::now() < *again => return Err(why.clone()),
            Some(Slot::Failed { failures, .. }) => *failures,
            Some(Slot::Open(_)) | None => 0,
        };
        let Some((address, tls)) = self.directory.address(to) else {
            table.slots.remove(&(to, lane));
            return Err(LinkError::Unreachable(format!("{to} is not on the roster")));
        };
        table.attempts += 1;
        let number = table.attempts;
        let (sender, result) = oneshot::channel();
        let attempt = result
            .map(|result| {
                result.unwrap_or_else(|_| Err(LinkError::Unreachable("the attempt was given up".into())))
            })
            .boxed()
            .shared();
        table.slots.insert((to, lane), Slot::Connecting { number, failures, attempt: attempt.clone() });
        drop(table);
        let inner = self.clone();
        tokio::spawn(async move {
            let connected = timeout(limits::CONNECT, inner.connect(to, lane, &address, tls)).await;
            let connected = connected.unwrap_or_else(|_| {
                Err(LinkError::Unreachable(format!(
                    "no connection within {} ms",
                    limits::CONNECT.as_millis()
                )))
            });
            let connected = connected.map(Arc::new).map_err(|error| at(error, to, &address));
            let settled = inner.settle(to, lane, number, connected);
            let ended = settled.as_ref().ok().map(|connection| connection.ended());
            let _ = sender.send(settled);
            if let Some(ended) = ended.filter(|_| lane == Lane::Calls) {
                let since = Instant::now();
                ended.await;
                if since.elapsed() >= limits::PING_EVERY {
                    inner.probe(to, lane).await;
                }
            }
        });
        Ok(Found::Connecting(attempt))
    }

    /// Finds out at once whether a member whose connection broke still listens.
    async fn probe(self: &Arc<Self>, to: MemberId, lane: Lane) {
        for _ in 0..limits::LOST_PROBES {
            if !self.table.lock().slots.contains_key(&(to, lane)) {
                return;
            }
            let connected = match self.find(to, lane) {
                Ok(Found::Open(_)) => true,
                Ok(Found::Connecting(attempt)) => attempt.await.is_ok(),
                Err(_) => false,
            };
            if connected || self.table.lock().absent.contains(&to) {
                return;
            }
            tokio::time::sleep(limits::RECONNECT_MIN).await;
        }
    }

    /// Files what came of an attempt, unless the member was forgotten meanwhile.
    fn settle(&self, to: MemberId, lane: Lane, number: u64, connected: Connected) -> Connected {
        let mut table = self.table.lock();
        let failures = match table.slots.get(&(to, lane)) {
            Some(Slot::Connecting { number: current, failures, .. }) if *current == number => *failures,
            _ => return Err(LinkError::Unreachable(format!("{to} was forgotten"))),
        };
        let slot = match &connected {
            Ok(connection) => {
                debug!(%to, ?lane, "connected");
                table.absent.remove(&to);
                Slot::Open(connection.clone())
            }
            Err(why) => {
                if failures == 0 {
                    warn!(code = Event::CannotConnect.code(), %to, ?lane, %why, "cannot connect; trying on");
                }
                // To be refused costs next to nothing, and who is back is not to be kept waiting.
                let doublings = if table.absent.contains(&to) { 0 } else { failures.min(8) };
                let pause = limits::RECONNECT_MIN.saturating_mul(1 << doublings).min(limits::RECONNECT_MAX);
                let again = Instant::now() + random::jitter(pause);
                Slot::Failed { failures: failures.saturating_add(1), again, why: why.clone() }
            }
        };
        table.slots.insert((to, lane), slot);
        connected
    }

    async fn connect(
        &self,
        to: MemberId,
        lane: Lane,
        address: &str,
        key: Fingerprint,
    ) -> Result<Connection, LinkError> {
        let config = self.tls.clone().map_err(|e| LinkError::Refused(e.to_string()))?;
        let stream = TcpStream::connect(address).await.map_err(|e| {
            if e.kind() == std::io::ErrorKind::ConnectionRefused {
                self.table.lock().absent.insert(to);
                self.absences.send_modify(|count| *count += 1);
            }
            LinkError::Unreachable(e.to_string())
        })?;
        tcp::prepare(&stream).map_err(|e| LinkError::Unreachable(e.to_string()))?;
        let stream = TlsConnector::from(config)
            .connect(tls::server_name(), stream)
            .await
            .map_err(|e| connection::broken(&e.into()))?;
        let named = tls::peer(stream.get_ref().1.peer_certificates());
        let named = named.map_err(|e| LinkError::Refused(e.to_string()))?;
        let expected = named.is_some_and(|named| {
            Some(named.group) == self.hello.group && named.member == to && named.tls == key
        });
        if !expected {
            return Err(LinkError::Refused(not_the_one(to, self.hello.group)));
        }
        let ours = Hello { lane, ..self.hello.clone() };
        let (connection, theirs) = Connection::open(stream, &ours, Watch::Pings).await?;
        hello::judge_member(&ours, &theirs, to).map_err(LinkError::Refused)?;
        Ok(connection)
    }
}

fn not_the_one(to: MemberId, group: Option<GroupId>) -> String {
    let group = group.map(|group| format!(" of group {group}")).unwrap_or_default();
    format!(
        "its certificate is not the one that the roster{group} names for {to}: check the member's address"
    )
}

/// Puts where it was before what went wrong.
fn at(error: LinkError, to: MemberId, address: &str) -> LinkError {
    match error {
        LinkError::Unreachable(why) => LinkError::Unreachable(format!("{to} at {address}: {why}")),
        LinkError::Refused(why) => LinkError::Refused(format!("{to} at {address}: {why}")),
        other @ (LinkError::Lost | LinkError::Deadline) => other,
    }
}
