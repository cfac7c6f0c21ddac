//! Making keys as session objects, wrapping them, and reading what is public of them. Used by origination and probes.

use super::TokenError;
use super::der::{self, OCTET_STRING, Pkcs8, PublicKey, Reader, element};
use super::door::{Handle, Session};
use super::proof::{self, coordinate_bytes, curve_params};
use super::template::{self, Template};
use super::vault::Passing;
use crate::domain::{
    AttributeType as A, AttributeValue as V, Attributes, KeyAlgorithm, Mechanism, ObjectClass, ckk,
};
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use zeroize::Zeroizing;

const PRIVATE_EXPONENT: A = A(0x123);
const PRIME_1: A = A(0x124);
const PRIME_2: A = A(0x125);
const EXPONENT_1: A = A(0x126);
const EXPONENT_2: A = A(0x127);
const COEFFICIENT: A = A(0x128);

/// Ed25519's parameters in DER: the OID of RFC 8410.
const ED25519_PARAMS: [u8; 5] = [0x06, 0x03, 0x2B, 0x65, 0x70];

/// A session key on its way: its handle and, for pairs, its public parts.
pub(super) struct Fresh {
    pub key: Handle,
    pub public: Option<PublicKey>,
}

/// Says if a usage is granted on a key in passing: what was asked for, and what the proof needs.
fn passing_usage(algorithm: KeyAlgorithm, asked: &Attributes, usage: A) -> bool {
    let proof = match algorithm {
        KeyAlgorithm::Aes { .. } => A::ENCRYPT,
        _ => A::SIGN,
    };
    usage == proof || asked.get(&usage) == Some(&V::Bool(true))
}

/// Generates a key or pair as session objects, extractable for this moment only.
pub(super) fn generate(
    session: &Session,
    passing: &mut Passing<'_>,
    algorithm: KeyAlgorithm,
    sensitive: bool,
) -> Result<Fresh, TokenError> {
    generate_as(session, passing, algorithm, (sensitive, true))
}

/// A private key that can do nothing but sign, as a session object that stays, and its public key.
pub(super) fn generate_signer(
    session: &Session,
    algorithm: KeyAlgorithm,
) -> Result<(Handle, PublicKey), TokenError> {
    let mut passing = Passing::new(session);
    let fresh = generate_as(session, &mut passing, algorithm, (true, false))?;
    let public = fresh.public.ok_or(TokenError::BadInput("a signer is a pair"))?;
    passing.spare(fresh.key);
    Ok((fresh.key, public))
}

fn generate_as(
    session: &Session,
    passing: &mut Passing<'_>,
    algorithm: KeyAlgorithm,
    (sensitive, extractable): (bool, bool),
) -> Result<Fresh, TokenError> {
    let class = algorithm.resident_class();
    let mechanism = Mechanism::plain(algorithm.generator());
    let base = template::key(algorithm, false, sensitive, extractable)
        .usages(class, |usage| passing_usage(algorithm, &Attributes::new(), usage));
    let public = Template::default()
        .number(A::CLASS, ObjectClass::PublicKey.number())
        .number(A::KEY_TYPE, algorithm.key_type())
        .flag(A::TOKEN, false)
        .flag(A::VERIFY, true);
    let public = match algorithm {
        KeyAlgorithm::Aes { bits } => {
            let key = session.generate(&mechanism, &base.number(A::VALUE_LEN, u64::from(bits / 8)))?;
            return Ok(Fresh { key: passing.keep(key), public: None });
        }
        KeyAlgorithm::GenericSecret { bytes } => {
            let key = session.generate(&mechanism, &base.number(A::VALUE_LEN, u64::from(bytes)))?;
            return Ok(Fresh { key: passing.keep(key), public: None });
        }
        KeyAlgorithm::Rsa { bits } => {
            public.number(A::MODULUS_BITS, u64::from(bits)).bytes(A::PUBLIC_EXPONENT, &[1, 0, 1])
        }
        KeyAlgorithm::Ec(curve) => public.bytes(A::EC_PARAMS, &curve_params(curve)),
        KeyAlgorithm::Ed25519 => public.bytes(A::EC_PARAMS, &ED25519_PARAMS),
    };
    let (public, key) = session.generate_pair(&mechanism, &public, &base)?;
    passing.keep(public);
    passing.keep(key);
    let public = read_public(session, public, algorithm)?;
    Ok(Fresh { key, public: Some(public) })
}

/// Wraps a session key, unwraps it again as the members will, and proves by use that nothing was lost on the way.
pub(super) fn wrap_proved(
    session: &Session,
    (mechanism, smk): (&Mechanism, Handle),
    algorithm: KeyAlgorithm,
    asked: &Attributes,
    fresh: &Fresh,
) -> Result<Vec<u8>, TokenError> {
    let wrapped = session.wrap(mechanism, smk, fresh.key)?;
    let usable = fresh.public.is_some() || proof::has_evidence(algorithm);
    let class = algorithm.resident_class();
    let template = template::key(algorithm, false, true, !usable)
        .usages(class, |usage| passing_usage(algorithm, asked, usage));
    let mut passing = Passing::new(session);
    let copy = passing.keep(session.unwrap(mechanism, smk, &wrapped, &template)?);
    let same = match &fresh.public {
        Some(public) => proof::check_private(session, copy, public).map(|()| true)?,
        None if usable => {
            proof::evidence(session, copy, algorithm)? == proof::evidence(session, fresh.key, algorithm)?
        }
        // RFC 5649 is deterministic: the same key gives the same blob.
        None => session.wrap(mechanism, smk, copy)? == wrapped,
    };
    if !same {
        return Err(TokenError::Differs("it came out of its wrapping changed"));
    }
    Ok(wrapped)
}

/// Makes a session key again from its value, as members will that take it so, and proves by use that it is the same
/// and protected.
pub(super) fn recreate_proved(
    session: &Session,
    algorithm: KeyAlgorithm,
    asked: &Attributes,
    fresh: &Fresh,
    value: &[u8],
) -> Result<(), TokenError> {
    // What cannot be known by its use is read again instead.
    let usable = fresh.public.is_some() || proof::has_evidence(algorithm);
    let class = algorithm.resident_class();
    let template = template::key(algorithm, false, usable, !usable)
        .usages(class, |usage| passing_usage(algorithm, asked, usage));
    let mut passing = Passing::new(session);
    let copy = passing.keep(session.create(&with_value(template, algorithm, value)?)?);
    let flags = (session.read_flag(copy, A::SENSITIVE), session.read_flag(copy, A::EXTRACTABLE));
    if flags != (Some(usable), Some(!usable)) {
        return Err(TokenError::Unlockable);
    }
    let same = match &fresh.public {
        Some(public) => proof::check_private(session, copy, public).map(|()| true)?,
        None if usable => {
            proof::evidence(session, copy, algorithm)? == proof::evidence(session, fresh.key, algorithm)?
        }
        None => session.read(copy, A::VALUE)?.as_slice() == value,
    };
    if same { Ok(()) } else { Err(TokenError::Differs("it was created from its value changed")) }
}

/// Makes a session key from a value: a secret's bytes, a PKCS#8 private key, or an EC scalar or Ed25519 seed.
pub(super) fn from_value(
    session: &Session,
    passing: &mut Passing<'_>,
    algorithm: KeyAlgorithm,
    value: &[u8],
) -> Result<Fresh, TokenError> {
    let public = if algorithm.is_pair() { Some(public_of(algorithm, value)?) } else { None };
    let class = algorithm.resident_class();
    let base = template::key(algorithm, false, true, true)
        .usages(class, |usage| passing_usage(algorithm, &Attributes::new(), usage));
    let key = session.create(&with_value(base, algorithm, value)?)?;
    Ok(Fresh { key: passing.keep(key), public })
}

/// A value in its shortest shape: that of [`read_value`].
pub(super) fn bare_value(algorithm: KeyAlgorithm, value: &[u8]) -> Zeroizing<Vec<u8>> {
    match (algorithm, der::pkcs8(value)) {
        (KeyAlgorithm::Ec(_), Some(Pkcs8::Ec(_, bare)))
        | (KeyAlgorithm::Ed25519, Some(Pkcs8::Ed25519(bare))) => bare,
        _ => Zeroizing::new(value.to_vec()),
    }
}

/// Adds the attributes that make up a key's value.
pub(super) fn with_value(
    template: Template,
    algorithm: KeyAlgorithm,
    value: &[u8],
) -> Result<Template, TokenError> {
    const WRONG: TokenError = TokenError::BadInput("the value is no key of this kind");
    match algorithm {
        KeyAlgorithm::Aes { bits } if value.len() == usize::from(bits / 8) => {
            Ok(template.bytes(A::VALUE, value))
        }
        KeyAlgorithm::GenericSecret { bytes } if value.len() == usize::from(bytes) => {
            Ok(template.bytes(A::VALUE, value))
        }
        KeyAlgorithm::Aes { .. } | KeyAlgorithm::GenericSecret { .. } => Err(WRONG),
        KeyAlgorithm::Rsa { bits } => match der::pkcs8(value) {
            Some(Pkcs8::Rsa([n, e, d, p, q, dp, dq, qinv])) if n.len() * 8 == usize::from(bits) => {
                Ok(template
                    .bytes(A::MODULUS, &n)
                    .bytes(A::PUBLIC_EXPONENT, &e)
                    .bytes(PRIVATE_EXPONENT, &d)
                    .bytes(PRIME_1, &p)
                    .bytes(PRIME_2, &q)
                    .bytes(EXPONENT_1, &dp)
                    .bytes(EXPONENT_2, &dq)
                    .bytes(COEFFICIENT, &qinv))
            }
            _ => Err(WRONG),
        },
        KeyAlgorithm::Ec(curve) => {
            let scalar = match der::pkcs8(value) {
                Some(Pkcs8::Ec(params, scalar)) if params == curve_params(curve) => scalar,
                None if value.len() <= coordinate_bytes(curve) => Zeroizing::new(value.to_vec()),
                _ => return Err(WRONG),
            };
            Ok(template.bytes(A::EC_PARAMS, &curve_params(curve)).bytes(A::VALUE, &scalar))
        }
        KeyAlgorithm::Ed25519 => {
            let seed = match der::pkcs8(value) {
                Some(Pkcs8::Ed25519(seed)) => seed,
                None if value.len() == 32 => Zeroizing::new(value.to_vec()),
                _ => return Err(WRONG),
            };
            Ok(template.bytes(A::EC_PARAMS, &ED25519_PARAMS).bytes(A::VALUE, &seed))
        }
    }
}

/// The public key of a PKCS#8 private key.
fn public_of(algorithm: KeyAlgorithm, value: &[u8]) -> Result<PublicKey, TokenError> {
    const WRONG: TokenError = TokenError::BadInput("the value is no PKCS#8 private key of this kind");
    match algorithm {
        KeyAlgorithm::Rsa { .. } => {
            let pair = RsaKeyPair::from_pkcs8(value).map_err(|_| WRONG)?;
            let mut parts = Reader::new(pair.public_key().as_ref());
            let mut parts = parts.sequence().ok_or(WRONG)?;
            let modulus = parts.number().ok_or(WRONG)?.to_vec();
            Ok(PublicKey::Rsa(modulus, parts.number().ok_or(WRONG)?.to_vec()))
        }
        KeyAlgorithm::Ec(curve) => {
            let scheme = match curve {
                crate::domain::Curve::P256 => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
                crate::domain::Curve::P384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
                crate::domain::Curve::P521 => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
            };
            let pair = EcdsaKeyPair::from_pkcs8(scheme, value).map_err(|_| WRONG)?;
            Ok(PublicKey::Ec(curve_params(curve), pair.public_key().as_ref().to_vec()))
        }
        KeyAlgorithm::Ed25519 => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(value).map_err(|_| WRONG)?;
            Ok(PublicKey::Ed25519(pair.public_key().as_ref().to_vec()))
        }
        KeyAlgorithm::Aes { .. } | KeyAlgorithm::GenericSecret { .. } => Err(WRONG),
    }
}

/// The value of a readable session key, in the shape that [`with_value`] takes.
pub(super) fn read_value(
    session: &Session,
    key: Handle,
    algorithm: KeyAlgorithm,
) -> Result<Zeroizing<Vec<u8>>, TokenError> {
    if !matches!(algorithm, KeyAlgorithm::Rsa { .. }) {
        return Ok(session.read(key, A::VALUE)?);
    }
    let mut parts = Zeroizing::new(der::unsigned(&[]));
    let numbers = [
        A::MODULUS,
        A::PUBLIC_EXPONENT,
        PRIVATE_EXPONENT,
        PRIME_1,
        PRIME_2,
        EXPONENT_1,
        EXPONENT_2,
        COEFFICIENT,
    ];
    for number in numbers {
        parts.extend(Zeroizing::new(der::unsigned(&session.read(key, number)?)).iter());
    }
    Ok(der::rsa_pkcs8(&parts))
}

/// The public parts of a key, from its public object (or, for RSA, its private one).
pub(super) fn read_public(
    session: &Session,
    key: Handle,
    algorithm: KeyAlgorithm,
) -> Result<PublicKey, TokenError> {
    match algorithm {
        KeyAlgorithm::Rsa { .. } => {
            let number = |attribute| session.read(key, attribute).map(|n| der::trim(&n).to_vec());
            Ok(PublicKey::Rsa(number(A::MODULUS)?, number(A::PUBLIC_EXPONENT)?))
        }
        KeyAlgorithm::Ec(curve) => {
            let length = 1 + 2 * coordinate_bytes(curve);
            Ok(PublicKey::Ec(curve_params(curve), bare_point(&session.read(key, A::EC_POINT)?, length)?))
        }
        KeyAlgorithm::Ed25519 => Ok(PublicKey::Ed25519(bare_point(&session.read(key, A::EC_POINT)?, 32)?)),
        KeyAlgorithm::Aes { .. } | KeyAlgorithm::GenericSecret { .. } => {
            Err(TokenError::BadInput("a secret key has no public parts"))
        }
    }
}

/// Tokens give CKA_EC_POINT bare or as a DER OCTET STRING.
fn bare_point(point: &[u8], length: usize) -> Result<Vec<u8>, TokenError> {
    let inner = if point.len() == length { Some(point) } else { Reader::new(point).take(OCTET_STRING) };
    inner
        .filter(|inner| inner.len() == length)
        .map(<[u8]>::to_vec)
        .ok_or(TokenError::Differs("its public point has the wrong length"))
}

/// The public attributes that go into a record, as PKCS#11 shapes them.
pub(crate) fn public_facts(public: &PublicKey) -> Attributes {
    let mut facts = Attributes::from([(A::PUBLIC_KEY_INFO, V::Bytes(public.spki()))]);
    match public {
        PublicKey::Rsa(modulus, exponent) => {
            facts.insert(A::MODULUS, V::Bytes(modulus.clone()));
            facts.insert(A::PUBLIC_EXPONENT, V::Bytes(exponent.clone()));
        }
        PublicKey::Ec(params, point) => {
            facts.insert(A::EC_PARAMS, V::Bytes(params.clone()));
            facts.insert(A::EC_POINT, V::Bytes(element(OCTET_STRING, point)));
        }
        PublicKey::Ed25519(point) => {
            facts.insert(A::EC_PARAMS, V::Bytes(ED25519_PARAMS.to_vec()));
            facts.insert(A::EC_POINT, V::Bytes(element(OCTET_STRING, point)));
        }
    }
    facts
}

/// A public key as a session object with these usages.
pub(super) fn create_public(
    session: &Session,
    public: &PublicKey,
    usages: &[A],
) -> Result<Handle, TokenError> {
    let key_type = match public {
        PublicKey::Rsa(..) => ckk::RSA,
        PublicKey::Ec(..) => ckk::EC,
        PublicKey::Ed25519(_) => ckk::EC_EDWARDS,
    };
    let mut template = Template::default()
        .number(A::CLASS, ObjectClass::PublicKey.number())
        .number(A::KEY_TYPE, key_type)
        .flag(A::TOKEN, false)
        .flag(A::PRIVATE, false)
        .usages(ObjectClass::PublicKey, |usage| usages.contains(&usage));
    for (attribute, value) in public_facts(public) {
        match value {
            V::Bytes(bytes) if attribute != A::PUBLIC_KEY_INFO => {
                template = template.bytes(attribute, &bytes)
            }
            _ => {}
        }
    }
    Ok(session.create(&template)?)
}
