//! Whole members in one process: embedded tokens, sled, TLS on 127.0.0.1.

mod support;

use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{AttributeType, AttributeValue, Curve, KeyAlgorithm, MemberId, ObjectClass};
use keyraft_engine::limits::{STEER_STEADY, VOTERS_MAX};
use keyraft_engine::state::GroupOption;
use keyraft_engine::wire::{Answer, ClientRequest, CoverageState, FailureKind, GroupStatus, UseKind};
use std::collections::BTreeSet;
use std::time::Duration;
use support::{Group, Making, sign_and_verify};

#[tokio::test(flavor = "multi_thread")]
async fn one_member_creates_uses_and_deletes() {
    let mut group = Group::new();
    group.init().await;
    group.start(1).await;
    let p256 = group.create(1, KeyAlgorithm::Ec(Curve::P256), "pay").await.expect("creates");
    assert_eq!(
        p256.iter().map(|row| row.class).collect::<Vec<_>>(),
        [ObjectClass::PrivateKey, ObjectClass::PublicKey]
    );
    sign_and_verify(&group, 1, &p256).await;
    group.create(1, KeyAlgorithm::Aes { bits: 256 }, "data").await.expect("creates");
    assert_eq!(group.labels(1).await, ["pay", "pay", "data"]);
    let private = p256[0].object;
    group.delete(1, &[private]).await.expect("deletes");
    let gone = group.sign(1, private, None).await.expect_err("is gone");
    assert_eq!(gone.kind, FailureKind::NotFound);

    // A restart finds everything as it was.
    group.stop(1).await;
    group.start(1).await;
    assert_eq!(group.labels(1).await, ["pay", "data"]);
    group.stop(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_happens_once() {
    let mut group = Group::new();
    group.init().await;
    group.start(1).await;
    let making = group.making(KeyAlgorithm::Aes { bits: 128 }, "once").await;
    let first = group.make(1, &making).await.expect("creates");
    let again = group.make(1, &making).await.expect("answers the same");
    assert_eq!(first, again);
    let other = Making { algorithm: KeyAlgorithm::Aes { bits: 256 }, ..making };
    let refused = group.make(1, &other).await.expect_err("another request under the same id");
    assert_eq!(refused.kind, FailureKind::Expired);
    assert_eq!(group.labels(1).await, ["once"]);
    group.stop(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_creation_has_its_outcome_though_the_key_has_gone_again() {
    let mut group = Group::new();
    group.form(2).await;
    let making = group.making(KeyAlgorithm::Ec(Curve::P256), "gone").await;
    let first = group.make(1, &making).await.expect("creates");
    let ids = [first[0].object, first[1].object];
    group.delete(2, &ids).await.expect("deletes");
    for at in 1..=2 {
        let again = group.make(at, &making).await.expect("it was made");
        let told: Vec<_> = again.iter().map(|row| (row.object, row.class, row.algorithm)).collect();
        let made: Vec<_> = first.iter().map(|row| (row.object, row.class, row.algorithm)).collect();
        assert_eq!(told, made);
        let label = AttributeValue::Bytes(b"gone".to_vec());
        assert_eq!(again[0].attributes.get(&AttributeType::LABEL), Some(&label));
        assert_eq!(group.sign(at, ids[0], None).await.expect_err("is gone").kind, FailureKind::NotFound);
        assert_eq!(group.labels(at).await, [""; 0]);
    }
}

async fn swapped(group: &Group, at: u64, swap: &ClientRequest) -> bool {
    match group.call(at, swap.clone()).await.expect("is answered") {
        Answer::ComparedAndSet(set) => set,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attribute_is_compared_and_set_in_one_step() {
    let mut group = Group::new();
    group.form(3).await;
    let object =
        group.create(1, KeyAlgorithm::Aes { bits: 128 }, "register").await.expect("creates")[0].object;
    let first = group.swap(object, b"", b"1");
    assert!(swapped(&group, 1, &first).await);
    let late = group.swap(object, b"0", b"2");
    assert!(!swapped(&group, 2, &late).await);
    // What once came of a request comes of it for ever, whatever the value is by then.
    let back = group.swap(object, b"1", b"0");
    assert!(swapped(&group, 3, &back).await);
    for at in 1..=3 {
        assert!(swapped(&group, at, &first).await && !swapped(&group, at, &late).await);
        let Answer::Objects { rows, .. } =
            group.call(at, ClientRequest::Show(object)).await.expect("is there")
        else {
            panic!("an object comes in one piece")
        };
        assert_eq!(rows[0].attributes[&AttributeType::ID], AttributeValue::Bytes(b"0".to_vec()));
    }
    // Of those that expect the same, one sets it.
    let swaps: Vec<_> = (1..=9u8).map(|n| group.swap(object, b"0", &[n])).collect();
    let answers = futures::future::join_all(
        swaps.iter().zip((1..=3).cycle()).map(|(swap, at)| swapped(&group, at, swap)),
    );
    assert_eq!(answers.await.into_iter().filter(|set| *set).count(), 1);
    // After a change of the primary it is still known, and after the object's end too.
    group.call(1, ClientRequest::StepDown { to: None }).await.expect("hands over");
    assert!(swapped(&group, 1, &first).await && !swapped(&group, 1, &late).await);
    group.delete(1, &[object]).await.expect("deletes");
    assert!(swapped(&group, 2, &first).await && !swapped(&group, 2, &late).await);
    let gone = group.call(1, group.swap(object, b"0", b"1")).await.expect_err("is gone");
    assert_eq!(gone.kind, FailureKind::TokenRefused { code: CKR_OBJECT_HANDLE_INVALID });
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_hold_every_key_and_outlive_the_loss_of_one() {
    let mut group = Group::new();
    group.form(3).await;
    let key = group.create(2, KeyAlgorithm::Ec(Curve::P256), "pay").await.expect("creates");
    for at in 1..=3 {
        for by in 1..=3 {
            let signature = group.sign(at, key[0].object, Some(by)).await.expect("signs");
            assert_eq!(signature.by.0, by);
            support::verify_outside(&key[1], &signature.output);
        }
    }

    // The primary is gone without a word; the others go on.
    let primary = group.primary(1).await;
    group.kill(primary);
    let alive = (1..=3).find(|id| *id != primary).expect("two are left");
    let away = group.create(alive, KeyAlgorithm::Ec(Curve::P384), "away").await.expect("creates");
    let gone = group.create(alive, KeyAlgorithm::Aes { bits: 128 }, "gone").await.expect("creates");
    group.delete(alive, &[gone[0].object]).await.expect("deletes");
    group.sign(alive, key[0].object, None).await.expect("signs");

    // It comes back and gets what it missed.
    group.start(primary).await;
    group.wait_in_sync(alive, 3).await;
    let signature = group.sign(alive, away[0].object, Some(primary)).await.expect("signs there");
    assert_eq!(signature.by.0, primary);
    assert_eq!(group.labels(primary).await, ["pay", "pay", "away", "away"]);
    let Answer::Coverage { rows, more: false } =
        group.call(alive, ClientRequest::Coverage { after: None }).await.expect("answers")
    else {
        panic!("a coverage comes in one piece");
    };
    for row in rows {
        let states: Vec<_> = row.members.iter().map(|cell| cell.state.clone()).collect();
        assert_eq!(states, vec![CoverageState::Present; 3], "{} of {}", row.object, row.label);
    }
    group.call(alive, ClientRequest::Synchronize).await.expect("all are equal");
    for id in 1..=3 {
        group.stop(id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_stay_usable_without_a_quorum() {
    let mut group = Group::new();
    group.form(3).await;
    let key = group.create(1, KeyAlgorithm::Ed25519, "alone").await.expect("creates");
    let primary = group.primary(1).await;
    let left = (1..=3).find(|id| *id != primary).expect("two are left");
    // Behind a read barrier: from here on the member itself knows that the key is settled.
    assert_eq!(group.labels(left).await, ["alone", "alone"]);
    for id in (1..=3).filter(|id| *id != left) {
        group.kill(id);
    }
    group.sign(left, key[0].object, None).await.expect("one live member is enough");
    let refused = tokio::time::timeout(
        Duration::from_secs(40),
        group.create(left, KeyAlgorithm::Aes { bits: 128 }, "no"),
    );
    let refused = refused.await.expect("a deadline holds").expect_err("changes need a quorum");
    // A first attempt may have been sent to the primary before it was known to be gone: then nothing is decided.
    assert!(matches!(refused.kind, FailureKind::NoQuorum | FailureKind::Deadline), "{refused:?}");
    let says_why =
        ["no primary", "quorum", "no other was elected"].iter().any(|why| refused.message.contains(why));
    assert!(says_why, "{refused}");
    // Nor is absence believed.
    let unknown = group.call(left, ClientRequest::List { label: Some("none".into()), after: None }).await;
    assert_eq!(unknown.expect_err("not known").kind, FailureKind::NoQuorum);
    let Ok(Answer::Objects { rows, .. }) =
        group.call(left, ClientRequest::List { label: Some("alone".into()), after: None }).await
    else {
        panic!("what is there is found");
    };
    assert_eq!(rows.len(), 2);
    // Also after a restart, once it has waited for the others in vain.
    group.stop(left).await;
    group.start(left).await;
    group.sign(left, key[0].object, None).await.expect("one live member is enough");
    for id in (1..=3).filter(|id| *id != left) {
        group.start(id).await;
    }
    group.wait_in_sync(left, 3).await;
    group.create(left, KeyAlgorithm::Aes { bits: 128 }, "yes").await.expect("the quorum is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_token_is_noticed_and_replaced() {
    let mut group = Group::new();
    group.form(3).await;
    let key = group.create(1, KeyAlgorithm::Ec(Curve::P256), "pay").await.expect("creates");
    let primary = group.primary(1).await;
    let loser = (1..=3).find(|id| *id != primary).expect("two are left");
    group.lose_token(loser);
    group.wait_in_sync(primary, 2).await;
    group.sign(loser, key[0].object, None).await.expect("another member does it");
    group.stop(loser).await;
    group.fresh_token(loser);
    let refused = group.try_start(loser).await.expect_err("the token is another one");
    assert!(refused.to_string().contains("recover"), "{refused}");
    group.recover(loser).await;
    group.start(loser).await;
    group.wait_in_sync(primary, 3).await;
    let signature = group.sign(primary, key[0].object, Some(loser)).await.expect("signs there");
    assert_eq!(signature.by.0, loser);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_domain_secret_and_a_used_invitation_are_refused() {
    let mut group = Group::new();
    group.init().await;
    group.start(1).await;
    let invitation = group.invite().await;
    group.add_config(2);
    group.wrong_domain(2);
    let refused = group.try_join(2, &invitation).await.expect_err("the domain is not proved");
    assert!(refused.to_string().contains("domain"), "{refused}");
    group.right_domain(2);
    group.try_join(2, &invitation).await.expect("joins");
    group.add_config(3);
    let refused = group.try_join(3, &invitation).await.expect_err("it was used");
    assert!(refused.to_string().contains("invitation"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_members_token_is_refused_and_nothing_is_destroyed() {
    let mut group = Group::new();
    group.form(2).await;
    let key = group.create(1, KeyAlgorithm::Ec(Curve::P256), "pay").await.expect("creates");
    group.stop(2).await;
    group.stop(1).await;
    group.swap_tokens(1, 2);
    for id in 1..=2 {
        let refused = group.try_start(id).await.expect_err("the token is another member's");
        assert!(refused.to_string().contains("does not open this data folder"), "{refused}");
    }
    group.swap_tokens(1, 2);
    group.start(1).await;
    group.start(2).await;
    group.wait_in_sync(1, 2).await;
    group.sign(2, key[0].object, None).await.expect("everything is still there");
}

const CKM_AES_ECB: u64 = 0x1081;
const CKR_ARGUMENTS_BAD: u64 = 0x07;
const CKR_OBJECT_HANDLE_INVALID: u64 = 0x82;

#[tokio::test(flavor = "multi_thread")]
async fn values_are_brought_in_and_only_readable_ones_are_read_back() {
    let mut group = Group::new();
    group.form(2).await;
    let aes = Some(KeyAlgorithm::Aes { bits: 128 });
    let value = [0x5A; 16];
    let secret = group.import(2, ObjectClass::SecretKey, aes, &[], &value).await.expect("imports");
    assert!(!secret[0].attributes.contains_key(&AttributeType::VALUE));
    let open = [(AttributeType::SENSITIVE, false), (AttributeType::EXTRACTABLE, true)];
    let open = group.import(2, ObjectClass::SecretKey, aes, &open, &value).await.expect("imports");
    assert_eq!(open[0].attributes.get(&AttributeType::VALUE), Some(&AttributeValue::Bytes(value.to_vec())));
    // The same value, so the same ciphertext, on either member.
    let mut outputs = Vec::new();
    for object in [secret[0].object, open[0].object] {
        for by in 1..=2 {
            let used = group.use_key(1, object, UseKind::Encrypt, CKM_AES_ECB, vec![7; 16], Some(by)).await;
            outputs.push(used.expect("encrypts").output);
        }
    }
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
    let data = group.import(1, ObjectClass::Data, None, &[], b"hello").await.expect("imports");
    let text = Some(AttributeValue::Bytes(b"hello".to_vec()));
    assert_eq!(data[0].attributes.get(&AttributeType::VALUE).cloned(), text);
    let short = group.import(1, ObjectClass::SecretKey, aes, &[], &value[1..]).await.expect_err("too short");
    assert_eq!(short.kind, FailureKind::TokenRefused { code: CKR_ARGUMENTS_BAD });
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_on_request_and_a_removed_member_is_gone() {
    let mut group = Group::new();
    group.form(3).await;
    let primary = group.primary(1).await;
    group.call(1, ClientRequest::StepDown { to: None }).await.expect("hands over");
    assert_ne!(group.primary(primary).await, primary);
    let (leaving, left) = (primary, primary % 3 + 1);
    group.call(left, ClientRequest::RemoveMember(MemberId(leaving))).await.expect("removes");
    assert_eq!(group.status(left).await.members.len(), 2);
    group.kill(leaving);
    group.create(left, KeyAlgorithm::Aes { bits: 128 }, "two").await.expect("two are enough");
}

/// Waits until something holds, as a member sees its group.
async fn until(group: &Group, at: u64, what: &str, holds: impl Fn(&GroupStatus) -> bool) {
    let started = Clock.now();
    loop {
        let status = group.status(at).await;
        if holds(&status) {
            return;
        }
        assert!(Clock.now().duration_since(started) < Duration::from_secs(60), "not so: {what}: {status:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_hand_overs_under_load_lose_no_create() {
    let mut group = Group::new();
    group.form(3).await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let creator = async |at: u64| {
        let mut made = Vec::new();
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            let label = format!("{at}-{}", made.len());
            group.create(at, KeyAlgorithm::Aes { bits: 128 }, &label).await.expect("is answered");
            made.push(label);
        }
        made
    };
    let hand_overs = async {
        for _ in 0..10 {
            until(&group, 1, "one leads", |s| s.primary.is_some()).await;
            let before = group.primary(1).await;
            group.call(before % 3 + 1, ClientRequest::StepDown { to: None }).await.expect("hands over");
            until(&group, before, "another leads", |s| s.primary.is_some_and(|p| p.0 != before)).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let (one, two, three, ()) = tokio::join!(creator(1), creator(2), creator(3), hand_overs);
    let mut answered = [one, two, three].concat();
    answered.sort();
    assert!(answered.len() > 10, "{answered:?}");
    for at in 1..=3 {
        let mut found = group.labels(at).await;
        found.sort();
        assert_eq!(found, answered, "at {at}: each answered key once, and no other");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_preferred_member_leads_until_an_operator_says_otherwise() {
    let mut group = Group::new();
    group.form(3).await;
    let before = group.primary(1).await;
    let preferred = before % 3 + 1;
    let priority = ClientRequest::SetPriority { member: MemberId(preferred), priority: 1 };
    group.call(before, priority).await.expect("is agreed");
    // It counts before uptime only if the group says so.
    tokio::time::sleep(STEER_STEADY + Duration::from_secs(1)).await;
    assert_eq!(group.primary(before).await, before);
    group.call(1, ClientRequest::SetOption(GroupOption::PrimaryOverride(true))).await.expect("is agreed");
    until(&group, 1, "the preferred one leads", |s| s.primary == Some(MemberId(preferred))).await;
    let chosen = preferred % 3 + 1;
    let step_down = ClientRequest::StepDown { to: Some(MemberId(chosen)) };
    group.call(before, step_down).await.expect("hands over");
    tokio::time::sleep(STEER_STEADY + Duration::from_secs(1)).await;
    assert_eq!(group.primary(1).await, chosen, "the operator's word outweighs the preference");
    // A restart ends that.
    group.stop(chosen).await;
    group.start(chosen).await;
    until(&group, preferred, "leads again", |s| s.primary.is_some_and(|p| p.0 != chosen)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_a_token_steps_down() {
    let mut group = Group::new();
    group.form(3).await;
    let before = group.primary(1).await;
    group.lose_token(before);
    until(&group, before % 3 + 1, "another leads", |s| s.primary.is_some_and(|p| p.0 != before)).await;
    group.create(before, KeyAlgorithm::Aes { bits: 128 }, "on").await.expect("the others go on");
}

/// So many members as the environment says; nine are more than may vote.
fn many() -> u64 {
    std::env::var("KEYRAFT_MEMBERS").ok().map_or(9, |count| count.parse().expect("a number of members"))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_nine_members_seven_vote_and_a_learner_takes_a_lost_ones_place() {
    let count = many();
    let mut group = Group::new();
    group.form(count).await;
    let voters = |status: &GroupStatus| -> BTreeSet<u64> {
        status.members.iter().filter(|m| m.voter).map(|m| m.member.0).collect()
    };
    let primary = group.primary(1).await;
    let before = voters(&group.status(primary).await);
    assert_eq!(before.len(), VOTERS_MAX);
    let lost = *before.iter().find(|id| **id != primary).expect("other voters");
    group.kill(lost);
    group.call(primary, ClientRequest::RemoveMember(MemberId(lost))).await.expect("removes");
    until(&group, primary, "seven vote again", |s| {
        let now = voters(s);
        s.members.len() as u64 == count - 1 && now.len() == VOTERS_MAX && !now.contains(&lost)
    })
    .await;
    let after = voters(&group.status(primary).await);
    assert_eq!(after.difference(&before).count(), 1, "one of the learners");
    let key = group.create(primary, KeyAlgorithm::Ec(Curve::P256), "all").await.expect("creates");
    for by in (1..=count).filter(|id| *id != lost) {
        let signature = group.sign(primary, key[0].object, Some(by)).await.expect("signs");
        assert_eq!(signature.by.0, by);
        support::verify_outside(&key[1], &signature.output);
    }
}
