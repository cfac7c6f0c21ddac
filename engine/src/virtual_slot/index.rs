//! Finds objects by their attributes, in time proportional to the smallest set that one attribute leaves. Values are
//! kept as keyed hashes of 64 bits: short, and nobody can choose values that meet.

use super::traits::{FLAGS, Flags, Traits};
use super::visible;
use crate::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, ObjectClass, ObjectId, Version,
};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::Arc;

/// What is kept in memory of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The version that was opened.
    pub version: Version,
    /// What a use needs of it.
    pub traits: Traits,
    /// CKA_LABEL.
    pub label: String,
    /// CKA_ID.
    pub id: Vec<u8>,
    /// Of a public key: what a token needs to use it.
    pub public: Option<Arc<AttributeRecord>>,
    /// A hash for each readable attribute that is no flag, sorted.
    hashes: Box<[u64]>,
}

impl Deref for Entry {
    type Target = Traits;

    fn deref(&self) -> &Traits {
        &self.traits
    }
}

/// A place in the postings: most values belong to one object alone.
enum Posting {
    One(ObjectId),
    Many(BTreeSet<ObjectId>),
}

impl Posting {
    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(ids) => ids.len(),
        }
    }

    fn insert(&mut self, id: ObjectId) {
        match self {
            Self::One(one) => *self = Self::Many([*one, id].into()),
            Self::Many(ids) => {
                ids.insert(id);
            }
        }
    }

    /// Takes an id out; says if none is left.
    fn remove(&mut self, id: ObjectId) -> bool {
        match self {
            Self::One(one) => *one == id,
            Self::Many(ids) => {
                ids.remove(&id);
                ids.is_empty()
            }
        }
    }

    fn from(&self, from: ObjectId) -> Box<dyn Iterator<Item = ObjectId> + '_> {
        match self {
            Self::One(one) => Box::new(Some(*one).filter(|id| *id >= from).into_iter()),
            Self::Many(ids) => Box::new(ids.range(from..).copied()),
        }
    }
}

/// A page of what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Objects, rising.
    pub objects: Vec<ObjectId>,
    /// There are more behind the last.
    pub more: bool,
}

/// The index of all agreed objects, whatever their phase.
#[derive(Default)]
pub struct Index {
    entries: BTreeMap<ObjectId, Arc<Entry>>,
    postings: HashMap<u64, Posting>,
    key: RandomState,
}

impl Index {
    /// Enters an object, in place of an older version.
    pub fn enter(&mut self, object: ObjectId, version: Version, record: &AttributeRecord) {
        self.remove(object);
        let entry = self.entry_of(version, record);
        for hash in &entry.hashes {
            self.postings
                .entry(*hash)
                .and_modify(|posting| posting.insert(object))
                .or_insert(Posting::One(object));
        }
        self.entries.insert(object, Arc::new(entry));
    }

    /// Takes an object out.
    pub fn remove(&mut self, object: ObjectId) {
        let Some(old) = self.entries.remove(&object) else { return };
        for hash in &old.hashes {
            if self.postings.get_mut(hash).is_some_and(|posting| posting.remove(object)) {
                self.postings.remove(hash);
            }
        }
    }

    /// One object's entry.
    pub fn entry(&self, object: ObjectId) -> Option<&Arc<Entry>> {
        self.entries.get(&object)
    }

    /// Every id entered.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> {
        self.entries.keys().copied()
    }

    /// At most `count` objects behind `after`, with this label if one is given.
    pub fn labelled(
        &self,
        label: Option<&str>,
        after: Option<ObjectId>,
        count: usize,
    ) -> Vec<(ObjectId, Arc<Entry>)> {
        let from = after.map_or(ObjectId(0), ObjectId::next);
        let Some(label) = label else {
            return self.entries.range(from..).take(count).map(|(id, e)| (*id, e.clone())).collect();
        };
        let hash = self.hash(A::LABEL, &V::Bytes(label.as_bytes().to_vec()));
        let Some(posting) = self.postings.get(&hash) else { return Vec::new() };
        posting
            .from(from)
            .filter_map(|id| Some((id, self.entries.get(&id)?.clone())))
            .filter(|(_, entry)| entry.label == label)
            .take(count)
            .collect()
    }

    /// At most `count` objects behind `after` whose attributes equal the template's. Private objects are found only
    /// with `private`; `accept` has the last word on each.
    pub fn find(
        &self,
        template: &Attributes,
        private: bool,
        after: Option<ObjectId>,
        count: usize,
        accept: impl Fn(ObjectId) -> bool,
    ) -> Page {
        let from = after.map_or(ObjectId(0), ObjectId::next);
        let asked = Flags::of(template);
        let hashes: Vec<u64> =
            template.iter().filter(|(a, v)| !is_flag(**a, v)).map(|(a, v)| self.hash(*a, v)).collect();
        let fits = |id: &ObjectId| {
            self.entries.get(id).is_some_and(|entry| {
                (private || !entry.flags.is_set(A::PRIVATE))
                    && entry.flags.satisfy(asked)
                    && hashes.iter().all(|hash| entry.hashes.binary_search(hash).is_ok())
            }) && accept(*id)
        };
        let mut postings = Vec::with_capacity(hashes.len());
        for hash in &hashes {
            match self.postings.get(hash) {
                Some(posting) => postings.push(posting),
                None => return Page::default(),
            }
        }
        let mut objects: Vec<ObjectId> = match postings.into_iter().min_by_key(|posting| posting.len()) {
            Some(smallest) => smallest.from(from).filter(fits).take(count + 1).collect(),
            None => self.entries.range(from..).map(|(id, _)| *id).filter(fits).take(count + 1).collect(),
        };
        let more = objects.len() > count;
        objects.truncate(count);
        Page { objects, more }
    }

    fn entry_of(&self, version: Version, record: &AttributeRecord) -> Entry {
        let seen = visible(record);
        let mut hashes: Vec<u64> =
            seen.attributes.iter().filter(|(a, v)| !is_flag(**a, v)).map(|(a, v)| self.hash(*a, v)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Entry {
            version,
            traits: Traits::of(record),
            label: record.label(),
            id: record.bytes(A::ID).to_vec(),
            public: (record.class == ObjectClass::PublicKey).then(|| Arc::new(usable_part(record))),
            hashes: hashes.into(),
        }
    }

    fn hash(&self, attribute: A, value: &V) -> u64 {
        match value {
            V::Bool(value) => self.key.hash_one((attribute, 0u8, value)),
            V::Number(value) => self.key.hash_one((attribute, 1u8, value)),
            V::Bytes(value) => self.key.hash_one((attribute, 2u8, value)),
            V::Template(inner) => {
                let inner: Vec<u64> = inner.iter().map(|(a, v)| self.hash(*a, v)).collect();
                self.key.hash_one((attribute, 3u8, inner))
            }
        }
    }
}

/// True for what the masks hold.
fn is_flag(attribute: A, value: &V) -> bool {
    matches!(value, V::Bool(_)) && FLAGS.contains(&attribute)
}

/// Of a public key's record, what a token needs to use it.
fn usable_part(record: &AttributeRecord) -> AttributeRecord {
    let needed = |a: &A| *a == A::PUBLIC_KEY_INFO || FLAGS.contains(a);
    let attributes =
        record.attributes.iter().filter(|(a, _)| needed(a)).map(|(a, v)| (*a, v.clone())).collect();
    AttributeRecord { class: record.class, algorithm: record.algorithm, attributes }
}

#[cfg(test)]
#[path = "tests/index.rs"]
mod tests;
