//! The kinds of keys a group can hold.

use super::attribute::{AttributeType, ObjectClass};
use crate::limits::SECRET_MAX_BYTES;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A named elliptic curve (FIPS 186-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Curve {
    /// secp256r1
    P256,
    /// secp384r1
    P384,
    /// secp521r1
    P521,
}

/// A kind of key, with its size. Order is the log format: add at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KeyAlgorithm {
    /// AES with a key of 128, 192 or 256 bits.
    Aes {
        /// Key size, bits.
        bits: u16,
    },
    /// A secret for HMAC and derivation.
    GenericSecret {
        /// Length, bytes.
        bytes: u16,
    },
    /// An RSA pair.
    Rsa {
        /// Modulus size, bits: 2048, 3072 or 4096.
        bits: u16,
    },
    /// An EC pair.
    Ec(Curve),
    /// An Edwards pair (RFC 8032).
    Ed25519,
}

/// CKK_ numbers of the kinds that a group keeps.
pub mod ckk {
    /// RSA.
    pub const RSA: u64 = 0x00;
    /// EC.
    pub const EC: u64 = 0x03;
    /// Secrets for HMAC and derivation.
    pub const GENERIC_SECRET: u64 = 0x10;
    /// AES.
    pub const AES: u64 = 0x1F;
    /// Edwards curves.
    pub const EC_EDWARDS: u64 = 0x40;
}

/// True if keys of this class and CKK_ number can have this usage.
pub fn has_usage(class: ObjectClass, key_type: u64, usage: AttributeType) -> bool {
    use AttributeType as A;
    class.usages().contains(&usage)
        && match (class, key_type) {
            (ObjectClass::SecretKey, ckk::GENERIC_SECRET) => {
                matches!(usage, A::SIGN | A::VERIFY | A::DERIVE)
            }
            (ObjectClass::SecretKey, _) | (_, ckk::RSA) => usage != A::DERIVE,
            (ObjectClass::PrivateKey, ckk::EC) => matches!(usage, A::SIGN | A::DERIVE),
            _ => matches!(usage, A::SIGN | A::VERIFY),
        }
}

impl KeyAlgorithm {
    /// Class of the key that tokens hold: a secret, or the private half of a pair.
    pub fn resident_class(self) -> ObjectClass {
        if self.is_pair() { ObjectClass::PrivateKey } else { ObjectClass::SecretKey }
    }

    /// True for pairs of a private and a public key.
    pub fn is_pair(self) -> bool {
        matches!(self, Self::Rsa { .. } | Self::Ec(_) | Self::Ed25519)
    }

    /// CKK_ number of the kind.
    pub const fn key_type(self) -> u64 {
        match self {
            Self::Rsa { .. } => ckk::RSA,
            Self::Ec(_) => ckk::EC,
            Self::GenericSecret { .. } => ckk::GENERIC_SECRET,
            Self::Aes { .. } => ckk::AES,
            Self::Ed25519 => ckk::EC_EDWARDS,
        }
    }

    /// CKM_ number of the mechanism that generates the kind.
    pub const fn generator(self) -> u64 {
        match self {
            Self::Rsa { .. } => 0x0000,
            Self::Ec(_) => 0x1040,
            Self::GenericSecret { .. } => 0x0350,
            Self::Aes { .. } => 0x1080,
            Self::Ed25519 => 0x1055,
        }
    }

    /// The one that stands for all secrets whose length is no multiple of 8 bytes.
    pub const ODD_SECRET: Self = Self::GenericSecret { bytes: 21 };

    /// The kind that stands for this one in what a token was proved to do: secrets count by whether their length is
    /// a multiple of 8 bytes, everything else for itself.
    pub fn stand_in(self) -> Self {
        match self {
            Self::GenericSecret { bytes } if bytes % 8 == 0 => Self::GenericSecret { bytes: 32 },
            Self::GenericSecret { .. } => Self::ODD_SECRET,
            other => other,
        }
    }

    /// Every size the project promises, for probes and tests.
    pub fn promised() -> [Self; 11] {
        [
            Self::Aes { bits: 128 },
            Self::Aes { bits: 192 },
            Self::Aes { bits: 256 },
            Self::GenericSecret { bytes: 32 },
            Self::Rsa { bits: 2048 },
            Self::Rsa { bits: 3072 },
            Self::Rsa { bits: 4096 },
            Self::Ec(Curve::P256),
            Self::Ec(Curve::P384),
            Self::Ec(Curve::P521),
            Self::Ed25519,
        ]
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aes { bits } => write!(f, "aes:{bits}"),
            Self::GenericSecret { bytes } => write!(f, "secret:{bytes}"),
            Self::Rsa { bits } => write!(f, "rsa:{bits}"),
            Self::Ec(Curve::P256) => f.write_str("ec:p256"),
            Self::Ec(Curve::P384) => f.write_str("ec:p384"),
            Self::Ec(Curve::P521) => f.write_str("ec:p521"),
            Self::Ed25519 => f.write_str("ed25519"),
        }
    }
}

/// The text names no kind of key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "'{0}' is no kind of key: use aes:128, aes:192, aes:256, secret:N (1 to {SECRET_MAX_BYTES} bytes), \
     rsa:2048, rsa:3072, rsa:4096, ec:p256, ec:p384, ec:p521 or ed25519"
)]
pub struct UnknownAlgorithm(pub String);

impl FromStr for KeyAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let unknown = || UnknownAlgorithm(text.chars().take(64).collect());
        let (family, size) = text.split_once(':').unwrap_or((text, ""));
        let number = || size.parse::<u16>().map_err(|_| unknown());
        match family {
            "aes" => match number()? {
                bits @ (128 | 192 | 256) => Ok(Self::Aes { bits }),
                _ => Err(unknown()),
            },
            "secret" => match number()? {
                bytes if bytes > 0 && usize::from(bytes) <= SECRET_MAX_BYTES => {
                    Ok(Self::GenericSecret { bytes })
                }
                _ => Err(unknown()),
            },
            "rsa" => match number()? {
                bits @ (2048 | 3072 | 4096) => Ok(Self::Rsa { bits }),
                _ => Err(unknown()),
            },
            "ec" => match size {
                "p256" => Ok(Self::Ec(Curve::P256)),
                "p384" => Ok(Self::Ec(Curve::P384)),
                "p521" => Ok(Self::Ec(Curve::P521)),
                _ => Err(unknown()),
            },
            "ed25519" if size.is_empty() => Ok(Self::Ed25519),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for algorithm in KeyAlgorithm::promised() {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        for bad in ["", "aes", "aes:129", "secret:0", "secret:99999", "rsa:1024", "ec:p999", "ed25519:1"] {
            assert!(bad.parse::<KeyAlgorithm>().is_err(), "{bad}");
        }
    }
}
