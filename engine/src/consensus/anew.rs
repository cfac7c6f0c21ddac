//! A history begun anew by one survivor, on the store of a member that is not running. The lost majority's part of
//! Raft (who votes, who led) is given up; what this member's log holds is kept, all of it.

use super::ConsensusError;
use super::handle::stopped;
use super::keeper::blocking;
use super::store::{Checkpoint, Store};
use super::types::{LeaderId, LogId, Membership, TypeConfig, Vote};
use crate::domain::{ContentKey, Envelope, LogIndex, MemberId};
use crate::limits::FORCED_GAP;
use crate::state::State;
use openraft::storage::RaftLogStorage;
use openraft::{EmptyNode, EntryPayload, RaftLogReader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a member's disk holds of its history.
pub struct Remains {
    /// The state with every entry of the log applied: one that was not known to be committed may have been.
    pub state: State,
    /// Who votes, by the last entry that says so.
    pub voters: BTreeSet<MemberId>,
    /// Entries that this member did not know to be committed.
    pub uncertain: u64,
    last: Option<LogId>,
    vote: Option<Vote>,
    contents: Vec<(ContentKey, Envelope)>,
}

/// Reads what is left. Changes nothing.
pub async fn remains<L: RaftLogStorage<TypeConfig>>(
    log: &mut L,
    store: &Arc<dyn Store>,
) -> Result<Remains, ConsensusError> {
    let opened = store.clone();
    let checkpoint = blocking(move || opened.load_checkpoint()).await?.unwrap_or_default();
    let Checkpoint { mut last, mut membership, mut state } = checkpoint;
    let mut contents = Vec::new();
    let committed = log.read_committed().await?;
    let kept = log.get_log_state().await?;
    let end = kept.last_log_id.map_or(0, |last| last.index + 1);
    let mut next = last.map_or(0, |last| last.index + 1);
    let known = committed.max(last).map_or(0, |id| id.index + 1);
    let uncertain = end.saturating_sub(known);
    let mut reader = log.get_log_reader().await;
    let vote = reader.read_vote().await?;
    while next < end {
        let entries = reader.limited_get_log_entries(next, end).await?;
        if entries.is_empty() {
            return Err(stopped(format!("log entry {next} is missing")));
        }
        for entry in entries {
            next = entry.log_id.index + 1;
            last = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Membership(voters) => {
                    membership = Membership::new(Some(entry.log_id), voters);
                }
                EntryPayload::Normal(command) => {
                    contents.extend(state.apply(LogIndex(entry.log_id.index), command).contents);
                }
            }
            state.skip(LogIndex(entry.log_id.index));
        }
    }
    let voters = membership.membership().voter_ids().map(MemberId).collect();
    Ok(Remains { state, voters, uncertain, last, vote, contents })
}

impl Remains {
    /// Makes the remains the beginning of a new history with `me` as its only voter and member. Whenever it is cut
    /// off, the store holds the old history or the new one, and repeating it begins one.
    pub async fn begin_anew<L: RaftLogStorage<TypeConfig>>(
        self,
        me: MemberId,
        log: &mut L,
        store: &Arc<dyn Store>,
    ) -> Result<(), ConsensusError> {
        let led = self.last.map_or(0, |last| last.leader_id.term);
        let term = self.vote.map_or(0, |vote| vote.leader_id.term).max(led) + 1;
        let index = self.last.map_or(0, |last| last.index) + FORCED_GAP;
        let last = LogId::new(LeaderId { term }, index);
        let state = self.state.survived_by(me, LogIndex(index)).ok_or(ConsensusError::NotAMember(me))?;
        let nodes = BTreeMap::from([(me.0, EmptyNode {})]);
        let voters = openraft::Membership::new(vec![BTreeSet::from([me.0])], nodes)
            .map_err(|error| ConsensusError::Settings(error.to_string()))?;
        let membership = Membership::new(Some(last), voters);
        let checkpoint = Checkpoint { last: Some(last), membership, state };
        // The vote first: a log must not end in a term that was never voted in.
        log.save_vote(&Vote::new(term, me.0)).await?;
        let (kept, contents) = (store.clone(), self.contents);
        blocking(move || {
            kept.put_contents(&contents)?;
            kept.save_checkpoint(&checkpoint)
        })
        .await?;
        log.purge(last).await?;
        Ok(())
    }
}
