//! What is counted in a seed, and summed up over many.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Operations of clients.
    pub operations: u64,
    /// Answered ones.
    pub answered: u64,
    /// Primaries that were elected.
    pub primaries: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Processes that ended by themselves.
    pub ended: u64,
    /// Simulated, milliseconds.
    pub lived_ms: u64,
    /// Changes that were answered under each fault.
    pub commits: BTreeMap<String, u64>,
    /// Calls of each function that were answered.
    pub calls: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds another seed's.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.answered += other.answered;
        self.primaries += other.primaries;
        self.snapshots += other.snapshots;
        self.ended += other.ended;
        self.lived_ms += other.lived_ms;
        for (sum, counts) in [(&mut self.commits, &other.commits), (&mut self.calls, &other.calls)] {
            counts.iter().for_each(|(name, count)| *sum.entry(name.clone()).or_default() += count);
        }
    }
}
