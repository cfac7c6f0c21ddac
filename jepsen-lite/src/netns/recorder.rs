//! Who writes the history. Every event bears the boot's monotonic time, which all processes of a machine share: events of the
//! clients' process and of ours are put in order by it. A call's time is taken before it, an end's after it.

use crate::history::{Event, History};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};

/// The machine's monotonic clock, nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Collects events of all threads.
#[derive(Debug)]
pub struct Recorder {
    /// When the run began, by [`now`].
    pub base: u64,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// Begins now.
    pub fn new() -> Self {
        Self { base: now(), events: Mutex::default() }
    }

    /// Takes an event that bears its time, or happens now.
    pub fn take(&self, mut event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        event.time.get_or_insert_with(|| now().saturating_sub(self.base));
        events.push(event);
    }

    /// All of it in order.
    pub fn end(&self) -> History {
        let mut events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        events.sort_by_key(|event| event.time);
        History::new(events)
    }
}
