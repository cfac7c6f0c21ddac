//! Threads that use and change keys without rest, and the longest pause that any of them saw.

use crate::raw::{Answer, Module, Refused};
use cryptoki_sys::{CK_OBJECT_HANDLE, CK_SLOT_ID};
use keyraft_engine::clock::Clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Refusals that are told of; the rest is counted alone.
const TOLD_MAX: usize = 5;

/// What one thread has seen.
#[derive(Debug)]
struct Seen {
    /// When it last succeeded.
    last: Instant,
    /// Its longest way from one success to the next since somebody asked.
    longest: Duration,
    done: u64,
    failed: u64,
    refusals: Vec<String>,
}

impl Seen {
    fn note(&mut self, outcome: Answer<()>) {
        match outcome {
            Ok(()) => {
                let now = Clock.now();
                self.longest = self.longest.max(now.saturating_duration_since(self.last));
                self.last = now;
                self.done += 1;
            }
            Err(Refused { code, by }) => {
                self.failed += 1;
                if self.refusals.len() < TOLD_MAX {
                    self.refusals.push(format!("{code:#x} {by}"));
                }
            }
        }
    }
}

/// The threads: those that sign, and one that makes keys, uses each, and destroys every second one.
pub struct Load {
    stop: Arc<AtomicBool>,
    users: Vec<(Arc<Mutex<Seen>>, JoinHandle<()>)>,
    changer: (Arc<Mutex<Seen>>, JoinHandle<()>),
}

impl Load {
    /// Starts so many threads that sign with a key, and the one that changes.
    pub fn start(
        module: &Arc<Module>,
        slot: CK_SLOT_ID,
        threads: u64,
        key: CK_OBJECT_HANDLE,
    ) -> Answer<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let begin = |mut work: Box<dyn FnMut(u64) -> Answer<()> + Send>| {
            let seen =
                Seen { last: Clock.now(), longest: Duration::ZERO, done: 0, failed: 0, refusals: Vec::new() };
            let seen = Arc::new(Mutex::new(seen));
            let (stop, noted) = (stop.clone(), seen.clone());
            let thread = std::thread::spawn(move || {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let outcome = work(round);
                    noted.lock().unwrap_or_else(PoisonError::into_inner).note(outcome);
                }
            });
            (seen, thread)
        };
        let mut users = Vec::new();
        for _ in 0..threads {
            let (module, session) = (module.clone(), module.open(slot, false)?);
            users.push(begin(Box::new(move |_| module.sign(session, key).map(|_| ()))));
        }
        let (module, session) = (module.clone(), module.open(slot, true)?);
        let changer = begin(Box::new(move |round| {
            let made = module.aes(session, true, &format!("load-{round}"))?;
            module.seal(session, made)?;
            if round % 2 == 0 { Ok(()) } else { module.destroy(session, made) }
        }));
        Ok(Self { stop, users, changer })
    }

    /// The longest pauses since the last question, milliseconds: of use, and of changes.
    pub fn pauses(&self) -> (u128, u128) {
        let longest = |seen: &Mutex<Seen>| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Clock.now().saturating_duration_since(seen.last);
            std::mem::take(&mut seen.longest).max(now).as_millis()
        };
        let uses = self.users.iter().map(|(seen, _)| longest(seen)).max().unwrap_or_default();
        (uses, longest(&self.changer.0))
    }

    /// Ends all of it: uses and changes that succeeded, how many did not, and what some of these were told.
    pub fn end(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        let (mut counts, mut failed, mut refusals) = ([0, 0], 0, Vec::new());
        let all = self.users.into_iter().map(|one| (0, one)).chain([(1, self.changer)]);
        for (kind, (seen, thread)) in all {
            if thread.join().is_err() {
                refusals.push("a thread panicked".into());
                failed += 1;
            }
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            counts[kind] += seen.done;
            failed += seen.failed;
            refusals.append(&mut seen.refusals);
        }
        format!("{} {} {failed} {}", counts[0], counts[1], refusals.join(", "))
    }
}
