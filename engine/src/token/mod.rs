//! Where keys live. One way to a token: the PKCS#11 function list, from a vendor's library or from kryoptic, which is
//! linked in; above the loader nothing knows the difference. A token's calls run on threads of its own. What it holds
//! is known from memory; it is searched once, when it is opened.
//!
//! - `ffi` is the door to C, beside which a simulation has a `model`; `embedded` makes kryoptic's slots, `slot` opens and
//!   initialises tokens.
//! - `probe` finds out what a token can do, `proof` knows keys by using them, `carry` wraps them.
//! - `keys` and `smk` are what a member keeps in its token for the group, `guests` what applications' sessions bring.
//! - `uses` operates with keys and wraps them, `arrive` takes in what applications unwrap and derive; `task` hands jobs
//!   to the threads (`crew`), `calls` sees which of them hang.

mod arrive;
mod calls;
mod carry;
mod crew;
pub(crate) mod der;
mod desks;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod ffi;
mod guests;
mod keys;
#[cfg(feature = "test-hooks")]
mod model;
mod outside;
mod parameters;
mod probe;
mod proof;
mod raw;
mod slot;
mod smk;
mod tag;
mod task;
mod template;
#[cfg(test)]
mod tests;
mod uses;
mod vault;

#[cfg(not(feature = "test-hooks"))]
use ffi as door;
#[cfg(feature = "test-hooks")]
use model::door;
#[cfg(feature = "test-hooks")]
pub use model::{ModelToken, TokenFault};

pub(crate) use carry::public_facts;
pub use error::{TokenError, TokenVerdict};
pub use guests::UsedKey;
pub use proof::is_public_key;
pub(crate) use proof::{coordinate_bytes, curve_params};
pub use slot::initialize;
#[cfg(feature = "test-hooks")]
pub(crate) use tag::Tag;
pub use task::Token;

use crate::domain::{Attributes, ContentKey, Generation, GroupId, KeyAlgorithm, Residency, WrappedKey};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// A PIN. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct Pin(Zeroizing<String>);

impl Pin {
    /// Takes a PIN over.
    pub fn new(pin: String) -> Self {
        Self(Zeroizing::new(pin))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin(..)")
    }
}

/// Where the PKCS#11 function list comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleSource {
    /// The linked-in token; its database lies in this folder.
    Embedded {
        /// The folder, one for each token.
        folder: PathBuf,
    },
    /// A vendor's library.
    Library {
        /// The shared object.
        path: PathBuf,
    },
    /// A token in memory, whose jobs need no threads.
    #[cfg(feature = "test-hooks")]
    Model(std::sync::Arc<ModelToken>),
}

/// Which of a library's tokens is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SlotChoice {
    /// The only initialised one.
    #[default]
    Only,
    /// The one with this label.
    Label(String),
    /// The one with this serial number.
    Serial(String),
}

/// What it takes to open a token.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// Where its functions come from.
    pub source: ModuleSource,
    /// Which token.
    pub slot: SlotChoice,
    /// The user's PIN, not used if the token asks for it on a path of its own; None for a token that must.
    pub pin: Option<Pin>,
    /// Where imported keys live: token objects for a library, session objects for the embedded token, unless said.
    pub residency: Option<Residency>,
}

/// A member's RSA public keys, SubjectPublicKeyInfo in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberKeys {
    /// SMKs are wrapped to it.
    pub transport_key: Vec<u8>,
    /// The data folder is locked to it.
    pub unlock_key: Vec<u8>,
}

/// What a new SMK leaves outside the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSmk {
    /// The SMK wrapped by itself (40 bytes): proves later that a token holds it, and lets it deliver it.
    pub self_blob: Vec<u8>,
    /// The SMK wrapped (RSA-OAEP, SHA-1) to the recovery key, if one was named.
    pub recovery: Option<Vec<u8>>,
}

/// What a token says to an SMK's own blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmkPresence {
    /// It holds that SMK.
    Present,
    /// It holds no SMK at all.
    Absent,
    /// It holds another SMK: another one under this generation, or another group's.
    Foreign,
}

/// How new keys leave the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The SMK that wraps them.
    pub generation: Generation,
    /// Kinds that go by value instead, since some member's token cannot unwrap them, named by
    /// [`KeyAlgorithm::stand_in`].
    pub in_memory: BTreeSet<KeyAlgorithm>,
}

impl Sending {
    /// True if a key of this kind goes by value.
    pub fn by_value(&self, algorithm: KeyAlgorithm) -> bool {
        self.in_memory.contains(&algorithm.stand_in())
    }
}

impl From<Generation> for Sending {
    /// Every kind wrapped.
    fn from(generation: Generation) -> Self {
        Self { generation, in_memory: BTreeSet::new() }
    }
}

/// A new key, as it leaves the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Originated {
    /// The key under the SMK, or its value where [`Sending::by_value`] says so; none for a key with SENSITIVE=false,
    /// whose value is among the facts.
    pub wrapped: Option<WrappedKey>,
    /// Its public parts: MODULUS, PUBLIC_EXPONENT, EC_PARAMS, EC_POINT (a DER OCTET STRING) and PUBLIC_KEY_INFO for
    /// pairs; VALUE_LEN for secrets, CHECK_VALUE for AES. For a key with SENSITIVE=false also VALUE: a secret's
    /// bytes, an EC scalar, an Ed25519 seed, or PKCS#8 for RSA. SENSITIVE=true or EXTRACTABLE=false where a derived
    /// key is as protected as its base, whatever was asked for.
    pub facts: Attributes,
}

/// What lies in a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Keys of the bound group, one entry a copy, sorted.
    pub ours: Vec<ContentKey>,
    /// Other groups, with the number of their objects.
    pub other_groups: Vec<(GroupId, usize)>,
    /// SMKs of the bound group.
    pub smks: Vec<Generation>,
    /// Whole objects that are not keyraft's.
    pub foreign: usize,
    /// Objects that answer nothing.
    pub half_written: usize,
}
