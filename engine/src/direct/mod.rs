//! What was made and deleted on one member's own slot: that member alone knows it, until `synchronize` undoes or adopts
//! it. A small list in the member's folder; the keys in it are sealed as the group's are, and a token takes them in
//! like session objects, when they are used.
//!
//! `list` is what is written (pure); this file keeps it on disk and opened in memory.

mod list;

pub use list::{Full, List, Made, is_direct, session_name};

use crate::domain::{Attributes, ContentKey, GroupId, MemberId, ObjectId};
use crate::durable::{self, DurableError};
use crate::envelope::{self, EnvelopeError, EnvelopeKeys};
use crate::limits;
use crate::virtual_slot::index::{Index, Page};
use crate::virtual_slot::sealed::Opened;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "direct";

/// Why the list cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The file.
    #[error(transparent)]
    File(#[from] DurableError),
    /// An object in it does not open.
    #[error("object {object} does not open: {source}")]
    Sealed {
        /// The object.
        object: ObjectId,
        /// Why.
        source: EnvelopeError,
    },
    /// The list is another one by now.
    #[error("another change on this member's own slot came first: try again")]
    Superseded,
}

/// The list of one member, for many readers.
pub struct Direct {
    path: PathBuf,
    group: GroupId,
    keys: Arc<EnvelopeKeys>,
    now: RwLock<Now>,
    writing: Mutex<()>,
}

/// The list as it is on disk, and opened.
struct Now {
    list: Arc<List>,
    index: Index,
    opened: BTreeMap<ObjectId, (ContentKey, Arc<Opened>)>,
}

impl Direct {
    /// Reads the list of a member's folder. One of another member or group, which lived there before, counts as none.
    pub fn open(
        folder: &Path,
        group: GroupId,
        member: MemberId,
        keys: Arc<EnvelopeKeys>,
    ) -> Result<Self, DirectError> {
        let path = folder.join(FILE);
        let list = durable::read::<List>(&path, limits::DIRECT_LIST_MAX_BYTES)?;
        let list = list.filter(|list| list.is_of(group, member)).unwrap_or_else(|| List::new(group, member));
        let now = Now::of(list, group, &keys)?;
        Ok(Self { path, group, keys, now: RwLock::new(now), writing: Mutex::default() })
    }

    /// The list as it is now; what [`Direct::save`] is told that a change was made from.
    pub fn list(&self) -> Arc<List> {
        self.now.read().list.clone()
    }

    /// Puts another list in the place of `before`: on disk first. Blocks until it is durable there.
    pub fn save(&self, before: &Arc<List>, list: List) -> Result<(), DirectError> {
        // Whoever asked for a change may have gone while it was written: the next one must not build on less.
        let _alone = self.writing.lock();
        if !Arc::ptr_eq(before, &self.list()) {
            return Err(DirectError::Superseded);
        }
        let next = Now::of(list, self.group, &self.keys)?;
        durable::write(&self.path, &*next.list, limits::DIRECT_LIST_MAX_BYTES)?;
        *self.now.write() = next;
        Ok(())
    }

    /// True for an object of the group that was deleted here.
    pub fn is_deleted(&self, object: ObjectId) -> bool {
        self.now.read().list.is_deleted(object)
    }

    /// An object of this member alone, and the name of its content.
    pub fn get(&self, object: ObjectId) -> Option<(ContentKey, Arc<Opened>)> {
        self.now.read().opened.get(&object).cloned()
    }

    /// See [`Index::find`].
    pub fn find(&self, template: &Attributes, private: bool, after: Option<ObjectId>, count: usize) -> Page {
        self.now.read().index.find(template, private, after, count, |_| true)
    }
}

impl Now {
    fn of(list: List, group: GroupId, keys: &EnvelopeKeys) -> Result<Self, DirectError> {
        let (mut index, mut opened) = (Index::default(), BTreeMap::new());
        for made in list.objects() {
            let name = made.content;
            let content = match keys.get(name.generation) {
                Some(key) => envelope::open(key, group, name, &made.envelope),
                None => Err(EnvelopeError::DoesNotOpen),
            };
            let content = content.map_err(|source| DirectError::Sealed { object: name.object, source })?;
            index.enter(name.object, name.version, &content.record);
            opened.insert(name.object, (name, Arc::new(Opened::new(name.generation, content))));
        }
        Ok(Self { list: Arc::new(list), index, opened })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        AttributeRecord, AttributeType as A, AttributeValue as V, ClientId, EnvelopeContent, Generation,
        LogIndex, ObjectClass, RequestId, Version,
    };
    use crate::envelope::EnvelopeKey;

    const GROUP: GroupId = GroupId([7; 8]);

    fn keys() -> Arc<EnvelopeKeys> {
        let mut keys = EnvelopeKeys::default();
        keys.insert(Generation(1), EnvelopeKey::from_bytes([3; 32]));
        Arc::new(keys)
    }

    fn request(sequence: u64) -> RequestId {
        RequestId { client: ClientId { born: LogIndex(1), nonce: 1 }, sequence }
    }

    fn made(list: &mut List, label: &str) -> ObjectId {
        let object = list.next_ids(1).expect("ids are left")[0];
        let content = ContentKey { object, version: Version(1), generation: Generation(1) };
        let attributes = Attributes::from([(A::LABEL, V::Bytes(label.as_bytes().to_vec()))]);
        let record = AttributeRecord { class: ObjectClass::Data, algorithm: None, attributes };
        let body = EnvelopeContent { record, wrapped: None };
        let keys = keys();
        let key = keys.get(Generation(1)).expect("is there");
        let envelope = envelope::seal(key, GROUP, content, &body, [1; 12]).expect("seals");
        let made = Made { content, envelope, request: request(object.0), adoption: None };
        list.put(vec![made]).expect("there is room");
        object
    }

    #[test]
    fn the_list_outlives_the_process_and_ids_are_never_used_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |member| Direct::open(folder.path(), GROUP, MemberId(member), keys()).expect("opens");
        let direct = open(2);
        let mut list = List::clone(&direct.list());
        let (one, two) = (made(&mut list, "one"), made(&mut list, "two"));
        list.delete(ObjectId(9), request(1)).expect("there is room");
        list.remove(two, request(2));
        let before = direct.list();
        direct.save(&before, list.clone()).expect("is written");
        assert!(matches!(direct.save(&before, list), Err(DirectError::Superseded)));
        let again = open(2);
        assert!(again.get(one).is_some() && again.get(two).is_none());
        assert!(again.is_deleted(ObjectId(9)) && !again.is_deleted(ObjectId(8)));
        let list = again.list();
        assert!(list.has_ended(request(1)) && list.has_ended(request(2)) && !list.has_ended(request(3)));
        assert_eq!(list.made_by(request(one.0)), [one]);
        let mut list = List::clone(&list);
        let next = list.next_ids(1).expect("ids are left")[0];
        assert!(next > two && is_direct(next) && !is_direct(ObjectId(9)));
        let label = Attributes::from([(A::LABEL, V::Bytes(b"one".to_vec()))]);
        assert_eq!(again.find(&label, false, None, 5).objects, [one]);
        // Who lived here before left nothing to the next.
        assert!(open(3).get(one).is_none());
    }

    #[test]
    fn another_list_is_not_taken_for_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let direct = Direct::open(folder.path(), GROUP, MemberId(2), keys()).expect("opens");
        let mut list = List::clone(&direct.list());
        made(&mut list, "one");
        direct.save(&direct.list(), list).expect("is written");
        let mut other = EnvelopeKeys::default();
        other.insert(Generation(1), EnvelopeKey::from_bytes([4; 32]));
        let opened = Direct::open(folder.path(), GROUP, MemberId(2), Arc::new(other));
        assert!(matches!(opened, Err(DirectError::Sealed { .. })));
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let mut list = List::new(GROUP, MemberId(1));
        for object in 0..limits::DIRECT_DELETED_MAX as u64 {
            list.delete(ObjectId(object), request(object)).expect("there is room");
        }
        assert_eq!(list.delete(ObjectId(u64::MAX), request(0)), Err(Full));
        assert!(
            list.has_ended(request(limits::DIRECT_DELETED_MAX as u64 - 1)) && !list.has_ended(request(0))
        );
        for _ in 0..limits::DIRECT_OBJECTS_MAX {
            made(&mut list, "x");
        }
        let more = list.objects().next().expect("is there").clone();
        let content = ContentKey { object: list.next_ids(1).expect("ids are left")[0], ..more.content };
        assert_eq!(list.put(vec![Made { content, ..more }]), Err(Full));
    }
}
