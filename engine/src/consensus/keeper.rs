//! Keeps checkpoints in order, and drops contents that nothing names any more.
//!
//! A content is needed while the live state, the checkpoint on disk, or a snapshot that is being sent or received
//! names it. Contents reach the store before anything names them, so whoever puts some claims them first; and the
//! collector announces what it is about to drop, so that nobody puts it in the meantime.

use super::agreed::{Agreed, Dirty};
use super::store::{Checkpoint, Store};
use crate::aside;
use crate::domain::{ContentKey, Envelope};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

pub(super) struct Keeper {
    agreed: Arc<Agreed>,
    store: Arc<dyn Store>,
    /// The checkpoint on disk.
    current: Mutex<Option<Arc<Checkpoint>>>,
    /// One checkpoint is written at a time, and never an older one over a newer.
    saving: tokio::sync::Mutex<()>,
    /// Snapshots in use: the contents that they name stay.
    used: Mutex<Vec<Weak<Checkpoint>>>,
    collecting: Mutex<()>,
    gate: Mutex<Gate>,
    dropped: Notify,
}

#[derive(Default)]
struct Gate {
    /// Contents on their way into the store, not yet named by anything; with the number of their claims.
    arriving: BTreeMap<ContentKey, usize>,
    /// Contents on their way out.
    doomed: HashSet<ContentKey>,
}

/// While it lives, its contents are not collected.
pub(super) struct Claim<'a> {
    keeper: &'a Keeper,
    keys: Vec<ContentKey>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut gate = self.keeper.gate.lock();
        for key in &self.keys {
            if let Some(count) = gate.arriving.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    gate.arriving.remove(key);
                }
            }
        }
    }
}

/// Clears the announcement of what is dropped, also when dropping it failed.
struct Announced<'a>(&'a Keeper);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.gate.lock().doomed.clear();
        self.0.dropped.notify_waiters();
    }
}

/// Runs what blocks on a thread where it may.
pub(super) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    aside::start(work).await?
}

impl Keeper {
    pub(super) fn open(store: Arc<dyn Store>) -> io::Result<Self> {
        let current = store.load_checkpoint()?.map(Arc::new);
        let live = current.clone().unwrap_or_default();
        Ok(Self {
            agreed: Arc::new(Agreed::new(live, store.clone())),
            store,
            current: Mutex::new(current),
            saving: tokio::sync::Mutex::new(()),
            used: Mutex::new(Vec::new()),
            collecting: Mutex::new(()),
            gate: Mutex::new(Gate::default()),
            dropped: Notify::new(),
        })
    }

    pub(super) fn agreed(&self) -> &Arc<Agreed> {
        &self.agreed
    }

    pub(super) fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>> {
        self.store.content(key)
    }

    /// The checkpoint on disk, in use from now on.
    pub(super) fn current(&self) -> Option<Arc<Checkpoint>> {
        let current = self.current.lock();
        if let Some(checkpoint) = &*current {
            self.use_snapshot(checkpoint);
        }
        current.clone()
    }

    /// Spares the contents that this checkpoint names until its last handle is gone.
    pub(super) fn use_snapshot(&self, checkpoint: &Arc<Checkpoint>) {
        let mut used = self.used.lock();
        used.retain(|snapshot| snapshot.strong_count() > 0);
        used.push(Arc::downgrade(checkpoint));
    }

    /// Puts contents into the store. They are safe from collection while the claim lives; name them before it ends.
    pub(super) async fn put(&self, contents: Vec<(ContentKey, Envelope)>) -> io::Result<Claim<'_>> {
        let claim = self.claim(contents.iter().map(|(key, _)| *key).collect()).await;
        if !contents.is_empty() {
            let store = self.store.clone();
            blocking(move || store.put_contents(&contents)).await?;
        }
        Ok(claim)
    }

    async fn claim(&self, keys: Vec<ContentKey>) -> Claim<'_> {
        loop {
            let dropped = self.dropped.notified();
            tokio::pin!(dropped);
            // Registered before the look, so that an end between look and wait is not missed.
            dropped.as_mut().enable();
            {
                let mut gate = self.gate.lock();
                if !keys.iter().any(|key| gate.doomed.contains(key)) {
                    for key in &keys {
                        *gate.arriving.entry(*key).or_default() += 1;
                    }
                    return Claim { keeper: self, keys };
                }
            }
            dropped.await;
        }
    }

    /// Puts the contents of a newer state, then shows it.
    pub(super) async fn publish(
        &self,
        live: Checkpoint,
        contents: Vec<(ContentKey, Envelope)>,
        dirty: Dirty,
    ) -> io::Result<()> {
        let _claim = self.put(contents).await?;
        self.agreed.publish(Arc::new(live), dirty);
        Ok(())
    }

    /// Writes a checkpoint unless the one on disk is as new; returns the one on disk.
    pub(super) async fn save(&self, checkpoint: Arc<Checkpoint>) -> io::Result<Arc<Checkpoint>> {
        let _one = self.saving.lock().await;
        if let Some(current) = self.current().filter(|current| current.last >= checkpoint.last) {
            return Ok(current);
        }
        // Named by the disk once written, so in use while it is written.
        self.use_snapshot(&checkpoint);
        let (store, written) = (self.store.clone(), checkpoint.clone());
        blocking(move || store.save_checkpoint(&written)).await?;
        *self.current.lock() = Some(checkpoint.clone());
        Ok(checkpoint)
    }

    /// Replaces the live state by a received checkpoint, whose contents are in the store already.
    pub(super) async fn install(&self, checkpoint: Arc<Checkpoint>) -> io::Result<()> {
        self.save(checkpoint.clone()).await?;
        if checkpoint.last > self.agreed.live().last {
            self.agreed.publish(checkpoint, Dirty::everything());
        }
        Ok(())
    }

    fn needed(&self) -> Vec<Arc<Checkpoint>> {
        let mut needed: Vec<_> = self.used.lock().iter().filter_map(Weak::upgrade).collect();
        needed.extend(self.current.lock().clone());
        // Last: a content named since would have been found above or be claimed.
        needed.push(self.agreed.live());
        needed
    }

    /// Drops contents that nothing names; says how many. Blocks for as long as it takes to look at every name, and
    /// holds up only those who want to put just what is dropped.
    pub(super) fn collect(&self) -> io::Result<u64> {
        let _one = self.collecting.lock();
        let is_named = |needed: &[Arc<Checkpoint>], key| {
            needed.iter().any(|checkpoint| checkpoint.state.names_content(key))
        };
        let unnamed = RefCell::new(Vec::new());
        let needed = self.needed();
        self.store.retain_contents(&|key| {
            if !is_named(&needed, key) {
                unnamed.borrow_mut().push(key);
            }
            true
        })?;
        drop(needed);
        let announced = {
            let mut gate = self.gate.lock();
            let needed = self.needed();
            let doomed = unnamed
                .into_inner()
                .into_iter()
                .filter(|key| !gate.arriving.contains_key(key) && !is_named(&needed, *key));
            gate.doomed = doomed.collect();
            if gate.doomed.is_empty() {
                return Ok(0);
            }
            Announced(self)
        };
        let doomed = self.gate.lock().doomed.clone();
        let dropped = self.store.retain_contents(&|key| !doomed.contains(&key));
        drop(announced);
        dropped
    }
}
