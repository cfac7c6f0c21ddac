//! SoftHSM beside the embedded token: what both carry is equal on both; what one cannot carry is refused.

use keyraft_engine::domain::{AttributeType, AttributeValue, CannotCarry, KeyAlgorithm};
use keyraft_engine::wire::{CoverageState, FailureKind, UseKind};
use keyraft_node::mechanism::Named;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::keys::{DATA, Made, coverage, create_at, list, prove, show, use_key};
use keyraft_tests::{Group, turn};

#[tokio::test]
async fn softhsm_and_the_embedded_token_hold_equal_keys() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded, SoftHsm, Embedded]).await;
    let members: Vec<_> = group.members.iter().map(|m| m.id).collect();
    let cannot: Vec<KeyAlgorithm> =
        group.status(0).await.members.iter().flat_map(|m| m.cannot.iter().map(|(kind, _)| *kind)).collect();
    let both: Vec<KeyAlgorithm> =
        KeyAlgorithm::promised().into_iter().filter(|kind| !cannot.contains(kind)).collect();
    assert_eq!(both.len(), KeyAlgorithm::promised().len() - 1, "all but ed25519 are carried: {cannot:?}");

    let mut count = 0;
    for (turn, algorithm) in both.into_iter().enumerate() {
        let asked = &group.members[turn % group.members.len()].socket;
        let key = create_at(asked, &format!("key {algorithm}"), algorithm).await;
        let key = key.unwrap_or_else(|e| panic!("{algorithm}: {e}"));
        count += key.rows.len();
        for member in &members {
            prove(asked, &key, *member, &members).await;
        }
    }
    for member in &group.members {
        assert_eq!(list(&member.socket).await.len(), count);
        for row in coverage(&member.socket).await {
            assert!(row.members.iter().all(|cell| cell.state == CoverageState::Present), "{row:?}");
        }
    }
}

#[tokio::test]
async fn what_one_member_cannot_carry_is_refused_or_partial() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded, SoftHsm, Embedded]).await;
    let softhsm = group.members[1].id;
    let before = create_at(&group.members[0].socket, "before", KeyAlgorithm::Aes { bits: 256 }).await;
    before.expect("is carried by all");
    for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::GenericSecret { bytes: 21 }] {
        for member in &group.members {
            let failure = create_at(&member.socket, "refused", algorithm).await.expect_err("is refused");
            assert_eq!(failure.kind, FailureKind::Refused, "{algorithm}: {failure}");
            let text = failure.to_string();
            let named = text.starts_with(&format!("{softhsm} ('"))
                && text.contains(&format!(" cannot hold a key of kind {algorithm}: "));
            assert!(named && text.contains("partial_keys allow"), "{text}");
            assert!(text.contains("allow_inmemory_import true"), "{text}");
        }
    }
    group.wait_in_sync().await;
    for member in &group.members {
        assert_eq!(list(&member.socket).await.len(), 1, "a refused key leaves nothing behind");
    }

    group.json(0, &["option", "set", "partial_keys", "allow"]).await;
    let key = create_at(&group.members[1].socket, "partial", KeyAlgorithm::Ed25519).await;
    let key = key.expect("is allowed now");
    for member in &group.members {
        let rows = coverage(&member.socket).await;
        let row = rows.iter().find(|row| row.object == key.inner()).expect("is covered");
        for cell in &row.members {
            match &cell.state {
                CoverageState::Excluded { why } => assert!(cell.member == softhsm && !why.is_empty()),
                state => assert!(cell.member != softhsm && *state == CoverageState::Present, "{row:?}"),
            }
        }
        // Whoever is asked, a member that holds the key does it.
        let used = use_key(&member.socket, key.inner(), UseKind::Sign, Named::Eddsa, DATA, None).await;
        let (_, by) = used.unwrap_or_else(|e| panic!("asked at {}: {e}", member.name));
        assert_ne!(by, softhsm);
    }
    for member in [0, 2] {
        let id = group.members[member].id;
        prove(&group.members[1].socket, &key, id, &[]).await;
    }
}

/// Everything here proves itself at both members; no member lacks anything.
async fn prove_all(group: &Group, keys: &[Made]) {
    let members: Vec<_> = group.members.iter().map(|m| m.id).collect();
    for member in &group.members {
        for key in keys {
            prove(&member.socket, key, member.id, &members).await;
        }
        for row in coverage(&member.socket).await {
            assert!(row.members.iter().all(|cell| cell.state == CoverageState::Present), "{row:?}");
        }
    }
}

#[tokio::test]
async fn what_softhsm_cannot_unwrap_passes_through_memory_where_that_is_allowed() {
    let _turn = turn().await;
    let mut group = Group::form(&[SoftHsm, Embedded]).await;
    let ed = KeyAlgorithm::Ed25519;
    // 33 bytes are enough for SoftHSM's HMAC, 21 are not.
    let kinds = [ed, KeyAlgorithm::GenericSecret { bytes: 33 }];
    let refused = async |group: &Group| {
        for (member, kind) in group.members.iter().zip(kinds) {
            let failure = create_at(&member.socket, "refused", kind).await.expect_err("is refused");
            assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
            assert!(failure.to_string().contains("allow_inmemory_import true"), "{failure}");
        }
        let cannot = &group.status(1).await.members[0].cannot;
        assert_eq!(cannot[..], [(ed, CannotCarry::InMemoryOnly)]);
    };
    refused(&group).await;
    assert!(list(&group.members[0].socket).await.is_empty(), "a refused key leaves nothing behind");

    let set = group.run(1, &["option", "set", "allow_inmemory_import", "true"]).await;
    let plain = ["memory of every member's process", "the SMK does not protect them"];
    assert!(set.code == 0 && plain.iter().all(|words| set.out.contains(words)), "{}", set.said());
    assert!(group.status(0).await.members.iter().all(|member| member.cannot.is_empty()));
    let mut keys = Vec::new();
    for primary in [0, 1] {
        let id = group.members[primary].id.to_string();
        let ended = group.run(0, &["step-down", "--to", &id]).await;
        assert_eq!(ended.code, 0, "{}", ended.said());
        for member in &group.members {
            for kind in kinds.into_iter().chain([KeyAlgorithm::ODD_SECRET]) {
                let key = create_at(&member.socket, &format!("{primary} {} {kind}", member.name), kind).await;
                let key = key.unwrap_or_else(|e| panic!("{kind} by the token of {primary}: {e}"));
                for row in &key.rows {
                    let shown = show(&member.socket, row.object).await.attributes;
                    assert!(!shown.contains_key(&AttributeType::VALUE), "{shown:?}");
                    if row.class.is_resident() {
                        assert_eq!(shown[&AttributeType::SENSITIVE], AttributeValue::Bool(true));
                        assert_eq!(shown[&AttributeType::EXTRACTABLE], AttributeValue::Bool(false));
                    }
                }
                if kind != KeyAlgorithm::ODD_SECRET {
                    keys.push(key);
                }
            }
        }
    }
    prove_all(&group, &keys).await;

    // Those who come back or lose the option keep what there is.
    for index in [0, 1] {
        group.stop(index).await;
        group.start(index).await;
    }
    group.wait_in_sync().await;
    group.json(0, &["option", "set", "allow_inmemory_import", "false"]).await;
    refused(&group).await;
    prove_all(&group, &keys).await;
}
