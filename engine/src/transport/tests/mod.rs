//! Whole connections, in one process: two members, joiners, local clients, and peers that misbehave.

mod applications;
mod hostile;

use super::connection::{Connection, Watch};
use super::*;
use crate::domain::{GroupId, Lineage, LogIndex, ObjectId};
use crate::frames::frame::{self, Ask, NO_REQUEST, Reply};
use crate::limits;
use crate::wire::{
    Answer, ClientRequest, Hello, JoinAnswer, JoinRequest, Lane, MemberAnswer, MemberRequest, PROTOCOL,
    RaftCall,
};
use futures::FutureExt;
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const GROUP: GroupId = GroupId([7; 8]);
const SERVER: MemberId = MemberId(1);
const CALLER: MemberId = MemberId(2);
const SOON: Duration = Duration::from_secs(5);
/// A call that has seen this waits for the gate.
const LATE: LogIndex = LogIndex(99);

/// A group's authority, and members signed by it.
struct Group {
    id: GroupId,
    authority: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
}

impl Group {
    fn new(id: GroupId) -> Self {
        let (authority, key) = pki::new_authority(id).expect("authority");
        Self { id, authority, key }
    }

    fn member(&self, member: MemberId) -> Identity {
        let key = pki::new_tls_key().expect("key");
        let request = pki::signing_request(&key).expect("request");
        let certificate = pki::sign(&self.authority, &self.key, &request, member, self.id).expect("signed");
        let identity = Identity { certificate, authority: self.authority.clone(), key };
        identity.check().expect("belongs together");
        identity
    }

    fn pin(&self) -> Fingerprint {
        pki::fingerprint(&self.authority).expect("fingerprint")
    }
}

fn hello(member: MemberId) -> Hello {
    Hello {
        protocol: PROTOCOL,
        group: Some(GROUP),
        lineage: Lineage(3),
        member: Some(member),
        lane: Lane::Calls,
    }
}

/// Answers a Raft call with its body, and does what some bodies say.
#[derive(Default)]
struct Echo {
    removed: Mutex<BTreeSet<MemberId>>,
    listed: Mutex<BTreeSet<ApplicationName>>,
    callers: Mutex<Vec<Caller>>,
    ended: Mutex<Vec<ConnectionId>>,
    running: AtomicUsize,
    gate: Notify,
}

impl Handler for Arc<Echo> {
    fn handle(&self, _: ConnectionId, caller: Caller, request: Request) -> BoxFuture<'static, Response> {
        let echo = self.clone();
        async move {
            echo.callers.lock().push(caller);
            match request {
                Request::Member(MemberRequest::Raft { body, .. }) => match body.as_slice() {
                    b"wait" => {
                        echo.running.fetch_add(1, Ordering::SeqCst);
                        echo.gate.notified().await;
                        Response::Member(MemberAnswer::Raft(body))
                    }
                    b"panic" => panic!("asked for"),
                    b"long" => Response::Member(MemberAnswer::Raft(vec![0; limits::FRAME_MAX_BYTES])),
                    _ => Response::Member(MemberAnswer::Raft(body)),
                },
                Request::Member(_) => Response::Member(MemberAnswer::ReadIndex(LogIndex(5))),
                Request::Client(ClientRequest::Slot(call)) if call.seen == LATE => {
                    echo.gate.notified().await;
                    Response::Client(Answer::Done)
                }
                Request::Client(_) => Response::Client(Answer::Done),
                Request::Join(_) => Response::Join(JoinAnswer::Challenge { challenge: vec![1, 2, 3] }),
            }
        }
        .boxed()
    }

    fn closed(&self, connection: ConnectionId) {
        self.ended.lock().push(connection);
    }

    fn admits(&self, bearer: &pki::Bearer) -> bool {
        match bearer {
            pki::Bearer::Member(named) => !self.removed.lock().contains(&named.member),
            pki::Bearer::Application(named) => self.listed.lock().contains(&named.name),
        }
    }
}

/// A member that serves, and what it takes to reach it.
struct Member {
    address: String,
    identity: Identity,
    echo: Arc<Echo>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

async fn serve(group: &Group) -> Member {
    let identity = group.member(SERVER);
    serve_at(TcpListener::bind("127.0.0.1:0").await.expect("binds"), identity)
}

fn serve_at(listener: TcpListener, identity: Identity) -> Member {
    let address = listener.local_addr().expect("address").to_string();
    let echo = Arc::new(Echo::default());
    let (stop, stopped) = watch::channel(false);
    let handler = Arc::new(echo.clone());
    let task = tokio::spawn(serve_tcp(listener, identity.clone(), hello(SERVER), handler, stopped));
    Member { address, identity, echo, stop, task }
}

impl Member {
    async fn stop(self) {
        self.stop.send_replace(true);
        timeout(SOON, self.task).await.expect("stops in time").expect("no panic");
    }

    fn directory(&self) -> Arc<dyn Directory> {
        let tls = pki::fingerprint(&self.identity.certificate).expect("fingerprint");
        Arc::new(One(self.address.clone(), tls))
    }

    fn links(&self, group: &Group) -> Links {
        Links::new(group.member(CALLER), hello(CALLER), self.directory())
    }

    /// A TLS connection below the frames.
    async fn raw(&self, config: Arc<ClientConfig>) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(&self.address).await.expect("connects");
        TlsConnector::from(config).connect(tls::server_name(), stream).await.expect("handshake")
    }

    /// A connection of a member that has said hello.
    async fn greeted(&self, group: &Group) -> TlsStream<TcpStream> {
        let mut stream = self.raw(tls::mutual(&group.member(CALLER)).expect("config")).await;
        send(&mut stream, NO_REQUEST, &Ask::Hello(hello(CALLER))).await;
        assert!(matches!(receive(&mut stream).await, Some((_, Reply::Welcome(_)))));
        stream
    }
}

struct One(String, Fingerprint);

impl Directory for One {
    fn address(&self, member: MemberId) -> Option<(String, Fingerprint)> {
        (member == SERVER).then(|| (self.0.clone(), self.1))
    }
}

async fn send(stream: &mut TlsStream<TcpStream>, id: u64, ask: &Ask<Request>) {
    let frame = frame::encode(id, ask, limits::FRAME_MAX_BYTES).expect("encodes");
    stream.write_all(&frame).await.expect("written");
    stream.flush().await.expect("flushed");
}

/// The next frame; None if the connection was closed or broken.
async fn receive(stream: &mut TlsStream<TcpStream>) -> Option<(u64, Reply<Response>)> {
    let next = timeout(Duration::from_secs(8), stream::read(stream, limits::FRAME_MAX_BYTES));
    next.await.expect("the peer decides in time").ok().flatten()
}

fn raft(body: &[u8]) -> Request {
    Request::Member(MemberRequest::Raft { call: RaftCall::Append, body: body.to_vec() })
}

async fn ask(links: &Links, body: &[u8]) -> Result<Vec<u8>, LinkError> {
    match links.call(SERVER, Lane::Bulk, raft(body), SOON).await? {
        Response::Member(MemberAnswer::Raft(body)) => Ok(body),
        other => panic!("another answer: {other:?}"),
    }
}

async fn until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never came true");
        sleep(Duration::from_millis(5)).await;
    }
}

fn refused(error: LinkError) -> String {
    match error {
        LinkError::Refused(why) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn members_talk_on_a_connection_for_each_lane() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    assert_eq!(ask(&links, b"body").await, Ok(b"body".to_vec()));
    let answer = links.call(SERVER, Lane::Heartbeat, raft(b"beat"), SOON).await;
    assert!(matches!(answer, Ok(Response::Member(MemberAnswer::Raft(_)))));
    assert_eq!(member.echo.callers.lock().as_slice(), vec![Caller::Member(CALLER); 2]);
    assert!(links.open_connection(SERVER, Lane::Bulk).is_some());
    assert!(links.open_connection(SERVER, Lane::Heartbeat).is_some());
    assert!(links.open_connection(SERVER, Lane::Calls).is_none());
    let error = links.call(MemberId(9), Lane::Bulk, raft(b""), SOON).await.expect_err("unknown");
    assert!(matches!(error, LinkError::Unreachable(why) if why.contains("not on the roster")));
    let echo = member.echo.clone();
    links.close();
    until(|| echo.ended.lock().len() == 2).await;
    assert!(matches!(ask(&links, b"late").await, Err(LinkError::Unreachable(_))));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_at_once_keep_their_answers_apart() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = Arc::new(member.links(&group));
    let calls = (0..10_000u32).map(|number| {
        let links = links.clone();
        tokio::spawn(async move {
            let body = [&number.to_be_bytes()[..], &vec![7; number as usize % 300]].concat();
            let answer = links.call(SERVER, Lane::Bulk, raft(&body), Duration::from_secs(60)).await;
            assert!(matches!(answer, Ok(Response::Member(MemberAnswer::Raft(same))) if same == body));
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("answered");
    }
    let connection = links.open_connection(SERVER, Lane::Bulk).expect("open");
    assert_eq!(connection.waiting(), (0, 0));
    member.stop().await;
}

#[tokio::test]
async fn a_deadline_and_a_dropped_call_leave_nothing_behind() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    ask(&links, b"warm").await.expect("connected");
    let short = Duration::from_millis(50);
    let late = links.call(SERVER, Lane::Bulk, raft(b"wait"), short).await;
    assert_eq!(late.map(|_| ()), Err(LinkError::Deadline));
    let dropped = timeout(short, ask(&links, b"wait")).await;
    assert!(dropped.is_err());
    let connection = links.open_connection(SERVER, Lane::Bulk).expect("open");
    assert_eq!(connection.waiting(), (0, 0));
    // Their late answers disturb nobody.
    member.echo.gate.notify_waiters();
    assert_eq!(ask(&links, b"next").await, Ok(b"next".to_vec()));
    member.stop().await;
}

#[tokio::test]
async fn a_slow_answer_does_not_hold_up_another() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    let slow = ask(&links, b"wait");
    let quick = async {
        let answer = ask(&links, b"quick").await;
        until(|| member.echo.running.load(Ordering::SeqCst) == 1).await;
        member.echo.gate.notify_waiters();
        answer
    };
    let (slow, quick) = tokio::join!(slow, quick);
    assert_eq!((slow, quick), (Ok(b"wait".to_vec()), Ok(b"quick".to_vec())));
    member.stop().await;
}

#[tokio::test]
async fn a_peer_that_dies_in_mid_call_is_noticed_at_once_and_reached_again() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let (identity, address) = (member.identity.clone(), member.address.clone());
    let links = member.links(&group);
    let begun = Instant::now();
    let (lost, ()) = tokio::join!(ask(&links, b"wait"), async {
        until(|| member.echo.running.load(Ordering::SeqCst) == 1).await;
        member.stop().await;
    });
    assert_eq!(lost, Err(LinkError::Lost));
    assert!(begun.elapsed() < SOON, "long before the deadline");
    let error = ask(&links, b"gone").await.expect_err("nobody listens");
    assert!(matches!(error, LinkError::Unreachable(_)), "{error}");
    assert!(!error.may_have_happened());
    let again = serve_at(TcpListener::bind(&address).await.expect("binds"), identity);
    sleep(2 * limits::RECONNECT_MAX).await;
    assert_eq!(ask(&links, b"back").await, Ok(b"back".to_vec()));
    again.stop().await;
}

#[tokio::test]
async fn a_connection_that_the_peer_drops_is_noticed_while_idle() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    ask(&links, b"warm").await.expect("connected");
    let connection = links.open_connection(SERVER, Lane::Bulk).expect("open");
    member.stop().await;
    until(|| !connection.is_open()).await;
}

#[tokio::test]
async fn a_removed_member_is_refused_and_loses_what_it_has() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    ask(&links, b"warm").await.expect("connected");
    let connection = links.open_connection(SERVER, Lane::Bulk).expect("open");
    member.echo.removed.lock().insert(CALLER);
    until(|| !connection.is_open()).await;
    let why = refused(ask(&links, b"again").await.expect_err("removed"));
    assert!(why.contains("not on this member's roster"), "{why}");
    // The reason stands until the next try, without knocking each time.
    assert_eq!(refused(ask(&links, b"again").await.expect_err("removed")), why);
    member.stop().await;
}

#[tokio::test]
async fn an_idle_connection_lives_on() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    ask(&links, b"warm").await.expect("connected");
    let before = links.open_connection(SERVER, Lane::Bulk).expect("open");
    sleep(limits::SILENCE_MAX + Duration::from_secs(1)).await;
    assert!(before.is_open());
    links.forget(SERVER);
    assert!(!before.is_open(), "forgotten, it is closed");
    assert_eq!(ask(&links, b"anew").await, Ok(b"anew".to_vec()));
    member.stop().await;
}

#[tokio::test]
async fn local_clients_are_known_by_the_kernel() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("run/keyraft.sock");
    let echo = Arc::new(Echo::default());
    let (stop, stopped) = watch::channel(false);
    let listener = bind_unix(&path).expect("binds");
    let task = tokio::spawn(serve_unix(listener, Arc::new(echo.clone()), Vec::new(), stopped));
    let client = Client::connect_unix(&path).await.expect("connects");
    let answer = client.call(ClientRequest::Status, SOON).await;
    assert!(matches!(answer, Ok(Answer::Done)));
    let uid = rustix::process::geteuid().as_raw();
    let pid = i32::try_from(std::process::id()).ok();
    assert_eq!(echo.callers.lock().as_slice(), [Caller::Local { uid, pid }]);
    let stream = tokio::net::UnixStream::connect(&path).await.expect("connects");
    let (connection, _) =
        Connection::open(stream, &crate::wire::Hello::anonymous(), Watch::Kernel).await.expect("opens");
    let answer = connection.call(&raft(b"x"), Instant::now() + SOON).await;
    assert!(matches!(answer, Ok(Response::Failed(failure)) if failure.kind == FailureKind::Forbidden));
    stop.send_replace(true);
    timeout(SOON, task).await.expect("stops in time").expect("no panic");
    assert!(client.call(ClientRequest::Status, SOON).await.is_err());
    let failure = Client::connect_unix(&path).await.err().expect("nobody serves");
    assert!(failure.message.contains("keyraft serve"), "{failure}");
    let long = folder.path().join("x".repeat(200));
    assert_eq!(Client::connect_unix(&long).await.err().expect("long").kind, FailureKind::BadRequest);
}

/// Prints calls a second over TLS on loopback: `cargo test --release -p keyraft-engine -- --ignored throughput`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure, not a check"]
async fn throughput() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = Arc::new(member.links(&group));
    ask(&links, b"warm").await.expect("connected");
    for in_flight in [1u32, 64] {
        let begun = Instant::now();
        let callers = (0..in_flight).map(|_| {
            let links = links.clone();
            tokio::spawn(async move {
                let mut calls = 0u32;
                while begun.elapsed() < Duration::from_secs(3) {
                    ask(&links, &[7; 256]).await.expect("answered");
                    calls += 1;
                }
                calls
            })
        });
        let mut calls = 0;
        for caller in callers.collect::<Vec<_>>() {
            calls += caller.await.expect("no panic");
        }
        let rate = f64::from(calls) / begun.elapsed().as_secs_f64();
        println!("{in_flight} in flight, 256 bytes: {rate:.0} calls/s");
    }
    member.stop().await;
}
