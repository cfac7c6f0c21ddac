use crate::disk::Disk;
use crate::error::StorageError;
use crate::limits::{QUEUE_MAX_BYTES, READ_MAX_BYTES};
use crate::shelf::{Log, record};
use crate::tail::Tail;
use crate::writer::{Operation, Writer};
use futures::channel::oneshot;
use futures::stream::{self, Stream};
use keyraft_engine::consensus::types::{Entry, LogId, TypeConfig, Vote};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

/// openraft's log and vote on disk. Clones share one log; only one of them may write.
#[derive(Clone)]
pub struct SledLog(Arc<Shared>);

/// What the log's handles and the content store share.
pub(crate) struct Shared {
    // The writer ends first; then sled may close.
    pub(crate) writer: Writer,
    pub(crate) disk: Arc<Disk>,
    tail: Arc<Mutex<Tail>>,
}

impl Shared {
    pub(crate) fn new(writer: Writer, disk: Arc<Disk>, tail: Arc<Mutex<Tail>>) -> Self {
        Self { writer, disk, tail }
    }

    /// Passes one operation through the queue and waits until it is durable.
    async fn carry_out(&self, operation: Operation) -> io::Result<()> {
        self.disk.check()?;
        let (tx, rx) = oneshot::channel();
        let room = self.writer.room(0).await;
        self.writer.queue(
            operation,
            0,
            room,
            Box::new(move |result| {
                // The caller may have gone; the operation counts all the same.
                let _ = tx.send(result);
            }),
        );
        rx.await.map_err(|_| io::Error::other("the log's writer has ended: restart the member"))?
    }
}

impl SledLog {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Entries from `start` to below `end`, as far as the log has them; short once `budget` bytes are read, but
    /// never empty for that.
    fn read(&self, start: u64, end: u64, budget: usize) -> io::Result<Vec<Entry>> {
        self.0.disk.check()?;
        loop {
            if let Some(entries) = self.read_once(start, end, budget)? {
                return Ok(entries);
            }
        }
    }

    /// One try: None if the log was cut or purged under it.
    fn read_once(&self, start: u64, end: u64, budget: usize) -> io::Result<Option<Vec<Entry>>> {
        let (epoch, from, end) = {
            let tail = self.0.tail.lock();
            (tail.epoch, start.max(tail.first), end.min(tail.end()))
        };
        let mut entries = Vec::new();
        let mut left = budget;
        loop {
            let next = from + entries.len() as u64;
            let last = {
                let tail = self.0.tail.lock();
                if tail.epoch != epoch || (tail.first > from && from < end) {
                    return Ok(None);
                }
                if next >= tail.recent_from() || next >= end {
                    for (entry, bytes) in tail.recent(next, end) {
                        if !entries.is_empty() && *bytes > left {
                            break;
                        }
                        left = left.saturating_sub(*bytes);
                        entries.push(entry.clone());
                    }
                    return Ok(Some(entries));
                }
                tail.recent_from().min(end) - 1
            };
            match self.read_disk(next..=last, &mut left, &mut entries)? {
                Ended::Whole => {}
                Ended::Short => return Ok(Some(entries)),
                Ended::Hole(what) => {
                    let tail = self.0.tail.lock();
                    if tail.epoch == epoch && tail.first <= from {
                        let index = from + entries.len() as u64;
                        return Err(self.0.disk.damaged(format!("log entry {index}: {what}")).into());
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Reads entries that are no longer in memory.
    fn read_disk(
        &self,
        range: std::ops::RangeInclusive<u64>,
        left: &mut usize,
        entries: &mut Vec<Entry>,
    ) -> io::Result<Ended> {
        let mut next = *range.start();
        let last = *range.end();
        let mut end = None;
        self.0.disk.scan::<Log>(range, |found| {
            match found.value {
                _ if !entries.is_empty() && found.bytes > *left => end = Some(Ended::Short),
                Ok(entry) if found.key == next && entry.log_id.index == next => entries.push(entry),
                Ok(_) => end = Some(Ended::Hole("it is missing".into())),
                Err(what) => end = Some(Ended::Hole(what)),
            }
            *left = left.saturating_sub(found.bytes);
            next += 1;
            if end.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let missing = next <= last;
        Ok(end.unwrap_or(if missing { Ended::Hole("it is missing".into()) } else { Ended::Whole }))
    }
}

/// How a read from disk ended.
enum Ended {
    Whole,
    Short,
    Hole(String),
}

fn half_open(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<TypeConfig> for SledLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (start, end) = half_open(&range);
        self.read(start, end, usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end, READ_MAX_BYTES)
    }

    /// Reads in pieces, so that replaying a long log after a start does not hold all of it.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let pieces = stream::unfold((self.clone(), Some(half_open(&range))), |(log, left)| async move {
            let (start, end) = left?;
            match log.read(start, end, READ_MAX_BYTES) {
                Ok(entries) => {
                    let next = entries.last()?.log_id.index + 1;
                    let piece: Vec<io::Result<Entry>> = entries.into_iter().map(Ok).collect();
                    Some((piece, (log, Some((next, end)))))
                }
                Err(error) => Some((vec![Err(error)], (log, None))),
            }
        });
        Box::pin(futures::StreamExt::flat_map(pieces, stream::iter))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.0.disk.check()?;
        Ok(self.0.tail.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for SledLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        self.0.disk.check()?;
        let tail = self.0.tail.lock();
        Ok(LogState { last_purged_log_id: tail.purged, last_log_id: tail.last })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.0.disk.folder().need(0)?;
        self.0.carry_out(Operation::Vote(*vote)).await?;
        self.0.tail.lock().vote = Some(*vote);
        Ok(())
    }

    /// Written with the next sync: after a power cut it may be older, which costs a little replay.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.0.disk.check()?;
        self.0.tail.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.0.disk.check()?;
        Ok(self.0.tail.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.0.disk.check()?;
        let entries: Vec<Entry> = entries.into_iter().collect();
        let encode = |entry: &Entry| record::<Log>(entry.log_id.index, entry).map_err(StorageError::TooLong);
        let records = entries.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        let bytes: usize = records.iter().map(|r| r.bytes).sum();
        self.0.disk.folder().need(bytes + self.0.writer.waiting_bytes().min(QUEUE_MAX_BYTES))?;
        let room = self.0.writer.room(bytes).await;
        let (log_first, end) = {
            let mut tail = self.0.tail.lock();
            check_contiguous(tail.expects(), &entries)?;
            for (entry, record) in entries.into_iter().zip(&records) {
                tail.push(entry, record.bytes);
            }
            (tail.first, tail.end())
        };
        let done = Box::new(move |result| callback.io_completed(result));
        self.0.writer.queue(Operation::Append { records, log_first, end }, bytes, room, done);
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        self.0.disk.check()?;
        // Memory first: nobody reads what is about to go. No append can come between, since the one writer waits.
        let end = {
            let mut tail = self.0.tail.lock();
            tail.truncate(last_log_id);
            tail.end()
        };
        self.0.carry_out(Operation::Truncate { end }).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.0.disk.check()?;
        if !self.0.tail.lock().purge(log_id) {
            return Ok(());
        }
        self.0.carry_out(Operation::Purge { upto: log_id }).await
    }
}

/// Entries must follow each other and the log: a hole would be found only when it is too late.
fn check_contiguous(expected: Option<u64>, entries: &[Entry]) -> io::Result<()> {
    let first = expected.or(entries.first().map(|e| e.log_id.index)).unwrap_or(0);
    match entries.iter().zip(first..).find(|(entry, index)| entry.log_id.index != *index) {
        None => Ok(()),
        Some((entry, index)) => {
            let what = format!("entry {} was appended where {index} belongs", entry.log_id.index);
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        }
    }
}
