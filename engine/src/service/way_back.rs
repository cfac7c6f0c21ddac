//! The way back of members that left the in-sync set: as often and as fast as the group wants it tried. Pure.

use super::settler::{Heard, Watch, fresh};
use crate::domain::MemberId;
use crate::limits;
use crate::state::{Command, Member, Standing, State};
use crate::wire::TokenHealth;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The members that left the in-sync set, and since when each has so many counted tries. A new primary counts the
/// pause between two tries from its own begin.
#[derive(Clone, Debug, Default)]
pub struct Left(BTreeMap<MemberId, (u32, Instant)>);

impl Left {
    /// Notes who has left, and whose tries went up.
    pub(super) fn note(&mut self, state: &State, now: Instant) {
        let away = |id: MemberId| {
            let member = state.member(id)?;
            matches!(member.standing, Standing::OutOfSync(Some(_))).then_some(member.way_back.tries)
        };
        self.0.retain(|id, (tries, _)| away(*id) == Some(*tries));
        for (id, _) in state.members() {
            if let Some(tries) = away(id) {
                self.0.entry(id).or_insert((tries, now));
            }
        }
    }
}

/// Lets a member out of sync enter, or counts that it was not there to do so.
pub(super) fn take_back(
    state: &State,
    watch: &Watch,
    now: Instant,
    id: MemberId,
    member: &Member,
) -> Option<Command> {
    let recovery = state.options().auto_recovery;
    if member.awaits_operator(&state.options()) {
        return None;
    }
    let interval = Duration::from_secs(recovery.interval_seconds.into());
    let left = watch.left.0.get(&id);
    let due = left.is_none_or(|(_, since)| now.saturating_duration_since(*since) >= interval);
    // One whose token works and takes nothing would hold up the next change, and leave again.
    let well = |h: &&Heard| fresh(h, now) && h.token == TokenHealth::Healthy && !h.stuck;
    let there = watch.heard.get(&id).filter(well);
    let Some(heard) = there.filter(|_| !watch.absent.contains(&id)) else {
        let counts = recovery.retries > 0 && !member.way_back.called && left.is_some();
        return (counts && due).then_some(Command::CountRetry { member: id });
    };
    // The first try and an operator's wish wait for nothing.
    let due = due || member.way_back.tries == 0 || member.way_back.called;
    let lag = state.applied().0.saturating_sub(heard.reached.0);
    let fit = lag <= limits::ENTER_LAG_ENTRIES && !watch.awaits_vote(id);
    (due && fit).then_some(Command::EnterInSync { member: id })
}
