//! A hostile stream to the Unix socket of a member that runs: the next honest client is answered as before, and the
//! member's memory stays where it was.

use crate::run::fuzz;
use crate::support::Group;
use crate::wire::{client_requests, hello_body, request_body};
use keyraft_engine::client::Connection;
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::LogIndex;
use keyraft_engine::transport::Client;
use keyraft_engine::wire::{Answer, ClientRequest, Hello, SlotCall};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long the hostile side waits for the member to say something, or to hang up.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an honest client waits.
const HONEST: Duration = Duration::from_secs(4);
/// What the process may grow by: four PINs are hashed at once, in 19 MiB each, and the allocator keeps some.
const GROWTH_MAX_KIB: u64 = 256 * 1024;

fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short");
    [&length.to_be_bytes()[..], body].concat()
}

/// Streams of both lanes: a hello, then a request twice.
fn streams() -> Vec<Vec<u8>> {
    let requests: Vec<_> = client_requests().iter().map(|request| framed(&request_body(request))).collect();
    let stream = |hello: &Hello| {
        let hello = framed(&hello_body(hello));
        requests.iter().map(move |request| [&hello[..], request, request].concat()).collect::<Vec<_>>()
    };
    [stream(&Hello::anonymous()), stream(&Hello::application())].concat()
}

/// Sends the bytes; true if the member said anything.
fn send(socket: &Path, bytes: &[u8]) -> bool {
    let mut stream = UnixStream::connect(socket).expect("the member listens");
    stream.set_write_timeout(Some(PATIENCE)).expect("is set");
    stream.set_read_timeout(Some(PATIENCE)).expect("is set");
    // The member may hang up on us at any byte.
    let sent = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let mut said = [0; 4096];
    let mut heard = 0;
    // A call that names an index which the log has not reached yet waits for it, and is told that the member lives.
    let end = Clock.now() + PATIENCE;
    while let Ok(length @ 1..) = stream.read(&mut said) {
        heard += length;
        if Clock.now() >= end {
            break;
        }
    }
    sent.is_ok() && heard > 0
}

/// An application that has seen an index which the log has not reached.
fn of_an_index_to_come() -> Vec<u8> {
    let later = |request: ClientRequest| match request {
        ClientRequest::Slot(call) => {
            Some(ClientRequest::Slot(Box::new(SlotCall { seen: LogIndex(u64::MAX), ..*call })))
        }
        _ => None,
    };
    let request = client_requests().into_iter().find_map(later).expect("one asks for the slot");
    [framed(&hello_body(&Hello::application())), framed(&request_body(&request))].concat()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("names the memory");
    line.trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
fn a_hostile_stream() {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = Group::new();
    runtime.block_on(async {
        group.init().await;
        group.start(1).await;
    });
    let socket = group.socket(1);
    let before = resident_kib();
    let mut all = streams();
    all.push(of_an_index_to_come());
    fuzz(all, |bytes| {
        let answered = send(&socket, bytes);
        let mut application = Connection::open(&socket, keyraft_engine::limits::CONNECT)
            .expect("an honest application is let in");
        let status = application.call(&ClientRequest::Status, HONEST);
        assert!(matches!(status, Ok(Answer::Status(_))), "{status:?}");
        let status = runtime.block_on(async {
            Client::connect_unix(&socket).await?.call(ClientRequest::Status, HONEST).await
        });
        assert!(matches!(status, Ok(Answer::Status(_))), "{status:?}");
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < GROWTH_MAX_KIB, "{grown} KiB more are held");
        answered
    });
    runtime.block_on(group.stop(1));
}
