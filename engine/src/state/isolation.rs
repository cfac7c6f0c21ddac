//! What holds for members that are cut off: the fence, and the end of a history that lost its quorum for good.

use super::apply::Applied;
use super::{Duty, Effects, IsolatedService, Rejection, Standing, State, WayBack};
use crate::domain::{Lineage, LogIndex, MemberId};
use crate::limits::{FORCED_GAP, FORCED_MEMBER_GAP};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The group fences: a member without a lease uses no key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The entry that began it.
    pub since: LogIndex,
    /// Members that have not confirmed it: one of them may be cut off and serve on as before. No deletion is answered
    /// meanwhile, unless they are in sync and have dropped the key.
    pub unconfirmed: BTreeSet<MemberId>,
}

impl State {
    /// Setting what is set already changes nothing, so that it can be repeated.
    pub(super) fn set_isolated_service(&mut self, index: LogIndex, value: IsolatedService) {
        self.options.isolated_service = value;
        self.fence = match value {
            IsolatedService::Serve => None,
            IsolatedService::Fence => self.fence.take().or_else(|| {
                Some(Fence { since: index, unconfirmed: self.members.keys().copied().collect() })
            }),
        };
    }

    pub(super) fn confirm_fence(&mut self, member: MemberId, since: LogIndex) -> Applied {
        let fence = self.fence.as_mut().filter(|fence| fence.since == since);
        match fence.is_some_and(|fence| fence.unconfirmed.remove(&member)) {
            true => Ok(Effects { roster: true, ..Effects::default() }),
            false => Err(Rejection::WrongStanding(member)),
        }
    }

    pub(super) fn forget_fence_of(&mut self, member: MemberId) {
        if let Some(fence) = &mut self.fence {
            fence.unconfirmed.remove(&member);
        }
    }

    /// The state that a new history begins with, at the entry `applied` of its own: every object, option, PIN and
    /// application, and `survivor` as the only member, active and in sync whatever it was. Ids that the lost members may have
    /// given are left out. None if the survivor is not on the roster.
    pub fn survived_by(&self, survivor: MemberId, applied: LogIndex) -> Option<Self> {
        let mut next = self.clone();
        let group = next.group.as_mut()?;
        group.lineage = Lineage(group.lineage.0 + 1);
        let mut row = next.members.get(&survivor)?.clone();
        row.standing = Standing::InSync;
        row.duty = Duty::Active;
        row.way_back = WayBack::default();
        row.index = applied;
        next.members = OrdMap::unit(survivor, row);
        next.next_member += FORCED_MEMBER_GAP;
        next.next_object += FORCED_GAP;
        next.reserved = OrdMap::new();
        next.invites = OrdMap::new();
        if let Some(fence) = &mut next.fence {
            fence.unconfirmed = BTreeSet::new();
        }
        next.applied = applied;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::properties::{bootstrap, card};
    use super::*;
    use crate::clock::UnixMillis;
    use crate::state::{Command, GroupOption, InviteId, Outcome};

    /// A group of three, all but the third in sync.
    fn three() -> State {
        let mut state = State::default();
        let mut apply = |command| state.apply(LogIndex(state.applied().0 + 1), command);
        apply(bootstrap());
        for id in [1, 2] {
            let (invite, at) = (InviteId([id; 8]), UnixMillis(1));
            apply(Command::Invite {
                id: invite,
                secret_hash: [0; 32],
                at,
                expires: UnixMillis(9),
                duty: Duty::Active,
            });
            apply(Command::Admit { invite, at, card: Box::new(card(&format!("n{id}"))) });
        }
        apply(Command::EnterInSync { member: MemberId(2) });
        let reached = LogIndex(100);
        apply(Command::ReachInSync { member: MemberId(2), reached });
        state
    }

    fn apply(state: &mut State, command: Command) -> Outcome {
        state.apply(LogIndex(state.applied().0 + 1), command).outcome
    }

    fn fence(state: &mut State, value: IsolatedService) {
        apply(state, Command::SetOption(GroupOption::IsolatedService(value)));
    }

    #[test]
    fn everybody_has_to_confirm_a_fence_once() {
        let mut state = three();
        assert_eq!(state.fence(), None);
        fence(&mut state, IsolatedService::Fence);
        let first = state.fence().cloned().expect("fences");
        assert_eq!(first.unconfirmed, [1, 2, 3].map(MemberId).into());
        let confirm = |member, since| Command::ConfirmFence { member: MemberId(member), since };
        assert_eq!(apply(&mut state, confirm(1, first.since)), Outcome::Applied);
        let other = LogIndex(first.since.0 - 1);
        for wrong in [confirm(1, first.since), confirm(2, other), confirm(9, first.since)] {
            assert!(matches!(apply(&mut state, wrong), Outcome::Rejected(Rejection::WrongStanding(_))));
        }
        // Set once more, it is the same fence; a removed member is not waited for.
        fence(&mut state, IsolatedService::Fence);
        apply(&mut state, Command::RemoveMember { member: MemberId(3) });
        assert_eq!(state.fence(), Some(&Fence { since: first.since, unconfirmed: [MemberId(2)].into() }));
        fence(&mut state, IsolatedService::Serve);
        assert_eq!(state.fence(), None);
        fence(&mut state, IsolatedService::Fence);
        assert!(state.fence().is_some_and(|fence| fence.since > first.since && fence.unconfirmed.len() == 2));
    }

    #[test]
    fn only_who_was_never_admitted_here_is_to_come() {
        let mut state = three();
        assert!(state.is_to_come(MemberId(4)) && !state.is_to_come(MemberId(3)));
        apply(&mut state, Command::RemoveMember { member: MemberId(3) });
        assert!(!state.is_to_come(MemberId(3)), "a removed one never comes again");
        assert!(State::default().is_to_come(MemberId(1)));
    }

    #[test]
    fn a_survivor_keeps_everything_but_the_others() {
        let mut state = three();
        fence(&mut state, IsolatedService::Fence);
        apply(&mut state, Command::ReserveIds { member: MemberId(1), count: 8 });
        let invite = InviteId([7; 8]);
        apply(
            &mut state,
            Command::Invite {
                id: invite,
                secret_hash: [0; 32],
                at: UnixMillis(1),
                expires: UnixMillis(9),
                duty: Duty::Active,
            },
        );
        let applied = LogIndex(1_000_000);
        let next = state.survived_by(MemberId(3), applied).expect("it is on the roster");
        assert_eq!(next.group().expect("is a group").lineage, Lineage(2));
        assert_eq!(next.in_sync(), [MemberId(3)].into(), "also one that was not in sync");
        assert_eq!((next.members().count(), next.applied()), (1, applied));
        assert!(next.invite(invite).is_none() && next.reserved.is_empty());
        assert!(next.fence().is_some_and(|fence| fence.unconfirmed.is_empty()));
        assert_eq!(next.next_object, state.next_object + FORCED_GAP);
        assert_eq!(next.options(), state.options());
        assert_eq!(state.survived_by(MemberId(9), applied), None);
        assert_eq!(State::default().survived_by(MemberId(1), applied), None);
    }
}
