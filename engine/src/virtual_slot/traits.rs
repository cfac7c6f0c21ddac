//! What a use or a search needs of an object, small enough to be kept in memory for each of them.

use crate::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, KeyAlgorithm, ObjectClass,
};

/// The boolean attributes, each one bit of a mask.
pub const FLAGS: [A; 22] = [
    A::TOKEN,
    A::PRIVATE,
    A::MODIFIABLE,
    A::COPYABLE,
    A::DESTROYABLE,
    A::SENSITIVE,
    A::EXTRACTABLE,
    A::LOCAL,
    A::NEVER_EXTRACTABLE,
    A::ALWAYS_SENSITIVE,
    A::ALWAYS_AUTHENTICATE,
    A::WRAP_WITH_TRUSTED,
    A::TRUSTED,
    A::ENCRYPT,
    A::DECRYPT,
    A::WRAP,
    A::UNWRAP,
    A::SIGN,
    A::SIGN_RECOVER,
    A::VERIFY,
    A::VERIFY_RECOVER,
    A::DERIVE,
];

/// Boolean attributes as two masks over [`FLAGS`]: which are there, and which of them are true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    present: u32,
    set: u32,
}

impl Flags {
    /// The boolean attributes of a record or template.
    pub fn of(attributes: &Attributes) -> Self {
        let mut flags = Self::default();
        for (bit, attribute) in FLAGS.iter().enumerate() {
            if let Some(V::Bool(value)) = attributes.get(attribute) {
                flags.present |= 1 << bit;
                flags.set |= u32::from(*value) << bit;
            }
        }
        flags
    }

    /// One of them; false if it is missing.
    pub fn is_set(self, attribute: A) -> bool {
        FLAGS.iter().position(|flag| *flag == attribute).is_some_and(|bit| self.set >> bit & 1 == 1)
    }

    /// True if every flag that `asked` names is there with the same value.
    pub fn satisfy(self, asked: Self) -> bool {
        self.present & asked.present == asked.present && self.set & asked.present == asked.set
    }
}

/// A date as PKCS#11 writes it: YYYYMMDD in digits. Dates compare as they stand.
pub type Date = [u8; 8];

/// What a use needs of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Its class.
    pub class: ObjectClass,
    /// Kind and size, for keys.
    pub algorithm: Option<KeyAlgorithm>,
    /// Its boolean attributes.
    pub flags: Flags,
    /// CKA_ALLOWED_MECHANISMS; empty allows all.
    pub allowed: Box<[u64]>,
    /// CKA_START_DATE
    pub start: Option<Date>,
    /// CKA_END_DATE
    pub end: Option<Date>,
}

impl Traits {
    /// The traits of a record.
    pub fn of(record: &AttributeRecord) -> Self {
        Self {
            class: record.class,
            algorithm: record.algorithm,
            flags: Flags::of(&record.attributes),
            allowed: record
                .bytes(A::ALLOWED_MECHANISMS)
                .as_chunks()
                .0
                .iter()
                .map(|number| u64::from_le_bytes(*number))
                .collect(),
            start: record.bytes(A::START_DATE).try_into().ok(),
            end: record.bytes(A::END_DATE).try_into().ok(),
        }
    }
}
