//! Members that fall silent: whoever is left counts on each other, and serves.

use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{ClientName, Curve, KeyAlgorithm, LogIndex, MemberId};
use keyraft_engine::limits;
use keyraft_engine::wire::{Answer, ClientRequest, Failure, SlotCall, SlotRequest};
use keyraft_node::caller::{Ask, status};
use keyraft_node::engine::Socket;
use keyraft_tests::TokenKind::Embedded;
use keyraft_tests::keys::create_at;
use keyraft_tests::{Group, eventually, turn};
use std::time::Duration;

/// Longer than a silent member counts as there, twice.
const WATCHED: Duration = Duration::from_secs(3);
/// From the loss of a quorum until the survivor answers whatever its callers have seen.
const ALONE_MAX: Duration = Duration::from_secs(2);

/// What the logs of all members say of one's leaving the in-sync set.
fn departures(group: &Group, member: MemberId) -> usize {
    let words = format!("LeaveInSync {member} ");
    group.members.iter().map(|m| m.log().matches(&words).count()).sum()
}

/// Each follower has a report under way to the primary when it falls silent, and the next primary waits for reports.
#[tokio::test]
async fn a_silent_primary_takes_no_healthy_member_along() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded; 3]).await;
    group.json(0, &["recovery-mode", "manual"]).await;
    for round in 0..3 {
        let lost = group.primary(0).await;
        let left = [(lost + 1) % 3, (lost + 2) % 3];
        let ids = left.map(|index| group.members[index].id);
        let before = ids.map(|id| departures(&group, id));
        group.pause(lost);
        let began = Clock.now();
        let socket = &group.members[left[0]].socket;
        let next = eventually(async || {
            let seen = status(socket, limits::ATTEMPT).await.map_err(|e| e.to_string())?;
            seen.primary
                .filter(|leads| ids.contains(leads))
                .ok_or_else(|| format!("{:?} leads", seen.primary))
        })
        .await;
        println!("round {round}: {next} leads {:?} after the primary fell silent", began.elapsed());
        tokio::time::sleep(WATCHED).await;
        let after = ids.map(|id| departures(&group, id));
        group.go_on(lost);
        assert_eq!(before, after, "a healthy member was thrown out of the in-sync set");
        eventually(async || {
            let back = group.run(lost, &["recover"]).await;
            if back.code == 0 { Ok(()) } else { Err(back.said()) }
        })
        .await;
        group.wait_in_sync().await;
    }
}

/// An application's call that has seen the group at an index.
async fn call(socket: &Socket, seen: LogIndex, ask: SlotRequest) -> Result<Answer, Failure> {
    let who = ClientName("uid:0".into());
    let call = SlotCall { who, ticket: None, seen, tries: 1, ask, direct: false };
    socket.ask(ClientRequest::Slot(Box::new(call)), limits::ATTEMPT).await
}

/// Two die before they could tell the third of the last change that they answered.
#[tokio::test]
async fn a_survivor_serves_who_has_seen_more_than_itself() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded; 3]).await;
    let kind = KeyAlgorithm::Ec(Curve::P256);
    let key = create_at(&group.members[0].socket, "kept", kind).await.expect("is made");
    group.wait_in_sync().await;
    // Once a follower survives, once the primary.
    for survivor_leads in [false, true] {
        let leads = group.primary(0).await;
        let survivor = if survivor_leads { leads } else { (leads + 1) % 3 };
        let others = [(survivor + 1) % 3, (survivor + 2) % 3];
        others.into_iter().for_each(|index| group.kill(index));
        let began = Clock.now();
        let socket = &group.members[survivor].socket;
        let seen = LogIndex(group.status(survivor).await.applied.0 + 100);
        let mut refused = 0;
        loop {
            match call(socket, seen, SlotRequest::Random { bytes: 8 }).await {
                Ok(Answer::Slot(_)) => break,
                other if began.elapsed() > ALONE_MAX => panic!("{other:?} after {refused} refusals"),
                _ => refused += 1,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("the survivor serves {:?} after the loss, {refused} refusals before", began.elapsed());
        let public = key.public().expect("is a pair");
        let read = call(socket, seen, SlotRequest::Read(public)).await;
        assert!(matches!(read, Ok(Answer::Slot(_))), "{read:?}");
        for index in others {
            group.start(index).await;
        }
        group.wait_in_sync().await;
    }
}
