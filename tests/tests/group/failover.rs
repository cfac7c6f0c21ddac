//! An application works on while members are stopped, killed and come back, whoever they are, and all members share its
//! calls. The longest pause of each fault is printed.

use keyraft_tests::TokenKind::Embedded;
use keyraft_tests::clients::{Target, group, set_user_pin};
use keyraft_tests::told::{Told, application_of, program};
use keyraft_tests::{Group, TokenKind, turn};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const THREADS: u32 = 8;
/// From a silent cut to the next answer: three heartbeats, and what a busy machine adds. The figures are printed.
const SILENT_MAX: Duration = Duration::from_secs(4);
/// From a member's end to the next answer: next to nothing, and what a busy machine adds.
const KILLED_MAX: Duration = Duration::from_secs(3);

/// An application that signs with all its threads when it is told.
pub(super) struct Application {
    told: Told,
    session: String,
    key: String,
}

impl Application {
    pub(super) fn start(config: &Path) -> Self {
        let mut told = Told::start(application_of(Command::new(program()), config, "talk"));
        let session = told.login();
        let key = told.good(&format!("ec {session} token works-on"));
        told.good(&format!("pauses {THREADS} 500 {key}"));
        Self { told, session, key }
    }

    /// Signs with all threads for a while.
    pub(super) fn work_for(&mut self, time: Duration) {
        self.told.tell(&format!("pauses {THREADS} {} {}", time.as_millis(), self.key));
    }

    /// Signatures, and the longest pause.
    pub(super) fn worked(&mut self) -> (u64, Duration) {
        let said = self.told.hear_good("pauses");
        let (count, longest) = said.split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse::<u64>().expect("is a number");
        (number(count), Duration::from_millis(number(longest)))
    }
}

/// A group of so many, and the configuration of an application on this machine.
async fn group_of(members: usize) -> (Group, std::path::PathBuf) {
    group_with(&vec![Embedded; members]).await
}

/// The same, with these tokens.
pub(super) async fn group_with(kinds: &[TokenKind]) -> (Group, std::path::PathBuf) {
    let group = Group::form(kinds).await;
    set_user_pin(&group).await;
    Target::group("a group that loses members", &group);
    let config = group.path("client.toml");
    (group, config)
}

async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The primary, and one that is not.
async fn two_of(group: &Group) -> [(usize, &'static str); 2] {
    let at = group.primary(0).await;
    [((at + 1) % group.members.len(), "a member"), (at, "the primary")]
}

async fn stopped_and_back(config: &Path, group: &Group, how: &str) {
    let mut application = Application::start(config);
    for (index, what) in two_of(group).await {
        application.work_for(Duration::from_secs(8));
        pause(Duration::from_secs(1)).await;
        group.pause(index);
        pause(Duration::from_secs(5)).await;
        group.go_on(index);
        let (count, longest) = application.worked();
        println!("{how}, {what} stopped for 5 s: {count} signatures, the longest pause {longest:?}");
        assert!(count > 100 && longest < SILENT_MAX, "{how}, {what}: {count} signatures, {longest:?}");
        group.wait_in_sync().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_member_costs_three_heartbeats() {
    let _turn = turn().await;
    let (group, config) = group_of(3).await;
    stopped_and_back(&config, &group, "over sockets").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_member_costs_three_heartbeats_over_tcp_too() {
    let _turn = turn().await;
    let (group, _) = group_of(3).await;
    let folder = group.path("web");
    group.json(1, &["client", "add", "web", "--out", &folder.display().to_string()]).await;
    stopped_and_back(&folder.join("client.toml"), &group, "over TCP").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_member_costs_next_to_nothing() {
    let _turn = turn().await;
    let (mut group, config) = group_of(3).await;
    let mut application = Application::start(&config);
    for (index, what) in two_of(&group).await {
        application.work_for(Duration::from_secs(4));
        pause(Duration::from_secs(1)).await;
        group.kill(index);
        let (count, longest) = application.worked();
        println!("{what} killed: {count} signatures, the longest pause {longest:?}");
        assert!(count > 100 && longest < KILLED_MAX, "{what}: {count} signatures, {longest:?}");
        application.work_for(Duration::from_secs(8));
        group.start(index).await;
        let (count, longest) = application.worked();
        println!("{what} back: {count} signatures, the longest pause {longest:?}");
        // One that comes back starts, catches up and imports beside the others, on the same processors.
        assert!(count > 100 && longest < SILENT_MAX, "{what} back: {count} signatures, {longest:?}");
        group.wait_in_sync().await;
    }
}

/// No quorum is left, and keys are used all the same.
#[tokio::test(flavor = "multi_thread")]
async fn one_survivor_of_two_serves() {
    let _turn = turn().await;
    let (mut group, config) = group_of(2).await;
    let mut application = Application::start(&config);
    application.work_for(Duration::from_secs(5));
    pause(Duration::from_secs(1)).await;
    group.kill(0);
    let (count, longest) = application.worked();
    println!("one of two killed: {count} signatures, the longest pause {longest:?}");
    assert!(count > 100 && longest < SILENT_MAX, "{count} signatures, {longest:?}");
}

/// Each member works about as much as the others.
#[tokio::test(flavor = "multi_thread")]
async fn all_members_share_the_load() {
    let _turn = turn().await;
    let (group, config) = group_of(3).await;
    let mut application = Application::start(&config);
    let mut seen = Vec::new();
    // A busy machine may disturb a round.
    for _ in 0..5 {
        let before = [0, 1, 2].map(|index| group.ticks(index));
        application.work_for(Duration::from_secs(3));
        let (count, _) = application.worked();
        let used = [0, 1, 2].map(|index| group.ticks(index) - before[index]);
        println!("{count} signatures took {used:?} ticks of the members");
        let [least, most] = [used.iter().min(), used.iter().max()].map(|ticks| ticks.copied().unwrap_or(0));
        if least * 3 >= most {
            return;
        }
        seen.push(used);
    }
    panic!("the members' shares differ: {seen:?}");
}

/// A multi-part operation does not notice that its member was lost between two parts: each goes to whoever is there.
#[tokio::test(flavor = "multi_thread")]
async fn parts_survive_the_loss_of_every_member_in_turn() {
    let _turn = turn().await;
    let mut group = group(Embedded).await;
    Target::group("a group that loses members between parts", &group);
    let mut application = Application::start(&group.path("client.toml"));
    let session = application.session.clone();
    let told = &mut application.told;
    let key = told.good(&format!("aes {session} token parts"));
    let (begin, part, last) =
        (format!("cbc {session} {key}"), format!("part {session}"), format!("last {session}"));
    told.good(&begin);
    let wanted: Vec<String> = [&part, &part, &part, &last].map(|line| told.good(line)).to_vec();
    told.good(&begin);
    let mut got = Vec::new();
    for index in 0..3 {
        group.kill(index);
        got.push(told.good(&part));
        group.start(index).await;
        group.wait_in_sync().await;
    }
    got.push(told.good(&last));
    assert_eq!(got, wanted);
}
