//! What travels for one object.

use super::attribute::AttributeRecord;
use super::ids::{Generation, ObjectId, Version};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroize;

/// How a key was wrapped by the SMK. Not a CKM number: vendors number the same format differently.
/// Order is the log format: add at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WrapAlgorithm {
    /// AES key wrap with padding, RFC 5649: CKM 0x210A on SoftHSM, 0x210B on kryoptic and NSS.
    Rfc5649,
    /// Not wrapped: the value itself, for kinds that some member's token cannot unwrap. Nothing but the envelope
    /// protects it.
    InEnvelope,
}

/// A key wrapped by the SMK, or where that cannot be its value. Wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKey {
    /// The format of `bytes`.
    pub algorithm: WrapAlgorithm,
    /// The blob, or the value: a secret's bytes, an EC scalar, an Ed25519 seed, or PKCS#8 for RSA. At most
    /// `limits::WRAPPED_KEY_MAX_BYTES`.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for WrappedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappedKey({:?}, {} bytes)", self.algorithm, self.bytes.len())
    }
}

impl Drop for WrappedKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// The content of an envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeContent {
    /// What applications see.
    pub record: AttributeRecord,
    /// The key; none for certificates, data, public keys, and keys whose value is in the record.
    pub wrapped: Option<WrappedKey>,
}

/// A sealed envelope: AES-256-GCM over an [`EnvelopeContent`], with group, object id, version and
/// generation as associated data.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The GCM nonce, drawn at random for each sealing.
    pub nonce: [u8; 12],
    /// Ciphertext and tag.
    #[serde(with = "crate::codec::bytes")]
    pub sealed: Vec<u8>,
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envelope({} bytes)", self.sealed.len())
    }
}

/// Names one content of one object: the key of the envelope store. A content never changes under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentKey {
    /// The object.
    pub object: ObjectId,
    /// Its version.
    pub version: Version,
    /// The generation that sealed and wrapped it.
    pub generation: Generation,
}

impl fmt::Display for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.object, self.version, self.generation)
    }
}
