//! How votes follow the roster, one step at a time. A step is taken only if it leaves a quorum of voters that live.
//!
//! Every member votes while there are at most [`VOTERS_MAX`]: two members are two voters, and of an even number none
//! is left out, for the group then bears as many losses as without that vote, and one more disk holds every
//! answered change. Beyond that, learners follow and take the place of a voter that was removed or is lost for long.

use crate::domain::MemberId;
use crate::limits::{MEMBER_DEAD, PROMOTE_LAG_MAX_ENTRIES, VOTER_LOST, VOTERS_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the primary sees.
#[derive(Clone, Debug)]
pub struct View {
    /// The primary.
    pub me: MemberId,
    /// The members by the agreed state.
    pub roster: BTreeSet<MemberId>,
    /// Those that vote.
    pub voters: BTreeSet<MemberId>,
    /// Those that follow without a vote.
    pub learners: BTreeSet<MemberId>,
    /// True if a change of the voters was begun and not finished.
    pub unfinished: bool,
    /// How long each other member has not been heard; who is missing was never heard of.
    pub silence: BTreeMap<MemberId, Duration>,
    /// Entries that each learner lacks; who is missing lacks everything.
    pub behind: BTreeMap<MemberId, u64>,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Finish the change that an earlier primary began.
    Finish,
    /// A member is on the roster no more: end its part.
    Remove(MemberId),
    /// A member is new: let it follow.
    AddLearner(MemberId),
    /// Give a member that follows a vote.
    Promote(MemberId),
    /// Take the vote of one that is lost for long, since another can take its place.
    Demote(MemberId),
}

impl View {
    fn lives(&self, member: MemberId) -> bool {
        let heard = self.silence.get(&member).is_some_and(|silence| *silence < MEMBER_DEAD);
        self.roster.contains(&member) && (member == self.me || heard)
    }

    /// True if those of these voters that live are a majority.
    fn is_quorate(&self, voters: &BTreeSet<MemberId>) -> bool {
        voters.iter().filter(|member| self.lives(**member)).count() > voters.len() / 2
    }

    /// A step needs a quorum of the voters before it and leaves one of those after it.
    fn bears(&self, after: &BTreeSet<MemberId>) -> bool {
        self.is_quorate(&self.voters) && self.is_quorate(after)
    }

    fn with(&self, member: MemberId) -> BTreeSet<MemberId> {
        self.voters.iter().copied().chain([member]).collect()
    }

    fn without(&self, member: MemberId) -> BTreeSet<MemberId> {
        self.voters.iter().copied().filter(|voter| *voter != member).collect()
    }

    /// The learner that should vote next: the oldest that lives and has caught up.
    fn successor(&self) -> Option<MemberId> {
        let ready = |member: &MemberId| {
            let behind = self.behind.get(member);
            self.lives(*member) && behind.is_some_and(|entries| *entries <= PROMOTE_LAG_MAX_ENTRIES)
        };
        self.learners.iter().copied().find(ready)
    }

    /// The voter that has been lost for longest, if for long.
    fn lost(&self) -> Option<MemberId> {
        let silence = |member: MemberId| self.silence.get(&member).copied().filter(|s| *s >= VOTER_LOST);
        let others = self.voters.iter().copied().filter(|member| *member != self.me);
        others.filter_map(|member| Some((silence(member)?, member))).max().map(|(_, member)| member)
    }
}

/// The next step; None if votes are as they should be, or if nothing can be done now.
pub fn next_step(view: &View) -> Option<Step> {
    if view.unfinished {
        return Some(Step::Finish);
    }
    if view.roster.is_empty() {
        return None;
    }
    // One that is not on the roster is not listened to any more, so no quorum counts on it.
    if let Some(gone) = view.voters.iter().chain(&view.learners).find(|m| !view.roster.contains(m)) {
        return Some(Step::Remove(*gone));
    }
    let known = |member: &&MemberId| view.voters.contains(member) || view.learners.contains(member);
    if let Some(new) = view.roster.iter().find(|member| !known(member)) {
        return Some(Step::AddLearner(*new));
    }
    let successor = view.successor()?;
    if view.voters.len() < VOTERS_MAX {
        return view.bears(&view.with(successor)).then_some(Step::Promote(successor));
    }
    // First the lost one's vote goes, then its successor's comes: there are never more than the most.
    let lost = view.lost()?;
    view.bears(&view.without(lost)).then_some(Step::Demote(lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(range: std::ops::RangeInclusive<u64>) -> BTreeSet<MemberId> {
        range.map(MemberId).collect()
    }

    /// So many members that live, all on the roster; so many of them vote.
    fn view(members: u64, voters: u64) -> View {
        let learners = ids(voters + 1..=members);
        View {
            me: MemberId(1),
            roster: ids(1..=members),
            voters: ids(1..=voters),
            unfinished: false,
            silence: (2..=members).map(|m| (MemberId(m), Duration::ZERO)).collect(),
            behind: learners.iter().map(|m| (*m, 0)).collect(),
            learners,
        }
    }

    fn take(view: &mut View, step: Step) {
        match step {
            Step::Finish => view.unfinished = false,
            Step::Remove(member) => {
                view.voters.remove(&member);
                view.learners.remove(&member);
            }
            Step::AddLearner(member) => {
                view.learners.insert(member);
                view.behind.insert(member, 0);
            }
            Step::Promote(member) => {
                assert!(view.learners.remove(&member), "{member} follows");
                view.voters.insert(member);
            }
            Step::Demote(member) => {
                assert!(view.voters.remove(&member), "{member} votes");
                view.learners.insert(member);
            }
        }
    }

    /// Takes steps until there are none; says how many.
    fn run(view: &mut View) -> usize {
        for count in 0..200 {
            let Some(step) = next_step(view) else { return count };
            take(view, step);
        }
        panic!("no end: {view:?}");
    }

    #[test]
    fn two_members_are_two_voters_and_nine_are_seven() {
        for (members, voters) in [(1, 1), (2, 2), (3, 3), (4, 4), (6, 6), (7, 7), (8, 7), (9, 7), (32, 7)] {
            let mut view = view(members, 1);
            run(&mut view);
            assert_eq!((view.voters.len(), view.learners.len()), (voters, members as usize - voters));
        }
    }

    #[test]
    fn an_unfinished_change_comes_first_then_the_gone_then_the_new() {
        let mut view = view(3, 3);
        view.unfinished = true;
        view.roster = [MemberId(1), MemberId(3), MemberId(4)].into();
        assert_eq!(next_step(&view), Some(Step::Finish));
        view.unfinished = false;
        assert_eq!(next_step(&view), Some(Step::Remove(MemberId(2))));
        take(&mut view, Step::Remove(MemberId(2)));
        assert_eq!(next_step(&view), Some(Step::AddLearner(MemberId(4))));
        view.roster.clear();
        assert_eq!(next_step(&view), None, "a state that has not arrived removes nobody");
    }

    #[test]
    fn a_learner_that_is_behind_or_silent_gets_no_vote_and_the_oldest_gets_the_first() {
        let mut view = view(5, 2);
        view.behind.insert(MemberId(3), PROMOTE_LAG_MAX_ENTRIES + 1);
        view.silence.insert(MemberId(4), MEMBER_DEAD);
        assert_eq!(next_step(&view), Some(Step::Promote(MemberId(5))));
        view.behind.remove(&MemberId(5));
        assert_eq!(next_step(&view), None);
        view.behind.insert(MemberId(3), 0);
        view.silence.insert(MemberId(4), Duration::ZERO);
        assert_eq!(next_step(&view), Some(Step::Promote(MemberId(3))));
    }

    #[test]
    fn a_voter_that_is_lost_for_long_makes_room_for_a_learner() {
        let mut view = view(9, 7);
        view.silence.insert(MemberId(5), VOTER_LOST - Duration::from_millis(1));
        assert_eq!(next_step(&view), None);
        view.silence.insert(MemberId(5), VOTER_LOST);
        view.silence.insert(MemberId(6), VOTER_LOST * 2);
        assert_eq!(next_step(&view), Some(Step::Demote(MemberId(6))));
        assert_eq!(run(&mut view), 4);
        assert_eq!(view.voters, ids(1..=4).into_iter().chain([7, 8, 9].map(MemberId)).collect());
        // Back again, they wait for the next place.
        view.silence.values_mut().for_each(|silence| *silence = Duration::ZERO);
        assert_eq!(next_step(&view), None);
        // Nobody can take the place: the vote stays.
        let mut alone = self::view(7, 7);
        alone.silence.insert(MemberId(5), VOTER_LOST);
        assert_eq!(next_step(&alone), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever came and went: never too many votes, never a quorum lost by a step, always an end, and at the
        /// end no vote is missing that could be given.
        #[test]
        fn steps_are_safe_and_end(
            roster in 1u64..40,
            voters in 1u64..=7,
            former in 0u64..20,
            removed in proptest::collection::btree_set(2u64..40, 0..10),
            silent in proptest::collection::btree_map(2u64..40, 0u64..60, 0..20),
            late in proptest::collection::btree_set(2u64..40, 0..10),
            unfinished: bool,
        ) {
            let mut view = view(roster.max(voters), voters);
            view.learners.retain(|member| member.0 <= voters + former);
            view.roster.retain(|member| !removed.contains(&member.0));
            view.unfinished = unfinished;
            for (member, seconds) in silent {
                view.silence.insert(MemberId(member), Duration::from_secs(seconds));
            }
            view.behind = (1..40).map(|m| (MemberId(m), if late.contains(&m) { u64::MAX } else { 0 })).collect();
            let mut steps = 0;
            while let Some(step) = next_step(&view) {
                let before = view.is_quorate(&view.voters);
                take(&mut view, step);
                prop_assert!(view.voters.len() <= VOTERS_MAX);
                prop_assert!(view.voters.contains(&view.me));
                prop_assert!(!before || view.is_quorate(&view.voters), "{:?} of {:?}", step, view);
                if let Step::AddLearner(member) = step
                    && late.contains(&member.0)
                {
                    view.behind.insert(member, u64::MAX);
                }
                steps += 1;
                prop_assert!(steps < 200, "no end: {:?}", view);
            }
            let members: BTreeSet<MemberId> = view.voters.union(&view.learners).copied().collect();
            prop_assert_eq!(&members, &view.roster);
            if view.is_quorate(&view.voters) && view.successor().is_some() {
                prop_assert_eq!(view.voters.len(), VOTERS_MAX);
                prop_assert_eq!(view.lost(), None);
            }
        }
    }
}
