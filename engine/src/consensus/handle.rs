use super::agreed::Agreed;
use super::incoming::Incoming;
use super::keeper::{Keeper, blocking};
use super::machine::Machine;
use super::network::{Networks, RaftLinks};
use super::recall::Recall;
use super::settings::{Timings, config};
use super::store::Store;
use super::types::{LeaderId, TypeConfig};
use super::{ConsensusError, message};
use crate::domain::{LogIndex, MemberId};
use crate::limits::{APPEND_MAX_BYTES, OVERALL};
use crate::state::{Bootstrap, Command, Outcome, Rejection};
use crate::telemetry::Event;
use crate::wire::RaftCall;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{
    ClientWriteError, Fatal, ForwardReason, ForwardToLeader, LinearizableReadError, RaftError,
};
use openraft::impls::ProgressResponder;
use openraft::storage::RaftLogStorage;
use openraft::type_config::alias::WatchReceiverOf;
use openraft::{EmptyNode, Instant, Raft, RaftMetrics, ReadPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Who leads, as this member knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Raft's term.
    pub term: u64,
    /// The leader last heard of. It may be gone: see [`Consensus::last_contact`].
    pub leader: Option<MemberId>,
    /// True if this member leads.
    pub is_me: bool,
    /// True if this member leads and has applied an entry of its own term: its state holds everything that any
    /// earlier leader answered.
    pub ready: bool,
}

/// One member's part in agreeing. Clones are handles of the same one.
#[derive(Clone)]
pub struct Consensus {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) me: MemberId,
    pub(super) raft: Raft<TypeConfig, Machine>,
    keeper: Arc<Keeper>,
    incoming: Incoming,
    recall: Arc<Recall>,
    /// For so long after a word of its leader this member elects no other.
    pub(super) lease: Duration,
    pub(super) leadership: watch::Receiver<Leadership>,
    fatal: watch::Receiver<Option<String>>,
    /// The voters are changed by one caller at a time.
    pub(super) changing: tokio::sync::Mutex<()>,
}

impl Inner {
    /// When the leader was last heard, and who it was.
    pub(super) fn heard_leader(&self) -> Option<(MemberId, tokio::time::Instant)> {
        self.incoming.heard()
    }
}

impl Consensus {
    /// Starts with what log and store hold: nothing for a newcomer, who waits for the leader to find it.
    pub async fn start<L: RaftLogStorage<TypeConfig>>(
        me: MemberId,
        log: L,
        store: Arc<dyn Store>,
        links: Arc<dyn RaftLinks>,
        timings: Timings,
    ) -> Result<Self, ConsensusError> {
        let config = Arc::new(config(timings)?);
        let keeper = Arc::new(blocking(move || Keeper::open(store)).await?);
        let recall = Arc::new(Recall::new());
        let networks = Networks::new(me, links, recall.clone());
        let machine = Machine::new(keeper.clone());
        let raft = Raft::new(me.0, config, networks, log, machine).await.map_err(stopped)?;
        let (leadership, fatal) = watch_metrics(me, raft.metrics());
        let incoming = Incoming::new(raft.clone(), keeper.clone(), recall.clone());
        let changing = tokio::sync::Mutex::new(());
        let lease = timings.election_max;
        let inner = Inner { me, raft, keeper, incoming, recall, lease, leadership, fatal, changing };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Begins a group with this member as its only voter. Repeating it after a crash finishes what was begun.
    pub async fn bootstrap(&self, bootstrap: Bootstrap) -> Result<(), ConsensusError> {
        let group = bootstrap.group;
        if !self.inner.raft.is_initialized().await.map_err(stopped)? {
            let first = BTreeMap::from([(self.inner.me.0, EmptyNode {})]);
            self.inner.raft.initialize(first).await.map_err(stopped)?;
        }
        let mut leadership = self.leadership();
        let ready = leadership.wait_for(|leadership| leadership.ready);
        match tokio::time::timeout(OVERALL, ready).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(stopped("it ended")),
            Err(_) => return Err(ConsensusError::Deadline("the first election")),
        }
        match self.propose(Command::Bootstrap(Box::new(bootstrap))).await?.1 {
            Outcome::Rejected(Rejection::AlreadyBootstrapped)
                if self.agreed().read(|state| state.group().is_some_and(|found| found.id == group)) =>
            {
                Ok(())
            }
            Outcome::Rejected(_) => Err(ConsensusError::OtherGroup),
            _ => Ok(()),
        }
    }

    /// This member.
    pub fn me(&self) -> MemberId {
        self.inner.me
    }

    /// The agreed state.
    pub fn agreed(&self) -> &Arc<Agreed> {
        self.inner.keeper.agreed()
    }

    /// Proposes a command at the leader and returns once it is applied here, with its outcome. It waits as long as
    /// the quorum takes: the caller sets the deadline, and what it gives up may still happen.
    pub async fn propose(&self, command: Command) -> Result<(LogIndex, Outcome), ConsensusError> {
        let bytes = message::encode(&command)?.len();
        if bytes > APPEND_MAX_BYTES {
            return Err(ConsensusError::TooLarge { bytes, limit: APPEND_MAX_BYTES });
        }
        let written = self.inner.raft.client_write(command).await.map_err(write_error)?;
        Ok((LogIndex(written.log_id.index), written.data))
    }

    /// As [`Consensus::propose`], if this member leads in this very term: what it knew of others in another one may
    /// not hold any more.
    pub async fn propose_in(
        &self,
        term: u64,
        command: Command,
    ) -> Result<(LogIndex, Outcome), ConsensusError> {
        let leader = LeaderId { term };
        let (responder, written) = ProgressResponder::complete_only();
        let proposed = self.inner.raft.write(command).with_leader(leader).responder(responder).await;
        proposed.map_err(stopped)?;
        let written = written.await.map_err(|_| ConsensusError::Unknown)?;
        let written = written.map_err(|error| write_error(RaftError::APIError(error)))?;
        Ok((LogIndex(written.log_id.index), written.data))
    }

    /// At the leader: a quorum confirms, after this call, that it leads, and in which term. Rests on no clock.
    pub async fn confirm(&self) -> Result<u64, ConsensusError> {
        let read = self.inner.raft.get_read_log_id(ReadPolicy::ReadIndex).await;
        read.map(|(read, _)| read.committed_leader_id().term).map_err(read_error)
    }

    /// Returns once this member's disk holds the state up to an applied entry: a restart begins no earlier.
    pub async fn keep(&self, index: LogIndex) -> Result<(), ConsensusError> {
        let kept =
            |metrics: &RaftMetrics<TypeConfig>| metrics.snapshot.is_some_and(|last| last.index >= index.0);
        if !kept(&self.metrics()) {
            self.inner.raft.trigger().snapshot().await.map_err(stopped)?;
        }
        let waited = self.inner.raft.wait(Some(OVERALL)).metrics(kept, "the checkpoint is written").await;
        waited.map(|_| ()).map_err(|_| ConsensusError::Deadline("writing a checkpoint"))
    }

    /// Takes a snapshot of all that is applied, and drops the log behind it.
    #[cfg(feature = "test-hooks")]
    pub async fn compact(&self) -> Result<(), ConsensusError> {
        let Some(last) = self.metrics().last_applied else { return Ok(()) };
        self.keep(LogIndex(last.index)).await?;
        self.inner.raft.trigger().purge_log(last.index).await.map_err(stopped)
    }

    /// At the leader: an index that holds everything answered before this call. Whoever reads a state that has
    /// applied it, on any member, reads nothing stale. Rests on the lease, else asks a quorum.
    pub async fn barrier(&self) -> Result<LogIndex, ConsensusError> {
        let mut read = self.inner.raft.get_read_log_id(ReadPolicy::LeaseRead).await;
        if let Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) = read {
            read = self.inner.raft.get_read_log_id(ReadPolicy::ReadIndex).await;
        }
        read.map(|(read, _)| LogIndex(read.index())).map_err(read_error)
    }

    /// Waits until this member has applied an index.
    pub async fn wait_applied(&self, index: LogIndex, deadline: Duration) -> Result<(), ConsensusError> {
        let mut applied = self.agreed().applied();
        let reached = applied.wait_for(|applied| *applied >= index);
        match tokio::time::timeout(deadline, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(stopped("it ended")),
            Err(_) => Err(ConsensusError::Deadline("applying the log")),
        }
    }

    /// Carries out a Raft call of another member, who has proved to be `from`.
    pub async fn handle(
        &self,
        from: MemberId,
        call: RaftCall,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, ConsensusError> {
        self.inner.incoming.handle(from, call, &body).await
    }

    /// Who leads, as it changes.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// At the leader: how long ago the member answered. Elsewhere: how long ago the member was heard as the leader.
    /// None if never, or not known here.
    pub fn last_contact(&self, member: MemberId) -> Option<Duration> {
        if let Some(contacts) = &self.inner.raft.metrics().borrow_watched().heartbeat {
            return contacts.get(&member.0).copied().flatten().map(|answered| answered.elapsed());
        }
        let (leader, heard) = self.inner.incoming.heard()?;
        (leader == member).then(|| heard.elapsed())
    }

    /// True if a leader was heard within this time: another member that leads, or, if this one does, a majority of
    /// the voters that answer it. [`Leadership::leader`] alone may be long gone.
    pub fn hears_a_leader(&self, within: Duration) -> bool {
        let leadership = *self.inner.leadership.borrow();
        let lately = |member| self.last_contact(member).is_some_and(|ago| ago < within);
        if leadership.is_me {
            let voters = self.voters();
            let heard = voters.iter().filter(|voter| **voter == self.inner.me || lately(**voter));
            return heard.count() > voters.len() / 2;
        }
        leadership.leader.is_some_and(lately)
    }

    /// Members whose disks went back in time, as this member finds them. Their answers count no more here; the
    /// primary should remove them from the group.
    pub fn returned(&self) -> watch::Receiver<BTreeSet<MemberId>> {
        self.inner.recall.returned()
    }

    /// Set to the reason when Raft has ended by a fault. The member must exit: nothing here recovers.
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.inner.fatal.clone()
    }

    /// Ends this member's part. Whatever waits is told that it has stopped.
    pub async fn shutdown(&self) {
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(code = Event::ConsensusEndedBadly.code(), ?error, "consensus did not end cleanly");
        }
    }

    pub(super) fn metrics(&self) -> RaftMetrics<TypeConfig> {
        self.inner.raft.metrics().borrow_watched().clone()
    }
}

fn read_error(error: RaftError<TypeConfig, LinearizableReadError<TypeConfig>>) -> ConsensusError {
    match error {
        RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => forwarded(&forward),
        RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)) => ConsensusError::NoQuorum,
        RaftError::Fatal(fatal) => stopped(fatal),
    }
}

pub(super) fn stopped(error: impl ToString) -> ConsensusError {
    ConsensusError::Stopped(error.to_string())
}

fn forwarded(forward: &ForwardToLeader<TypeConfig>) -> ConsensusError {
    match forward.reason {
        ForwardReason::LeaseExpired => ConsensusError::NoQuorum,
        ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
            ConsensusError::NotLeader { leader: forward.leader_id.map(MemberId) }
        }
    }
}

pub(super) fn write_error(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> ConsensusError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => forwarded(&forward),
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => ConsensusError::Unknown,
        RaftError::APIError(
            ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_),
        ) => ConsensusError::ChangeUnderWay,
        RaftError::Fatal(fatal) => stopped(fatal),
    }
}

type Metrics = RaftMetrics<TypeConfig>;

fn leadership_of(me: MemberId, metrics: &Metrics) -> Leadership {
    if metrics.running_state.is_err() {
        return Leadership { term: metrics.current_term, ..Leadership::default() };
    }
    let is_me = metrics.state.is_leader();
    let applied_term = metrics.last_applied.map(|last| last.leader_id.term);
    Leadership {
        term: metrics.current_term,
        leader: if is_me { Some(me) } else { metrics.current_leader.map(MemberId) },
        is_me,
        ready: is_me && applied_term == Some(metrics.current_term),
    }
}

/// Follows openraft's metrics for as long as it runs.
fn watch_metrics(
    me: MemberId,
    mut metrics: WatchReceiverOf<TypeConfig, Metrics>,
) -> (watch::Receiver<Leadership>, watch::Receiver<Option<String>>) {
    let (leadership, leadership_rx) = watch::channel(Leadership::default());
    let (fatal, fatal_rx) = watch::channel(None);
    tokio::spawn(async move {
        loop {
            let (now, running) = {
                let metrics = metrics.borrow_and_update();
                (leadership_of(me, &metrics), metrics.running_state.clone())
            };
            leadership.send_if_modified(|known| std::mem::replace(known, now) != now);
            if let Err(error) = running
                && error != Fatal::Stopped
            {
                fatal.send_replace(Some(error.to_string()));
            }
            if metrics.changed().await.is_err() {
                return;
            }
        }
    });
    (leadership_rx, fatal_rx)
}
