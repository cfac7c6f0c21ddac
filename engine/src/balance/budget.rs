//! A budget for second tries on members that live, so that a slow group is not asked for everything twice: a share of
//! all calls, and some a second. Tries after a loss are free: whoever is dead does nothing.

use crate::limits;
use std::time::Instant;

/// What is left.
#[derive(Clone, Debug)]
pub struct Budget {
    tries: f64,
    at: Instant,
}

impl Budget {
    /// A full one.
    pub fn new(now: Instant) -> Self {
        Self { tries: limits::SECOND_TRIES_MAX, at: now }
    }

    /// A call is made.
    pub fn earn(&mut self) {
        self.gain(limits::SECOND_TRIES_PER_CALL);
    }

    /// Takes a second try. False if none is left.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.gain(passed * limits::SECOND_TRIES_PER_SECOND);
        if self.tries < 1.0 {
            return false;
        }
        self.tries -= 1.0;
        true
    }

    fn gain(&mut self, tries: f64) {
        self.tries = (self.tries + tries).min(limits::SECOND_TRIES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::time::Duration;

    #[test]
    fn a_fifth_of_all_calls_and_ten_a_second() {
        let start = Clock.now();
        let mut budget = Budget::new(start);
        while budget.take(start) {}
        let mut taken = 0;
        for call in 0..1000u32 {
            budget.earn();
            // A thousand calls within a second.
            taken += u32::from(budget.take(start + Duration::from_millis(call.into())));
        }
        assert!((205..=210).contains(&taken), "{taken}");
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let start = Clock.now();
        let mut budget = Budget::new(start);
        let later = start + Duration::from_secs(3600);
        let taken = (0..1000).filter(|_| budget.take(later)).count();
        assert_eq!(taken as f64, limits::SECOND_TRIES_MAX);
    }
}
