//! Who does a token's jobs: threads of its own, or for a model tasks.

use super::calls::Work;
use super::desks::{Bench, Desk, Job, Queue};
#[cfg(feature = "test-hooks")]
use super::model::Hands;
use super::vault::{Ledger, Vault};
use super::{TokenConfig, TokenError, slot};
use crate::clock::Clock;
use crate::limits;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// An open token with those who work at it. Closed when dropped, which waits for its threads.
pub(super) struct Crew {
    pub queue: Arc<Queue>,
    pub bench: Bench,
    pub ledger: Arc<Ledger>,
    /// Keys being generated: they may block a token for seconds.
    pub generating: AtomicUsize,
    /// Jobs and uses since it was opened.
    pub calls: AtomicU64,
    /// Closed when the last thread has gone.
    pub alive: watch::Receiver<()>,
    /// What works in place of threads at a model.
    #[cfg(feature = "test-hooks")]
    hands: Option<Arc<Hands>>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.close();
        if self.is_model() {
            return;
        }
        // A process that ends while a thread is still closing its session would run the library's destructors under
        // it: SoftHSM has been seen to crash so.
        let until = Clock.now() + limits::CLOSE_GRACE;
        while (self.alive.has_changed().is_ok() || self.bench.is_lent()) && Clock.now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Crew {
    /// Opens the token and starts the threads.
    pub fn start(config: &TokenConfig) -> Result<Self, TokenError> {
        let vault = Arc::new(slot::open(config)?);
        let (life, alive) = watch::channel(());
        let life = Arc::new(life);
        let queue = Arc::new(Queue::default());
        let ledger = vault.ledger.clone();
        let crew = Self {
            queue: queue.clone(),
            bench: Bench::new(Arc::downgrade(&vault), ledger.calls.clone()),
            ledger,
            generating: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
            alive,
            #[cfg(feature = "test-hooks")]
            hands: Hands::of(&config.source, (&vault, &queue, &life)),
        };
        if crew.is_model() {
            return Ok(crew);
        }
        for number in 0..limits::TOKEN_THREADS {
            let (vault, queue, life) = (vault.clone(), queue.clone(), life.clone());
            let run = move || {
                let mut desk = Desk::default();
                while let Some(job) = queue.pop() {
                    // A job that panics loses its session and its answer, not the thread.
                    if catch_unwind(AssertUnwindSafe(|| carry_out(job, &vault, &mut desk))).is_err() {
                        desk = Desk::default();
                    }
                }
                // Sessions close before the end of this thread's life is told.
                drop(desk);
                drop(vault);
                drop(life);
            };
            let started = std::thread::Builder::new().name(format!("token-{number}")).spawn(run);
            started.map_err(|error| TokenError::Module {
                path: "threads".into(),
                reason: format!("the system starts no thread: {error}"),
            })?;
        }
        Ok(crew)
    }

    /// Has a job done, ahead of all others if it is to be first.
    pub fn hand_in(&self, job: Box<dyn Job>, first: bool) -> Result<(), TokenError> {
        self.queue.push(job, first)?;
        #[cfg(feature = "test-hooks")]
        self.hands.iter().for_each(Hands::wake);
        Ok(())
    }

    /// Takes no more jobs, and lets go of the token when those under way have ended.
    pub fn close(&self) {
        self.bench.close();
        self.queue.close();
        #[cfg(feature = "test-hooks")]
        self.hands.iter().for_each(|hands| hands.close());
    }

    /// True if there are no threads.
    pub fn is_model(&self) -> bool {
        #[cfg(feature = "test-hooks")]
        return self.hands.is_some();
        #[cfg(not(feature = "test-hooks"))]
        false
    }
}

/// A job and the one who waits for it.
pub(super) struct Errand<T, W> {
    pub kind: Work,
    pub tell: oneshot::Sender<Result<T, TokenError>>,
    pub work: W,
}

impl<T, W> Job for Errand<T, W>
where
    T: Send,
    W: FnOnce(&Vault, &mut Desk) -> Result<T, TokenError> + Send,
{
    fn kind(&self) -> Work {
        self.kind
    }

    fn is_wanted(&self) -> bool {
        !self.tell.is_closed()
    }

    fn run(self: Box<Self>, vault: &Vault, desk: &mut Desk) {
        let _ = self.tell.send((self.work)(vault, desk));
    }
}

fn carry_out(job: Box<dyn Job>, vault: &Vault, desk: &mut Desk) {
    if job.is_wanted() {
        let _call = vault.ledger.calls.begin(job.kind(), Clock.now());
        job.run(vault, desk);
    }
}
