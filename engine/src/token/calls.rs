//! Which jobs are at the token, since when, and which of them should have returned by now.

use super::TokenError;
use crate::limits;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// What a job does, which says how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// One use of a key, or as little.
    Use,
    /// Looking if the token works.
    Canary,
    /// Writing or destroying one object.
    Write,
    /// Making keys.
    Generate,
    /// Looking at everything in the token.
    Search,
    /// Others, one after the other, which are counted one by one.
    Batch,
}

impl Work {
    fn limit(self) -> Option<Duration> {
        match self {
            Self::Use => Some(limits::ATTEMPT),
            Self::Canary => Some(limits::CANARY_LIMIT),
            Self::Write => Some(limits::IMPORT),
            Self::Generate => Some(limits::GENERATE_ATTEMPT),
            Self::Search => Some(limits::TOKEN_SEARCH),
            Self::Batch => None,
        }
    }
}

#[derive(Clone, Copy)]
struct Running {
    number: u64,
    work: Work,
    since: Instant,
    /// Jobs that began later and have returned.
    overtaken: u32,
    /// It was found to hang, which ends with its return alone.
    hangs: bool,
}

#[derive(Default)]
struct Inner {
    next: u64,
    running: Vec<Running>,
    /// Jobs that have returned, but canaries: those sing on while all others hang.
    ended: u64,
    /// How many had returned by the last look, and when a look last found more than before.
    looked: (u64, Option<Instant>),
}

/// The jobs at one token.
pub(super) struct Calls {
    inner: Mutex<Inner>,
    /// While a job hangs: for how long it had been at the token when that was noticed.
    hangs: watch::Sender<Option<Duration>>,
    /// Woken when an error says that the token may be broken.
    pub doubt: Notify,
}

impl Default for Calls {
    fn default() -> Self {
        Self { inner: Mutex::default(), hangs: watch::Sender::new(None), doubt: Notify::new() }
    }
}

/// A job at the token; it counts until this is dropped.
pub(super) struct Call<'a> {
    calls: &'a Calls,
    number: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut inner = self.calls.inner.lock();
        let Some(at) = inner.running.iter().position(|running| running.number == self.number) else { return };
        if inner.running.swap_remove(at).work == Work::Canary {
            return;
        }
        inner.ended += 1;
        for earlier in inner.running.iter_mut().filter(|running| running.number < self.number) {
            earlier.overtaken = earlier.overtaken.saturating_add(1);
        }
    }
}

impl Calls {
    /// Counts a job from now on.
    pub fn begin(&self, work: Work, now: Instant) -> Call<'_> {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.running.push(Running { number, work, since: now, overtaken: 0, hangs: false });
        Call { calls: self, number }
    }

    /// How long the job has been at the token that should have returned long ago, if there is one. Whoever waits for
    /// the token is told.
    pub fn look(&self, now: Instant) -> Option<Duration> {
        let overdue = {
            let mut inner = self.inner.lock();
            if inner.looked.0 != inner.ended {
                inner.looked = (inner.ended, Some(now));
            }
            let moved = inner.looked.1;
            overdue(&mut inner.running, moved, now)
        };
        self.hangs.send_if_modified(|hangs| {
            let changed = hangs.is_some() != overdue.is_some();
            *hangs = overdue;
            changed
        });
        overdue
    }

    /// Refuses while a job hangs: a further one would hang as well.
    pub fn refuse_hanging(&self) -> Result<(), TokenError> {
        match *self.hangs.borrow() {
            Some(time) => Err(TokenError::Hangs(time.as_secs())),
            None => Ok(()),
        }
    }

    /// True if a job hung at the last look.
    pub fn is_hung(&self) -> bool {
        self.hangs.borrow().is_some()
    }

    /// Tells when a job hangs.
    pub fn hangs(&self) -> watch::Receiver<Option<Duration>> {
        self.hangs.subscribe()
    }
}

/// The longest of those that are past their limits, if nothing comes out of the token any more; `moved` is when
/// something last did. One that takes long by its nature excuses those that wait for it: some tokens do one thing at a
/// time.
fn overdue(running: &mut [Running], moved: Option<Instant>, now: Instant) -> Option<Duration> {
    let late = |call: &Running| {
        let Some(limit) = call.work.limit() else { return false };
        let end = call.since + limit;
        let excused = || {
            running.iter().any(|other| {
                // The canary is as quick as a use, though it may wait for longer.
                let longer =
                    other.work.limit().filter(|longer| *longer > limit && other.work != Work::Canary);
                longer.is_some_and(|longer| other.since <= end && now < other.since + longer)
            })
        };
        now >= end && !waits_its_turn(call, limit, moved, now) && !excused()
    };
    let hangs: Vec<bool> = running.iter().map(late).collect();
    let mut longest = None;
    for (call, hangs) in running.iter_mut().zip(hangs) {
        call.hangs = hangs;
        if hangs {
            longest = longest.max(Some(now.saturating_duration_since(call.since)));
        }
    }
    longest
}

/// True if a job may be late because others of a slow token go first. Not for ever: one session can hang alone.
fn waits_its_turn(call: &Running, limit: Duration, moved: Option<Instant>, now: Instant) -> bool {
    !call.hangs
        && moved.is_some_and(|moved| now < moved + limit)
        && now < call.since + limit * limits::TOKEN_TURNS_MAX
        && call.overtaken < limits::TOKEN_OVERTAKEN_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_job_past_its_limit_hangs_until_it_returns() {
        let (calls, start) = (Calls::default(), Clock.now());
        let call = calls.begin(Work::Use, start);
        let _batch = calls.begin(Work::Batch, start);
        assert_eq!(calls.look(start + limits::ATTEMPT - MOMENT), None);
        assert!(calls.refuse_hanging().is_ok());
        assert_eq!(calls.look(start + limits::ATTEMPT), Some(limits::ATTEMPT));
        assert!(matches!(calls.refuse_hanging(), Err(TokenError::Hangs(_))));
        assert!(calls.hangs().borrow().is_some());
        drop(call);
        assert_eq!(calls.look(start + limits::ATTEMPT * 2), None);
        assert!(calls.refuse_hanging().is_ok());
    }

    #[test]
    fn a_key_being_made_excuses_those_that_wait_for_it() {
        let (calls, start) = (Calls::default(), Clock.now());
        let _generate = calls.begin(Work::Generate, start);
        let _use = calls.begin(Work::Use, start + MOMENT);
        assert_eq!(calls.look(start + limits::ATTEMPT * 2), None);
        let late = start + limits::GENERATE_ATTEMPT;
        assert_eq!(calls.look(late), Some(limits::GENERATE_ATTEMPT));
    }

    #[test]
    fn the_canary_excuses_nobody() {
        let (calls, start) = (Calls::default(), Clock.now());
        let _use = calls.begin(Work::Use, start);
        let _canary = calls.begin(Work::Canary, start);
        assert_eq!(calls.look(start + limits::ATTEMPT), Some(limits::ATTEMPT));
    }

    #[test]
    fn one_key_after_the_other_excuses_nobody() {
        let (calls, start) = (Calls::default(), Clock.now());
        let _use = calls.begin(Work::Use, start);
        let _later = calls.begin(Work::Generate, start + limits::ATTEMPT + MOMENT);
        let now = start + limits::ATTEMPT + MOMENT * 2;
        assert_eq!(calls.look(now), Some(limits::ATTEMPT + MOMENT * 2));
    }

    #[test]
    fn a_slow_token_does_not_hang_while_something_comes_out() {
        let (calls, start) = (Calls::default(), Clock.now());
        let _waits = calls.begin(Work::Use, start);
        let step = limits::ATTEMPT / 2;
        for step_number in 1..limits::TOKEN_TURNS_MAX * 2 {
            drop(calls.begin(Work::Use, start));
            assert_eq!(calls.look(start + step * step_number), None, "step {step_number}");
        }
        // It would have had its turn by now.
        drop(calls.begin(Work::Use, start));
        let late = limits::ATTEMPT * limits::TOKEN_TURNS_MAX;
        assert_eq!(calls.look(start + late), Some(late));
    }

    #[test]
    fn a_token_hangs_an_attempt_after_the_last_answer() {
        let (calls, start) = (Calls::default(), Clock.now());
        let _hangs = calls.begin(Work::Use, start);
        drop(calls.begin(Work::Use, start));
        assert_eq!(calls.look(start + limits::ATTEMPT), None);
        // A canary that sings proves nothing for the others.
        drop(calls.begin(Work::Canary, start));
        assert_eq!(calls.look(start + limits::ATTEMPT * 2 - MOMENT), None);
        assert_eq!(calls.look(start + limits::ATTEMPT * 2), Some(limits::ATTEMPT * 2));
        // Nor does what comes out later: the one that hangs is still there.
        drop(calls.begin(Work::Write, start));
        assert_eq!(calls.look(start + limits::ATTEMPT * 3), Some(limits::ATTEMPT * 3));
    }

    #[test]
    fn one_session_that_hangs_alone_is_found_at_a_quick_token() {
        let (calls, start) = (Calls::default(), Clock.now());
        let _hangs = calls.begin(Work::Use, start);
        for _ in 0..limits::TOKEN_OVERTAKEN_MAX {
            drop(calls.begin(Work::Use, start));
        }
        assert_eq!(calls.look(start + limits::ATTEMPT - MOMENT), None);
        assert_eq!(calls.look(start + limits::ATTEMPT), Some(limits::ATTEMPT));
    }
}
