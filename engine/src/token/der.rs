//! The little DER that public keys and PKCS#8 need.

use zeroize::Zeroizing;

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT: u8 = 0x06;
pub(crate) const NULL: u8 = 0x05;

/// One element: tag, length, content.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=0x7F => out.push(u8::try_from(short).expect("at most 0x7F")),
        long => {
            let bytes = long.to_be_bytes();
            let digits = &bytes[bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len() - 1)..];
            out.push(0x80 | u8::try_from(digits.len()).expect("a length has at most 8 bytes"));
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

/// An unsigned big-endian number as INTEGER.
pub(crate) fn unsigned(number: &[u8]) -> Vec<u8> {
    let digits = trim(number);
    let mut content = Vec::with_capacity(digits.len() + 1);
    if digits.first().is_none_or(|byte| byte & 0x80 != 0) {
        content.push(0);
    }
    content.extend_from_slice(digits);
    element(INTEGER, &content)
}

/// Without leading zeros.
pub(crate) fn trim(number: &[u8]) -> &[u8] {
    &number[number.iter().position(|byte| *byte != 0).unwrap_or(number.len())..]
}

/// Reads elements one after the other.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The content of the next element, which must bear this tag.
    pub fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&found, rest) = self.0.split_first()?;
        if found != tag {
            return None;
        }
        let (&first, mut rest) = rest.split_first()?;
        let length = if first & 0x80 == 0 {
            usize::from(first)
        } else {
            let digits = usize::from(first & 0x7F);
            if digits == 0 || digits > 4 || rest.len() < digits {
                return None;
            }
            let (number, after) = rest.split_at(digits);
            rest = after;
            number.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some(content)
    }

    /// The elements inside the next SEQUENCE.
    pub fn sequence(&mut self) -> Option<Reader<'a>> {
        self.take(SEQUENCE).map(Reader)
    }

    /// The next INTEGER, unsigned, without leading zeros.
    pub fn number(&mut self) -> Option<&'a [u8]> {
        self.take(INTEGER).map(trim)
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// The private parts of a PKCS#8 key.
pub(crate) enum Pkcs8 {
    /// n, e, d, p, q, dp, dq, qinv.
    Rsa([Zeroizing<Vec<u8>>; 8]),
    /// Curve parameters and the scalar.
    Ec(Vec<u8>, Zeroizing<Vec<u8>>),
    /// The seed.
    Ed25519(Zeroizing<Vec<u8>>),
}

const RSA_OID: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01];
pub(crate) const EC_OID: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
pub(crate) const ED25519_OID: &[u8] = &[0x2B, 0x65, 0x70];

/// Reads a PKCS#8 PrivateKeyInfo; None if it is none, or of an unknown kind.
pub(crate) fn pkcs8(bytes: &[u8]) -> Option<Pkcs8> {
    let mut info = Reader::new(bytes).sequence()?;
    info.number()?;
    let mut algorithm = info.sequence()?;
    let oid = algorithm.take(OBJECT)?;
    let private = info.take(OCTET_STRING)?;
    if oid == RSA_OID {
        let mut key = Reader::new(private).sequence()?;
        key.number()?;
        let mut next = || key.number().map(|number| Zeroizing::new(number.to_vec()));
        return Some(Pkcs8::Rsa([next()?, next()?, next()?, next()?, next()?, next()?, next()?, next()?]));
    }
    if oid == EC_OID {
        let mut key = Reader::new(private).sequence()?;
        key.number()?;
        let scalar = key.take(OCTET_STRING)?;
        return Some(Pkcs8::Ec(algorithm.rest().to_vec(), Zeroizing::new(scalar.to_vec())));
    }
    if oid == ED25519_OID {
        let seed = Reader::new(private).take(OCTET_STRING)?;
        return Some(Pkcs8::Ed25519(Zeroizing::new(seed.to_vec())));
    }
    None
}

/// SubjectPublicKeyInfo of an RSA key.
pub(crate) fn rsa_spki(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let algorithm = element(SEQUENCE, &[element(OBJECT, RSA_OID), element(NULL, &[])].concat());
    let key = element(SEQUENCE, &[unsigned(modulus), unsigned(exponent)].concat());
    spki(&algorithm, &key)
}

/// SubjectPublicKeyInfo of an EC key: `params` in DER, the point uncompressed.
pub(crate) fn ec_spki(params: &[u8], point: &[u8]) -> Vec<u8> {
    spki(&element(SEQUENCE, &[element(OBJECT, EC_OID), params.to_vec()].concat()), point)
}

/// SubjectPublicKeyInfo of an Ed25519 key.
pub(crate) fn ed25519_spki(point: &[u8]) -> Vec<u8> {
    spki(&element(SEQUENCE, &element(OBJECT, ED25519_OID)), point)
}

fn spki(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let bits = [&[0u8][..], key].concat();
    element(SEQUENCE, &[algorithm, &element(BIT_STRING, &bits)].concat())
}

/// PKCS#8 of an RSA key, from its version and eight numbers in DER.
pub(crate) fn rsa_pkcs8(numbers: &[u8]) -> Zeroizing<Vec<u8>> {
    let key = Zeroizing::new(element(SEQUENCE, numbers));
    let algorithm = element(SEQUENCE, &[element(OBJECT, RSA_OID), element(NULL, &[])].concat());
    let key = Zeroizing::new(element(OCTET_STRING, &key));
    let info = Zeroizing::new([&unsigned(&[])[..], &algorithm, &key].concat());
    Zeroizing::new(element(SEQUENCE, &info))
}

/// The parts of a public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// Modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// Parameters in DER and the uncompressed point.
    Ec(Vec<u8>, Vec<u8>),
    /// The point.
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut info = Reader::new(bytes).sequence()?;
        let mut algorithm = info.sequence()?;
        let oid = algorithm.take(OBJECT)?;
        let key = info.take(BIT_STRING)?.strip_prefix(&[0])?;
        if oid == RSA_OID {
            let mut parts = Reader::new(key).sequence()?;
            return Some(Self::Rsa(parts.number()?.to_vec(), parts.number()?.to_vec()));
        }
        if oid == EC_OID {
            return Some(Self::Ec(algorithm.rest().to_vec(), key.to_vec()));
        }
        (oid == ED25519_OID).then(|| Self::Ed25519(key.to_vec()))
    }

    /// Writes the SubjectPublicKeyInfo.
    pub fn spki(&self) -> Vec<u8> {
        match self {
            Self::Rsa(modulus, exponent) => rsa_spki(modulus, exponent),
            Self::Ec(params, point) => ec_spki(params, point),
            Self::Ed25519(point) => ed25519_spki(point),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};

    #[test]
    fn public_keys_are_written_as_others_write_them() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        let der: PublicKeyX509Der = pair.public_key().as_der().unwrap();
        let parsed = PublicKey::parse(der.as_ref()).unwrap();
        assert_eq!(parsed.spki(), der.as_ref());
        let pair = Ed25519KeyPair::generate().unwrap();
        let der: PublicKeyX509Der = pair.public_key().as_der().unwrap();
        assert_eq!(PublicKey::parse(der.as_ref()).unwrap().spki(), der.as_ref());
        assert_eq!(
            PublicKey::parse(&rsa_spki(&[0xFF; 256], &[1, 0, 1])),
            Some(PublicKey::Rsa(vec![0xFF; 256], vec![1, 0, 1]))
        );
    }

    #[test]
    fn garbage_is_none() {
        for bad in [&b""[..], &[0x30], &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], &[0x30, 0x03, 2, 1, 0]] {
            assert!(PublicKey::parse(bad).is_none() && pkcs8(bad).is_none());
        }
    }
}
