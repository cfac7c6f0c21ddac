//! Which of a group's keys lie in the model, seen from outside: no member's word is taken for it.

use super::ModelToken;
use super::objects::Objects;
use crate::domain::ObjectId;
use crate::token::tag::Tag;
use std::collections::BTreeSet;

impl ModelToken {
    /// The group's keys of which a copy lies here, of whatever version.
    pub fn copies(&self) -> BTreeSet<ObjectId> {
        self.state.lock().objects.copies().collect()
    }

    /// How many objects lie here that outlive their session, and are nothing that a member keeps in its token: session
    /// objects that stayed, and what was half made.
    pub fn strangers(&self) -> usize {
        self.state.lock().objects.lasting().filter(|id| Tag::parse(id).is_none()).count()
    }

    /// The keys whose last copy a process has destroyed since somebody asked. What goes with a session was not destroyed.
    pub fn take_destroyed(&self) -> Vec<ObjectId> {
        std::mem::take(&mut self.state.lock().objects.destroyed)
    }
}

impl Objects {
    fn copies(&self) -> impl Iterator<Item = ObjectId> {
        self.ids().filter_map(key_of)
    }

    /// Notes that an object with this CKA_ID was destroyed.
    pub(super) fn note_destroyed(&mut self, id: &[u8]) {
        if let Some(object) = key_of(id)
            && !self.copies().any(|other| other == object)
        {
            self.destroyed.push(object);
        }
    }
}

fn key_of(id: &[u8]) -> Option<ObjectId> {
    match Tag::parse(id) {
        Some(Tag::Key(_, name)) => Some(name.object),
        _ => None,
    }
}
