//! Strangers, wrong certificates, garbage, and peers that are slow or silent.

use super::*;

#[tokio::test]
async fn wrong_hellos_are_refused_with_the_reason() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    type Change = fn(&mut Hello);
    let cases: [(Change, &str); 5] = [
        (|hello| hello.group = Some(GroupId([8; 8])), "certificate is not the one"),
        (|hello| hello.lineage = Lineage(2), "older history l2"),
        (|hello| hello.lineage = Lineage(4), "older history l3"),
        (|hello| hello.member = Some(MemberId(5)), "certificate is m2's"),
        (|hello| hello.protocol = 99, "same keyraft version"),
    ];
    for (change, message) in cases {
        let mut hello = hello(CALLER);
        change(&mut hello);
        let links = Links::new(group.member(CALLER), hello, member.directory());
        let why = refused(ask(&links, b"").await.expect_err(message));
        assert!(why.contains(message), "{why}");
    }
    // The server judges the group itself, whatever the caller's own check says.
    let mut stream = member.raw(tls::mutual(&group.member(CALLER)).expect("config")).await;
    send(&mut stream, NO_REQUEST, &Ask::Hello(Hello { group: Some(GroupId([8; 8])), ..hello(CALLER) })).await;
    let Some((_, Reply::Refused(failure))) = receive(&mut stream).await else { panic!("not refused") };
    assert!(failure.message.contains("another group"), "{failure}");
    assert!(receive(&mut stream).await.is_none(), "and the connection is closed");
    assert!(member.echo.callers.lock().is_empty());
    member.stop().await;
}

#[tokio::test]
async fn certificates_of_another_authority_are_refused_both_ways() {
    let group = Group::new(GROUP);
    let foreign = Group::new(GROUP);
    let member = serve(&group).await;
    let why = refused(ask(&member.links(&foreign), b"").await.expect_err("foreign"));
    assert!(why.contains("not one of this group's authority"), "{why}");
    // A caller that trusts our authority but shows a certificate of its own.
    let mut impostor = foreign.member(CALLER);
    impostor.authority = group.authority.clone();
    let links = Links::new(impostor, hello(CALLER), member.directory());
    let why = refused(ask(&links, b"").await.expect_err("impostor"));
    assert!(why.contains("does not accept this member's certificate"), "{why}");
    // Another member of the group at the address that the roster names for this one.
    let other = pki::fingerprint(&group.member(SERVER).certificate).expect("fingerprint");
    let directory = Arc::new(One(member.address.clone(), other));
    let links = Links::new(group.member(CALLER), hello(CALLER), directory);
    assert!(
        refused(ask(&links, b"").await.expect_err("another key")).contains("not the one that the roster")
    );
    assert!(member.echo.callers.lock().is_empty());
    member.stop().await;
}

#[tokio::test]
async fn a_joiner_trusts_the_pinned_authority_and_may_only_join() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let joiner = JoinClient::connect(&member.address, group.pin()).await.expect("connects");
    assert_eq!((joiner.member().group, joiner.member().member), (GROUP, SERVER));
    let answer = joiner.call(JoinRequest::Prove { proof: vec![1] }, SOON).await.expect("answered");
    assert!(matches!(answer, JoinAnswer::Challenge { challenge } if challenge == [1, 2, 3]));
    assert_eq!(member.echo.callers.lock().as_slice(), [Caller::Unproven]);
    let pin = Group::new(GROUP).pin();
    let failure = JoinClient::connect(&member.address, pin).await.err().expect("another authority");
    assert_eq!(failure.kind, FailureKind::Forbidden);
    let stream = member.raw(tls::pinned(group.pin()).expect("config")).await;
    let (connection, _) =
        Connection::open(stream, &super::Hello::anonymous(), Watch::Pings).await.expect("opens");
    for request in [raft(b"x"), Request::Client(ClientRequest::Show(ObjectId(1)))] {
        let answer = connection.call(&request, Instant::now() + SOON).await;
        let Ok(Response::Failed(failure)) = answer else { panic!("not refused") };
        assert_eq!(failure.kind, FailureKind::Forbidden);
    }
    let mut stream = member.raw(tls::pinned(group.pin()).expect("config")).await;
    send(&mut stream, NO_REQUEST, &Ask::Hello(hello(CALLER))).await;
    let Some((_, Reply::Refused(failure))) = receive(&mut stream).await else { panic!("not refused") };
    assert!(failure.message.contains("must show its certificate"), "{failure}");
    let long = JoinRequest::Prove { proof: vec![0; limits::FRAME_UNPROVEN_MAX_BYTES] };
    let failure = joiner.call(long, SOON).await.expect_err("too long for a stranger");
    assert_eq!(failure.kind, FailureKind::Deadline, "the connection is lost");
    let failure = JoinClient::connect("127.0.0.1:1", group.pin()).await.err().expect("nobody there");
    assert_eq!(failure.remedy(), Remedy::TryAnotherMember);
    member.stop().await;
}

#[tokio::test]
async fn garbage_costs_its_sender_the_connection_and_nobody_else_anything() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    let oversize = u32::try_from(limits::FRAME_MAX_BYTES).expect("small").to_be_bytes();
    let cases: [&[u8]; 5] = [
        &oversize,
        &[0; 4],
        &[0, 0, 0, 2, 99, 99],
        &[0, 0, 0, 5, 1, 1, 2, 99, 99],
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for garbage in cases {
        let mut stream = member.greeted(&group).await;
        stream.write_all(garbage).await.expect("written");
        stream.flush().await.expect("flushed");
        assert!(receive(&mut stream).await.is_none(), "{garbage:?}");
        assert_eq!(ask(&links, b"well").await, Ok(b"well".to_vec()));
    }
    let mut hello_twice = member.greeted(&group).await;
    send(&mut hello_twice, NO_REQUEST, &Ask::Hello(hello(CALLER))).await;
    assert!(receive(&mut hello_twice).await.is_none());
    // No TLS at all.
    let mut plain = TcpStream::connect(&member.address).await.expect("connects");
    plain.write_all(b"hello?hello?hello?").await.expect("written");
    let mut rest = Vec::new();
    timeout(SOON, plain.read_to_end(&mut rest)).await.expect("closed").ok();
    assert_eq!(ask(&links, b"well").await, Ok(b"well".to_vec()));
    member.stop().await;
}

#[tokio::test]
async fn half_frames_and_slow_callers_are_given_up() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let begun = Instant::now();
    let mut silent = TcpStream::connect(&member.address).await.expect("connects");
    let mut slow = member.raw(tls::mutual(&group.member(CALLER)).expect("config")).await;
    let mut half = member.greeted(&group).await;
    half.write_all(&[0, 0, 1, 0, 1, 2]).await.expect("written");
    half.flush().await.expect("flushed");
    let drip = async {
        // A byte now and then keeps no connection without a hello alive.
        while slow.write_all(&[0]).await.is_ok() && slow.flush().await.is_ok() {
            sleep(Duration::from_millis(100)).await;
            if begun.elapsed() > limits::CONNECT * 2 {
                panic!("still open");
            }
        }
    };
    let closed = async { silent.read(&mut [0; 8]).await.map_or(0, |read| read) };
    let (read, ()) = tokio::join!(timeout(limits::CONNECT * 2, closed), drip);
    assert_eq!(read.expect("closed"), 0);
    assert!(receive(&mut half).await.is_none(), "silence in mid frame ends it");
    assert!(begun.elapsed() < limits::SILENCE_MAX * 2);
    until(|| member.echo.ended.lock().len() == 1).await;
    member.stop().await;
}

#[tokio::test]
async fn requests_over_the_bound_are_refused_and_the_others_answered() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let mut stream = member.greeted(&group).await;
    for id in 1..=limits::IN_FLIGHT_MAX as u64 + 3 {
        send(&mut stream, id, &Ask::Request(raft(b"wait"))).await;
    }
    for _ in 0..3 {
        let Some((id, Reply::Response(Response::Failed(failure)))) = receive(&mut stream).await else {
            panic!("not refused")
        };
        assert!(id > limits::IN_FLIGHT_MAX as u64);
        assert_eq!(failure.kind, FailureKind::Busy);
    }
    until(|| member.echo.running.load(Ordering::SeqCst) == limits::IN_FLIGHT_MAX).await;
    member.echo.gate.notify_waiters();
    for _ in 0..limits::IN_FLIGHT_MAX {
        assert!(matches!(receive(&mut stream).await, Some((_, Reply::Response(Response::Member(_))))));
    }
    member.stop().await;
}

#[tokio::test]
async fn strangers_cannot_take_the_places_of_members() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    ask(&links, b"warm").await.expect("connected");
    let mut strangers = Vec::new();
    for _ in 0..limits::CONNECTIONS_UNPROVEN_MAX {
        strangers.push(TcpStream::connect(&member.address).await.expect("connects"));
    }
    let mut surplus = TcpStream::connect(&member.address).await.expect("connects");
    let read = timeout(SOON, surplus.read(&mut [0; 8])).await.expect("dropped").unwrap_or(0);
    assert_eq!(read, 0);
    assert_eq!(ask(&links, b"still").await, Ok(b"still".to_vec()));
    drop(strangers);
    member.stop().await;
}

#[tokio::test]
async fn answers_that_fail_are_still_answers() {
    let group = Group::new(GROUP);
    let member = serve(&group).await;
    let links = member.links(&group);
    for body in [&b"panic"[..], b"long"] {
        let answer = links.call(SERVER, Lane::Bulk, raft(body), SOON).await;
        let Ok(Response::Failed(failure)) = answer else { panic!("not failed") };
        assert_eq!(failure.kind, FailureKind::Internal);
    }
    let long = vec![0; limits::FRAME_MAX_BYTES];
    assert!(refused(ask(&links, &long).await.expect_err("too long")).contains("over the limit"));
    let most = vec![7; limits::FRAME_MAX_BYTES - 64];
    assert_eq!(ask(&links, &most).await, Ok(most));
    member.stop().await;
}

#[tokio::test]
async fn a_peer_that_answers_nothing_is_given_up() {
    let group = Group::new(GROUP);
    let identity = group.member(SERVER);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address").to_string();
    let config = tls::server(&identity).expect("config");
    // Says hello as it should, then never reads again: a process that hangs.
    let hung = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accepts");
        let mut stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await.expect("handshake");
        let _: Option<(u64, Ask<Request>)> = stream::read(&mut stream, 1000).await.expect("hello");
        let welcome = Reply::<Response>::Welcome(hello(SERVER));
        let frame = frame::encode(NO_REQUEST, &welcome, limits::FRAME_MAX_BYTES).expect("encodes");
        stream.write_all(&frame).await.expect("written");
        stream.flush().await.expect("flushed");
        std::future::pending::<()>().await;
        drop(stream);
    });
    let tls = pki::fingerprint(&identity.certificate).expect("fingerprint");
    let links = Links::new(group.member(CALLER), hello(CALLER), Arc::new(One(address, tls)));
    let begun = Instant::now();
    let lost = links.call(SERVER, Lane::Bulk, raft(b"x"), Duration::from_secs(60)).await;
    assert_eq!(lost.map(|_| ()), Err(LinkError::Lost));
    assert!(begun.elapsed() >= limits::SILENCE_MAX && begun.elapsed() < limits::SILENCE_MAX * 2);
    hung.abort();
}
