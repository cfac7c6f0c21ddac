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
}

impl fmt::Display for CannotCarry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "its token cannot carry this kind of key",
            Self::Length => "its token cannot carry secrets whose length is not a multiple of 8 bytes",
            Self::WrapFormat => "its token has no wrap format in common with the group",
        })
    }
}

impl Profile {
    /// Says whether this token can carry a kind of key, or why not.
    pub fn can_carry(&self, algorithm: KeyAlgorithm) -> Result<(), CannotCarry> {
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
