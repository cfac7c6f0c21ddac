//! Invitations: the text that an operator carries from a member to a newcomer.

use crate::codec;
use crate::domain::{Fingerprint, GroupId};
use crate::limits::{INVITATION_ADDRESSES_MAX, INVITATION_MAX_BYTES, TEXT_MAX_BYTES};
use crate::state::InviteId;
use data_encoding::BASE32_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Says what the text is, and which version.
const PREFIX: &str = "kr1-";
/// Bytes of SHA-256 behind the content, so that a mistyped text is told from a refused one.
const CHECKSUM_BYTES: usize = 4;

/// The text is no invitation.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvitationError {
    /// It does not begin as one, or is far too long.
    #[error("the text is no invitation: it must begin with '{PREFIX}' as 'keyraft invite' prints it")]
    NotOne,
    /// Letters are missing or wrong.
    #[error("the invitation is mistyped or cut short: copy it whole, as 'keyraft invite' printed it")]
    Mistyped,
    /// The content is over a limit.
    #[error(
        "an invitation names 1 to {INVITATION_ADDRESSES_MAX} addresses of at most {TEXT_MAX_BYTES} bytes"
    )]
    Addresses,
}

/// Lets its holder ask for admission once. The secret is never printed, except by [`Invitation::to_text`].
#[derive(Clone, Serialize, Deserialize)]
pub struct Invitation {
    /// The group.
    pub group: GroupId,
    /// Where its members are, `host:port`.
    pub addresses: Vec<String>,
    /// SHA-256 of the SubjectPublicKeyInfo of the group's CA certificate: members are known by it.
    pub authority: Fingerprint,
    /// Its public name.
    pub id: InviteId,
    /// 32 random bytes.
    pub secret: Zeroizing<[u8; 32]>,
}

impl Invitation {
    /// SHA-256 of the secret: what the group keeps of it.
    pub fn secret_hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret.as_slice()).into()
    }

    /// The text to hand over: "kr1-" and lower-case base32, with a checksum. It is a secret.
    pub fn to_text(&self) -> Result<Zeroizing<String>, InvitationError> {
        self.check()?;
        let mut bytes = Zeroizing::new(codec::encode(self).map_err(|_| InvitationError::Addresses)?);
        let checksum: [u8; 32] = Sha256::digest(bytes.as_slice()).into();
        bytes.extend_from_slice(&checksum[..CHECKSUM_BYTES]);
        let mut text = Zeroizing::new(BASE32_NOPAD.encode(&bytes));
        text.make_ascii_lowercase();
        Ok(Zeroizing::new(format!("{PREFIX}{}", *text)))
    }

    /// Reads the text; upper and lower case are the same, space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, InvitationError> {
        let text = text.trim();
        if text.len() > INVITATION_MAX_BYTES || !text.is_ascii() || text.len() < PREFIX.len() {
            return Err(InvitationError::NotOne);
        }
        let (prefix, body) = text.split_at(PREFIX.len());
        if !prefix.eq_ignore_ascii_case(PREFIX) {
            return Err(InvitationError::NotOne);
        }
        let body = Zeroizing::new(body.to_ascii_uppercase());
        let bytes = BASE32_NOPAD.decode(body.as_bytes()).map_err(|_| InvitationError::Mistyped)?;
        let bytes = Zeroizing::new(bytes);
        let at = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(InvitationError::Mistyped)?;
        let (content, checksum) = bytes.split_at(at);
        let expected: [u8; 32] = Sha256::digest(content).into();
        if checksum != &expected[..CHECKSUM_BYTES] {
            return Err(InvitationError::Mistyped);
        }
        let invitation: Self =
            codec::decode(content, INVITATION_MAX_BYTES).map_err(|_| InvitationError::Mistyped)?;
        invitation.check()?;
        Ok(invitation)
    }

    fn check(&self) -> Result<(), InvitationError> {
        let count = (1..=INVITATION_ADDRESSES_MAX).contains(&self.addresses.len());
        if count && self.addresses.iter().all(|a| !a.is_empty() && a.len() <= TEXT_MAX_BYTES) {
            Ok(())
        } else {
            Err(InvitationError::Addresses)
        }
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invitation({}, {}, ..)", self.group, self.id)
    }
}

/// The joiner's proof of an invitation: the secret itself, then an HMAC-SHA256 under it over the hello (64 bytes).
/// The group keeps only the secret's hash, so who reads the agreed state cannot make this. Send it only over a
/// connection that is pinned to the invitation's authority.
pub fn invite_proof(secret: &[u8; 32], hello: &[u8]) -> Zeroizing<Vec<u8>> {
    let tag = tag(secret, hello).finalize().into_bytes();
    let mut proof = Zeroizing::new(Vec::with_capacity(secret.len() + tag.len()));
    proof.extend_from_slice(secret);
    proof.extend_from_slice(&tag);
    proof
}

/// Verifies a proof against the hash that the group keeps, in constant time. False for anything else.
pub fn verify_invite_proof(secret_hash: &[u8; 32], hello: &[u8], proof: &[u8]) -> bool {
    let Some((secret, mac)) = proof.split_first_chunk::<32>() else { return false };
    let hash: [u8; 32] = Sha256::digest(secret).into();
    let known = hash.ct_eq(secret_hash);
    let bound = tag(secret, hello).verify_slice(mac).is_ok();
    bool::from(known) && bound
}

fn tag(secret: &[u8; 32], hello: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(b"keyraft/invite/1");
    mac.update(hello);
    mac
}
