//! How many operations a second, from a count that only grows. Pure: count and time in, rate out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The rate over the last few looks.
#[derive(Debug, Default)]
pub struct Rate {
    looks: VecDeque<(Instant, u64)>,
}

/// Looks that the rate is taken over.
const LOOKS: usize = 5;

impl Rate {
    /// Notes the count at a moment, and gives the rate a second since the oldest look that is kept.
    pub fn look(&mut self, now: Instant, count: u64) -> f64 {
        let rate = self.looks.front().map_or(0.0, |(then, before)| {
            let span = now.saturating_duration_since(*then).max(Duration::from_millis(1));
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let done = count.saturating_sub(*before) as f64;
            done / span.as_secs_f64()
        });
        if self.looks.len() >= LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back((now, count));
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn the_rate_follows_the_last_looks() {
        let (mut rate, start) = (Rate::default(), Clock.now());
        assert_eq!(rate.look(start, 7), 0.0);
        assert_eq!(rate.look(start + Duration::from_secs(1), 107), 100.0);
        for second in 2..=10 {
            rate.look(start + Duration::from_secs(second), 107);
        }
        assert_eq!(rate.look(start + Duration::from_secs(11), 107), 0.0, "what is long ago counts no more");
    }
}
