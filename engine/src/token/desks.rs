//! Where a token's work is done: the sessions, the queue of jobs for the token's own threads, and the bench at which other
//! threads work themselves.

use super::TokenError;
use super::calls::{Calls, Work};
use super::door::Session;
use super::vault::{Vault, broken};
use crate::clock::Clock;
use crate::limits;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// A job, for whoever has a desk.
pub(super) trait Job: Send {
    fn kind(&self) -> Work;

    /// False once nobody waits for its answer any more: a deadline has passed.
    fn is_wanted(&self) -> bool;

    fn run(self: Box<Self>, vault: &Vault, desk: &mut Desk);
}

/// A thread's own session, opened when first needed and dropped after an error: a failed operation can leave a
/// session answering CKR_OPERATION_ACTIVE for ever.
#[derive(Default)]
pub(super) struct Desk(Option<Session>);

impl Desk {
    pub fn with<T>(
        &mut self,
        vault: &Vault,
        work: impl FnOnce(&Session) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let session = match self.0.take() {
            Some(session) => session,
            None => {
                // Opening changes the token's table of sessions, so it counts as a write.
                let _exclusive = vault.gate.write();
                vault.module.open(vault.slot).map_err(broken)?
            }
        };
        let done = work(&session);
        if done.is_ok() {
            self.0 = Some(session);
        } else {
            let _exclusive = vault.gate.write();
            drop(session);
        }
        done
    }
}

#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn Job>>,
    closed: bool,
}

impl Queue {
    /// Jobs that no thread has taken yet.
    pub fn waiting(&self) -> usize {
        self.inner.lock().jobs.len()
    }

    pub fn push(&self, job: Box<dyn Job>, first: bool) -> Result<(), TokenError> {
        let mut waiting = self.inner.lock();
        if waiting.closed {
            return Err(TokenError::Closed);
        }
        if first {
            waiting.jobs.push_front(job);
        } else if waiting.jobs.len() < limits::TOKEN_QUEUE_MAX {
            waiting.jobs.push_back(job);
        } else {
            return Err(TokenError::Busy(waiting.jobs.len()));
        }
        drop(waiting);
        self.filled.notify_one();
        Ok(())
    }

    /// The next job; None once the queue is closed.
    pub fn pop(&self) -> Option<Box<dyn Job>> {
        let mut waiting = self.inner.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            self.filled.wait(&mut waiting);
        }
    }

    /// The next job, if there is one.
    #[cfg(feature = "test-hooks")]
    pub fn take(&self) -> Option<Box<dyn Job>> {
        self.inner.lock().jobs.pop_front()
    }

    pub fn close(&self) {
        let mut waiting = self.inner.lock();
        waiting.closed = true;
        // Dropped jobs tell their callers that the token was closed.
        waiting.jobs.clear();
        drop(waiting);
        self.filled.notify_all();
    }
}

/// Sessions for those who work on threads of their own, as many as the token's threads have.
pub(super) struct Bench {
    vault: Weak<Vault>,
    calls: Arc<Calls>,
    desks: Mutex<Desks>,
    freed: Condvar,
}

#[derive(Default)]
struct Desks {
    idle: Vec<Desk>,
    lent: usize,
    closed: bool,
}

impl Bench {
    pub fn new(vault: Weak<Vault>, calls: Arc<Calls>) -> Self {
        Self { vault, calls, desks: Mutex::default(), freed: Condvar::default() }
    }

    /// Works at a free desk; waits for one no longer than [`limits::ATTEMPT`], and not at all while a job hangs.
    pub fn with<T>(
        &self,
        work: impl FnOnce(&Vault, &mut Desk) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let vault = self.vault.upgrade().ok_or(TokenError::Closed)?;
        let mut desk = self.borrow()?;
        let done = {
            let _call = self.calls.begin(Work::Use, Clock.now());
            catch_unwind(AssertUnwindSafe(|| work(&vault, &mut desk)))
        };
        let mut desks = self.desks.lock();
        desks.lent -= 1;
        // A panic loses its session.
        if done.is_ok() && !desks.closed {
            desks.idle.push(desk);
        }
        drop(desks);
        self.freed.notify_one();
        done.unwrap_or(Err(TokenError::Closed))
    }

    fn borrow(&self) -> Result<Desk, TokenError> {
        let deadline = Clock.now() + limits::ATTEMPT;
        let mut desks = self.desks.lock();
        loop {
            if desks.closed {
                return Err(TokenError::Closed);
            }
            self.calls.refuse_hanging()?;
            if desks.lent < limits::TOKEN_THREADS {
                desks.lent += 1;
                return Ok(desks.idle.pop().unwrap_or_default());
            }
            if self.freed.wait_until(&mut desks, deadline).timed_out() {
                return Err(TokenError::Busy(desks.lent));
            }
        }
    }

    /// Wakes those who wait, to be refused while a job hangs.
    pub fn wake(&self) {
        self.freed.notify_all();
    }

    pub fn is_lent(&self) -> bool {
        self.desks.lock().lent > 0
    }

    pub fn close(&self) {
        let mut desks = self.desks.lock();
        desks.closed = true;
        desks.idle.clear();
        drop(desks);
        self.freed.notify_all();
    }
}
