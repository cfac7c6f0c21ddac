//! One member's connections. Each carries one call at a time; a quiet one is kept for the next call, for a while.

use super::names::Names;
use keyraft_engine::client::{CallError, Connection, Credentials, Heard, Knock, Sent, look_up};
use keyraft_engine::clock::Clock;
use keyraft_engine::health::DEAD_AFTER;
use keyraft_engine::wire::{Answer, ClientRequest, FailureKind};
use parking_lot::Mutex;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Idle connections kept to one member.
const IDLE_MAX: usize = 64;
/// One that nobody used for so long is closed: it served a peak, and may be dead by now.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// Where a member answers.
pub(super) enum Place {
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

/// A member as this machine reaches it.
pub(super) struct Member {
    /// Where.
    pub place: Place,
    names: Names,
    /// The connections that wait for a call, each since when, the last one last.
    idle: Mutex<Vec<(Instant, Connection)>>,
    /// A connection that was begun while the member was out.
    knock: Mutex<Option<Knock>>,
}

/// How one call at a member ended.
pub(super) enum Ended {
    /// Answered, or refused, or why not.
    Done(Result<Answer, CallError>),
    /// The caller gave up waiting for a member that lives.
    Left,
}

impl Member {
    pub fn new(place: Place) -> Self {
        Self { place, names: Names::default(), idle: Mutex::default(), knock: Mutex::default() }
    }

    /// Connects anew, by `until`. `alone` says that no member is fit.
    pub fn open(&self, until: Instant, alone: bool) -> Result<Connection, CallError> {
        let left = || until.saturating_duration_since(Clock.now());
        match &self.place {
            Place::Socket(path) => Connection::open(path, left()),
            Place::Address(address, credentials) => {
                let places = self.names.places(alone, || look_up(address)).map_err(CallError::Unreachable)?;
                Connection::open_at(&places, credentials, left())
            }
        }
    }

    /// Goes on with the connection that was begun, or begins one, without waiting: None if it is not there yet. Waits
    /// for at most `limit` for a machine that has answered already.
    pub fn knock(&self, limit: Duration) -> Result<Option<Connection>, CallError> {
        let begun = self.knock.lock().take();
        let begin = || match &self.place {
            Place::Socket(path) => Knock::at_socket(path),
            Place::Address(address, credentials) => {
                let places = self.names.places(false, || look_up(address)).map_err(CallError::Unreachable)?;
                Knock::at_addresses(places, credentials)
            }
        };
        let mut knock = begun.map_or_else(begin, Ok)?;
        let opened = knock.go_on(limit)?;
        if opened.is_none() {
            *self.knock.lock() = Some(knock);
        }
        Ok(opened)
    }

    /// Gives up the connection that was begun.
    pub fn stop_knocking(&self) {
        let knock = self.knock.lock().take();
        drop(knock);
    }

    /// Calls by `until`. `goes_on` is asked each time when the member says that it works: false gives up. Without
    /// `twice` the request is sent once, whatever happens. `lost` is set if a first attempt may have been carried out.
    pub fn call(
        &self,
        request: &ClientRequest,
        twice: bool,
        until: Instant,
        goes_on: &mut dyn FnMut() -> bool,
        lost: &mut bool,
    ) -> Ended {
        let kept = if twice { self.kept() } else { None };
        if let Some(connection) = kept {
            match self.converse(connection, request, until, goes_on) {
                // It may have died since its last use, and its brothers are as old: a fresh one is tried at once.
                Ended::Done(Err(error)) if is_broken(&error) => {
                    *lost = true;
                    self.forget();
                }
                done => return done,
            }
        }
        match self.open(until, false) {
            Ok(connection) => self.converse(connection, request, until, goes_on),
            Err(error) => Ended::Done(Err(error)),
        }
    }

    /// One call over this connection, which is kept if it is of further use.
    fn converse(
        &self,
        mut connection: Connection,
        request: &ClientRequest,
        until: Instant,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Ended {
        let mut sent: Sent = match connection.send(request, until, DEAD_AFTER) {
            Ok(sent) => sent,
            Err(error) => return Ended::Done(Err(error)),
        };
        loop {
            match connection.receive(&mut sent, until, DEAD_AFTER) {
                Ok(Heard::Working) if goes_on() => {}
                // The answer may still come, over a connection that nobody reads.
                Ok(Heard::Working) => return Ended::Left,
                Ok(Heard::Answer(answer)) => {
                    self.keep(connection);
                    return Ended::Done(Ok(answer));
                }
                Err(error) => {
                    // A member whose token hangs ends the connection behind this answer.
                    if matches!(&error, CallError::Failed(failure) if failure.kind != FailureKind::TokenFailed)
                    {
                        self.keep(connection);
                    }
                    return Ended::Done(Err(error));
                }
            }
        }
    }

    /// The idle connection that was used last.
    fn kept(&self) -> Option<Connection> {
        let now = Clock.now();
        let mut idle = self.idle.lock();
        let (since, connection) = idle.pop()?;
        if is_old(since, now) {
            // So are the others.
            let old = std::mem::take(&mut *idle);
            drop(idle);
            drop(old);
            return None;
        }
        Some(connection)
    }

    /// Drops the idle connections: they lead to somebody who is no more.
    pub fn forget(&self) {
        // Dropped without the lock: closing may take a moment.
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    /// Keeps a connection for the next call.
    pub fn keep(&self, connection: Connection) {
        let now = Clock.now();
        let mut idle = self.idle.lock();
        let old = idle.partition_point(|(since, _)| is_old(*since, now));
        let old: Vec<_> = idle.drain(..old).collect();
        if idle.len() < IDLE_MAX {
            idle.push((now, connection));
        }
        drop(idle);
        drop(old);
    }
}

#[cfg(test)]
impl Member {
    /// As if nobody had used its idle connections for long.
    pub fn grow_old(&self) {
        for (since, _) in &mut *self.idle.lock() {
            *since = since.checked_sub(IDLE_FOR).expect("the machine runs for longer");
        }
    }
}

fn is_old(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) >= IDLE_FOR
}

/// True of a connection that is of no more use while its member may be: a fresh one may do better.
fn is_broken(error: &CallError) -> bool {
    matches!(error, CallError::Lost(_)) && !error.is_late() && !error.is_own()
}
