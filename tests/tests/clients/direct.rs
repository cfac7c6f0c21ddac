//! Members' own slots (`ha_only = false`): what is made or deleted there is that member's alone, until `synchronize`
//! undoes or adopts it.

use crate::faults::{Application, beside};
use keyraft_engine::clock::Clock;
use keyraft_engine::limits;
use keyraft_engine::state::Duty;
use keyraft_tests::clients::{Target, group};
use keyraft_tests::{Group, TokenKind, eventually, turn};
use std::time::Duration;

const KEY_HANDLE_INVALID: &str = "0x60";
const FUNCTION_REJECTED: &str = "0x200";

/// An application that works on the slot with this label.
fn on(target: &Target, label: &str) -> Application {
    Application::start(&Target { label: label.into(), ..target.clone() })
}

fn with_members(group: &Group) -> Target {
    let keys = "ha_only = false\ntimeout_ms = 4000";
    Target::group_as("a group and its members", group, "members.toml", 0..group.members.len(), keys)
}

/// A key that the group has, one that member b alone has made, and what they encrypt zeros to.
struct Story {
    whole: Application,
    own: Application,
    other: Application,
    /// Sessions of the three.
    at: [String; 3],
    shared: String,
    shared_sealed: String,
    alone: String,
    alone_sealed: String,
}

impl Story {
    fn begin(target: &Target) -> Self {
        let (mut whole, mut own, mut other) =
            (on(target, "test"), on(target, "test/b"), on(target, "test/c"));
        let at = [whole.login(), own.login(), other.login()];
        let [w, o, _] = &at;
        let shared = whole.good(&format!("aes {w} token shared"));
        let alone = own.good(&format!("aes {o} token alone"));
        let shared_sealed = whole.good(&format!("seal {w} {shared}"));
        let alone_sealed = own.good(&format!("seal {o} {alone}"));
        assert_ne!(shared_sealed, alone_sealed);
        Self { whole, own, other, at, shared, shared_sealed, alone, alone_sealed }
    }

    fn found(&mut self, who: usize, label: &str) -> String {
        let line = format!("find {} {label}", self.at[who]);
        [&mut self.whole, &mut self.own, &mut self.other][who].good(&line)
    }

    /// What b made is there, usable, and nobody else's; what b deleted is missing there and nowhere else.
    fn is_apart(&mut self, elsewhere: &mut Application) {
        let [w, o, c] = self.at.clone();
        let (alone, shared) = (self.alone.clone(), self.shared.clone());
        assert_eq!(self.found(1, "alone"), format!("[{alone}]"));
        assert_eq!(self.own.good(&format!("seal {o} {alone}")), self.alone_sealed);
        for who in [0, 2] {
            assert_eq!(self.found(who, "alone"), "[]", "{who} shows what b alone has");
        }
        assert_eq!(self.whole.refused(&format!("seal {w} {alone}")), KEY_HANDLE_INVALID);
        assert_eq!(self.other.refused(&format!("seal {c} {alone}")), KEY_HANDLE_INVALID);

        assert_eq!(self.found(1, "shared"), "[]");
        assert_eq!(self.own.refused(&format!("seal {o} {shared}")), KEY_HANDLE_INVALID);
        for who in [0, 2] {
            assert_eq!(self.found(who, "shared"), format!("[{shared}]"));
        }
        assert_eq!(self.whole.good(&format!("seal {w} {shared}")), self.shared_sealed);
        assert_eq!(self.other.good(&format!("seal {c} {shared}")), self.shared_sealed);
        // The group's slot works through b too, which lets another member use the key.
        let session = elsewhere.login();
        assert_eq!(elsewhere.good(&format!("seal {session} {shared}")), self.shared_sealed);
        elsewhere.good(&format!("close {session}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_changed_alone_is_undone() {
    undone(TokenKind::Embedded).await;
}

/// Where the group's keys are token objects: what was deleted stays away over the restart, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_changed_alone_is_undone_on_softhsm() {
    undone(TokenKind::SoftHsm).await;
}

async fn undone(kind: TokenKind) {
    let _turn = turn().await;
    let mut group = group(kind).await;
    let target = with_members(&group);
    let through_b = Target::group_as("the group through b", &group, "b.toml", 1..2, "");
    let (mut story, mut elsewhere) = beside(move || {
        let mut story = Story::begin(&target);
        let [_, o, _] = story.at.clone();
        // The group's key is b's too, until b deletes it.
        assert_eq!(story.own.good(&format!("seal {o} {}", story.shared)), story.shared_sealed);
        story.own.good(&format!("destroy {o} {}", story.shared));
        let mut elsewhere = on(&through_b, "test");
        story.is_apart(&mut elsewhere);
        // What is made and deleted there leaves nothing.
        let short = story.own.good(&format!("ec {o} token short"));
        story.own.good(&format!("sign {o} {short}"));
        story.own.good(&format!("destroy {o} {short}"));
        assert_eq!(story.own.refused(&format!("sign {o} {short}")), KEY_HANDLE_INVALID);
        (story, elsewhere)
    })
    .await;
    let covered = group.json(0, &["coverage"]).await.to_string();
    assert!(covered.contains("own slot"), "{covered}");

    group.kill(1);
    group.start(1).await;
    group.wait_in_sync().await;
    let (mut story, elsewhere) = beside(move || {
        story.is_apart(&mut elsewhere);
        (story, elsewhere)
    })
    .await;
    drop(elsewhere);

    group.json(0, &["synchronize"]).await;
    beside(move || {
        let [_, o, _] = story.at.clone();
        assert_eq!(story.found(1, "alone"), "[]");
        assert_eq!(story.own.refused(&format!("seal {o} {}", story.alone)), KEY_HANDLE_INVALID);
        assert_eq!(story.found(1, "shared"), format!("[{}]", story.shared));
        assert_eq!(story.own.good(&format!("seal {o} {}", story.shared)), story.shared_sealed);
        // A handle that was given out is never given out again.
        let next = story.own.good(&format!("aes {o} token next"));
        assert_ne!(next, story.alone);
    })
    .await;
    group.json(2, &["synchronize"]).await;
    let log = group.members[1].log();
    assert!(log.contains("the changes of this member alone are ended"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_changed_alone_is_adopted() {
    let _turn = turn().await;
    let group = group(TokenKind::Embedded).await;
    group.json(0, &["option", "set", "direct_changes", "adopt"]).await;
    let target = with_members(&group);
    let mut story = beside(move || {
        let mut story = Story::begin(&target);
        let [_, o, _] = story.at.clone();
        story.own.good(&format!("ec {o} token pair"));
        story.own.good(&format!("destroy {o} {}", story.shared));
        story
    })
    .await;
    group.json(2, &["synchronize"]).await;
    beside(move || {
        let at = story.at.clone();
        assert_eq!(story.found(0, "shared"), "[]", "the deletion is the group's");
        assert_eq!(story.whole.refused(&format!("seal {} {}", at[0], story.shared)), KEY_HANDLE_INVALID);
        let found = story.found(0, "alone");
        assert_ne!(found, format!("[{}]", story.alone), "it has a handle of the group's");
        let adopted = found.trim_matches(['[', ']']).to_string();
        let sealed = story.alone_sealed.clone();
        for who in 0..3 {
            assert_eq!(story.found(who, "alone"), found);
            let seal = format!("seal {} {adopted}", at[who]);
            let by = [&mut story.whole, &mut story.own, &mut story.other];
            assert_eq!(by[who].good(&seal), sealed, "{who} has another key");
        }
        assert_eq!(story.own.refused(&format!("seal {} {}", at[1], story.alone)), KEY_HANDLE_INVALID);
        let pair = story.found(2, "pair");
        let private = pair.trim_matches(['[', ']']).split(", ").last().expect("two handles").to_string();
        assert_eq!(pair.split(", ").count(), 2, "{pair}");
        story.other.good(&format!("sign {} {private}", at[2]));
    })
    .await;
    // Nothing is left to be ended.
    let all_well = group.run(1, &["check"]).await;
    assert!(!all_well.said().contains("alone"), "{}", all_well.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_members_token_is_there_while_it_answers() {
    let _turn = turn().await;
    let mut group = group(TokenKind::Embedded).await;
    let target = with_members(&group);
    let so_pin = target.so_pin.clone();
    let (mut whole, mut other, session) = beside(move || {
        let (mut whole, mut other) = (on(&target, "test"), on(&target, "test/c"));
        assert_eq!(whole.good("slots"), "[0, 1, 2, 3]");
        assert_eq!((whole.good("slot"), other.good("slot")), ("0".into(), "3".into()));
        let (group, member) = (whole.good("serial"), other.good("serial"));
        assert!(member.starts_with(&group[..10]) && member.ends_with("m00003"), "{member} of {group}");
        let session = other.login();
        other.good(&format!("aes {session} session fleeting"));
        other.good(&format!("logout {session}"));
        // The PINs are the group's.
        other.good(&format!("so {session} {so_pin}"));
        assert_eq!(other.refused(&format!("initpin {session} another-pin")), "0x200");
        other.good(&format!("logout {session}"));
        other.good(&format!("login {session}"));
        (whole, other, session)
    })
    .await;
    group.kill(2);
    beside(move || {
        eventually_answers(&mut whole, "slots", "ok [0, 1, 2]");
        eventually_answers(&mut other, "open", "error 0xe0 C_OpenSession");
        // Nobody else answers for it.
        assert_eq!(other.refused(&format!("find {session} corner")), "0x32", "CKR_DEVICE_REMOVED");
    })
    .await;
}

/// Returns once the third member itself knows its duty.
async fn hears(group: &Group, duty: Duty) {
    eventually(async || {
        let known = group.status(2).await.members[2].duty;
        if known == duty { Ok(()) } else { Err(format!("it is {known:?}, not {duty:?}")) }
    })
    .await;
}

/// Nobody can stand in for a standby on its own slot: it says no at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_standbys_own_slot_refuses_at_once() {
    let _turn = turn().await;
    let group = group(TokenKind::Embedded).await;
    let target = with_members(&group);
    let (mut own, session) = beside(move || {
        let mut own = on(&target, "test/c");
        let session = own.login();
        own.good(&format!("aes {session} token before"));
        (own, session)
    })
    .await;
    let id = group.members[2].id.to_string();
    group.json(0, &["member", "standby", &id]).await;
    hears(&group, Duty::Standby).await;
    let (mut own, session) = beside(move || {
        let begun = Clock.now();
        assert_eq!(own.refused(&format!("aes {session} token after")), FUNCTION_REJECTED);
        assert_eq!(own.refused(&format!("find {session} before")), FUNCTION_REJECTED);
        let waited = Clock.now() - begun;
        assert!(waited < limits::ATTEMPT, "it took {waited:?}");
        (own, session)
    })
    .await;
    group.json(0, &["member", "activate", &id]).await;
    hears(&group, Duty::Active).await;
    beside(move || {
        let key = own.good(&format!("aes {session} token after"));
        assert_eq!(own.good(&format!("find {session} after")), format!("[{key}]"));
    })
    .await;
}

/// The same over TLS: a member that is named as host:port has a slot too.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_elsewhere_has_a_slot_of_its_own() {
    let _turn = turn().await;
    let group = group(TokenKind::Embedded).await;
    let folder = group.path("web");
    group.json(0, &["client", "add", "web", "--out", &folder.display().to_string()]).await;
    let conf = folder.join("client.toml");
    let text = std::fs::read_to_string(&conf).expect("was written");
    std::fs::write(&conf, format!("{text}\nha_only = false\n")).expect("is written");
    let environment = vec![("KEYRAFT_CONFIG".to_string(), conf.display().to_string())];
    let target = Target { environment, ..with_members(&group) };
    beside(move || {
        let (mut own, mut other) = (on(&target, "test/b"), on(&target, "test/c"));
        let (here, there) = (own.login(), other.login());
        let key = own.good(&format!("aes {here} token elsewhere"));
        own.good(&format!("seal {here} {key}"));
        assert_eq!(own.good(&format!("find {here} elsewhere")), format!("[{key}]"));
        assert_eq!(other.good(&format!("find {there} elsewhere")), "[]");
    })
    .await;
}

/// A module believes for a second what it saw of a member.
fn eventually_answers(application: &mut Application, line: &str, right: &str) {
    let mut answer = String::new();
    for _ in 0..20 {
        answer = application.ask(line);
        if answer == right {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("'{line}' is answered by '{answer}', not by '{right}'");
}
