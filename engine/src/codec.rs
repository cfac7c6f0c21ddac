//! The one place that turns values into bytes and back: bincode 2 with serde, behind a format version.
//! Decoding is bounded, checks the version and refuses trailing bytes.

use serde::{Serialize, de::DeserializeOwned};

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

/// Decodes a value of at most `limit` bytes. Never allocates more than the input implies.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, CodecError> {
    if bytes.len() > limit {
        return Err(CodecError::TooLong { len: bytes.len(), limit });
    }
    let (&version, body) = bytes.split_first().ok_or_else(|| CodecError::Decode("no bytes".into()))?;
    if version != FORMAT_VERSION {
        return Err(CodecError::Version { found: version });
    }
    // The limit counts claimed container lengths, so a forged length cannot make us allocate.
    let (value, used) = bincode::serde::decode_from_slice(
        body,
        bincode::config::standard().with_limit::<DECODE_CLAIM_MAX_BYTES>(),
    )
    .map_err(|e| CodecError::Decode(e.to_string()))?;
    if used != body.len() {
        return Err(CodecError::Trailing(body.len() - used));
    }
    Ok(value)
}

/// Bytes that one decoded value may claim to hold.
const DECODE_CLAIM_MAX_BYTES: usize = 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let bytes = encode(&(7u64, "label".to_string())).expect("encodes");
        assert_eq!(bytes, [1, 7, 5, b'l', b'a', b'b', b'e', b'l']);
        assert_eq!(decode::<(u64, String)>(&bytes, 64), Ok((7, "label".into())));
        assert_eq!(decode::<u64>(&bytes, 64), Err(CodecError::Trailing(6)));
        assert_eq!(decode::<u64>(&[2, 7], 64), Err(CodecError::Version { found: 2 }));
        assert_eq!(decode::<u64>(&bytes, 4), Err(CodecError::TooLong { len: 8, limit: 4 }));
        assert!(decode::<Vec<u8>>(&[1, 253, 255, 255, 255, 255, 255, 255, 255, 127], 64).is_err());
        assert!(decode::<u64>(&[], 64).is_err());
    }
}
