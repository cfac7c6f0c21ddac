//! The answering half: accepts, finds out who asks, and hands requests to the handler, many at once.

use super::pki::Bearer;
use super::stream::{self, Ear};
use super::working::Lines;
use super::{Caller, ConnectionId, Handler, Identity, application, hello, tls};
use crate::client::tcp;
use crate::frames::frame::{self, Ask, Frame, FrameError, NO_REQUEST, Reply};
use crate::limits;
use crate::telemetry::Event;
use crate::wire::{ClientRequest, Failure, FailureKind, Hello, Lane, Request, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use rustls::ServerConfig;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, info, warn};

static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// Serves members and joiners until `shutdown` says true or its sender is gone; then closes all connections and ends
/// when their tasks have. An identity that cannot be used ([`Identity::check`]) is logged and ends it at once.
pub async fn serve_tcp(
    listener: TcpListener,
    identity: Identity,
    hello: Hello,
    handler: Arc<dyn Handler>,
    shutdown: watch::Receiver<bool>,
) {
    let config = match tls::server(&identity) {
        Ok(config) => config,
        Err(error) => {
            return error!(code = Event::ListenerFailed.code(), %error, "members and joiners cannot be served");
        }
    };
    let server = Arc::new(Server { handler, hello, shutdown, gates: Gates::new(), lines: Lines::default() });
    accept_all(server, listener, move |server, stream, gate| {
        server.serve_stream(config.clone(), stream, gate).boxed()
    })
    .await;
}

/// Serves local clients of this process's user, of root and of the `allowed` users until `shutdown` says true or its
/// sender is gone; then closes all connections and ends when their tasks have. With `allowed` users the socket is
/// opened to all (0666), and the kernel's word on who connects decides alone.
pub async fn serve_unix(
    listener: UnixListener,
    handler: Arc<dyn Handler>,
    allowed: Vec<u32>,
    shutdown: watch::Receiver<bool>,
) {
    if !allowed.is_empty() {
        let address = listener.local_addr();
        if let Some(path) = address.as_ref().ok().and_then(|address| address.as_pathname())
            && let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(0o666))
        {
            warn!(code = Event::SocketUsersNotLetIn.code(), %error, path = %path.display(), "other users cannot be let in");
        }
    }
    let (hello, gates, lines) = (Hello::anonymous(), Gates::new(), Lines::default());
    let server = Arc::new(Server { handler, hello, shutdown, gates, lines });
    let allowed: Arc<[u32]> = allowed.into();
    let serving = accept_all(server.clone(), listener, move |server, stream, gate| {
        server.serve_local(allowed.clone(), stream, gate).boxed()
    });
    tokio::select! {
        () = serving => {}
        () = server.lines.tell(&*server.handler) => {}
    }
}

struct Server {
    handler: Arc<dyn Handler>,
    hello: Hello,
    shutdown: watch::Receiver<bool>,
    gates: Gates,
    /// Those of the applications on this machine.
    lines: Lines,
}

/// Places for connections. Strangers have few of their own, and applications others, so that they cannot take those of
/// members.
struct Gates {
    strangers: Arc<Semaphore>,
    known: Arc<Semaphore>,
    applications: Arc<Semaphore>,
}

impl Gates {
    fn new() -> Self {
        Self {
            strangers: Arc::new(Semaphore::new(limits::CONNECTIONS_UNPROVEN_MAX)),
            known: Arc::new(Semaphore::new(limits::CONNECTIONS_MAX)),
            applications: Arc::new(Semaphore::new(limits::CONNECTIONS_APPLICATIONS_MAX)),
        }
    }
}

/// Who is at the other end, and what holds for it.
struct Peer {
    caller: Caller,
    /// Whom its certificate names, if it has one.
    bearer: Option<Bearer>,
    _place: OwnedSemaphorePermit,
}

/// Why a conversation ended.
enum End {
    /// The peer closed or broke the connection, or was not worth keeping.
    Gone(String),
    /// This listener stops.
    Stopping,
}

/// Where connections come from.
trait Listener: Sync {
    type Stream;
    fn next(&self) -> BoxFuture<'_, io::Result<Self::Stream>>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    fn next(&self) -> BoxFuture<'_, io::Result<TcpStream>> {
        async { self.accept().await.map(|(stream, _)| stream) }.boxed()
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    fn next(&self) -> BoxFuture<'_, io::Result<UnixStream>> {
        async { self.accept().await.map(|(stream, _)| stream) }.boxed()
    }
}

async fn accept_all<L: Listener>(
    server: Arc<Server>,
    listener: L,
    serve: impl Fn(Arc<Server>, L::Stream, OwnedSemaphorePermit) -> BoxFuture<'static, ()>,
) {
    let mut connections = JoinSet::new();
    let mut shutdown = server.shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.next() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = shutdown.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok(stream) => match server.gates.strangers.clone().try_acquire_owned() {
                Ok(gate) => drop(connections.spawn(serve(server.clone(), stream, gate))),
                Err(_) => {
                    debug!("a connection was dropped: too many callers that have not proved who they are")
                }
            },
            Err(error) => {
                warn!(code = Event::CannotAccept.code(), %error, "cannot accept connections");
                sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
    // Each one watches the shutdown too, and ends within CLOSE_GRACE and the time of one write.
    while connections.join_next().await.is_some() {}
}

/// What the log calls a refusal.
fn refusal(ours: &Hello, theirs: &Hello, failure: &Failure) -> Event {
    match failure.kind {
        FailureKind::Forbidden if theirs.group == ours.group && theirs.lineage != ours.lineage => {
            Event::LineageRefused
        }
        FailureKind::Forbidden if theirs.group.is_some() => Event::CertificateRefused,
        _ => Event::ConnectionRefused,
    }
}

impl Server {
    async fn serve_stream(
        self: Arc<Self>,
        config: Arc<ServerConfig>,
        stream: TcpStream,
        gate: OwnedSemaphorePermit,
    ) {
        let mut shutdown = self.shutdown.clone();
        let opened = tokio::select! {
            opened = timeout(limits::CONNECT, self.open_tls(config, stream, gate)) => opened,
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        match opened {
            Ok(Some((reader, writer, ear, peer))) => self.converse(reader, writer, Some(ear), peer).await,
            Ok(None) => {}
            Err(_) => debug!("a caller did not say hello in time"),
        }
    }

    async fn open_tls(
        &self,
        config: Arc<ServerConfig>,
        stream: TcpStream,
        gate: OwnedSemaphorePermit,
    ) -> Option<(impl AsyncRead + Unpin + use<>, impl AsyncWrite + Unpin + use<>, Ear, Peer)> {
        let log = |error: &dyn std::fmt::Display| debug!(%error, "a connection failed before its hello");
        tcp::prepare(&stream).map_err(|e| log(&e)).ok()?;
        let stream = TlsAcceptor::from(config).accept(stream).await.map_err(|e| log(&e)).ok()?;
        let bearer = tls::caller(stream.get_ref().1.peer_certificates()).map_err(|e| log(&e)).ok()?;
        let (reader, mut writer) = tokio::io::split(stream);
        let (mut reader, ear) = stream::listen(reader);
        let theirs = self.read_hello(&mut reader).await.map_err(|e| log(&e)).ok()?;
        let admits = |bearer: &Bearer| self.handler.admits(bearer);
        let judged = hello::judge_caller(&self.hello, &theirs, bearer.as_ref(), admits);
        let placed = judged.and_then(|caller| self.place(caller, gate));
        let (caller, place) = self.answer_hello(&mut writer, &theirs, placed).await?;
        Some((reader, writer, ear, Peer { caller, bearer, _place: place }))
    }

    async fn serve_local(
        self: Arc<Self>,
        allowed: Arc<[u32]>,
        stream: UnixStream,
        gate: OwnedSemaphorePermit,
    ) {
        let mut shutdown = self.shutdown.clone();
        let opened = async {
            let credentials = stream.peer_cred();
            let (mut reader, mut writer) = tokio::io::split(stream);
            let theirs = self.read_hello(&mut reader).await.ok()?;
            let judged = hello::judge_local(&theirs)
                .and_then(|()| judge_user(credentials, &allowed))
                .and_then(|caller| self.place(caller, gate));
            let (caller, place) = self.answer_hello(&mut writer, &theirs, judged).await?;
            Some((reader, writer, theirs.lane, Peer { caller, bearer: None, _place: place }))
        };
        let opened = tokio::select! {
            opened = timeout(limits::CONNECT, opened) => opened.ok().flatten(),
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        let Some((reader, writer, lane, peer)) = opened else { return };
        if lane == Lane::Slot {
            let connection = ConnectionId(CONNECTIONS.fetch_add(1, Ordering::Relaxed));
            let caller = peer.caller.clone();
            let (stream, handler) = (reader.unsplit(writer), self.handler.clone());
            application::serve(stream, connection, caller, handler, &self.lines, shutdown).await;
            drop(peer);
            return;
        }
        let (reader, _) = stream::listen(reader);
        // No watch by silence: the kernel tells at once when a process on this machine ends.
        self.converse(reader, writer, None, peer).await;
    }

    async fn read_hello<R: AsyncRead + Unpin>(&self, reader: &mut R) -> Result<Hello, FrameError> {
        let first: Option<(u64, Ask<Request>)> =
            stream::read(reader, limits::FRAME_UNPROVEN_MAX_BYTES).await?;
        match first {
            Some((_, Ask::Hello(hello))) => Ok(hello),
            Some(_) => Err(io::Error::other("it does not begin with a hello").into()),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    /// A place among the known for whoever is known; strangers keep the one they came in by.
    fn place(
        &self,
        caller: Caller,
        gate: OwnedSemaphorePermit,
    ) -> Result<(Caller, OwnedSemaphorePermit), Failure> {
        let (places, max) = match caller {
            Caller::Unproven => return Ok((caller, gate)),
            Caller::Application(_) => (&self.gates.applications, limits::CONNECTIONS_APPLICATIONS_MAX),
            Caller::Member(_) | Caller::Local { .. } => (&self.gates.known, limits::CONNECTIONS_MAX),
        };
        match places.clone().try_acquire_owned() {
            Ok(place) => Ok((caller, place)),
            Err(_) => Err(Failure::new(
                FailureKind::Busy,
                format!("{max} connections are open already: try again later"),
            )),
        }
    }

    async fn answer_hello<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut W,
        theirs: &Hello,
        judged: Result<(Caller, OwnedSemaphorePermit), Failure>,
    ) -> Option<(Caller, OwnedSemaphorePermit)> {
        let (reply, placed) = match judged {
            Ok(placed) => (Reply::Welcome(Hello { lane: theirs.lane, ..self.hello.clone() }), Some(placed)),
            Err(failure) => {
                let code = refusal(&self.hello, theirs, &failure).code();
                info!(code, says_to_be = ?theirs.member, why = %failure, "a connection was refused");
                (Reply::Refused(failure), None)
            }
        };
        let frame =
            frame::encode::<Reply<&Response>>(NO_REQUEST, &reply, limits::FRAME_UNPROVEN_MAX_BYTES).ok()?;
        let written = async {
            writer.write_all(&frame).await?;
            writer.flush().await?;
            if placed.is_none() { writer.shutdown().await } else { Ok(()) }
        };
        written.await.ok().and(placed)
    }

    /// Answers requests until the peer goes, misbehaves or is removed, or this listener stops.
    async fn converse<R, W>(&self, mut reader: R, writer: W, ear: Option<Ear>, peer: Peer)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let connection = ConnectionId(CONNECTIONS.fetch_add(1, Ordering::Relaxed));
        let (queue, frames) = mpsc::channel(limits::FRAME_QUEUE_MAX);
        let mut writing = Box::pin(stream::write(writer, frames));
        let mut calls = JoinSet::new();
        let mut shutdown = self.shutdown.clone();
        let end = tokio::select! {
            why = self.read_requests(&mut reader, connection, &peer.caller, &mut calls, &queue) => End::Gone(why),
            ended = &mut writing => End::Gone(ended.map_or_else(|e| e.to_string(), |()| "closed".into())),
            why = self.watch_peer(&peer, ear, &queue) => End::Gone(why),
            _ = shutdown.wait_for(|stop| *stop) => End::Stopping,
        };
        drop(queue);
        match end {
            End::Stopping => {
                // The queue ends with the last call that may answer, and the writing with the queue.
                let answers = async { tokio::join!(finish(&mut calls), &mut writing) };
                let _ = timeout(limits::CLOSE_GRACE, answers).await;
            }
            End::Gone(why) => {
                debug!(caller = ?peer.caller, %why, "a connection ended");
                drop(writing);
                drop(reader);
                tokio::select! {
                    _ = timeout(limits::OVERALL, finish(&mut calls)) => {}
                    _ = shutdown.wait_for(|stop| *stop) => {}
                }
            }
        }
        calls.shutdown().await;
        self.handler.closed(connection);
    }

    async fn read_requests<R: AsyncRead + Unpin>(
        &self,
        reader: &mut R,
        connection: ConnectionId,
        caller: &Caller,
        calls: &mut JoinSet<()>,
        queue: &mpsc::Sender<Frame>,
    ) -> String {
        let limit = match caller {
            Caller::Unproven => limits::FRAME_UNPROVEN_MAX_BYTES,
            Caller::Member(_) | Caller::Application(_) | Caller::Local { .. } => limits::FRAME_MAX_BYTES,
        };
        loop {
            let (id, request) = match stream::read::<Ask<Request>, _>(reader, limit).await {
                Ok(Some((id, Ask::Request(request)))) => (id, request),
                Ok(Some((_, Ask::Ping))) => {
                    // Waits while the peer reads nothing; the writing gives up on such a peer.
                    let _ = queue.send(encode(NO_REQUEST, Reply::Pong)).await;
                    continue;
                }
                Ok(Some((_, Ask::Hello(_)))) => return "it said hello twice".into(),
                Ok(None) => return "it closed the connection".into(),
                Err(error) => return error.to_string(),
            };
            while calls.try_join_next().is_some() {}
            let refusal = if !may_ask(caller, &request) {
                Some(Failure::new(FailureKind::Forbidden, "this connection's caller may not ask this"))
            } else if calls.len() >= limits::IN_FLIGHT_MAX {
                let message = format!("{} requests are under way on this connection", limits::IN_FLIGHT_MAX);
                Some(Failure::new(FailureKind::Busy, message))
            } else {
                None
            };
            if let Some(failure) = refusal {
                let _ = queue.send(encode(id, Reply::Response(Response::Failed(failure)))).await;
                continue;
            }
            let handler = self.handler.clone();
            let caller = caller.clone();
            let queue = queue.clone();
            calls.spawn(async move {
                let answered =
                    AssertUnwindSafe(async { handler.handle(connection, caller.clone(), request).await });
                let response =
                    telling(id, &caller, &queue, answered.catch_unwind()).await.unwrap_or_else(|_| {
                        error!(code = Event::HandlerEnded.code(), ?caller, "a request's handler panicked");
                        Response::Failed(Failure::new(
                            FailureKind::Internal,
                            "a fault of this member: see its log",
                        ))
                    });
                // Fails if the caller went away.
                let _ = queue.send(encode(id, Reply::Response(response))).await;
            });
        }
    }

    /// Ends when the peer is silent for too long, is removed, or has overstayed.
    async fn watch_peer(&self, peer: &Peer, ear: Option<Ear>, queue: &mpsc::Sender<Frame>) -> String {
        let Some(ear) = ear else { return std::future::pending().await };
        let overstays = async {
            match peer.caller {
                Caller::Unproven => sleep(limits::UNPROVEN_LIFE).await,
                Caller::Member(_) | Caller::Application(_) | Caller::Local { .. } => {
                    std::future::pending().await
                }
            }
        };
        let watches = async {
            let mut tick = interval(limits::PING_EVERY);
            loop {
                tick.tick().await;
                // An application asks when it has something to ask. One whose machine is gone fails the kernel's probes.
                let talks = !matches!(peer.caller, Caller::Application(_));
                if talks && ear.silence() > limits::SILENCE_MAX {
                    return "it is silent".to_string();
                }
                if let Some(bearer) = &peer.bearer
                    && !self.handler.admits(bearer)
                {
                    let refusal = encode(NO_REQUEST, Reply::Refused(hello::removed(bearer)));
                    let _ = timeout(limits::CLOSE_GRACE, queue.send(refusal)).await;
                    // A moment for the writing, which runs beside this.
                    sleep(limits::ACCEPT_PAUSE).await;
                    return "it was removed".to_string();
                }
            }
        };
        tokio::select! {
            () = overstays => "it has not joined in time".into(),
            why = watches => why,
        }
    }
}

/// Waits for an answer. An application hears meanwhile that this member lives; members have pings for that.
async fn telling<T>(
    id: u64,
    caller: &Caller,
    queue: &mpsc::Sender<Frame>,
    answer: impl Future<Output = T>,
) -> T {
    let Caller::Application(_) = caller else { return answer.await };
    tokio::pin!(answer);
    loop {
        match timeout(limits::MEMBER_HEARTBEAT, &mut answer).await {
            Ok(answer) => return answer,
            // A full queue has something to read for it already.
            Err(_) => drop(queue.try_send(encode(id, Reply::Working))),
        }
    }
}

async fn finish(calls: &mut JoinSet<()>) {
    while calls.join_next().await.is_some() {}
}

/// What each kind of caller may ask. What the request means is the handler's to judge.
pub(super) fn may_ask(caller: &Caller, request: &Request) -> bool {
    match caller {
        Caller::Member(_) => true,
        Caller::Unproven => matches!(request, Request::Join(_)),
        Caller::Application(_) => {
            matches!(request, Request::Client(ClientRequest::Slot(_) | ClientRequest::Status))
        }
        Caller::Local { .. } => matches!(request, Request::Client(_)),
    }
}

fn judge_user(credentials: io::Result<tokio::net::unix::UCred>, allowed: &[u32]) -> Result<Caller, Failure> {
    let credentials = credentials.map_err(|e| {
        Failure::new(FailureKind::Forbidden, format!("the kernel does not say who connects: {e}"))
    })?;
    let uid = credentials.uid();
    check_user(uid, rustix::process::geteuid().as_raw(), allowed)?;
    Ok(Caller::Local { uid, pid: credentials.pid() })
}

fn check_user(uid: u32, own: u32, allowed: &[u32]) -> Result<(), Failure> {
    if uid == 0 || uid == own || allowed.contains(&uid) {
        return Ok(());
    }
    let message = format!("user {uid} may not use this socket: run as the member's user or allow this one");
    Err(Failure::new(FailureKind::Forbidden, message))
}

/// Encodes a reply; one that is over the limit is replaced by the news of that.
pub(super) fn encode(id: u64, reply: Reply<Response>) -> Frame {
    frame::encode(id, &reply, limits::FRAME_MAX_BYTES).unwrap_or_else(|error| {
        error!(code = Event::AnswerNotSent.code(), %error, "an answer could not be sent");
        let failure = Failure::new(FailureKind::Internal, format!("the answer cannot be sent: {error}"));
        frame::encode(id, &Reply::Response(Response::Failed(failure)), limits::FRAME_MAX_BYTES)
            .expect("a short failure always fits a frame")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::MemberId;

    #[test]
    fn only_known_users_may_use_the_socket() {
        for uid in [0, 1000, 1001] {
            assert_eq!(check_user(uid, 1000, &[1001]), Ok(()), "{uid}");
        }
        for allowed in [&[][..], &[1001]] {
            let failure = check_user(1002, 1000, allowed).expect_err("a stranger");
            assert_eq!(failure.kind, FailureKind::Forbidden);
            assert!(failure.message.contains("1002"), "{failure}");
        }
    }

    struct Nobody;

    impl Handler for Nobody {
        fn handle(&self, _: ConnectionId, _: Caller, _: Request) -> BoxFuture<'static, Response> {
            unreachable!("no request is sent")
        }

        fn admits(&self, _: &Bearer) -> bool {
            true
        }
    }

    #[test]
    fn the_known_have_places_of_their_own_and_no_more_than_those() {
        let places = |count| Arc::new(Semaphore::new(count));
        let gates = Gates { strangers: places(4), known: places(1), applications: places(1) };
        let (strangers, known) = (gates.strangers.clone(), gates.known.clone());
        let (_stop, shutdown) = watch::channel(false);
        let (handler, hello, lines) = (Arc::new(Nobody), Hello::anonymous(), Lines::default());
        let server = Server { handler, hello, shutdown, gates, lines };
        let enter = |caller| server.place(caller, strangers.clone().try_acquire_owned().expect("a gate"));
        let member = enter(Caller::Member(MemberId(1))).expect("a place");
        assert_eq!((strangers.available_permits(), known.available_permits()), (4, 0));
        let busy = enter(Caller::Local { uid: 0, pid: None }).expect_err("full");
        assert_eq!(busy.kind, FailureKind::Busy);
        let name = || Caller::Application("web".parse().expect("a name"));
        let application = enter(name()).expect("has places of its own");
        assert_eq!(enter(name()).expect_err("full").kind, FailureKind::Busy);
        let stranger = enter(Caller::Unproven).expect("keeps its gate");
        assert_eq!(strangers.available_permits(), 3);
        drop((member, application, stranger));
        assert_eq!((strangers.available_permits(), known.available_permits()), (4, 1));
    }
}
