use super::store::{Checkpoint, Store};
use crate::domain::{ContentKey, Envelope, LogIndex, ObjectId};
use crate::limits::DIRTY_MAX;
use crate::state::State;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The agreed state as this member knows it. Whoever reads sees one moment of it, never a half-applied step, and
/// finds the content of every object that it sees.
pub struct Agreed {
    live: RwLock<Arc<Checkpoint>>,
    applied: watch::Sender<LogIndex>,
    dirty: Mutex<Dirty>,
    wake: Notify,
    store: Arc<dyn Store>,
}

/// What changed since it was last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// True if anything may have changed: after a start, after a snapshot, or after too much to list.
    pub all: bool,
    /// Objects whose row changed or went.
    pub objects: BTreeSet<ObjectId>,
    /// True if the roster, the options, the invitations or the SMKs changed.
    pub roster: bool,
}

impl Dirty {
    pub(super) fn everything() -> Self {
        Self { all: true, objects: BTreeSet::new(), roster: true }
    }

    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.all && !self.roster && self.objects.is_empty()
    }

    fn merge(&mut self, newer: Dirty) {
        self.all |= newer.all;
        self.roster |= newer.roster;
        self.objects.extend(newer.objects);
        if self.all || self.objects.len() > DIRTY_MAX {
            self.all = true;
            self.objects.clear();
        }
    }
}

impl Agreed {
    pub(super) fn new(live: Arc<Checkpoint>, store: Arc<dyn Store>) -> Self {
        let (applied, _) = watch::channel(index_of(&live));
        Self {
            live: RwLock::new(live),
            applied,
            dirty: Mutex::new(Dirty::everything()),
            wake: Notify::new(),
            store,
        }
    }

    /// Reads the state as it is now. The state cannot change under `read`, which holds nobody up.
    pub fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        let live = self.live();
        read(&live.state)
    }

    /// The last applied entry, as it grows.
    pub fn applied(&self) -> watch::Receiver<LogIndex> {
        self.applied.subscribe()
    }

    /// What changed since the last call. For one caller: the reconciler.
    pub fn take_dirty(&self) -> Dirty {
        std::mem::take(&mut *self.dirty.lock())
    }

    /// Returns once there is something to take; at once if there is already. For the same one caller.
    pub async fn changed(&self) {
        while self.dirty.lock().is_empty() {
            self.wake.notified().await;
        }
    }

    /// The content of an object. Reads the disk.
    pub fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>> {
        self.store.content(key)
    }

    pub(super) fn live(&self) -> Arc<Checkpoint> {
        self.live.read().clone()
    }

    /// Shows a newer state to everyone.
    pub(super) fn publish(&self, live: Arc<Checkpoint>, dirty: Dirty) {
        let index = index_of(&live);
        let old = std::mem::replace(&mut *self.live.write(), live);
        self.dirty.lock().merge(dirty);
        self.applied.send_replace(index);
        self.wake.notify_one();
        // Freeing what only the old state held may take a while: not under the lock.
        drop(old);
    }
}

fn index_of(live: &Checkpoint) -> LogIndex {
    LogIndex(live.last.map_or(0, |last| last.index))
}
