//! Knowing a key by using it: what it makes is compared with what another copy makes, or verified outside the token
//! with the recorded public key.

use super::TokenError;
use super::der::{OBJECT, PublicKey, element};
use super::door::{Handle, Operation, Session};
use crate::domain::{Curve, KeyAlgorithm, Mechanism};
use aws_lc_rs::digest;
use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};

const RSA_PKCS: u64 = 0x01;
const SHA1_HMAC: u64 = 0x221;
const SHA256_HMAC: u64 = 0x251;
const ECDSA: u64 = 0x1041;
const EDDSA: u64 = 0x1057;
const AES_ECB: u64 = 0x1081;

/// What a proof signs. It names itself, so that no such signature can be taken for another's.
const MESSAGE: &[u8] = b"keyraft proves by use that this key is the recorded one";
/// DigestInfo of a SHA-256 digest, up to the digest.
const SHA256_INFO: [u8; 19] =
    [0x30, 0x31, 0x30, 0x0D, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];

/// True if these bytes are the SubjectPublicKeyInfo (DER) of a key of this kind.
pub fn is_public_key(spki: &[u8], algorithm: KeyAlgorithm) -> bool {
    let Some(key) = PublicKey::parse(spki) else { return false };
    let fits = match (&key, algorithm) {
        (PublicKey::Rsa(modulus, _), KeyAlgorithm::Rsa { bits }) => {
            modulus.len() * 8 == usize::from(bits) && modulus.first().is_some_and(|byte| *byte >= 0x80)
        }
        (PublicKey::Ec(params, point), KeyAlgorithm::Ec(curve)) => {
            *params == curve_params(curve)
                && point.len() == 1 + 2 * coordinate_bytes(curve)
                && point.first() == Some(&0x04)
        }
        (PublicKey::Ed25519(point), KeyAlgorithm::Ed25519) => point.len() == 32,
        _ => false,
    };
    // Nothing behind it, nothing written in another way.
    fits && key.spki() == spki
}

/// A curve's parameters in DER.
pub(crate) fn curve_params(curve: Curve) -> Vec<u8> {
    let oid: &[u8] = match curve {
        Curve::P256 => &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7],
        Curve::P384 => &[0x2B, 0x81, 4, 0, 0x22],
        Curve::P521 => &[0x2B, 0x81, 4, 0, 0x23],
    };
    element(OBJECT, oid)
}

/// Bytes of one coordinate of a curve.
pub(crate) fn coordinate_bytes(curve: Curve) -> usize {
    match curve {
        Curve::P256 => 32,
        Curve::P384 => 48,
        Curve::P521 => 66,
    }
}

/// AES of one block of zeros. Its first three bytes are PKCS#11's check value.
pub(super) fn encrypt_zeros(session: &Session, key: Handle) -> Result<Vec<u8>, TokenError> {
    Ok(session.run(Operation::Encrypt, &Mechanism::plain(AES_ECB), key, &[0; 16])?.to_vec())
}

/// True if a secret can be known by what it makes. SoftHSM uses no HMAC key that is shorter than the hash.
pub(super) fn has_evidence(algorithm: KeyAlgorithm) -> bool {
    !matches!(algorithm, KeyAlgorithm::GenericSecret { bytes } if bytes < 20)
}

/// What only this secret makes; for comparison with another copy of it.
pub(super) fn evidence(
    session: &Session,
    key: Handle,
    algorithm: KeyAlgorithm,
) -> Result<Vec<u8>, TokenError> {
    let mac = match algorithm {
        KeyAlgorithm::Aes { .. } => return encrypt_zeros(session, key),
        KeyAlgorithm::GenericSecret { bytes } if bytes < 32 => SHA1_HMAC,
        _ => SHA256_HMAC,
    };
    Ok(session.run(Operation::Sign, &Mechanism::plain(mac), key, MESSAGE)?.to_vec())
}

/// Signs with a private key and verifies outside the token.
pub(super) fn check_private(session: &Session, key: Handle, public: &PublicKey) -> Result<(), TokenError> {
    let sign = |mechanism, data: &[u8]| session.run(Operation::Sign, &Mechanism::plain(mechanism), key, data);
    let (signature, scheme, point): (_, &'static dyn VerificationAlgorithm, Vec<u8>) = match public {
        PublicKey::Rsa(..) => {
            let hash = digest::digest(&digest::SHA256, MESSAGE);
            let signed = sign(RSA_PKCS, &[&SHA256_INFO[..], hash.as_ref()].concat())?;
            (signed, &signature::RSA_PKCS1_2048_8192_SHA256, public.spki())
        }
        PublicKey::Ec(_, point) => {
            let (hash, scheme): (_, &'static dyn VerificationAlgorithm) = match point.len() {
                65 => (&digest::SHA256, &signature::ECDSA_P256_SHA256_FIXED),
                97 => (&digest::SHA384, &signature::ECDSA_P384_SHA384_FIXED),
                133 => (&digest::SHA512, &signature::ECDSA_P521_SHA512_FIXED),
                _ => return Err(TokenError::BadInput("an EC point of no known curve")),
            };
            (sign(ECDSA, digest::digest(hash, MESSAGE).as_ref())?, scheme, point.clone())
        }
        PublicKey::Ed25519(point) => (sign(EDDSA, MESSAGE)?, &signature::ED25519, point.clone()),
    };
    UnparsedPublicKey::new(scheme, point)
        .verify(MESSAGE, &signature)
        .map_err(|_| TokenError::Differs("its signature does not verify with the recorded public key"))
}
