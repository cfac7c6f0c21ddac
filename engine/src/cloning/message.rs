//! The messages that travel in clear, and the transcript that binds them.

use super::{DomainKey, HandshakeError};
use crate::codec;
use crate::domain::{Fingerprint, GroupId, MemberId};
use crate::limits::{HANDSHAKE_MESSAGE_MAX_BYTES, PUBLIC_KEY_MAX_BYTES, TEXT_MAX_BYTES};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// 32 random bytes, drawn anew for each handshake by each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(pub [u8; 32]);

/// What the joiner is, as its card says too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinerFacts {
    /// The group it wants to join.
    pub group: GroupId,
    /// Its token's transport key, SubjectPublicKeyInfo in DER.
    pub transport_key: Vec<u8>,
    /// Its TLS key.
    pub tls: Fingerprint,
}

/// What the admitting member is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFacts {
    /// Its group.
    pub group: GroupId,
    /// Its id.
    pub member: MemberId,
    /// Its token's transport key, SubjectPublicKeyInfo in DER.
    pub transport_key: Vec<u8>,
}

/// What travels in clear. Order is the wire format: add at the end.
#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    Hello { domain: String, facts: JoinerFacts, nonce: Nonce },
    Challenge { facts: MemberFacts, nonce: Nonce },
    Proof([u8; 32]),
}

impl Message {
    pub(super) fn encode(&self) -> Result<Vec<u8>, HandshakeError> {
        self.check()?;
        Ok(codec::encode(self)?)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let message: Self = codec::decode(bytes, HANDSHAKE_MESSAGE_MAX_BYTES)?;
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), HandshakeError> {
        let key = match self {
            Self::Hello { domain, facts, .. } => {
                if domain.is_empty() || domain.len() > TEXT_MAX_BYTES {
                    return Err(HandshakeError::DomainName);
                }
                &facts.transport_key
            }
            Self::Challenge { facts, .. } => &facts.transport_key,
            Self::Proof(_) => return Ok(()),
        };
        if key.is_empty() || key.len() > PUBLIC_KEY_MAX_BYTES {
            return Err(HandshakeError::FieldLength("a transport key"));
        }
        Ok(())
    }
}

/// The hash over every message so far, each behind its length, so that bytes cannot move from one to the next.
#[derive(Clone)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn new() -> Self {
        Self(Sha256::new_with_prefix(b"keyraft/handshake/1"))
    }

    pub(super) fn add(&mut self, message: &[u8]) {
        self.0.update((message.len() as u64).to_be_bytes());
        self.0.update(message);
    }

    fn hash(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }

    /// A key for one purpose: from the domain's secret and everything said so far.
    pub(super) fn key(&self, domain: &DomainKey, purpose: Purpose) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(&self.hash()), domain.key.as_slice())
            .expand(purpose.label(), key.as_mut_slice())
            .expect("32 bytes are far below HKDF's limit");
        key
    }

    /// One side's proof, ready to be finished or verified: an HMAC over everything said so far.
    pub(super) fn proof(&self, domain: &DomainKey, purpose: Purpose) -> Hmac<Sha256> {
        let key = self.key(domain, purpose);
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_slice()).expect("HMAC takes keys of any length");
        mac.update(&self.hash());
        mac
    }
}

/// What a derived key is for. A proof of one side never serves as the other's.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    JoinerProof,
    MemberProof,
    Delivery,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::JoinerProof => b"keyraft/1/joiner proof",
            Self::MemberProof => b"keyraft/1/member proof",
            Self::Delivery => b"keyraft/1/delivery",
        }
    }
}
