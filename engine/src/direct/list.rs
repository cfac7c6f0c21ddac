//! The list itself: changes of it, and how its objects are called. Pure.

use crate::domain::{ContentKey, Envelope, GroupId, MemberId, ObjectId, RequestId};
use crate::limits;
use crate::wire::SessionName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Handles of objects of one member alone have this bit and not the one above it; the group's have neither, an
/// application's session objects the one above.
const DIRECT_BIT: u64 = 1 << 62;
/// The member's number in such a handle; the rest counts its objects.
const MEMBER_BITS: u32 = 30;

/// True for the handle of an object of one member alone.
pub fn is_direct(object: ObjectId) -> bool {
    object.0 >> 62 == 1
}

/// The name under which a token knows such an object: it stands for one content for ever.
pub fn session_name(content: ContentKey) -> SessionName {
    let mut name = [0; 16];
    name[..4].copy_from_slice(b"dir:");
    name[4..8].copy_from_slice(&content.version.0.to_be_bytes());
    name[8..].copy_from_slice(&content.object.0.to_be_bytes());
    SessionName(name)
}

/// There is no room for more: see [`limits::DIRECT_OBJECTS_MAX`], [`limits::DIRECT_DELETED_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this member has as many changes of its own as it may have: run 'keyraft synchronize', which undoes or adopts \
     them as the group's option direct_changes says"
)]
pub struct Full;

/// An object that was made on one member alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Its name.
    pub content: ContentKey,
    /// Its content, sealed under that name.
    pub envelope: Envelope,
    /// The request that made it: a repeated one makes no second.
    pub request: RequestId,
    /// The request by which it becomes the group's, once that was begun.
    pub adoption: Option<RequestId>,
}

/// Everything that was made and deleted on one member alone since the last `synchronize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    group: GroupId,
    member: MemberId,
    /// The count of the last object ever made.
    last: u32,
    objects: BTreeMap<ObjectId, Made>,
    deleted: BTreeSet<ObjectId>,
    /// The latest deletions, of either kind.
    ended: VecDeque<RequestId>,
}

impl List {
    /// An empty one.
    pub fn new(group: GroupId, member: MemberId) -> Self {
        Self {
            group,
            member,
            last: 0,
            objects: BTreeMap::new(),
            deleted: BTreeSet::new(),
            ended: VecDeque::new(),
        }
    }

    /// True if it is this member's.
    pub fn is_of(&self, group: GroupId, member: MemberId) -> bool {
        (self.group, self.member) == (group, member)
    }

    /// The next ids, which are never given out again.
    pub fn next_ids(&mut self, count: u64) -> Result<Vec<ObjectId>, Full> {
        let member = self.member.0 & ((1 << MEMBER_BITS) - 1);
        let first = self.last;
        self.last = u32::try_from(count).ok().and_then(|count| first.checked_add(count)).ok_or(Full)?;
        let id = |sequence: u32| ObjectId(DIRECT_BIT | member << 32 | u64::from(sequence));
        Ok((first + 1..=self.last).map(id).collect())
    }

    /// Every object, by id.
    pub fn objects(&self) -> impl Iterator<Item = &Made> {
        self.objects.values()
    }

    /// One object.
    pub fn object(&self, object: ObjectId) -> Option<&Made> {
        self.objects.get(&object)
    }

    /// What a request has made already, in order.
    pub fn made_by(&self, request: RequestId) -> Vec<ObjectId> {
        self.objects().filter(|made| made.request == request).map(|made| made.content.object).collect()
    }

    /// Enters objects, new or in the place of an older version.
    pub fn put(&mut self, made: Vec<Made>) -> Result<(), Full> {
        let new = made.iter().filter(|made| !self.objects.contains_key(&made.content.object)).count();
        if self.objects.len() + new > limits::DIRECT_OBJECTS_MAX {
            return Err(Full);
        }
        self.objects.extend(made.into_iter().map(|made| (made.content.object, made)));
        Ok(())
    }

    /// Takes an object out: it was deleted by this request.
    pub fn remove(&mut self, object: ObjectId, request: RequestId) {
        self.objects.remove(&object);
        self.note_end(request);
    }

    /// Notes by which request an object becomes the group's.
    pub fn begin_adoption(&mut self, object: ObjectId, request: RequestId) {
        if let Some(made) = self.objects.get_mut(&object) {
            made.adoption = Some(request);
        }
    }

    /// Takes the note back: the group has refused the object.
    pub fn end_adoption(&mut self, object: ObjectId) {
        if let Some(made) = self.objects.get_mut(&object) {
            made.adoption = None;
        }
    }

    /// Takes an object out: it has become the group's, or is undone.
    pub fn hand_over(&mut self, object: ObjectId) {
        self.objects.remove(&object);
    }

    /// Objects of the group that were deleted here.
    pub fn deleted(&self) -> impl Iterator<Item = ObjectId> {
        self.deleted.iter().copied()
    }

    /// True for one of them.
    pub fn is_deleted(&self, object: ObjectId) -> bool {
        self.deleted.contains(&object)
    }

    /// Enters an object of the group that was deleted here by this request.
    pub fn delete(&mut self, object: ObjectId, request: RequestId) -> Result<(), Full> {
        if self.deleted.len() >= limits::DIRECT_DELETED_MAX && !self.is_deleted(object) {
            return Err(Full);
        }
        self.deleted.insert(object);
        self.note_end(request);
        Ok(())
    }

    /// Takes a deletion back, or notes that the group has followed it.
    pub fn restore(&mut self, object: ObjectId) {
        self.deleted.remove(&object);
    }

    /// True if a deletion was carried out already.
    pub fn has_ended(&self, request: RequestId) -> bool {
        self.ended.contains(&request)
    }

    /// True if nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.deleted.is_empty()
    }

    /// For people; None if nothing was changed.
    pub fn summary(&self) -> Option<String> {
        let (made, deleted) = (self.objects.len(), self.deleted.len());
        (!self.is_empty())
            .then(|| format!("{made} objects were made and {deleted} deleted on this member alone"))
    }

    fn note_end(&mut self, request: RequestId) {
        if self.ended.len() >= limits::DIRECT_ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(request);
    }
}
