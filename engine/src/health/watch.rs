//! All members of a group, as one caller sees them.

use super::member::{Cause, Health};
use super::slow::Times;
use super::{Call, Class, Outcome, Standing, Try};
use std::time::Instant;

/// What is known of each member, by its place in the caller's configuration.
#[derive(Clone, Debug)]
pub struct Watch(Vec<Health>);

impl Watch {
    /// So many members, all taken for fit.
    pub fn new(members: usize) -> Self {
        Self(vec![Health::default(); members])
    }

    /// What may be asked of each member now.
    pub fn standings(&self, now: Instant) -> impl Iterator<Item = Standing> {
        let alone = self.is_alone();
        self.0.iter().map(move |health| health.standing(now, alone))
    }

    /// True if no member is fit: nothing is better than to wait for one.
    pub fn is_alone(&self) -> bool {
        !self.0.iter().any(Health::is_fit)
    }

    /// True if a member other than this one is fit.
    pub fn has_other_fit(&self, member: usize, now: Instant) -> bool {
        let fit = |health: &Health| matches!(health.standing(now, false), Standing::Fit(_));
        self.0.iter().enumerate().any(|(other, health)| other != member && fit(health))
    }

    /// Takes on to find out whether a member that is [`Standing::Due`] is back. One caller at a time may; it must end
    /// by [`Watch::came_back`], [`Watch::not_yet`], [`Watch::stays_out`] or the end of a call. None if another one tries.
    pub fn try_again(&mut self, member: usize, now: Instant) -> Option<Try> {
        let alone = self.is_alone();
        self.0.get_mut(member)?.try_again(now, alone)
    }

    /// A member that was out greeted.
    pub fn came_back(&mut self, member: usize, now: Instant) {
        if let Some(health) = self.0.get_mut(member) {
            health.come_back(now);
        }
    }

    /// A try has brought nothing yet: another caller may look again soon. True if it is over by that.
    pub fn not_yet(&mut self, member: usize, now: Instant) -> bool {
        self.0.get_mut(member).is_none_or(|health| health.not_yet(now))
    }

    /// A try found nobody; `silent` if it had to wait for that.
    pub fn stays_out(&mut self, member: usize, silent: bool, now: Instant) {
        if let Some(health) = self.0.get_mut(member) {
            health.put_out(if silent { Cause::Silent } else { Cause::Gone }, now);
        }
    }

    /// A call goes to a member; it must end by [`Watch::end`].
    pub fn begin(&mut self, member: usize, class: Class, now: Instant) -> Call {
        let among = self.0.get_mut(member).map_or(0, |health| health.begin(now));
        Call { member, class, begun: now, among }
    }

    /// A member showed that it lives while a call waits.
    pub fn heard(&mut self, member: usize, now: Instant) {
        if let Some(health) = self.0.get_mut(member) {
            health.heard(now);
        }
    }

    /// A call ended. True if the member is back by that.
    pub fn end(&mut self, call: &Call, outcome: Outcome, now: Instant) -> bool {
        let answered = outcome == Outcome::Answered;
        let usual = |(member, health): (usize, &Health)| {
            let counts = member != call.member && health.is_fit();
            counts.then(|| health.pulse.usual(call.class)).flatten()
        };
        let elsewhere = if answered && call.class.is_even() {
            Times::median(&self.0.iter().enumerate().filter_map(usual).collect::<Vec<_>>())
        } else {
            None
        };
        let may_judge = self.may_judge(call.member);
        let Some(health) = self.0.get_mut(call.member) else { return false };
        let was_fit = health.is_fit();
        let slow = answered && health.pulse.answered(call, elsewhere, now);
        health.end(outcome, slow, may_judge, now);
        health.is_fit() && !was_fit
    }

    /// The floor: at most half of the members are out for their errors or their slowness, and never the last fit one.
    fn may_judge(&self, member: usize) -> bool {
        let judged = self.0.iter().filter(|health| health.is_judged()).count();
        let others = self.0.iter().enumerate().filter(|(other, health)| *other != member && health.is_fit());
        (judged + 1) * 2 <= self.0.len() && others.count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::limits;
    use proptest::prelude::*;
    use std::time::Duration;

    const QUICK: Duration = Duration::from_millis(1);

    /// One call.
    fn call(watch: &mut Watch, member: usize, outcome: Outcome, took: Duration, now: Instant) {
        let call = watch.begin(member, Class::Signing, now);
        watch.end(&call, outcome, now + took);
    }

    fn standing(watch: &Watch, member: usize, now: Instant) -> Standing {
        watch.standings(now).nth(member).expect("is a member")
    }

    #[test]
    fn a_lost_member_is_tried_by_one_and_comes_back_slowly() {
        let (mut watch, now) = (Watch::new(2), Clock.now());
        call(&mut watch, 0, Outcome::Lost, QUICK, now);
        let later = now + QUICK;
        assert_eq!(standing(&watch, 0, later), Standing::Out);
        assert_eq!(watch.try_again(0, later), None);
        let due = later + limits::GONE_MIN;
        assert_eq!(standing(&watch, 0, due), Standing::Due);
        assert!(watch.try_again(0, due).is_some());
        assert_eq!(watch.try_again(0, due), None, "one at a time");
        watch.stays_out(0, false, due);
        assert_eq!(standing(&watch, 0, due + limits::GONE_MIN), Standing::Out, "it waits twice as long now");
        let due = due + 2 * limits::GONE_MIN;
        assert!(watch.try_again(0, due).is_some());
        watch.came_back(0, due);
        assert_eq!(standing(&watch, 0, due), Standing::Fit(limits::SLOW_START_SHARE));
        let Standing::Fit(half) = standing(&watch, 0, due + limits::SLOW_START / 2) else { panic!("is fit") };
        assert!(half > limits::SLOW_START_SHARE && half < 1.0, "{half}");
        assert_eq!(standing(&watch, 0, due + limits::SLOW_START), Standing::Fit(1.0));
    }

    #[test]
    fn a_try_that_never_ends_is_anothers() {
        let (mut watch, now) = (Watch::new(2), Clock.now());
        call(&mut watch, 0, Outcome::Silent, QUICK, now);
        let due = now + QUICK + limits::SILENT_MIN;
        assert_eq!(watch.try_again(0, due), Some(Try::Greet(limits::TRY_STEP)));
        assert_eq!(watch.try_again(0, due), None);
        assert!(watch.try_again(0, due + limits::TRY_LEASE).is_some());
    }

    #[test]
    fn a_try_goes_from_caller_to_caller_and_ends() {
        let (mut watch, now) = (Watch::new(2), Clock.now());
        call(&mut watch, 0, Outcome::Silent, QUICK, now);
        let due = now + QUICK + limits::SILENT_MIN;
        assert!(watch.try_again(0, due).is_some());
        assert!(!watch.not_yet(0, due));
        assert_eq!(watch.try_again(0, due), None, "it has just been looked at");
        let next = due + limits::TRY_LOOK;
        assert!(watch.try_again(0, next).is_some());
        assert!(watch.not_yet(0, due + limits::CONNECT), "it took too long");
        assert_eq!(standing(&watch, 0, due + limits::CONNECT), Standing::Out);
    }

    #[test]
    fn with_nobody_fit_everybody_is_tried_soon() {
        let (mut watch, now) = (Watch::new(2), Clock.now());
        for member in 0..2 {
            call(&mut watch, member, Outcome::Silent, QUICK, now);
        }
        let soon = now + QUICK + limits::ALONE_PAUSE;
        assert!(watch.standings(soon).all(|standing| standing == Standing::Due));
    }

    #[test]
    fn errors_put_out_at_most_half_and_never_the_last() {
        let (mut watch, now) = (Watch::new(3), Clock.now());
        for member in 0..3 {
            for _ in 0..limits::FAILURES_MAX {
                call(&mut watch, member, Outcome::Failed, QUICK, now);
            }
        }
        let then: Vec<_> = watch.standings(now + QUICK).collect();
        assert_eq!(then, [Standing::Judged, Standing::Fit(1.0), Standing::Fit(1.0)]);
        let due = now + QUICK + limits::JUDGED_MIN;
        assert_eq!(watch.try_again(0, due), Some(Try::Call));
        call(&mut watch, 0, Outcome::Failed, QUICK, due);
        assert_eq!(standing(&watch, 0, due + QUICK), Standing::Judged, "one more is enough then");
        let mut one = Watch::new(1);
        for _ in 0..limits::FAILURES_MAX {
            call(&mut one, 0, Outcome::Failed, QUICK, now);
        }
        assert_eq!(standing(&one, 0, now + QUICK), Standing::Fit(1.0));
    }

    #[test]
    fn an_answer_between_errors_forgives() {
        let (mut watch, now) = (Watch::new(2), Clock.now());
        for _ in 0..3 {
            for _ in 1..limits::FAILURES_MAX {
                call(&mut watch, 0, Outcome::Failed, QUICK, now);
            }
            call(&mut watch, 0, Outcome::Answered, QUICK, now);
        }
        assert_eq!(standing(&watch, 0, now + QUICK), Standing::Fit(1.0));
        call(&mut watch, 0, Outcome::Late, QUICK, now);
        call(&mut watch, 0, Outcome::Late, QUICK, now);
        assert_eq!(standing(&watch, 0, now + QUICK), Standing::Judged, "late twice");
    }

    #[test]
    fn a_slow_member_is_out_and_a_hiccup_is_not() {
        let (mut watch, now) = (Watch::new(3), Clock.now());
        for member in 0..3 {
            call(&mut watch, member, Outcome::Answered, QUICK, now);
        }
        let slow = Duration::from_millis(50);
        for _ in 0..20 {
            call(&mut watch, 0, Outcome::Answered, slow, now);
        }
        assert_eq!(standing(&watch, 0, now + slow), Standing::Fit(1.0), "all at once: a hiccup");
        let later = now + limits::SLOW_SPAN;
        call(&mut watch, 0, Outcome::Answered, slow, later);
        let due = later + slow + limits::JUDGED_MIN;
        assert_eq!(standing(&watch, 0, later + slow), Standing::Judged);
        assert_eq!(watch.try_again(0, due), Some(Try::Call));
        call(&mut watch, 0, Outcome::Answered, slow, due);
        assert_eq!(standing(&watch, 0, due + slow), Standing::Judged, "it is as slow");
        let due = due + slow + 2 * limits::JUDGED_MIN;
        assert_eq!(watch.try_again(0, due), Some(Try::Call));
        call(&mut watch, 0, Outcome::Answered, QUICK, due);
        assert_eq!(standing(&watch, 0, due + QUICK), Standing::Fit(limits::SLOW_START_SHARE));
    }

    #[test]
    fn calls_that_take_long_by_their_nature_say_nothing() {
        let (mut watch, now) = (Watch::new(2), Clock.now());
        for step in 0..50 {
            let now = now + limits::SLOW_SPAN * step;
            for (member, took) in [(0, QUICK), (1, QUICK * 5000)] {
                let call = watch.begin(member, Class::Long, now);
                watch.end(&call, Outcome::Answered, now + took);
            }
        }
        assert_eq!(standing(&watch, 1, now + limits::SLOW_SPAN * 50), Standing::Fit(1.0));
    }

    #[test]
    fn a_member_that_rests_or_owes_answers_is_asked_after_others() {
        let (mut watch, now) = (Watch::new(2), Clock.now());
        call(&mut watch, 0, Outcome::NotServing, QUICK, now);
        assert_eq!(standing(&watch, 0, now + QUICK), Standing::Resting);
        assert_eq!(standing(&watch, 0, now + QUICK + limits::REST_MIN), Standing::Fit(1.0));
        watch.begin(1, Class::Quick, now);
        assert_eq!(standing(&watch, 1, now + limits::SUSPECT_AFTER), Standing::Suspected);
        assert!(!watch.has_other_fit(0, now + limits::SUSPECT_AFTER));
        watch.heard(1, now + limits::SUSPECT_AFTER);
        assert_eq!(standing(&watch, 1, now + limits::SUSPECT_AFTER), Standing::Fit(1.0));
    }

    fn outcomes() -> impl Strategy<Value = Outcome> {
        use Outcome::{Answered, Failed, Late, Lost, NotServing, Silent, Unknown};
        prop::sample::select(vec![Answered, NotServing, Failed, Late, Lost, Silent, Unknown])
    }

    proptest! {
        /// Whatever happens, judging leaves one fit member, and whoever is out is due again in bounded time.
        #[test]
        fn nobody_is_out_for_ever(
            calls in prop::collection::vec((0usize..4, outcomes(), 0u64..3000), 1..200),
        ) {
            let (mut watch, mut now) = (Watch::new(4), Clock.now());
            for (member, outcome, pause) in calls {
                now += Duration::from_millis(pause);
                let _ = watch.try_again(member, now);
                call(&mut watch, member, outcome, QUICK, now);
                now += QUICK;
                let judged = watch.0.iter().filter(|health| health.is_judged()).count();
                prop_assert!(judged <= 2);
                let end = now + limits::SILENT_MAX.max(limits::TRY_LEASE);
                for standing in watch.standings(end) {
                    prop_assert!(!matches!(standing, Standing::Out | Standing::Judged));
                }
            }
        }
    }
}
