//! The link against stand-ins of members: sockets that answer, fail, fall silent or hang up as they are told.

mod undecided; // attempts without an answer

use super::*;
use keyraft_engine::balance::Ranking;
use keyraft_engine::codec;
use keyraft_engine::domain::{LogIndex, Mechanism, ObjectId, Parameters};
use keyraft_engine::limits;
use keyraft_engine::wire::{ClientName, Hello, KeyRef, Request, Response, SecretBytes, SlotAnswer, UseKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a stand-in does with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// Answers after a while, saying meanwhile that it works.
    Works(Duration),
    /// Takes it and says nothing; greets nobody either.
    Stopped,
    /// Hangs up.
    HangsUp,
    /// Fails so.
    Fails(&'static FailureKind),
}

/// The frames as members send them; the order is the wire's.
#[derive(Deserialize)]
enum Ask {
    #[expect(dead_code, reason = "only that it is one counts")]
    Hello(Hello),
    Ping,
    #[expect(dead_code, reason = "only that it is one counts")]
    Request(Request),
}

#[derive(Serialize)]
enum Reply {
    Welcome(Hello),
    #[expect(dead_code, reason = "keeps the order")]
    Refused(Failure),
    Pong,
    Response(Response),
    Working,
}

struct StandIn {
    path: PathBuf,
    manner: Arc<Mutex<Manner>>,
    calls: Arc<AtomicU32>,
    greetings: Arc<AtomicU32>,
}

impl StandIn {
    fn new(manner: Manner) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kr-link-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).expect("binds");
        let (calls, greetings) = <(Arc<AtomicU32>, Arc<AtomicU32>)>::default();
        let manner = Arc::new(Mutex::new(manner));
        let own = (manner.clone(), calls.clone(), greetings.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (manner, calls, greetings) = own.clone();
                std::thread::spawn(move || serve(stream, &manner, &calls, &greetings));
            }
        });
        Self { path, manner, calls, greetings }
    }

    fn turns(&self, manner: Manner) {
        *self.manner.lock() = manner;
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // Nothing is left to do about a socket that stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(
    mut stream: UnixStream,
    manner: &Mutex<Manner>,
    calls: &AtomicU32,
    greetings: &AtomicU32,
) -> Option<()> {
    loop {
        let mut header = [0; 4];
        stream.read_exact(&mut header).ok()?;
        let mut body = vec![0; u32::from_be_bytes(header) as usize];
        stream.read_exact(&mut body).ok()?;
        let (id, ask): (u64, Ask) = codec::decode(&body, body.len()).expect("is a frame");
        while *manner.lock() == Manner::Stopped {
            std::thread::sleep(Duration::from_millis(5));
        }
        let reply = match ask {
            Ask::Hello(_) => {
                greetings.fetch_add(1, Ordering::Relaxed);
                Reply::Welcome(Hello::application())
            }
            Ask::Ping => Reply::Pong,
            Ask::Request(_) => {
                calls.fetch_add(1, Ordering::Relaxed);
                let now = *manner.lock();
                Reply::Response(answer(now, id, &mut stream)?)
            }
        };
        send(&mut stream, id, &reply)?;
    }
}

fn answer(manner: Manner, id: u64, stream: &mut UnixStream) -> Option<Response> {
    match manner {
        Manner::Works(time) => {
            let end = Clock.now() + time;
            while Clock.now() + limits::MEMBER_HEARTBEAT < end {
                std::thread::sleep(limits::MEMBER_HEARTBEAT);
                send(stream, id, &Reply::Working)?;
            }
            std::thread::sleep(end.saturating_duration_since(Clock.now()));
            let reply = SlotReply { index: LogIndex(1), answer: SlotAnswer::Done };
            Some(Response::Client(Answer::Slot(Box::new(reply))))
        }
        Manner::Fails(kind) => Some(Response::Failed(Failure::new(kind.clone(), "as it was told"))),
        Manner::HangsUp | Manner::Stopped => None,
    }
}

fn send(stream: &mut UnixStream, id: u64, reply: &Reply) -> Option<()> {
    let body = codec::encode(&(id, reply)).expect("encodes");
    let mut frame = u32::try_from(body.len()).expect("is short").to_be_bytes().to_vec();
    frame.extend(body);
    stream.write_all(&frame).ok()
}

const AT_ONCE: Manner = Manner::Works(Duration::ZERO);

/// One test at a time: they look at times.
static TURN: Mutex<()> = Mutex::new(());

/// A busy machine may disturb a round, not three.
fn one_of_three(round: impl Fn() -> Result<(), String>) {
    let failed: Vec<String> = (0..3).map_while(|_| round().err()).collect();
    assert!(failed.len() < 3, "{failed:?}");
}

/// Asks for as long as that, or until it is `enough`.
fn ask_for(link: &Link, time: Duration, enough: impl Fn() -> bool) -> Vec<Duration> {
    let end = Clock.now() + time;
    let mut took = Vec::new();
    while Clock.now() < end && !enough() {
        took.push(asked(link));
        std::thread::sleep(Duration::from_millis(1));
    }
    took
}

fn group(members: &[StandIn]) -> GroupConfig {
    GroupConfig {
        sockets: members.iter().map(|member| member.path.clone()).collect(),
        remote: None,
        slot: 0,
        timeout: Duration::from_secs(10),
        ranking: Ranking::LeastBusy,
        weights: BTreeMap::new(),
        replay_bytes_max: 100,
        ha_only: true,
    }
}

/// A use of a key with so much data.
fn use_of(bytes: usize) -> SlotCall {
    let ask = SlotRequest::Use {
        key: KeyRef::Object(ObjectId(1)),
        kind: UseKind::Sign,
        mechanism: Mechanism { number: 1, parameters: Parameters::None },
        data: SecretBytes(vec![1; bytes].into()),
    };
    SlotCall { who: ClientName::default(), ticket: None, seen: LogIndex(0), tries: 0, ask, direct: false }
}

fn asked(link: &Link) -> Duration {
    let begun = Clock.now();
    link.call(use_of(10), Pace::Signing).expect("is answered");
    begun.elapsed()
}

fn ask_often(link: &Link, times: u32) {
    for _ in 0..times {
        asked(link);
    }
}

#[test]
fn all_members_share_under_every_ranking() {
    let _turn = TURN.lock();
    for (name, ranking) in Ranking::NAMES {
        let members = [AT_ONCE; 3].map(StandIn::new);
        let link = Link::new(&GroupConfig { ranking, ..group(&members) });
        ask_often(&link, 300);
        let counts: Vec<u32> = members.iter().map(StandIn::calls).collect();
        assert_eq!(counts.iter().sum::<u32>(), 300, "{name}");
        // Where times count, a busy machine's hiccups are the members' times.
        match ranking {
            Ranking::SourceAffinity => assert_eq!(counts.iter().max(), Some(&300), "{name}: {counts:?}"),
            Ranking::LeastBusy | Ranking::ResponseTime => {
                assert!(counts.iter().all(|count| *count > 0), "{name}: {counts:?}");
            }
            Ranking::RoundRobin | Ranking::FewestSessions => {
                assert!(counts.iter().all(|count| *count == 100), "{name}: {counts:?}");
            }
        }
        // One connection a member carries them all.
        assert!(members.iter().all(|m| m.greetings.load(Ordering::Relaxed) <= 1), "{name}");
    }
}

#[test]
fn a_stopped_member_is_left_within_three_heartbeats_and_found_again() {
    let _turn = TURN.lock();
    let members = [AT_ONCE; 3].map(StandIn::new);
    let link = Link::new(&GroupConfig { ranking: Ranking::RoundRobin, ..group(&members) });
    one_of_three(|| {
        ask_often(&link, 50);
        members[0].turns(Manner::Stopped);
        let mut took = ask_for(&link, Duration::from_secs(5), || false);
        took.sort_unstable_by(|one, other| other.cmp(one));
        println!("stopped for 5 s: the longest of {} calls took {:?}", took.len(), &took[..3]);
        members[0].turns(AT_ONCE);
        let before = members[0].calls();
        ask_for(&link, Duration::from_secs(20), || members[0].calls() >= before + 100);
        assert!(members[0].calls() >= before + 100, "it serves again");
        // Finding out whether it is back costs nobody a wait.
        let good = took[0] < limits::MEMBER_DEAD + Duration::from_millis(600) && took[1] < limits::TRY_STEP;
        if good { Ok(()) } else { Err(format!("{:?}", &took[..3])) }
    });
}

#[test]
fn a_member_that_hangs_up_costs_nothing() {
    let _turn = TURN.lock();
    one_of_three(|| {
        let members = [AT_ONCE; 2].map(StandIn::new);
        let link = Link::new(&group(&members));
        ask_often(&link, 20);
        members[1].turns(Manner::HangsUp);
        let longest = (0..200).map(|_| asked(&link)).max();
        let calls = members[1].calls();
        if longest < Some(Duration::from_secs(1)) && calls < 60 {
            Ok(())
        } else {
            Err(format!("{longest:?}, {calls} calls went to it"))
        }
    });
}

#[test]
fn a_long_operation_is_no_failure() {
    let _turn = TURN.lock();
    let members = [StandIn::new(Manner::Works(Duration::from_millis(1500)))];
    let link = Link::new(&group(&members));
    assert!(asked(&link) >= Duration::from_millis(1500));
    assert_eq!(members[0].calls(), 1, "it was asked once");
    // Past an attempt's time it goes on, since nobody else is there.
    members[0].turns(Manner::Works(limits::ATTEMPT * 2));
    assert!(asked(&link) >= limits::ATTEMPT * 2);
    assert_eq!(members[0].calls(), 2);
}

#[test]
fn a_member_that_works_for_too_long_is_left_for_another() {
    let _turn = TURN.lock();
    let members = [Manner::Works(Duration::from_secs(60)), AT_ONCE].map(StandIn::new);
    let link = Link::new(&GroupConfig { ranking: Ranking::RoundRobin, ..group(&members) });
    for _ in 0..2 {
        // It has 10 s in all, and the first one works for a minute.
        assert!(asked(&link) < limits::ATTEMPT * 3);
    }
    assert_eq!((members[0].calls(), members[1].calls()), (1, 2));
}

#[test]
fn members_that_do_not_serve_are_passed_over_and_not_taken_for_dead() {
    let _turn = TURN.lock();
    for kind in [&FailureKind::NotInSync, &FailureKind::Stopping, &FailureKind::TokenFailed] {
        let members = [Manner::Fails(kind), AT_ONCE].map(StandIn::new);
        let link = Link::new(&GroupConfig { ranking: Ranking::RoundRobin, ..group(&members) });
        let calls = ask_for(&link, Duration::from_millis(400), || false).len();
        // At first, and again after 100 and 300 ms.
        assert!((1..=4).contains(&members[0].calls()), "{kind:?}: {} of {calls}", members[0].calls());
        members[0].turns(AT_ONCE);
        let before = members[0].calls();
        ask_for(&link, Duration::from_secs(10), || members[0].calls() >= before + 50);
        assert!(members[0].calls() >= before + 50, "{kind:?}: it serves again");
    }
}

/// While there is no primary, members answer uses as well as ever.
#[test]
fn a_member_without_a_primary_serves_uses() {
    let _turn = TURN.lock();
    let members = [Manner::Fails(&FailureKind::NotPrimary { primary: None }); 2].map(StandIn::new);
    let (timeout, ranking) = (Duration::from_millis(300), Ranking::RoundRobin);
    let link = Link::new(&GroupConfig { timeout, ranking, ..group(&members) });
    assert!(matches!(link.call(use_of(1), Pace::Slow), Err(Lost::Failed(_))));
    let before = members.each_ref().map(StandIn::calls);
    members.iter().for_each(|member| member.turns(AT_ONCE));
    ask_often(&link, 100);
    let after = members.each_ref().map(StandIn::calls);
    assert!((0..2).all(|index| after[index] > before[index] + 20), "{before:?}, then {after:?}");
}

#[test]
fn a_refusal_is_final_and_busy_is_not() {
    let _turn = TURN.lock();
    let members = [StandIn::new(Manner::Fails(&FailureKind::Refused))];
    let link = Link::new(&GroupConfig { timeout: Duration::from_millis(1500), ..group(&members) });
    assert!(matches!(link.call(use_of(1), Pace::Quick), Err(Lost::Failed(_))));
    assert_eq!(members[0].calls(), 1);
    members[0].turns(Manner::Fails(&FailureKind::Busy));
    assert!(matches!(link.call(use_of(1), Pace::Quick), Err(Lost::Failed(_))));
    let tries = members[0].calls() - 1;
    assert!((2..=16).contains(&tries), "{tries} tries, with growing pauses");
}

#[test]
fn data_past_the_limit_is_sent_once() {
    let _turn = TURN.lock();
    for manner in [Manner::HangsUp, Manner::Stopped] {
        let members = [manner; 2].map(StandIn::new);
        members[1].turns(AT_ONCE);
        // A stopped member still has its greeting to give.
        let link = Link::new(&GroupConfig { ranking: Ranking::RoundRobin, ..group(&members) });
        let mut refused = 0;
        for _ in 0..4 {
            match link.call(use_of(101), Pace::Quick) {
                Ok(_) => {}
                Err(Lost::TooLong) => {
                    refused += 1;
                    break;
                }
                Err(other) => panic!("{manner:?}: {other:?}"),
            }
        }
        let wanted = u32::from(manner == Manner::HangsUp);
        assert_eq!((refused, members[0].calls()), (wanted, wanted), "{manner:?}");
        assert_eq!(Rv::from(Lost::TooLong), Rv(CKR_DEVICE_ERROR));
        // What may be sent again is.
        assert!(link.call(use_of(100), Pace::Quick).is_ok());
    }
}

#[test]
fn searches_stay_with_one_member() {
    let _turn = TURN.lock();
    let members = [AT_ONCE; 3].map(StandIn::new);
    let link = Link::new(&group(&members));
    for _ in 0..50 {
        let find = SlotRequest::Find { template: keyraft_engine::domain::Attributes::default(), after: None };
        link.call(SlotCall { ask: find, ..use_of(0) }, Pace::Search).expect("is answered");
        asked(&link);
    }
    let counts: Vec<u32> = members.iter().map(StandIn::calls).collect();
    assert!(counts.iter().any(|count| *count > 50) && counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn all_gone_and_back() {
    let _turn = TURN.lock();
    let members = [Manner::HangsUp; 2].map(StandIn::new);
    let link = Link::new(&GroupConfig { timeout: Duration::from_millis(500), ..group(&members) });
    assert!(matches!(link.call(use_of(1), Pace::Quick), Err(Lost::Nobody)));
    members[1].turns(AT_ONCE);
    let took = asked(&link);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn many_threads_lose_a_member() {
    let _turn = TURN.lock();
    one_of_three(|| {
        let members = [AT_ONCE; 3].map(StandIn::new);
        let link = Link::new(&group(&members));
        let end = Clock.now() + Duration::from_secs(3);
        let longest = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut longest = Duration::ZERO;
                        while Clock.now() < end {
                            longest = longest.max(asked(&link));
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        longest
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(500));
            members[2].turns(Manner::Stopped);
            threads.into_iter().map(|thread| thread.join().expect("no error")).max().expect("some")
        });
        println!("8 threads: the longest call took {longest:?}");
        if longest < Duration::from_millis(1500) { Ok(()) } else { Err(format!("{longest:?}")) }
    });
}

/// One round at every member that may be asked.
fn once(link: &Link) -> Result<SlotReply, Lost> {
    link.once(use_of(10), Pace::Quick)
}

fn is_forbidden(reply: &Result<SlotReply, Lost>) -> bool {
    matches!(reply, Err(lost) if lost.is_refusal())
}

#[test]
fn a_member_that_refuses_the_application_draws_no_calls_and_ends_none() {
    let _turn = TURN.lock();
    let members = [Manner::Fails(&FailureKind::Forbidden), AT_ONCE].map(StandIn::new);
    let link = Link::new(&group(&members));
    ask_often(&link, 200);
    assert!(members[0].calls() < 60, "{} calls", members[0].calls());
    // The one that serves is lost for a while.
    members[1].turns(Manner::HangsUp);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(REFUSED_PATIENCE / 4);
            members[1].turns(AT_ONCE);
        });
        asked(&link);
    });
}

#[test]
fn a_removed_application_hears_it() {
    let _turn = TURN.lock();
    let members = [Manner::Fails(&FailureKind::Forbidden); 2].map(StandIn::new);
    let link = Link::new(&group(&members));
    assert!(is_forbidden(&link.call(use_of(1), Pace::Quick)));
    assert_eq!(members.each_ref().map(StandIn::calls), [1, 1], "each is asked once");
    for other in [Manner::HangsUp, Manner::Fails(&FailureKind::NotInSync)] {
        members[1].turns(other);
        let begun = Clock.now();
        assert!(is_forbidden(&link.call(use_of(1), Pace::Quick)), "{other:?}");
        let took = begun.elapsed();
        assert!(took >= REFUSED_PATIENCE && took < link.timeout, "{other:?}: {took:?}");
    }
    // One that has too much to do may still let it in.
    members[1].turns(Manner::Fails(&FailureKind::Busy));
    assert!(!is_forbidden(&once(&link)));
}

#[test]
fn a_connection_that_nobody_used_for_long_is_not_trusted() {
    let _turn = TURN.lock();
    let members = [StandIn::new(AT_ONCE)];
    let link = Link::new(&group(&members));
    asked(&link);
    link.members[0].grow_old();
    assert!(!link.ask(use_of(1), Pace::Quick).lost_one);
    assert_eq!(members[0].greetings.load(Ordering::Relaxed), 2);
}

#[test]
fn a_shortage_of_the_application_puts_nobody_out() {
    let _turn = TURN.lock();
    let members = [StandIn::new(AT_ONCE)];
    let link = Link::new(&group(&members));
    asked(&link);
    let mut errand = link.errand(use_of(1), Pace::Quick);
    let call = link.mind.begin(0, Pace::Quick);
    let short = rustix::io::Errno::MFILE.raw_os_error();
    let error = CallError::Unreachable(std::io::Error::from_raw_os_error(short));
    let (fate, next) = link.lost(&call, &error, &mut errand);
    assert!(fate == Fate::Unknown && matches!(next, Next::Another(Lost::Nobody)) && !errand.lost_one);
    link.mind.end(&call, fate);
    asked(&link);
    assert_eq!(members[0].greetings.load(Ordering::Relaxed), 1, "its connection is kept");
}

#[test]
fn failures_of_the_token_are_asked_again_within_a_budget() {
    let _turn = TURN.lock();
    for kind in [&FailureKind::TokenFailed, &FailureKind::Internal] {
        one_of_three(|| {
            let members = [Manner::Fails(kind); 2].map(StandIn::new);
            let link = Link::new(&group(&members));
            assert!(matches!(once(&link), Err(Lost::Failed(_))));
            assert_eq!(members.each_ref().map(StandIn::calls), [1, 1]);
            while link.mind.may_ask_another() {}
            assert!(matches!(once(&link), Err(Lost::Failed(_))));
            let calls: u32 = members.iter().map(StandIn::calls).sum();
            if calls == 3 { Ok(()) } else { Err(format!("{kind:?}: {calls} calls")) }
        });
    }
}

#[test]
fn the_last_member_costs_no_second_try() {
    let _turn = TURN.lock();
    let members = [StandIn::new(Manner::Fails(&FailureKind::Busy))];
    let link = Link::new(&group(&members));
    for _ in 0..10 {
        assert!(matches!(once(&link), Err(Lost::Failed(_))));
    }
    let left = (0..200).take_while(|_| link.mind.may_ask_another()).count();
    assert!(left as f64 >= limits::SECOND_TRIES_MAX, "{left}");
}

#[test]
fn one_round_waits_for_nobody() {
    let _turn = TURN.lock();
    let members = [StandIn::new(AT_ONCE)];
    let link = Link::new(&group(&members));
    std::fs::remove_file(&members[0].path).expect("is there");
    let begun = Clock.now();
    assert!(matches!(once(&link), Err(Lost::Nobody)));
    assert!(begun.elapsed() < link.timeout / 2, "{:?}", begun.elapsed());
}

/// A member whose token hangs ends the connection behind that answer.
#[test]
fn a_connection_with_a_failed_token_behind_it_is_not_kept() {
    let _turn = TURN.lock();
    for (kind, greetings) in [(&FailureKind::TokenFailed, 2), (&FailureKind::NotInSync, 1)] {
        let members = [StandIn::new(Manner::Fails(kind))];
        let link = Link::new(&group(&members));
        assert!(matches!(once(&link), Err(Lost::Failed(_))));
        members[0].turns(AT_ONCE);
        asked(&link);
        assert_eq!(members[0].greetings.load(Ordering::Relaxed), greetings, "{kind:?}");
    }
}
