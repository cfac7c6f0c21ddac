//! A folder that was lost, another group's token mounted by mistake, a token lost under a running member: nothing in
//! a token is destroyed, the error says what was found, and `recover` makes the member whole.

use keyraft_engine::domain::{Curve, KeyAlgorithm};
use keyraft_node::exit::Exit;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::keys::{Made, create_at, everywhere, prove};
use keyraft_tests::{Group, eventually, turn};
use std::fs;

async fn some_keys(group: &Group, at: usize, prefix: &str) -> Vec<Made> {
    let mut made = Vec::new();
    for algorithm in [KeyAlgorithm::Ec(Curve::P256), KeyAlgorithm::Aes { bits: 256 }] {
        let key = create_at(&group.members[at].socket, &format!("{prefix} {algorithm}"), algorithm).await;
        made.push(key.unwrap_or_else(|e| panic!("{prefix} {algorithm}: {e}")));
    }
    made
}

/// Every key works on this member, and every object is on every token.
async fn whole(group: &Group, at: usize, keys: &[Made]) {
    let member = &group.members[at];
    for key in keys {
        prove(&member.socket, key, member.id, &[member.id]).await;
    }
    everywhere(&member.socket, group.members.len()).await;
}

/// `check` finds what is wrong, and `serve` ends; both say all of this.
async fn refused(group: &Group, at: usize, serve: Exit, says: &[&str]) {
    for (word, exit) in [("check", Exit::CheckFailed), ("serve", serve)] {
        let ended = group.run(at, &[word]).await;
        assert_eq!(ended.code, i32::from(exit.code()), "{word}: {}", ended.said());
        for text in says {
            assert!(ended.said().contains(text), "'keyraft {word}' does not say '{text}': {}", ended.said());
        }
    }
}

#[tokio::test]
async fn another_groups_token_is_refused_and_left_alone() {
    let _turn = turn().await;
    for kind in [Embedded, SoftHsm] {
        let mut ours = Group::form(&[kind, Embedded, Embedded]).await;
        let mut others = Group::form(&[kind]).await;
        let our_keys = some_keys(&ours, 0, "ours").await;
        let other_keys = some_keys(&others, 0, "others").await;
        ours.stop(0).await;
        others.stop(0).await;
        // Both tokens bear one label, as copies of one configuration would make them: they are exchanged whole.
        let (mine, theirs) = (ours.members[0].token(kind), others.members[0].token(kind));
        let aside = others.path("aside");
        let exchange = || {
            fs::rename(&mine, &aside).expect("moves");
            fs::rename(&theirs, &mine).expect("moves");
            fs::rename(&aside, &theirs).expect("moves");
        };
        exchange();
        let says = ["another group's token may be mounted here", "Nothing in it was touched", "recover"];
        refused(&ours, 0, Exit::CheckFailed, &says).await;
        refused(&others, 0, Exit::CheckFailed, &says).await;

        // Meanwhile the group goes on; put back, both tokens work as before.
        let more = some_keys(&ours, 1, "meanwhile").await;
        exchange();
        ours.start(0).await;
        others.start(0).await;
        ours.wait_in_sync().await;
        others.wait_in_sync().await;
        whole(&ours, 0, &[our_keys, more].concat()).await;
        whole(&others, 0, &other_keys).await;
    }
}

#[tokio::test]
async fn a_lost_data_folder_destroys_nothing_in_the_token() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, SoftHsm, Embedded]).await;
    let keys = some_keys(&group, 0, "kept").await;
    group.stop(1).await;
    let (data, aside) = (group.members[1].data(), group.path("aside"));
    fs::rename(&data, &aside).expect("moves");
    let objects = || {
        let mut names = Vec::new();
        for token in fs::read_dir(group.members[1].token(SoftHsm)).expect("lists") {
            for file in fs::read_dir(token.expect("lists").path()).expect("lists") {
                names.push(file.expect("lists").file_name());
            }
        }
        names.sort();
        names
    };
    let before = objects();
    assert!(before.len() > keys.len());
    // Without a member there is nothing to serve or to check: the folder is looked at before the token.
    refused(&group, 1, Exit::Refused, &["no member lives in", "keyraft join"]).await;
    assert_eq!(objects(), before, "nothing in the token was touched");
    if data.exists() {
        fs::remove_dir_all(&data).expect("is removed");
    }
    fs::rename(&aside, &data).expect("moves");
    group.start(1).await;
    group.wait_in_sync().await;
    whole(&group, 1, &keys).await;
}

#[tokio::test]
async fn a_token_lost_under_a_running_member_is_noticed_and_replaced() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, SoftHsm, Embedded]).await;
    let keys = some_keys(&group, 1, "before").await;
    let tokens = group.members[1].token(SoftHsm);
    fs::remove_dir_all(&tokens).expect("is removed");
    fs::create_dir(&tokens).expect("is made");

    let lost = group.members[1].id;
    eventually(async || {
        let now = group.status(0).await;
        let row = now.members.iter().find(|m| m.member == lost).expect("is on the roster");
        if row.in_sync { Err(format!("{row:?}")) } else { Ok(()) }
    })
    .await;
    assert!(group.members[1].log().contains("the token failed"), "{}", group.members[1].log());
    let ended = group.run(1, &["check"]).await;
    assert_eq!(ended.code, i32::from(Exit::CheckFailed.code()), "{}", ended.said());
    assert!(ended.said().contains("the token failed"), "{}", ended.said());
    // The group goes on, and even the member without a token takes requests.
    let meanwhile =
        [some_keys(&group, 0, "meanwhile").await, some_keys(&group, 1, "asked there").await].concat();
    for key in keys.iter().chain(&meanwhile) {
        prove(&group.members[1].socket, key, group.members[2].id, &[]).await;
    }

    group.kill(1);
    let so_pin = group.path("so-pin").display().to_string();
    group.json(1, &["recover", "--create-token", "--so-pin-file", &so_pin]).await;
    group.start(1).await;
    group.wait_in_sync().await;
    whole(&group, 1, &[keys, meanwhile].concat()).await;
}
