//! What a member takes, with a memory for peaks: a longer time replaces the estimate, a shorter one lets it decay. Without
//! answers it decays too, towards what is usual, so that one hiccup does not starve a member.

use crate::limits;
use std::time::{Duration, Instant};

/// A member's estimate for one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    seconds: f64,
    at: Instant,
}

impl Estimate {
    /// The estimate after an answer that took so long.
    pub fn after(before: Option<Self>, took: f64, now: Instant) -> Self {
        let seconds = before.map_or(took, |before| {
            if took >= before.seconds { took } else { decayed(before.seconds, took, since(before.at, now)) }
        });
        Self { seconds, at: now }
    }

    /// The estimate now, where others take `usual`.
    pub fn at(self, now: Instant, usual: f64) -> f64 {
        if usual >= self.seconds { self.seconds } else { decayed(self.seconds, usual, since(self.at, now)) }
    }

    /// The estimate at its last answer.
    pub fn raw(self) -> f64 {
        self.seconds
    }
}

fn since(at: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(at)
}

/// On the way from one value to a lower one.
fn decayed(from: f64, to: f64, after: Duration) -> f64 {
    to + (from - to) * (-after.as_secs_f64() / limits::ESTIMATE_DECAY.as_secs_f64()).exp()
}

/// The lower median; 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::cases;
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn vectors() {
        for case in cases(include_str!("../../../tests/vectors/peak_ewma.json")) {
            let number = |key: &str| case[key].as_f64();
            let seconds = |key: &str| Duration::from_secs_f64(number(key).expect("is a number"));
            let at = Clock.now();
            let before = Estimate { seconds: number("estimate_ms").expect("is a number"), at };
            let then = match number("rtt_ms") {
                Some(took) => Estimate::after(Some(before), took, at + seconds("after_s")).raw(),
                None => before.at(at + seconds("idle_s"), number("median_ms").expect("is a number")),
            };
            let wanted = number("then_ms").expect("is a number");
            assert!((then - wanted).abs() < 0.001, "{case}: {then}");
        }
    }
}
