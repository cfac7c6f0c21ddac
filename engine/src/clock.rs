//! The one real clock. Pure code is handed times; it never asks for them.

use serde::{Deserialize, Serialize};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Wall-clock time in milliseconds since 1970, as it rides in log entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnixMillis(pub u64);

/// Gives the time. A simulation replaces it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// A reading of the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "the one real clock")]
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// The wall clock; 0 if it stands before 1970.
    #[expect(clippy::disallowed_methods, reason = "the one real clock")]
    pub fn unix(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
