use crate::contents::SledStore;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::folder::Folder;
use crate::log::{Shared, SledLog};
use crate::marks::{Marks, MarksFile};
use crate::shelf::{Committed, Log, Votes};
use crate::tail::Tail;
use crate::writer::Writer;
use crate::{Storage, checkpoint};
use keyraft_engine::consensus::types::LogId;
use keyraft_engine::telemetry::Event;
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Opens everything and decides what of it counts.
pub fn open(folder: &Path) -> Result<Storage, StorageError> {
    let folder = Folder::open(folder)?;
    checkpoint::prepare(folder.path())?;
    let disk = Arc::new(Disk::open(folder)?);
    disk.check_version().map_err(|e| disk.explain(e))?;
    let empty = disk.is_empty().map_err(|e| disk.explain(e))?;
    let (marks_file, mut marks) = MarksFile::open(disk.folder(), empty)?;
    let tail = recover_log(&disk, &mut marks).map_err(|e| disk.explain(e))?;
    let tail = Arc::new(Mutex::new(tail));
    let writer = Writer::start(disk.clone(), tail.clone(), marks_file, marks)
        .map_err(StorageError::io(disk.folder().path(), "start the writer"))?;
    let shared = Arc::new(Shared::new(writer, disk, tail));
    Ok(Storage { log: SledLog::new(shared.clone()), store: Arc::new(SledStore::new(shared)) })
}

/// Reads all of the log. What was acknowledged must be whole; what was not is cut back to its last whole entry.
fn recover_log(disk: &Disk, marks: &mut Marks) -> Result<Tail, StorageError> {
    let vote = disk.get::<Votes>(())?;
    // Two votes of one term have no order: none of them follows from the other.
    if marks.vote.partial_cmp(&vote).is_none_or(Ordering::is_gt) {
        return Err(disk.damaged(format!("the vote {:?} was kept once, {vote:?} is found", marks.vote)));
    }
    let whole = read_log(disk, marks.first)?;
    if whole.end < marks.end {
        let (end, kept) = (whole.end, marks.end);
        let what = whole.wrong.unwrap_or_else(|| "it is missing".into());
        return Err(disk.damaged(format!("log entry {end}: {what}; all below {kept} was acknowledged")));
    }
    let mut cut = disk.remove_backwards::<Log>(whole.end..=u64::MAX)?;
    if let Some(before) = marks.first.checked_sub(1) {
        cut |= disk.remove_backwards::<Log>(0..=before)?;
    }
    if let Some(what) = &whole.wrong {
        tracing::warn!(
            code = Event::LogTailCut.code(),
            index = whole.end,
            what,
            "an entry that was never acknowledged is cut off"
        );
    }
    if cut {
        disk.sync()?;
    }
    let mut tail = Tail::new(marks.purged, marks.first, whole.end, whole.last);
    tail.vote = vote;
    tail.committed = committed(disk, &tail)?;
    marks.vote = vote;
    marks.end = whole.end;
    Ok(tail)
}

/// The record may run ahead of the log that survived: what is left below it is committed.
fn committed(disk: &Disk, tail: &Tail) -> Result<Option<LogId>, StorageError> {
    let noted = disk.get::<Committed>(())?;
    Ok(match noted {
        Some(id) if id.index >= tail.end() => tail.last,
        Some(id) if id.index < tail.first => tail.purged,
        other => other,
    })
}

struct Whole {
    end: u64,
    last: Option<LogId>,
    wrong: Option<String>,
}

fn read_log(disk: &Disk, first: u64) -> Result<Whole, StorageError> {
    let mut whole = Whole { end: first, last: None, wrong: None };
    disk.scan::<Log>(first..=u64::MAX, |found| {
        match found.value {
            Ok(entry) if found.key == whole.end && entry.log_id.index == found.key => {
                whole.end += 1;
                whole.last = Some(entry.log_id);
            }
            Ok(_) => whole.wrong = Some(format!("entry {} lies in its place", found.key)),
            Err(what) => whole.wrong = Some(what),
        }
        if whole.wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(whole)
}
