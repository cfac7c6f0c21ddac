//! Which attributes each class of object has, and how their values are shaped (PKCS#11 v3.1 section 4).

use super::traits::FLAGS;
use super::visible::RSA_PARTS;
use crate::domain::{AttributeType as A, AttributeValue as V, ObjectClass};
use crate::limits;

/// Attributes that only the group sets.
pub(super) const READ_ONLY: [A; 5] =
    [A::LOCAL, A::ALWAYS_SENSITIVE, A::NEVER_EXTRACTABLE, A::KEY_GEN_MECHANISM, A::UNIQUE_ID];

const STORAGE: [A; 7] =
    [A::CLASS, A::TOKEN, A::PRIVATE, A::MODIFIABLE, A::COPYABLE, A::DESTROYABLE, A::LABEL];
const KEY: [A; 6] = [A::KEY_TYPE, A::ID, A::START_DATE, A::END_DATE, A::DERIVE, A::ALLOWED_MECHANISMS];
const PUBLIC: [A; 13] = [
    A::SUBJECT,
    A::ENCRYPT,
    A::VERIFY,
    A::VERIFY_RECOVER,
    A::WRAP,
    A::TRUSTED,
    A::WRAP_TEMPLATE,
    A::PUBLIC_KEY_INFO,
    A::MODULUS,
    A::MODULUS_BITS,
    A::PUBLIC_EXPONENT,
    A::EC_PARAMS,
    A::EC_POINT,
];
const PRIVATE: [A; 14] = [
    A::SUBJECT,
    A::SENSITIVE,
    A::DECRYPT,
    A::SIGN,
    A::SIGN_RECOVER,
    A::UNWRAP,
    A::EXTRACTABLE,
    A::WRAP_WITH_TRUSTED,
    A::UNWRAP_TEMPLATE,
    A::DERIVE_TEMPLATE,
    A::ALWAYS_AUTHENTICATE,
    A::PUBLIC_KEY_INFO,
    A::EC_PARAMS,
    A::VALUE,
];
const SECRET: [A; 16] = [
    A::SENSITIVE,
    A::ENCRYPT,
    A::DECRYPT,
    A::SIGN,
    A::VERIFY,
    A::WRAP,
    A::UNWRAP,
    A::EXTRACTABLE,
    A::WRAP_WITH_TRUSTED,
    A::TRUSTED,
    A::WRAP_TEMPLATE,
    A::UNWRAP_TEMPLATE,
    A::DERIVE_TEMPLATE,
    A::CHECK_VALUE,
    A::VALUE,
    A::VALUE_LEN,
];
const CERTIFICATE: [A; 16] = [
    A::CERTIFICATE_TYPE,
    A::TRUSTED,
    A::CERTIFICATE_CATEGORY,
    A::CHECK_VALUE,
    A::START_DATE,
    A::END_DATE,
    A::PUBLIC_KEY_INFO,
    A::SUBJECT,
    A::ID,
    A::ISSUER,
    A::SERIAL_NUMBER,
    A::VALUE,
    A::URL,
    A::HASH_OF_SUBJECT_PUBLIC_KEY,
    A::HASH_OF_ISSUER_PUBLIC_KEY,
    A::NAME_HASH_ALGORITHM,
];
const DATA: [A; 3] = [A::APPLICATION, A::OBJECT_ID, A::VALUE];

/// Parts of a key's value and of its kind: they make up the key, and are no attributes of the plan.
const VALUE_PARTS: [A; 16] = [
    A::CLASS,
    A::KEY_TYPE,
    A::VALUE,
    A::VALUE_LEN,
    A::CHECK_VALUE,
    A::PUBLIC_KEY_INFO,
    A::MODULUS_BITS,
    A::MODULUS,
    A::PUBLIC_EXPONENT,
    A::EC_PARAMS,
    A::EC_POINT,
    A::PRIVATE_EXPONENT,
    A::PRIME_1,
    A::PRIME_2,
    A::EXPONENT_1,
    A::EXPONENT_2,
];

pub(super) fn is_value_part(attribute: A) -> bool {
    VALUE_PARTS.contains(&attribute) || attribute == A::COEFFICIENT
}

pub(super) fn belongs(class: ObjectClass, attribute: A) -> bool {
    let own = match class {
        ObjectClass::Data => DATA.contains(&attribute),
        ObjectClass::Certificate => CERTIFICATE.contains(&attribute),
        ObjectClass::PublicKey => KEY.contains(&attribute) || PUBLIC.contains(&attribute),
        ObjectClass::PrivateKey => {
            KEY.contains(&attribute) || PRIVATE.contains(&attribute) || RSA_PARTS.contains(&attribute)
        }
        ObjectClass::SecretKey => KEY.contains(&attribute) || SECRET.contains(&attribute),
    };
    own || STORAGE.contains(&attribute) || READ_ONLY.contains(&attribute)
}

/// True if a value has the shape that PKCS#11 gives the attribute.
pub(super) fn is_shaped(attribute: A, value: &V) -> bool {
    match attribute {
        A::CLASS
        | A::KEY_TYPE
        | A::CERTIFICATE_TYPE
        | A::CERTIFICATE_CATEGORY
        | A::NAME_HASH_ALGORITHM
        | A::MODULUS_BITS
        | A::VALUE_LEN
        | A::KEY_GEN_MECHANISM => matches!(value, V::Number(_)),
        A::START_DATE | A::END_DATE => {
            matches!(value, V::Bytes(date) if date.is_empty() || date.len() == 8 && date.iter().all(u8::is_ascii_digit))
        }
        A::ALLOWED_MECHANISMS => matches!(value, V::Bytes(list) if list.len() % 8 == 0),
        A::WRAP_TEMPLATE | A::UNWRAP_TEMPLATE | A::DERIVE_TEMPLATE => {
            matches!(value, V::Template(inner) if inner.len() <= limits::ATTRIBUTES_MAX
                && !inner.values().any(|inner| matches!(inner, V::Template(_))))
        }
        A::LABEL | A::ID => matches!(value, V::Bytes(text) if text.len() <= limits::TEXT_MAX_BYTES),
        flag if FLAGS.contains(&flag) => matches!(value, V::Bool(_)),
        _ => matches!(value, V::Bytes(bytes) if bytes.len() <= limits::ATTRIBUTE_MAX_BYTES),
    }
}
