use crate::shelf::FRAME_VERSION;
use std::io;
use std::path::{Path, PathBuf};

/// Why the storage refused. Everything but [`StorageError::Full`] and [`StorageError::TooLong`] is final for this
/// process: the member must stop.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another process, or another part of this one, has the folder open.
    #[error("{} is in use by another process: a data folder serves one member at a time", folder.display())]
    InUse {
        /// The data folder.
        folder: PathBuf,
    },
    /// What was acknowledged is no longer there, or no longer whole.
    #[error("the store in {} is damaged: {what}. {}", folder.display(), REJOIN)]
    Damaged {
        /// The data folder.
        folder: PathBuf,
        /// What was found.
        what: String,
    },
    /// Another version of keyraft wrote it.
    #[error("the store in {} has format {found}, and this keyraft reads {FRAME_VERSION}: start the keyraft that wrote it; no record was changed", folder.display())]
    Version {
        /// The data folder.
        folder: PathBuf,
        /// The format found.
        found: u8,
    },
    /// The file system is too full to write safely.
    #[error("{} has {free} bytes free, {needed} are needed: make room; nothing was written, what was acknowledged is safe", folder.display())]
    Full {
        /// The data folder.
        folder: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The operating system refused.
    #[error("{}: {doing}: {source}", folder.display())]
    Io {
        /// The data folder.
        folder: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// An earlier write failed, so nobody knows what is on disk.
    #[error("the store in {} stopped after a failure ({why}): restart the member; if it fails again, check the disk", folder.display())]
    Poisoned {
        /// The data folder.
        folder: PathBuf,
        /// The first failure.
        why: String,
    },
    /// A record is longer than [`crate::limits::RECORD_MAX_BYTES`], or does not encode.
    #[error("a record cannot be stored: {0}")]
    TooLong(String),
}

const REJOIN: &str = "Move the folder aside (keep it), and let the member rejoin as a new one with 'keyraft recover'; \
     never start it with an emptied folder under its old identity";

impl StorageError {
    pub(crate) fn io(folder: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let folder = folder.to_owned();
        move |source| Self::Io { folder, doing, source }
    }

    pub(crate) fn damaged(folder: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { folder: folder.to_owned(), what: what.into() }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::InUse { .. } => io::ErrorKind::ResourceBusy,
            Self::Version { .. } => io::ErrorKind::Unsupported,
            Self::Damaged { .. } => io::ErrorKind::InvalidData,
            Self::Full { .. } => io::ErrorKind::StorageFull,
            Self::Io { source, .. } => source.kind(),
            Self::Poisoned { .. } => io::ErrorKind::Other,
            Self::TooLong(_) => io::ErrorKind::InvalidInput,
        }
    }
}

impl From<StorageError> for io::Error {
    fn from(error: StorageError) -> Self {
        Self::new(error.kind(), error)
    }
}
