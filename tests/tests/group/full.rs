//! A token that is full on one healthy member.

use keyraft_engine::domain::KeyAlgorithm;
use keyraft_engine::wire::FailureKind;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::disk::Small;
use keyraft_tests::keys::{create_at, list, prove};
use keyraft_tests::{Group, root, turn};

#[tokio::test]
async fn a_full_token_refuses_the_key_and_stays_in_service() {
    if !root("mounting a small file system") {
        return;
    }
    let _turn = turn().await;
    let mut group = Group::prepare(&[Embedded, SoftHsm, Embedded]);
    let small = Small::mount(&group.members[1].token(SoftHsm), 1);
    group.begin().await;
    let algorithm = KeyAlgorithm::Aes { bits: 256 };
    let kept = create_at(&group.members[0].socket, "kept", algorithm).await.expect("there is room");
    let full = group.members[1].id;

    let filler = small.fill();
    for member in &group.members {
        let failure = create_at(&member.socket, "too many", algorithm).await.expect_err("there is no room");
        assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
        let text = failure.to_string();
        assert!(text.starts_with(&format!("{full} ('")) && text.contains(" refused the key: "), "{text}");
        eprintln!("{failure}");
    }
    // It is in sync, serves what it has, and nothing is left behind of what was refused.
    group.wait_in_sync().await;
    prove(&group.members[1].socket, &kept, full, &[full]).await;
    for member in &group.members {
        assert_eq!(list(&member.socket).await.len(), 1);
    }

    std::fs::remove_file(filler).expect("is removed");
    let more =
        create_at(&group.members[1].socket, "room again", algorithm).await.expect("there is room again");
    prove(&group.members[1].socket, &more, full, &[full]).await;
    group.wait_in_sync().await;
}
