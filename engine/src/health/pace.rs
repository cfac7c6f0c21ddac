//! What a call asks for, and how long that is waited for at one member.

use super::Class;
use crate::limits;
use std::time::Duration;

/// What a call asks for, and so how long it may take at one member before another one is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Symmetric work, verification, random bytes.
    Quick,
    /// A use of a private key.
    Signing,
    /// A use that takes long: of a large key, or on much data.
    Heavy,
    /// Searches and reads: one member's, while it is fit.
    Search,
    /// Changes: they may generate a key and wait for every member.
    Slow,
}

impl Pace {
    /// What it asks of a token.
    pub fn class(self) -> Class {
        match self {
            Self::Quick => Class::Quick,
            Self::Signing => Class::Signing,
            Self::Heavy | Self::Slow => Class::Long,
            Self::Search => Class::Search,
        }
    }

    /// How long one member has for it while another one might be asked.
    pub fn attempt(self) -> Duration {
        match self {
            Self::Quick | Self::Signing | Self::Search => limits::ATTEMPT,
            Self::Heavy => limits::GENERATE_ATTEMPT,
            Self::Slow => limits::GENERATE_ATTEMPT + limits::IMPORT,
        }
    }
}
