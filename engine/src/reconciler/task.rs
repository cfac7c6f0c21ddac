//! The reconciler's loop: waits for the agreed state to change, runs the plan on the token, reports to the primary.

use super::catalogue::Catalogue;
use super::comparison::comparison;
use super::held::{Progress, Trouble, pause};
use super::plan::{Step, plan};
use crate::clock::MemberClock;
use crate::consensus::Agreed;
use crate::direct::Direct;
use crate::domain::{ContentKey, EnvelopeContent, GroupId, MemberId, ObjectId};
use crate::envelope::{self, EnvelopeKeys};
use crate::limits;
use crate::mutant::{self, Mutant};
use crate::state::{Phase, State};
use crate::telemetry::{Event, Metrics};
use crate::token::{Token, TokenError, TokenVerdict};
use crate::wire::{Comparison, ObjectReport, ObjectStatus, Report, TokenHealth};
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};
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
    /// What was deleted on this member alone.
    pub direct: Arc<Direct>,
    /// Filled on the way.
    pub catalogue: Arc<Catalogue>,
    /// Told on the way.
    pub progress: Arc<Progress>,
    /// True once a quorum has confirmed the state since this start.
    pub confirmed: watch::Receiver<bool>,
    /// Asks to compare everything anew, and to tell what came of it.
    pub comparisons: mpsc::Receiver<oneshot::Sender<Comparison>>,
    /// Counts imports.
    pub metrics: Arc<Metrics>,
    /// Where reports go.
    pub reporter: Arc<dyn Reporter>,
    /// For pauses.
    pub clock: MemberClock,
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
        // Who has asked for the comparison of the next round.
        let mut asked: Option<oneshot::Sender<Comparison>> = None;
        while !*stop.borrow() {
            let (scope, steps) = self.round(&mut backlog).await;
            self.reporter.report(self.progress.report());
            if let Some(asked) = asked.take() {
                let held = |id| self.token.held_version(id).is_some();
                let told = self
                    .agreed
                    .read(|state| comparison(state, self.me, &scope, &steps, &backlog.troubles, held));
                // Whoever asked may have gone away.
                let _ = asked.send(told);
            }
            tokio::select! {
                () = agreed.changed() => {}
                _ = tick.tick() => {}
                Some(sender) = self.comparisons.recv() => {
                    backlog.scope = self.everything();
                    backlog.troubles.clear();
                    asked = Some(sender);
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

    /// One comparison; gives what was compared and what there was to do.
    async fn round(&mut self, backlog: &mut Backlog) -> (BTreeSet<ObjectId>, Vec<Step>) {
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
            (state.applied(), plan(state, self.me, held, |id| self.direct.is_deleted(id), &scope, confirmed))
        });
        backlog.failed.clear();
        self.enter_all(&scope, backlog);
        self.progress.note_scanned(scanned);
        self.run_steps(&steps, backlog).await;
        let failed = std::mem::take(&mut backlog.failed);
        backlog.troubles.retain(|id, _| failed.contains(id) || !scope.contains(id));
        let unsettled = self.agreed.read(|state| self.unsettled(state, &backlog.troubles));
        let whole = backlog.troubles.keys().all(|id| unsettled.iter().any(|row| row.object == *id));
        self.progress.note_round(scanned, unsettled, backlog.troubles.clone(), whole);
        (scope, steps)
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

    async fn run_steps(&self, steps: &[Step], backlog: &mut Backlog) {
        let mut imports = Vec::new();
        for step in steps {
            match *step {
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
                let tries = backlog.troubles.get(&object).map_or(0, |trouble| trouble.tries) + 1;
                // One such number may be a hiccup of the device, and the key may even be there.
                let sure = !error.is_ambiguous() || tries >= limits::REFUSALS_MIN;
                let refused = sure && error.verdict() == TokenVerdict::Refused;
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
                    (Phase::Removing(_), None)
                        if self.token.held_version(id).is_none() || mutant::is_on(Mutant::KeepStaleCopy) =>
                    {
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

/// What a token's watch has seen last.
struct Pulse {
    /// When it was looked at last.
    looked: Instant,
    /// When the canary is to sing next.
    due: Instant,
    /// Since when the token has answered as if it did not know this process.
    forgetful: Option<Instant>,
}

/// Watches the token until `stop`: a job at it that hangs, and a canary that does not sing, make it failed; once
/// nothing hangs and the canary sings, it is used again. The canary sings now and then, and soon after an error that may
/// mean a broken token. A token that only a new process can open again has this process ended.
pub async fn watch_token(
    token: Token,
    progress: Arc<Progress>,
    comparisons: mpsc::Sender<oneshot::Sender<Comparison>>,
    clock: MemberClock,
    mut stop: watch::Receiver<bool>,
) {
    let mut tick = tokio::time::interval(limits::TOKEN_LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pulse = Pulse { looked: clock.now(), due: clock.now(), forgetful: None };
    let mut song = None;
    loop {
        let sung = tokio::select! {
            _ = tick.tick() => None,
            () = token.doubted() => {
                pulse.due = clock.now();
                None
            }
            sung = sing(&mut song) => Some(sung),
            _ = stop.changed() => return,
        };
        if sung.is_some() {
            song = None;
        }
        let now = clock.now();
        let slept = now.saturating_duration_since(std::mem::replace(&mut pulse.looked, now));
        if slept >= limits::ATTEMPT / 2 {
            // The whole process was stopped, and everything in it seems to hang: it gets another look to return.
            tick.reset();
            continue;
        }
        if let Some(time) = token.hangs() {
            // Its song, if there is one, waits behind what hangs, or hangs itself.
            song = None;
            pulse.due = now;
            fail(&progress, format!("a call of its library has not returned for {} s", time.as_secs()));
            if time >= limits::TOKEN_HANG_MAX {
                progress.give_up(format!("a call of the token's library hangs for {} s", time.as_secs()));
            }
            continue;
        }
        if let Some(sung) = sung {
            pulse.due = now + limits::CANARY_EVERY;
            listen(sung, &progress, &comparisons, &mut pulse, now);
        }
        if song.is_none() && now >= pulse.due {
            // The canary has a limit of its own, which knows when the token is busy making a key.
            let token = token.clone();
            song = Some(Box::pin(async move { token.canary().await }));
        }
    }
}

type Song = BoxFuture<'static, Result<(), TokenError>>;

/// Waits for the song's end; for ever if there is none.
async fn sing(song: &mut Option<Song>) -> Result<(), TokenError> {
    match song {
        Some(song) => song.await,
        None => std::future::pending().await,
    }
}

fn listen(
    sung: Result<(), TokenError>,
    progress: &Progress,
    comparisons: &mpsc::Sender<oneshot::Sender<Comparison>>,
    pulse: &mut Pulse,
    now: Instant,
) {
    let error = match sung {
        Ok(()) => {
            pulse.forgetful = None;
            if progress.note_token(TokenHealth::Healthy) {
                info!(
                    code = Event::TokenHealed.code(),
                    "the token works again: this member brings it up to date and serves with it"
                );
                // What failed meanwhile is tried again at once. Nobody waits for what comes of it, and a comparison that
                // others have asked for does as well.
                let _ = comparisons.try_send(oneshot::channel().0);
            }
            return;
        }
        Err(error) => error,
    };
    let since = error.is_forgetful().then(|| pulse.forgetful.unwrap_or(now));
    pulse.forgetful = since;
    if since.is_some_and(|since| now.saturating_duration_since(since) >= limits::TOKEN_FORGETFUL_MAX) {
        progress.give_up(format!("the token no longer knows this process: {error}"));
    }
    fail(progress, error.to_string());
}

fn fail(progress: &Progress, why: String) {
    if progress.fails(&why) {
        tracing::error!(
            code = Event::TokenFailed.code(),
            reason = why,
            "the token failed: this member serves no keys until it works again. If it does not by itself, repair or \
             replace it, then run 'keyraft recover' and start the member again"
        );
    }
}
