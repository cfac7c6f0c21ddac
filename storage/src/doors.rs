//! Doors to the decoders of what lies on disk, for fuzz targets alone. Each takes the bytes as they stand in the file,
//! and again as the body behind a right checksum, which damage would never get past. It says whether the body was
//! accepted.

use crate::limits::VALUE_MAX_BYTES;
use crate::shelf::{Committed, Contents, Log, Shelf, Votes, framed, parse, value};
use crate::{checkpoint, marks};
use keyraft_engine::domain::ContentKey;

/// A record of the log.
pub fn entry(index: u64, bytes: &[u8]) -> bool {
    accepts::<Log>(index, bytes)
}

/// The vote's record, or the committed entry's.
pub fn vote(bytes: &[u8]) -> bool {
    accepts::<Votes>((), bytes) | accepts::<Committed>((), bytes)
}

/// A content's record.
pub fn content(key: ContentKey, bytes: &[u8]) -> bool {
    accepts::<Contents>(key, bytes)
}

fn accepts<S: Shelf>(key: S::Key, bytes: &[u8]) -> bool {
    let whole = |framed: &[u8]| {
        let parts: Vec<(u16, &[u8])> = (0..).zip(framed.chunks(VALUE_MAX_BYTES)).collect();
        value::<S>(key, &parts).is_ok()
    };
    whole(bytes);
    framed::<S>(key, bytes).is_ok_and(|framed| whole(&framed))
}

/// A key in sled.
pub fn key(bytes: &[u8]) -> bool {
    parse::<Log>(bytes).is_some() | parse::<Contents>(bytes).is_some() | parse::<Votes>(bytes).is_some()
}

/// A slot of the file `marks`.
pub fn marks(bytes: &[u8]) -> bool {
    let whole = |bytes: &[u8]| {
        let mut slot = [0; marks::SLOT_BYTES];
        let length = bytes.len().min(slot.len());
        slot[..length].copy_from_slice(&bytes[..length]);
        marks::whole(&slot).is_some()
    };
    whole(bytes);
    marks::framed(bytes).is_ok_and(|framed| whole(&framed))
}

/// The file `checkpoint`.
pub fn checkpoint(bytes: &[u8]) -> bool {
    let _ = checkpoint::decode(bytes);
    checkpoint::decode(&checkpoint::framed(bytes)).is_ok()
}
