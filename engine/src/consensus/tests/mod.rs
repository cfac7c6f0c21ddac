//! Several members in one process, on stores and links that fail on demand.

mod changes; // the voters, and who leads
mod faults; // cut links, lost leaders, restarts
mod format; // what travels, in bytes
mod group; // a group to try things on
mod keeping; // checkpoints, and contents that nothing names
#[cfg(feature = "test-hooks")]
mod model_disk; // the disk of simulations
mod ordinary; // a healthy group
mod samples; // commands and states
mod snapshots; // members that the log cannot help any more
mod stand_ins; // log, store and links in memory
