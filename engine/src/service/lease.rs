//! The leases of a group that fences, decided. Pure: instants in, answers out.
//!
//! A member's lease runs from the sending of its ping, by its own boot clock; the primary that answered it counts from
//! when the ping came, by its own clock, and a tenth longer. So whenever a primary takes a lease for over, it is.

use crate::clock::BootTime;
use crate::domain::{LogIndex, MemberId};
use crate::limits;
use crate::state::{Command, Fence, Member, Standing, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A member's own lease: one number, looked at before and after every use of a key.
#[derive(Debug, Default)]
pub struct Lease {
    /// Its end on the boot clock, nanoseconds; 0 if there never was one.
    end: AtomicU64,
}

impl Lease {
    /// A ping that was sent at this moment was answered.
    pub fn extend(&self, sent: BootTime) {
        self.end.fetch_max(nanos(sent.0 + limits::LEASE), Ordering::AcqRel);
    }

    /// True if it holds at this moment.
    pub fn holds(&self, now: BootTime) -> bool {
        nanos(now.0) < self.end.load(Ordering::Acquire)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What a primary knows of the leases that it gave, and of who confirmed the fence.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// When each member's last answered ping came. Members that left the roster too: they may be serving still.
    last: BTreeMap<MemberId, Instant>,
    /// Members that keep on their disks that the group fences since this entry.
    pub kept: BTreeMap<MemberId, LogIndex>,
}

impl Grants {
    /// A ping that came at this moment is being answered.
    pub fn note(&mut self, member: MemberId, heard: Instant) {
        let last = self.last.entry(member).or_insert(heard);
        *last = heard.max(*last);
    }

    /// How long somebody besides `bound` may yet hold a lease: zero if nobody does. `bound` are the members that the
    /// change at hand has been proved of. `since` is the primary's election: what earlier primaries answered before it,
    /// this one cannot know.
    pub fn left(&self, since: Instant, bound: &BTreeSet<MemberId>, now: Instant) -> Duration {
        let others = self.last.iter().filter(|(member, _)| !bound.contains(member)).map(|(_, heard)| *heard);
        let last = others.chain([since]).max().unwrap_or(since);
        limits::LEASE_WAIT.saturating_sub(now.saturating_duration_since(last))
    }

    /// Forgets leases that are over.
    pub fn forget_old(&mut self, now: Instant) {
        self.last.retain(|_, heard| now.saturating_duration_since(*heard) < limits::LEASE_WAIT);
    }
}

/// True if a member with this row of the roster, which has applied the log up to `applied`, may have a lease: it is
/// one that deletions are proved of. One that is only entering must know that it is, since its own state may be of
/// before it left.
pub fn may_grant(row: Option<&Member>, applied: LogIndex) -> bool {
    match row.map(|row| &row.standing) {
        Some(Standing::InSync) => true,
        Some(Standing::Entering(entered)) => applied >= *entered,
        Some(Standing::OutOfSync(_)) | None => false,
    }
}

/// Members whose word the fence still lacks, and of whom the change at hand has not been proved: they may be cut off
/// since before it, and serve on without a lease.
fn unproved(fence: &Fence, bound: &BTreeSet<MemberId>) -> BTreeSet<MemberId> {
    fence.unconfirmed.difference(bound).copied().collect()
}

/// What the fence lets a primary propose: the confirmations that it has heard.
pub fn confirmations(state: &State, grants: &Grants) -> Vec<Command> {
    let Some(fence) = state.fence() else { return Vec::new() };
    let heard = fence.unconfirmed.iter().filter(|member| grants.kept.get(member) == Some(&fence.since));
    heard.map(|member| Command::ConfirmFence { member: *member, since: fence.since }).collect()
}

/// True if a removal that every member in `bound` has carried out may be answered: nobody else can use the key.
pub fn may_answer(
    state: &State,
    grants: &Grants,
    since: Option<Instant>,
    bound: &BTreeSet<MemberId>,
    now: Instant,
) -> bool {
    let Some(fence) = state.fence() else { return true };
    let left = since.map_or(Duration::MAX, |since| grants.left(since, bound, now));
    left.is_zero() && unproved(fence, bound).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Duty;
    use proptest::prelude::*;

    const M: MemberId = MemberId(2);

    fn start() -> Instant {
        crate::clock::Clock.now()
    }

    #[test]
    fn a_lease_runs_from_the_sending() {
        let lease = Lease::default();
        let at = |millis| BootTime(Duration::from_millis(millis));
        assert!(!lease.holds(at(0)) && !lease.holds(at(5_000)), "there never was one");
        lease.extend(at(5_000));
        assert!(lease.holds(at(5_000)) && lease.holds(at(5_999)));
        assert!(!lease.holds(at(6_000)));
        lease.extend(at(4_000));
        assert!(lease.holds(at(5_999)), "an answer that came late takes nothing away");
        lease.extend(at(5_500));
        assert!(lease.holds(at(6_499)) && !lease.holds(at(6_500)));
    }

    #[test]
    fn a_new_primary_counts_from_its_election() {
        let (grants, since) = (Grants::default(), start());
        let nobody = BTreeSet::new();
        assert_eq!(grants.left(since, &nobody, since), limits::LEASE_WAIT);
        let later = since + limits::LEASE_WAIT;
        assert_eq!(grants.left(since, &nobody, later), Duration::ZERO);
    }

    #[test]
    fn who_has_dropped_the_key_is_not_waited_for() {
        let (mut grants, since) = (Grants::default(), start());
        let now = since + limits::LEASE_WAIT * 5;
        grants.note(M, now - Duration::from_millis(100));
        grants.note(M, now - Duration::from_millis(400));
        let left = grants.left(since, &BTreeSet::new(), now);
        assert_eq!(left, limits::LEASE_WAIT - Duration::from_millis(100));
        assert_eq!(grants.left(since, &[M].into(), now), Duration::ZERO);
        grants.forget_old(now);
        assert_eq!(grants.left(since, &BTreeSet::new(), now), left, "it is not old");
        grants.forget_old(now + limits::LEASE_WAIT);
        assert!(grants.last.is_empty());
    }

    #[test]
    fn only_members_that_deletions_are_proved_of_get_one() {
        let card = crate::service::settler::tests::card("a");
        let row = |standing| Member::new(card.clone(), standing, Duty::Active, LogIndex(1));
        assert!(!may_grant(None, LogIndex(9)));
        assert!(!may_grant(Some(&row(Standing::OutOfSync(None))), LogIndex(9)));
        assert!(may_grant(Some(&row(Standing::InSync)), LogIndex(0)));
        assert!(!may_grant(Some(&row(Standing::Entering(LogIndex(5)))), LogIndex(4)));
        assert!(may_grant(Some(&row(Standing::Entering(LogIndex(5)))), LogIndex(5)));
    }

    #[test]
    fn the_fence_lacks_the_word_of_those_it_has_not_heard() {
        let fence = Fence { since: LogIndex(3), unconfirmed: [M, MemberId(3)].into() };
        assert_eq!(unproved(&fence, &[M].into()), [MemberId(3)].into());
        assert!(unproved(&fence, &[M, MemberId(3)].into()).is_empty());
    }

    proptest! {
        /// Two clocks whose rates differ by up to a tenth, pings that are answered or lost after any delay: when the
        /// primary takes the member's lease for over, it is over.
        #[test]
        fn a_lease_is_over_when_the_primary_takes_it_for_over(
            pings in proptest::collection::vec((0u64..3_000, 0u64..800, any::<bool>()), 1..20),
            looks in proptest::collection::vec(0u64..6_000, 1..40),
            member_rate in 1_000u64..=1_050,
            primary_rate in 955u64..=1_045,
        ) {
            // The rates are thousandths of real time; the primary's is at most a tenth above the member's.
            prop_assume!(primary_rate * 10 <= member_rate * 11);
            let by = |rate: u64, millis: u64| Duration::from_micros(millis * rate);
            let origin = start();
            let (lease, mut grants) = (Lease::default(), Grants::default());
            let mut events: Vec<(u64, Option<u64>)> = pings
                .iter()
                .filter(|(_, _, answered)| *answered)
                .map(|(sent, delay, _)| (sent + delay, Some(*sent)))
                .chain(looks.iter().map(|at| (*at, None)))
                .collect();
            events.sort_unstable();
            for (at, sent) in events {
                let now = origin + by(primary_rate, at);
                match sent {
                    Some(sent) => {
                        grants.note(M, now);
                        lease.extend(BootTime(by(member_rate, sent)));
                    }
                    None if grants.left(origin, &BTreeSet::new(), now).is_zero() => {
                        prop_assert!(!lease.holds(BootTime(by(member_rate, at))), "at {at} ms");
                    }
                    None => {}
                }
                grants.forget_old(now);
            }
        }
    }
}
