//! What the tests of this crate share: entries that can be told apart, and waiting for an append.

use futures::executor::block_on;
use keyraft_engine::consensus::types::{Entry, LogId, TypeConfig};
use keyraft_engine::domain::{
    ClientId, ContentKey, Envelope, Generation, LogIndex, ObjectClass, ObjectId, RequestId, Version,
};
use keyraft_engine::state::{Command, NewObject, RequestContext};
use keyraft_storage::SledLog;
use openraft::EntryPayload;
use openraft::storage::{IOFlushed, RaftLogStorage, RaftLogStorageExt};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::OneshotReceiverOf;
use std::io;

/// Where the answer to an append comes.
pub type Later = OneshotReceiverOf<TypeConfig, io::Result<()>>;

/// A log id of member 1.
pub fn id(term: u64, index: u64) -> LogId {
    openraft::testing::common::log_id::<TypeConfig>(term, 1, index)
}

/// An entry that says who it is (`tag`) and takes about `bytes`.
pub fn entry(term: u64, index: u64, tag: u64, bytes: usize) -> Entry {
    let client = ClientId { born: LogIndex(0), nonce: 0 };
    let request =
        RequestContext { id: RequestId { client, sequence: 1 }, watermark: tag, parameters: [tag as u8; 16] };
    let object = NewObject {
        content: content(tag),
        class: ObjectClass::SecretKey,
        envelope: envelope(tag, bytes),
        excluded: Default::default(),
    };
    Entry {
        log_id: id(term, index),
        payload: EntryPayload::Normal(Command::Put { request, objects: vec![object] }),
    }
}

/// The name of the content of this tag.
pub fn content(tag: u64) -> ContentKey {
    ContentKey { object: ObjectId(tag), version: Version(1), generation: Generation(1) }
}

/// An envelope of `bytes`, that is the tag's.
pub fn envelope(tag: u64, bytes: usize) -> Envelope {
    Envelope { nonce: [tag as u8; 12], sealed: (0..bytes as u64).map(|i| (i ^ tag) as u8).collect() }
}

/// Appends and waits until it is durable.
pub fn append(log: &mut SledLog, entries: Vec<Entry>) -> io::Result<()> {
    block_on(log.blocking_append(entries)).map_err(io::Error::other)
}

/// Appends; the answer comes through the receiver.
pub fn append_later(log: &mut SledLog, entries: Vec<Entry>) -> io::Result<Later> {
    let (tx, rx) = TypeConfig::oneshot();
    block_on(log.append(entries, IOFlushed::signal(tx)))?;
    Ok(rx)
}
