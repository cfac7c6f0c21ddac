//! The agreed state in one file: written aside, synced, renamed, so that there is always a whole one.

use crate::error::StorageError;
use keyraft_engine::codec;
use keyraft_engine::consensus::store::Checkpoint;
use keyraft_engine::limits::SNAPSHOT_STATE_MAX_BYTES;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Names the file's kind and its frame's version.
const MAGIC: [u8; 8] = *b"KRCHECK2";
/// Magic, CRC32 and length.
const HEADER_BYTES: usize = 8 + 4 + 8;

fn folder(data: &Path) -> PathBuf {
    data.join("snapshots")
}

/// Makes the folder and clears what an interrupted save left.
pub fn prepare(data: &Path) -> Result<(), StorageError> {
    let make = || {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder(data))?;
        match std::fs::remove_file(folder(data).join("checkpoint.new")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        File::open(folder(data))?.sync_all()
    };
    make().map_err(StorageError::io(data, "prepare snapshots/"))
}

/// The file's bytes.
pub fn encode(checkpoint: &Checkpoint) -> io::Result<Vec<u8>> {
    let body = codec::encode(checkpoint).map_err(io::Error::other)?;
    if body.len() > SNAPSHOT_STATE_MAX_BYTES {
        let what = format!("a checkpoint of {} bytes, more than {SNAPSHOT_STATE_MAX_BYTES}", body.len());
        return Err(StorageError::TooLong(what).into());
    }
    Ok(framed(&body))
}

/// Magic, CRC32, length, body.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let crc = crc32fast::hash(body).to_be_bytes();
    [&MAGIC[..], &crc, &(body.len() as u64).to_be_bytes(), body].concat()
}

/// Replaces the checkpoint, durably.
pub fn write(data: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder(data);
    let new = folder.join("checkpoint.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join("checkpoint"))?;
    File::open(&folder)?.sync_all()
}

/// The checkpoint, if one was ever saved.
pub fn load(data: &Path) -> Result<Option<Checkpoint>, StorageError> {
    let bytes = match std::fs::read(folder(data).join("checkpoint")) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(StorageError::io(data, "read snapshots/checkpoint")(e)),
    };
    let damaged = |what: String| StorageError::damaged(data, format!("snapshots/checkpoint: {what}"));
    decode(&bytes).map(Some).map_err(damaged)
}

/// The checkpoint in a file's bytes. Says what is wrong with them.
pub fn decode(bytes: &[u8]) -> Result<Checkpoint, String> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or("it has no header")?;
    let (magic, sums) = header.split_at(MAGIC.len());
    let (crc, length) = sums.split_at(4);
    if magic != MAGIC {
        return Err("it is no checkpoint of this version".into());
    }
    if length != (body.len() as u64).to_be_bytes() || crc != crc32fast::hash(body).to_be_bytes() {
        return Err("its checksum or length differs".into());
    }
    codec::decode(body, SNAPSHOT_STATE_MAX_BYTES).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let hex: String = encode(&Checkpoint::default()).expect("encodes")[..HEADER_BYTES]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hex[..16], "4b52434845434b32"[..]);
    }

    #[test]
    fn saved_replaced_and_checked() {
        let data = tempfile::tempdir().expect("a folder");
        let path = data.path();
        prepare(path).expect("prepares");
        assert_eq!(load(path).expect("loads"), None);
        let first = Checkpoint::default();
        write(path, &encode(&first).expect("encodes")).expect("writes");
        assert_eq!(load(path).expect("loads"), Some(first.clone()));
        std::fs::write(folder(path).join("checkpoint.new"), b"half").expect("writes");
        prepare(path).expect("prepares");
        assert!(!folder(path).join("checkpoint.new").exists());
        let bytes = encode(&first).expect("encodes");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            write(path, &damaged).expect("writes");
            let error = load(path).expect_err("damaged").to_string();
            assert!(error.contains("damaged") && error.contains("keyraft recover"), "{error}");
        }
        write(path, &bytes[..bytes.len() - 1]).expect("writes");
        assert!(load(path).is_err());
    }
}
