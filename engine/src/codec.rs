//! The one place that turns values into bytes and back: bincode 2 with serde, behind a format version.
//! Decoding is bounded, checks the version and refuses trailing bytes.

use bincode::enc::write::SizeWriter;
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

/// Version of every stored and transmitted value. A value of another version is refused.
pub const FORMAT_VERSION: u8 = 1;

/// Why bytes could not be read or a value could not be written.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CodecError {
    /// The value does not fit the encoding.
    #[error("value cannot be encoded: {0}")]
    Encode(String),
    /// The bytes are cut short, damaged or over the limit.
    #[error("bytes cannot be decoded: {0}")]
    Decode(String),
    /// The bytes were written by another format version.
    #[error("format version {found} is not {FORMAT_VERSION}: use the keyraft version that wrote it")]
    Version {
        /// The version found.
        found: u8,
    },
    /// Bytes are left over behind the value.
    #[error("{0} bytes are left behind the value")]
    Trailing(usize),
    /// The value is longer than its limit, bytes.
    #[error("{len} bytes are more than the limit of {limit}")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard()
}

/// Encodes a value behind the format version.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![FORMAT_VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, config())
        .map_err(|e| CodecError::Encode(e.to_string()))?;
    Ok(bytes)
}

/// The same for a secret: written in one allocation of its very length, so that growing leaves no copies behind.
pub fn encode_secret<T: Serialize>(value: &T) -> Result<Zeroizing<Vec<u8>>, CodecError> {
    let failed = |e: bincode::error::EncodeError| CodecError::Encode(e.to_string());
    let mut size = SizeWriter::default();
    bincode::serde::encode_into_writer(value, &mut size, config()).map_err(failed)?;
    let mut bytes = Zeroizing::new(vec![FORMAT_VERSION; 1 + size.bytes_written]);
    bincode::serde::encode_into_slice(value, &mut bytes[1..], config()).map_err(failed)?;
    Ok(bytes)
}

/// Decodes a value of at most `limit` bytes. Never allocates more than the input implies.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, CodecError> {
    if bytes.len() > limit {
        return Err(CodecError::TooLong { len: bytes.len(), limit });
    }
    let (&version, body) = bytes.split_first().ok_or_else(|| CodecError::Decode("no bytes".into()))?;
    if version != FORMAT_VERSION {
        return Err(CodecError::Version { found: version });
    }
    let (value, used) = decode_claims(body).map_err(|e| CodecError::Decode(e.to_string()))?;
    if used != body.len() {
        return Err(CodecError::Trailing(body.len() - used));
    }
    Ok(value)
}

/// Decodes under a limit on what the value claims to hold, so that a forged length cannot make us allocate much
/// more than was sent. An honest value claims at most 16 times its bytes (a u128 of one byte).
fn decode_claims<T: DeserializeOwned>(body: &[u8]) -> Result<(T, usize), bincode::error::DecodeError> {
    let config = bincode::config::standard();
    if body.len() <= SMALL_BYTES {
        bincode::serde::decode_from_slice(body, config.with_limit::<{ 16 * SMALL_BYTES }>())
    } else if body.len() <= MIDDLE_BYTES {
        bincode::serde::decode_from_slice(body, config.with_limit::<{ 16 * MIDDLE_BYTES }>())
    } else {
        bincode::serde::decode_from_slice(body, config.with_limit::<DECODE_CLAIM_MAX_BYTES>())
    }
}

const SMALL_BYTES: usize = crate::limits::FRAME_UNPROVEN_MAX_BYTES;
const MIDDLE_BYTES: usize = crate::limits::FRAME_MAX_BYTES;
/// Bytes that any decoded value may claim to hold.
const DECODE_CLAIM_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// For `#[serde(with = "crate::codec::bytes")]`: the same encoding as a plain `Vec<u8>`, copied in one piece
/// instead of byte by byte.
pub mod bytes {
    use serde::de::{Deserializer, Error, SeqAccess, Visitor};
    use serde::ser::Serializer;
    use std::fmt;

    /// Writes the bytes behind their length.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    /// Reads what [`serialize`] wrote.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }

    struct Bytes;

    impl<'de> Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = seq.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let bytes = encode(&(7u64, "label".to_string())).expect("encodes");
        assert_eq!(bytes, [1, 7, 5, b'l', b'a', b'b', b'e', b'l']);
        let secret = encode_secret(&(7u64, "label".to_string())).expect("encodes");
        assert_eq!((&*secret, secret.capacity()), (&bytes, 8));
        assert_eq!(decode::<(u64, String)>(&bytes, 64), Ok((7, "label".into())));
        assert_eq!(decode::<u64>(&bytes, 64), Err(CodecError::Trailing(6)));
        assert_eq!(decode::<u64>(&[2, 7], 64), Err(CodecError::Version { found: 2 }));
        assert_eq!(decode::<u64>(&bytes, 4), Err(CodecError::TooLong { len: 8, limit: 4 }));
        assert!(decode::<Vec<u8>>(&[1, 253, 255, 255, 255, 255, 255, 255, 255, 127], 64).is_err());
        assert!(decode::<u64>(&[], 64).is_err());
    }

    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct Fast(#[serde(with = "bytes")] Vec<u8>);

    #[test]
    fn bytes_are_encoded_like_a_list_of_bytes() {
        for len in [0, 1, 250, 251, 70_000] {
            let list: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let encoded = encode(&list).expect("encodes");
            assert_eq!(encode(&Fast(list.clone())).expect("encodes"), encoded);
            assert_eq!(decode::<Fast>(&encoded, 100_000), Ok(Fast(list)));
        }
        assert!(decode::<Fast>(&[1, 253, 255, 255, 255, 255, 255, 255, 255, 127], 64).is_err());
    }
}
