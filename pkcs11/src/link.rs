//! Carries calls to a group's members. A member that is lost, busy or not able is passed over for another, until the
//! deadline; every call is safe to repeat, changes by their request ids.

use crate::config::GroupConfig;
use crate::rv::{Rv, explain};
use cryptoki_sys::CKR_DEVICE_REMOVED;
use keyraft_engine::client::{CallError, Connection};
use keyraft_engine::clock::Clock;
use keyraft_engine::limits;
use keyraft_engine::wire::{Answer, ClientRequest, Failure, Remedy, SlotCall, SlotReply};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Idle connections kept to one member.
const IDLE_MAX: usize = 64;
/// The first pause when nobody answers; doubled up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// A group's members as this machine reaches them.
pub(crate) struct Link {
    members: Vec<Member>,
    /// The one that answered last.
    favourite: AtomicUsize,
    timeout: Duration,
}

struct Member {
    socket: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

/// How long a call may take at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Uses, searches, reads.
    Quick,
    /// Changes: they may generate a key and wait for every member.
    Slow,
}

impl Pace {
    fn attempt(self) -> Duration {
        match self {
            // A member tries others itself, each for one attempt.
            Self::Quick => limits::ATTEMPT * 3,
            Self::Slow => limits::GENERATE_ATTEMPT + limits::IMPORT,
        }
    }
}

/// What is known when a call ends without an answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// A member said no.
    Failed(Failure),
    /// No member was reached before the deadline.
    Nobody,
}

impl From<Lost> for Rv {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Failed(failure) => {
                explain(&failure);
                Self::from(&failure)
            }
            Lost::Nobody => Self(CKR_DEVICE_REMOVED),
        }
    }
}

impl Link {
    pub fn new(config: &GroupConfig) -> Self {
        let member = |socket: &PathBuf| Member { socket: socket.clone(), idle: Mutex::default() };
        Self {
            members: config.sockets.iter().map(member).collect(),
            favourite: AtomicUsize::new(0),
            timeout: config.timeout,
        }
    }

    /// Asks the group. Returns by the deadline, whatever happens.
    pub fn call(&self, call: SlotCall, pace: Pace) -> std::result::Result<SlotReply, Lost> {
        let request = ClientRequest::Slot(Box::new(call));
        let patience = if pace == Pace::Slow { self.timeout.max(pace.attempt()) } else { self.timeout };
        let deadline = Clock.now() + patience;
        let mut pause = PAUSE_MIN;
        let mut last = Lost::Nobody;
        let mut start = self.favourite.load(Ordering::Relaxed);
        loop {
            for step in 0..self.members.len() {
                let index = (start + step) % self.members.len();
                let left = deadline.saturating_duration_since(Clock.now());
                if left.is_zero() {
                    return Err(last);
                }
                match self.members[index].call(&request, left.min(pace.attempt())) {
                    Ok(Answer::Slot(reply)) => {
                        self.favourite.store(index, Ordering::Relaxed);
                        return Ok(*reply);
                    }
                    Ok(_) => explain(&"a member answered another question"),
                    Err(CallError::Failed(failure)) if failure.remedy() == Remedy::GiveUp => {
                        self.favourite.store(index, Ordering::Relaxed);
                        return Err(Lost::Failed(failure));
                    }
                    Err(CallError::Failed(failure)) => {
                        explain(&failure);
                        let again = failure.remedy() == Remedy::TryAgain;
                        last = Lost::Failed(failure);
                        if again {
                            start = index;
                            break;
                        }
                    }
                    Err(error) => explain(&format_args!("{}: {error}", self.members[index].socket.display())),
                }
            }
            let left = deadline.saturating_duration_since(Clock.now());
            if left.is_zero() {
                return Err(last);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl Member {
    /// One attempt. A kept connection may have died since its last use: a fresh one is tried at once.
    fn call(&self, request: &ClientRequest, limit: Duration) -> std::result::Result<Answer, CallError> {
        let kept = self.idle.lock().pop();
        if let Some(mut connection) = kept {
            match connection.call(request, limit) {
                Err(CallError::Lost(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Err(CallError::Lost(error));
                }
                // Its brothers are as old.
                Err(CallError::Lost(_) | CallError::Unreachable(_)) => self.idle.lock().clear(),
                done => {
                    self.keep(connection);
                    return done;
                }
            }
        }
        let mut connection = Connection::open(&self.socket)?;
        let done = connection.call(request, limit);
        if !matches!(done, Err(CallError::Lost(_) | CallError::Unreachable(_))) {
            self.keep(connection);
        }
        done
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}
