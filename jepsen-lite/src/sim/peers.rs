//! What a simulated member has in place of TLS links and listeners: its way to other members, a joiner's way to a sponsor,
//! and the door at which requests arrive.

use super::network::{Ear, Incoming, Network, Place, Way, guard};
use futures::FutureExt;
use futures::future::BoxFuture;
use keyraft_engine::codec::{decode, encode};
use keyraft_engine::domain::{Fingerprint, MemberId};
use keyraft_engine::limits::{FRAME_MAX_BYTES, OVERALL};
use keyraft_engine::transport::pki::{Bearer, Named};
use keyraft_engine::transport::{Caller, ConnectionId, Handler, LinkError, Peers, Sponsor, Sponsors};
use keyraft_engine::wire::{Failure, FailureKind, JoinAnswer, JoinRequest, Lane, Request, Response};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// A member's way to the others.
pub struct Links {
    network: Network,
    place: Place,
    own: Named,
    ear: Arc<Ear>,
    /// One a member and lane.
    connections: Mutex<BTreeMap<(MemberId, Lane), ConnectionId>>,
    closed: AtomicBool,
}

impl Links {
    /// Those of a process at a place, with this certificate.
    pub fn new(network: &Network, place: Place, own: Named) -> Self {
        let ear = Arc::new(Ear::default());
        network.lend(place, ear.clone());
        let (network, connections) = (network.clone(), Mutex::default());
        Self { network, place, own, ear, connections, closed: AtomicBool::new(false) }
    }

    async fn carry(
        &self,
        to: MemberId,
        lane: Lane,
        request: Request,
        deadline: Duration,
    ) -> Result<Response, LinkError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(LinkError::Unreachable("this member is stopping".into()));
        }
        let Some(place) = self.network.place_of(to) else {
            return Err(LinkError::Unreachable(format!("{to} is not on the roster")));
        };
        let connection =
            *guard(&self.connections).entry((to, lane)).or_insert_with(|| self.network.connection());
        let way = Way {
            from: self.place,
            to: place,
            caller: Caller::Member(self.own.member),
            bearer: Some(self.own),
            connection,
        };
        let request = encode(&request).map_err(|error| LinkError::Refused(error.to_string()))?;
        let answer = self.network.call(way, request, deadline, false).await?;
        self.ear.heard(to);
        understood(&answer)
    }
}

fn understood(answer: &[u8]) -> Result<Response, LinkError> {
    decode(answer, FRAME_MAX_BYTES).map_err(|error| LinkError::Refused(error.to_string()))
}

impl Peers for Links {
    fn call(
        &self,
        to: MemberId,
        lane: Lane,
        request: Request,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Response, LinkError>> {
        self.carry(to, lane, request, deadline).boxed()
    }

    fn is_absent(&self, member: MemberId) -> bool {
        guard(&self.ear.absent).contains(&member)
    }

    fn absences(&self) -> watch::Receiver<u64> {
        self.ear.absences.subscribe()
    }

    fn forget(&self, member: MemberId) {
        self.ear.heard(member);
        guard(&self.connections).retain(|(to, _), _| *to != member);
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// Where a member says that it is reached.
pub fn address(place: Place) -> String {
    format!("m{place}:7400")
}

fn place(address: &str) -> Option<Place> {
    address.strip_prefix('m')?.strip_suffix(":7400")?.parse().ok()
}

/// A joiner's way to members.
pub struct Joining {
    /// The network.
    pub network: Network,
    /// Where the joiner is.
    pub place: Place,
}

struct Line {
    network: Network,
    way: Way,
}

impl Sponsors for Joining {
    fn connect<'a>(
        &'a self,
        address: &'a str,
        _authority: Fingerprint,
    ) -> BoxFuture<'a, Result<Box<dyn Sponsor>, Failure>> {
        let to = place(address);
        async move {
            let nowhere = || Failure::from(LinkError::Unreachable(format!("{address} is nowhere")));
            let to = to.ok_or_else(nowhere)?;
            let connection = self.network.connection();
            let way = Way { from: self.place, to, caller: Caller::Unproven, bearer: None, connection };
            Ok(Box::new(Line { network: self.network.clone(), way }) as Box<dyn Sponsor>)
        }
        .boxed()
    }
}

impl Sponsor for Line {
    fn call(&self, request: JoinRequest, deadline: Duration) -> BoxFuture<'_, Result<JoinAnswer, Failure>> {
        async move {
            let request = encode(&Request::Join(request))
                .map_err(|error| Failure::new(FailureKind::BadRequest, error))?;
            let answer = self.network.call(self.way.clone(), request, deadline, false).await?;
            match understood(&answer)? {
                Response::Join(answer) => Ok(answer),
                Response::Failed(failure) => Err(failure),
                Response::Member(_) | Response::Client(_) => {
                    Err(Failure::new(FailureKind::Internal, "the member answered another question"))
                }
            }
        }
        .boxed()
    }
}

/// Answers what arrives, many at once, for as long as the process lives.
pub async fn serve(network: Network, handler: Arc<dyn Handler>, mut door: mpsc::UnboundedReceiver<Incoming>) {
    while let Some(incoming) = door.recv().await {
        tokio::spawn(answer(network.clone(), handler.clone(), incoming));
    }
}

async fn answer(network: Network, handler: Arc<dyn Handler>, incoming: Incoming) {
    let Incoming { call, caller, bearer, connection, request } = incoming;
    if bearer.is_some_and(|named| !handler.admits(&Bearer::Member(named))) {
        return network.answer(call, Err(LinkError::Refused("it is not on the roster".into())));
    }
    let Ok(request) = decode::<Request>(&request, FRAME_MAX_BYTES) else {
        return network.answer(call, Err(LinkError::Lost));
    };
    // As the real listener has it: nobody waits any longer.
    let answered = tokio::time::timeout(OVERALL, handler.handle(connection, caller, request)).await;
    if let Ok(response) = answered {
        let outcome = encode(&response).map_err(|error| LinkError::Refused(error.to_string()));
        network.answer(call, outcome);
    }
}
