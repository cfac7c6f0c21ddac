//! What consensus asks of a store, besides openraft's own log storage. Calls block: they are made from blocking
//! threads or are quick.

use super::types::{LogId, Membership};
use crate::domain::{ContentKey, Envelope};
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::io;

/// The agreed state at one entry, as it lies on disk. Written aside, synced, renamed: all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The last entry in it.
    pub last: Option<LogId>,
    /// Raft's membership at that entry.
    pub membership: Membership,
    /// The state.
    pub state: State,
}

/// Keeps envelopes and checkpoints. Contents are immutable under their key, so writing one twice is harmless.
/// After an error of `sync` or `save_checkpoint` the store refuses everything: the node must stop.
pub trait Store: Send + Sync + 'static {
    /// Keeps contents; durable after the next [`Store::sync`] or [`Store::save_checkpoint`].
    fn put_contents(&self, contents: &[(ContentKey, Envelope)]) -> io::Result<()>;

    /// One content.
    fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>>;

    /// Drops every content for which `keep` is false; says how many.
    fn retain_contents(&self, keep: &dyn Fn(ContentKey) -> bool) -> io::Result<u64>;

    /// Makes everything put so far durable.
    fn sync(&self) -> io::Result<()>;

    /// Makes all contents durable, then replaces the checkpoint, durably.
    fn save_checkpoint(&self, checkpoint: &Checkpoint) -> io::Result<()>;

    /// The checkpoint last saved.
    fn load_checkpoint(&self) -> io::Result<Option<Checkpoint>>;
}
