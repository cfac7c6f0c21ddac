//! A cloning domain: the named secret whose proof admits a member to the SMK.

use super::HandshakeError;
use crate::domain::GroupId;
use crate::limits::{DOMAIN_SECRET_MAX_BYTES, DOMAIN_SECRET_MIN_BYTES, TEXT_MAX_BYTES};
use argon2::{Algorithm, Argon2, Params, Version};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// Memory that stretching takes, KiB. With [`STRETCH_PASSES`] the least that OWASP recommends for argon2id.
const STRETCH_MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
const STRETCH_PASSES: u32 = 2;

/// A named secret that members of one group have in common. Never printed, wiped on drop.
#[derive(Clone)]
pub struct Domain {
    name: String,
    secret: Zeroizing<Vec<u8>>,
}

impl Domain {
    /// A domain of this name. Refuses secrets shorter than `limits::DOMAIN_SECRET_MIN_BYTES`, and overlong names
    /// and secrets.
    pub fn new(name: impl Into<String>, secret: Zeroizing<Vec<u8>>) -> Result<Self, HandshakeError> {
        let name = name.into();
        if name.is_empty() || name.len() > TEXT_MAX_BYTES {
            return Err(HandshakeError::DomainName);
        }
        if !(DOMAIN_SECRET_MIN_BYTES..=DOMAIN_SECRET_MAX_BYTES).contains(&secret.len()) {
            return Err(HandshakeError::SecretLength { len: secret.len() });
        }
        Ok(Self { name, secret })
    }

    /// Its name; not a secret.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stretches the secret for one group, so that guessing a weak one is dear and a table made for one group is
    /// of no use on another. Takes tens of milliseconds: call it once and keep the result.
    pub fn key(&self, group: GroupId) -> DomainKey {
        let params = Params::new(STRETCH_MEMORY_KIB, STRETCH_PASSES, 1, Some(32))
            .expect("the stretching parameters are constants within argon2's bounds");
        let salt = Sha256::new()
            .chain_update(b"keyraft/domain/1")
            .chain_update(group.0)
            .chain_update(self.name.as_bytes())
            .finalize();
        let mut key = Zeroizing::new([0; 32]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(&self.secret, &salt, key.as_mut_slice())
            .expect("secret, salt and output lengths are within argon2's bounds");
        DomainKey { name: self.name.clone(), group, key }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({:?}, ..)", self.name)
    }
}

/// A domain's secret, stretched for one group. Never printed, wiped on drop.
#[derive(Clone)]
pub struct DomainKey {
    pub(super) name: String,
    pub(super) group: GroupId,
    pub(super) key: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for DomainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainKey({:?}, {}, ..)", self.name, self.group)
    }
}
