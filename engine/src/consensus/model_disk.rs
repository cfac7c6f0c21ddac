//! A member's disk in memory, for simulations: the log and the store, with what is written and what is synced told apart.
//!
//! It is a journal. Writes come one after the other, and a power cut keeps them up to some write and loses all later
//! ones; those that were synced are never among the lost. A sync makes everything durable that was written before it
//! began. What is read is what was written, synced or not, as from a kernel's cache. A witness hears the bytes of all that
//! is written, whatever becomes of them.
//!
//! Appends, votes, truncations and purges are acknowledged when a sync of theirs has ended, which takes virtual time;
//! several appends share one. What was committed is written without a sync, as on a real disk. [`Store`]'s calls cannot
//! wait: contents are durable with the next sync of any kind, and those of [`Store::sync`] and
//! [`Store::save_checkpoint`] are over at once, also while the disk hangs.

use super::message::encode;
use super::store::{Checkpoint, Store};
use super::types::{Entry, LogId, TypeConfig, Vote};
use crate::domain::{ContentKey, Envelope};
use crate::mutant::{self, Mutant};
use crate::simulation::pace::Pace;
use imbl::OrdMap;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What is wrong with a [`ModelDisk`], until that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// The next sync ends in an I/O error. From then on everything is refused until the process was killed, and what
    /// that sync was for is lost.
    Fails,
    /// Appends, votes, contents and checkpoints are refused with [`io::ErrorKind::StorageFull`] and change nothing;
    /// truncations and purges go on.
    Full,
}

/// What lies on the disk after one of its writes. Cheap to copy.
#[derive(Clone, Default)]
struct Layout {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: OrdMap<u64, Entry>,
    contents: OrdMap<ContentKey, Envelope>,
}

impl Layout {
    fn last(&self) -> Option<LogId> {
        self.entries.get_max().map(|(_, entry)| entry.log_id).or(self.purged)
    }
}

/// Hears the bytes of what is written.
pub type Witness = Arc<dyn Fn(&[u8]) + Send + Sync>;

struct Journal {
    /// The layout that is synced, and behind it one for each write that is not.
    layouts: VecDeque<Layout>,
    /// The number of the first of them, counted in writes.
    synced: u64,
    checkpoint: Option<Checkpoint>,
    /// Checkpoints that were written.
    checkpoints: u64,
    fault: Option<DiskFault>,
    /// A sync has failed in this life.
    broken: bool,
    /// Counts the processes that used the disk.
    life: u64,
    witness: Option<Witness>,
}

impl Journal {
    fn written(&self) -> Layout {
        self.layouts.back().cloned().unwrap_or_default()
    }

    /// The number of the last write.
    fn end(&self) -> u64 {
        self.synced + self.layouts.len() as u64 - 1
    }

    fn check(&self, life: u64) -> io::Result<()> {
        if self.life != life {
            return Err(io::Error::other("this process was killed"));
        }
        if self.broken { Err(io::Error::other("a sync has failed: restart the member")) } else { Ok(()) }
    }

    fn need_room(&self) -> io::Result<()> {
        match self.fault {
            Some(DiskFault::Full) => {
                Err(io::Error::new(io::ErrorKind::StorageFull, "the model disk is full"))
            }
            Some(DiskFault::Fails) | None => Ok(()),
        }
    }

    /// Lets the witness hear what is about to be written.
    fn show<T: Serialize>(&self, all: impl IntoIterator<Item = T>) -> io::Result<()> {
        let Some(witness) = &self.witness else { return Ok(()) };
        for one in all {
            witness(&encode(&one).map_err(io::Error::other)?);
        }
        Ok(())
    }

    fn write(&mut self, change: impl FnOnce(&mut Layout)) {
        let mut next = self.written();
        change(&mut next);
        self.layouts.push_back(next);
    }

    /// Makes the writes up to this one durable.
    fn sync(&mut self, upto: u64) -> io::Result<()> {
        if self.fault == Some(DiskFault::Fails) {
            self.broken = true;
            return Err(io::Error::other("the model disk fails"));
        }
        while self.synced < upto && self.layouts.len() > 1 {
            self.layouts.pop_front();
            self.synced += 1;
        }
        Ok(())
    }
}

/// A disk in memory. Handles share it, and it outlives the members that use it.
#[derive(Clone)]
pub struct ModelDisk {
    journal: Arc<Mutex<Journal>>,
    pace: Arc<Pace>,
}

impl Default for ModelDisk {
    fn default() -> Self {
        let journal = Journal {
            layouts: VecDeque::from([Layout::default()]),
            synced: 0,
            checkpoint: None,
            checkpoints: 0,
            fault: None,
            broken: false,
            life: 0,
            witness: None,
        };
        Self { journal: Arc::new(Mutex::new(journal)), pace: Arc::default() }
    }
}

impl ModelDisk {
    /// The log, for the process that lives now. Everything found there is durable, as a real one's is after its opening.
    ///
    /// # Errors
    /// The disk fails.
    pub fn log(&self) -> io::Result<ModelLog> {
        let mut journal = self.journal.lock();
        if journal.fault == Some(DiskFault::Fails) {
            return Err(io::Error::other("the model disk fails"));
        }
        let end = journal.end();
        journal.sync(end)?;
        Ok(ModelLog { disk: self.clone(), life: journal.life, flushes: Arc::default() })
    }

    /// The store, for the process that lives now.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(ModelStore { disk: self.clone(), life: self.journal.lock().life })
    }

    /// Breaks it, or mends it with None.
    pub fn set_fault(&self, fault: Option<DiskFault>) {
        self.journal.lock().fault = fault;
    }

    /// From now on this hears every entry, content and checkpoint that is written, as the codec makes bytes of it.
    pub fn set_witness(&self, witness: Witness) {
        self.journal.lock().witness = Some(witness);
    }

    /// Every sync from now on takes so long, in virtual time.
    pub fn set_sync_time(&self, time: Duration) {
        self.pace.set_time(time);
    }

    /// While it hangs no sync ends; afterwards those do that had begun.
    pub fn set_hung(&self, hung: bool) {
        self.pace.set_hung(hung);
    }

    /// The process that used it has died: what it wrote stays, synced or not, and what is left of it can do no more.
    /// To be called whenever a member is killed. What a failed sync was for is lost.
    pub fn kill(&self) {
        let mut journal = self.journal.lock();
        if journal.broken {
            journal.layouts.truncate(1);
        }
        journal.broken = false;
        journal.life += 1;
    }

    /// Checkpoints that were written in all its lives.
    pub fn checkpoints(&self) -> u64 {
        self.journal.lock().checkpoints
    }

    /// Writes that a power cut may lose.
    pub fn unsynced(&self) -> usize {
        self.journal.lock().layouts.len() - 1
    }

    /// Kills the process, and forgets everything that was not synced.
    pub fn cut_power(&self) {
        self.cut_power_keeping(0);
    }

    /// The same, but the first `kept` writes of those that were not synced have reached the disk.
    pub fn cut_power_keeping(&self, kept: usize) {
        self.journal.lock().layouts.truncate(kept.saturating_add(1));
        self.kill();
    }

    /// Lets a sync's time pass, then makes durable what was written before it began.
    async fn sync(&self, life: u64) -> io::Result<()> {
        let upto = self.journal.lock().end();
        self.pace.pass().await;
        let mut journal = self.journal.lock();
        journal.check(life)?;
        if mutant::is_on(Mutant::AcknowledgeBeforeFsync) { Ok(()) } else { journal.sync(upto) }
    }
}

type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Those who wait for the next sync.
#[derive(Default)]
struct Flushes {
    waiting: Vec<Done>,
    /// A task syncs.
    running: bool,
}

/// openraft's log and vote on a [`ModelDisk`]. Clones share it; to be used within a runtime.
#[derive(Clone)]
pub struct ModelLog {
    disk: ModelDisk,
    life: u64,
    flushes: Arc<Mutex<Flushes>>,
}

impl ModelLog {
    fn read<T>(&self, look: impl FnOnce(Layout) -> T) -> io::Result<T> {
        let journal = self.disk.journal.lock();
        journal.check(self.life)?;
        Ok(look(journal.written()))
    }

    fn write(&self, change: impl FnOnce(&mut Layout)) -> io::Result<()> {
        let mut journal = self.disk.journal.lock();
        journal.check(self.life)?;
        journal.write(change);
        Ok(())
    }

    /// Has it said when what was written so far is durable.
    fn flush(&self, done: Done) {
        let mut flushes = self.flushes.lock();
        flushes.waiting.push(done);
        if !flushes.running {
            flushes.running = true;
            tokio::spawn(self.clone().flush_all());
        }
    }

    async fn flush_all(self) {
        loop {
            let waiting = {
                let mut flushes = self.flushes.lock();
                flushes.running = !flushes.waiting.is_empty();
                std::mem::take(&mut flushes.waiting)
            };
            if waiting.is_empty() {
                return;
            }
            let result = self.disk.sync(self.life).await;
            let copy = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
            for done in waiting {
                done(result.as_ref().copied().map_err(copy));
            }
        }
    }

    async fn flushed(&self) -> io::Result<()> {
        let (tell, told) = oneshot::channel();
        self.flush(Box::new(move |result| {
            // Whoever waited may have gone; it is durable all the same.
            let _ = tell.send(result);
        }));
        told.await.map_err(|_| io::Error::other("the runtime has ended"))?
    }
}

impl RaftLogReader<TypeConfig> for ModelLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        self.read(|layout| layout.entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.read(|layout| layout.vote)
    }
}

impl RaftLogStorage<TypeConfig> for ModelLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        self.read(|layout| LogState { last_purged_log_id: layout.purged, last_log_id: layout.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.disk.journal.lock().need_room()?;
        if mutant::is_on(Mutant::ForgetTheVote) {
            return Ok(());
        }
        self.write(|layout| layout.vote = Some(*vote))?;
        self.flushed().await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.write(|layout| layout.committed = committed)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.read(|layout| layout.committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.disk.journal.lock().need_room()?;
        let entries: Vec<Entry> = entries.into_iter().collect();
        let expected = self.read(|layout| layout.last())?.map(|last| last.index + 1);
        let first = expected.or(entries.first().map(|entry| entry.log_id.index)).unwrap_or_default();
        if let Some((entry, index)) =
            entries.iter().zip(first..).find(|(entry, at)| entry.log_id.index != *at)
        {
            let what = format!("entry {} was appended where {index} belongs", entry.log_id.index);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.disk.journal.lock().show(&entries)?;
        self.write(|layout| layout.entries.extend(entries.into_iter().map(|e| (e.log_id.index, e))))?;
        self.flush(Box::new(move |result| callback.io_completed(result)));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let end = last.map_or(0, |last| last.index + 1);
        self.write(|layout| layout.entries = layout.entries.split(&end).0)?;
        self.flushed().await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.write(|layout| {
            if !mutant::is_on(Mutant::ForgetLastPurged) {
                layout.purged = layout.purged.max(Some(upto));
            }
            layout.entries = layout.entries.split(&upto.index).1;
        })?;
        self.flushed().await
    }
}

struct ModelStore {
    disk: ModelDisk,
    life: u64,
}

impl ModelStore {
    fn with<T>(&self, act: impl FnOnce(&mut Journal) -> io::Result<T>) -> io::Result<T> {
        let mut journal = self.disk.journal.lock();
        journal.check(self.life)?;
        act(&mut journal)
    }
}

impl Store for ModelStore {
    fn put_contents(&self, contents: &[(ContentKey, Envelope)]) -> io::Result<()> {
        self.with(|journal| {
            journal.need_room()?;
            journal.show(contents)?;
            journal.write(|layout| layout.contents.extend(contents.iter().cloned()));
            Ok(())
        })
    }

    fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>> {
        self.with(|journal| Ok(journal.written().contents.get(&key).cloned()))
    }

    fn retain_contents(&self, keep: &dyn Fn(ContentKey) -> bool) -> io::Result<u64> {
        let all = self.with(|journal| Ok(journal.written().contents))?;
        let gone: Vec<ContentKey> = all.keys().copied().filter(|key| !keep(*key)).collect();
        self.with(|journal| {
            if !gone.is_empty() {
                journal.write(|layout| gone.iter().for_each(|key| drop(layout.contents.remove(key))));
            }
            Ok(gone.len() as u64)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|journal| journal.sync(journal.end()))
    }

    fn save_checkpoint(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        self.with(|journal| {
            journal.need_room()?;
            journal.show([checkpoint])?;
            journal.sync(journal.end())?;
            journal.checkpoint = Some(checkpoint.clone());
            journal.checkpoints += 1;
            Ok(())
        })
    }

    fn load_checkpoint(&self) -> io::Result<Option<Checkpoint>> {
        self.with(|journal| Ok(journal.checkpoint.clone()))
    }
}
