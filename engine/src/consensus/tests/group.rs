//! A group of members to try things on.

use super::samples;
use super::stand_ins::{Link, MemoryLog, MemoryStore, Wires};
use crate::consensus::{Consensus, ConsensusError, Timings};
use crate::domain::{LogIndex, MemberId};
use crate::state::{Command, Outcome, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// For anything that must happen, on a machine that is busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Slower than the real ones: tests share their processors.
pub(super) const UNHURRIED: Timings = Timings {
    heartbeat: Duration::from_millis(50),
    election_min: Duration::from_secs(1),
    election_max: Duration::from_secs(2),
};

pub(super) const M1: MemberId = MemberId(1);
pub(super) const M2: MemberId = MemberId(2);
pub(super) const M3: MemberId = MemberId(3);

#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) log: MemoryLog,
    pub(super) store: Arc<MemoryStore>,
}

pub(super) struct Group {
    pub(super) wires: Arc<Wires>,
    pub(super) disks: BTreeMap<MemberId, Disk>,
    pub(super) members: BTreeMap<MemberId, Consensus>,
    timings: Timings,
}

impl Group {
    pub(super) fn new(timings: Timings) -> Self {
        Self { wires: Arc::default(), disks: BTreeMap::new(), members: BTreeMap::new(), timings }
    }

    /// Starts a member on its disk, a blank one if it has none.
    pub(super) async fn start(&mut self, member: MemberId) -> Consensus {
        let disk = self.disks.entry(member).or_default().clone();
        let link = Arc::new(Link { from: member, wires: self.wires.clone() });
        let consensus =
            Consensus::start(member, disk.log, disk.store, link, self.timings).await.expect("starts");
        self.wires.connect(member, consensus.clone());
        self.members.insert(member, consensus.clone());
        consensus
    }

    /// Ends a member; its disk stays.
    pub(super) async fn stop(&mut self, member: MemberId) {
        self.wires.disconnect(member);
        if let Some(consensus) = self.members.remove(&member) {
            consensus.shutdown().await;
        }
    }

    /// One member that has begun a group.
    pub(super) async fn of_one(timings: Timings) -> Self {
        let mut group = Self::new(timings);
        group.start(M1).await.bootstrap(samples::bootstrap()).await.expect("bootstraps");
        group
    }

    /// Three voters, led by the first.
    pub(super) async fn of_three(timings: Timings) -> Self {
        let mut group = Self::of_one(timings).await;
        for member in [M2, M3] {
            group.start(member).await;
            group.members[&M1].add_learner(member).await.expect("follows");
            group.promote(M1, member).await;
        }
        group
    }

    pub(super) async fn promote(&self, leader: MemberId, member: MemberId) {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.members[&leader].promote(member).await {
                Ok(()) => return,
                Err(ConsensusError::Behind { .. } | ConsensusError::ChangeUnderWay)
                    if Instant::now() < end =>
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{member} is not promoted: {error}"),
            }
        }
    }

    /// The leader among the running members that is ready, once there is one other than `not`.
    pub(super) async fn leader(&self, not: Option<MemberId>) -> MemberId {
        let end = Instant::now() + PATIENCE;
        loop {
            let ready = |id: &&MemberId| self.members[*id].leadership().borrow().ready && Some(**id) != not;
            if let Some(leader) = self.members.keys().find(ready) {
                return *leader;
            }
            assert!(Instant::now() < end, "nobody leads");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Proposes to whoever leads until it is known to be applied.
    pub(super) async fn propose(&self, command: Command) -> (LogIndex, Outcome) {
        let end = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader(None).await;
            match self.members[&leader].propose(command.clone()).await {
                Ok(applied) => return applied,
                Err(error) if error.is_certain() && Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{command} is not applied: {error}"),
            }
        }
    }

    /// Waits until every running member has applied what the leader has, and that it is the same.
    pub(super) async fn assert_equal(&self) -> State {
        let index = self.propose(samples::draw()).await.0;
        let mut found: Option<State> = None;
        for (id, member) in &self.members {
            member.wait_applied(index, PATIENCE).await.unwrap_or_else(|error| panic!("{id}: {error}"));
            let state = member.agreed().read(State::clone);
            assert!(state.applied() >= index);
            if let Some(other) = &found {
                assert_eq!(*other, state, "{id} differs");
            }
            for key in state.contents() {
                assert!(member.agreed().content(key).expect("reads").is_some(), "{id} lacks content {key}");
            }
            found = Some(state);
        }
        found.expect("members run")
    }
}
