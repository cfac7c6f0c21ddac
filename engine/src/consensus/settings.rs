//! openraft's settings, and why they are what they are.

use super::ConsensusError;
use crate::limits;
use openraft::{Config, SnapshotPolicy};
use std::time::Duration;

/// The times that decide how soon a lost leader is replaced. A follower waits `election_max`, then between
/// `election_min` and `election_max` more; so a new leader stands after at most about twice `election_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Between two heartbeats; less than `election_min`.
    pub heartbeat: Duration,
    /// The shortest wait before a candidacy.
    pub election_min: Duration,
    /// The longest wait before a candidacy, and the leader's lease; more than `election_min`.
    pub election_max: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            heartbeat: limits::RAFT_HEARTBEAT,
            election_min: limits::ELECTION_MIN,
            election_max: limits::ELECTION_MAX,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn config(timings: Timings) -> Result<Config, ConsensusError> {
    let election_max = millis(timings.election_max);
    let config = Config {
        cluster_name: "keyraft".into(),
        heartbeat_interval: millis(timings.heartbeat),
        election_timeout_min: millis(timings.election_min),
        election_timeout_max: election_max,
        // A member that was cut off asks before it raises the term.
        enable_pre_vote: Some(true),
        // A leader that lost its quorum falls silent now and then, so that a quorum that still hears it elects.
        quorum_loss_probe_interval: Some(election_max.saturating_mul(2)),
        // A restarted leader is elected anew: its lease and what it knew to be committed are gone.
        enable_leader_restore: Some(false),
        // The network counts bytes as well.
        max_payload_entries: limits::APPEND_ENTRIES_MAX,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(limits::SNAPSHOT_EVERY_ENTRIES),
        max_in_snapshot_log_to_keep: limits::LOG_KEPT_ENTRIES,
        replication_lag_threshold: limits::SNAPSHOT_EVERY_ENTRIES + limits::LOG_KEPT_ENTRIES,
        install_snapshot_timeout: millis(limits::SNAPSHOT_INSTALL),
        // Links have a backoff of their own; this one must not keep a returned member waiting.
        backoff: "10ms 20ms ...200ms".into(),
        api_channel_size: Some(limits::RAFT_QUEUE_MAX),
        ..Config::default()
    };
    config.validate().map_err(|e| ConsensusError::Settings(e.to_string()))
}
