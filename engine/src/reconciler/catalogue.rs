//! An index entry an object, from its opened record: what lists, lookups and uses need without opening an
//! envelope again. Records themselves stay in the store.

use crate::domain::{AttributeRecord, AttributeType, KeyAlgorithm, ObjectClass, ObjectId, Version};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is kept in memory of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The version that was opened.
    pub version: Version,
    /// Its class.
    pub class: ObjectClass,
    /// Kind and size.
    pub algorithm: Option<KeyAlgorithm>,
    /// CKA_LABEL.
    pub label: String,
    /// CKA_ID.
    pub id: Vec<u8>,
}

impl Entry {
    /// The entry of a record.
    pub fn of(version: Version, record: &AttributeRecord) -> Self {
        Self {
            version,
            class: record.class,
            algorithm: record.algorithm,
            label: record.label(),
            id: record.bytes(AttributeType::ID).to_vec(),
        }
    }
}

#[derive(Default)]
struct Shelves {
    entries: BTreeMap<ObjectId, Entry>,
    by_label: HashMap<String, BTreeSet<ObjectId>>,
}

/// The index of all agreed objects, whatever their phase.
#[derive(Default)]
pub struct Catalogue(RwLock<Shelves>);

impl Catalogue {
    /// Enters an object, in place of an older version.
    pub fn enter(&self, object: ObjectId, entry: Entry) {
        let mut shelves = self.0.write();
        shelves.remove(object);
        shelves.by_label.entry(entry.label.clone()).or_default().insert(object);
        shelves.entries.insert(object, entry);
    }

    /// Takes an object out.
    pub fn remove(&self, object: ObjectId) {
        self.0.write().remove(object);
    }

    /// One object's entry.
    pub fn entry(&self, object: ObjectId) -> Option<Entry> {
        self.0.read().entries.get(&object).cloned()
    }

    /// The version entered, if any.
    pub fn version(&self, object: ObjectId) -> Option<Version> {
        self.0.read().entries.get(&object).map(|entry| entry.version)
    }

    /// Every id entered.
    pub fn ids(&self) -> Vec<ObjectId> {
        self.0.read().entries.keys().copied().collect()
    }

    /// At most `count` objects behind `after`, with this label if one is given. Takes time in the answer's size.
    pub fn find(&self, label: Option<&str>, after: Option<ObjectId>, count: usize) -> Vec<(ObjectId, Entry)> {
        let shelves = self.0.read();
        let from = after.map_or(ObjectId(0), ObjectId::next);
        match label {
            Some(label) => shelves
                .by_label
                .get(label)
                .into_iter()
                .flat_map(|ids| ids.range(from..))
                .filter_map(|id| shelves.entries.get(id).map(|entry| (*id, entry.clone())))
                .take(count)
                .collect(),
            None => shelves.entries.range(from..).take(count).map(|(id, e)| (*id, e.clone())).collect(),
        }
    }
}

impl Shelves {
    fn remove(&mut self, object: ObjectId) {
        if let Some(old) = self.entries.remove(&object)
            && let Some(set) = self.by_label.get_mut(&old.label)
        {
            set.remove(&object);
            if set.is_empty() {
                self.by_label.remove(&old.label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(label: &str) -> Entry {
        Entry {
            version: Version(1),
            class: ObjectClass::SecretKey,
            algorithm: Some(KeyAlgorithm::Aes { bits: 256 }),
            label: label.into(),
            id: vec![],
        }
    }

    #[test]
    fn finds_by_label_and_in_pages() {
        let catalogue = Catalogue::default();
        for id in 1..=5 {
            catalogue.enter(ObjectId(id), entry(if id % 2 == 0 { "even" } else { "odd" }));
        }
        let ids = |found: Vec<(ObjectId, Entry)>| found.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
        assert_eq!(ids(catalogue.find(Some("even"), None, 10)), [2, 4]);
        assert_eq!(ids(catalogue.find(None, Some(ObjectId(2)), 2)), [3, 4]);
        catalogue.enter(ObjectId(2), entry("odd"));
        catalogue.remove(ObjectId(1));
        assert_eq!(ids(catalogue.find(Some("odd"), None, 10)), [2, 3, 5]);
        assert_eq!(ids(catalogue.find(Some("none"), None, 10)), [0; 0]);
    }
}
