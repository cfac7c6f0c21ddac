//! Whole members in one process: embedded tokens, sled, TLS on 127.0.0.1.

mod support;

use keyraft_engine::domain::{Curve, KeyAlgorithm, ObjectClass};
use keyraft_engine::wire::{Answer, ClientRequest, CoverageState, FailureKind};
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
    for id in (1..=3).filter(|id| *id != left) {
        group.kill(id);
    }
    group.sign(left, key[0].object, None).await.expect("one live member is enough");
    let refused = tokio::time::timeout(
        Duration::from_secs(40),
        group.create(left, KeyAlgorithm::Aes { bits: 128 }, "no"),
    );
    let refused = refused.await.expect("a deadline holds").expect_err("changes need a quorum");
    assert_eq!(refused.kind, FailureKind::NoQuorum);
    // Nor is absence believed.
    let unknown = group.call(left, ClientRequest::List { label: Some("none".into()), after: None }).await;
    assert_eq!(unknown.expect_err("not known").kind, FailureKind::NoQuorum);
    let Ok(Answer::Objects { rows, .. }) =
        group.call(left, ClientRequest::List { label: Some("alone".into()), after: None }).await
    else {
        panic!("what is there is found");
    };
    assert_eq!(rows.len(), 2);
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
