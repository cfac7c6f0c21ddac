//! Session objects: the module keeps them, sealed for the members where they are keys. They are seen in every session of
//! the application and end with the session that made them.

use crate::attribute;
use keyraft_engine::domain::{AttributeRecord, AttributeType as A, Attributes, ObjectId};
use keyraft_engine::wire::{KeyRef, Sealed, SessionName};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Handles of session objects have this bit; agreed objects never do.
const SESSION_BIT: u64 = 1 << 63;

/// A session object.
pub(crate) struct SessionObject {
    /// Its handle in this application.
    pub handle: u64,
    /// The session that made it.
    pub owner: u64,
    /// What is known of it.
    body: RwLock<Body>,
}

/// What a session object is now.
#[derive(Clone)]
pub(crate) struct Body {
    /// What applications see.
    pub record: Arc<AttributeRecord>,
    /// Its name and sealed form, for keys.
    pub sealed: Option<(SessionName, Sealed)>,
}

impl SessionObject {
    /// What it is now.
    pub fn body(&self) -> Body {
        self.body.read().clone()
    }

    /// Makes it something else.
    pub fn replace(&self, body: Body) {
        *self.body.write() = body;
    }
}

/// An object that a handle names.
#[derive(Clone)]
pub(crate) enum Object {
    /// The group's.
    Agreed(ObjectId),
    /// The application's.
    Session(Arc<SessionObject>),
}

impl Object {
    /// Names it for members; the sealed form goes along if `whole`. None for session objects that are no keys.
    pub fn key_ref(&self, whole: bool) -> Option<KeyRef> {
        match self {
            Self::Agreed(id) => Some(KeyRef::Object(*id)),
            Self::Session(object) => {
                let (name, sealed) = object.body().sealed?;
                Some(KeyRef::Session { name, sealed: whole.then(|| Box::new(sealed)) })
            }
        }
    }
}

/// The session objects of one application in one slot.
#[derive(Default)]
pub(crate) struct Objects {
    all: RwLock<BTreeMap<u64, Arc<SessionObject>>>,
    last: AtomicU64,
}

impl Objects {
    /// Takes an object in; its handle.
    pub fn insert(&self, owner: u64, body: Body) -> u64 {
        let handle = SESSION_BIT | (self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let object = SessionObject { handle, owner, body: RwLock::new(body) };
        self.all.write().insert(handle, Arc::new(object));
        handle
    }

    /// What a handle names. An agreed object may turn out not to be there.
    pub fn get(&self, handle: u64) -> Option<Object> {
        match handle {
            0 => None,
            handle if handle & SESSION_BIT == 0 => Some(Object::Agreed(ObjectId(handle))),
            handle => self.all.read().get(&handle).cloned().map(Object::Session),
        }
    }

    /// Takes one out.
    pub fn remove(&self, handle: u64) {
        self.all.write().remove(&handle);
    }

    /// Takes out what a session made.
    pub fn end_session(&self, owner: u64) {
        self.all.write().retain(|_, object| object.owner != owner);
    }

    /// Takes out what only a logged-in user may see.
    pub fn end_login(&self) {
        self.all.write().retain(|_, object| !object.body().record.flag(A::PRIVATE));
    }

    /// Handles of those that fit a template.
    pub fn find(&self, template: &Attributes, logged_in: bool) -> Vec<u64> {
        let all = self.all.read();
        let fits = |object: &SessionObject| {
            let record = object.body().record;
            (logged_in || !record.flag(A::PRIVATE)) && attribute::matches(&record, template)
        };
        all.values().filter(|object| fits(object)).map(|object| object.handle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::{AttributeValue, ObjectClass};

    fn body(private: bool) -> Body {
        let attributes = Attributes::from([(A::PRIVATE, AttributeValue::Bool(private))]);
        let record = AttributeRecord { class: ObjectClass::Data, algorithm: None, attributes };
        Body { record: Arc::new(record), sealed: None }
    }

    #[test]
    fn objects_end_with_their_session_and_private_ones_with_the_login() {
        let objects = Objects::default();
        let (public, private) = (objects.insert(1, body(false)), objects.insert(1, body(true)));
        let other = objects.insert(2, body(false));
        assert_eq!(objects.find(&Attributes::new(), true), [public, private, other]);
        assert_eq!(objects.find(&Attributes::new(), false), [public, other]);
        objects.end_login();
        assert!(objects.get(private).is_none());
        objects.end_session(1);
        assert_eq!(objects.find(&Attributes::new(), true), [other]);
        assert!(public & SESSION_BIT != 0 && objects.insert(3, body(false)) > other);
        assert!(matches!(objects.get(5), Some(Object::Agreed(ObjectId(5)))));
        assert!(objects.get(0).is_none() && objects.get(SESSION_BIT | 999).is_none());
    }
}
