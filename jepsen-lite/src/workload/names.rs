//! How keys are called, what their CKA_ID holds, and the values of those that clients bring along.

use crate::dice::Dice;

/// Between the tag and the value in CKA_ID.
const PART: char = '|';
/// Tags of keys whose value the client brought along begin so.
const IMPORTED: char = 'v';
/// Bytes of such a value: an AES key's.
const VALUE_BYTES: usize = 32;
/// Half of such a value is the same in all keys of a run, so that all are looked for at once.
pub const MARK_BYTES: usize = 16;

/// What CKA_ID holds: the tag, which never changes, and the value.
pub fn joined(tag: &str, value: &str) -> String {
    format!("{tag}{PART}{value}")
}

/// The tag and the value in a CKA_ID.
pub fn parted(id: &str) -> (String, String) {
    id.split_once(PART).map_or_else(|| (id.into(), String::new()), |(tag, value)| (tag.into(), value.into()))
}

/// True if the key of this tag was created by value.
pub fn imported(tag: &str) -> bool {
    tag.starts_with(IMPORTED)
}

/// The tag of the creation of this number by this process.
pub(super) fn tag(process: u64, made: u64, imported: bool) -> String {
    format!("{}{process}.{made}", if imported { IMPORTED.to_string() } else { String::new() })
}

/// How the value of every key begins that a client of a run brings along. Where this stands on a disk or a wire, a key
/// stands in clear.
pub fn mark(seed: u64) -> [u8; MARK_BYTES] {
    bytes(seed, "mark")
}

/// The value that the key of this tag was created with: no two are alike, and all begin with the run's [`mark`].
pub fn value_of(seed: u64, tag: &str) -> [u8; VALUE_BYTES] {
    let mut value = bytes(seed, tag);
    value[..MARK_BYTES].copy_from_slice(&mark(seed));
    value
}

fn bytes<const COUNT: usize>(seed: u64, of: &str) -> [u8; COUNT] {
    // FNV-1a, from a number of ours.
    let begin = of.bytes().fold(seed ^ 0x6b65_7972_6166_7421, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut dice = Dice::new(begin);
    std::array::from_fn(|_| u8::try_from(dice.below(256)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_values_come_back() {
        assert_eq!(parted(&joined("3.1", "7")), ("3.1".into(), "7".into()));
        assert_eq!(parted("3.1"), ("3.1".into(), String::new()));
        assert!(imported(&tag(3, 1, true)) && !imported(&tag(3, 1, false)));
    }

    #[test]
    fn every_key_has_a_value_of_its_own_and_the_same_again() {
        assert_eq!(value_of(1, "v3.1"), value_of(1, "v3.1"));
        assert_ne!(value_of(1, "v3.1"), value_of(1, "v3.2"));
        assert_eq!(value_of(1, "v3.1")[..MARK_BYTES], mark(1));
        assert_ne!(mark(1), mark(2));
    }
}
