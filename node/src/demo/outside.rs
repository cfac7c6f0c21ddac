//! Verification outside every token: another library, with nothing but the public key.

use crate::mechanism::Named;
use crate::text;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use keyraft_engine::domain::{AttributeType, AttributeValue};
use keyraft_engine::wire::ObjectRow;

fn bytes(row: &ObjectRow, which: AttributeType) -> Option<&[u8]> {
    match row.attributes.get(&which) {
        Some(AttributeValue::Bytes(bytes)) if !bytes.is_empty() => Some(bytes),
        _ => None,
    }
}

/// The key as aws-lc-rs wants it: from the SubjectPublicKeyInfo, or else from CKA_EC_POINT (an OCTET STRING).
fn public_key(row: &ObjectRow) -> Option<&[u8]> {
    if let Some(spki) = bytes(row, AttributeType::PUBLIC_KEY_INFO) {
        return text::public_key_of(spki);
    }
    let (0x04, point, []) = text::der_element(bytes(row, AttributeType::EC_POINT)?)? else { return None };
    Some(point)
}

/// True if the signature over the data is good. The signature is as PKCS#11 gives it.
pub fn verifies(row: &ObjectRow, named: Named, data: &[u8], signature: &[u8]) -> bool {
    let algorithm: &dyn VerificationAlgorithm = match named {
        Named::EcdsaSha256 => &ECDSA_P256_SHA256_FIXED,
        Named::EcdsaSha384 => &ECDSA_P384_SHA384_FIXED,
        Named::EcdsaSha512 => &ECDSA_P521_SHA512_FIXED,
        Named::Eddsa => &ED25519,
        Named::RsaPssSha256 => &RSA_PSS_2048_8192_SHA256,
        _ => return false,
    };
    public_key(row).is_some_and(|key| UnparsedPublicKey::new(algorithm, key).verify(data, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use keyraft_engine::domain::{ObjectClass, ObjectId};

    fn row(which: AttributeType, value: Vec<u8>) -> ObjectRow {
        ObjectRow {
            object: ObjectId(1),
            class: ObjectClass::PublicKey,
            algorithm: None,
            attributes: [(which, AttributeValue::Bytes(value))].into(),
        }
    }

    #[test]
    fn good_and_bad_signatures() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("makes a key");
        let signature = pair.sign(&SystemRandom::new(), b"data").expect("signs");
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("writes");
        let point = [&[0x04, 65][..], pair.public_key().as_ref()].concat();
        for row in
            [row(AttributeType::PUBLIC_KEY_INFO, spki.as_ref().to_vec()), row(AttributeType::EC_POINT, point)]
        {
            assert!(verifies(&row, Named::EcdsaSha256, b"data", signature.as_ref()));
            assert!(!verifies(&row, Named::EcdsaSha256, b"other", signature.as_ref()));
        }
        let pair = Ed25519KeyPair::generate().expect("makes a key");
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("writes");
        let row = row(AttributeType::PUBLIC_KEY_INFO, spki.as_ref().to_vec());
        assert!(verifies(&row, Named::Eddsa, b"data", pair.sign(b"data").as_ref()));
        assert!(!verifies(&row, Named::RsaPssSha256, b"data", pair.sign(b"data").as_ref()));
    }
}
