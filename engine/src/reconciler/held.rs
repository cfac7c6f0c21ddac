//! How far this member's reconciler has come: what `status`, `coverage` and the primary learn of it.

use crate::domain::{LogIndex, ObjectId};
use crate::wire::{Fitness, ObjectReport, Report, TokenHealth};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// An object that could not be imported or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Why, for people.
    pub reason: String,
    /// Attempts so far.
    pub tries: u32,
    /// True if the token is healthy and said no.
    pub refused: bool,
    /// Not tried again before this.
    pub next: Instant,
}

/// The pause before attempt `tries + 1`: doubles from 100 ms to 10 s.
pub fn pause(tries: u32) -> Duration {
    Duration::from_millis(100 << tries.min(7)).min(Duration::from_secs(10))
}

/// Progress of the reconciler, shared with those who answer questions.
pub struct Progress {
    scanned: watch::Sender<LogIndex>,
    /// Why only a new process can use the token again.
    given_up: watch::Sender<Option<String>>,
    inner: Mutex<Inner>,
}

struct Inner {
    reached: LogIndex,
    unsettled: Vec<ObjectReport>,
    troubles: BTreeMap<ObjectId, Trouble>,
    token: TokenHealth,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            scanned: watch::Sender::new(LogIndex(0)),
            given_up: watch::Sender::new(None),
            inner: Mutex::new(Inner {
                reached: LogIndex(0),
                unsettled: Vec::new(),
                troubles: BTreeMap::new(),
                token: TokenHealth::Healthy,
            }),
        }
    }
}

impl Progress {
    /// All objects up to here are held, dropped or excluded.
    pub fn reached(&self) -> LogIndex {
        self.inner.lock().reached
    }

    /// The catalogue shows the state up to here.
    pub fn scanned(&self) -> watch::Receiver<LogIndex> {
        self.scanned.subscribe()
    }

    /// What could not be done, with reason and tries.
    pub fn troubles(&self) -> BTreeMap<ObjectId, Trouble> {
        self.inner.lock().troubles.clone()
    }

    /// The token's health.
    pub fn token(&self) -> TokenHealth {
        self.inner.lock().token.clone()
    }

    /// Notes the token's health; says if it changed.
    pub fn note_token(&self, health: TokenHealth) -> bool {
        let mut inner = self.inner.lock();
        let changed = inner.token != health;
        inner.token = health;
        changed
    }

    /// Notes that the token failed; says if it had been well. The reason may change as long as it lasts.
    pub(super) fn fails(&self, why: &str) -> bool {
        let mut inner = self.inner.lock();
        let was_well = inner.token == TokenHealth::Healthy;
        inner.token = TokenHealth::Failed(why.to_string());
        was_well
    }

    /// Says that only a new process can use the token again.
    pub(super) fn give_up(&self, why: String) {
        self.given_up.send_replace(Some(why));
    }

    /// Tells why only a new process can use the token again, once that is so.
    pub fn given_up(&self) -> watch::Receiver<Option<String>> {
        self.given_up.subscribe()
    }

    /// The report as it stands. Of the fitness to lead, whoever carries it knows.
    pub fn report(&self) -> Report {
        let inner = self.inner.lock();
        Report {
            reached: inner.reached,
            objects: inner.unsettled.clone(),
            token: inner.token.clone(),
            fitness: Fitness::default(),
            stuck: inner.troubles.values().any(|trouble| !trouble.refused),
        }
    }

    pub(super) fn note_round(
        &self,
        scanned: LogIndex,
        unsettled: Vec<ObjectReport>,
        troubles: BTreeMap<ObjectId, Trouble>,
        whole: bool,
    ) {
        let mut inner = self.inner.lock();
        inner.unsettled = unsettled;
        inner.troubles = troubles;
        if whole {
            inner.reached = inner.reached.max(scanned);
        }
    }

    /// Notes what the catalogue shows: at once, for imports take long.
    pub(super) fn note_scanned(&self, scanned: LogIndex) {
        self.scanned.send_if_modified(|at| {
            let forward = scanned > *at;
            *at = scanned.max(*at);
            forward
        });
    }
}
