//! Every bound of this crate. The unit is the last word of a name.

use std::time::Duration;

/// One value in sled. sled writes longer ones (from about 128 KiB) to files that it never syncs.
pub const VALUE_MAX_BYTES: usize = 4096;
/// One record (a log entry, a content) over all its parts.
pub const RECORD_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Log entries that wait for the writer.
pub const QUEUE_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Log entries that share one sync.
pub const BATCH_MAX_BYTES: usize = 1024 * 1024;
/// Recent entries kept in memory, so that replication does not ask sled.
pub const TAIL_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Entries handed out by one read that may be short.
pub const READ_MAX_BYTES: usize = 1024 * 1024;
/// Purged values removed between two batches.
pub const PURGE_SLICE_VALUES: usize = 256;
/// sled's page cache.
pub const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// Room that must be left on the file system; writes are refused below it.
pub const ROOM_MIN_BYTES: u64 = 16 * 1024 * 1024;
/// The file that is given up when there is no room left to start.
pub const RESERVE_BYTES: u64 = 8 * 1024 * 1024;
/// How long an open waits for another user of the folder to leave.
pub const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How often it looks.
pub const LOCK_POLL: Duration = Duration::from_millis(20);
