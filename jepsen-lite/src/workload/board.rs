//! What clients know together: keys that somebody made or found.

use std::collections::BTreeMap;

/// A key that some client knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The object's number.
    pub key: i64,
    /// Known once somebody made it or looked.
    pub tag: Option<String>,
    /// The number that it was last told to hold.
    pub number: Option<i64>,
    /// Calls about it, where they are counted.
    pub calls: u32,
}

/// Keys that some client knows of, by label. All clients share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    keys: BTreeMap<String, Vec<Known>>,
    /// Creations under each label, answered or not.
    tried: BTreeMap<String, usize>,
}

impl Board {
    pub(super) fn of(&self, label: &str) -> &[Known] {
        self.keys.get(label).map(Vec::as_slice).unwrap_or_default()
    }

    /// How many creations were tried under a label.
    pub(super) fn tried(&self, label: &str) -> usize {
        self.tried.get(label).copied().unwrap_or(0)
    }

    pub(super) fn tries(&mut self, label: &str) {
        *self.tried.entry(label.into()).or_default() += 1;
    }

    pub(super) fn get_mut(&mut self, label: &str, key: i64) -> Option<&mut Known> {
        self.keys.get_mut(label)?.iter_mut().find(|known| known.key == key)
    }

    /// Learns of a key, if it is new.
    pub(super) fn learn(&mut self, label: &str, key: i64, tag: Option<String>) {
        let known = self.keys.entry(label.into()).or_default();
        if !known.iter().any(|one| one.key == key) {
            known.push(Known { key, tag, number: None, calls: 0 });
        }
    }

    pub(super) fn forget(&mut self, label: &str, key: i64) {
        if let Some(known) = self.keys.get_mut(label) {
            known.retain(|one| one.key != key);
        }
    }
}
