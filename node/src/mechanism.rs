//! Mechanisms by name, the default for each kind of key, and what the command does before and after the token:
//! hashing for ECDSA, nonces for AES.

use crate::exit::Problem;
use crate::text;
use aws_lc_rs::digest;
use keyraft_engine::domain::{Curve, KeyAlgorithm, Mechanism, Parameters};

/// What a key is used for, as the command line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Sign and verify.
    Sign,
    /// Encrypt and decrypt.
    Encrypt,
}

macro_rules! mechanisms {
    ($($name:ident = $text:literal, $purpose:ident, $kinds:literal;)*) => {
        /// A mechanism that the commands know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        #[expect(missing_docs, reason = "each is its name in PKCS#11")]
        pub enum Named { $(#[value(name = $text)] $name,)* }

        impl Named {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it is for.
            pub fn purpose(self) -> Purpose {
                match self { $(Self::$name => Purpose::$purpose,)* }
            }

            /// The kinds of keys it takes.
            pub fn keys(self) -> &'static str {
                match self { $(Self::$name => $kinds,)* }
            }
        }
    };
}

mechanisms! {
    EcdsaSha256 = "ecdsa-sha256", Sign, "EC";
    EcdsaSha384 = "ecdsa-sha384", Sign, "EC";
    EcdsaSha512 = "ecdsa-sha512", Sign, "EC";
    Eddsa = "eddsa", Sign, "Ed25519";
    RsaPkcsSha256 = "rsa-pkcs-sha256", Sign, "RSA";
    RsaPkcsSha384 = "rsa-pkcs-sha384", Sign, "RSA";
    RsaPkcsSha512 = "rsa-pkcs-sha512", Sign, "RSA";
    RsaPssSha256 = "rsa-pss-sha256", Sign, "RSA";
    RsaPssSha384 = "rsa-pss-sha384", Sign, "RSA";
    RsaPssSha512 = "rsa-pss-sha512", Sign, "RSA";
    HmacSha256 = "hmac-sha256", Sign, "secrets";
    HmacSha384 = "hmac-sha384", Sign, "secrets";
    HmacSha512 = "hmac-sha512", Sign, "secrets";
    AesGcm = "aes-gcm", Encrypt, "AES";
    AesCbcPad = "aes-cbc-pad", Encrypt, "AES";
    RsaOaep = "rsa-oaep", Encrypt, "RSA";
    RsaOaepSha256 = "rsa-oaep-sha256", Encrypt, "RSA";
}

/// GCM's nonce, bytes; random for each message and put before the ciphertext.
pub const GCM_NONCE_BYTES: usize = 12;
/// CBC's initialisation vector, bytes; random for each message and put before the ciphertext.
pub const CBC_IV_BYTES: usize = 16;
const GCM_TAG_BITS: u64 = 128;

const CKM_RSA_PKCS_OAEP: u64 = 0x9;
const CKM_SHA_1: u64 = 0x220;
const CKM_SHA256: u64 = 0x250;
const CKM_SHA384: u64 = 0x260;
const CKM_SHA512: u64 = 0x270;
const CKM_AES_CBC_PAD: u64 = 0x1085;
const CKM_AES_GCM: u64 = 0x1087;
const CKM_ECDSA: u64 = 0x1041;
const CKM_EDDSA: u64 = 0x1057;
const CKG_MGF1_SHA1: u64 = 1;

impl Named {
    /// The default for a kind of key.
    pub fn default_for(algorithm: Option<KeyAlgorithm>, purpose: Purpose) -> Result<Self, Problem> {
        let found = match (purpose, algorithm) {
            (Purpose::Sign, Some(KeyAlgorithm::Ec(Curve::P256))) => Self::EcdsaSha256,
            (Purpose::Sign, Some(KeyAlgorithm::Ec(Curve::P384))) => Self::EcdsaSha384,
            (Purpose::Sign, Some(KeyAlgorithm::Ec(Curve::P521))) => Self::EcdsaSha512,
            (Purpose::Sign, Some(KeyAlgorithm::Ed25519)) => Self::Eddsa,
            (Purpose::Sign, Some(KeyAlgorithm::Rsa { .. })) => Self::RsaPssSha256,
            (Purpose::Sign, Some(KeyAlgorithm::GenericSecret { .. })) => Self::HmacSha256,
            (Purpose::Encrypt, Some(KeyAlgorithm::Aes { .. })) => Self::AesGcm,
            (Purpose::Encrypt, Some(KeyAlgorithm::Rsa { .. })) => Self::RsaOaep,
            (purpose, kind) => {
                let kind = kind.map_or("an object that is no key".into(), |k| format!("a key of kind {k}"));
                let verb = if purpose == Purpose::Sign { "sign" } else { "encrypt" };
                return Err(Problem::usage(
                    format!("{kind} does not {verb}"),
                    "choose another key, or name a --mechanism that fits it",
                ));
            }
        };
        Ok(found)
    }

    /// Refuses a mechanism for another purpose.
    pub fn must_be(self, purpose: Purpose) -> Result<Self, Problem> {
        if self.purpose() == purpose {
            return Ok(self);
        }
        let fitting: Vec<&str> =
            Self::ALL.iter().filter(|m| m.purpose() == purpose).map(|m| m.name()).collect();
        Err(Problem::usage(
            format!("{} is not for this", self.name()),
            format!("use one of {}", fitting.join(", ")),
        ))
    }

    /// True for ECDSA, whose signatures have two shapes and whose data is hashed here.
    pub fn is_ecdsa(self) -> bool {
        matches!(self, Self::EcdsaSha256 | Self::EcdsaSha384 | Self::EcdsaSha512)
    }

    /// Bytes of the nonce or IV that stands before the ciphertext.
    pub fn prefix_bytes(self) -> usize {
        match self {
            Self::AesGcm => GCM_NONCE_BYTES,
            Self::AesCbcPad => CBC_IV_BYTES,
            _ => 0,
        }
    }

    /// What the token is given for the data: its hash for ECDSA, else the data itself.
    pub fn prepare(self, data: Vec<u8>) -> Vec<u8> {
        let hash = match self {
            Self::EcdsaSha256 => &digest::SHA256,
            Self::EcdsaSha384 => &digest::SHA384,
            Self::EcdsaSha512 => &digest::SHA512,
            _ => return data,
        };
        digest::digest(hash, &data).as_ref().to_vec()
    }

    /// The PKCS#11 mechanism. `prefix` is the nonce or IV, `aad` goes with GCM.
    pub fn mechanism(self, prefix: &[u8], aad: &[u8]) -> Mechanism {
        let pss = |number, hash, mgf, salt_bytes| Mechanism {
            number,
            parameters: Parameters::Pss { hash, mgf, salt_bytes },
        };
        let oaep = |hash, mgf| Mechanism {
            number: CKM_RSA_PKCS_OAEP,
            parameters: Parameters::Oaep { hash, mgf, label: Vec::new() },
        };
        match self {
            Self::EcdsaSha256 | Self::EcdsaSha384 | Self::EcdsaSha512 => Mechanism::plain(CKM_ECDSA),
            Self::Eddsa => Mechanism::plain(CKM_EDDSA),
            Self::RsaPkcsSha256 => Mechanism::plain(0x40),
            Self::RsaPkcsSha384 => Mechanism::plain(0x41),
            Self::RsaPkcsSha512 => Mechanism::plain(0x42),
            Self::RsaPssSha256 => pss(0x43, CKM_SHA256, 2, 32),
            Self::RsaPssSha384 => pss(0x44, CKM_SHA384, 3, 48),
            Self::RsaPssSha512 => pss(0x45, CKM_SHA512, 4, 64),
            Self::HmacSha256 => Mechanism::plain(0x251),
            Self::HmacSha384 => Mechanism::plain(0x261),
            Self::HmacSha512 => Mechanism::plain(0x271),
            Self::AesGcm => Mechanism {
                number: CKM_AES_GCM,
                parameters: Parameters::Gcm {
                    iv: prefix.to_vec(),
                    aad: aad.to_vec(),
                    tag_bits: GCM_TAG_BITS,
                },
            },
            Self::AesCbcPad => {
                Mechanism { number: CKM_AES_CBC_PAD, parameters: Parameters::Bytes(prefix.to_vec()) }
            }
            Self::RsaOaep => oaep(CKM_SHA_1, CKG_MGF1_SHA1),
            Self::RsaOaepSha256 => oaep(CKM_SHA256, 2),
        }
    }
}

/// Bytes of one half of an ECDSA signature.
pub fn ecdsa_half_bytes(algorithm: Option<KeyAlgorithm>) -> Option<usize> {
    match algorithm {
        Some(KeyAlgorithm::Ec(Curve::P256)) => Some(32),
        Some(KeyAlgorithm::Ec(Curve::P384)) => Some(48),
        Some(KeyAlgorithm::Ec(Curve::P521)) => Some(66),
        _ => None,
    }
}

/// An ECDSA signature as PKCS#11 wants it, from DER.
pub fn signature_from_der(signature: &[u8], algorithm: Option<KeyAlgorithm>) -> Result<Vec<u8>, Problem> {
    let half = ecdsa_half_bytes(algorithm)
        .ok_or_else(|| Problem::usage("the key is no EC key", "name a --mechanism that fits the key"))?;
    text::ecdsa_from_der(signature, half).ok_or_else(|| {
        Problem::usage("the signature is not DER, or not of this curve", "use --format raw for r || s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    /// The table: name, CKM number.
    #[test]
    fn names_and_numbers() {
        let table = [
            ("ecdsa-sha256", 0x1041),
            ("ecdsa-sha384", 0x1041),
            ("ecdsa-sha512", 0x1041),
            ("eddsa", 0x1057),
            ("rsa-pkcs-sha256", 0x40),
            ("rsa-pkcs-sha384", 0x41),
            ("rsa-pkcs-sha512", 0x42),
            ("rsa-pss-sha256", 0x43),
            ("rsa-pss-sha384", 0x44),
            ("rsa-pss-sha512", 0x45),
            ("hmac-sha256", 0x251),
            ("hmac-sha384", 0x261),
            ("hmac-sha512", 0x271),
            ("aes-gcm", 0x1087),
            ("aes-cbc-pad", 0x1085),
            ("rsa-oaep", 0x9),
            ("rsa-oaep-sha256", 0x9),
        ];
        assert_eq!(table.len(), Named::ALL.len());
        for (name, number) in table {
            let named = Named::from_str(name, false).expect(name);
            assert_eq!((named.name(), named.mechanism(&[], &[]).number), (name, number));
        }
    }

    #[test]
    fn defaults_fit_the_kind() {
        for algorithm in KeyAlgorithm::promised() {
            let sign = Named::default_for(Some(algorithm), Purpose::Sign);
            let encrypt = Named::default_for(Some(algorithm), Purpose::Encrypt);
            assert!(sign.is_ok() || encrypt.is_ok(), "{algorithm} can be used");
            if let Ok(named) = sign {
                assert_eq!(named.must_be(Purpose::Sign), Ok(named));
                assert!(named.must_be(Purpose::Encrypt).is_err());
            }
        }
        assert!(Named::default_for(None, Purpose::Sign).is_err());
    }

    #[test]
    fn only_ecdsa_is_hashed_here() {
        assert_eq!(Named::EcdsaSha256.prepare(b"abc".to_vec()).len(), 32);
        assert_eq!(Named::EcdsaSha512.prepare(b"abc".to_vec()).len(), 64);
        assert_eq!(Named::RsaPssSha256.prepare(b"abc".to_vec()), b"abc");
    }
}
