//! A running member.

use super::Monitor;
use super::home::{self, Identity};
use super::{MemberConfig, StartError, card, open_token};
use crate::clock::MemberClock;
use crate::consensus::types::TypeConfig;
use crate::consensus::{Agreed, Consensus, LinkFailure, RaftLinks, store::Store};
use crate::direct::Direct;
use crate::domain::{Fingerprint, MemberId};
use crate::envelope::{EnvelopeKey, EnvelopeKeys};
use crate::limits;
use crate::reconciler::{Catalogue, Progress, Reconciler, watch_token};
use crate::service::{
    Core, Fencing, Joins, Logins, Service, Telemetry, Vitals, expel_returned, run_primary, run_watching,
    settler::Watch, stand_by,
};
use crate::telemetry::Event;
use crate::token::{SmkPresence, Token};
use crate::transport::{self, Directory, Handler, LinkError, Links, Peers, pki};
use crate::virtual_slot::sealed::Sessions;
use crate::wire::{
    Answer, ClientRequest, Comparison, Failure, Hello, Lane, MemberAnswer, MemberRequest, PROTOCOL, RaftCall,
    Request, Response, Roster,
};
use futures::future::BoxFuture;
use openraft::storage::RaftLogStorage;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

/// A member running in this process. Dropped, it is gone as if its process had been killed; [`Engine::stop`] ends it in
/// order.
pub struct Engine {
    service: Service,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// What surrounds a member.
pub struct World {
    /// Its clocks.
    pub clock: MemberClock,
    /// Its way to the others.
    pub peers: Arc<dyn Peers>,
}

/// Where a member is reached.
struct Doors {
    listener: TcpListener,
    socket: UnixListener,
    users: Vec<u32>,
}

impl Doors {
    async fn open(config: &MemberConfig) -> Result<Self, StartError> {
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| StartError::Listen { address: config.listen.to_string(), source })?;
        let socket = transport::bind_unix(&config.socket)
            .map_err(|source| StartError::Listen { address: config.socket.display().to_string(), source })?;
        Ok(Self { listener, socket, users: config.socket_users.clone() })
    }

    fn serve(
        self,
        tasks: &mut JoinSet<()>,
        identity: &Identity,
        handler: Arc<dyn Handler>,
        stopped: &watch::Receiver<bool>,
    ) {
        let (tls, hello) = (transport_identity(identity), hello(identity));
        tasks.spawn(transport::serve_tcp(self.listener, tls, hello, handler.clone(), stopped.clone()));
        tasks.spawn(transport::serve_unix(self.socket, handler, self.users, stopped.clone()));
    }
}

/// Why a member cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// For people.
    pub reason: String,
    /// True if a new process can: its token's library hangs in this one, or has forgotten it.
    pub again: bool,
}

/// Where members were when this one joined.
pub(super) struct Seeds(pub Roster);

impl Directory for Seeds {
    fn address(&self, member: MemberId) -> Option<(String, Fingerprint)> {
        self.0.0.iter().find(|row| row.member == member).map(|row| (row.address.clone(), row.tls))
    }
}

/// The agreed roster, or the seeds before there is one.
struct LiveDirectory {
    seeds: Seeds,
    agreed: OnceLock<Arc<Agreed>>,
}

impl Directory for LiveDirectory {
    fn address(&self, member: MemberId) -> Option<(String, Fingerprint)> {
        let agreed = self.agreed.get().and_then(|agreed| {
            agreed.read(|state| state.member(member).map(|row| (row.card.address.clone(), row.card.tls)))
        });
        agreed.or_else(|| self.seeds.address(member))
    }
}

/// Carries Raft's calls over the links.
struct RaftOverLinks(Arc<dyn Peers>);

impl RaftLinks for RaftOverLinks {
    fn call(
        &self,
        to: MemberId,
        lane: Lane,
        call: RaftCall,
        body: Vec<u8>,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Vec<u8>, LinkFailure>> {
        Box::pin(async move {
            let request = Request::Member(MemberRequest::Raft { call, body });
            match self.0.call(to, lane, request, deadline).await {
                Ok(Response::Member(MemberAnswer::Raft(body))) => Ok(body),
                Ok(Response::Failed(failure)) => Err(LinkFailure::Unreachable(failure.message)),
                Ok(_) => Err(LinkFailure::Unreachable("it answered another question".into())),
                Err(LinkError::Deadline) => Err(LinkFailure::Deadline),
                Err(error) => Err(LinkFailure::Unreachable(error.to_string())),
            }
        })
    }
}

impl Engine {
    /// Starts the member that lives in the configured folder. Refuses, with what it found and what to do, a token that
    /// is not this member's; destroys nothing in it.
    pub async fn start<L: RaftLogStorage<TypeConfig>>(
        config: MemberConfig,
        log: L,
        store: Arc<dyn Store>,
    ) -> Result<Self, StartError> {
        let identity = home::load(&config.folder)?;
        let token = open_token(config.token.clone()).await?;
        let started = Self::start_on(config, identity, token.clone(), (log, store), None).await;
        if started.is_err() {
            token.close().await;
        }
        started
    }

    /// Starts a member in a simulated world: it listens nowhere and asks others through `peers`. Whoever reaches it does
    /// so through [`Engine::handler`].
    ///
    /// # Errors
    /// As [`Engine::start`].
    #[cfg(feature = "test-hooks")]
    pub async fn start_in<L: RaftLogStorage<TypeConfig>>(
        config: MemberConfig,
        world: World,
        log: L,
        store: Arc<dyn Store>,
    ) -> Result<Self, StartError> {
        let identity = home::load(&config.folder)?;
        let token = open_token(config.token.clone()).await?;
        Self::start_on(config, identity, token, (log, store), Some(world)).await
    }

    async fn start_on<L: RaftLogStorage<TypeConfig>>(
        config: MemberConfig,
        identity: Identity,
        token: Token,
        (log, store): (L, Arc<dyn Store>),
        world: Option<World>,
    ) -> Result<Self, StartError> {
        token.bind(identity.group);
        let keys = Arc::new(unlock(&token, &identity).await?);
        let direct = Direct::open(&config.folder, identity.group, identity.member, keys.clone())?;
        let doors = if world.is_some() { None } else { Some(Doors::open(&config).await?) };
        let seeds = Seeds(identity.roster.clone());
        let directory = Arc::new(LiveDirectory { seeds, agreed: OnceLock::new() });
        let World { clock, peers: links } = world.unwrap_or_else(|| {
            let links = Links::new(transport_identity(&identity), hello(&identity), directory.clone());
            World { clock: MemberClock::default(), peers: Arc::new(links) }
        });
        let raft_links = Arc::new(RaftOverLinks(links.clone()));
        let consensus = Consensus::start(identity.member, log, store, raft_links, config.timings).await?;
        let agreed = consensus.agreed().clone();
        if let Err(error) = one_history(&config, &identity, &agreed) {
            consensus.shutdown().await;
            return Err(error);
        }
        let _ = directory.agreed.set(agreed.clone());

        let (stop, stopped) = watch::channel(false);
        let (comparisons, asked) = mpsc::channel(limits::COMPARISONS_MAX);
        let core = Arc::new(Core {
            me: identity.member,
            group: identity.group,
            lineage: identity.lineage,
            consensus,
            agreed,
            token,
            keys,
            domain: config.domain.clone(),
            direct: Arc::new(direct),
            direct_turn: tokio::sync::Mutex::new(()),
            sessions: Mutex::new(Sessions::default()),
            catalogue: Arc::new(Catalogue::default()),
            progress: Arc::new(Progress::default()),
            comparisons,
            links,
            watch: Mutex::new(Watch::default()),
            roll: Mutex::default(),
            ranking: Mutex::default(),
            vitals: Vitals::new(config.folder.clone(), config.monitored_interfaces.clone(), clock.now()),
            nudge: Notify::new(),
            ids: tokio::sync::Mutex::new(0..0),
            confirmed: watch::Sender::new(false),
            confirmed_to: OnceLock::new(),
            outbox: watch::Sender::new(None),
            logins: Logins::default(),
            joins: Joins::default(),
            telemetry: Telemetry::new(clock.unix()),
            clock,
            stands_in: AtomicBool::new(false),
            started: clock.now(),
            fencing: Fencing::default(),
        });
        let service = Service(core.clone());
        let own_card = own_card(&config, &identity, &core.token).await?;
        let mut tasks = JoinSet::new();
        if let Some(doors) = doors {
            doors.serve(&mut tasks, &identity, Arc::new(service.clone()), &stopped);
        }
        tasks.spawn(reconciler(&core, asked).run(stopped.clone()));
        tasks.spawn(watch_token(
            core.token.clone(),
            core.progress.clone(),
            core.comparisons.clone(),
            clock,
            stopped.clone(),
        ));
        tasks.spawn(run_primary(core.clone(), stopped.clone()));
        tasks.spawn(expel_returned(core.clone(), stopped.clone()));
        tasks.spawn(stand_by(core.clone(), stopped.clone()));
        tasks.spawn(run_watching(core.clone(), stopped.clone()));
        tasks.spawn(announce(core, own_card, stopped));
        info!(code = Event::MemberRunning.code(), member = %identity.member, group = %identity.group, "the member is running");
        Ok(Self { service, stop, tasks })
    }

    /// What answers requests at this member: for whoever brings them by another way than its listeners.
    #[cfg(feature = "test-hooks")]
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::new(self.service.clone())
    }

    /// Takes a snapshot now and drops the log behind it.
    #[cfg(feature = "test-hooks")]
    pub async fn compact(&self) -> Result<(), Failure> {
        let done = self.service.0.consensus.compact().await;
        done.map_err(|error| crate::service::consensus_failure(&error))
    }

    /// This member's id.
    pub fn member(&self) -> MemberId {
        self.service.0.me
    }

    /// How this member is, for a monitor.
    pub fn monitor(&self) -> Monitor {
        Monitor::new(&self.service.0)
    }

    /// Carries out a client's request, as the local socket would.
    pub async fn call(&self, request: ClientRequest) -> Result<Answer, Failure> {
        self.service.call(request).await
    }

    /// Resolves, with the reason, when the member cannot go on and its process should end.
    pub async fn failed(&self) -> Fault {
        let mut fatal = self.service.0.consensus.fatal();
        let mut given_up = self.service.0.progress.given_up();
        let reason = tokio::select! {
            fatal = fatal.wait_for(Option::is_some) => match fatal {
                Ok(reason) => reason.clone().unwrap_or_default(),
                Err(_) => "consensus has ended".to_string(),
            },
            Ok(reason) = given_up.wait_for(Option::is_some) => {
                return Fault { reason: reason.clone().unwrap_or_default(), again: true };
            }
        };
        Fault { reason, again: false }
    }

    /// Stops in order: leadership goes to another member, no new requests, no more consensus, the token last. Answered
    /// writes are on disk anyway.
    pub async fn stop(mut self) {
        self.service.0.leave_the_lead().await;
        self.stop.send_replace(true);
        let core = self.service.0;
        let mut ended = tokio::time::timeout(limits::ATTEMPT, finish(&mut self.tasks)).await;
        // A proposal that no quorum answers ends with consensus alone.
        core.consensus.shutdown().await;
        if ended.is_err() {
            ended = tokio::time::timeout(limits::ATTEMPT, finish(&mut self.tasks)).await;
        }
        if ended.is_err() {
            warn!(code = Event::TaskLeftBehind.code(), "a task does not end: it is left behind");
        }
        core.links.close();
        core.token.clone().close().await;
        info!(code = Event::MemberStopped.code(), member = %core.me, "the member has stopped");
    }
}

/// Refuses a folder whose identity and store are of two histories, and says so once if one was begun by force.
fn one_history(config: &MemberConfig, identity: &Identity, agreed: &Agreed) -> Result<(), StartError> {
    match agreed.read(|state| state.group().map(|group| group.lineage)) {
        Some(store) if store != identity.lineage => {
            return Err(StartError::Lineage { identity: identity.lineage, store });
        }
        _ => {}
    }
    if let Some(what) = home::forced(&config.folder)? {
        let (member, lineage) = (identity.member, identity.lineage);
        tracing::error!(code = Event::HistoryForced.code(), %member, %lineage, "this history was begun by 'keyraft force-quorum': {what}");
        home::forget_forced(&config.folder)?;
    }
    Ok(())
}

async fn finish(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            debug!(%error, "a task ended badly while stopping");
        }
    }
}

fn reconciler(core: &Arc<Core>, comparisons: mpsc::Receiver<oneshot::Sender<Comparison>>) -> Reconciler {
    Reconciler {
        me: core.me,
        group: core.group,
        agreed: core.agreed.clone(),
        token: core.token.clone(),
        keys: core.keys.clone(),
        direct: core.direct.clone(),
        catalogue: core.catalogue.clone(),
        progress: core.progress.clone(),
        confirmed: core.confirmed.subscribe(),
        comparisons,
        metrics: core.telemetry.metrics.clone(),
        reporter: core.clone(),
        clock: core.clock,
    }
}

/// Opens the envelope keys and proves that the token holds the SMKs that belong to them.
pub(super) async fn unlock(token: &Token, identity: &Identity) -> Result<EnvelopeKeys, StartError> {
    let mut keys = EnvelopeKeys::default();
    for row in &identity.generations {
        let generation = row.generation;
        match token.has_smk(generation, &row.self_blob).await? {
            SmkPresence::Present => {}
            SmkPresence::Absent => return Err(StartError::SmkAbsent { generation, group: identity.group }),
            SmkPresence::Foreign => return Err(StartError::SmkForeign { generation }),
        }
        let clear = token.unlock(&row.locked_envelope_key).await.map_err(StartError::Locked)?;
        let key: [u8; 32] = clear.as_slice().try_into().map_err(|_| {
            let path = std::path::PathBuf::from("identity");
            let source = crate::codec::CodecError::Decode("an envelope key has a wrong length".into());
            StartError::Home(super::HomeError::Damaged { path, source })
        })?;
        keys.insert(generation, EnvelopeKey::from_bytes(key));
    }
    Ok(keys)
}

fn hello(identity: &Identity) -> Hello {
    Hello {
        protocol: PROTOCOL,
        group: Some(identity.group),
        lineage: identity.lineage,
        member: Some(identity.member),
        lane: Lane::Calls,
    }
}

fn transport_identity(identity: &Identity) -> transport::Identity {
    transport::Identity {
        certificate: identity.certificate.clone(),
        key: identity.tls_key.clone(),
        authority: identity.authority.clone(),
    }
}

async fn own_card(
    config: &MemberConfig,
    identity: &Identity,
    token: &Token,
) -> Result<crate::domain::MemberCard, StartError> {
    let keys = token.member_keys().await?;
    Ok(card(config, pki::fingerprint(&identity.certificate)?, &keys, token))
}

/// Tells the primary what this member is now (its address or its token's abilities may have changed).
async fn announce(core: Arc<Core>, card: crate::domain::MemberCard, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        if core.announce_self(&card).await {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(limits::MEMBER_HEARTBEAT) => {}
            _ = stop.changed() => {}
        }
    }
}
