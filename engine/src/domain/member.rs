//! Members and what their tokens can carry.

use super::ids::Fingerprint;
use super::key::KeyAlgorithm;
use super::mechanism::MechanismInfo;
use super::object::WrapAlgorithm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Who a token says it is (CK_TOKEN_INFO, trimmed).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIdentity {
    /// CK_TOKEN_INFO.manufacturerID
    pub manufacturer: String,
    /// CK_TOKEN_INFO.model
    pub model: String,
    /// CK_TOKEN_INFO.serialNumber
    pub serial: String,
    /// CK_TOKEN_INFO.label
    pub label: String,
}

/// Where a member's imported keys live. Order is the log format: add at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    /// As token objects: the default for a vendor's module.
    Token,
    /// As session objects, imported again from the log at each start: the default for the embedded token.
    Session,
}

/// What a token was proved to do, by round trips at start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The token.
    pub identity: TokenIdentity,
    /// Wrap formats that it both makes and opens.
    pub wraps: BTreeSet<WrapAlgorithm>,
    /// Kinds that survived generate, wrap, unwrap and use; a generic secret stands for all lengths that are
    /// multiples of 8 bytes.
    pub carries: BTreeSet<KeyAlgorithm>,
    /// Kinds that did not survive that, but can be read from a readable session key and created again by value as
    /// sensitive ones, named by [`KeyAlgorithm::stand_in`].
    pub carries_in_memory: BTreeSet<KeyAlgorithm>,
    /// True if secrets of any length come back exact; SoftHSM 2.6.1 pads them to multiples of 8 bytes.
    pub exact_lengths: bool,
    /// True if a wrapping key's UNWRAP_TEMPLATE is enforced.
    pub unwrap_template: bool,
    /// Where imported keys live.
    pub residency: Residency,
    /// What it says of its mechanisms (C_GetMechanismList, C_GetMechanismInfo), by number; at most
    /// [`CARD_MECHANISMS_MAX`](crate::limits::CARD_MECHANISMS_MAX).
    pub mechanisms: Vec<MechanismInfo>,
}

/// Why a token cannot carry a kind of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CannotCarry {
    /// The token failed the round trip for this kind.
    Kind,
    /// The token changes secrets whose length is not a multiple of 8 bytes.
    Length,
    /// The token shares no wrap format with the group.
    WrapFormat,
    /// The token takes the kind only by value, and the group does not allow that.
    InMemoryOnly,
}

impl fmt::Display for CannotCarry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "its token cannot carry this kind of key",
            Self::Length => "its token cannot carry secrets whose length is not a multiple of 8 bytes",
            Self::InMemoryOnly => {
                "its token cannot unwrap this kind of key; 'keyraft option set allow_inmemory_import true' lets new \
                 keys of such kinds pass through the members' memory instead"
            }
            Self::WrapFormat => "its token has no wrap format in common with the group",
        })
    }
}

impl Profile {
    /// Says whether this token can carry a kind of key, or why not. `in_memory`: whether it may take it by value.
    pub fn can_carry(&self, algorithm: KeyAlgorithm, in_memory: bool) -> Result<(), CannotCarry> {
        let why = match self.can_unwrap(algorithm) {
            Err(why) if self.carries_in_memory.contains(&algorithm.stand_in()) => why,
            decided => return decided,
        };
        match why {
            CannotCarry::WrapFormat => Err(why),
            _ if in_memory => Ok(()),
            _ => Err(CannotCarry::InMemoryOnly),
        }
    }

    fn can_unwrap(&self, algorithm: KeyAlgorithm) -> Result<(), CannotCarry> {
        if !self.wraps.contains(&WrapAlgorithm::Rfc5649) {
            return Err(CannotCarry::WrapFormat);
        }
        let carried = match algorithm {
            KeyAlgorithm::GenericSecret { bytes } => {
                if bytes % 8 != 0 && !self.exact_lengths {
                    return Err(CannotCarry::Length);
                }
                self.carries.iter().any(|k| matches!(k, KeyAlgorithm::GenericSecret { .. }))
            }
            other => self.carries.contains(&other),
        };
        if carried { Ok(()) } else { Err(CannotCarry::Kind) }
    }
}

/// What a member brings: the part of the roster that it says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCard {
    /// A name for people.
    pub name: String,
    /// `host:port` that other members reach it at.
    pub address: String,
    /// SHA-256 of its TLS key's SubjectPublicKeyInfo.
    pub tls: Fingerprint,
    /// SubjectPublicKeyInfo (DER) of its token's transport key (RSA-3072, UNWRAP only).
    pub transport_key: Vec<u8>,
    /// What its token can do.
    pub profile: Profile,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_by_value_goes_only_where_that_is_allowed() {
        let ed = KeyAlgorithm::Ed25519;
        let secret = |bytes| KeyAlgorithm::GenericSecret { bytes };
        let mut profile = Profile {
            identity: TokenIdentity::default(),
            wraps: [WrapAlgorithm::Rfc5649].into(),
            carries: [secret(32)].into(),
            carries_in_memory: [ed, KeyAlgorithm::ODD_SECRET].into(),
            exact_lengths: false,
            unwrap_template: true,
            residency: Residency::Token,
            mechanisms: Vec::new(),
        };
        for (kind, apart, allowed) in [
            (secret(40), Ok(()), Ok(())),
            (ed, Err(CannotCarry::InMemoryOnly), Ok(())),
            (secret(7), Err(CannotCarry::InMemoryOnly), Ok(())),
            (KeyAlgorithm::Aes { bits: 256 }, Err(CannotCarry::Kind), Err(CannotCarry::Kind)),
        ] {
            assert_eq!(
                (profile.can_carry(kind, false), profile.can_carry(kind, true)),
                (apart, allowed),
                "{kind}"
            );
        }
        profile.carries_in_memory.clear();
        assert_eq!(profile.can_carry(secret(7), true), Err(CannotCarry::Length));
        profile.wraps.clear();
        profile.carries_in_memory.insert(ed);
        assert_eq!(
            profile.can_carry(ed, true),
            Err(CannotCarry::WrapFormat),
            "it could not hold the SMK either"
        );
    }
}
