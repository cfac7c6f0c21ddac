//! What openraft calls the state machine: committed entries become state, and state becomes snapshots.

use super::agreed::Dirty;
use super::keeper::{Keeper, blocking};
use super::store::Checkpoint;
use super::types::{LogId, Membership, TypeConfig};
use crate::aside;
use crate::domain::{ContentKey, Envelope, LogIndex};
use crate::limits::{APPLY_CONTENTS_MAX_BYTES, APPLY_ENTRIES_MAX};
use crate::state::Outcome;
use crate::telemetry::Event;
use futures::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use std::io;
use std::sync::Arc;

/// A snapshot: the state, and a way to the contents that it names. They stay while it lives.
pub(super) struct Snapshot {
    pub(super) checkpoint: Arc<Checkpoint>,
    keeper: Arc<Keeper>,
}

impl Snapshot {
    /// A checkpoint that the keeper has marked as used.
    pub(super) fn new(checkpoint: Arc<Checkpoint>, keeper: Arc<Keeper>) -> Self {
        Self { checkpoint, keeper }
    }

    pub(super) fn content(&self, key: ContentKey) -> io::Result<Option<Envelope>> {
        self.keeper.content(key)
    }

    /// With what openraft wants to know of it.
    pub(super) fn described(self) -> SnapshotOf<TypeConfig, Self> {
        SnapshotOf::<TypeConfig, Self> {
            meta: SnapshotMetaOf::<TypeConfig> {
                last_log_id: self.checkpoint.last,
                last_membership: self.checkpoint.membership.clone(),
            },
            snapshot: self,
        }
    }
}

pub(super) struct Machine {
    keeper: Arc<Keeper>,
}

impl Machine {
    pub(super) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper }
    }

    async fn publish(&self, batch: Batch) -> io::Result<()> {
        self.keeper.publish(batch.live, batch.contents, batch.dirty).await?;
        for (responder, outcome) in batch.answers {
            responder.send(outcome);
        }
        Ok(())
    }
}

/// Entries applied to a clone of the live state, not yet shown.
struct Batch {
    live: Checkpoint,
    contents: Vec<(ContentKey, Envelope)>,
    bytes: usize,
    dirty: Dirty,
    answers: Vec<(ApplyResponder<TypeConfig>, Outcome)>,
    entries: usize,
}

impl Batch {
    fn new(live: &Checkpoint) -> Self {
        Self {
            live: live.clone(),
            contents: Vec::new(),
            bytes: 0,
            dirty: Dirty::default(),
            answers: Vec::new(),
            entries: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.entries >= APPLY_ENTRIES_MAX || self.bytes >= APPLY_CONTENTS_MAX_BYTES
    }

    fn apply(&mut self, (entry, responder): EntryResponder<TypeConfig>) {
        let index = LogIndex(entry.log_id.index);
        self.live.last = Some(entry.log_id);
        self.entries += 1;
        let outcome = match entry.payload {
            EntryPayload::Blank => Outcome::Applied,
            EntryPayload::Membership(membership) => {
                self.live.membership = Membership::new(Some(entry.log_id), membership);
                Outcome::Applied
            }
            EntryPayload::Normal(command) => {
                let effects = self.live.state.apply(index, command);
                self.bytes += effects.contents.iter().map(|(_, e)| e.sealed.len()).sum::<usize>();
                self.contents.extend(effects.contents);
                self.dirty.objects.extend(effects.objects);
                self.dirty.roster |= effects.roster;
                effects.outcome
            }
        };
        // Whatever the entry was, it counts as applied.
        self.live.state.skip(index);
        if let Some(responder) = responder {
            self.answers.push((responder, outcome));
        }
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Snapshot;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), io::Error> {
        let live = self.keeper.agreed().live();
        Ok((live.last, live.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut batch = Batch::new(&self.keeper.agreed().live());
        while let Some(entry) = entries.next().await {
            batch.apply(entry?);
            if batch.is_full() {
                let next = Batch::new(&batch.live);
                self.publish(std::mem::replace(&mut batch, next)).await?;
            }
        }
        self.publish(batch).await
    }

    /// The builder has its own clone of the state: applying goes on while it writes.
    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { keeper: self.keeper.clone(), checkpoint: self.keeper.agreed().live() }
    }

    async fn install_snapshot(
        &mut self,
        _meta: &SnapshotMetaOf<TypeConfig>,
        snapshot: Snapshot,
    ) -> Result<(), io::Error> {
        self.keeper.install(snapshot.checkpoint.clone()).await?;
        drop(snapshot);
        let keeper = self.keeper.clone();
        // Nobody waits for it: a failure shows at the next write, since the store then refuses everything.
        drop(aside::start(move || {
            if let Err(error) = keeper.collect() {
                tracing::error!(code = Event::ContentsNotDropped.code(), %error, "contents that nothing names could not be dropped");
            }
        }));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<TypeConfig, Snapshot>>, io::Error> {
        let current = self.keeper.current();
        Ok(current.map(|checkpoint| Snapshot::new(checkpoint, self.keeper.clone()).described()))
    }
}

/// Writes one checkpoint, then drops contents that it made superfluous.
pub(super) struct Builder {
    keeper: Arc<Keeper>,
    checkpoint: Arc<Checkpoint>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Snapshot;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, Snapshot>, io::Error> {
        let saved = self.keeper.save(self.checkpoint.clone()).await?;
        self.keeper.use_snapshot(&saved);
        let keeper = self.keeper.clone();
        let dropped = blocking(move || keeper.collect()).await?;
        tracing::debug!(last = ?saved.last, dropped, "checkpoint written");
        Ok(Snapshot::new(saved, self.keeper.clone()).described())
    }
}
