//! Attribute templates as tokens are given them: ordered, every usage flag explicit, and wiped when dropped.

use crate::domain::{AttributeType, AttributeValue, KeyAlgorithm, ObjectClass};
use zeroize::Zeroize;

/// An ordered list of attributes. SoftHSM checks each attribute in turn, so CKA_MODIFIABLE=false must come last.
#[derive(Clone, Default)]
pub(super) struct Template(Vec<(AttributeType, AttributeValue)>);

impl Template {
    pub fn flag(mut self, attribute: AttributeType, value: bool) -> Self {
        self.0.push((attribute, AttributeValue::Bool(value)));
        self
    }

    pub fn number(mut self, attribute: AttributeType, value: u64) -> Self {
        self.0.push((attribute, AttributeValue::Number(value)));
        self
    }

    pub fn bytes(mut self, attribute: AttributeType, value: &[u8]) -> Self {
        self.0.push((attribute, AttributeValue::Bytes(value.to_vec())));
        self
    }

    pub fn nested(mut self, attribute: AttributeType, flags: &[(AttributeType, bool)]) -> Self {
        let map = flags.iter().map(|(a, v)| (*a, AttributeValue::Bool(*v))).collect();
        self.0.push((attribute, AttributeValue::Template(map)));
        self
    }

    /// Every usage flag of a class: those in `granted` true, the others false. Tokens differ in their defaults.
    pub fn usages(mut self, class: ObjectClass, granted: impl Fn(AttributeType) -> bool) -> Self {
        for &usage in class.usages() {
            self = self.flag(usage, granted(usage));
        }
        self
    }

    pub fn attributes(&self) -> &[(AttributeType, AttributeValue)] {
        &self.0
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        for (_, value) in &mut self.0 {
            if let AttributeValue::Bytes(bytes) = value {
                bytes.zeroize();
            }
        }
    }
}

/// A session or token object of a class and kind, private, with SENSITIVE and EXTRACTABLE said.
pub(super) fn key(algorithm: KeyAlgorithm, token: bool, sensitive: bool, extractable: bool) -> Template {
    Template::default()
        .number(AttributeType::CLASS, algorithm.resident_class().number())
        .number(AttributeType::KEY_TYPE, algorithm.key_type())
        .flag(AttributeType::TOKEN, token)
        .flag(AttributeType::PRIVATE, true)
        .flag(AttributeType::SENSITIVE, sensitive)
        .flag(AttributeType::EXTRACTABLE, extractable)
}
