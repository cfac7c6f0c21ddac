//! Tells applications that wait for an answer that this member lives: a call that takes long is no failure, and a member
//! that says nothing is one. One task looks through all calls under way; the threads that answer them do nothing for it.

use super::server::encode;
use super::{ConnectionId, Handler};
use crate::clock::Clock;
use crate::frames::frame::Reply;
use crate::limits;
use crate::wire::{Failure, FailureKind, Response};
use parking_lot::{Mutex, MutexGuard};
use rustix::net::{SendFlags, send};
use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::interval;

/// The lines of all applications on this machine.
#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<ConnectionId, Arc<Line>>>);

/// One application's line.
pub(super) struct Line {
    /// The same socket that its thread answers on.
    stream: UnixStream,
    call: Mutex<Option<Call>>,
}

/// A call under way.
pub(super) struct Call {
    id: u64,
    /// When its caller must hear something.
    due: Instant,
    /// When its thread has been gone for so long that it may be hanging in the token. None once it is not there.
    until: Option<Instant>,
}

impl Lines {
    /// A line for a connection, until [`Lines::remove`].
    pub fn add(&self, connection: ConnectionId, stream: UnixStream) -> Arc<Line> {
        let line = Arc::new(Line { stream, call: Mutex::new(None) });
        self.0.lock().insert(connection, line.clone());
        line
    }

    /// The connection ends.
    pub fn remove(&self, connection: ConnectionId) {
        self.0.lock().remove(&connection);
    }

    /// Tells whoever must hear something, for ever.
    pub async fn tell(&self, handler: &dyn Handler) {
        let mut tick = interval(limits::WORKING_LOOK);
        loop {
            tick.tick().await;
            let lines: Vec<_> = self.0.lock().values().cloned().collect();
            let now = Clock.now();
            let hung = handler.is_hung();
            lines.iter().for_each(|line| line.tell(now, hung));
        }
    }
}

impl Line {
    /// A call is under way.
    pub fn begin(&self, id: u64) {
        let now = Clock.now();
        let until = Some(now + limits::ATTEMPT + limits::TOKEN_LOOK_EVERY);
        *self.call.lock() = Some(Call { id, due: now + limits::MEMBER_HEARTBEAT, until });
    }

    /// The call under way is no longer its thread's own doing: it may take longer than an attempt.
    pub fn may_wait(&self) {
        if let Some(call) = self.call.lock().as_mut() {
            call.until = None;
        }
    }

    /// The call ends. Nothing else is written while the guard lives: the answer goes out under it.
    pub fn end(&self) -> MutexGuard<'_, Option<Call>> {
        let mut call = self.call.lock();
        *call = None;
        call
    }

    /// `hung` says that nothing comes out of the token: a long call alone proves nothing, it may wait for its turn.
    fn tell(&self, now: Instant, hung: bool) {
        // Locked: its answer is being written.
        let Some(mut under_way) = self.call.try_lock() else { return };
        if let Some(hung) = under_way.take_if(|call| hung && call.until.is_some_and(|until| now >= until)) {
            return self.give_up(hung.id);
        }
        let Some(call) = under_way.as_mut().filter(|call| now >= call.due) else { return };
        call.due = now + limits::MEMBER_HEARTBEAT;
        let frame = encode(call.id, Reply::<Response>::Working);
        match send(&self.stream, &frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) if sent < frame.len() => {
                // Half a frame cannot be taken back. It fails where the application has gone already.
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            // One that reads nothing has something to read already; one that has gone is its thread's business.
            Ok(_) | Err(_) => {}
        }
    }
}

impl Line {
    /// Answers in the place of a thread that hangs in the token, and ends the connection: what the thread may answer
    /// one day finds nobody.
    fn give_up(&self, id: u64) {
        let text = "the member's token did not answer in time";
        let failure = Response::Failed(Failure::new(FailureKind::TokenFailed, text));
        let frame = encode(id, Reply::Response(failure));
        // An application that reads nothing, or has gone, finds the connection ended.
        let _ = send(&self.stream, &frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::blocking::FrameStream;

    #[test]
    fn only_long_calls_are_told_and_none_after_its_answer() {
        let (here, there) = UnixStream::pair().expect("a pair");
        there.set_read_timeout(Some(limits::WORKING_LOOK)).expect("is a time");
        let lines = Lines::default();
        let line = lines.add(ConnectionId(1), here);
        let mut reader = FrameStream::new(there);
        let mut heard = || reader.read::<Reply<Response>>(limits::FRAME_MAX_BYTES).ok().flatten();
        let now = Clock.now();
        line.tell(now + limits::OVERALL, true);
        assert!(heard().is_none(), "no call is under way");
        line.begin(7);
        line.may_wait();
        let now = Clock.now();
        line.tell(now, true);
        assert!(heard().is_none(), "it has just begun");
        for round in 1..3 {
            line.tell(now + limits::MEMBER_HEARTBEAT * round + limits::WORKING_LOOK, true);
            assert!(matches!(heard(), Some((7, Reply::Working))));
        }
        let answering = line.end();
        line.tell(now + limits::OVERALL, true);
        drop(answering);
        line.tell(now + limits::OVERALL, true);
        assert!(heard().is_none(), "the call has ended");
        lines.remove(ConnectionId(1));
        assert!(lines.0.lock().is_empty());
    }

    #[test]
    fn a_thread_that_hangs_is_answered_for() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let lines = Lines::default();
        let line = lines.add(ConnectionId(1), here);
        let mut reader = FrameStream::new(there);
        let mut heard =
            || reader.read::<Reply<Response>>(limits::FRAME_MAX_BYTES).expect("a frame or the end");
        let now = Clock.now();
        line.begin(7);
        line.tell(now + limits::ATTEMPT, true);
        assert!(matches!(heard(), Some((7, Reply::Working))));
        // A slow token is none that hangs.
        line.tell(now + limits::ATTEMPT * 2, false);
        assert!(matches!(heard(), Some((7, Reply::Working))));
        line.tell(now + limits::ATTEMPT * 2, true);
        let answer = heard();
        let Some((7, Reply::Response(Response::Failed(failure)))) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.kind, FailureKind::TokenFailed);
        assert!(heard().is_none(), "the connection has ended");
    }
}
