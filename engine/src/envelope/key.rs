//! Envelope keys: one a generation, never printed, wiped on drop.

use crate::domain::Generation;
use std::collections::BTreeMap;
use std::fmt;
use zeroize::Zeroizing;

/// The key that seals and opens the envelopes of one generation: 32 random bytes, wiped on drop.
#[derive(Clone)]
pub struct EnvelopeKey(Zeroizing<[u8; 32]>);

impl EnvelopeKey {
    /// A key from its bytes. The caller draws them at random and wipes its own copy.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for locking them to a token or wrapping them to a recovery key. Never log or store them.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for EnvelopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvelopeKey(..)")
    }
}

/// The envelope keys of every live generation.
#[derive(Clone, Default)]
pub struct EnvelopeKeys(BTreeMap<Generation, EnvelopeKey>);

impl EnvelopeKeys {
    /// The key of a generation.
    pub fn get(&self, generation: Generation) -> Option<&EnvelopeKey> {
        self.0.get(&generation)
    }

    /// Adds or replaces the key of a generation.
    pub fn insert(&mut self, generation: Generation, key: EnvelopeKey) {
        self.0.insert(generation, key);
    }

    /// The youngest generation and its key: what new envelopes are sealed under.
    pub fn current(&self) -> Option<(Generation, &EnvelopeKey)> {
        self.0.last_key_value().map(|(generation, key)| (*generation, key))
    }

    /// Every key, oldest generation first.
    pub fn iter(&self) -> impl Iterator<Item = (Generation, &EnvelopeKey)> {
        self.0.iter().map(|(generation, key)| (*generation, key))
    }
}

impl fmt::Debug for EnvelopeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EnvelopeKeys").field(&self.0.keys().collect::<Vec<_>>()).finish()
    }
}
