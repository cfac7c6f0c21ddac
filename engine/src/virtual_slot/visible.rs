//! What applications may read of an object: its record, with the class told and the value only where it may be read,
//! in the parts that PKCS#11 gives a private key.

use crate::domain::{AttributeRecord, AttributeType as A, AttributeValue as V, KeyAlgorithm, ObjectClass};
use crate::token::der::{self, Pkcs8};

/// The private parts of an RSA key, in the order of PKCS#8.
pub(super) const RSA_PARTS: [A; 8] = [
    A::MODULUS,
    A::PUBLIC_EXPONENT,
    A::PRIVATE_EXPONENT,
    A::PRIME_1,
    A::PRIME_2,
    A::EXPONENT_1,
    A::EXPONENT_2,
    A::COEFFICIENT,
];

/// The record as applications may see it, CKA_CLASS included. Readable: the value of certificates and data, and of
/// keys that are not sensitive and may leave (PKCS#11 v3.1, 4.9).
pub fn visible(record: &AttributeRecord) -> AttributeRecord {
    let mut seen = record.clone();
    seen.attributes.insert(A::CLASS, V::Number(record.class.number()));
    if !record.class.is_resident() {
        return seen;
    }
    let readable = !record.flag(A::SENSITIVE) && record.flag(A::EXTRACTABLE);
    if !readable {
        // Moved to the end of `seen`'s life, where it is wiped.
        let mut hidden = AttributeRecord { class: record.class, algorithm: None, attributes: [].into() };
        hidden.attributes.extend(seen.attributes.remove(&A::VALUE).map(|value| (A::VALUE, value)));
        return seen;
    }
    if record.class == ObjectClass::PrivateKey {
        show_parts(&mut seen);
    }
    seen
}

/// Puts a private key's parts in place of its PKCS#8.
fn show_parts(seen: &mut AttributeRecord) {
    let rsa = matches!(seen.algorithm, Some(KeyAlgorithm::Rsa { .. }));
    match der::pkcs8(seen.bytes(A::VALUE)) {
        Some(Pkcs8::Rsa(parts)) => {
            seen.attributes.remove(&A::VALUE);
            let parts = RSA_PARTS.into_iter().zip(parts);
            seen.attributes.extend(parts.map(|(part, number)| (part, V::Bytes(number.to_vec()))));
        }
        Some(Pkcs8::Ec(_, scalar) | Pkcs8::Ed25519(scalar)) => {
            seen.attributes.insert(A::VALUE, V::Bytes(scalar.to_vec()));
        }
        None if rsa => {
            seen.attributes.remove(&A::VALUE);
        }
        None => {}
    }
}
