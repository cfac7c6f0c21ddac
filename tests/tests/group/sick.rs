//! One member's token hangs, fails, lies, crashes its process or takes its time, while the group is in use: the member
//! steps aside, nothing that was asked fails, and once its token is well the member is back by itself.

use super::failover::{Application, group_with};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{Curve, KeyAlgorithm, MemberId};
use keyraft_engine::limits;
use keyraft_engine::wire::{GroupStatus, UseKind};
use keyraft_node::demo::outside;
use keyraft_node::exit::Exit;
use keyraft_node::mechanism::{Named, Purpose};
use keyraft_node::process::is_alive;
use keyraft_tests::TokenKind::{Embedded, Protected, Shim, SoftHsm};
use keyraft_tests::keys::{AnyMember, DATA, Made, create_at, everywhere, list, prove, show, use_key};
use keyraft_tests::token::in_softhsm;
use keyraft_tests::{Group, eventually, turn};
use rustix::process::Signal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const EC: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P256);
/// How long each fault lasts.
const FAULT: Duration = Duration::from_secs(5);
/// The member whose token is sick.
const SICK: usize = 1;

/// Signatures asked for all the time, each verified outside the tokens. One that fails ends the test.
struct Load {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    callers: JoinSet<Duration>,
}

impl Load {
    /// Begins: callers that know every member, and some that know the sick one alone if its process lives on.
    async fn begin(group: &Group, key: &Made, alone: bool) -> Self {
        let row = Arc::new(show(&group.members[0].socket, key.public().expect("is a pair")).await);
        let object = key.inner();
        let paths: Vec<PathBuf> = group.members.iter().map(|m| m.socket.path().to_path_buf()).collect();
        let mut asked: Vec<(Vec<PathBuf>, usize)> = (0..4).map(|first| (paths.clone(), first)).collect();
        asked.extend(alone.then(|| (vec![paths[SICK].clone()], 0)));
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut callers = JoinSet::new();
        for (paths, first) in asked {
            let (row, stop, made) = (row.clone(), stop.clone(), made.clone());
            callers.spawn(async move {
                let named = Named::default_for(Some(EC), Purpose::Sign).expect("EC keys sign");
                let data = named.prepare(DATA.to_vec());
                let ask = AnyMember::new(paths, first);
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let start = Clock.now();
                    let used = use_key(&ask, object, UseKind::Sign, named, &data, None).await;
                    let (signature, _) = used.unwrap_or_else(|e| panic!("a signature was refused: {e}"));
                    assert!(outside::verifies(&row, named, DATA, &signature), "the signature is bad");
                    longest = longest.max(Clock.now() - start);
                    made.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                longest
            });
        }
        Self { stop, made, callers }
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Ends; the longest that a caller waited.
    async fn end(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let mut longest = Duration::ZERO;
        while let Some(caller) = self.callers.join_next().await {
            longest = longest.max(caller.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())));
        }
        longest
    }
}

/// What another member sees, once the sick one is as it should be.
async fn seen(group: &Group, in_sync: bool) -> GroupStatus {
    let sick = group.members[SICK].id;
    eventually(async || {
        let now = group.status(0).await;
        let row = now.members.iter().find(|m| m.member == sick).expect("is on the roster");
        let primary = now.primary.is_some_and(|primary| in_sync || primary != sick);
        if row.in_sync == in_sync && primary { Ok(now) } else { Err(format!("{now:#?}")) }
    })
    .await
}

/// Makes the sick member the primary, since that is the worst place for a sick token.
async fn lead(group: &Group) {
    let sick = group.members[SICK].id.to_string();
    group.json(0, &["step-down", "--to", &sick]).await;
    eventually(async || {
        let primary = group.status(0).await.primary;
        if primary == Some(group.members[SICK].id) { Ok(()) } else { Err(format!("{primary:?}")) }
    })
    .await;
}

fn ids(group: &Group) -> Vec<MemberId> {
    group.members.iter().map(|m| m.id).collect()
}

/// Plays rules for a while before the token of the primary, under load; the member leaves, and is back by itself in the
/// same process.
async fn a_fault_and_back(rules: &str) {
    let group = Group::form(&[Embedded, Shim, Embedded]).await;
    let key = create_at(&group.members[0].socket, "used", EC).await.expect("is made");
    lead(&group).await;
    let process = group.members[SICK].process().expect("runs");
    let load = Load::begin(&group, &key, true).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let (start, before) = (Clock.now(), load.made());
    group.members[SICK].play(rules);
    seen(&group, false).await;
    let meanwhile = create_at(&group.members[SICK].socket, "meanwhile", EC).await.expect("is made");
    tokio::time::sleep((start + FAULT).saturating_duration_since(Clock.now())).await;
    assert!(load.made() > before, "the group is of use meanwhile");
    group.members[SICK].play("");
    group.wait_in_sync().await;
    let longest = load.end().await;
    assert!(longest < limits::OVERALL, "a caller waited for {longest:?}");

    assert_eq!(group.members[SICK].process(), Some(process), "it is the same process");
    let log = group.members[SICK].log();
    assert_eq!(log.matches("the token failed").count(), 1, "{log}");
    assert_eq!(log.matches("the token works again").count(), 1, "{log}");
    for key in [&key, &meanwhile] {
        prove(&group.members[0].socket, key, group.members[SICK].id, &ids(&group)).await;
    }
    everywhere(&group.members[0].socket, group.members.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_hangs_and_is_back() {
    let _turn = turn().await;
    a_fault_and_back("C_Sign hang").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_returns_errors_and_is_back() {
    let _turn = turn().await;
    a_fault_and_back("C_Sign fail 0x30").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_gone_for_a_while_is_back() {
    let _turn = turn().await;
    a_fault_and_back("* fail 0x32").await;
}

/// An application's threads that are in the hung token are answered for in time, and go elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_leaves_a_token_that_hangs_or_fails() {
    let _turn = turn().await;
    let (group, config) = group_with(&[Embedded, Shim, Embedded]).await;
    let mut application = Application::start(&config);
    for rules in ["C_Sign hang", "C_Sign fail 0x30"] {
        application.work_for(FAULT + FAULT);
        tokio::time::sleep(Duration::from_secs(1)).await;
        group.members[SICK].play(rules);
        tokio::time::sleep(FAULT).await;
        group.members[SICK].play("");
        let (count, longest) = application.worked();
        println!("{rules} for {FAULT:?}: {count} signatures, the longest pause {longest:?}");
        assert!(count > 100 && longest < limits::ATTEMPT * 2, "{rules}: {count} signatures, {longest:?}");
        group.wait_in_sync().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_hangs_for_good_costs_its_process_alone() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded, Shim, Embedded]).await;
    let key = create_at(&group.members[0].socket, "used", EC).await.expect("is made");
    let process = group.members[SICK].process().expect("runs");
    let load = Load::begin(&group, &key, false).await;
    group.members[SICK].play("C_Sign hang");
    let hung = Clock.now();
    eventually(async || match group.members[SICK].process() {
        Some(now) if now != process => Ok(()),
        now => Err(format!("process {now:?} still runs")),
    })
    .await;
    assert!(Clock.now() - hung >= limits::TOKEN_HANG_MAX, "it was given time");
    // The new process meets the same token and waits for it.
    group.members[SICK].play("");
    group.wait_in_sync().await;
    assert!(load.end().await < limits::OVERALL);
    let log = group.members[SICK].log();
    assert_eq!(log.matches("is started again").count(), 1, "{log}");
    prove(&group.members[0].socket, &key, group.members[SICK].id, &ids(&group)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_crashes_costs_its_process_alone() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, Shim, Embedded]).await;
    let key = create_at(&group.members[0].socket, "used", EC).await.expect("is made");
    lead(&group).await;
    let process = group.members[SICK].process().expect("runs");
    let load = Load::begin(&group, &key, false).await;
    group.members[SICK].play("C_Sign abort");
    seen(&group, false).await;
    let meanwhile = create_at(&group.members[0].socket, "meanwhile", EC).await.expect("is made");
    group.members[SICK].play("");
    group.wait_in_sync().await;
    assert!(load.end().await < limits::OVERALL);
    assert_ne!(group.members[SICK].process().expect("runs"), process);
    let log = group.members[SICK].log();
    assert!(log.contains("is started again") && log.contains("signal 6"), "{log}");
    for key in [&key, &meanwhile] {
        prove(&group.members[0].socket, key, group.members[SICK].id, &ids(&group)).await;
    }
    // Its supervisor still hands SIGTERM on, and ends as the member does.
    group.stop(SICK).await;
}

/// The pair of processes that a member is: the kernel ends the member with its parent, and the parent starts a member
/// again that somebody killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_ends_with_its_supervisor_and_not_the_other_way_round() {
    let _turn = turn().await;
    let (mut group, config) = group_with(&[Embedded, SoftHsm, Embedded]).await;
    let mut application = Application::start(&config);
    application.work_for(FAULT);
    let process = group.members[SICK].process().expect("runs");
    group.signal(SICK, Signal::KILL);
    eventually(async || match group.members[SICK].process() {
        Some(now) if now != process => Ok(()),
        now => Err(format!("process {now:?} is not a new one")),
    })
    .await;
    group.wait_in_sync().await;
    let (count, longest) = application.worked();
    println!("killed and started again by its supervisor: {count} signatures, the longest pause {longest:?}");

    let process = group.members[SICK].process().expect("runs");
    group.kill(SICK);
    assert!(!is_alive(process), "process {process} outlived its supervisor");
    group.start(SICK).await;
    group.wait_in_sync().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_was_done_and_denied_is_done_once() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, Shim, Embedded]).await;
    // A session copy for use and the token's copy are unwrapped for each key: both are denied in turn.
    for (name, rules) in
        [("first", "C_UnwrapKey lie 0x30 times 1"), ("second", "C_UnwrapKey lie 0x30 from 2 times 1")]
    {
        group.members[SICK].play(rules);
        create_at(&group.members[0].socket, name, EC).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    group.members[SICK].play("");
    group.wait_in_sync().await;
    everywhere(&group.members[0].socket, group.members.len()).await;
    group.json(SICK, &["check"]).await;
    let keys = list(&group.members[SICK].socket).await.len();
    assert_eq!(keys, 4, "two pairs");
    group.stop(SICK).await;
    let lying = in_softhsm(&group.members[SICK]);
    // Group, then object, version and generation with dots between.
    let ours = lying.iter().filter(|object| object.id.matches('.').count() == 2).count();
    assert_eq!(ours, 2, "one object a private key: {lying:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_token_is_no_failed_one() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded, Shim, Embedded]).await;
    let key = create_at(&group.members[0].socket, "used", EC).await.expect("is made");
    let load = Load::begin(&group, &key, true).await;
    group.members[SICK].play("* delay 200");
    tokio::time::sleep(FAULT).await;
    let slow = create_at(&group.members[0].socket, "slow", EC).await.expect("is made");
    group.wait_in_sync().await;
    prove(&group.members[0].socket, &slow, group.members[SICK].id, &ids(&group)).await;
    group.members[SICK].play("");
    assert!(load.end().await < limits::OVERALL);
    assert!(!group.members[SICK].log().contains("the token failed"), "{}", group.members[SICK].log());
}

/// A device that does one thing at a time, and more threads than it serves within an attempt: each waits for its turn,
/// and none is told that the token failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_does_one_thing_at_a_time_is_no_failed_one() {
    const SERVE_MS: u64 = 300;
    let _turn = turn().await;
    let (group, config) = group_with(&[Shim]).await;
    let mut application = Application::start(&config);
    group.members[0].play(&format!("C_Sign serve {SERVE_MS}"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let time = FAULT * 2;
    application.work_for(time);
    // Every call succeeds, or the application says otherwise.
    let (count, longest) = application.worked();
    println!("{count} signatures in {time:?}, the longest pause {longest:?}");
    let log = group.members[0].log();
    assert!(!log.contains("the token failed"), "{log}");
    let served = u64::try_from(time.as_millis()).expect("is short") / SERVE_MS;
    assert!(count >= served / 2, "{count} signatures, and the device does {served}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_logs_in_by_a_protected_path() {
    let _turn = turn().await;
    let mut group = Group::form(&[Protected, SoftHsm, Protected]).await;
    let key = create_at(&group.members[1].socket, "used", EC).await.expect("is made");
    for member in &group.members {
        prove(&member.socket, &key, member.id, &ids(&group)).await;
    }
    group.kill(2);
    group.start(2).await;
    group.wait_in_sync().await;
    // A token without such a path must be given its PIN, and one with it cannot be made here.
    let config = group.members[1].folder.join("keyraft.toml");
    let text = std::fs::read_to_string(&config).expect("reads");
    group.stop(1).await;
    std::fs::write(&config, text.replace("pin_file = \"pin\"", "login = \"protected\"")).expect("writes");
    for (words, exit, says) in [
        (&["serve"][..], Exit::CheckFailed, "has no protected authentication path"),
        (&["check"], Exit::CheckFailed, "has no protected authentication path"),
        (&["recover", "--create-token", "--so-pin-file", "so-pin"], Exit::Usage, "its maker's tool"),
    ] {
        let ended = group.run(1, words).await;
        assert_eq!(ended.code, i32::from(exit.code()), "{words:?}: {}", ended.said());
        assert!(ended.said().contains(says), "{words:?}: {}", ended.said());
    }
}
