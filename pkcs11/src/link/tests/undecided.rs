//! What is told of a change that one attempt was lost of.

use super::*;
use keyraft_engine::domain::{ClientId, RequestId};
use keyraft_engine::wire::{Change, Role};

/// So that a change is not made a second time under another name.
#[test]
fn an_attempt_lost_on_a_kept_connection_is_told() {
    let _turn = TURN.lock();
    let members = [StandIn::new(AT_ONCE)];
    let link = Link::new(&GroupConfig { timeout: Duration::from_millis(300), ..group(&members) });
    asked(&link);
    std::fs::remove_file(&members[0].path).expect("is there");
    assert!(!link.ask(use_of(1), Pace::Slow).lost_one, "the connection is kept");
    members[0].turns(Manner::HangsUp);
    let ended = link.ask(use_of(1), Pace::Slow);
    assert!(matches!(ended.reply, Err(Lost::Nobody)) && ended.lost_one);
}

/// A member that lost its way to the primary says so by its deadline: what it passed on may yet be carried out.
#[test]
fn an_attempt_that_a_member_gave_up_is_told() {
    let _turn = TURN.lock();
    let members = [StandIn::new(Manner::Fails(&FailureKind::Deadline))];
    let link = Link::new(&GroupConfig { timeout: Duration::from_millis(300), ..group(&members) });
    let ended = link.ask(use_of(1), Pace::Slow);
    assert!(matches!(ended.reply, Err(Lost::Failed(_))) && ended.lost_one);
    members[0].turns(Manner::Fails(&FailureKind::Refused));
    assert!(!link.ask(use_of(1), Pace::Slow).lost_one, "nothing was begun");
}

/// A change is refused by one member while another may yet carry it out: nobody is told that it was not made.
#[test]
fn a_refusal_after_a_lost_attempt_decides_nothing() {
    let _turn = TURN.lock();
    let kinds = [&FailureKind::Deadline, &FailureKind::Refused];
    let members = kinds.map(|kind| StandIn::new(Manner::Fails(kind)));
    let (timeout, ranking) = (Duration::from_millis(1500), Ranking::RoundRobin);
    let link = Link::new(&GroupConfig { timeout, ranking, ..group(&members) });
    let change = Change {
        request: RequestId { client: ClientId { born: LogIndex(1), nonce: 1 }, sequence: 1 },
        watermark: 1,
    };
    let destroy = SlotCall { ask: SlotRequest::Destroy { change, object: ObjectId(1) }, ..use_of(0) };
    let mut lost = 0;
    for _ in 0..4 {
        let ended = link.ask(destroy.clone(), Pace::Slow);
        let Err(Lost::Failed(failure)) = ended.reply else { panic!("a refusal is told") };
        let expected = if ended.lost_one { FailureKind::Deadline } else { FailureKind::Refused };
        assert_eq!(failure.kind, expected, "{failure}");
        lost += u32::from(ended.lost_one);
    }
    assert!(lost > 0, "every call began with the member that refuses");
    // A login changes nothing: that the PIN is wrong stands.
    let (role, pin, attempt) = (Role::User, SecretBytes(vec![1].into()), change.request);
    let login = SlotCall { ask: SlotRequest::Login { role, pin, attempt }, ..use_of(0) };
    for _ in 0..4 {
        let ended = link.ask(login.clone(), Pace::Slow);
        assert!(matches!(ended.reply, Err(Lost::Failed(failure)) if failure.kind == FailureKind::Refused));
    }
}
