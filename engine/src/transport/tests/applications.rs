//! Applications that prove themselves by a certificate, over the blocking connection that the PKCS#11 module has.

use super::*;
use crate::client;
use crate::domain::ClientName;
use crate::wire::{SlotCall, SlotRequest};

fn name(text: &str) -> ApplicationName {
    text.parse().expect("a name")
}

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let body = data_encoding::BASE64.encode(der);
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").into_bytes()
}

/// An application's identity, signed by the group.
fn application(group: &Group, text: &str) -> Identity {
    let key = pki::new_tls_key().expect("key");
    let request = pki::signing_request(&key).expect("request");
    let certificate =
        pki::sign_application(&group.authority, &group.key, &request, &name(text), group.id).expect("signed");
    Identity { certificate, authority: group.authority.clone(), key }
}

fn credentials(identity: &Identity) -> client::Credentials {
    let certificate = pem("CERTIFICATE", &identity.certificate);
    let authority = pem("CERTIFICATE", &identity.authority);
    client::Credentials::from_pem(&certificate, &pem("PRIVATE KEY", &identity.key), &authority)
        .expect("belong together")
}

fn slot() -> ClientRequest {
    let who = ClientName("a lie".into());
    let call =
        SlotCall { who, ticket: None, seen: LogIndex(0), tries: 1, ask: SlotRequest::Info, direct: false };
    ClientRequest::Slot(Box::new(call))
}

/// Runs what blocks beside the member, which lives on this runtime.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

async fn open(member: &Member, identity: &Identity) -> Result<client::Connection, client::CallError> {
    let (address, credentials) = (member.address.clone(), credentials(identity));
    aside(move || client::Connection::open_remote(&address, &credentials, SOON)).await
}

fn forbidden(error: client::CallError) -> String {
    match error {
        client::CallError::Failed(failure) if failure.kind == FailureKind::Forbidden => failure.message,
        other => panic!("not forbidden: {other:?}"),
    }
}

#[tokio::test]
async fn an_application_asks_for_the_slot_and_the_status_alone() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    member.echo.listed.lock().insert(name("web"));
    let mut connection = open(&member, &application(&group, "web")).await.expect("is let in");
    aside(move || {
        for ask in [slot(), ClientRequest::Status] {
            assert!(matches!(connection.call(&ask, SOON), Ok(Answer::Done)));
        }
        let own = name("web");
        for ask in [ClientRequest::Check, ClientRequest::Clients, ClientRequest::RemoveClient(own)] {
            let why = forbidden(connection.call(&ask, SOON).expect_err("is refused"));
            assert!(why.contains("may not ask this"), "{why}");
        }
        assert!(matches!(connection.call(&slot(), SOON), Ok(Answer::Done)), "and the connection lives");
    })
    .await;
    let asked = member.echo.callers.lock().clone();
    assert_eq!(asked, vec![Caller::Application(name("web")); 3]);
    member.stop().await;
}

#[tokio::test]
async fn an_application_asks_nothing_that_members_or_joiners_ask() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    member.echo.listed.lock().insert(name("web"));
    let identity = application(&group, "web");
    let mut stream = member.raw(tls::mutual(&identity).expect("config")).await;
    send(&mut stream, NO_REQUEST, &Ask::Hello(Hello::application())).await;
    assert!(matches!(receive(&mut stream).await, Some((_, Reply::Welcome(_)))));
    let join = Request::Join(JoinRequest::Prove { proof: vec![1] });
    for (id, request) in [(1, raft(b"x")), (2, Request::Member(MemberRequest::ReadIndex)), (3, join)] {
        send(&mut stream, id, &Ask::Request(request)).await;
        let Some((answered, Reply::Response(Response::Failed(failure)))) = receive(&mut stream).await else {
            panic!("{id} is answered");
        };
        assert_eq!((answered, failure.kind), (id, FailureKind::Forbidden));
    }
    // Nor may it say to be a member.
    let mut stream = member.raw(tls::mutual(&identity).expect("config")).await;
    send(&mut stream, NO_REQUEST, &Ask::Hello(hello(CALLER))).await;
    assert!(matches!(receive(&mut stream).await, Some((_, Reply::Refused(_)))));
    assert!(member.echo.callers.lock().is_empty());
    member.stop().await;
}

/// Asks for what waits for the gate, hears that it is worked on, opens the gate, and has the answer.
fn hears_that_it_lives(mut connection: client::Connection, gate: &Notify) {
    let ClientRequest::Slot(mut call) = slot() else { panic!("is one") };
    call.seen = LATE;
    let (until, quiet) = (crate::clock::Clock.now() + 2 * SOON, limits::MEMBER_DEAD);
    let mut sent = connection.send(&ClientRequest::Slot(call), until, quiet).expect("is sent");
    for _ in 0..4 {
        let heard = connection.receive(&mut sent, until, quiet).expect("the member lives");
        assert!(matches!(heard, client::Heard::Working), "{heard:?}");
    }
    gate.notify_one();
    loop {
        match connection.receive(&mut sent, until, quiet).expect("is answered") {
            client::Heard::Working => {}
            client::Heard::Answer(answer) => break assert!(matches!(answer, Answer::Done)),
        }
    }
    assert!(matches!(connection.call(&slot(), SOON), Ok(Answer::Done)), "and the connection lives");
}

#[tokio::test]
async fn a_long_call_is_told_from_a_dead_member_over_tcp() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    member.echo.listed.lock().insert(name("web"));
    let connection = open(&member, &application(&group, "web")).await.expect("is let in");
    let echo = member.echo.clone();
    aside(move || hears_that_it_lives(connection, &echo.gate)).await;
    member.stop().await;
}

#[tokio::test]
async fn a_long_call_is_told_from_a_dead_member_over_the_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sock");
    let listener = bind_unix(&path).expect("binds");
    let (stop, stopped) = watch::channel(false);
    let echo = Arc::new(Echo::default());
    let serving = tokio::spawn(serve_unix(listener, Arc::new(echo.clone()), Vec::new(), stopped));
    aside(move || {
        let connection = client::Connection::open(&path, SOON).expect("opens");
        hears_that_it_lives(connection, &echo.gate);
    })
    .await;
    stop.send_replace(true);
    timeout(SOON, serving).await.expect("stops in time").expect("no panic");
}

#[tokio::test]
async fn whoever_is_not_listed_or_of_another_group_is_refused() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    member.echo.listed.lock().insert(name("web"));
    let why = forbidden(open(&member, &application(&group, "db")).await.expect_err("is not listed"));
    assert!(why.contains("'db'") && why.contains("not on this member's list"), "{why}");
    // Another authority's certificate, trusted by nobody here, and a member that this application does not trust.
    let mut foreign = application(&Group::new(GroupId([9; 8])), "web");
    assert!(open(&member, &foreign).await.is_err(), "it trusts another authority");
    foreign.authority = group.authority.clone();
    assert!(open(&member, &foreign).await.is_err(), "the member trusts another authority");
    // This authority's, for another group.
    let other = Group { id: GroupId([9; 8]), authority: group.authority.clone(), key: group.key.clone() };
    let why = forbidden(open(&member, &application(&other, "web")).await.expect_err("is another's"));
    assert!(why.contains("another group"), "{why}");
    // An application that answers in a member's stead is not believed.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let impostor = serve_at(listener, application(&group, "web"));
    let error = open(&impostor, &application(&group, "web")).await.expect_err("is no member");
    assert!(matches!(error, client::CallError::Unreachable(_)), "{error}");
    impostor.stop().await;
    assert!(member.echo.callers.lock().is_empty());
    member.stop().await;
}

#[tokio::test]
async fn a_removed_application_loses_what_it_has() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    member.echo.listed.lock().insert(name("web"));
    let identity = application(&group, "web");
    let mut connection = open(&member, &identity).await.expect("is let in");
    // It lives on while nothing is asked.
    sleep(limits::SILENCE_MAX + Duration::from_secs(1)).await;
    let mut connection = aside(move || {
        assert!(matches!(connection.call(&slot(), SOON), Ok(Answer::Done)));
        connection
    })
    .await;
    member.echo.listed.lock().clear();
    until(|| member.echo.ended.lock().len() == 1).await;
    let error = aside(move || connection.call(&slot(), SOON).expect_err("is closed")).await;
    assert!(matches!(error, client::CallError::Failed(_) | client::CallError::Lost(_)), "{error}");
    forbidden(open(&member, &identity).await.expect_err("is removed"));
    member.stop().await;
}

#[tokio::test]
async fn a_late_answer_ends_by_the_deadline() {
    let group = Group::new(GROUP);
    // Somebody who takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = silent.local_addr().expect("address").to_string();
    let credentials = credentials(&application(&group, "web"));
    let begun = Instant::now();
    let opened = aside(move || client::Connection::open_remote(&address, &credentials, SOON)).await;
    let error = opened.expect_err("nobody answers");
    assert!(error.is_late(), "{error}");
    assert!(begun.elapsed() < 2 * limits::CONNECT, "{:?}", begun.elapsed());
}
