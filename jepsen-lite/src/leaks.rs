//! Looks for keys in clear: for the mark that every value begins with which clients brought along, on disks and in what members
//! say to each other.

use crate::limits;
use crate::workload::MARK_BYTES;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes that tell one direction of a connection from all others: addresses and ports.
pub const FLOW_BYTES: usize = 12;
/// A file is read in pieces of this size, bytes; those of zeros alone are passed over.
const PIECE_BYTES: usize = 64 * 1024;

/// True if the mark stands in this.
pub fn holds(bytes: &[u8], mark: &[u8; MARK_BYTES]) -> bool {
    times(bytes, mark) > 0
}

fn times(bytes: &[u8], mark: &[u8; MARK_BYTES]) -> usize {
    bytes.windows(MARK_BYTES).filter(|window| window == mark).count()
}

/// Looks for a mark in what comes in pieces.
#[derive(Clone, Debug)]
struct Seeker {
    mark: [u8; MARK_BYTES],
    /// What the last piece ended with.
    tail: Vec<u8>,
}

impl Seeker {
    fn new(mark: [u8; MARK_BYTES]) -> Self {
        Self { mark, tail: Vec::new() }
    }

    /// How often it ends in this piece.
    fn next(&mut self, piece: &[u8]) -> usize {
        self.tail.extend_from_slice(piece);
        let found = times(&self.tail, &self.mark);
        let passed = self.tail.len().saturating_sub(MARK_BYTES - 1);
        self.tail.drain(..passed);
        found
    }

    /// Passes over a piece of zeros, which the mark has too few of.
    fn pass(&mut self) {
        self.tail.clear();
    }
}

/// Listens to what members say to each other.
#[derive(Debug)]
pub struct Ear {
    mark: [u8; MARK_BYTES],
    flows: HashMap<[u8; FLOW_BYTES], Seeker>,
    /// Bytes that it heard.
    pub bytes: u64,
    /// Where it heard a key; the first [`limits::LEAKS_MAX`].
    pub leaks: Vec<String>,
}

impl Ear {
    /// One that listens for this mark.
    pub fn new(mark: [u8; MARK_BYTES]) -> Self {
        Self { mark, flows: HashMap::new(), bytes: 0, leaks: Vec::new() }
    }

    /// Hears what one end of a connection says.
    pub fn hear(&mut self, flow: [u8; FLOW_BYTES], said: &[u8]) {
        if self.flows.len() >= limits::FLOWS_MAX && !self.flows.contains_key(&flow) {
            self.flows.clear();
        }
        self.bytes += said.len() as u64;
        let seeker = self.flows.entry(flow).or_insert_with(|| Seeker::new(self.mark));
        if seeker.next(said) > 0 && self.leaks.len() < limits::LEAKS_MAX {
            let [_, _, _, from, _, _, _, to, ..] = flow;
            self.leaks.push(format!("the wire from 10.77.0.{from} to 10.77.0.{to}"));
        }
    }
}

/// What a search of files brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Bytes that were looked through.
    pub bytes: u64,
    /// Files that hold the mark.
    pub leaks: Vec<PathBuf>,
}

/// Looks through every file below a folder.
///
/// # Errors
/// A file cannot be read.
pub fn search(folder: &Path, mark: [u8; MARK_BYTES]) -> Result<Searched, String> {
    let mut searched = Searched::default();
    let mut left = vec![folder.to_path_buf()];
    while let Some(path) = left.pop() {
        let told = |error: std::io::Error| format!("{}: {error}", path.display());
        let kind = fs::symlink_metadata(&path).map_err(told)?.file_type();
        if kind.is_dir() {
            for entry in fs::read_dir(&path).map_err(told)? {
                left.push(entry.map_err(told)?.path());
            }
        } else if kind.is_file() {
            let (bytes, found) = in_file(&path, mark).map_err(told)?;
            searched.bytes += bytes;
            searched.leaks.extend((found > 0).then(|| path.clone()));
        }
    }
    Ok(searched)
}

/// The length of a file, and how often it holds the mark.
fn in_file(path: &Path, mark: [u8; MARK_BYTES]) -> std::io::Result<(u64, usize)> {
    let (mut file, mut seeker) = (File::open(path)?, Seeker::new(mark));
    let (mut piece, zeros) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let (mut bytes, mut found) = (0, 0);
    loop {
        let count = file.read(&mut piece)?;
        let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else {
            return Ok((bytes, found));
        };
        bytes += count as u64;
        if count == PIECE_BYTES && read == zeros {
            seeker.pass();
        } else {
            found += seeker.next(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{mark, value_of};

    #[test]
    fn a_planted_key_is_found_on_a_disk() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let inner = folder.path().join("m0/data");
        fs::create_dir_all(&inner).expect("makes folders");
        fs::write(inner.join("log"), b"nothing of interest").expect("writes");
        fs::write(inner.join("zeros"), vec![0; 3 * PIECE_BYTES]).expect("writes");
        let none = search(folder.path(), mark(7)).expect("is read");
        assert_eq!((none.bytes, none.leaks.len()), (19 + 3 * PIECE_BYTES as u64, 0));
        // Across two pieces, behind zeros.
        let mut bytes = vec![0; 2 * PIECE_BYTES - 20];
        bytes.extend(value_of(7, "v3.1"));
        bytes.extend([1; 100]);
        fs::write(inner.join("store"), bytes).expect("writes");
        let found = search(folder.path(), mark(7)).expect("is read");
        assert_eq!(found.leaks, [inner.join("store")]);
        assert_eq!(search(folder.path(), mark(8)).expect("is read").leaks.len(), 0, "another run's");
    }

    #[test]
    fn a_planted_key_is_heard_on_a_wire() {
        let (one, other) = ([1; FLOW_BYTES], [2; FLOW_BYTES]);
        let value = value_of(7, "v3.1");
        let mut ear = Ear::new(mark(7));
        ear.hear(one, &value[..9]);
        ear.hear(other, &value[9..]);
        assert_eq!(ear.leaks.len(), 0, "two connections");
        ear.hear(one, &value[9..]);
        assert_eq!(ear.leaks, ["the wire from 10.77.0.1 to 10.77.0.1"]);
        assert_eq!(ear.bytes, 9 + 23 + 23);
    }
}
