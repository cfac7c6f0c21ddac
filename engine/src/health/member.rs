//! One member: fit, out until some moment, tried by one caller, or back with a share that grows.

use super::slow::Pulse;
use super::{Outcome, Standing, Try};
use crate::limits;
use std::time::{Duration, Instant};

/// Why a member is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its connections broke, or nobody is at its place.
    Gone,
    /// It said nothing: trying it costs a wait.
    Silent,
    /// It answers, but with errors, or slowly.
    Judged,
}

impl Cause {
    /// How long it is left alone the first time; doubled by each further one, up to the second.
    fn pauses(self) -> (Duration, Duration) {
        match self {
            Self::Gone => (limits::GONE_MIN, limits::GONE_MAX),
            Self::Silent => (limits::SILENT_MIN, limits::SILENT_MAX),
            Self::Judged => (limits::JUDGED_MIN, limits::JUDGED_MAX),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Fit {
        since: Option<Instant>,
    },
    Out {
        at: Instant,
        until: Instant,
        cause: Cause,
    },
    /// One caller finds out, or one after another, the next from `next` on.
    Tried {
        since: Instant,
        next: Instant,
        cause: Cause,
    },
}

/// One member's state.
#[derive(Clone, Debug)]
pub(super) struct Health {
    state: State,
    /// Times it went out without having stayed for long in between.
    outs: u32,
    /// Failures since the last answer, a late answer counting for several.
    failures: u32,
    /// It said that it does not serve until then, so many times in a row.
    rests: Option<(Instant, u32)>,
    /// Calls that wait for it.
    pending: u32,
    /// When it was last heard while calls waited, or the first of them began.
    heard: Option<Instant>,
    /// What its answers take.
    pub pulse: Pulse,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            state: State::Fit { since: None },
            outs: 0,
            failures: 0,
            rests: None,
            pending: 0,
            heard: None,
            pulse: Pulse::default(),
        }
    }
}

impl Health {
    /// What may be asked of it. `alone` says that no member is fit: then a member that is out is tried sooner.
    pub fn standing(&self, now: Instant, alone: bool) -> Standing {
        match self.state {
            State::Out { at, until, cause } => {
                let until = if alone { until.min(at + limits::ALONE_PAUSE) } else { until };
                match cause {
                    _ if now >= until => Standing::Due,
                    Cause::Judged => Standing::Judged,
                    Cause::Gone | Cause::Silent => Standing::Out,
                }
            }
            State::Tried { next, .. } if now >= next => Standing::Due,
            State::Tried { cause: Cause::Judged, .. } => Standing::Judged,
            State::Tried { .. } => Standing::Out,
            State::Fit { .. } if self.rests.is_some_and(|(until, _)| now < until) => Standing::Resting,
            State::Fit { .. } if self.is_quiet(now) => Standing::Suspected,
            State::Fit { since } => Standing::Fit(since.map_or(1.0, |since| share(now, since))),
        }
    }

    /// True while it takes calls from everybody.
    pub fn is_fit(&self) -> bool {
        matches!(self.state, State::Fit { .. })
    }

    /// True if it is out for its errors or its slowness.
    pub fn is_judged(&self) -> bool {
        matches!(
            self.state,
            State::Out { cause: Cause::Judged, .. } | State::Tried { cause: Cause::Judged, .. }
        )
    }

    fn is_quiet(&self, now: Instant) -> bool {
        let quiet = |heard| now.saturating_duration_since(heard) >= limits::SUSPECT_AFTER;
        self.pending > 0 && self.heard.is_some_and(quiet)
    }

    /// One caller tries it. None if another does already.
    pub fn try_again(&mut self, now: Instant, alone: bool) -> Option<Try> {
        if self.standing(now, alone) != Standing::Due {
            return None;
        }
        let (since, cause) = match self.state {
            State::Out { cause, .. } => (now, cause),
            State::Tried { since, cause, .. } => (since, cause),
            State::Fit { .. } => return None,
        };
        // Whoever tries it may be ended in the middle.
        self.state = State::Tried { since, next: now + limits::TRY_LEASE, cause };
        Some(match cause {
            Cause::Judged => Try::Call,
            // Longer each time, so that a stopped member costs little and a far one comes back.
            Cause::Gone | Cause::Silent => {
                Try::Greet((limits::TRY_STEP * self.outs.max(1)).min(limits::CONNECT))
            }
        })
    }

    /// A try has brought nothing yet: the next caller looks again. True if it has taken too long, and is over.
    pub fn not_yet(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Tried { since, next, .. } if now < *since + limits::CONNECT => {
                *next = now + limits::TRY_LOOK;
                return false;
            }
            State::Tried { .. } => self.put_out(Cause::Silent, now),
            State::Fit { .. } | State::Out { .. } => {}
        }
        true
    }

    /// A call goes out; so many are under way then.
    pub fn begin(&mut self, now: Instant) -> u32 {
        if self.pending == 0 {
            self.heard = Some(now);
        }
        self.pending += 1;
        self.pending
    }

    /// A sign of life came.
    pub fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// A call ended. `slow` says that the member must be called slow; `may_judge` that another one may be put out for
    /// that or for errors.
    pub fn end(&mut self, outcome: Outcome, slow: bool, may_judge: bool, now: Instant) {
        self.pending = self.pending.saturating_sub(1);
        match outcome {
            Outcome::Lost => return self.put_out(Cause::Gone, now),
            Outcome::Silent => return self.put_out(Cause::Silent, now),
            Outcome::Unknown => return,
            Outcome::Answered | Outcome::NotServing | Outcome::Failed | Outcome::Late => {
                self.heard = Some(now);
            }
        }
        if matches!(self.state, State::Out { .. }) {
            // A call from before it was put out.
            return;
        }
        match outcome {
            Outcome::Answered => (self.failures, self.rests) = (0, None),
            Outcome::NotServing => {
                let count = self.rests.map_or(0, |(_, count)| count);
                let pause = doubled(limits::REST_MIN, limits::REST_MAX, count);
                self.rests = Some((now + pause, count.saturating_add(1)));
            }
            Outcome::Failed => self.failures += 1,
            _ => self.failures += limits::FAILURES_MAX.div_ceil(2),
        }
        // One that was out for that must not begin so.
        let as_before = self.is_judged() && matches!(outcome, Outcome::Failed | Outcome::Late);
        let bad = slow || as_before || self.failures >= limits::FAILURES_MAX;
        if bad && (may_judge || self.is_judged()) {
            self.put_out(Cause::Judged, now);
        } else {
            self.come_back(now);
        }
    }

    /// It answered a greeting: it is back.
    pub fn come_back(&mut self, now: Instant) {
        if !self.is_fit() {
            self.state = State::Fit { since: Some(now) };
            self.failures = 0;
            self.pulse.begin_anew();
        }
    }

    /// A try brought nothing.
    pub fn put_out(&mut self, cause: Cause, now: Instant) {
        match self.state {
            // Calls that were under way when it went out say nothing new.
            State::Out { cause: before, .. } if before != Cause::Judged || cause == Cause::Judged => return,
            State::Fit { since } => {
                let stayed = since.is_none_or(|since| now.saturating_duration_since(since) >= limits::STAYED);
                if stayed {
                    self.outs = 0;
                }
            }
            State::Out { .. } | State::Tried { .. } => {}
        }
        let (least, most) = cause.pauses();
        let until = now + doubled(least, most, self.outs);
        self.outs = self.outs.saturating_add(1);
        (self.failures, self.rests) = (0, None);
        self.state = State::Out { at: now, until, cause };
    }
}

/// The share of a member that came back then.
fn share(now: Instant, since: Instant) -> f64 {
    let ramp = limits::SLOW_START.as_secs_f64();
    let grown = now.saturating_duration_since(since).as_secs_f64() / ramp;
    (limits::SLOW_START_SHARE + (1.0 - limits::SLOW_START_SHARE) * grown).min(1.0)
}

fn doubled(least: Duration, most: Duration, times: u32) -> Duration {
    least.saturating_mul(1 << times.min(16)).min(most)
}
