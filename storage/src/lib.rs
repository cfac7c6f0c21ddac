//! keyraft's log, vote, contents and checkpoint on disk.
//!
//! sled orders the pages, but its `flush` does not survive a power cut on Linux. So nothing is reported as kept
//! before this crate itself has called fdatasync on sled's file, and two small files beside sled (the marks and
//! the checkpoint) are written by our own hand. See docs/decisions/0002-sled.md.
//!
//! The data folder holds: `store/` (sled), `marks` (how far the log was acknowledged), `snapshots/checkpoint`
//! (the agreed state), `reserve` (room to start again on a full disk), `storage.lock` (one process at a time).

mod checkpoint;
mod contents;
mod disk; // sled, guarded and synced
#[cfg(feature = "test-hooks")]
pub mod doors; // decoders, for fuzz targets alone
mod error; // what can go wrong, and what to do
mod folder; // lock, reserve, room
pub mod limits; // this crate's bounds
mod log; // openraft's log
mod marks; // how far the log was acknowledged
mod recover; // what a restart finds
mod shelf; // typed records, split and checked
mod tail; // the log as memory sees it
mod writer; // the one thread that writes the log

pub use contents::SledStore;
pub use error::StorageError;
pub use log::SledLog;

use std::path::Path;
use std::sync::Arc;

/// Everything a member keeps on disk besides its identity and its token.
pub struct Storage {
    /// The log and the vote.
    pub log: SledLog,
    /// Contents and the checkpoint.
    pub store: Arc<SledStore>,
}

impl Storage {
    /// Opens (or makes) the storage under `folder` and checks all of the log. Blocks; waits up to
    /// [`limits::LOCK_WAIT`] for another user of the folder to leave. The folder is free again once `log`, its
    /// clones and `store` are dropped.
    pub fn open(folder: &Path) -> Result<Self, StorageError> {
        recover::open(folder)
    }
}
