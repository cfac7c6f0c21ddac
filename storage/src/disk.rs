use crate::error::StorageError;
use crate::folder::Folder;
use crate::limits::{CACHE_BYTES, LOCK_POLL, LOCK_WAIT};
use crate::shelf::{FRAME_VERSION, PART_BYTES, Record, Shelf, ShelfKey, Votes, parse, prefix, value};
use keyraft_engine::telemetry::Event;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// sled in its cage: no panic of its leaves, no failure is survived, and durable means that we synced its file.
pub struct Disk {
    // Dropped in this order: sled lets go of its file before the folder is unlocked.
    db: sled::Db,
    file: File,
    poison: Mutex<Option<Poison>>,
    folder: Folder,
}

/// The first failure.
struct Poison {
    why: String,
    /// True if it was not the operating system that refused: sled no longer understands its file.
    damage: bool,
}

/// One record of a shelf as it lies there.
pub struct Found<S: Shelf> {
    /// Its key.
    pub key: S::Key,
    /// Bytes on disk.
    pub bytes: usize,
    /// Its value, or what is wrong with it.
    pub value: Result<S::Value, String>,
}

impl Disk {
    /// Opens sled under `folder` and makes everything that it found durable.
    pub fn open(folder: Folder) -> Result<Self, StorageError> {
        let path = folder.path().join("store");
        let db = open_sled(folder.path(), &path)?;
        let file = File::open(path.join("db")).map_err(StorageError::io(folder.path(), "open store/db"))?;
        let disk = Self { db, file, poison: Mutex::new(None), folder };
        disk.guarded("flush the store", |db| db.flush()).map_err(|e| disk.explain(e))?;
        let sync = || {
            disk.file.sync_all()?;
            File::open(&path)?.sync_all()?;
            disk.folder.sync()
        };
        sync().map_err(|e| disk.poisoned_by("sync the store", &e))?;
        Ok(disk)
    }

    /// The data folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// An error that says that what lies here is not what was acknowledged.
    pub fn damaged(&self, what: impl Into<String>) -> StorageError {
        StorageError::damaged(self.folder.path(), what)
    }

    /// Refuses if anything has failed before.
    pub fn check(&self) -> Result<(), StorageError> {
        match &*self.poison.lock() {
            None => Ok(()),
            Some(poison) => {
                Err(StorageError::Poisoned { folder: self.folder.path().to_owned(), why: poison.why.clone() })
            }
        }
    }

    /// Notes a failure, for good, and says so.
    pub fn poisoned_by(&self, doing: &str, error: &dyn std::fmt::Display) -> StorageError {
        self.poison(format!("{doing}: {error}"), false)
    }

    fn poison(&self, why: String, damage: bool) -> StorageError {
        tracing::error!(code = Event::StoreStopped.code(), folder = %self.folder.path().display(), why, "the store stops");
        let why = self.poison.lock().get_or_insert(Poison { why, damage }).why.clone();
        StorageError::Poisoned { folder: self.folder.path().to_owned(), why }
    }

    /// While opening, sled's confusion is damage that a restart does not mend: the error then says what does.
    pub fn explain(&self, error: StorageError) -> StorageError {
        match &*self.poison.lock() {
            Some(poison) if poison.damage => self.damaged(poison.why.clone()),
            _ => error,
        }
    }

    /// Writes records. Not durable before [`Disk::sync`]; a power cut may keep any part of them.
    pub fn write(&self, records: impl IntoIterator<Item = Record>) -> Result<(), StorageError> {
        let mut batch = sled::Batch::default();
        for (key, value) in records.into_iter().flat_map(|r| r.values) {
            batch.insert(key, value);
        }
        self.guarded("write", |db| db.apply_batch(batch))
    }

    /// Makes everything written so far durable. sled's flush only hands the pages to the kernel.
    pub fn sync(&self) -> Result<(), StorageError> {
        self.guarded("flush", |db| db.flush())?;
        rustix::fs::fdatasync(&self.file).map_err(|e| self.poisoned_by("fdatasync", &e))
    }

    /// One value, if it is there and whole.
    pub fn get<S: Shelf>(&self, key: S::Key) -> Result<Option<S::Value>, StorageError> {
        let mut found = None;
        self.scan::<S>(key..=key, |one| {
            found = Some(one);
            ControlFlow::Break(())
        })?;
        let wrong = |what| self.damaged(format!("{} {:02x?}: {what}", S::NAME, key.to_bytes()));
        found.map(|found: Found<S>| found.value.map_err(wrong)).transpose()
    }

    /// Shows the records of a range in order, until told to stop.
    pub fn scan<S: Shelf>(
        &self,
        range: std::ops::RangeInclusive<S::Key>,
        mut each: impl FnMut(Found<S>) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        self.guarded("read", |db| {
            let mut parts: Vec<(u16, sled::IVec)> = Vec::new();
            let mut current: Option<S::Key> = None;
            let mut put = |key: S::Key, parts: &mut Vec<(u16, sled::IVec)>| {
                let borrowed: Vec<(u16, &[u8])> = parts.iter().map(|(n, v)| (*n, &v[..])).collect();
                let bytes = borrowed.iter().map(|(_, v)| v.len()).sum();
                let found = Found { key, bytes, value: value::<S>(key, &borrowed) };
                parts.clear();
                each(found)
            };
            for item in db.range(bounds::<S>(*range.start(), *range.end())) {
                let (bytes, part_value) = item?;
                // A key of another length cannot be ours: sled would have to invent it. Its CRC says no.
                let Some((key, number)) = parse::<S>(&bytes) else { continue };
                if let Some(last) = current.filter(|last| last.to_bytes() != key.to_bytes())
                    && put(last, &mut parts).is_break()
                {
                    return Ok(());
                }
                current = Some(key);
                parts.push((number, part_value));
            }
            if let Some(last) = current {
                let _ = put(last, &mut parts);
            }
            Ok(())
        })
    }

    /// Keys of a shelf, in order.
    pub fn keys<S: Shelf>(
        &self,
        range: std::ops::RangeInclusive<S::Key>,
    ) -> Result<Vec<S::Key>, StorageError> {
        self.guarded("read", |db| {
            let mut keys = Vec::new();
            for bytes in db.range(bounds::<S>(*range.start(), *range.end())).keys() {
                keys.extend(parse::<S>(&bytes?).filter(|(_, part)| *part == 0).map(|(key, _)| key));
            }
            Ok(keys)
        })
    }

    /// Removes a range from its end backwards, so that no hole is left whenever it stops. Says if there was any.
    pub fn remove_backwards<S: Shelf>(
        &self,
        range: std::ops::RangeInclusive<S::Key>,
    ) -> Result<bool, StorageError> {
        self.guarded("remove", |db| {
            let mut any = false;
            for bytes in db.range(bounds::<S>(*range.start(), *range.end())).keys().rev() {
                db.remove(bytes?)?;
                any = true;
            }
            Ok(any)
        })
    }

    /// Removes up to `count` values from the front of a range. False once nothing was left to remove.
    pub fn remove_some<S: Shelf>(
        &self,
        range: std::ops::RangeInclusive<S::Key>,
        count: usize,
    ) -> Result<bool, StorageError> {
        self.guarded("remove", |db| {
            let mut removed = 0;
            for bytes in db.range(bounds::<S>(*range.start(), *range.end())).keys().take(count) {
                db.remove(bytes?)?;
                removed += 1;
            }
            Ok(removed == count)
        })
    }

    /// Refuses what another version of keyraft wrote. The vote tells: whoever has anything has voted, or followed
    /// somebody's vote, first.
    pub fn check_version(&self) -> Result<(), StorageError> {
        let key = [prefix::<Votes>(()), vec![0; PART_BYTES]].concat();
        let vote = self.guarded("read", |db| db.get(key))?;
        match vote.as_deref().and_then(<[u8]>::first) {
            Some(&found) if found != FRAME_VERSION => {
                Err(StorageError::Version { folder: self.folder.path().to_owned(), found })
            }
            _ => Ok(()),
        }
    }

    /// True if sled holds nothing of ours.
    pub fn is_empty(&self) -> Result<bool, StorageError> {
        self.guarded("read", |db| Ok(db.is_empty()))
    }

    fn guarded<T>(
        &self,
        doing: &str,
        act: impl FnOnce(&sled::Db) -> sled::Result<T>,
    ) -> Result<T, StorageError> {
        self.check()?;
        match catch_unwind(AssertUnwindSafe(|| act(&self.db))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error @ sled::Error::Io(_))) => Err(self.poisoned_by(doing, &error)),
            Ok(Err(error)) => Err(self.poison(format!("{doing}: {error}"), true)),
            Err(panic) => Err(self.poison(format!("{doing}: {}", message(&*panic)), true)),
        }
    }
}

fn bounds<S: Shelf>(first: S::Key, last: S::Key) -> std::ops::RangeInclusive<Vec<u8>> {
    let mut end = prefix::<S>(last);
    end.extend(u16::MAX.to_be_bytes());
    prefix::<S>(first)..=end
}

fn open_sled(folder: &Path, path: &Path) -> Result<sled::Db, StorageError> {
    let config = sled::Config::new().path(path).flush_every_ms(None).cache_capacity(CACHE_BYTES);
    let mut waited = std::time::Duration::ZERO;
    loop {
        // sled panics on some damage instead of saying so.
        match catch_unwind(AssertUnwindSafe(|| config.open())) {
            Ok(Ok(db)) => return Ok(db),
            // The folder is ours, so this is an earlier sled of this process whose threads have not ended yet.
            Ok(Err(sled::Error::Io(e))) if e.to_string().contains("acquire lock") && waited < LOCK_WAIT => {
                std::thread::sleep(LOCK_POLL);
                waited += LOCK_POLL;
            }
            Ok(Err(sled::Error::Io(e))) => return Err(StorageError::io(folder, "open the store")(owned(&e))),
            Ok(Err(error)) => return Err(StorageError::damaged(folder, error.to_string())),
            Err(panic) => return Err(StorageError::damaged(folder, message(&*panic))),
        }
    }
}

fn owned(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("sled panicked: {}", text.unwrap_or("no message"))
}
