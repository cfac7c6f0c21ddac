//! What does a model's jobs in place of threads: tasks of the caller's runtime, as many at once as there would be
//! threads. A job takes the model's time, in which it counts as being at the token, and is then done at once.

use super::super::ModuleSource;
use super::super::desks::{Desk, Queue};
use super::super::vault::Vault;
use super::ModelToken;
use crate::clock::Clock;
use crate::limits;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// The tasks of one open token.
pub(in super::super) struct Hands {
    queue: Arc<Queue>,
    token: Arc<ModelToken>,
    busy: AtomicUsize,
    /// None once it is closed.
    owner: Mutex<Option<Owner>>,
}

/// Whoever has one keeps the token open; dropped in this order.
#[derive(Clone)]
struct Owner {
    vault: Arc<Vault>,
    _life: Arc<watch::Sender<()>>,
}

/// Counts a task for as long as it is there.
struct Busy(Arc<Hands>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hands {
    /// Those of a model; None for a token that has threads.
    pub fn of(
        source: &ModuleSource,
        (vault, queue, life): (&Arc<Vault>, &Arc<Queue>, &Arc<watch::Sender<()>>),
    ) -> Option<Arc<Self>> {
        let ModuleSource::Model(token) = source else { return None };
        Some(Arc::new(Self {
            queue: queue.clone(),
            token: token.clone(),
            busy: AtomicUsize::new(0),
            owner: Mutex::new(Some(Owner { vault: vault.clone(), _life: life.clone() })),
        }))
    }

    /// Lets go of the token, which closes with the last job that is at it.
    pub fn close(&self) {
        self.owner.lock().take();
    }

    /// Has the jobs that wait done; within a runtime.
    pub fn wake(self: &Arc<Self>) {
        let Some(owner) = self.owner.lock().clone() else { return };
        if self.busy.load(Ordering::Relaxed) < limits::TOKEN_THREADS {
            self.busy.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(work(owner, Busy(self.clone())));
        }
    }
}

async fn work(owner: Owner, busy: Busy) {
    let (vault, hands) = (&owner.vault, &busy.0);
    let mut desk = Desk::default();
    while let Some(job) = hands.queue.take() {
        if job.is_wanted() {
            let _call = vault.ledger.calls.begin(job.kind(), Clock.now());
            hands.token.pace.pass().await;
            job.run(vault, &mut desk);
        }
    }
}
