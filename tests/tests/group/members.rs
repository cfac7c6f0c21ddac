//! Members that leave for good: removed while they run, removed while they are lost, thrown out since their disk went
//! back in time. The group goes on with a quorum of those who are left, and whoever left is refused.

use keyraft_engine::domain::{Curve, KeyAlgorithm};
use keyraft_engine::wire::GroupStatus;
use keyraft_node::exit::Exit;
use keyraft_tests::TokenKind::Embedded;
use keyraft_tests::keys::{Made, create_at, list, prove};
use keyraft_tests::{Group, eventually, turn};
use std::path::Path;
use std::process::Command;

async fn a_key(group: &Group, at: usize, label: &str) -> Made {
    let made = create_at(&group.members[at].socket, label, KeyAlgorithm::Ec(Curve::P256)).await;
    made.unwrap_or_else(|e| panic!("{label}: {e}"))
}

/// Waits until a member sees exactly so many members, and all of them vote.
async fn wait_for_voters(group: &Group, at: usize, count: usize) {
    eventually(async || {
        let GroupStatus { members, .. } = group.status(at).await;
        let vote = members.iter().all(|m| m.voter);
        if members.len() == count && vote { Ok(()) } else { Err(format!("{members:#?}")) }
    })
    .await;
}

/// What left is refused by those who are left: it gets no change through, and says so.
async fn is_refused(group: &Group, index: usize, by: usize) {
    let member = &group.members[index];
    let refused = format!("{} with this certificate is not on this member's roster", member.id);
    eventually(async || {
        let log = member.log();
        if log.contains(&refused) { Ok(()) } else { Err(log) }
    })
    .await;
    let before = list(&group.members[by].socket).await.len();
    let words = ["--deadline", "3", "key", "create", "aes:256", "--label", "from outside"];
    let ended = group.run(index, &words).await;
    assert_ne!(ended.code, 0, "{}", ended.said());
    let check = group.run(index, &["check"]).await;
    assert_eq!(check.code, i32::from(Exit::CheckFailed.code()), "{}", check.said());
    assert_eq!(list(&group.members[by].socket).await.len(), before, "nothing came of it");
}

#[tokio::test]
async fn removed_members_are_refused_and_the_quorum_shrinks() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded; 4]).await;
    wait_for_voters(&group, 0, 4).await;
    let before = a_key(&group, 3, "before").await;

    // Alive.
    let alive = group.members[3].id.to_string();
    group.json(0, &["member", "remove", &alive]).await;
    wait_for_voters(&group, 0, 3).await;
    let again = group.run(0, &["member", "remove", &alive]).await;
    assert_eq!(again.code, i32::from(Exit::NotFound.code()), "{}", again.said());
    is_refused(&group, 3, 0).await;
    group.kill(3);
    let recovered = group.run(3, &["recover"]).await;
    assert_eq!(recovered.code, i32::from(Exit::Unreachable.code()), "{}", recovered.said());
    assert!(recovered.err.contains("is not on this member's roster"), "{}", recovered.said());

    // Two of three are a quorum; two of four were none.
    group.kill(2);
    let meanwhile = a_key(&group, 1, "meanwhile").await;

    // Lost.
    let lost = group.members[2].id.to_string();
    group.json(1, &["member", "remove", &lost]).await;
    wait_for_voters(&group, 1, 2).await;
    group.wait_so_many_in_sync(2).await;
    let after = a_key(&group, 0, "after").await;
    for at in [0, 1] {
        assert_eq!(list(&group.members[at].socket).await.len(), 6, "three pairs");
        let member = group.members[at].id;
        for key in [&before, &meanwhile, &after] {
            prove(&group.members[at].socket, key, member, &[]).await;
        }
    }
    // What comes back after its removal is refused as well, and disturbs nobody.
    group.start(2).await;
    is_refused(&group, 2, 0).await;
    group.wait_until_these_see(&[0, 1], 2).await;
    a_key(&group, 1, "undisturbed").await;
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("--archive").arg(from).arg(to).status().expect("runs cp");
    assert!(done.success(), "copying {}: {done}", from.display());
}

/// Puts an old copy of a member's folder in the place of one that acknowledged more to the first member as primary.
/// Gives the keys made meanwhile.
async fn go_back(group: &mut Group, index: usize) -> Vec<Made> {
    let (data, old) = (group.members[index].data(), group.path("old"));
    let mut keys = vec![a_key(group, 0, "before").await];
    group.stop(index).await;
    copy(&data, &old);
    group.start(index).await;
    group.wait_in_sync().await;
    let first = group.members[0].id;
    eventually(async || {
        let ended = group.run(0, &["step-down", "--to", &first.to_string()]).await;
        let primary = group.status(0).await.primary;
        if primary == Some(first) { Ok(()) } else { Err(format!("{primary:?}: {}", ended.said())) }
    })
    .await;
    for number in 0..5 {
        keys.push(a_key(group, 0, &format!("acknowledged {number}")).await);
    }
    group.wait_in_sync().await;
    group.stop(index).await;
    std::fs::remove_dir_all(&data).expect("is removed");
    copy(&old, &data);
    group.start(index).await;
    keys
}

#[tokio::test]
async fn a_disk_that_went_back_in_time_is_found_and_thrown_out() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded; 3]).await;
    wait_for_voters(&group, 0, 3).await;
    // A restart alone, or one behind an absence, is no fault.
    group.stop(2).await;
    let absent = a_key(&group, 1, "absent").await;
    group.start(2).await;
    group.wait_in_sync().await;
    let mut keys = go_back(&mut group, 2).await;
    keys.push(absent);
    wait_for_voters(&group, 0, 2).await;
    wait_for_voters(&group, 1, 2).await;
    let said: String = group.members[..2].iter().map(|m| m.log()).collect();
    for text in ["went back in time: it acknowledged entry", "empty its data folder and let it join anew"] {
        assert!(said.contains(text), "nobody says '{text}': {said}");
    }
    is_refused(&group, 2, 0).await;
    keys.push(a_key(&group, 0, "goes on").await);

    // The remedy that the log names.
    group.kill(2);
    std::fs::remove_dir_all(group.members[2].data()).expect("is removed");
    let so_pin = group.path("so-pin").display().to_string();
    let joined = group.join(2, 0, &["--create-token", "--so-pin-file", &so_pin]).await;
    assert_eq!(joined.code, 0, "{}", joined.said());
    group.start(2).await;
    group.wait_in_sync().await;
    wait_for_voters(&group, 0, 3).await;
    let new = group.status(2).await.answered_by;
    assert_ne!(new, group.members[2].id, "it is a new member");
    for key in &keys {
        prove(&group.members[2].socket, key, new, &[]).await;
    }
}
