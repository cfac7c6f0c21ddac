//! Attributes as PKCS#11 numbers them (v3.1 section 4), and the record that answers for an object.
//! Tokens answer many of them wrongly after an import, so the record is what applications see.

use super::key::KeyAlgorithm;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use zeroize::Zeroizing;

/// A CKA_ number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttributeType(pub u64);

/// An attribute's value in the shape PKCS#11 gives it. Order is the log format: add at the end.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeValue {
    /// CK_BBOOL
    Bool(bool),
    /// CK_ULONG
    Number(u64),
    /// Byte array, string, big integer or date.
    Bytes(Vec<u8>),
    /// CKA_WRAP_TEMPLATE and its kin.
    Template(#[serde(deserialize_with = "flat")] BTreeMap<AttributeType, AttributeValue>),
}

/// A template's values are no templates themselves: nested bytes from the wire must not become nested calls.
fn flat<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<AttributeType, AttributeValue>, D::Error> {
    #[derive(Deserialize)]
    enum Flat {
        Bool(bool),
        Number(u64),
        Bytes(Vec<u8>),
    }
    let map = BTreeMap::<AttributeType, Flat>::deserialize(from)?;
    let value = |flat| match flat {
        Flat::Bool(value) => AttributeValue::Bool(value),
        Flat::Number(value) => AttributeValue::Number(value),
        Flat::Bytes(value) => AttributeValue::Bytes(value),
    };
    Ok(map.into_iter().map(|(attribute, flat)| (attribute, value(flat))).collect())
}

/// Values can be key material, so they are never printed: only their shape is.
impl fmt::Debug for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Bytes(bytes) => write!(f, "<{} bytes>", bytes.len()),
            Self::Template(map) => write!(f, "<{} attributes>", map.len()),
        }
    }
}

macro_rules! attributes {
    ($($name:ident = $number:literal;)*) => {
        impl AttributeType {
            $(
                #[doc = concat!("CKA_", stringify!($name))]
                pub const $name: Self = Self($number);
            )*
        }

        impl fmt::Display for AttributeType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str(concat!("CKA_", stringify!($name))),)*
                    other => write!(f, "CKA_0x{other:08X}"),
                }
            }
        }
    };
}

attributes! {
    CLASS = 0x000;
    TOKEN = 0x001;
    PRIVATE = 0x002;
    LABEL = 0x003;
    APPLICATION = 0x010;
    VALUE = 0x011;
    OBJECT_ID = 0x012;
    CERTIFICATE_TYPE = 0x080;
    ISSUER = 0x081;
    SERIAL_NUMBER = 0x082;
    TRUSTED = 0x086;
    CERTIFICATE_CATEGORY = 0x087;
    URL = 0x089;
    HASH_OF_SUBJECT_PUBLIC_KEY = 0x08A;
    HASH_OF_ISSUER_PUBLIC_KEY = 0x08B;
    NAME_HASH_ALGORITHM = 0x08C;
    CHECK_VALUE = 0x090;
    KEY_TYPE = 0x100;
    SUBJECT = 0x101;
    ID = 0x102;
    SENSITIVE = 0x103;
    ENCRYPT = 0x104;
    DECRYPT = 0x105;
    WRAP = 0x106;
    UNWRAP = 0x107;
    SIGN = 0x108;
    SIGN_RECOVER = 0x109;
    VERIFY = 0x10A;
    VERIFY_RECOVER = 0x10B;
    DERIVE = 0x10C;
    START_DATE = 0x110;
    END_DATE = 0x111;
    MODULUS = 0x120;
    MODULUS_BITS = 0x121;
    PUBLIC_EXPONENT = 0x122;
    PRIVATE_EXPONENT = 0x123;
    PRIME_1 = 0x124;
    PRIME_2 = 0x125;
    EXPONENT_1 = 0x126;
    EXPONENT_2 = 0x127;
    COEFFICIENT = 0x128;
    PUBLIC_KEY_INFO = 0x129;
    VALUE_LEN = 0x161;
    EXTRACTABLE = 0x162;
    LOCAL = 0x163;
    NEVER_EXTRACTABLE = 0x164;
    ALWAYS_SENSITIVE = 0x165;
    KEY_GEN_MECHANISM = 0x166;
    MODIFIABLE = 0x170;
    COPYABLE = 0x171;
    DESTROYABLE = 0x172;
    EC_PARAMS = 0x180;
    EC_POINT = 0x181;
    ALWAYS_AUTHENTICATE = 0x202;
    WRAP_WITH_TRUSTED = 0x210;
    UNIQUE_ID = 0x004;
    WRAP_TEMPLATE = 0x4000_0211;
    UNWRAP_TEMPLATE = 0x4000_0212;
    DERIVE_TEMPLATE = 0x4000_0213;
    ALLOWED_MECHANISMS = 0x4000_0600;
}

impl AttributeType {
    /// True for the flags that say what a key may be used for.
    pub fn is_usage(self) -> bool {
        use ObjectClass as C;
        [C::SecretKey, C::PrivateKey, C::PublicKey].iter().any(|class| class.usages().contains(&self))
    }
}

/// CKO_ numbers that a group keeps. Order is the log format: add at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectClass {
    /// CKO_DATA
    Data,
    /// CKO_CERTIFICATE
    Certificate,
    /// CKO_PUBLIC_KEY
    PublicKey,
    /// CKO_PRIVATE_KEY
    PrivateKey,
    /// CKO_SECRET_KEY
    SecretKey,
}

impl ObjectClass {
    /// The CKO_ number.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// The class of a CKO_ number, where a group keeps it.
    pub fn of_number(number: u64) -> Option<Self> {
        [Self::Data, Self::Certificate, Self::PublicKey, Self::PrivateKey, Self::SecretKey]
            .into_iter()
            .find(|class| class.number() == number)
    }

    /// The usage flags that objects of the class have.
    pub fn usages(self) -> &'static [AttributeType] {
        use AttributeType as A;
        match self {
            Self::SecretKey => &[A::ENCRYPT, A::DECRYPT, A::SIGN, A::VERIFY, A::WRAP, A::UNWRAP, A::DERIVE],
            Self::PrivateKey => &[A::DECRYPT, A::SIGN, A::SIGN_RECOVER, A::UNWRAP, A::DERIVE],
            Self::PublicKey => &[A::ENCRYPT, A::VERIFY, A::VERIFY_RECOVER, A::WRAP, A::DERIVE],
            Self::Data | Self::Certificate => &[],
        }
    }

    /// True where the object must be imported into tokens; the others live in the record alone.
    pub fn is_resident(self) -> bool {
        matches!(self, Self::PrivateKey | Self::SecretKey)
    }
}

impl fmt::Display for ObjectClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Certificate => "certificate",
            Self::PublicKey => "public",
            Self::PrivateKey => "private",
            Self::SecretKey => "secret",
        })
    }
}

/// Attributes by number.
pub type Attributes = BTreeMap<AttributeType, AttributeValue>;

/// Everything an application can learn of an object. Travels sealed inside the envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeRecord {
    /// CKA_CLASS.
    pub class: ObjectClass,
    /// Kind and size, for keys.
    pub algorithm: Option<KeyAlgorithm>,
    /// Every attribute that applications see, CLASS and KEY_TYPE excepted. CKA_VALUE is here only for
    /// certificates, data and keys with SENSITIVE=false and EXTRACTABLE=true.
    pub attributes: Attributes,
}

impl AttributeRecord {
    /// A boolean attribute; false if it is missing.
    pub fn flag(&self, attribute: AttributeType) -> bool {
        matches!(self.attributes.get(&attribute), Some(AttributeValue::Bool(true)))
    }

    /// A byte-array attribute; empty if it is missing.
    pub fn bytes(&self, attribute: AttributeType) -> &[u8] {
        match self.attributes.get(&attribute) {
            Some(AttributeValue::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    /// CKA_LABEL as text; anything that is not UTF-8 is replaced.
    pub fn label(&self) -> String {
        String::from_utf8_lossy(self.bytes(AttributeType::LABEL)).into_owned()
    }
}

impl Drop for AttributeRecord {
    fn drop(&mut self) {
        if let Some(AttributeValue::Bytes(bytes)) = self.attributes.get_mut(&AttributeType::VALUE) {
            drop(Zeroizing::new(std::mem::take(bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn templates_nest_once() {
        let leaf = Attributes::from([(AttributeType::SENSITIVE, AttributeValue::Bool(true))]);
        let once = AttributeValue::Template(leaf);
        let bytes = codec::encode(&once).expect("encodes");
        assert_eq!(codec::decode::<AttributeValue>(&bytes, 1024), Ok(once.clone()));
        let twice = AttributeValue::Template(Attributes::from([(AttributeType::UNWRAP_TEMPLATE, once)]));
        let bytes = codec::encode(&twice).expect("encodes");
        assert!(codec::decode::<AttributeValue>(&bytes, 1024).is_err());
    }
}
