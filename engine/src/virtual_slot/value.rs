//! A key's value: from the parts that PKCS#11 names to the bytes that travel and are handed to tokens.

use super::ckr;
use super::visible::RSA_PARTS;
use crate::domain::{AttributeType as A, AttributeValue as V, Attributes, Curve, KeyAlgorithm, ckk};
use crate::limits;
use crate::token::der::{
    EC_OID, ED25519_OID, OBJECT, OCTET_STRING, PublicKey, Reader, SEQUENCE, element, rsa_pkcs8, trim,
    unsigned,
};
use crate::token::{coordinate_bytes, curve_params, is_public_key, public_facts};
use crate::wire::Failure;
use zeroize::Zeroizing;

/// Ed25519 as PKCS#11 v3.0 names it: PrintableString "edwards25519".
const EDWARDS25519: &[u8] = b"\x13\x0Cedwards25519";
/// The sizes of RSA keys that tokens carry, bits.
const RSA_BITS: [u16; 3] = [2048, 3072, 4096];

type Value = Zeroizing<Vec<u8>>;

fn invalid(attribute: A, why: &str) -> Failure {
    Failure::pkcs11(ckr::ATTRIBUTE_VALUE_INVALID, format!("{attribute}: {why}"))
}

/// A byte attribute that must be there.
pub(super) fn needed(template: &Attributes, attribute: A) -> Result<&[u8], Failure> {
    match template.get(&attribute) {
        Some(V::Bytes(bytes)) => Ok(bytes),
        _ => Err(Failure::pkcs11(ckr::TEMPLATE_INCOMPLETE, format!("{attribute} is missing"))),
    }
}

/// A number that must be there.
pub(super) fn number(template: &Attributes, attribute: A) -> Result<u64, Failure> {
    match template.get(&attribute) {
        Some(V::Number(number)) => Ok(*number),
        _ => Err(Failure::pkcs11(ckr::TEMPLATE_INCOMPLETE, format!("{attribute} is missing"))),
    }
}

/// The kind of a secret of so many bytes.
pub(super) fn secret_kind(key_type: u64, bytes: u64) -> Result<KeyAlgorithm, Failure> {
    let size = || Failure::pkcs11(ckr::KEY_SIZE_RANGE, format!("no key of this kind has {bytes} bytes"));
    match (key_type, u16::try_from(bytes).map_err(|_| size())?) {
        (ckk::AES, length @ (16 | 24 | 32)) => Ok(KeyAlgorithm::Aes { bits: length * 8 }),
        (ckk::GENERIC_SECRET, length) if length > 0 && usize::from(length) <= limits::SECRET_MAX_BYTES => {
            Ok(KeyAlgorithm::GenericSecret { bytes: length })
        }
        (ckk::AES | ckk::GENERIC_SECRET, _) => Err(size()),
        _ => Err(invalid(A::KEY_TYPE, "the group keeps no secret keys of this kind")),
    }
}

/// An RSA key's kind, from its size.
pub(super) fn rsa_kind(bits: u64) -> Result<KeyAlgorithm, Failure> {
    RSA_BITS
        .into_iter()
        .find(|known| u64::from(*known) == bits)
        .map(|bits| KeyAlgorithm::Rsa { bits })
        .ok_or_else(|| Failure::pkcs11(ckr::KEY_SIZE_RANGE, "RSA keys have 2048, 3072 or 4096 bits"))
}

/// The kind that CKA_EC_PARAMS names: a curve by its OID, or Ed25519 by OID or name.
pub(super) fn curve_kind(params: &[u8]) -> Result<KeyAlgorithm, Failure> {
    let named =
        [Curve::P256, Curve::P384, Curve::P521].into_iter().find(|curve| curve_params(*curve) == params);
    if let Some(curve) = named {
        return Ok(KeyAlgorithm::Ec(curve));
    }
    if params == element(OBJECT, ED25519_OID) || params == EDWARDS25519 {
        return Ok(KeyAlgorithm::Ed25519);
    }
    let text = "the curve is none of P-256, P-384, P-521 and Ed25519, named by its OID";
    Err(Failure::pkcs11(ckr::CURVE_NOT_SUPPORTED, text))
}

/// The kind that parameters name, if it is of this CKK_ number.
fn curve_of(key_type: u64, template: &Attributes) -> Result<KeyAlgorithm, Failure> {
    let algorithm = curve_kind(needed(template, A::EC_PARAMS)?)?;
    if algorithm.key_type() == key_type {
        return Ok(algorithm);
    }
    Err(Failure::pkcs11(ckr::TEMPLATE_INCONSISTENT, "CKA_KEY_TYPE and CKA_EC_PARAMS name different kinds"))
}

/// A secret key from CKA_VALUE.
pub(super) fn secret(key_type: u64, template: &Attributes) -> Result<(KeyAlgorithm, Value), Failure> {
    let value = needed(template, A::VALUE)?;
    let algorithm = secret_kind(key_type, value.len() as u64)
        .map_err(|_| invalid(A::VALUE, "no secret key of this kind has this length"))?;
    Ok((algorithm, Zeroizing::new(value.to_vec())))
}

/// A private key's PKCS#8 from its parts.
pub(super) fn private(key_type: u64, template: &Attributes) -> Result<(KeyAlgorithm, Value), Failure> {
    if key_type == ckk::RSA {
        let modulus = trim(needed(template, A::MODULUS)?);
        let algorithm = rsa_kind(modulus.len() as u64 * 8)
            .ok()
            .filter(|_| modulus[0] & 0x80 != 0)
            .ok_or_else(|| invalid(A::MODULUS, "RSA keys have 2048, 3072 or 4096 bits"))?;
        let mut numbers = Zeroizing::new(unsigned(&[]));
        for part in RSA_PARTS {
            numbers.extend(Zeroizing::new(unsigned(needed(template, part)?)).iter());
        }
        return Ok((algorithm, rsa_pkcs8(&numbers)));
    }
    if !matches!(key_type, ckk::EC | ckk::EC_EDWARDS) {
        return Err(invalid(A::KEY_TYPE, "the group keeps no private keys of this kind"));
    }
    let algorithm = curve_of(key_type, template)?;
    let value = needed(template, A::VALUE)?;
    let value = match algorithm {
        KeyAlgorithm::Ec(curve) => {
            let scalar = trim(value);
            let padding = coordinate_bytes(curve)
                .checked_sub(scalar.len())
                .ok_or_else(|| invalid(A::VALUE, "the scalar is longer than the curve's order"))?;
            let scalar = Zeroizing::new([&vec![0; padding], scalar].concat());
            ec_pkcs8(&curve_params(curve), &scalar)
        }
        _ if value.len() == 32 => ed25519_pkcs8(value),
        _ => return Err(invalid(A::VALUE, "an Ed25519 key has 32 bytes")),
    };
    Ok((algorithm, value))
}

fn ec_pkcs8(params: &[u8], scalar: &[u8]) -> Value {
    let scalar = Zeroizing::new(element(OCTET_STRING, scalar));
    let key = Zeroizing::new(element(SEQUENCE, &Zeroizing::new([&unsigned(&[1])[..], &scalar].concat())));
    pkcs8(&[&element(OBJECT, EC_OID), params].concat(), &key)
}

fn ed25519_pkcs8(seed: &[u8]) -> Value {
    pkcs8(&element(OBJECT, ED25519_OID), &Zeroizing::new(element(OCTET_STRING, seed)))
}

fn pkcs8(algorithm: &[u8], key: &[u8]) -> Value {
    let key = Zeroizing::new(element(OCTET_STRING, key));
    let info = Zeroizing::new([&unsigned(&[])[..], &element(SEQUENCE, algorithm), &key].concat());
    Zeroizing::new(element(SEQUENCE, &info))
}

/// A public key's kind and the attributes that make it up, from its parts or its SubjectPublicKeyInfo.
pub(super) fn public(key_type: u64, template: &Attributes) -> Result<(KeyAlgorithm, Attributes), Failure> {
    let parts = match key_type {
        ckk::RSA => template.contains_key(&A::MODULUS),
        ckk::EC | ckk::EC_EDWARDS => template.contains_key(&A::EC_POINT),
        _ => return Err(invalid(A::KEY_TYPE, "the group keeps no public keys of this kind")),
    };
    let key = if parts || !template.contains_key(&A::PUBLIC_KEY_INFO) {
        public_parts(key_type, template)?
    } else {
        PublicKey::parse(needed(template, A::PUBLIC_KEY_INFO)?)
            .ok_or_else(|| invalid(A::PUBLIC_KEY_INFO, "no SubjectPublicKeyInfo that is known here"))?
    };
    let algorithm = match &key {
        PublicKey::Rsa(modulus, _) => KeyAlgorithm::Rsa {
            bits: u16::try_from(modulus.len() * 8).map_err(|_| invalid(A::MODULUS, "it is too long"))?,
        },
        PublicKey::Ec(params, _) => curve_kind(params)?,
        PublicKey::Ed25519(_) => KeyAlgorithm::Ed25519,
    };
    if algorithm.key_type() != key_type || !is_public_key(&key.spki(), algorithm) {
        return Err(invalid(A::KEY_TYPE, "the parts make no public key of this kind"));
    }
    Ok((algorithm, public_facts(&key)))
}

fn public_parts(key_type: u64, template: &Attributes) -> Result<PublicKey, Failure> {
    if key_type == ckk::RSA {
        let part = |attribute| needed(template, attribute).map(|number| trim(number).to_vec());
        return Ok(PublicKey::Rsa(part(A::MODULUS)?, part(A::PUBLIC_EXPONENT)?));
    }
    let algorithm = curve_of(key_type, template)?;
    let point = needed(template, A::EC_POINT)?;
    let length = match algorithm {
        KeyAlgorithm::Ec(curve) => 1 + 2 * coordinate_bytes(curve),
        _ => 32,
    };
    let mut inside = Reader::new(point);
    let bare = if point.len() == length { Some(point) } else { inside.take(OCTET_STRING) };
    let bare = bare
        .filter(|bare| bare.len() == length)
        .ok_or_else(|| invalid(A::EC_POINT, "no uncompressed point of this curve"))?
        .to_vec();
    Ok(match algorithm {
        KeyAlgorithm::Ec(curve) => PublicKey::Ec(curve_params(curve), bare),
        _ => PublicKey::Ed25519(bare),
    })
}

/// The bits of a modulus.
pub(super) fn bits(modulus: &[u8]) -> u64 {
    let digits = trim(modulus);
    digits.first().map_or(0, |first| digits.len() as u64 * 8 - u64::from(first.leading_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FailureKind;
    use aws_lc_rs::encoding::{AsBigEndian, AsDer, EcPrivateKeyBin, PublicKeyX509Der};
    use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

    fn code<T>(result: Result<T, Failure>) -> u64 {
        match result.map(|_| ()).expect_err("refused").kind {
            FailureKind::TokenRefused { code } => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_ec_key_comes_in_by_its_parts() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a pair");
        let scalar: EcPrivateKeyBin<'_> = pair.private_key().as_be_bytes().expect("a scalar");
        let mut template = Attributes::from([
            (A::EC_PARAMS, V::Bytes(curve_params(Curve::P384))),
            (A::VALUE, V::Bytes(scalar.as_ref().to_vec())),
        ]);
        let (algorithm, value) = private(0x03, &template).expect("a key");
        assert_eq!(algorithm, KeyAlgorithm::Ec(Curve::P384));
        let same = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &value).expect("PKCS#8");
        assert_eq!(same.public_key().as_ref(), pair.public_key().as_ref());
        assert_eq!(code(private(0x40, &template)), ckr::TEMPLATE_INCONSISTENT);

        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("SPKI");
        for point in [pair.public_key().as_ref().to_vec(), element(OCTET_STRING, pair.public_key().as_ref())]
        {
            template.insert(A::EC_POINT, V::Bytes(point));
            let (_, facts) = public(0x03, &template).expect("a public key");
            assert_eq!(facts.get(&A::PUBLIC_KEY_INFO), Some(&V::Bytes(spki.as_ref().to_vec())));
        }
        template.insert(A::EC_POINT, V::Bytes(vec![4; 65]));
        assert_eq!(code(public(0x03, &template)), ckr::ATTRIBUTE_VALUE_INVALID);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let none = Attributes::new();
        assert_eq!(code(private(0x00, &none)), ckr::TEMPLATE_INCOMPLETE);
        assert_eq!(code(secret(0x1F, &none)), ckr::TEMPLATE_INCOMPLETE);
        let short = Attributes::from([(A::VALUE, V::Bytes(vec![1; 15]))]);
        assert_eq!(code(secret(0x1F, &short)), ckr::ATTRIBUTE_VALUE_INVALID);
        assert_eq!(secret(0x10, &short).expect("any length").0, KeyAlgorithm::GenericSecret { bytes: 15 });
        assert_eq!(code(curve_kind(&[6, 1, 1])), ckr::CURVE_NOT_SUPPORTED);
        assert_eq!(curve_kind(EDWARDS25519).expect("by name"), KeyAlgorithm::Ed25519);
        assert_eq!(code(rsa_kind(1024)), ckr::KEY_SIZE_RANGE);
        assert_eq!((bits(&[0, 1, 0]), bits(&[])), (9, 0));
    }
}
