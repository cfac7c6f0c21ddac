//! Attributes between C's bytes and the record's values.

use crate::rv::{Result, Rv};
use cryptoki_sys::CKR_ATTRIBUTE_VALUE_INVALID;
use keyraft_engine::domain::{AttributeRecord, AttributeType as A, AttributeValue, Attributes};

/// How an attribute's value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// CK_BBOOL
    Flag,
    /// CK_ULONG
    Number,
    /// CK_ATTRIBUTE[]
    Template,
    /// Anything else: taken as it is.
    Bytes,
}

/// The shape of an attribute's value (PKCS#11 v3.1 section 4). What is not known travels as bytes, and members refuse
/// it.
pub(crate) fn shape(attribute: A) -> Shape {
    match attribute {
        A::TOKEN
        | A::PRIVATE
        | A::TRUSTED
        | A::SENSITIVE
        | A::ENCRYPT
        | A::DECRYPT
        | A::WRAP
        | A::UNWRAP
        | A::SIGN
        | A::SIGN_RECOVER
        | A::VERIFY
        | A::VERIFY_RECOVER
        | A::DERIVE
        | A::EXTRACTABLE
        | A::LOCAL
        | A::NEVER_EXTRACTABLE
        | A::ALWAYS_SENSITIVE
        | A::MODIFIABLE
        | A::COPYABLE
        | A::DESTROYABLE
        | A::ALWAYS_AUTHENTICATE
        | A::WRAP_WITH_TRUSTED => Shape::Flag,
        A::CLASS
        | A::CERTIFICATE_TYPE
        | A::KEY_TYPE
        | A::MODULUS_BITS
        | A::VALUE_LEN
        | A::KEY_GEN_MECHANISM => Shape::Number,
        A(CERTIFICATE_CATEGORY | JAVA_MIDP_SECURITY_DOMAIN | NAME_HASH_ALGORITHM) => Shape::Number,
        A::WRAP_TEMPLATE | A::UNWRAP_TEMPLATE | A::DERIVE_TEMPLATE => Shape::Template,
        _ => Shape::Bytes,
    }
}

const CERTIFICATE_CATEGORY: u64 = 0x87;
const JAVA_MIDP_SECURITY_DOMAIN: u64 = 0x88;
const NAME_HASH_ALGORITHM: u64 = 0x8C;

/// A value from C's bytes; templates are read by the caller.
pub(crate) fn value(attribute: A, bytes: &[u8]) -> Result<AttributeValue> {
    const INVALID: Rv = Rv(CKR_ATTRIBUTE_VALUE_INVALID);
    match shape(attribute) {
        Shape::Flag => match bytes {
            [byte] => Ok(AttributeValue::Bool(*byte != 0)),
            _ => Err(INVALID),
        },
        Shape::Number => {
            let number = bytes.try_into().map_err(|_| INVALID)?;
            Ok(AttributeValue::Number(u64::from_ne_bytes(number)))
        }
        Shape::Bytes => Ok(AttributeValue::Bytes(bytes.to_vec())),
        Shape::Template => Err(INVALID),
    }
}

/// Why an attribute cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is part of a key that does not show it.
    Sensitive,
    /// The object has no such attribute.
    Unknown,
}

/// One attribute of a record, as C callers see it.
pub(crate) fn read(
    record: &AttributeRecord,
    attribute: A,
) -> std::result::Result<AttributeValue, Unreadable> {
    if attribute == A::CLASS {
        return Ok(AttributeValue::Number(record.class.number()));
    }
    if let Some(value) = record.attributes.get(&attribute) {
        return Ok(value.clone());
    }
    let secret = record.class.is_resident() && is_key_part(attribute);
    Err(if secret { Unreadable::Sensitive } else { Unreadable::Unknown })
}

/// Parts of keys that are never public.
fn is_key_part(attribute: A) -> bool {
    const PRIVATE_EXPONENT: u64 = 0x123;
    const COEFFICIENT: u64 = 0x128;
    attribute == A::VALUE || (PRIVATE_EXPONENT..=COEFFICIENT).contains(&attribute.0)
}

/// A value's bytes as C has them; templates are written by the caller.
pub(crate) fn bytes(value: &AttributeValue) -> Vec<u8> {
    match value {
        AttributeValue::Bool(flag) => vec![u8::from(*flag)],
        AttributeValue::Number(number) => number.to_ne_bytes().to_vec(),
        AttributeValue::Bytes(bytes) => bytes.clone(),
        AttributeValue::Template(_) => Vec::new(),
    }
}

/// True if a record has every attribute of a template.
pub(crate) fn matches(record: &AttributeRecord, template: &Attributes) -> bool {
    template.iter().all(|(attribute, wanted)| read(record, *attribute).as_ref() == Ok(wanted))
}

/// A flag of a template.
pub(crate) fn flag(template: &Attributes, attribute: A) -> Option<bool> {
    match template.get(&attribute) {
        Some(AttributeValue::Bool(flag)) => Some(*flag),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::ObjectClass;

    #[test]
    fn values_have_the_length_of_their_shape() {
        assert_eq!(value(A::TOKEN, &[1]), Ok(AttributeValue::Bool(true)));
        assert_eq!(value(A::CLASS, &3u64.to_ne_bytes()), Ok(AttributeValue::Number(3)));
        assert_eq!(value(A::LABEL, b"x"), Ok(AttributeValue::Bytes(b"x".to_vec())));
        for (attribute, bytes) in [(A::TOKEN, &[][..]), (A::TOKEN, &[0, 0]), (A::CLASS, &[1])] {
            assert_eq!(value(attribute, bytes), Err(Rv(CKR_ATTRIBUTE_VALUE_INVALID)), "{attribute}");
        }
    }

    #[test]
    fn what_a_key_hides_is_sensitive_and_the_rest_unknown() {
        let record = AttributeRecord {
            class: ObjectClass::SecretKey,
            algorithm: None,
            attributes: [(A::LABEL, AttributeValue::Bytes(b"k".to_vec()))].into(),
        };
        assert_eq!(read(&record, A::VALUE), Err(Unreadable::Sensitive));
        assert_eq!(read(&record, A(0x125)), Err(Unreadable::Sensitive));
        assert_eq!(read(&record, A::SUBJECT), Err(Unreadable::Unknown));
        assert_eq!(read(&record, A::CLASS), Ok(AttributeValue::Number(4)));
        let template = |label: &[u8]| Attributes::from([(A::LABEL, AttributeValue::Bytes(label.to_vec()))]);
        assert!(matches(&record, &template(b"k")) && !matches(&record, &template(b"j")));
    }
}
