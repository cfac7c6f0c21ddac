//! Hashes, in the application's own process: they need no key. Also what a hash-and-sign mechanism is made of, so that
//! data of any length is signed through its digest.

use cryptoki_sys::{
    CK_MECHANISM_TYPE, CKM_ECDSA, CKM_ECDSA_SHA1, CKM_ECDSA_SHA224, CKM_ECDSA_SHA256, CKM_ECDSA_SHA384,
    CKM_ECDSA_SHA512, CKM_MD5, CKM_RSA_PKCS, CKM_RSA_PKCS_PSS, CKM_SHA_1, CKM_SHA1_RSA_PKCS,
    CKM_SHA1_RSA_PKCS_PSS, CKM_SHA3_224, CKM_SHA3_256, CKM_SHA3_384, CKM_SHA3_512, CKM_SHA224,
    CKM_SHA224_RSA_PKCS, CKM_SHA224_RSA_PKCS_PSS, CKM_SHA256, CKM_SHA256_RSA_PKCS, CKM_SHA256_RSA_PKCS_PSS,
    CKM_SHA384, CKM_SHA384_RSA_PKCS, CKM_SHA384_RSA_PKCS_PSS, CKM_SHA512, CKM_SHA512_RSA_PKCS,
    CKM_SHA512_RSA_PKCS_PSS,
};
use sha2::Digest;
use sha2::digest::common::hazmat::{SerializableState, SerializedState};

macro_rules! hashes {
    ($($kind:ident = $mechanism:ident, $hasher:ty, $bytes:literal;)*) => {
        /// A hash that the module computes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Hash { $($kind,)* }

        impl Hash {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The hash of a mechanism's number.
            pub fn of(mechanism: CK_MECHANISM_TYPE) -> Option<Self> {
                match mechanism { $($mechanism => Some(Self::$kind),)* _ => None }
            }

            /// Its mechanism's number.
            pub fn mechanism(self) -> CK_MECHANISM_TYPE {
                match self { $(Self::$kind => $mechanism,)* }
            }

            /// Bytes of a digest.
            pub fn bytes(self) -> usize {
                match self { $(Self::$kind => $bytes,)* }
            }

            /// Begins a digest.
            pub fn begin(self) -> Hasher {
                match self { $(Self::$kind => Hasher::$kind(<$hasher>::new()),)* }
            }
        }

        /// A digest under way.
        #[derive(Clone)]
        pub(crate) enum Hasher { $($kind($hasher),)* }

        impl Hasher {
            /// Takes more data.
            pub fn update(&mut self, data: &[u8]) {
                match self { $(Self::$kind(hasher) => hasher.update(data),)* }
            }

            /// The digest of what was taken.
            pub fn finish(self) -> Vec<u8> {
                match self { $(Self::$kind(hasher) => hasher.finalize().to_vec(),)* }
            }

            /// Its state, as its crate writes it.
            fn state(&self) -> Vec<u8> {
                match self { $(Self::$kind(hasher) => hasher.serialize().to_vec(),)* }
            }

            fn of_state(hash: Hash, state: &[u8]) -> Option<Self> {
                match hash {
                    $(Hash::$kind => {
                        let state = SerializedState::<$hasher>::try_from(state).ok()?;
                        <$hasher>::deserialize(&state).ok().map(Self::$kind)
                    })*
                }
            }

            /// Which hash it is.
            pub fn hash(&self) -> Hash {
                match self { $(Self::$kind(_) => Hash::$kind,)* }
            }
        }
    };
}

hashes! {
    Md5 = CKM_MD5, md5::Md5, 16;
    Sha1 = CKM_SHA_1, sha1::Sha1, 20;
    Sha224 = CKM_SHA224, sha2::Sha224, 28;
    Sha256 = CKM_SHA256, sha2::Sha256, 32;
    Sha384 = CKM_SHA384, sha2::Sha384, 48;
    Sha512 = CKM_SHA512, sha2::Sha512, 64;
    Sha3x224 = CKM_SHA3_224, sha3::Sha3_224, 28;
    Sha3x256 = CKM_SHA3_256, sha3::Sha3_256, 32;
    Sha3x384 = CKM_SHA3_384, sha3::Sha3_384, 48;
    Sha3x512 = CKM_SHA3_512, sha3::Sha3_512, 64;
}

/// Bytes of the checksum behind a saved state.
const CHECK_BYTES: usize = 32;

/// Tells a saved state from other bytes. The crates' form of a state is theirs to change, so it is good in this version
/// alone.
fn check(state: &[u8]) -> [u8; CHECK_BYTES] {
    let begin =
        sha2::Sha256::new_with_prefix(concat!("keyraft digest state ", env!("CARGO_PKG_VERSION"), "\0"));
    begin.chain_update(state).finalize().into()
}

impl Hasher {
    /// The digest under way as C_GetOperationState gives it out: mechanism, state, checksum.
    pub fn save(&self) -> Vec<u8> {
        let mut saved = self.hash().mechanism().to_be_bytes().to_vec();
        saved.extend_from_slice(&self.state());
        let check = check(&saved);
        saved.extend_from_slice(&check);
        saved
    }

    /// Goes on from there; None if this version of the module has not saved it so.
    pub fn restore(saved: &[u8]) -> Option<Self> {
        let (state, sum) = saved.split_at_checked(saved.len().checked_sub(CHECK_BYTES)?)?;
        let (mechanism, state_alone) = state.split_first_chunk()?;
        if check(state) != sum {
            return None;
        }
        Self::of_state(Hash::of(CK_MECHANISM_TYPE::from_be_bytes(*mechanism))?, state_alone)
    }
}

/// A hash-and-sign mechanism taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The hash.
    pub hash: Hash,
    /// The mechanism that signs what [`Parts::input`] makes of the digest.
    pub raw: CK_MECHANISM_TYPE,
}

/// Takes a hash-and-sign mechanism apart; None for any other.
pub(crate) fn parts(mechanism: CK_MECHANISM_TYPE) -> Option<Parts> {
    let (hash, raw) = match mechanism {
        CKM_SHA1_RSA_PKCS => (Hash::Sha1, CKM_RSA_PKCS),
        CKM_SHA224_RSA_PKCS => (Hash::Sha224, CKM_RSA_PKCS),
        CKM_SHA256_RSA_PKCS => (Hash::Sha256, CKM_RSA_PKCS),
        CKM_SHA384_RSA_PKCS => (Hash::Sha384, CKM_RSA_PKCS),
        CKM_SHA512_RSA_PKCS => (Hash::Sha512, CKM_RSA_PKCS),
        CKM_SHA1_RSA_PKCS_PSS => (Hash::Sha1, CKM_RSA_PKCS_PSS),
        CKM_SHA224_RSA_PKCS_PSS => (Hash::Sha224, CKM_RSA_PKCS_PSS),
        CKM_SHA256_RSA_PKCS_PSS => (Hash::Sha256, CKM_RSA_PKCS_PSS),
        CKM_SHA384_RSA_PKCS_PSS => (Hash::Sha384, CKM_RSA_PKCS_PSS),
        CKM_SHA512_RSA_PKCS_PSS => (Hash::Sha512, CKM_RSA_PKCS_PSS),
        CKM_ECDSA_SHA1 => (Hash::Sha1, CKM_ECDSA),
        CKM_ECDSA_SHA224 => (Hash::Sha224, CKM_ECDSA),
        CKM_ECDSA_SHA256 => (Hash::Sha256, CKM_ECDSA),
        CKM_ECDSA_SHA384 => (Hash::Sha384, CKM_ECDSA),
        CKM_ECDSA_SHA512 => (Hash::Sha512, CKM_ECDSA),
        _ => return None,
    };
    Some(Parts { hash, raw })
}

/// The hash-and-sign mechanisms of ECDSA: a group whose tokens know CKM_ECDSA alone offers them too.
pub(crate) const ECDSA_HASHED: [CK_MECHANISM_TYPE; 5] =
    [CKM_ECDSA_SHA1, CKM_ECDSA_SHA224, CKM_ECDSA_SHA256, CKM_ECDSA_SHA384, CKM_ECDSA_SHA512];

impl Parts {
    /// What the raw mechanism signs: the digest, for PKCS#1 v1.5 inside its DigestInfo (RFC 8017, 9.2).
    pub fn input(self, digest: &[u8]) -> Vec<u8> {
        if self.raw != CKM_RSA_PKCS {
            return digest.to_vec();
        }
        let oid: &[u8] = match self.hash {
            Hash::Md5 => &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x02, 0x05],
            Hash::Sha1 => &[0x2B, 0x0E, 0x03, 0x02, 0x1A],
            Hash::Sha224 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x04],
            Hash::Sha256 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01],
            Hash::Sha384 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02],
            Hash::Sha512 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03],
            Hash::Sha3x224 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x07],
            Hash::Sha3x256 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x08],
            Hash::Sha3x384 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x09],
            Hash::Sha3x512 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x0A],
        };
        // SEQUENCE { SEQUENCE { OID, NULL }, OCTET STRING }: every length here is below 128.
        let short = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        let mut info = vec![
            0x30,
            short(8 + oid.len() + digest.len()),
            0x30,
            short(4 + oid.len()),
            0x06,
            short(oid.len()),
        ];
        info.extend_from_slice(oid);
        info.extend_from_slice(&[0x05, 0x00, 0x04, short(digest.len())]);
        info.extend_from_slice(digest);
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hash_is_itself() {
        for &hash in Hash::ALL {
            assert_eq!(Hash::of(hash.mechanism()), Some(hash));
            assert_eq!(hash.begin().finish().len(), hash.bytes());
            assert_eq!(hash.begin().hash(), hash);
        }
        let mut hasher = Hash::Sha256.begin();
        hasher.update(b"ab");
        hasher.update(b"c");
        assert_eq!(hasher.finish()[..4], [0xBA, 0x78, 0x16, 0xBF]);
    }

    #[test]
    fn a_digest_goes_on_from_its_saved_state() {
        for &hash in Hash::ALL {
            let mut hasher = hash.begin();
            hasher.update(&[7; 100]);
            let saved = hasher.save();
            let mut restored = Hasher::restore(&saved).expect("was saved here");
            hasher.update(b"rest");
            restored.update(b"rest");
            assert_eq!(hasher.finish(), restored.finish(), "{hash:?}");
            let mut bad = saved.clone();
            bad[9] ^= 1;
            for bad in [&bad[..], &saved[1..], &saved[..saved.len() - 1], &[]] {
                assert!(Hasher::restore(bad).is_none(), "{hash:?} goes on from something else");
            }
        }
    }

    #[test]
    fn the_digest_info_of_sha256() {
        let parts = parts(CKM_SHA256_RSA_PKCS).expect("known");
        let prefix = [
            0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 5, 0,
            4, 0x20,
        ];
        assert_eq!(parts.input(&[7; 32])[..19], prefix);
        assert_eq!(super::parts(CKM_ECDSA_SHA384).expect("known").input(&[1; 48]), [1; 48]);
    }
}
