use crate::error::StorageError;
use crate::folder::Folder;
use keyraft_engine::codec;
use keyraft_engine::consensus::types::{LogId, Vote};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// How far the log was acknowledged: a lower bound, kept outside sled so that damage which makes sled forget its
/// newest pages is noticed. Purging and truncating are written here first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// The last purged entry.
    pub purged: Option<LogId>,
    /// Index of the first entry that the log holds or will hold.
    pub first: u64,
    /// Every entry from `first` to below `end` was acknowledged.
    pub end: u64,
    /// A vote that was acknowledged.
    pub vote: Option<Vote>,
}

/// The marks file: three slots. Two take turns for what must be durable at once, so that one is always whole; the
/// third takes the appends, unsynced: the kernel keeps it through a killed process, and a power cut only makes it old.
pub struct MarksFile {
    file: File,
    sequence: u64,
    durable_slot: u64,
}

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 4096;
const LAZY_SLOT: u64 = 2;
const SLOTS: u64 = 3;
/// CRC32 and length, in front of a slot.
const HEADER_BYTES: usize = 8;

impl MarksFile {
    /// Opens the file; `fresh` says whether there may be none yet.
    pub fn open(folder: &Folder, fresh: bool) -> Result<(Self, Marks), StorageError> {
        let path = folder.path().join("marks");
        let io = |doing| StorageError::io(folder.path(), doing);
        if fresh && !path.exists() {
            return Self::create(folder).map_err(io("make marks"));
        }
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StorageError::damaged(folder.path(), "the file 'marks' is missing"));
            }
            Err(e) => return Err(io("open marks")(e)),
        };
        let slots = (0..SLOTS).map(|slot| Ok((slot, read(&file, slot)?))).collect::<io::Result<Vec<_>>>();
        let slots: Vec<(u64, u64, Marks)> = slots
            .map_err(io("read marks"))?
            .into_iter()
            .filter_map(|(slot, found)| found.map(|(sequence, marks)| (slot, sequence, marks)))
            .collect();
        let newest_durable = slots.iter().filter(|s| s.0 != LAZY_SLOT).max_by_key(|s| s.1).map(|s| s.0);
        match (newest_durable, slots.into_iter().max_by_key(|s| s.1)) {
            (Some(durable_slot), Some((_, sequence, marks))) => {
                Ok((Self { file, sequence, durable_slot }, marks))
            }
            _ => Err(StorageError::damaged(folder.path(), "the file 'marks' has no whole slot")),
        }
    }

    fn create(folder: &Folder) -> io::Result<(Self, Marks)> {
        let new = folder.path().join("marks.new");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.set_len(SLOTS * SLOT_BYTES as u64)?;
        let mut marks_file = Self { file, sequence: 0, durable_slot: 0 };
        let marks = Marks::default();
        marks_file.write(&marks, 0)?;
        marks_file.file.sync_all()?;
        std::fs::rename(&new, folder.path().join("marks"))?;
        folder.sync()?;
        Ok((marks_file, marks))
    }

    /// Writes marks that must hold before anything else happens.
    pub fn write_durable(&mut self, marks: &Marks) -> io::Result<()> {
        let slot = 1 - self.durable_slot;
        self.write(marks, slot)?;
        self.file.sync_data()?;
        self.durable_slot = slot;
        Ok(())
    }

    /// Writes marks that may be lost.
    pub fn write_lazy(&mut self, marks: &Marks) -> io::Result<()> {
        self.write(marks, LAZY_SLOT)
    }

    fn write(&mut self, marks: &Marks, slot: u64) -> io::Result<()> {
        self.sequence += 1;
        let bytes = slot_bytes(self.sequence, marks)?;
        self.file.write_all_at(&bytes, slot * SLOT_BYTES as u64)
    }
}

fn slot_bytes(sequence: u64, marks: &Marks) -> io::Result<Vec<u8>> {
    framed(&codec::encode(&(sequence, marks)).map_err(io::Error::other)?)
}

/// CRC32, length, body.
pub fn framed(body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    Ok([&crc32fast::hash(body).to_be_bytes()[..], &length.to_be_bytes(), body].concat())
}

fn read(file: &File, slot: u64) -> io::Result<Option<(u64, Marks)>> {
    let mut bytes = [0; SLOT_BYTES];
    match file.read_exact_at(&mut bytes, slot * SLOT_BYTES as u64) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    Ok(whole(&bytes))
}

/// What a slot holds; None if it is torn.
pub fn whole(slot: &[u8; SLOT_BYTES]) -> Option<(u64, Marks)> {
    let [c0, c1, c2, c3, l0, l1, l2, l3, rest @ ..] = slot;
    let length = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
    let body = rest.get(..length)?;
    let sound = crc32fast::hash(body) == u32::from_be_bytes([*c0, *c1, *c2, *c3]);
    codec::decode(body, SLOT_BYTES - HEADER_BYTES).ok().filter(|_| sound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::consensus::types::TypeConfig;
    use openraft::testing::common::log_id;

    fn marks(end: u64) -> Marks {
        Marks {
            purged: Some(log_id::<TypeConfig>(5, 2, 9)),
            first: 10,
            end,
            vote: Some(Vote::new_committed(6, 1)),
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = slot_bytes(7, &marks(12)).expect("encodes");
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "d73628600000000c01070105090a0c0106010101");
    }

    #[test]
    fn any_one_torn_slot_leaves_the_durable_marks() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(temporary.path()).expect("opens");
        let (mut file, found) = MarksFile::open(&folder, true).expect("makes");
        assert_eq!(found, Marks::default());
        for end in 11..16 {
            file.write_durable(&marks(end)).expect("writes");
            file.write_lazy(&marks(end + 1)).expect("writes");
            assert_eq!(MarksFile::open(&folder, false).expect("opens").1, marks(end + 1));
            for slot in [LAZY_SLOT, 1 - file.durable_slot] {
                let mut saved = [0; SLOT_BYTES];
                file.file.read_exact_at(&mut saved, slot * SLOT_BYTES as u64).expect("reads");
                file.file.write_all_at(&[0xff; 64], slot * SLOT_BYTES as u64).expect("tears");
                assert!(MarksFile::open(&folder, false).expect("opens").1.end >= end);
                file.file.write_all_at(&saved, slot * SLOT_BYTES as u64).expect("mends");
            }
        }
        std::fs::remove_file(temporary.path().join("marks")).expect("removes");
        let missing = MarksFile::open(&folder, false).err().expect("refused").to_string();
        assert!(missing.contains("'marks' is missing") && missing.contains("keyraft recover"), "{missing}");
    }
}
