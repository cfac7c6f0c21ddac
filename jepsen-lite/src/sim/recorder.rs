//! Who writes a simulated history: in the order in which things happen, which one thread decides.

use super::entropy;
use super::network::guard;
use crate::history::{Event, History};
use std::sync::Mutex;
use std::time::Duration;

/// Collects events.
#[derive(Debug)]
pub struct Recorder {
    base: Duration,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// Begins now.
    pub fn new() -> Self {
        Self { base: entropy::elapsed(), events: Mutex::default() }
    }

    /// Takes an event that happens now.
    pub fn take(&self, mut event: Event) {
        let mut events = guard(&self.events);
        let now = u64::try_from(entropy::elapsed().saturating_sub(self.base).as_nanos()).unwrap_or(u64::MAX);
        // A machine's clock may be a tick ahead of the one that is stepped after it.
        let last = events.last().and_then(|event| event.time).unwrap_or(0);
        event.time = Some(now.max(last));
        events.push(event);
    }

    /// All of it.
    pub fn end(&self) -> History {
        History::new(std::mem::take(&mut *guard(&self.events)))
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}
