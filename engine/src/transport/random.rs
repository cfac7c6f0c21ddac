//! The room's one source of randomness.

use super::pki::PkiError;
use std::time::Duration;

/// Random bytes of the operating system, fit for keys and nonces.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], PkiError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| PkiError::Random(e.to_string()))?;
    Ok(bytes)
}

/// A certificate's serial number: positive, 126 random bits.
pub(super) fn serial() -> Result<[u8; 16], PkiError> {
    let mut bytes: [u8; 16] = random_bytes()?;
    // A leading zero byte or bit would make the DER integer shorter or negative.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(bytes)
}

/// Between half of the pause and the whole of it, so that members do not knock in step.
pub(super) fn jitter(pause: Duration) -> Duration {
    // Without randomness the whole pause is as good: jitter is no secret.
    random_bytes::<1>().map_or(pause, |[byte]| pause / 2 + pause / 2 * u32::from(byte) / 255)
}
