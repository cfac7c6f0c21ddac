//! Standbys: they hold every key and use none as long as an active member serves. Whether one does, each standby
//! finds out by itself, by asking: that must work without a primary and without a quorum.

use super::Core;
use crate::domain::MemberId;
use crate::limits;
use crate::state::{Duty, Standing};
use crate::telemetry::Event;
use crate::wire::{Failure, FailureKind, Lane, MemberAnswer, MemberRequest, Request, Response};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

/// What one member answered.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// When it last said that it serves as an active member; None once it said that it does not.
    serving: Option<Instant>,
    /// True once it has answered.
    told: bool,
    /// Not asked again before this.
    next: Instant,
    /// True while it is being asked.
    asked: bool,
}

/// What a standby hears of the others. Pure: answers and the time in.
#[derive(Debug, Default)]
struct Hearing {
    /// Since when this member has been listening: silence before it does not count.
    since: Option<Instant>,
    rows: BTreeMap<MemberId, Row>,
}

impl Hearing {
    /// The members to ask now. Who is no longer among `others` is forgotten.
    fn due(&mut self, others: &BTreeSet<MemberId>, now: Instant) -> Vec<MemberId> {
        self.since.get_or_insert(now);
        self.rows.retain(|member, row| row.asked || others.contains(member));
        let mut due = Vec::new();
        for member in others {
            let fresh = Row { serving: None, told: false, next: now, asked: false };
            let row = self.rows.entry(*member).or_insert(fresh);
            if !row.asked && row.next <= now {
                row.asked = true;
                due.push(*member);
            }
        }
        due
    }

    /// Notes an answer: whether the member serves as an active one. None: it did not answer.
    fn note(&mut self, member: MemberId, serves: Option<bool>, now: Instant) {
        let Some(row) = self.rows.get_mut(&member) else { return };
        row.asked = false;
        row.next = now + serves.map_or(limits::STANDBY_LOOK, |_| limits::MEMBER_HEARTBEAT);
        row.told |= serves.is_some();
        match serves {
            Some(true) => row.serving = Some(now),
            Some(false) => row.serving = None,
            None => {}
        }
    }

    /// True if none of these serves, as far as can be heard.
    fn is_alone(&self, actives: &BTreeSet<MemberId>, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        let lately = |at: Instant| now.saturating_duration_since(at) < limits::MEMBER_DEAD;
        !actives.iter().any(|member| match self.rows.get(member) {
            Some(Row { serving: Some(at), .. }) => lately(*at),
            Some(row) => !row.told && lately(since),
            None => lately(since),
        })
    }
}

/// Keeps [`Core::stands_in`] true while this member is a standby and hears no active one, until `stop`.
pub async fn stand_by(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::STANDBY_LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hearing = Hearing::default();
    let mut answers = FuturesUnordered::new();
    while !*stop.borrow() {
        tokio::select! {
            _ = tick.tick() => {}
            Some((member, serves)) = answers.next() => hearing.note(member, serves, core.clock.now()),
            _ = stop.changed() => return,
        }
        let Some((others, mut actives)) = core.if_standby() else {
            core.stands_in.store(false, Ordering::Relaxed);
            hearing = Hearing::default();
            answers.clear();
            continue;
        };
        let now = core.clock.now();
        for member in hearing.due(&others, now) {
            let core = core.clone();
            answers.push(async move { (member, core.serves_active_at(member).await) });
        }
        // A machine that says that no process listens needs no waiting for.
        actives.retain(|member| !core.links.is_absent(*member));
        let alone = hearing.is_alone(&actives, now);
        match (core.stands_in.swap(alone, Ordering::Relaxed), alone) {
            (false, true) => {
                warn!(code = Event::StandbyServes.code(), member = %core.me, "no active member serves: this standby does")
            }
            (true, false) => {
                info!(code = Event::StandbyWaits.code(), member = %core.me, "an active member serves: this standby no longer does")
            }
            _ => {}
        }
    }
}

impl Core {
    /// Every other member, and the active ones in sync; None if this member is no standby.
    fn if_standby(&self) -> Option<(BTreeSet<MemberId>, BTreeSet<MemberId>)> {
        self.agreed.read(|state| {
            state.member(self.me).filter(|row| row.duty == Duty::Standby)?;
            let others = || state.members().filter(|(id, _)| *id != self.me);
            let serves =
                |row: &crate::state::Member| row.duty == Duty::Active && row.standing == Standing::InSync;
            let actives = others().filter(|(_, row)| serves(row)).map(|(id, _)| id).collect();
            Some((others().map(|(id, _)| id).collect(), actives))
        })
    }

    /// Asks a member whether it serves as an active one; None if it does not answer.
    async fn serves_active_at(&self, member: MemberId) -> Option<bool> {
        let request = Request::Member(MemberRequest::ServesActive);
        match self.links.call(member, Lane::Heartbeat, request, limits::MEMBER_DEAD).await {
            Ok(Response::Member(MemberAnswer::ServesActive(serves))) => Some(serves),
            Ok(Response::Failed(_)) => Some(false),
            Ok(_) | Err(_) => None,
        }
    }

    /// True if this member serves as an active one. A standby that stands in does not say so: it would keep others off.
    pub(super) fn serves_active(&self) -> bool {
        let active =
            self.agreed.read(|state| state.member(self.me).is_some_and(|row| row.duty == Duty::Active));
        active && self.may_serve().is_ok()
    }

    /// Refuses to use keys at a standby while an active member serves.
    pub(super) fn on_duty(&self, duty: Duty) -> Result<(), Failure> {
        if duty == Duty::Active || self.stands_in.load(Ordering::Relaxed) {
            return Ok(());
        }
        let text = format!("{} is a standby, and active members serve", self.named(self.me));
        Err(Failure::new(FailureKind::Standby, text))
    }

    /// True if this member may answer what uses no key of the group: standbys do as well.
    pub(super) fn may_answer(&self) -> Result<(), Failure> {
        match self.may_serve() {
            Err(failure) if failure.kind == FailureKind::Standby => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HEARTBEAT: Duration = limits::MEMBER_HEARTBEAT;
    const DEAD: Duration = limits::MEMBER_DEAD;

    fn members(ids: &[u64]) -> BTreeSet<MemberId> {
        ids.iter().copied().map(MemberId).collect()
    }

    /// A standby that has just begun to listen to members 1 and 2.
    fn begin() -> (Hearing, Instant) {
        #[expect(clippy::disallowed_methods, reason = "a test's beginning of time")]
        let now = Instant::now();
        let mut hearing = Hearing::default();
        assert_eq!(hearing.due(&members(&[1, 2]), now), [MemberId(1), MemberId(2)]);
        (hearing, now)
    }

    #[test]
    fn silence_counts_from_the_begin() {
        let (hearing, now) = begin();
        assert!(!hearing.is_alone(&members(&[1, 2]), now));
        assert!(!hearing.is_alone(&members(&[1, 2]), now + DEAD - Duration::from_millis(1)));
        assert!(hearing.is_alone(&members(&[1, 2]), now + DEAD));
        assert!(hearing.is_alone(&members(&[]), now), "nobody active is in sync");
        assert!(!Hearing::default().is_alone(&members(&[]), now), "one that does not listen never serves");
    }

    #[test]
    fn one_active_member_is_enough_and_none_for_the_dead_time_is_not() {
        let (mut hearing, now) = begin();
        hearing.note(MemberId(1), Some(true), now);
        hearing.note(MemberId(2), None, now);
        let later = now + DEAD - Duration::from_millis(1);
        assert!(!hearing.is_alone(&members(&[1, 2]), later));
        hearing.note(MemberId(2), Some(true), later);
        assert!(!hearing.is_alone(&members(&[1, 2]), now + DEAD));
        assert!(hearing.is_alone(&members(&[1]), now + DEAD));
        assert!(hearing.is_alone(&members(&[1, 2]), later + DEAD));
    }

    #[test]
    fn a_member_that_says_it_does_not_serve_is_believed_at_once() {
        let (mut hearing, now) = begin();
        hearing.note(MemberId(1), Some(true), now);
        hearing.note(MemberId(2), Some(false), now);
        assert!(!hearing.is_alone(&members(&[1, 2]), now));
        hearing.note(MemberId(1), Some(false), now);
        assert!(hearing.is_alone(&members(&[1, 2]), now));
        // Back to standby with the first good word.
        hearing.note(MemberId(2), Some(true), now);
        assert!(!hearing.is_alone(&members(&[1, 2]), now));
    }

    #[test]
    fn members_are_asked_once_at_a_time_and_again_after_a_pause() {
        let (mut hearing, now) = begin();
        let both = members(&[1, 2]);
        assert!(hearing.due(&both, now + DEAD).is_empty(), "they are being asked");
        hearing.note(MemberId(1), Some(true), now);
        hearing.note(MemberId(2), None, now);
        assert_eq!(hearing.due(&both, now + limits::STANDBY_LOOK), [MemberId(2)]);
        assert_eq!(hearing.due(&both, now + HEARTBEAT), [MemberId(1)]);
        hearing.note(MemberId(1), Some(true), now);
        assert_eq!(hearing.due(&members(&[3]), now), [MemberId(3)]);
        assert!(!hearing.rows.contains_key(&MemberId(1)), "who is removed is forgotten");
    }
}
