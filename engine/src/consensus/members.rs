//! Who takes part in Raft, who votes, and who leads. Everything here is asked of the leader.

use super::ConsensusError;
use super::handle::{Consensus, stopped, write_error};
use super::types::{LogId, Membership, TypeConfig};
use crate::domain::MemberId;
use crate::limits::{HAND_OVER, PROMOTE_LAG_MAX_ENTRIES, VOTERS_MAX};
use openraft::{ChangeMembers, EmptyNode, RaftMetrics, RaftState};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

type Change = ChangeMembers<u64, EmptyNode>;

impl Consensus {
    /// The members that vote, also those that are coming or going in a change under way.
    pub fn voters(&self) -> BTreeSet<MemberId> {
        voters_of(&self.metrics().membership_config)
    }

    /// The members that follow without a vote.
    pub fn learners(&self) -> BTreeSet<MemberId> {
        self.metrics().membership_config.membership().learner_ids().map(MemberId).collect()
    }

    /// At the leader: entries that a member lacks; None if nothing is known of it.
    pub fn behind(&self, member: MemberId) -> Option<u64> {
        let metrics = self.metrics();
        matched(&metrics, member).map(|_| lag(&metrics, member))
    }

    /// At the leader: the index that it has applied, while a quorum holds more than that.
    pub fn trails_at(&self) -> Option<u64> {
        let metrics = self.metrics();
        let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
        let applied = index(metrics.last_applied);
        let leads = metrics.replication.is_some();
        (leads && index(metrics.cluster_committed) > applied).then_some(applied)
    }

    /// True if a change of the voters was begun and not finished: a new leader finds it so. The next change
    /// finishes it first; so does [`Consensus::resume_change`].
    pub fn is_change_unfinished(&self) -> bool {
        is_joint(&self.metrics().membership_config)
    }

    /// Lets a member follow, without a vote. Repeating it changes nothing.
    pub async fn add_learner(&self, member: MemberId) -> Result<(), ConsensusError> {
        let _one = self.inner.changing.lock().await;
        let now = self.finish_change().await?;
        if takes_part(&now, member) {
            return Ok(());
        }
        self.inner.raft.add_learner(member.0, EmptyNode {}, false).await.map_err(write_error)?;
        Ok(())
    }

    /// Gives a member that has caught up a vote. Repeating it changes nothing.
    pub async fn promote(&self, member: MemberId) -> Result<(), ConsensusError> {
        let _one = self.inner.changing.lock().await;
        let now = self.finish_change().await?;
        let voters = voters_of(&now);
        if voters.contains(&member) {
            return Ok(());
        }
        self.leads()?;
        if !takes_part(&now, member) {
            return Err(ConsensusError::NotAMember(member));
        }
        if voters.len() >= VOTERS_MAX {
            return Err(ConsensusError::TooManyVoters);
        }
        let entries = lag(&self.metrics(), member);
        if entries > PROMOTE_LAG_MAX_ENTRIES {
            return Err(ConsensusError::Behind { member, entries });
        }
        self.change(ChangeMembers::AddVoterIds(BTreeSet::from([member.0])), true).await
    }

    /// Takes a member's vote; it goes on following. Repeating it changes nothing.
    pub async fn demote(&self, member: MemberId) -> Result<(), ConsensusError> {
        let _one = self.inner.changing.lock().await;
        let now = self.finish_change().await?;
        self.unseat(&now, member, true).await
    }

    /// Ends a member's part in Raft for good. Repeating it changes nothing. A leader that removes itself hands over
    /// once that is agreed.
    pub async fn remove(&self, member: MemberId) -> Result<(), ConsensusError> {
        let _one = self.inner.changing.lock().await;
        let now = self.finish_change().await?;
        self.unseat(&now, member, false).await?;
        if !takes_part(&*self.membership().await?, member) {
            return Ok(());
        }
        self.change(ChangeMembers::RemoveNodes(BTreeSet::from([member.0])), false).await
    }

    /// Finishes a change of the voters that an earlier leader began.
    pub async fn resume_change(&self) -> Result<(), ConsensusError> {
        let _one = self.inner.changing.lock().await;
        self.finish_change().await.map(|_| ())
    }

    /// Hands leadership to a voter that holds the whole log, and returns once this member leads no more. Nothing
    /// that was answered is lost; what is proposed meanwhile is told who leads.
    pub async fn step_down(&self, to: MemberId) -> Result<(), ConsensusError> {
        let deadline = Instant::now() + HAND_OVER;
        // A change under way may wait for a quorum, for ever.
        let turn = timeout_at(deadline, self.inner.changing.lock()).await;
        let _one = turn.map_err(|_| ConsensusError::ChangeUnderWay)?;
        self.leads()?;
        if to == self.inner.me {
            return Ok(());
        }
        if !voters_of(&*self.membership().await?).contains(&to) {
            return Err(ConsensusError::NotAVoter(to));
        }
        self.wait_for_log(to, deadline).await?;
        self.inner.raft.trigger().transfer_leader(to.0).await.map_err(stopped)?;
        let mut leadership = self.leadership();
        let passed = leadership.wait_for(|now| !now.is_me && now.leader.is_some());
        match timeout_at(deadline, passed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(stopped("it ended")),
            Err(_) => Err(ConsensusError::Deadline("the hand-over")),
        }
    }

    /// Waits until a member has every entry that the leader has now: openraft hands over to anyone it is told to,
    /// and falls silent until that one is elected.
    async fn wait_for_log(&self, member: MemberId, deadline: Instant) -> Result<(), ConsensusError> {
        let target = self.metrics().last_log_index;
        let has_it = |metrics: &RaftMetrics<TypeConfig>| {
            matched(metrics, member) >= target || !metrics.state.is_leader()
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if self.inner.raft.wait(Some(left)).metrics(has_it, "the next leader has the log").await.is_err() {
            return Err(ConsensusError::Behind { member, entries: lag(&self.metrics(), member) });
        }
        self.leads()
    }

    fn leads(&self) -> Result<(), ConsensusError> {
        let leadership = *self.inner.leadership.borrow();
        if leadership.is_me { Ok(()) } else { Err(ConsensusError::NotLeader { leader: leadership.leader }) }
    }

    /// As Raft's core has it now; metrics may be a moment behind.
    async fn membership(&self) -> Result<Arc<Membership>, ConsensusError> {
        let effective = |state: &RaftState<TypeConfig>| state.membership_state.effective().clone();
        self.inner.raft.with_raft_state(effective).await.map_err(stopped)
    }

    async fn unseat(&self, now: &Membership, member: MemberId, stays: bool) -> Result<(), ConsensusError> {
        let voters = voters_of(now);
        if !voters.contains(&member) {
            return Ok(());
        }
        if voters.len() == 1 {
            return Err(ConsensusError::LastVoter(member));
        }
        self.change(ChangeMembers::RemoveVoters(BTreeSet::from([member.0])), stays).await
    }

    async fn finish_change(&self) -> Result<Arc<Membership>, ConsensusError> {
        let now = self.membership().await?;
        if !is_joint(&now) {
            return Ok(now);
        }
        // No new voters: openraft then goes on to where the change under way leads.
        self.change(ChangeMembers::AddVoterIds(BTreeSet::new()), true).await?;
        self.membership().await
    }

    async fn change(&self, change: Change, retain: bool) -> Result<(), ConsensusError> {
        self.inner.raft.change_membership(change, retain).await.map_err(write_error)?;
        Ok(())
    }
}

fn voters_of(membership: &Membership) -> BTreeSet<MemberId> {
    membership.membership().voter_ids().map(MemberId).collect()
}

fn takes_part(membership: &Membership, member: MemberId) -> bool {
    membership.membership().get_node(&member.0).is_some()
}

fn is_joint(membership: &Membership) -> bool {
    membership.membership().get_joint_config().len() > 1
}

fn matched(metrics: &RaftMetrics<TypeConfig>, member: MemberId) -> Option<u64> {
    let replication = metrics.replication.as_ref()?;
    replication.get(&member.0).copied().flatten().map(|last| last.index)
}

/// Entries that a member lacks, as the leader knows it.
fn lag(metrics: &RaftMetrics<TypeConfig>, member: MemberId) -> u64 {
    let next = |index: Option<u64>| index.map_or(0, |index| index + 1);
    next(metrics.last_log_index).saturating_sub(next(matched(metrics, member)))
}
