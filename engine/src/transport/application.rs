//! An application's connection: one call at a time, answered on a thread of its own. What the handler can answer at once
//! costs no other thread; the rest is handed to the runtime.

use super::server::{encode, may_ask};
use super::working::{Line, Lines};
use super::{Caller, ConnectionId, Handler};
use crate::frames::blocking::FrameStream;
use crate::frames::frame::{Ask, Reply};
use crate::limits;
use crate::telemetry::Event;
use crate::wire::{Failure, FailureKind, Request, Response};
use std::io;
use std::os::unix::net::UnixStream as UnixSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tracing::{debug, error, warn};

/// Stack of a connection's thread: token libraries run on it.
const STACK_BYTES: usize = 1024 * 1024;

/// Serves one application until it goes or `shutdown` says true.
pub(super) async fn serve(
    stream: UnixStream,
    connection: ConnectionId,
    caller: Caller,
    handler: Arc<dyn Handler>,
    lines: &Lines,
    mut shutdown: watch::Receiver<bool>,
) {
    let blocking = || -> io::Result<_> {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(limits::WRITE_MAX))?;
        Ok((stream.try_clone()?, stream.try_clone()?, stream))
    };
    let (door, line, stream) = match blocking() {
        Ok((door, line, stream)) => (Door(door), lines.add(connection, line), stream),
        Err(error) => return debug!(%error, "an application's connection failed"),
    };
    let (tell, mut ended) = oneshot::channel();
    let runtime = Handle::current();
    let talk = {
        let handler = handler.clone();
        move || {
            let talk = Conversation { connection, caller: caller.clone(), handler: &*handler, line, runtime };
            let why = talk.run(FrameStream::new(stream));
            debug!(?caller, %why, "an application's connection ended");
            let _ = tell.send(());
        }
    };
    let name = format!("slot-{}", connection.0);
    if let Err(error) = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(talk) {
        lines.remove(connection);
        return warn!(code = Event::NoThread.code(), %error, "an application was turned away: the system starts no thread");
    }
    let stops = tokio::select! {
        _ = &mut ended => false,
        _ = shutdown.wait_for(|stop| *stop) => true,
    };
    if stops {
        // The thread's read ends; a call under way is answered into nothing.
        drop(door);
        let _ = tokio::time::timeout(limits::CLOSE_GRACE, ended).await;
    }
    lines.remove(connection);
    handler.closed(connection);
}

/// Shut when it is dropped, also when the task is: the thread's read ends then.
struct Door(std::os::unix::net::UnixStream);

impl Drop for Door {
    fn drop(&mut self) {
        // It fails where the application has gone already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// One application and who answers it.
struct Conversation<'a> {
    connection: ConnectionId,
    caller: Caller,
    handler: &'a dyn Handler,
    line: Arc<Line>,
    runtime: Handle,
}

impl Conversation<'_> {
    /// Answers until the connection ends, and says why it did.
    fn run(&self, mut frames: FrameStream<UnixSocket>) -> String {
        loop {
            let (id, request) = match frames.read::<Ask<Request>>(limits::FRAME_MAX_BYTES) {
                Ok(Some((id, Ask::Request(request)))) => (id, request),
                Ok(Some((id, Ask::Ping))) => match frames.write(&encode(id, Reply::Pong)) {
                    Ok(()) => continue,
                    Err(error) => return error.to_string(),
                },
                Ok(Some((_, Ask::Hello(_)))) => return "it said hello twice".into(),
                Ok(None) => return "it closed the connection".into(),
                Err(error) => return error.to_string(),
            };
            let response = if may_ask(&self.caller, &request) {
                self.line.begin(id);
                self.answer(request)
            } else {
                Response::Failed(Failure::new(
                    FailureKind::Forbidden,
                    "this connection's caller may not ask this",
                ))
            };
            let frame = encode(id, Reply::Response(response));
            let _writing = self.line.end();
            if let Err(error) = frames.write(&frame) {
                return error.to_string();
            }
        }
    }

    fn answer(&self, request: Request) -> Response {
        let (connection, caller, handler) = (self.connection, &self.caller, self.handler);
        let answered = catch_unwind(AssertUnwindSafe(|| match handler.handle_now(caller, request) {
            Ok(response) => response,
            Err(request) => {
                self.line.may_wait();
                self.runtime.block_on(handler.handle(connection, caller.clone(), *request))
            }
        }));
        answered.unwrap_or_else(|_| {
            error!(code = Event::HandlerEnded.code(), ?caller, "a request's handler panicked");
            Response::Failed(Failure::new(FailureKind::Internal, "a fault of this member: see its log"))
        })
    }
}
