//! Small files that are there whole or not at all: written aside, synced, renamed. Only their owner may read them.

use crate::codec::{self, CodecError};
use rustix::fs::{Mode, OFlags};
use serde::{Serialize, de::DeserializeOwned};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Why such a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// It is damaged, too long, or of another version.
    #[error("{}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: CodecError,
    },
    /// Others may read it.
    #[error("{} can be read by others (mode {mode:o}): run chmod 600 on it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The disk said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Reads a file of at most `limit` bytes; None if there is none.
pub fn read<T: DeserializeOwned>(path: &Path, limit: usize) -> Result<Option<T>, DurableError> {
    let io = |source| DurableError::Io { path: path.to_path_buf(), source };
    let damaged = |source| DurableError::Damaged { path: path.to_path_buf(), source };
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(DurableError::Open { path: path.to_path_buf(), mode });
    }
    let len = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    if len > limit {
        return Err(damaged(CodecError::TooLong { len, limit }));
    }
    let bytes = Zeroizing::new(fs::read(path).map_err(io)?);
    let (sum, body) = bytes.split_at_checked(4).unwrap_or((&[], &[]));
    if crc32fast::hash(body).to_be_bytes() != sum {
        return Err(damaged(CodecError::Decode("its checksum is wrong".into())));
    }
    codec::decode(body, limit).map(Some).map_err(damaged)
}

/// Writes a file of at most `limit` bytes: all of it or nothing, durable when this returns.
pub fn write<T: Serialize>(path: &Path, value: &T, limit: usize) -> Result<(), DurableError> {
    let damaged = |source| DurableError::Damaged { path: path.to_path_buf(), source };
    let body = codec::encode_secret(value).map_err(damaged)?;
    if body.len() + 4 > limit {
        return Err(damaged(CodecError::TooLong { len: body.len() + 4, limit }));
    }
    let aside = path.with_extension("new");
    let write = || -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mut file = fs::File::from(rustix::fs::open(&aside, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(&crc32fast::hash(&body).to_be_bytes())?;
        file.write_all(&body)?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
    };
    write().map_err(|source| DurableError::Io { path: path.to_path_buf(), source })
}
