use crate::limits::{RECORD_MAX_BYTES, VALUE_MAX_BYTES};
use keyraft_engine::codec;
use keyraft_engine::consensus::types::{Entry, LogId, Vote};
use keyraft_engine::domain::{ContentKey, Envelope, Generation, ObjectId, Version};
use serde::{Serialize, de::DeserializeOwned};

/// A named shelf of the store: `PREFIX` keeps shelves apart, the types keep values right.
pub trait Shelf {
    /// First byte of every key on it.
    const PREFIX: u8;
    /// Its name, for people.
    const NAME: &'static str;
    type Key: ShelfKey;
    type Value: Serialize + DeserializeOwned;
}

/// A key whose bytes sort as the key does.
pub trait ShelfKey: Sized + Copy {
    /// Its bytes; always `LEN` of them.
    fn to_bytes(self) -> Vec<u8>;
    /// The key behind these bytes; None if they are not `LEN` long.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

macro_rules! shelf {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $key:ty => $value:ty) => {
        $(#[$doc])*
        pub enum $name {}

        impl Shelf for $name {
            const PREFIX: u8 = $prefix;
            const NAME: &'static str = stringify!($name);
            type Key = $key;
            type Value = $value;
        }
    };
}

// All prefixes, in one list; a number is never given to another shelf.
shelf!(/// Raft's log, by index.
    Log, 1, u64 => Entry);
shelf!(/// Raft's vote.
    Votes, 2, () => Vote);
shelf!(/// How far the log was known to be committed. May lag.
    Committed, 3, () => LogId);
shelf!(/// Sealed envelopes.
    Contents, 4, ContentKey => Envelope);

impl ShelfKey for () {
    fn to_bytes(self) -> Vec<u8> {
        Vec::new()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

impl ShelfKey for u64 {
    fn to_bytes(self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_be_bytes(bytes.try_into().ok()?))
    }
}

impl ShelfKey for ContentKey {
    fn to_bytes(self) -> Vec<u8> {
        [&self.object.0.to_be_bytes()[..], &self.version.0.to_be_bytes(), &self.generation.0.to_be_bytes()]
            .concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (object, rest) = bytes.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        Some(Self {
            object: ObjectId(u64::from_be_bytes(*object)),
            version: Version(u32::from_be_bytes(*version)),
            generation: Generation(u32::from_be_bytes(rest.try_into().ok()?)),
        })
    }
}

/// Version of what records hold and how. Version 1 had a log entry name the leader that made it, not its term alone.
pub const FRAME_VERSION: u8 = 2;
/// Version, CRC32 and length, in front of a record's first part.
const HEADER_BYTES: usize = 9;
/// The part's number, behind the key.
pub const PART_BYTES: usize = 2;

/// A record as sled gets it: values of at most `VALUE_MAX_BYTES`, part 0 first.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes over all values.
    pub bytes: usize,
}

/// Frames a value and cuts it into parts.
pub fn record<S: Shelf>(key: S::Key, value: &S::Value) -> Result<Record, String> {
    let body = codec::encode(value).map_err(|e| e.to_string())?;
    let framed = framed::<S>(key, &body)?;
    let key = prefix::<S>(key);
    let part = |(number, bytes): (usize, &[u8])| {
        let number = u16::try_from(number).expect("RECORD_MAX_BYTES / VALUE_MAX_BYTES fits 16 bits");
        ([&key[..], &number.to_be_bytes()].concat(), bytes.to_vec())
    };
    let values = framed.chunks(VALUE_MAX_BYTES).enumerate().map(part).collect();
    Ok(Record { values, bytes: framed.len() })
}

/// Version, CRC32 over key and body, length, body.
pub fn framed<S: Shelf>(key: S::Key, body: &[u8]) -> Result<Vec<u8>, String> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= RECORD_MAX_BYTES);
    let length = length.ok_or_else(|| format!("{} bytes are more than {RECORD_MAX_BYTES}", body.len()))?;
    let mut framed = Vec::with_capacity(HEADER_BYTES + body.len());
    framed.push(FRAME_VERSION);
    framed.extend(checksum(&prefix::<S>(key), body).to_be_bytes());
    framed.extend(length.to_be_bytes());
    framed.extend(body);
    Ok(framed)
}

const _: () = assert!((RECORD_MAX_BYTES + HEADER_BYTES) / VALUE_MAX_BYTES < u16::MAX as usize);

/// Puts a record together again from its parts (number, value) in order. Says what is wrong with it.
pub fn value<S: Shelf>(key: S::Key, parts: &[(u16, &[u8])]) -> Result<S::Value, String> {
    let mut framed = Vec::new();
    for (expected, (number, bytes)) in parts.iter().enumerate() {
        if usize::from(*number) != expected {
            return Err(format!("part {expected} is missing"));
        }
        framed.extend_from_slice(bytes);
    }
    let (header, rest) = framed.split_first_chunk::<HEADER_BYTES>().ok_or("it has no header")?;
    let [version, c0, c1, c2, c3, l0, l1, l2, l3] = *header;
    if version != FRAME_VERSION {
        return Err(format!("its version {version} is not {FRAME_VERSION}"));
    }
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let body = rest.get(..length).ok_or_else(|| format!("it has {} of {length} bytes", rest.len()))?;
    if checksum(&prefix::<S>(key), body) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return Err("its checksum differs".into());
    }
    codec::decode(body, RECORD_MAX_BYTES).map_err(|e| e.to_string())
}

/// What all parts of a record's keys begin with.
pub fn prefix<S: Shelf>(key: S::Key) -> Vec<u8> {
    let mut bytes = vec![S::PREFIX];
    bytes.extend(key.to_bytes());
    bytes
}

/// Key and part number behind a key of sled's.
pub fn parse<S: Shelf>(bytes: &[u8]) -> Option<(S::Key, u16)> {
    let key = bytes.strip_prefix(&[S::PREFIX])?;
    let (key, part) = key.split_at_checked(key.len().checked_sub(PART_BYTES)?)?;
    Some((S::Key::from_bytes(key)?, u16::from_be_bytes(part.try_into().ok()?)))
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::consensus::types::TypeConfig;
    use keyraft_engine::domain::MemberId;
    use keyraft_engine::state::Command;
    use openraft::testing::common::log_id;

    const KEY: ContentKey =
        ContentKey { object: ObjectId(0x0102), version: Version(3), generation: Generation(4) };

    fn envelope(len: usize) -> Envelope {
        Envelope { nonce: [7; 12], sealed: (0..len).map(|i| i as u8).collect() }
    }

    fn parts(record: &Record) -> Vec<(u16, &[u8])> {
        record
            .values
            .iter()
            .map(|(key, bytes)| (parse::<Contents>(key).expect("a key of ours").1, &bytes[..]))
            .collect()
    }

    fn hex(record: Result<Record, String>) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let values = record.expect("encodes").values;
        values.iter().map(|(k, v)| format!("{} = {}", hex(k), hex(v))).collect::<Vec<_>>().join(", ")
    }

    /// What is on people's disks. A changed line here is a changed format: it needs a new version.
    #[test]
    fn golden_bytes() {
        let entry = |payload| Entry { log_id: log_id::<TypeConfig>(5, 2, 9), payload };
        let blank = entry(openraft::EntryPayload::Blank);
        let command = Command::RemoveMember { member: MemberId(3) };
        let normal = entry(openraft::EntryPayload::Normal(command));
        let found = [
            hex(record::<Log>(9, &blank)),
            hex(record::<Log>(9, &normal)),
            hex(record::<Votes>((), &Vote::new_committed(5, 2))),
            hex(record::<Committed>((), &log_id::<TypeConfig>(5, 2, 9))),
            hex(record::<Contents>(KEY, &envelope(3))),
        ];
        let kept = [
            "0100000000000000090000 = 02b047e3b10000000401050900",
            "0100000000000000090000 = 0279a3700a00000006010509010403",
            "020000 = 02b247e109000000050105010201",
            "030000 = 023698562400000003010509",
            "04000000000000010200000003000000040000 = 023d773c2e000000110107070707070707070707070703000102",
        ];
        assert_eq!(found.join("\n"), kept.join("\n"));
    }

    #[test]
    fn every_length_around_a_part_comes_back() {
        for len in (4000..4200).chain(8100..8300).chain([0, 1, 100_000]) {
            let record = record::<Contents>(KEY, &envelope(len)).expect("encodes");
            assert!(record.values.iter().all(|(_, v)| v.len() <= VALUE_MAX_BYTES));
            assert_eq!(value::<Contents>(KEY, &parts(&record)), Ok(envelope(len)));
        }
    }

    #[test]
    fn damage_is_seen() {
        let record = record::<Contents>(KEY, &envelope(9000)).expect("encodes");
        let whole = parts(&record);
        assert!(value::<Contents>(KEY, &whole[..2]).expect_err("cut").contains("bytes"));
        assert!(value::<Contents>(KEY, &whole[1..]).expect_err("no head").contains("part 0"));
        assert!(value::<Contents>(KEY, &[]).expect_err("nothing").contains("header"));
        let other = ContentKey { object: ObjectId(1), ..KEY };
        assert!(value::<Contents>(other, &whole).expect_err("moved").contains("checksum"));
        for at in [9, 5000 - VALUE_MAX_BYTES] {
            for part in 0..whole.len() {
                let mut bytes = whole[part].1.to_vec();
                let at = at % bytes.len();
                bytes[at] ^= 0x10;
                let mut damaged = whole.clone();
                damaged[part].1 = &bytes;
                assert!(value::<Contents>(KEY, &damaged).is_err(), "part {part} byte {at}");
            }
        }
    }

    #[test]
    fn keys_sort_as_numbers_do() {
        let mut keys = [255u64, 256, 1, u64::MAX, 0].map(prefix::<Log>);
        keys.sort();
        assert_eq!(keys, [0, 1, 255, 256, u64::MAX].map(prefix::<Log>));
        assert_eq!(ContentKey::from_bytes(&KEY.to_bytes()), Some(KEY));
        assert_eq!(ContentKey::from_bytes(&KEY.to_bytes()[1..]), None);
    }
}
