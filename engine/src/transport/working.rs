//! Tells applications that wait for an answer that this member lives: a call that takes long is no failure, and a member
//! that says nothing is one. One task looks through all calls under way; the threads that answer them do nothing for it.

use super::ConnectionId;
use super::server::encode;
use crate::clock::Clock;
use crate::frames::frame::Reply;
use crate::limits;
use crate::wire::Response;
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
    pub async fn tell(&self) {
        let mut tick = interval(limits::WORKING_LOOK);
        loop {
            tick.tick().await;
            let lines: Vec<_> = self.0.lock().values().cloned().collect();
            let now = Clock.now();
            lines.iter().for_each(|line| line.tell(now));
        }
    }
}

impl Line {
    /// A call is under way.
    pub fn begin(&self, id: u64) {
        *self.call.lock() = Some(Call { id, due: Clock.now() + limits::MEMBER_HEARTBEAT });
    }

    /// The call ends. Nothing else is written while the guard lives: the answer goes out under it.
    pub fn end(&self) -> MutexGuard<'_, Option<Call>> {
        let mut call = self.call.lock();
        *call = None;
        call
    }

    fn tell(&self, now: Instant) {
        // Locked: its answer is being written.
        let Some(mut call) = self.call.try_lock() else { return };
        let Some(call) = call.as_mut().filter(|call| now >= call.due) else { return };
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
        line.tell(now + limits::OVERALL);
        assert!(heard().is_none(), "no call is under way");
        line.begin(7);
        line.tell(now);
        assert!(heard().is_none(), "it has just begun");
        for round in 1..3 {
            line.tell(now + limits::MEMBER_HEARTBEAT * round + limits::WORKING_LOOK);
            assert!(matches!(heard(), Some((7, Reply::Working))));
        }
        let answering = line.end();
        line.tell(now + limits::OVERALL);
        drop(answering);
        line.tell(now + limits::OVERALL);
        assert!(heard().is_none(), "the call has ended");
        lines.remove(ConnectionId(1));
        assert!(lines.0.lock().is_empty());
    }
}
