//! Carries calls to a group's members. A member that is lost, busy or not able is passed over for another, until the
//! deadline; every call is safe to repeat, changes by their request ids.

use crate::config::GroupConfig;
use crate::rv::{Rv, explain};
use cryptoki_sys::CKR_DEVICE_REMOVED;
use keyraft_engine::client::{CallError, Connection, Credentials};
use keyraft_engine::clock::Clock;
use keyraft_engine::limits;
use keyraft_engine::wire::{Answer, ClientRequest, Failure, FailureKind, Remedy, SlotCall, SlotReply};
use parking_lot::Mutex;
use std::fmt;
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

/// Where a member answers.
enum Place {
    /// On this machine.
    Socket(PathBuf),
    /// At host:port, to whom proves itself.
    Address(String, Credentials),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Address(address, _) => f.write_str(address),
        }
    }
}

struct Member {
    place: Place,
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
        let local = config.sockets.iter().cloned().map(Place::Socket);
        let remote = config.remote.iter().flat_map(|remote| {
            let place = |address: &String| Place::Address(address.clone(), remote.credentials.clone());
            remote.members.iter().map(place)
        });
        let member = |place| Member { place, idle: Mutex::default() };
        Self {
            members: local.chain(remote).map(member).collect(),
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
            let (mut refused, mut hope) = (None, false);
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
                    // It does not let this application in. Another member may have heard of a change before it.
                    Err(CallError::Failed(failure)) if failure.kind == FailureKind::Forbidden => {
                        explain(&failure);
                        refused = Some(failure);
                    }
                    Err(CallError::Failed(failure)) if failure.remedy() == Remedy::GiveUp => {
                        self.favourite.store(index, Ordering::Relaxed);
                        return Err(Lost::Failed(failure));
                    }
                    Err(CallError::Failed(failure)) => {
                        explain(&failure);
                        hope = true;
                        let again = failure.remedy() == Remedy::TryAgain;
                        last = Lost::Failed(failure);
                        if again {
                            start = index;
                            break;
                        }
                    }
                    Err(error) => explain(&format_args!("{}: {error}", self.members[index].place)),
                }
            }
            if let Some(failure) = refused.filter(|_| !hope) {
                return Err(Lost::Failed(failure));
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
                Err(error) if error.is_late() => return Err(error),
                // Its brothers are as old.
                Err(CallError::Lost(_) | CallError::Unreachable(_)) => self.idle.lock().clear(),
                done => {
                    self.keep(connection);
                    return done;
                }
            }
        }
        let mut connection = self.open()?;
        let done = connection.call(request, limit);
        if !matches!(done, Err(CallError::Lost(_) | CallError::Unreachable(_))) {
            self.keep(connection);
        }
        done
    }

    fn open(&self) -> std::result::Result<Connection, CallError> {
        match &self.place {
            Place::Socket(path) => Connection::open(path),
            Place::Address(address, credentials) => Connection::open_remote(address, credentials),
        }
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}
