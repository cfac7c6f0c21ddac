//! How long a blocking connection waits: until a moment, and never longer than a while for the next byte.

use crate::clock::Clock;
use std::io;
use std::time::{Duration, Instant};

/// The limits of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// Everything must end by then.
    pub until: Instant,
    /// Some byte must pass within this time.
    pub quiet: Duration,
}

impl Wait {
    /// A wait for the next byte begins.
    pub fn begin(self) -> Limit {
        Limit { wait: self, begun: None }
    }
}

/// One wait for a byte.
#[derive(Debug)]
pub(super) struct Limit {
    wait: Wait,
    /// Known once a signal interrupted: until then nothing has been waited for.
    begun: Option<Instant>,
}

impl Limit {
    /// What may still be waited; an error once nothing is left.
    pub fn left(&self) -> io::Result<Duration> {
        let now = Clock.now();
        let quiet = self.begun.map_or(self.wait.quiet, |begun| {
            self.wait.quiet.saturating_sub(now.saturating_duration_since(begun))
        });
        let left = self.wait.until.saturating_duration_since(now).min(quiet);
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    /// A signal came: the wait goes on for what is left of it. What passed until the first one is waited again, so
    /// that no call needs the time.
    pub fn interrupted(&mut self) {
        self.begun.get_or_insert_with(|| Clock.now());
    }
}

/// A socket's timeout as it was last set: the kernel is told again only of another one.
#[derive(Debug, Default)]
pub(super) struct Timeout(Option<Duration>);

impl Timeout {
    /// Sets it by `set`, unless it is set already.
    pub fn set(&mut self, left: Duration, set: impl FnOnce(Duration) -> io::Result<()>) -> io::Result<()> {
        if self.0 != Some(left) {
            set(left)?;
            self.0 = Some(left);
        }
        Ok(())
    }
}
