//! Hashing a PIN and comparing with a hash: argon2id, written as a PHC string with the parameters of its day.

use crate::limits::{PIN_MAX_BYTES, PIN_MIN_BYTES};
use crate::state::PinHash;
use crate::wire::SecretBytes;
use argon2::{Algorithm, Argon2, Params, Version};
use data_encoding::BASE64_NOPAD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Memory that a hash takes, KiB. With [`PASSES`] the least that OWASP recommends for argon2id.
const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
const PASSES: u32 = 2;
/// The most of either that a hash in the log may ask of this member.
const FACTOR_MAX: u32 = 16;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Why a text cannot be a PIN, or a hash be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// Too short or too long.
    #[error("a PIN has {PIN_MIN_BYTES} to {PIN_MAX_BYTES} bytes: choose another")]
    Length,
    /// Not what a keyboard can give.
    #[error("a PIN is UTF-8 text without control characters: choose another")]
    Text,
    /// argon2 had no memory, or the hash in the log is none.
    #[error(
        "the PIN cannot be hashed on this member: free memory, or set the PIN anew with 'keyraft pin set'"
    )]
    Hash,
}

/// Refuses what cannot be a new PIN.
pub fn check_new(pin: &SecretBytes) -> Result<(), PinError> {
    if !(PIN_MIN_BYTES..=PIN_MAX_BYTES).contains(&pin.0.len()) {
        return Err(PinError::Length);
    }
    match std::str::from_utf8(&pin.0) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(()),
        _ => Err(PinError::Text),
    }
}

/// Hashes a new PIN. `salt` must be fresh and random. Takes tens of milliseconds and 19 MiB.
pub fn hash(pin: &SecretBytes, salt: [u8; SALT_BYTES]) -> Result<PinHash, PinError> {
    check_new(pin)?;
    let out = stretch(pin, &salt, MEMORY_KIB, PASSES)?;
    let (salt, out) = (BASE64_NOPAD.encode(&salt), BASE64_NOPAD.encode(out.as_slice()));
    Ok(PinHash(format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p=1${salt}${out}")))
}

/// True if it is the PIN. Takes as long as [`hash`], whatever the PIN; only a length that no PIN has is told at once.
pub fn is_right(pin: &SecretBytes, hash: &PinHash) -> Result<bool, PinError> {
    if !(PIN_MIN_BYTES..=PIN_MAX_BYTES).contains(&pin.0.len()) {
        return Ok(false);
    }
    let (memory, passes, salt, expected) = parse(&hash.0).ok_or(PinError::Hash)?;
    let out = stretch(pin, &salt, memory, passes)?;
    Ok(out.as_slice().ct_eq(&expected).into())
}

fn stretch(
    pin: &SecretBytes,
    salt: &[u8],
    memory: u32,
    passes: u32,
) -> Result<Zeroizing<[u8; HASH_BYTES]>, PinError> {
    let params = Params::new(memory, passes, 1, Some(HASH_BYTES)).map_err(|_| PinError::Hash)?;
    let mut out = Zeroizing::new([0; HASH_BYTES]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(&pin.0, salt, out.as_mut_slice())
        .map_err(|_| PinError::Hash)?;
    Ok(out)
}

/// Memory, passes, salt and hash of a PHC string of [`hash`]'s shape.
pub(crate) fn parse(text: &str) -> Option<(u32, u32, Vec<u8>, Vec<u8>)> {
    let mut parts = text.strip_prefix("$argon2id$v=19$m=")?.split('$');
    let (memory, rest) = parts.next()?.split_once(",t=")?;
    let passes = rest.strip_suffix(",p=1")?;
    let salt = BASE64_NOPAD.decode(parts.next()?.as_bytes()).ok()?;
    let out = BASE64_NOPAD.decode(parts.next()?.as_bytes()).ok()?;
    let (memory, passes): (u32, u32) = (memory.parse().ok()?, passes.parse().ok()?);
    let bounded = memory <= MEMORY_KIB * FACTOR_MAX && passes <= PASSES * FACTOR_MAX;
    (bounded && out.len() == HASH_BYTES && parts.next().is_none()).then_some((memory, passes, salt, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(text: &[u8]) -> SecretBytes {
        SecretBytes(Zeroizing::new(text.to_vec()))
    }

    #[test]
    fn only_the_pin_is_right() {
        let hashed = hash(&pin(b"1234"), [7; 16]).expect("hashes");
        assert!(
            hashed.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$BwcHBwcHBwcHBwcHBwcHBw$"),
            "{}",
            hashed.0
        );
        assert_eq!(is_right(&pin(b"1234"), &hashed), Ok(true));
        for wrong in [&b"1235"[..], b"", b"12345", &[b'1'; 4000]] {
            assert_eq!(is_right(&pin(wrong), &hashed), Ok(false));
        }
    }

    #[test]
    fn a_hash_of_the_log_asks_for_bounded_work() {
        let salt = BASE64_NOPAD.encode(&[7; 16]);
        let out = BASE64_NOPAD.encode(&[7; 32]);
        for bad in [
            String::new(),
            format!("$argon2id$v=19$m=99999999,t=2,p=1${salt}${out}"),
            format!("$argon2id$v=19$m=19456,t=2000,p=1${salt}${out}"),
            format!("$argon2i$v=19$m=19456,t=2,p=1${salt}${out}"),
            format!("$argon2id$v=19$m=19456,t=2,p=1${salt}$AAAA"),
            format!("$argon2id$v=19$m=19456,t=2,p=1${salt}${out}$x"),
        ] {
            assert_eq!(is_right(&pin(b"1234"), &PinHash(bad)), Err(PinError::Hash));
        }
    }

    #[test]
    fn what_cannot_be_a_pin() {
        assert_eq!(check_new(&pin(b"123")), Err(PinError::Length));
        assert_eq!(check_new(&pin(&[b'1'; 256])), Err(PinError::Length));
        assert_eq!(check_new(&pin(b"12\n34")), Err(PinError::Text));
        assert_eq!(check_new(&pin(&[0xff; 4])), Err(PinError::Text));
        assert_eq!(check_new(&pin("pässwört".as_bytes())), Ok(()));
    }
}
