//! STUB (not for commit)
#![allow(missing_docs)]
use crate::consensus::store::{Checkpoint, Store};
use crate::consensus::types::{Entry, LogId, TypeConfig, Vote};
use crate::domain::{ContentKey, Envelope};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy)]
pub enum DiskFault { Full, Fails }
#[derive(Clone, Default)]
pub struct ModelDisk { log: MemoryLog, store: Arc<MemoryStore> }
impl ModelDisk {
    pub fn new() -> Self { Self::default() }
    pub fn log(&self) -> MemoryLog { self.log.clone() }
    pub fn store(&self) -> Arc<dyn Store> { self.store.clone() }
    pub fn power_cut(&self) {}
    pub fn set_fault(&self, _: Option<DiskFault>) {}
    pub fn set_hung(&self, _: bool) {}
    pub fn set_pause(&self, _: Duration) {}
    pub fn checkpoints(&self) -> u64 { *self.store.checkpoints.lock() }
}
#[derive(Clone, Default)]
pub struct MemoryLog(Arc<Mutex<LogData>>);
#[derive(Default)]
struct LogData { vote: Option<Vote>, committed: Option<LogId>, purged: Option<LogId>, entries: BTreeMap<u64, Entry> }
impl RaftLogReader<TypeConfig> for MemoryLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error> {
        Ok(self.0.lock().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> { Ok(self.0.lock().vote) }
}
impl RaftLogStorage<TypeConfig> for MemoryLog {
    type LogReader = Self;
    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let log = self.0.lock();
        let last = log.entries.last_key_value().map(|(_, entry)| entry.log_id).or(log.purged);
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last })
    }
    async fn get_log_reader(&mut self) -> Self { self.clone() }
    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> { self.0.lock().vote = Some(*vote); Ok(()) }
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> { self.0.lock().committed = committed; Ok(()) }
    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> { Ok(self.0.lock().committed) }
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where I: IntoIterator<Item = Entry> + OptionalSend, I::IntoIter: OptionalSend {
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
struct MemoryStore { contents: Mutex<BTreeMap<ContentKey, Envelope>>, checkpoint: Mutex<Option<Checkpoint>>, checkpoints: Mutex<u64> }
impl Store for MemoryStore {
    fn put_contents(&self, contents: &[(ContentKey, Envelope)]) -> io::Result<()> { self.contents.lock().extend(contents.iter().cloned()); Ok(()) }
    fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>> { Ok(self.contents.lock().get(&key).cloned()) }
    fn retain_contents(&self, keep: &dyn Fn(ContentKey) -> bool) -> io::Result<u64> { self.contents.lock().retain(|key, _| keep(*key)); Ok(0) }
    fn sync(&self) -> io::Result<()> { Ok(()) }
    fn save_checkpoint(&self, checkpoint: &Checkpoint) -> io::Result<()> { *self.checkpoints.lock() += 1; *self.checkpoint.lock() = Some(checkpoint.clone()); Ok(()) }
    fn load_checkpoint(&self) -> io::Result<Option<Checkpoint>> { Ok(self.checkpoint.lock().clone()) }
}
