//! The asking half of one connection: many requests in flight, each with its own deadline. One task reads, writes
//! and watches; it ends with the connection, and every call then ends at once.

use super::LinkError;
use super::stream::{self, Ear};
use crate::frames::frame::{self, Ask, Frame, FrameError, NO_REQUEST, Reply};
use crate::limits;
use crate::wire::{FailureKind, Hello, Request, Response};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, interval, timeout_at};

/// How a dead peer shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// The kernel tells at once (a Unix socket).
    Kernel,
    /// By pings: a quiet connection is asked whether it is alive.
    Pings,
}

/// One open connection. Dropped, it closes; its calls end with [`LinkError::Lost`].
pub(super) struct Connection {
    queue: mpsc::Sender<Frame>,
    calls: Arc<Calls>,
    places: Semaphore,
    next: AtomicU64,
    task: AbortHandle,
}

/// The calls that wait for an answer.
#[derive(Default)]
struct Calls(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    closed: Option<String>,
    answers: HashMap<u64, oneshot::Sender<Response>>,
}

/// One waiting call's entry; dropped with the call, it takes the entry with it.
struct Entry<'a> {
    calls: &'a Calls,
    id: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.calls.0.lock().answers.remove(&self.id);
    }
}

impl Calls {
    fn expect(&self, id: u64) -> Result<(Entry<'_>, oneshot::Receiver<Response>), LinkError> {
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.0.lock();
        if let Some(why) = &waiting.closed {
            return Err(LinkError::Unreachable(why.clone()));
        }
        waiting.answers.insert(id, sender);
        Ok((Entry { calls: self, id }, answer))
    }

    /// Hands an answer to its call. Nobody may wait any more: the call was dropped or its deadline passed.
    fn answer(&self, id: u64, response: Response) {
        let waiting = self.0.lock().answers.remove(&id);
        if let Some(sender) = waiting {
            let _ = sender.send(response);
        }
    }

    fn close(&self, why: impl Into<String>) {
        let mut waiting = self.0.lock();
        waiting.closed.get_or_insert_with(|| why.into());
        waiting.answers.clear();
    }
}

/// Closes the calls whenever the task ends, also when it is aborted.
struct CloseOnDrop(Arc<Calls>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close("the connection was closed");
    }
}

impl Connection {
    /// Says hello on a fresh stream and starts the connection. Gives the other side's hello as well, unjudged. The
    /// caller bounds the time.
    pub(super) async fn open<S>(
        mut stream: S,
        hello: &Hello,
        watch: Watch,
    ) -> Result<(Self, Hello), LinkError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let first = Ask::<&Request>::Hello(hello.clone());
        let first = frame::encode(NO_REQUEST, &first, limits::FRAME_UNPROVEN_MAX_BYTES)
            .map_err(|e| LinkError::Refused(e.to_string()))?;
        stream.write_all(&first).await.map_err(|e| broken(&e.into()))?;
        stream.flush().await.map_err(|e| broken(&e.into()))?;
        let (reader, writer) = tokio::io::split(stream);
        let (mut reader, ear) = stream::listen(reader);
        let answer: Option<(u64, Reply<Response>)> =
            stream::read(&mut reader, limits::FRAME_UNPROVEN_MAX_BYTES).await.map_err(|e| broken(&e))?;
        let welcome = match answer {
            Some((_, Reply::Welcome(welcome))) => welcome,
            Some((_, Reply::Refused(failure))) => {
                return Err(match failure.kind {
                    FailureKind::Busy | FailureKind::Stopping => LinkError::Unreachable(failure.message),
                    _ => LinkError::Refused(failure.message),
                });
            }
            Some(_) => return Err(LinkError::Refused("it does not begin with a hello".into())),
            None => return Err(LinkError::Unreachable("it closed the connection before its hello".into())),
        };
        let (queue, frames) = mpsc::channel(limits::FRAME_QUEUE_MAX);
        let calls = Arc::new(Calls::default());
        let reading = read_answers(reader, calls.clone());
        let writing = stream::write(writer, frames);
        let watching = watch_peer(ear, watch, queue.clone());
        let closing = CloseOnDrop(calls.clone());
        let task = tokio::spawn(async move {
            let why = tokio::select! {
                why = reading => why,
                ended = writing => ended.map_or_else(|e| e.to_string(), |()| "it was closed".into()),
                why = watching => why,
            };
            closing.0.close(why);
        });
        let places = Semaphore::new(limits::IN_FLIGHT_MAX);
        let task = task.abort_handle();
        Ok((Self { queue, calls, places, next: AtomicU64::new(NO_REQUEST + 1), task }, welcome))
    }

    /// Asks, and waits for the answer until the deadline.
    pub(super) async fn call(&self, request: &Request, deadline: Instant) -> Result<Response, LinkError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = frame::encode(id, &Ask::Request(request), limits::FRAME_MAX_BYTES)
            .map_err(|e| LinkError::Refused(format!("the request cannot be sent: {e}")))?;
        let busy = |_| LinkError::Unreachable("too many requests are under way on this connection".into());
        let _place = timeout_at(deadline, self.places.acquire()).await.map_err(busy)?;
        let (_entry, answer) = self.calls.expect(id)?;
        let sent = timeout_at(deadline, self.queue.send(frame)).await.map_err(busy)?;
        sent.map_err(|_| LinkError::Unreachable("the connection was closed".into()))?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_)) => Err(LinkError::Lost),
            Err(_) => Err(LinkError::Deadline),
        }
    }

    /// False once the connection is known to be dead.
    pub(super) fn is_open(&self) -> bool {
        self.calls.0.lock().closed.is_none()
    }

    /// Closes it now: calls under way end with [`LinkError::Lost`].
    pub(super) fn close(&self, why: &str) {
        self.calls.close(why);
        self.task.abort();
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.calls.0.lock().answers.len(), limits::IN_FLIGHT_MAX - self.places.available_permits())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close("the connection was closed");
    }
}

async fn read_answers<R: AsyncRead + Unpin>(mut reader: R, calls: Arc<Calls>) -> String {
    loop {
        match stream::read::<Reply<Response>, _>(&mut reader, limits::FRAME_MAX_BYTES).await {
            Ok(Some((id, Reply::Response(response)))) => calls.answer(id, response),
            Ok(Some((_, Reply::Pong | Reply::Working))) => {}
            Ok(Some((_, Reply::Refused(failure)))) => return failure.message,
            Ok(Some((_, Reply::Welcome(_)))) => return "it said hello twice".into(),
            Ok(None) => return "the other side closed the connection".into(),
            Err(error) => return error.to_string(),
        }
    }
}

async fn watch_peer(ear: Ear, watch: Watch, queue: mpsc::Sender<Frame>) -> String {
    if watch == Watch::Kernel {
        return std::future::pending().await;
    }
    let mut tick = interval(limits::PING_EVERY);
    loop {
        tick.tick().await;
        let silence = ear.silence();
        if silence > limits::SILENCE_MAX {
            return format!("it was silent for {} ms", silence.as_millis());
        }
        let ping = frame::encode(NO_REQUEST, &Ask::<&Request>::Ping, limits::FRAME_UNPROVEN_MAX_BYTES);
        if let Ok(ping) = ping {
            // A full queue is no reason to wait: what is in it will be answered as well.
            let _ = queue.try_send(ping);
        }
    }
}

/// What a broken handshake means: a refusal of one side's certificate, or a lost connection.
pub(super) fn broken(error: &FrameError) -> LinkError {
    let FrameError::Stream(io) = error else { return LinkError::Refused(error.to_string()) };
    let tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(why)) => LinkError::Refused(format!(
            "its certificate is not one of this group's authority ({why:?}): check the address and the invitation"
        )),
        Some(rustls::Error::AlertReceived(alert)) => LinkError::Refused(format!(
            "it does not accept this member's certificate ({alert:?}): another group answers at this address"
        )),
        Some(other) => LinkError::Refused(format!("it does not speak as a member does ({other})")),
        None => LinkError::Unreachable(io.to_string()),
    }
}
