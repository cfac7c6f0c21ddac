//! Members that are cut off: those of a group that fences use no key after its deletion was answered, those of one
//! that serves go on. And the survivor of a majority that is lost for good.

use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{Curve, KeyAlgorithm, MemberId};
use keyraft_engine::limits;
use keyraft_engine::wire::FailureKind;
use keyraft_node::caller::Caller;
use keyraft_node::engine::Socket;
use keyraft_node::exit::Exit;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::keys::{Made, create_at, delete, everywhere, prove, sign_once};
use keyraft_tests::network::Network;
use keyraft_tests::{Group, STEP_LIMIT, eventually, root, turn};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a member is cut off at least.
const CUT: Duration = Duration::from_secs(4);
/// What a test's own clock reading may be late by.
const SLACK: Duration = Duration::from_millis(50);

const P256: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P256);

async fn make(group: &Group, at: usize, label: &str) -> Made {
    create_at(&group.members[at].socket, label, P256).await.unwrap_or_else(|e| panic!("{label}: {e}"))
}

/// True if one try to sign at this very member succeeds.
async fn signs(socket: &Socket, key: &Made, at: MemberId) -> bool {
    sign_once(socket, key, Some(at), limits::ATTEMPT).await.is_ok()
}

/// Signs at one member over and over until `end`: when each try began, and whether it succeeded.
async fn signing(path: PathBuf, key: Made, at: MemberId, end: Instant) -> Vec<(Instant, bool)> {
    let socket = Socket::new(path);
    let mut tries = Vec::new();
    while Clock.now() < end {
        let began = Clock.now();
        tries.push((began, signs(&socket, &key, at).await));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tries
}

/// Cuts a member off while it signs with a key, deletes the key elsewhere, and heals the cut.
async fn deleted_elsewhere(group: &Group, network: &Network, victim: usize, key: &Made) {
    let other = (victim + 1) % group.members.len();
    let member = &group.members[victim];
    let end = Clock.now() + CUT * 2;
    let hands = tokio::spawn(signing(member.socket.path().to_path_buf(), key.clone(), member.id, end));
    tokio::time::sleep(Duration::from_millis(500)).await;
    network.cut(victim);
    let cut = Clock.now();
    let mut caller = Caller::begin(&group.members[other].socket, STEP_LIMIT).await.expect("makes contact");
    delete(&mut caller, key).await.expect("is deleted");
    let deleted = Clock.now();
    assert!(deleted < end - Duration::from_secs(1), "the deletion took {:?}", deleted - cut);
    let tries = hands.await.expect("signs");
    network.heal(victim);
    let good = |from: Instant| tries.iter().filter(|(began, good)| *good && *began >= from).count();
    let last =
        tries.iter().filter(|(_, good)| *good).map(|(began, _)| *began).max().expect("it signed before");
    let after = last.saturating_duration_since(cut);
    eprintln!("last use {after:?} after the cut, deletion answered {:?} after it", deleted - cut);
    assert!(tries.iter().any(|(began, good)| *good && *began < cut), "it signed before the cut");
    assert!(tries.iter().any(|(began, _)| *began > deleted), "it was asked after the deletion");
    assert_eq!(good(deleted), 0, "a use succeeded that began after the deletion was answered");
    assert_eq!(good(cut + limits::LEASE + SLACK), 0, "a use began {after:?} after the cut");
    group.wait_in_sync().await;
}

#[tokio::test]
async fn a_fenced_member_uses_no_key_after_its_deletion_was_answered() {
    let _turn = turn().await;
    if !root("cutting a member's network") {
        return;
    }
    let mut group = Group::prepare(&[Embedded, Embedded, Embedded]);
    let network = Network::around(&mut group);
    group.begin().await;
    group.json(1, &["option", "set", "isolated_service", "fence"]).await;
    for by_primary in [false, true] {
        let leads = group.primary(0).await;
        let victim = if by_primary { leads } else { (leads + 1) % 3 };
        let doomed = make(&group, 0, "doomed").await;
        let kept = make(&group, 0, "kept").await;
        deleted_elsewhere(&group, &network, victim, &doomed).await;
        // Healed, it serves again, but not with what was deleted.
        let member = &group.members[victim];
        prove(&member.socket, &kept, member.id, &[]).await;
        assert!(!signs(&member.socket, &doomed, member.id).await, "it was deleted");
    }
    // Fencing cannot be switched on behind the back of a member that may be serving.
    group.json(1, &["option", "set", "isolated_service", "serve"]).await;
    let victim = (group.primary(0).await + 1) % 3;
    let other = (victim + 1) % 3;
    let doomed = make(&group, other, "doomed").await;
    network.cut(victim);
    let set = ["--deadline", "15", "option", "set", "isolated_service", "fence"];
    let refused = group.run(other, &set).await;
    assert_ne!(refused.code, 0, "{}", refused.said());
    assert!(refused.said().contains("not confirmed by"), "{}", refused.said());
    let member = &group.members[victim];
    assert!(signs(&member.socket, &doomed, member.id).await, "it cannot know");
    let socket = &group.members[other].socket;
    let mut caller = Caller::begin(socket, limits::ATTEMPT).await.expect("makes contact");
    let waits = delete(&mut caller, &doomed).await.expect_err("is not answered");
    assert!(matches!(waits.kind, FailureKind::Deadline | FailureKind::NoQuorum), "{waits:?}");
    // Nothing is promised while the fence is not confirmed, so nobody waits for the promise.
    let found = group.json(other, &["--deadline", "5", "key", "list"]).await;
    assert!(!found.to_string().contains("doomed"), "{found}");
    network.heal(victim);
    group.wait_in_sync().await;
    group.json(other, &set).await;
    assert!(!signs(&member.socket, &doomed, member.id).await, "it is deleted by now");
}

#[tokio::test]
async fn a_fenced_member_that_stood_still_refuses_what_was_deleted_meanwhile() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded, Embedded, Embedded]).await;
    group.json(0, &["option", "set", "isolated_service", "fence"]).await;
    let leads = group.primary(0).await;
    let victim = (leads + 1) % 3;
    let doomed = make(&group, leads, "doomed").await;
    let member = &group.members[victim];
    assert!(signs(&member.socket, &doomed, member.id).await, "it has a lease");
    group.pause(victim);
    let mut caller = Caller::begin(&group.members[leads].socket, STEP_LIMIT).await.expect("makes contact");
    delete(&mut caller, &doomed).await.expect("is deleted");
    // Asked while it stands still, it answers when it goes on: before it hears of anything.
    let end = Clock.now() + Duration::from_secs(2);
    let hands = tokio::spawn(signing(member.socket.path().to_path_buf(), doomed, member.id, end));
    tokio::time::sleep(Duration::from_millis(300)).await;
    group.go_on(victim);
    let tries = hands.await.expect("signs");
    assert!(tries.len() > 10 && tries.iter().all(|(_, good)| !good), "{tries:?}");
    group.wait_in_sync().await;
}

#[tokio::test]
async fn in_a_fenced_group_what_a_search_misses_has_gone_everywhere() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded, Embedded, Embedded]).await;
    group.json(0, &["option", "set", "isolated_service", "fence"]).await;
    let leads = group.primary(0).await;
    let (victim, other) = ((leads + 1) % 3, (leads + 2) % 3);
    let doomed = make(&group, leads, "doomed").await;
    // While this one stands still its lease holds the deletion up.
    group.pause(victim);
    let socket = Socket::new(group.members[leads].socket.path().to_path_buf());
    let key = doomed.clone();
    let deletion = tokio::spawn(async move {
        let mut caller = Caller::begin(&socket, STEP_LIMIT).await.expect("makes contact");
        delete(&mut caller, &key).await
    });
    // Asked of the primary, where the key's creation is over: another may not have heard of that yet.
    eventually(async || match group.status(leads).await.unsettled {
        0 => Err("the deletion is not under way".to_string()),
        _ => Ok(()),
    })
    .await;
    let found = group.json(other, &["key", "list"]).await;
    assert!(!found.to_string().contains("doomed"), "{found}");
    assert_eq!(group.status(other).await.unsettled, 0, "the search answered before the deletion was over");
    deletion.await.expect("ends").expect("is deleted");
    group.go_on(victim);
    group.wait_in_sync().await;
}

#[tokio::test]
async fn a_serving_member_goes_on_when_it_is_cut_off() {
    let _turn = turn().await;
    if !root("cutting a member's network") {
        return;
    }
    let mut group = Group::prepare(&[Embedded, Embedded, Embedded]);
    let network = Network::around(&mut group);
    group.begin().await;
    let key = make(&group, 0, "kept").await;
    group.wait_in_sync().await;
    let victim = (group.primary(0).await + 1) % 3;
    let member = &group.members[victim];
    network.cut(victim);
    let path = member.socket.path().to_path_buf();
    let tries = signing(path, key, member.id, Clock.now() + CUT).await;
    network.heal(victim);
    assert!(tries.len() > 50 && tries.iter().all(|(_, good)| *good), "{tries:?}");
    group.wait_in_sync().await;
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("is made");
    for entry in fs::read_dir(from).expect("lists") {
        let entry = entry.expect("lists");
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &target),
            false => _ = fs::copy(&path, &target).expect("copies"),
        }
    }
}

async fn refused(group: &Group, at: usize, words: &[&str], exit: Exit, says: &str) {
    let ended = group.run(at, words).await;
    let shown = words.join(" ");
    assert_eq!(ended.code, i32::from(exit.code()), "'keyraft {shown}': {}", ended.said());
    assert!(ended.said().contains(says), "'keyraft {shown}' does not say '{says}': {}", ended.said());
}

const FORCE: [&str; 2] = ["force-quorum", "--yes-this-loses-the-others"];

#[tokio::test]
async fn a_survivor_goes_on_alone_and_the_others_return_as_new_members() {
    let _turn = turn().await;
    let mut group = Group::form(&[SoftHsm, Embedded, Embedded]).await;
    let keys = [make(&group, 0, "old").await, make(&group, 1, "older").await];
    refused(&group, 0, &FORCE, Exit::Refused, "in use").await;
    group.stop(0).await;
    refused(&group, 0, &FORCE, Exit::Refused, "a quorum answers").await;
    group.start(0).await;
    group.wait_in_sync().await;

    // Two of three are lost: keys stay usable, changes are refused.
    group.kill(1);
    group.kill(2);
    let member = &group.members[0];
    for key in &keys {
        prove(&member.socket, key, member.id, &[]).await;
    }
    let alone = group.run(0, &["--deadline", "3", "key", "create", "aes:256", "--label", "no"]).await;
    assert_ne!(alone.code, 0, "{}", alone.said());
    group.stop(0).await;
    // Nobody types the group's id.
    refused(&group, 0, &["force-quorum"], Exit::Refused, "nothing was changed").await;
    let (data, before) = (group.members[0].data(), group.path("before"));
    copy(&data, &before);
    let done = group.json(0, &FORCE).await;
    assert_eq!((done["lineage"].as_u64(), done["lost"].as_array().map(Vec::len)), (Some(2), Some(2)));
    refused(&group, 0, &FORCE, Exit::Refused, "only voter").await;

    // Cut off between its steps, it is refused until it is repeated.
    let after = group.path("after");
    fs::rename(&data, &after).expect("moves");
    copy(&before, &data);
    fs::copy(after.join("identity"), data.join("identity")).expect("copies");
    refused(&group, 0, &["serve"], Exit::Refused, "keyraft force-quorum").await;
    group.json(0, &FORCE).await;
    group.start(0).await;
    let log = group.members[0].log();
    assert!(log.contains("ERROR") && log.contains("begun by 'keyraft force-quorum'"), "{log}");
    let member = &group.members[0];
    let new = make(&group, 0, "new").await;
    for key in keys.iter().chain([&new]) {
        prove(&member.socket, key, member.id, &[]).await;
    }
    assert_eq!(group.status(0).await.members.len(), 1);

    return_as_new(&mut group, &[&keys[..], &[new]].concat()).await;
}

/// An old member is refused with the reason; with its token and an emptied folder it joins as a new one.
async fn return_as_new(group: &mut Group, keys: &[Made]) {
    group.start(1).await;
    eventually(async || {
        let log = group.members[1].log();
        if log.contains("the older member must join again as a new one") { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(group.members[0].log().contains("older history"), "{}", group.members[0].log());
    group.stop(1).await;
    let ended = group.join(1, 0, &[]).await;
    assert!(ended.code != 0 && ended.said().contains("a member lives in"), "{}", ended.said());
    // The embedded token lies in the data folder: it stays, the rest goes.
    let data = group.members[1].data();
    for entry in fs::read_dir(&data).expect("lists") {
        let entry = entry.expect("lists");
        match entry.file_name().to_str() {
            Some("token") => {}
            _ if entry.path().is_dir() => fs::remove_dir_all(entry.path()).expect("is removed"),
            _ => fs::remove_file(entry.path()).expect("is removed"),
        }
    }
    let joined = group.join(1, 0, &[]).await;
    assert_eq!(joined.code, 0, "{}", joined.said());
    group.start(1).await;
    group.wait_until_these_see(&[0, 1], 2).await;
    group.members[1].id = group.status(1).await.answered_by;
    assert!(group.members[1].id > MemberId(limits::FORCED_MEMBER_GAP), "an id is never given twice");
    everywhere(&group.members[0].socket, 2).await;
    let member = &group.members[1];
    for key in keys {
        prove(&member.socket, key, member.id, &[group.members[0].id]).await;
    }
}
