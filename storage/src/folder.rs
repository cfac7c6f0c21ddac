use crate::error::StorageError;
use crate::limits::{LOCK_POLL, LOCK_WAIT, RESERVE_BYTES, ROOM_MIN_BYTES};
use keyraft_engine::telemetry::Event;
use rustix::fs::{FallocateFlags, FlockOperation};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The data folder, held by this process alone.
pub struct Folder {
    path: PathBuf,
    dir: File,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is missing, locks it, and sees to the reserve.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let io = |doing| StorageError::io(path, doing);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("make the folder"))?;
        let path = path.canonicalize().map_err(io("find the folder"))?;
        let dir = File::open(&path).map_err(io("open the folder"))?;
        let folder = Self { _lock: lock(&path)?, path, dir };
        folder.keep_reserve().map_err(io("keep a reserve"))?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder's own entry and those in it durable.
    pub fn sync(&self) -> io::Result<()> {
        self.dir.sync_all()?;
        self.path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }

    /// Refuses unless `bytes` fit and [`ROOM_MIN_BYTES`] are left. sled does not survive a full disk, so it must
    /// never meet one.
    pub fn need(&self, bytes: usize) -> Result<(), StorageError> {
        let free = self.free().map_err(StorageError::io(&self.path, "look for room"))?;
        let needed = ROOM_MIN_BYTES + bytes as u64;
        if free < needed {
            return Err(StorageError::Full { folder: self.path.clone(), free, needed });
        }
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// A start writes a little. On a full disk the reserve makes room for that; it is kept again once there is room.
    fn keep_reserve(&self) -> io::Result<()> {
        let reserve = self.path.join("reserve");
        let free = self.free()?;
        if free < ROOM_MIN_BYTES {
            if reserve.exists() {
                tracing::warn!(code = Event::DiskFull.code(), folder = %self.path.display(), free, "the disk is full: the reserve is given up to start");
                std::fs::remove_file(&reserve)?;
            }
        } else if !reserve.exists() && free >= ROOM_MIN_BYTES + 2 * RESERVE_BYTES {
            let file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&reserve)?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES)?;
        }
        Ok(())
    }
}

fn lock(path: &Path) -> Result<File, StorageError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.join("storage.lock"))
        .map_err(StorageError::io(path, "open storage.lock"))?;
    let mut waited = std::time::Duration::ZERO;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if waited < LOCK_WAIT => {
                std::thread::sleep(LOCK_POLL);
                waited += LOCK_POLL;
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StorageError::InUse { folder: path.to_owned() });
            }
            Err(error) => return Err(StorageError::io(path, "lock storage.lock")(error.into())),
        }
    }
}
