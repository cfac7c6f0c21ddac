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
use std::time::{Duration, Instant};

/// Idle connections kept to one member.
const IDLE_MAX: usize = 64;
/// The first pause when nobody answers; doubled up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// How long an answer is awaited before the member is asked whether it lives.
const PROBE_EVERY: Duration = Duration::from_secs(2);

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

/// An answer, or why there is none, and whether an attempt may have been carried out without its answer.
pub(crate) struct Outcome {
    /// The answer.
    pub reply: std::result::Result<SlotReply, Lost>,
    /// An attempt was lost on the way: it may have been carried out.
    pub lost_one: bool,
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
        self.ask(call, pace).reply
    }

    /// The same, telling whether an attempt was lost.
    pub fn ask(&self, call: SlotCall, pace: Pace) -> Outcome {
        let mut request = ClientRequest::Slot(Box::new(call));
        let deadline = Clock.now() + self.timeout;
        let mut pause = PAUSE_MIN;
        let mut lost_one = false;
        loop {
            let round = self.round(&mut request, pace, deadline);
            lost_one |= round.lost_one;
            let left = deadline.saturating_duration_since(Clock.now());
            let failed = match round.reply {
                Ok(reply) => return Outcome { reply: Ok(reply), lost_one },
                Err(failed) => failed,
            };
            if failed.is_final() || left.is_zero() {
                return Outcome { reply: Err(failed), lost_one };
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One attempt at each member, the one that answered last first.
    fn round(&self, request: &mut ClientRequest, pace: Pace, deadline: Instant) -> Outcome {
        let (mut last, mut lost_one) = (Lost::Nobody, false);
        let start = self.favourite.load(Ordering::Relaxed);
        for step in 0..self.members.len() {
            let index = (start + step) % self.members.len();
            let until = deadline.min(Clock.now() + pace.attempt());
            if let ClientRequest::Slot(call) = request {
                call.tries = call.tries.saturating_add(1);
            }
            match self.members[index].call(request, until) {
                Ok(Answer::Slot(reply)) => {
                    self.favourite.store(index, Ordering::Relaxed);
                    return Outcome { reply: Ok(*reply), lost_one };
                }
                Ok(_) => explain(&"a member answered another question"),
                // It does not let this application in. Another member may have heard of a change before it.
                Err(CallError::Failed(failure)) if failure.kind == FailureKind::Forbidden => {
                    explain(&failure);
                    if matches!(last, Lost::Nobody) {
                        last = Lost::Failed(failure);
                    }
                }
                Err(CallError::Failed(failure)) if failure.remedy() == Remedy::GiveUp => {
                    self.favourite.store(index, Ordering::Relaxed);
                    return Outcome { reply: Err(Lost::Failed(failure)), lost_one };
                }
                Err(CallError::Failed(failure)) => {
                    explain(&failure);
                    last = Lost::Failed(failure);
                }
                Err(error) => {
                    lost_one |= matches!(error, CallError::Lost(_));
                    explain(&format_args!("{}: {error}", self.members[index].place));
                }
            }
        }
        Outcome { reply: Err(last), lost_one }
    }
}

impl Lost {
    /// True if asking again would not help.
    fn is_final(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.remedy() == Remedy::GiveUp)
    }
}

impl Member {
    /// One attempt. A kept connection may have died since its last use: a fresh one is tried at once.
    fn call(&self, request: &ClientRequest, until: Instant) -> std::result::Result<Answer, CallError> {
        let kept = self.idle.lock().pop();
        if let Some(mut connection) = kept {
            match self.patiently(&mut connection, request, until) {
                Err(error) if error.is_late() => return Err(error),
                // Its brothers are as old.
                Err(CallError::Lost(_) | CallError::Unreachable(_)) => self.idle.lock().clear(),
                done => {
                    self.keep(connection);
                    return done;
                }
            }
        }
        let mut connection = self.open(until)?;
        let done = self.patiently(&mut connection, request, until);
        if !matches!(done, Err(CallError::Lost(_) | CallError::Unreachable(_))) {
            self.keep(connection);
        }
        done
    }

    /// Waits for an answer as long as the member shows that it lives: a process that hangs takes no hello.
    fn patiently(
        &self,
        connection: &mut Connection,
        request: &ClientRequest,
        until: Instant,
    ) -> std::result::Result<Answer, CallError> {
        let left = || until.saturating_duration_since(Clock.now());
        let mut sent = connection.send(request, left().min(PROBE_EVERY))?;
        loop {
            match connection.receive(&mut sent, left().min(PROBE_EVERY)) {
                Err(error) if error.is_late() && !left().is_zero() => {
                    // It is taken for hanging unless a fresh connection is greeted.
                    self.keep(self.open(until).map_err(|_| error)?);
                }
                done => return done,
            }
        }
    }

    fn open(&self, until: Instant) -> std::result::Result<Connection, CallError> {
        let left = until.saturating_duration_since(Clock.now());
        match &self.place {
            Place::Socket(path) => Connection::open(path, left),
            Place::Address(address, credentials) => Connection::open_remote(address, credentials, left),
        }
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}
