//! The reconciler's loop: waits for the agreed state to change, runs the plan on the token, reports to the primary.

use super::catalogue::Catalogue;
use super::held::{Progress, Trouble, pause};
use super::plan::{Step, plan};
use crate::clock::Clock;
use crate::consensus::Agreed;
use crate::domain::{ContentKey, EnvelopeContent, GroupId, MemberId, ObjectId};
use crate::envelope::{self, EnvelopeKeys};
use crate::limits;
use crate::state::{Phase, State};
use crate::telemetry::{Event, Metrics};
use crate::token::{Token, TokenVerdict};
use crate::wire::{ObjectReport, ObjectStatus, Report, TokenHealth};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

/// Carries reports to the primary. Losing one is harmless: the next says all of it again.
pub trait Reporter: Send + Sync + 'static {
    /// Hands over the latest report; never waits.
    fn report(&self, report: Report);
}

/// Keeps one member's token equal to the agreed state.
pub struct Reconciler {
    /// This member.
    pub me: MemberId,
    /// Its group.
    pub group: GroupId,
    /// What is agreed.
    pub agreed: Arc<Agreed>,
    /// What holds.
    pub token: Token,
    /// Opens envelopes.
    pub keys: Arc<EnvelopeKeys>,
    /// Filled on the way.
    pub catalogue: Arc<Catalogue>,
    /// Told on the way.
    pub progress: Arc<Progress>,
    /// True once a quorum has confirmed the state since this start.
    pub confirmed: watch::Receiver<bool>,
    /// Woken to compare everything anew.
    pub synchronize: Arc<Notify>,
    /// Counts imports.
    pub metrics: Arc<Metrics>,
    /// Where reports go.
    pub reporter: Arc<dyn Reporter>,
    /// For pauses.
    pub clock: Clock,
}

/// What one round carries over to the next.
#[derive(Default)]
struct Backlog {
    /// Objects to compare next.
    scope: BTreeSet<ObjectId>,
    /// Objects that failed, until they succeed.
    troubles: BTreeMap<ObjectId, Trouble>,
    /// Those of them that failed in this round.
    failed: BTreeSet<ObjectId>,
}

impl Reconciler {
    /// Runs until `stop`.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut backlog = Backlog { scope: self.everything(), ..Backlog::default() };
        let mut tick = tokio::time::interval(limits::MEMBER_HEARTBEAT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let agreed = self.agreed.clone();
        let synchronize = self.synchronize.clone();
        while !*stop.borrow() {
            self.round(&mut backlog).await;
            self.reporter.report(self.progress.report());
            tokio::select! {
                () = agreed.changed() => {}
                _ = tick.tick() => {}
                () = synchronize.notified() => {
                    backlog.scope = self.everything();
                    backlog.troubles.clear();
                }
                Ok(()) = self.confirmed.changed() => backlog.scope = self.everything(),
                _ = stop.changed() => {}
            }
        }
    }

    /// Every object that is agreed, entered or held.
    fn everything(&self) -> BTreeSet<ObjectId> {
        let mut all: BTreeSet<ObjectId> =
            self.agreed.read(|state| state.objects().map(|(id, _)| id).collect());
        all.extend(self.catalogue.ids());
        all.extend(self.token.held().into_keys());
        all
    }

    async fn round(&mut self, backlog: &mut Backlog) {
        let dirty = self.agreed.take_dirty();
        if dirty.all {
            backlog.scope = self.everything();
        }
        backlog.scope.extend(dirty.objects);
        let now = self.clock.now();
        let due = backlog.troubles.iter().filter(|(_, t)| t.next <= now).map(|(id, _)| *id);
        backlog.scope.extend(due);
        let scope = std::mem::take(&mut backlog.scope);
        let confirmed = *self.confirmed.borrow();
        let (scanned, steps) = self.agreed.read(|state| {
            let held = |id| self.token.held_version(id);
            (state.applied(), plan(state, self.me, held, &scope, confirmed))
        });
        backlog.failed.clear();
        self.enter_all(&scope, backlog);
        self.progress.note_scanned(scanned);
        self.run_steps(steps, backlog).await;
        let failed = std::mem::take(&mut backlog.failed);
        backlog.troubles.retain(|id, _| failed.contains(id) || !scope.contains(id));
        let unsettled = self.agreed.read(|state| self.unsettled(state, &backlog.troubles));
        let whole = backlog.troubles.keys().all(|id| unsettled.iter().any(|row| row.object == *id));
        self.progress.note_round(scanned, unsettled, backlog.troubles.clone(), whole);
    }

    /// Brings the catalogue up to date for these objects.
    fn enter_all(&self, scope: &BTreeSet<ObjectId>, backlog: &mut Backlog) {
        for &id in scope {
            let content = self.agreed.read(|state| state.object(id).map(|object| object.content));
            match content {
                None => self.catalogue.remove(id),
                Some(name) if self.catalogue.version(id) == Some(name.version) => {}
                Some(name) => match self.open(name) {
                    Ok(content) => self.catalogue.enter(id, name.version, &content.record),
                    Err(reason) => self.trouble(backlog, id, reason, false),
                },
            }
        }
    }

    async fn run_steps(&self, steps: Vec<Step>, backlog: &mut Backlog) {
        let mut imports = Vec::new();
        for step in steps {
            match step {
                Step::Import(name) => imports.push(name),
                Step::Drop(object) => {
                    if let Err(error) = self.token.drop_object(object).await {
                        self.trouble(backlog, object, error.to_string(), false);
                    }
                }
            }
        }
        let many = imports.len() > limits::IMPORT_BATCH;
        if many {
            info!(
                code = Event::CatchingUp.code(),
                objects = imports.len(),
                "catching up: importing keys into the token"
            );
        }
        for batch in imports.chunks(limits::IMPORT_BATCH) {
            self.import(batch, backlog).await;
        }
        if many {
            info!(
                code = Event::CaughtUp.code(),
                objects = imports.len(),
                troubles = backlog.troubles.len(),
                "caught up"
            );
        }
    }

    async fn import(&self, batch: &[ContentKey], backlog: &mut Backlog) {
        let mut opened = Vec::with_capacity(batch.len());
        for &name in batch {
            match self.open(name) {
                Ok(content) => opened.push((name, content)),
                Err(reason) => self.trouble(backlog, name.object, reason, false),
            }
        }
        let names: Vec<ObjectId> = opened.iter().map(|(name, _)| name.object).collect();
        let results = self.token.import_many(opened).await;
        for (object, result) in names.into_iter().zip(results) {
            self.metrics.imported(result.is_ok());
            if let Err(error) = result {
                let refused = error.verdict() == TokenVerdict::Refused;
                self.trouble(backlog, object, error.to_string(), refused);
            }
        }
    }

    fn open(&self, name: ContentKey) -> Result<EnvelopeContent, String> {
        let envelope = match self.agreed.content(name) {
            Ok(Some(envelope)) => envelope,
            Ok(None) => return Err(format!("the store lacks the content of object {name}")),
            Err(error) => return Err(format!("the store cannot read object {name}: {error}")),
        };
        let key = self
            .keys
            .get(name.generation)
            .ok_or_else(|| format!("this member has no envelope key of generation {}", name.generation))?;
        envelope::open(key, self.group, name, &envelope).map_err(|error| error.to_string())
    }

    fn trouble(&self, backlog: &mut Backlog, object: ObjectId, reason: String, refused: bool) {
        let tries = backlog.troubles.get(&object).map_or(0, |trouble| trouble.tries) + 1;
        if tries == 1 {
            warn!(code = Event::ObjectNotReconciled.code(), %object, reason, refused, "an object could not be reconciled; it will be tried again");
        }
        let next = self.clock.now() + pause(tries);
        backlog.failed.insert(object);
        backlog.troubles.insert(object, Trouble { reason, tries, refused, next });
    }

    /// What to tell of the objects that wait for a settlement.
    fn unsettled(&self, state: &State, troubles: &BTreeMap<ObjectId, Trouble>) -> Vec<ObjectReport> {
        state
            .unsettled_objects()
            .filter_map(|(id, object)| {
                let held = self.token.held_version(id) == Some(object.content.version);
                let status = match (&object.phase, troubles.get(&id)) {
                    (_, Some(t)) if t.refused => ObjectStatus::Refused(t.reason.clone()),
                    (_, Some(t)) => ObjectStatus::Failing(t.reason.clone()),
                    (Phase::Pending(_), None) if held || !object.is_held_by(self.me) => ObjectStatus::Held,
                    (Phase::Removing(_), None) if self.token.held_version(id).is_none() => {
                        ObjectStatus::Dropped
                    }
                    _ => return None,
                };
                Some(ObjectReport { object: id, version: object.content.version, status })
            })
            .take(limits::ROWS_MAX)
            .collect()
    }
}

/// Uses the token's canary key now and then, until `stop`. A token that fails stays failed until the member is
/// restarted or recovered: one that comes back by itself may be another one.
pub async fn watch_token(token: Token, progress: Arc<Progress>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::CANARY_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        // The canary has a limit of its own, which knows when the token is busy making a key.
        let failure = match token.canary().await {
            Ok(()) => continue,
            Err(error) => error.to_string(),
        };
        if progress.note_token(TokenHealth::Failed(failure.clone())) {
            tracing::error!(
                code = Event::TokenFailed.code(),
                reason = failure,
                "the token failed: this member no longer serves keys. Repair or replace the token, then run \
                 'keyraft recover' and start the member again"
            );
        }
        return;
    }
}
