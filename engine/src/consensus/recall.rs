//! What this member has seen others acknowledge. Raft rests on it that a member never forgets that: one that shows
//! less than it once acknowledged has a disk that went back in time (an old copy was put back, a store was emptied).
//! Its vote and its acknowledgements could then undo what was agreed, so they count no more; the primary removes it.
//!
//! The knowledge lives in memory, at whoever leads or asks for votes: after a restart of every such member at once,
//! nobody knows better than the returned disk.

use super::types::{LogId, Vote};
use crate::domain::MemberId;
use crate::telemetry::Event;
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// What one member acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    /// A vote that it kept.
    vote: Option<Vote>,
    /// Under this leader's vote it has the leader's log up to here: another leader may still cut that.
    under: Option<(Vote, u64)>,
    /// It has everything up to here, and all of that is committed: nobody cuts it.
    committed: Option<u64>,
}

/// Remembers what others acknowledged, and who went back behind that.
pub(super) struct Recall {
    shown: Mutex<BTreeMap<MemberId, Shown>>,
    returned: watch::Sender<BTreeSet<MemberId>>,
}

/// What a member must still hold, as known before it was asked: answers may come out of order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owed {
    log: Option<u64>,
    vote: Option<Vote>,
}

impl Recall {
    pub(super) fn new() -> Self {
        Self { shown: Mutex::default(), returned: watch::Sender::default() }
    }

    /// Members whose disks went back in time, as they are found.
    pub(super) fn returned(&self) -> watch::Receiver<BTreeSet<MemberId>> {
        self.returned.subscribe()
    }

    /// True if a member was found to have gone back.
    pub(super) fn is_returned(&self, member: MemberId) -> bool {
        self.returned.borrow().contains(&member)
    }

    /// What a member owes to whoever asks it under this vote.
    pub(super) fn owed(&self, member: MemberId, under: &Vote) -> Owed {
        let shown = self.shown.lock().get(&member).copied().unwrap_or_default();
        let here = shown.under.filter(|(vote, _)| vote == under).map(|(_, index)| index);
        Owed { log: here.max(shown.committed), vote: shown.vote }
    }

    /// What a member owed when it asked for votes by this vote. It kept the vote before it asked, so all that it
    /// acknowledged under older votes came before; under this one or later ones it may have come after: a ballot can
    /// arrive late.
    pub(super) fn owed_at_ballot(&self, member: MemberId, ballot: &Vote) -> Owed {
        let shown = self.shown.lock().get(&member).copied().unwrap_or_default();
        let before = shown.under.is_none_or(|(newest, _)| newest < *ballot);
        if before { self.owed(member, ballot) } else { Owed::default() }
    }

    /// It has the log of the leader with this vote up to `upto`; the leader had committed `committed`.
    pub(super) fn acknowledged(
        &self,
        member: MemberId,
        vote: Vote,
        upto: Option<LogId>,
        committed: Option<LogId>,
    ) {
        let Some(upto) = upto else { return };
        let mut all = self.shown.lock();
        let shown = all.entry(member).or_default();
        let before = shown.under.filter(|(known, _)| *known == vote).map_or(0, |(_, index)| index);
        if shown.under.is_none_or(|(newest, _)| newest <= vote) {
            shown.under = Some((vote, before.max(upto.index)));
        }
        let safe = committed.map(|committed| committed.index.min(upto.index));
        shown.committed = shown.committed.max(safe);
    }

    /// It gave its vote.
    pub(super) fn voted(&self, member: MemberId, vote: Vote) {
        let mut all = self.shown.lock();
        let shown = all.entry(member).or_default();
        if shown.vote.is_none_or(|known| known < vote) {
            shown.vote = Some(vote);
        }
    }

    /// Judges an answer that the member lacks the entry at this index. False if its disk went back in time.
    pub(super) fn may_lack(&self, member: MemberId, owed: Owed, index: u64) -> bool {
        match owed.log {
            Some(has) if index <= has => {
                self.found(member, &format!("it acknowledged entry {has} and now lacks entry {index}"));
                false
            }
            _ => true,
        }
    }

    /// Judges a ballot, or the answer to one, by the end of the log that it shows. False if the member's disk went
    /// back in time.
    pub(super) fn may_end_at(&self, member: MemberId, owed: Owed, last: Option<LogId>) -> bool {
        match owed.log {
            Some(has) if last.is_none_or(|last| last.index < has) => {
                let shown = last.map_or("is empty".to_string(), |last| format!("ends at {}", last.index));
                self.found(member, &format!("it acknowledged entry {has} and now its log {shown}"));
                false
            }
            _ => true,
        }
    }

    /// Judges the vote that an answer shows. False if its disk went back in time.
    pub(super) fn may_show(&self, member: MemberId, owed: Owed, vote: &Vote) -> bool {
        match owed.vote {
            // Two votes of one term have no order: it voted twice.
            Some(kept) if kept.partial_cmp(vote).is_none_or(Ordering::is_gt) => {
                self.found(member, &format!("it gave the vote {kept} and now knows {vote}"));
                false
            }
            _ => true,
        }
    }

    fn found(&self, member: MemberId, what: &str) {
        if self.returned.send_if_modified(|returned| returned.insert(member)) {
            tracing::error!(code = Event::DiskWentBack.code(),
                %member,
                "the disk of {member} went back in time: {what}. Its vote and its acknowledgements count no more"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::TypeConfig;
    use super::*;
    use openraft::testing::common::log_id;

    const M: MemberId = MemberId(2);

    fn id(term: u64, index: u64) -> Option<LogId> {
        Some(log_id::<TypeConfig>(term, 1, index))
    }

    #[test]
    fn what_was_acknowledged_may_not_be_lacked() {
        let recall = Recall::new();
        let first = Vote::new_committed(1, 1);
        assert!(recall.may_lack(M, recall.owed(M, &first), 5), "nothing is known yet");
        let before = recall.owed(M, &first);
        recall.acknowledged(M, first, id(1, 9), id(1, 6));
        recall.acknowledged(M, first, id(1, 8), id(1, 7));
        assert!(recall.may_lack(M, before, 5), "an answer to an older question");
        assert!(recall.may_lack(M, recall.owed(M, &first), 10));
        let second = Vote::new_committed(2, 3);
        assert!(recall.may_lack(M, recall.owed(M, &second), 9), "another leader may have cut 8 and 9");
        assert!(!recall.is_returned(M));
        assert!(!recall.may_lack(M, recall.owed(M, &first), 9));
        assert!(recall.is_returned(M) && !recall.is_returned(MemberId(3)));
        assert!(!recall.may_lack(M, recall.owed(M, &second), 7), "7 is committed");
    }

    #[test]
    fn a_log_ends_no_earlier_than_it_was_acknowledged() {
        let recall = Recall::new();
        let ballot = Vote::new(2, 3);
        assert!(recall.may_end_at(M, recall.owed(M, &ballot), None), "nothing is known yet");
        recall.acknowledged(M, Vote::new_committed(1, 1), id(1, 9), id(1, 6));
        assert!(recall.may_end_at(M, recall.owed(M, &ballot), id(1, 6)), "the rest may have been cut");
        assert!(!recall.is_returned(M));
        assert!(!recall.may_end_at(M, recall.owed(M, &ballot), id(1, 5)));
        assert!(recall.is_returned(M));
    }

    #[test]
    fn a_ballot_that_comes_late_is_no_proof() {
        let recall = Recall::new();
        recall.acknowledged(M, Vote::new_committed(3, 1), id(3, 9), id(3, 9));
        recall.acknowledged(M, Vote::new_committed(2, 3), id(2, 4), id(2, 4));
        for old in [Vote::new(2, 2), Vote::new(3, 0)] {
            assert!(recall.may_end_at(M, recall.owed_at_ballot(M, &old), id(1, 5)), "it was sent before");
        }
        assert!(!recall.is_returned(M));
        assert!(!recall.may_end_at(M, recall.owed_at_ballot(M, &Vote::new(4, 2)), id(1, 5)));
        assert!(recall.is_returned(M));
    }

    #[test]
    fn a_vote_that_was_given_stays() {
        let recall = Recall::new();
        let vote = |term| Vote::new(term, 3);
        let before = recall.owed(M, &vote(4));
        recall.voted(M, vote(4));
        recall.voted(M, vote(3));
        assert!(recall.may_show(M, before, &vote(2)), "an answer to an older question");
        assert!(recall.may_show(M, recall.owed(M, &vote(5)), &vote(4)));
        assert!(!recall.is_returned(M));
        let owed = recall.owed(M, &vote(5));
        assert!(recall.may_show(M, owed, &Vote::new_committed(4, 2)), "another won the term");
        assert!(!recall.may_show(M, owed, &Vote::new(4, 2)), "it voted twice in a term");
        assert!(!recall.may_show(M, owed, &vote(3)));
        assert!(recall.returned().borrow().contains(&M));
    }
}
