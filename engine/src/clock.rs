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

/// Gives the time. A simulation replaces it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// A reading of the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "the one real clock")]
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// A reading of the boot clock.
    pub fn boot(&self) -> BootTime {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        BootTime(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default()))
    }

    /// The wall clock; 0 if it stands before 1970.
    #[expect(clippy::disallowed_methods, reason = "the one real clock")]
    pub fn unix(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
