use crate::disk::Disk;
use crate::error::StorageError;
use crate::limits::{BATCH_MAX_BYTES, PURGE_SLICE_VALUES, QUEUE_MAX_BYTES};
use crate::marks::{Marks, MarksFile};
use crate::shelf::{Committed, Log, Record, Votes, record};
use crate::tail::Tail;
use keyraft_engine::consensus::types::{LogId, Vote};
use keyraft_engine::mutant::{self, Mutant};
use keyraft_engine::telemetry::Event;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Called once, when the operation is durable or has failed.
pub type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// What the writer can do.
pub enum Operation {
    /// Writes entries behind the log; `log_first` is the first index of the whole log.
    Append { records: Vec<Record>, log_first: u64, end: u64 },
    /// Writes the vote.
    Vote(Vote),
    /// Removes every entry at or above `end`.
    Truncate { end: u64 },
    /// Forgets every entry up to the one named.
    Purge { upto: LogId },
    /// Makes what others wrote durable.
    Sync,
}

impl Operation {
    /// Appends and syncs may share a sync. Any other is carried out by itself: a power cut must never keep a later
    /// write and lose an earlier one of another kind.
    fn is_alone(&self) -> bool {
        !matches!(self, Self::Append { .. } | Self::Sync)
    }
}

struct Job {
    operation: Operation,
    bytes: usize,
    done: Done,
    _room: Option<OwnedSemaphorePermit>,
}

/// The one queue through which votes and appends reach the disk, in order.
pub struct Writer {
    jobs: Option<Sender<Job>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

/// One permit of the queue's room.
const PERMIT_BYTES: usize = 1024;
const PERMITS: usize = QUEUE_MAX_BYTES / PERMIT_BYTES;

impl Writer {
    /// Starts the thread.
    pub fn start(
        disk: Arc<Disk>,
        tail: Arc<Mutex<Tail>>,
        marks_file: MarksFile,
        marks: Marks,
    ) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let worker = Worker { disk, tail, marks_file, marks, purging: None, committed: None };
        let thread =
            std::thread::Builder::new().name("log-writer".into()).spawn(move || worker.run(&queue))?;
        Ok(Self { jobs: Some(jobs), room: Arc::new(Semaphore::new(PERMITS)), thread: Some(thread) })
    }

    /// Bytes that wait, about.
    pub fn waiting_bytes(&self) -> usize {
        (PERMITS - self.room.available_permits().min(PERMITS)) * PERMIT_BYTES
    }

    /// Waits until the queue has room for `bytes`.
    pub async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, PERMITS);
        let permits = u32::try_from(permits).expect("PERMITS is small");
        self.room.clone().acquire_many_owned(permits).await.ok()
    }

    /// Queues an operation. Those without room of their own are made by callers that wait for each.
    pub fn queue(&self, operation: Operation, bytes: usize, room: Option<OwnedSemaphorePermit>, done: Done) {
        let job = Job { operation, bytes, done, _room: room };
        let refused = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|refused| refused.0),
            None => Some(job),
        };
        if let Some(job) = refused {
            (job.done)(Err(io::Error::other("the log's writer has ended: restart the member")));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let Some(thread) = self.thread.take() else { return };
        // A callback may drop the last handle: the thread cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!(code = Event::LogWriterEnded.code(), "the log's writer panicked");
        }
    }
}

struct Worker {
    disk: Arc<Disk>,
    tail: Arc<Mutex<Tail>>,
    marks_file: MarksFile,
    marks: Marks,
    /// Purged entries still on disk, from its start to its last index.
    purging: Option<std::ops::RangeInclusive<u64>>,
    /// What the committed record says.
    committed: Option<LogId>,
}

impl Worker {
    fn run(mut self, queue: &Receiver<Job>) {
        let mut held = None;
        while let Some(first) = held.take().or_else(|| self.next(queue)) {
            let mut bytes = first.bytes;
            let mut open = !first.operation.is_alone();
            let mut batch = vec![first];
            while open
                && bytes < BATCH_MAX_BYTES
                && let Ok(job) = queue.try_recv()
            {
                if job.operation.is_alone() {
                    open = false;
                    held = Some(job);
                } else {
                    bytes += job.bytes;
                    batch.push(job);
                }
            }
            self.carry_out(batch);
        }
        // The last marks and the committed record become durable on a clean end only; nobody relies on them.
        if self.note_committed().and_then(|()| self.disk.sync()).is_ok()
            && let Err(error) = self.marks_file.write_durable(&self.marks)
        {
            tracing::warn!(code = Event::MarksNotWritten.code(), %error, "the marks could not be written on closing");
        }
    }

    /// The next job; between two, and while there is none, a slice of the purged entries goes.
    fn next(&mut self, queue: &Receiver<Job>) -> Option<Job> {
        loop {
            let Some(range) = self.purging.clone() else { return queue.recv().ok() };
            if !self.disk.remove_some::<Log>(range, PURGE_SLICE_VALUES).unwrap_or(false) {
                self.purging = None;
            }
            match queue.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return None,
            }
        }
    }

    fn carry_out(&mut self, batch: Vec<Job>) {
        let mut durable_end = None;
        let mut dones = Vec::with_capacity(batch.len());
        let mut result = Ok(());
        for job in batch {
            if result.is_ok() {
                result = self.write(job.operation, &mut durable_end);
            }
            dones.push((job.done, job._room));
        }
        let result = result.and_then(|()| self.finish(durable_end));
        for (done, room) in dones {
            // Every later call finds the store poisoned; the first failure's text is in that.
            done(result.as_ref().map(|_| ()).map_err(|e| io::Error::other(e.to_string())));
            drop(room);
        }
    }

    fn write(&mut self, operation: Operation, durable_end: &mut Option<u64>) -> Result<(), StorageError> {
        match operation {
            Operation::Append { records, log_first, end } => {
                if self.marks.first != log_first {
                    let first = Marks { first: log_first, end: log_first, ..self.marks.clone() };
                    self.mark(first)?;
                }
                *durable_end = Some(end);
                self.disk.write(records)
            }
            Operation::Vote(_) if mutant::is_on(Mutant::ForgetTheVote) => Ok(()),
            Operation::Vote(vote) => {
                self.marks.vote = Some(vote); // written once it is synced
                self.disk.write([encoded::<Votes>((), &vote)?])
            }
            Operation::Truncate { end } => {
                self.mark(Marks { end: self.marks.end.min(end), ..self.marks.clone() })?;
                self.disk.remove_backwards::<Log>(end..=u64::MAX)?;
                *durable_end = Some(end);
                Ok(())
            }
            Operation::Purge { upto } => {
                let first = self.marks.first.max(upto.index + 1);
                let end = self.marks.end.max(first);
                let start = self.purging.as_ref().map_or(self.marks.first, |range| *range.start());
                let purged = (!mutant::is_on(Mutant::ForgetLastPurged)).then_some(upto);
                self.mark(Marks { purged, first, end, ..self.marks.clone() })?;
                self.purging = Some(start..=upto.index);
                Ok(())
            }
            Operation::Sync => Ok(()),
        }
    }

    /// Syncs, and only then moves the marks and the memory.
    fn finish(&mut self, durable_end: Option<u64>) -> Result<(), StorageError> {
        self.note_committed()?;
        if !mutant::is_on(Mutant::AcknowledgeBeforeFsync) {
            self.disk.sync()?;
        }
        if let Some(end) = durable_end {
            self.marks.end = end;
            self.tail.lock().durable(end);
        }
        self.marks_file.write_lazy(&self.marks).map_err(|e| self.disk.poisoned_by("write marks", &e))
    }

    fn mark(&mut self, marks: Marks) -> Result<(), StorageError> {
        self.disk.check()?;
        self.marks_file.write_durable(&marks).map_err(|e| self.disk.poisoned_by("write marks", &e))?;
        self.marks = marks;
        Ok(())
    }

    fn note_committed(&mut self) -> Result<(), StorageError> {
        let committed = self.tail.lock().committed;
        if committed != self.committed
            && let Some(id) = committed
        {
            self.disk.write([encoded::<Committed>((), &id)?])?;
            self.committed = committed;
        }
        Ok(())
    }
}

fn encoded<S: crate::shelf::Shelf>(key: S::Key, value: &S::Value) -> Result<Record, StorageError> {
    record::<S>(key, value).map_err(StorageError::TooLong)
}
