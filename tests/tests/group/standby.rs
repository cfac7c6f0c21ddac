//! Standbys and the way back. The Luna document: "standby members do not perform any cryptographic operations unless
//! all the active members go offline. In this event, all standby members are immediately promoted to active service",
//! and "You can configure your auto-recovery settings to require as much manual intervention as is convenient".

use super::failover::{Application, group_with};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{Curve, KeyAlgorithm, MemberId};
use keyraft_engine::limits;
use keyraft_engine::state::Duty;
use keyraft_engine::wire::FailureKind;
use keyraft_node::caller::Caller;
use keyraft_node::engine::Socket;
use keyraft_node::exit::Exit;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::group::write_private;
use keyraft_tests::keys::{self, Made, create_at, delete, everywhere, list, prove};
use keyraft_tests::token::in_softhsm;
use keyraft_tests::{Group, STEP_LIMIT, eventually, turn};
use std::time::Duration;

const KIND: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P256);

/// One attempt to sign: who did it, or why not.
async fn sign_once(ask: &Socket, key: &Made, at: Option<MemberId>) -> Result<MemberId, FailureKind> {
    keys::sign_once(ask, key, at, STEP_LIMIT).await
}

/// Two active members and a standby that joined as one.
async fn two_and_a_standby() -> Group {
    let mut group = Group::prepare(&[Embedded; 3]);
    let so_pin = group.path("so-pin").display().to_string();
    let token = ["--create-token", "--so-pin-file", &so_pin];
    group.json(0, &[&["init", "--label", "test"][..], &token].concat()).await;
    group.start(0).await;
    assert_eq!(group.join(1, 0, &token).await.code, 0);
    group.start(1).await;
    let invitation = group.json(1, &["member", "add-standby"]).await;
    let path = group.path("invitation");
    write_private(&path, invitation["invitation"].as_str().expect("is text"));
    let path = path.display().to_string();
    group.json(2, &[&["join", &path][..], &token].concat()).await;
    group.start(2).await;
    group.wait_in_sync().await;
    for index in 0..3 {
        group.members[index].id = group.status(index).await.answered_by;
    }
    group
}

#[tokio::test]
async fn a_standby_serves_nothing_until_no_active_member_is_left() {
    let _turn = turn().await;
    let mut group = two_and_a_standby().await;
    let duties: Vec<Duty> = group.status(0).await.members.iter().map(|m| m.duty).collect();
    assert_eq!(duties, [Duty::Active, Duty::Active, Duty::Standby]);
    assert_eq!(group.json(2, &["member", "list"]).await[2]["duty"], "standby");
    // Asked at the standby, a key is made as ever, and is on the standby when it is answered.
    let key = create_at(&group.members[2].socket, "pay", KIND).await.expect("is made");
    let standby = group.members[2].id;
    let asked = &group.members[2].socket;
    assert_eq!(sign_once(asked, &key, Some(standby)).await, Err(FailureKind::Standby));
    for _ in 0..50 {
        let by = sign_once(asked, &key, None).await.expect("an active member signs");
        assert_ne!(by, standby, "a standby does not serve while others do");
    }

    // One active member is enough.
    group.kill(0);
    group.wait_so_many_in_sync(2).await;
    let end = Clock.now() + limits::MEMBER_DEAD * 3;
    while Clock.now() < end {
        let asked = &group.members[2].socket;
        assert_eq!(sign_once(asked, &key, Some(standby)).await, Err(FailureKind::Standby));
        assert_eq!(sign_once(asked, &key, None).await, Ok(group.members[1].id));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // None is left, and no quorum either: the standby serves within the dead time.
    group.kill(1);
    let lost = Clock.now();
    let asked = &group.members[2].socket;
    while sign_once(asked, &key, None).await != Ok(standby) {
        let waited = Clock.now().saturating_duration_since(lost);
        assert!(waited < limits::MEMBER_DEAD * 3, "the standby still does not serve after {waited:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    eprintln!("the standby served {} ms after the last active member", (Clock.now() - lost).as_millis());
    for _ in 0..50 {
        assert_eq!(sign_once(asked, &key, None).await, Ok(standby));
    }

    // An active member is back: the standby stops, without anybody's doing.
    group.start(1).await;
    eventually(async || match sign_once(&group.members[2].socket, &key, None).await {
        Ok(by) if by == group.members[1].id => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let asked = &group.members[2].socket;
    assert_eq!(sign_once(asked, &key, Some(standby)).await, Err(FailureKind::Standby));
    group.start(0).await;
    group.wait_in_sync().await;
    everywhere(&group.members[2].socket, 3).await;
}

/// A standby would hand every call on: an application that knows it asks the active members instead, and the standby once
/// they are gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_passes_a_standby_over_until_it_serves() {
    const WORK: Duration = Duration::from_secs(6);
    let _turn = turn().await;
    let (mut group, config) = group_with(&[Embedded; 3]).await;
    let standby = group.members[2].id.to_string();
    group.json(0, &["member", "standby", &standby]).await;
    let mut application = Application::start(&config);
    application.work_for(Duration::from_secs(2));
    let (count, longest) = application.worked();
    println!("beside a standby: {count} signatures, the longest pause {longest:?}");
    let all = group.json(0, &["explain", "--last", "1000"]).await;
    let signed: Vec<_> = all["operations"].as_array().expect("a list").iter().collect();
    let signed = || signed.iter().filter(|row| row["what"] == "sign" && row["result"] == "CKR_OK");
    assert!(signed().count() > 100, "{} of {count} signatures are told of", signed().count());
    let through = signed().filter(|row| row["asked"] == standby.as_str()).count();
    assert_eq!(through, 0, "signatures went through the standby");

    application.work_for(WORK);
    tokio::time::sleep(Duration::from_secs(1)).await;
    group.kill(0);
    group.kill(1);
    let (count, longest) = application.worked();
    println!("both active members killed: {count} signatures, the longest pause {longest:?}");
    assert!(longest < limits::MEMBER_DEAD * 3, "{count} signatures, the longest pause {longest:?}");
    application.work_for(Duration::from_secs(1));
    assert!(application.worked().0 > 100, "the standby signs");
}

#[tokio::test]
async fn duties_change_while_the_group_works() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded; 2]).await;
    let key = create_at(&group.members[0].socket, "pay", KIND).await.expect("is made");
    let (first, second) = (group.members[0].id, group.members[1].id);
    let names = (first.to_string(), second.to_string());
    group.json(0, &["member", "standby", &names.1]).await;
    eventually(async || match sign_once(&group.members[1].socket, &key, Some(second)).await {
        Err(FailureKind::Standby) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(sign_once(&group.members[1].socket, &key, None).await, Ok(first));
    let refused = group.run(1, &["member", "standby", &names.0]).await;
    assert_eq!(refused.code, i32::from(Exit::Refused.code()), "{}", refused.said());
    assert!(refused.said().contains("last active member"), "{}", refused.said());

    group.json(1, &["member", "activate", &names.1]).await;
    eventually(async || match sign_once(&group.members[1].socket, &key, Some(second)).await {
        Ok(by) if by == second => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    group.json(0, &["member", "standby", &names.0]).await;
    eventually(async || match sign_once(&group.members[0].socket, &key, None).await {
        Ok(by) if by == second => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let status = group.run(0, &["status"]).await;
    assert!(status.out.contains("standby") && status.out.contains("recovery automatic"), "{}", status.out);
}

/// The row of a member as another one sees it.
async fn row(group: &Group, at: usize, of: usize) -> keyraft_engine::wire::MemberStatus {
    let id = group.members[of].id;
    let status = group.status(at).await;
    status.members.into_iter().find(|m| m.member == id).expect("is on the roster")
}

async fn until_out(group: &Group, of: usize) {
    eventually(async || match row(group, 0, of).await {
        row if row.in_sync => Err(format!("{row:?}")),
        _ => Ok(()),
    })
    .await;
}

#[tokio::test]
async fn without_automatic_recovery_a_member_waits_for_its_operator() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded; 3]).await;
    let set = group.json(1, &["recovery-mode", "manual"]).await;
    assert_eq!((set["mode"].as_str(), set["retries"].as_i64()), (Some("manual"), Some(0)));
    let shown = group.json(2, &["status"]).await;
    assert_eq!(shown["options"]["auto_recovery"]["mode"], "manual");
    let before = create_at(&group.members[0].socket, "before", KIND).await.expect("is made");
    let doomed = create_at(&group.members[0].socket, "doomed", KIND).await.expect("is made");

    group.kill(2);
    until_out(&group, 2).await;
    let meanwhile = create_at(&group.members[0].socket, "meanwhile", KIND).await.expect("is made");
    let mut caller = Caller::begin(&group.members[0].socket, STEP_LIMIT).await.expect("makes contact");
    delete(&mut caller, &doomed).await.expect("is deleted");
    group.start(2).await;
    let end = Clock.now() + limits::MEMBER_DEAD * 4;
    while Clock.now() < end {
        let row = row(&group, 0, 2).await;
        assert!(!row.in_sync && row.awaits_operator, "it waits for its operator: {row:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = group.run(0, &["status"]).await;
    let waits = format!("waits for 'keyraft member recover {}'", group.members[2].id);
    assert!(status.out.contains(&waits), "{}", status.out);

    // Its own operator asks; what was deleted meanwhile is gone here too, and what was made is here.
    group.json(2, &["recover"]).await;
    group.wait_in_sync().await;
    let labels: Vec<String> =
        list(&group.members[2].socket).await.iter().map(keyraft_tests::keys::label).collect();
    assert!(!labels.contains(&"doomed".to_string()), "{labels:?}");
    let id = group.members[2].id;
    for key in [&before, &meanwhile] {
        prove(&group.members[2].socket, key, id, &[id]).await;
    }

    // Or any member's.
    group.kill(2);
    until_out(&group, 2).await;
    group.start(2).await;
    group.json(0, &["member", "recover", &id.to_string()]).await;
    group.wait_in_sync().await;
    // Automatic again: nobody has to ask.
    group.json(0, &["recovery-mode", "auto", "--retries", "5", "--interval", "60"]).await;
    group.kill(2);
    until_out(&group, 2).await;
    group.start(2).await;
    group.wait_in_sync().await;
}

#[tokio::test]
async fn a_member_that_stays_away_too_long_waits_for_its_operator() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded; 3]).await;
    group.json(0, &["recovery-mode", "auto", "--retries", "2", "--interval", "1"]).await;
    group.kill(2);
    eventually(async || match row(&group, 0, 2).await {
        row if row.awaits_operator => Ok(()),
        row => Err(format!("{row:?}")),
    })
    .await;
    group.start(2).await;
    tokio::time::sleep(limits::MEMBER_DEAD * 3).await;
    assert!(!row(&group, 0, 2).await.in_sync, "its tries are used up");
    group.json(1, &["option", "set", "auto_recovery", "-1"]).await;
    group.wait_in_sync().await;
}

/// "Any cryptographic objects created while the member was offline are automatically replicated to the recovered
/// partition": also to a token that has never seen the group; and what was deleted meanwhile goes.
#[tokio::test]
async fn a_replaced_token_is_rebuilt_and_an_old_one_loses_what_was_deleted() {
    let _turn = turn().await;
    let kinds = [Embedded, SoftHsm, Embedded];
    let mut group = Group::form(&kinds).await;
    group.json(0, &["recovery-mode", "manual"]).await;
    let kept = create_at(&group.members[0].socket, "kept", KIND).await.expect("is made");
    let doomed = create_at(&group.members[0].socket, "doomed", KIND).await.expect("is made");
    let so_pin = group.path("so-pin").display().to_string();

    // An old token comes back, with the deleted key in it.
    group.kill(1);
    until_out(&group, 1).await;
    let mut caller = Caller::begin(&group.members[0].socket, STEP_LIMIT).await.expect("makes contact");
    delete(&mut caller, &doomed).await.expect("is deleted");
    let meanwhile = create_at(&group.members[0].socket, "meanwhile", KIND).await.expect("is made");
    group.start(1).await;
    group.json(1, &["recover"]).await;
    group.wait_in_sync().await;

    // A new token comes; what an operator asks for where the member lives is wanted by the group as well.
    group.kill(2);
    until_out(&group, 2).await;
    let later = create_at(&group.members[0].socket, "later", KIND).await.expect("is made");
    std::fs::remove_dir_all(group.members[2].token(kinds[2])).expect("the token is lost");
    group.json(2, &["recover", "--create-token", "--so-pin-file", &so_pin]).await;
    group.start(2).await;
    group.wait_in_sync().await;

    for (index, keys) in [(1, vec![&kept, &meanwhile]), (2, vec![&kept, &meanwhile, &later])] {
        let member = &group.members[index];
        for key in keys {
            prove(&member.socket, key, member.id, &[member.id]).await;
        }
    }
    let id = group.status(0).await.group;
    group.stop(1).await;
    let left: Vec<String> = in_softhsm(&group.members[1]).into_iter().map(|object| object.id).collect();
    let holds =
        |key: &Made| left.iter().any(|name| name.starts_with(&format!("kr1:{id}:{}.", key.inner().0)));
    assert!(holds(&kept) && holds(&meanwhile), "{left:?}");
    assert!(!holds(&doomed), "the deleted key is gone: {left:?}");
}

#[tokio::test]
async fn all_members_lost_and_back_need_nobody() {
    let _turn = turn().await;
    let mut group = two_and_a_standby().await;
    group.json(0, &["recovery-mode", "manual"]).await;
    let key = create_at(&group.members[0].socket, "pay", KIND).await.expect("is made");
    for index in 0..3 {
        group.kill(index);
    }
    for index in 0..3 {
        group.spawn(index);
    }
    eventually(async || match sign_once(&group.members[0].socket, &key, None).await {
        Ok(_) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn synchronize_tells_what_it_could_and_could_not_do() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded; 3]).await;
    let key = create_at(&group.members[0].socket, "pay", KIND).await.expect("is made");
    let all = group.json(1, &["synchronize"]).await;
    let members = all["members"].as_array().expect("is a list");
    assert_eq!(members.len(), 3);
    for member in members {
        assert_eq!((&member["kept"], &member["cannot"]), (&2.into(), &0.into()), "{all}");
    }
    let kept = |row: &&serde_json::Value| {
        row["action"] == "kept" && row["object"] == key.inner().0 && row["label"] == "pay"
    };
    assert_eq!(all["rows"].as_array().expect("is a list").iter().filter(kept).count(), 3, "{all}");

    // A member that is not there keeps nobody from going on, and is named.
    let gone = group.members[2].id.to_string();
    group.kill(2);
    let ended = group.run(0, &["--json", "synchronize"]).await;
    assert_eq!(ended.code, i32::from(Exit::CheckFailed.code()), "{}", ended.said());
    let told: serde_json::Value = serde_json::from_str(&ended.out).expect("is JSON");
    let first = &told["rows"][0];
    assert_eq!((first["member"].as_str(), first["action"].as_str()), (Some(gone.as_str()), Some("cannot")));
    assert!(first["why"].as_str().is_some_and(|why| why.contains("does not answer")), "{told}");
    assert_eq!(told["members"][0]["kept"], 2, "{told}");
    let ended = group.run(0, &["synchronize"]).await;
    assert!(ended.out.contains("cannot: "), "{}", ended.said());
}
