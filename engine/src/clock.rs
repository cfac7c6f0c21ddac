//! The one real clock. Pure code is handed times; it never asks for them.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall-clock time in milliseconds since 1970, as it rides in log entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnixMillis(pub u64);

/// A reading of the boot clock: time since the machine's start, also while it slept. Leases are measured on it, since
/// a monotonic clock stands still in a sleeping machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub Duration);

/// Gives the time: the machine's, or in a simulation tokio's, which stands still while anything is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// A reading of the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "the one real clock")]
    pub fn now(&self) -> Instant {
        #[cfg(feature = "test-hooks")]
        if crate::simulation::is_on() {
            return simulated::now();
        }
        Instant::now()
    }

    /// A reading of the boot clock.
    pub fn boot(&self) -> BootTime {
        #[cfg(feature = "test-hooks")]
        if crate::simulation::is_on() {
            return BootTime(crate::simulation::elapsed());
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        BootTime(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default()))
    }

    /// The wall clock; 0 if it stands before 1970.
    #[expect(clippy::disallowed_methods, reason = "the one real clock")]
    pub fn unix(&self) -> UnixMillis {
        #[cfg(feature = "test-hooks")]
        if crate::simulation::is_on() {
            return simulated::unix();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// One member's clocks: the process's, or in a simulation clocks that are off.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberClock {
    #[cfg(feature = "test-hooks")]
    skew: Option<&'static Skew>,
}

impl MemberClock {
    /// Clocks that are off by `skew`.
    #[cfg(feature = "test-hooks")]
    pub fn skewed(skew: &'static Skew) -> Self {
        Self { skew: Some(skew) }
    }

    /// As [`Clock::now`]: what a process measures its own waits by.
    pub fn now(&self) -> Instant {
        Clock.now()
    }

    /// As [`Clock::boot`].
    pub fn boot(&self) -> BootTime {
        #[cfg(feature = "test-hooks")]
        if let Some(skew) = self.skew {
            return skew.boot(Clock.boot());
        }
        Clock.boot()
    }

    /// As [`Clock::unix`].
    pub fn unix(&self) -> UnixMillis {
        #[cfg(feature = "test-hooks")]
        if let Some(skew) = self.skew {
            return skew.unix(Clock.unix());
        }
        Clock.unix()
    }
}

#[cfg(feature = "test-hooks")]
pub use simulated::Skew;

#[cfg(feature = "test-hooks")]
mod simulated {
    use super::{BootTime, Clock, UnixMillis};
    use parking_lot::Mutex;
    use std::time::{Duration, Instant};

    /// A simulation begins at 2026-01-01, whenever it is run.
    const BEGIN: UnixMillis = UnixMillis(1_767_225_600_000);
    const MILLION: u64 = 1_000_000;

    pub(super) fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    pub(super) fn unix() -> UnixMillis {
        let passed = u64::try_from(crate::simulation::elapsed().as_millis()).unwrap_or(u64::MAX);
        UnixMillis(BEGIN.0.saturating_add(passed))
    }

    /// How far a member's clocks are off: the wall clock by an offset, the boot clock by its rate. Changed while the
    /// member runs.
    #[derive(Debug, Default)]
    pub struct Skew(Mutex<Drift>);

    #[derive(Debug)]
    struct Drift {
        /// Where the boot clock's rate changed last: the true time, and what the clock showed.
        since: (Duration, Duration),
        /// What the boot clock advances in a million true units.
        rate: u64,
        /// Milliseconds that the wall clock is ahead.
        wall: i64,
    }

    impl Default for Drift {
        fn default() -> Self {
            Self { since: (Duration::ZERO, Duration::ZERO), rate: MILLION, wall: 0 }
        }
    }

    impl Drift {
        fn shows(&self, truth: Duration) -> Duration {
            let passed = truth.saturating_sub(self.since.0);
            let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
            let shown = u128::from(passed) * u128::from(self.rate) / u128::from(MILLION);
            self.since.1 + Duration::from_nanos(u64::try_from(shown).unwrap_or(u64::MAX))
        }
    }

    impl Skew {
        /// From now on the boot clock advances `rate` microseconds a true second.
        pub fn set_rate(&self, rate: u64) {
            let truth = Clock.boot().0;
            let mut drift = self.0.lock();
            drift.since = (truth, drift.shows(truth));
            drift.rate = rate;
        }

        /// From now on the wall clock is so many milliseconds ahead, or behind.
        pub fn set_wall(&self, ahead: i64) {
            self.0.lock().wall = ahead;
        }

        pub(super) fn boot(&self, truth: BootTime) -> BootTime {
            BootTime(self.0.lock().shows(truth.0))
        }

        pub(super) fn unix(&self, truth: UnixMillis) -> UnixMillis {
            UnixMillis(truth.0.saturating_add_signed(self.0.lock().wall))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_clock_goes_on_from_where_it_was_when_its_rate_changes() {
            let second = Duration::from_secs(1);
            let mut drift = Drift { rate: 1_100_000, ..Drift::default() };
            assert_eq!(drift.shows(second * 10), second * 11);
            drift.since = (second * 10, second * 11);
            drift.rate = 500_000;
            assert_eq!(drift.shows(second * 12), second * 12);
        }
    }
}
