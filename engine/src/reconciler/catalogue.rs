//! The index of objects, filled on the way: what lists, lookups and uses need without opening an envelope again.

use crate::domain::{AttributeRecord, Attributes, ObjectId, Version};
use crate::virtual_slot::Entry;
use crate::virtual_slot::index::{Index, Page};
use parking_lot::RwLock;
use std::sync::Arc;

/// The index of all agreed objects, whatever their phase, for many readers.
#[derive(Default)]
pub struct Catalogue(RwLock<Index>);

impl Catalogue {
    /// Enters an object, in place of an older version.
    pub fn enter(&self, object: ObjectId, version: Version, record: &AttributeRecord) {
        self.0.write().enter(object, version, record);
    }

    /// Takes an object out.
    pub fn remove(&self, object: ObjectId) {
        self.0.write().remove(object);
    }

    /// One object's entry.
    pub fn entry(&self, object: ObjectId) -> Option<Arc<Entry>> {
        self.0.read().entry(object).cloned()
    }

    /// The version entered, if any.
    pub fn version(&self, object: ObjectId) -> Option<Version> {
        self.0.read().entry(object).map(|entry| entry.version)
    }

    /// Every id entered.
    pub fn ids(&self) -> Vec<ObjectId> {
        self.0.read().ids().collect()
    }

    /// At most `count` objects behind `after`, with this label if one is given. Takes time in the answer's size.
    pub fn find(
        &self,
        label: Option<&str>,
        after: Option<ObjectId>,
        count: usize,
    ) -> Vec<(ObjectId, Arc<Entry>)> {
        self.0.read().labelled(label, after, count)
    }

    /// See [`Index::find`].
    pub fn search(
        &self,
        template: &Attributes,
        private: bool,
        after: Option<ObjectId>,
        count: usize,
        accept: impl Fn(ObjectId) -> bool,
    ) -> Page {
        self.0.read().find(template, private, after, count, accept)
    }
}
