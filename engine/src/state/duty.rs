//! What a member is for, and how one that left the in-sync set comes back.

use crate::limits::{
    AUTO_RECOVERY_INTERVAL_MAX_SECONDS, AUTO_RECOVERY_INTERVAL_SECONDS, AUTO_RECOVERY_RETRIES_MAX,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a member is for. Order is the log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duty {
    /// It serves.
    #[default]
    Active,
    /// It holds every key, and serves only while no active member does.
    Standby,
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Standby => "standby",
        })
    }
}

/// How members that left the in-sync set come back. A member that is there and healthy is taken back at once; the
/// interval is between tries that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoRecovery {
    /// Tries until an operator has to ask for it: 0 for none, -1 for any number.
    pub retries: i32,
    /// Seconds between two tries.
    pub interval_seconds: u32,
}

impl Default for AutoRecovery {
    fn default() -> Self {
        Self { retries: -1, interval_seconds: AUTO_RECOVERY_INTERVAL_SECONDS }
    }
}

impl AutoRecovery {
    /// True if both numbers are within their limits.
    pub fn is_valid(&self) -> bool {
        (-1..=AUTO_RECOVERY_RETRIES_MAX).contains(&self.retries)
            && (1..=AUTO_RECOVERY_INTERVAL_MAX_SECONDS).contains(&self.interval_seconds)
    }

    /// True if so many counted tries leave another one.
    pub fn leaves(&self, tries: u32) -> bool {
        // -1 is the only number below 0 that is taken, and has no end.
        u32::try_from(self.retries).map_or(true, |retries| tries < retries)
    }
}

/// How far the tries are to take a member back; begun anew once it is in sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayBack {
    /// Tries since it was in sync.
    pub tries: u32,
    /// True once an operator has asked for it: then tries are without end.
    pub called: bool,
}
