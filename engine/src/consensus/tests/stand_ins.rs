//! Log, store and links in memory. They outlive the member that uses them, as a disk and a network do.

use crate::consensus::store::{Checkpoint, Store};
use crate::consensus::types::{Entry, LogId, TypeConfig, Vote};
use crate::consensus::{Consensus, LinkFailure, RaftLinks};
use crate::domain::{ContentKey, Envelope, MemberId};
use crate::limits::FRAME_MAX_BYTES;
use crate::wire::{Lane, RaftCall};
use futures::future::BoxFuture;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Clone, Default)]
pub(super) struct MemoryLog(Arc<Mutex<LogData>>);

#[derive(Default)]
struct LogData {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

impl MemoryLog {
    /// A log that begins behind `purged`.
    pub(super) fn behind(purged: LogId) -> Self {
        let log = Self::default();
        log.0.lock().purged = Some(purged);
        log
    }

    pub(super) fn holding(entries: Vec<Entry>) -> Self {
        let log = Self::default();
        log.0.lock().entries = entries.into_iter().map(|entry| (entry.log_id.index, entry)).collect();
        log
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.0.lock().purged
    }
}

impl RaftLogReader<TypeConfig> for MemoryLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        Ok(self.0.lock().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.0.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for MemoryLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let log = self.0.lock();
        let last = log.entries.last_key_value().map(|(_, entry)| entry.log_id).or(log.purged);
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.0.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.0.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.0.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.0.lock().entries.extend(entries.into_iter().map(|entry| (entry.log_id.index, entry)));
        callback.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |last| last.index + 1);
        self.0.lock().entries.split_off(&from);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let mut log = self.0.lock();
        log.purged = Some(upto);
        log.entries = log.entries.split_off(&(upto.index + 1));
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct MemoryStore {
    contents: Mutex<BTreeMap<ContentKey, Envelope>>,
    checkpoint: Mutex<Option<Checkpoint>>,
    pub(super) slow_checkpoint: Mutex<Duration>,
    pub(super) checkpoints: AtomicUsize,
    pub(super) broken: AtomicBool,
    /// Between the verdict on a content and its end.
    pub(super) slow_drop: Mutex<Duration>,
    pub(super) dropping: AtomicBool,
}

impl MemoryStore {
    pub(super) fn contents(&self) -> BTreeMap<ContentKey, Envelope> {
        self.contents.lock().clone()
    }
}

impl Store for MemoryStore {
    fn put_contents(&self, contents: &[(ContentKey, Envelope)]) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk is broken"));
        }
        self.contents.lock().extend(contents.iter().cloned());
        Ok(())
    }

    fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>> {
        Ok(self.contents.lock().get(&key).cloned())
    }

    fn retain_contents(&self, keep: &dyn Fn(ContentKey) -> bool) -> io::Result<u64> {
        // Like a store on disk: it lists, asks, and drops one by one, while others put.
        let keys: Vec<ContentKey> = self.contents.lock().keys().copied().collect();
        let mut dropped = 0;
        for key in keys {
            if !keep(key) {
                self.dropping.store(true, Ordering::Relaxed);
                let pause = *self.slow_drop.lock();
                std::thread::sleep(pause);
                self.contents.lock().remove(&key);
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn save_checkpoint(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        let pause = *self.slow_checkpoint.lock();
        std::thread::sleep(pause);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        *self.checkpoint.lock() = Some(checkpoint.clone());
        Ok(())
    }

    fn load_checkpoint(&self) -> io::Result<Option<Checkpoint>> {
        Ok(self.checkpoint.lock().clone())
    }
}

/// The network between members.
#[derive(Default)]
pub(super) struct Wires {
    members: Mutex<BTreeMap<MemberId, Consensus>>,
    cut: Mutex<BTreeSet<(MemberId, MemberId)>>,
    pub(super) snapshot_chunks: AtomicUsize,
    pub(super) longest: AtomicUsize,
}

impl Wires {
    pub(super) fn connect(&self, member: MemberId, consensus: Consensus) {
        self.members.lock().insert(member, consensus);
    }

    pub(super) fn disconnect(&self, member: MemberId) {
        self.members.lock().remove(&member);
    }

    /// Cuts one member off from the others.
    pub(super) fn isolate(&self, member: MemberId) {
        let others: Vec<MemberId> = self.members.lock().keys().copied().collect();
        self.cut.lock().extend(others.into_iter().flat_map(|other| [(member, other), (other, member)]));
    }

    pub(super) fn heal(&self) {
        self.cut.lock().clear();
    }

    fn passes(&self, from: MemberId, to: MemberId) -> bool {
        !self.cut.lock().contains(&(from, to))
    }

    async fn call(
        &self,
        from: MemberId,
        to: MemberId,
        call: RaftCall,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, LinkFailure> {
        self.longest.fetch_max(body.len(), Ordering::Relaxed);
        if body.len() > FRAME_MAX_BYTES {
            return Err(LinkFailure::Unreachable("the frame is too long".into()));
        }
        let member = self.members.lock().get(&to).cloned();
        let Some(member) = member.filter(|_| self.passes(from, to)) else {
            return Err(LinkFailure::Unreachable(format!("{to} is cut off")));
        };
        let answer = member.handle(from, call, body).await;
        if !self.passes(to, from) {
            return Err(LinkFailure::Unreachable(format!("{to} was cut off")));
        }
        answer.map_err(|error| LinkFailure::Unreachable(error.to_string()))
    }
}

pub(super) struct Link {
    pub(super) from: MemberId,
    pub(super) wires: Arc<Wires>,
}

impl RaftLinks for Link {
    fn call(
        &self,
        to: MemberId,
        _lane: Lane,
        call: RaftCall,
        body: Vec<u8>,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Vec<u8>, LinkFailure>> {
        if call == RaftCall::Snapshot {
            self.wires.snapshot_chunks.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async move {
            let answer = self.wires.call(self.from, to, call, body);
            tokio::time::timeout(deadline, answer).await.unwrap_or(Err(LinkFailure::Deadline))
        })
    }
}
