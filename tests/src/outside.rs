//! Verification outside every token: another library, with nothing but the public key.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use keyraft_engine::domain::{AttributeType, AttributeValue};
use keyraft_engine::wire::ObjectRow;
use keyraft_node::mechanism::Named;
use keyraft_node::text;

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
