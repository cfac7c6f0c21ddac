//! The PINs of the group: counted for each client alone, remembered by the next primary, and no more needed once a
//! ticket is there.

use keyraft_engine::domain::{ClientId, LogIndex, RequestId};
use keyraft_engine::state::GroupOption;
use keyraft_engine::wire::{
    Answer, Change, ClientName, ClientRequest, Failure, FailureKind, Role, SecretBytes, SlotAnswer, SlotCall,
    SlotRequest, Ticket,
};
use keyraft_node::caller::Ask;
use keyraft_node::engine::Socket;
use keyraft_tests::TokenKind::Embedded;
use keyraft_tests::group::write_private;
use keyraft_tests::{Group, STEP_LIMIT, eventually, turn};
use zeroize::Zeroizing;

const PIN_INCORRECT: u64 = 0xA0;
const PIN_LOCKED: u64 = 0xA4;
const USER_NOT_LOGGED_IN: u64 = 0x101;
const USER_PIN_NOT_INITIALIZED: u64 = 0x102;
const FUNCTION_REJECTED: u64 = 0x200;

fn secret(text: &str) -> SecretBytes {
    SecretBytes(Zeroizing::new(text.as_bytes().to_vec()))
}

fn request(sequence: u64) -> RequestId {
    RequestId { client: ClientId { born: LogIndex(1), nonce: 77 }, sequence }
}

async fn slot(socket: &Socket, ticket: Option<&Ticket>, ask: SlotRequest) -> Result<SlotAnswer, u64> {
    let who = ClientName("a lie".into());
    let call = SlotCall { who, ticket: ticket.cloned(), seen: LogIndex(0), tries: 1, ask, direct: false };
    match socket.ask(ClientRequest::Slot(Box::new(call)), STEP_LIMIT).await {
        Ok(Answer::Slot(reply)) => Ok(reply.answer),
        Ok(other) => panic!("another answer: {other:?}"),
        Err(Failure { kind: FailureKind::TokenRefused { code }, .. }) => Err(code),
        Err(failure) => panic!("{failure:?}"),
    }
}

async fn login(socket: &Socket, role: Role, pin: &str, attempt: u64) -> Result<Ticket, u64> {
    let ask = SlotRequest::Login { role, pin: secret(pin), attempt: request(attempt) };
    match slot(socket, None, ask).await? {
        SlotAnswer::Ticket(ticket) => Ok(ticket),
        other => panic!("no ticket: {other:?}"),
    }
}

async fn set(group: &Group, role: &str, pin: &str) {
    let path = group.path("new-pin");
    write_private(&path, pin);
    let path = path.display().to_string();
    group.json(0, &["pin", "set", "--role", role, "--pin-file", &path]).await;
}

/// The index of a member that is not the primary, and the primary's.
async fn follower_and_primary(group: &Group) -> (usize, usize) {
    let at = group.primary(0).await;
    (usize::from(at == 0), at)
}

#[tokio::test]
async fn a_lost_primary_forgets_no_try_and_no_login() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, Embedded, Embedded]).await;
    let (follower, primary) = follower_and_primary(&group).await;
    let nobody = login(&group.members[follower].socket, Role::User, "1234", 1).await;
    assert_eq!(nobody, Err(USER_PIN_NOT_INITIALIZED));
    set(&group, "user", "right-1").await;
    // What is answered is agreed; this member shows it once it has applied it.
    let agreed = group.status(primary).await.applied;
    eventually(async || match group.status(follower).await.applied {
        applied if applied >= agreed => Ok(()),
        applied => Err(format!("the follower is at {applied}, not at {agreed}")),
    })
    .await;
    assert!(group.status(follower).await.user_pin);

    let ticket = login(&group.members[follower].socket, Role::User, "right-1", 2).await.expect("logs in");
    assert!(ticket.who.0.starts_with("uid:"), "{ticket:?}");
    // The same attempt again is the same try, whatever became of the first answer.
    for _ in 0..3 {
        assert_eq!(login(&group.members[follower].socket, Role::User, "wrong", 3).await, Err(PIN_INCORRECT));
    }
    for attempt in 4..=12 {
        let socket = &group.members[follower].socket;
        assert_eq!(login(socket, Role::User, "wrong", attempt).await, Err(PIN_INCORRECT), "{attempt}");
    }
    group.kill(primary);
    let socket = &group.members[follower].socket;
    assert_eq!(login(socket, Role::User, "right-1", 13).await, Err(PIN_LOCKED));
    let renewed = slot(socket, Some(&ticket), SlotRequest::Renew).await;
    assert!(matches!(renewed, Ok(SlotAnswer::Ticket(_))), "{renewed:?}");
}

#[tokio::test]
async fn a_member_without_a_quorum_takes_a_few_tries() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded, Embedded, Embedded]).await;
    set(&group, "user", "right-1").await;
    group.kill(1);
    group.kill(2);
    let socket = &group.members[0].socket;
    assert!(login(socket, Role::User, "right-1", 1).await.is_ok());
    for attempt in 2..=4 {
        assert_eq!(login(socket, Role::User, "wrong", attempt).await, Err(PIN_INCORRECT));
    }
    assert_eq!(login(socket, Role::User, "right-1", 5).await, Err(PIN_LOCKED));
}

#[tokio::test]
async fn pins_change_hands_and_the_token_is_emptied() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded]).await;
    let socket = &group.members[0].socket;
    set(&group, "so", "officer").await;
    let officer = login(socket, Role::SecurityOfficer, "officer", 1).await.expect("logs in");
    let change = |sequence| Change { request: request(sequence), watermark: 0 };
    let init = |sequence, pin: &str| SlotRequest::InitPin { change: change(sequence), pin: secret(pin) };
    assert!(matches!(slot(socket, None, init(2, "first")).await, Err(USER_NOT_LOGGED_IN)));
    assert!(slot(socket, Some(&officer), init(2, "first")).await.is_ok());

    let user = login(socket, Role::User, "first", 3).await.expect("logs in");
    let set_pin = || SlotRequest::SetPin { change: change(4), old: secret("first"), new: secret("second") };
    // Repeated, as after a lost answer, it is the same change, and the login goes on.
    for _ in 0..2 {
        let answer = slot(socket, Some(&user), set_pin()).await;
        let Ok(SlotAnswer::Ticket(fresh)) = answer else { panic!("no ticket: {answer:?}") };
        assert!(slot(socket, Some(&fresh), SlotRequest::Renew).await.is_ok());
    }
    assert!(matches!(slot(socket, Some(&user), SlotRequest::Renew).await, Err(USER_NOT_LOGGED_IN)));
    assert_eq!(login(socket, Role::User, "first", 5).await, Err(PIN_INCORRECT));

    group.json(0, &["key", "create", "ec:p256", "--label", "pair"]).await;
    let empty = |sequence| SlotRequest::InitToken { change: change(sequence), pin: secret("officer") };
    assert!(matches!(slot(socket, None, empty(6)).await, Err(FUNCTION_REJECTED)));
    assert_eq!(group.status(0).await.objects, 2);
    let allow = ClientRequest::SetOption(GroupOption::AllowInitToken(true));
    assert!(matches!(socket.ask(allow, STEP_LIMIT).await, Ok(Answer::Done)));
    assert!(slot(socket, None, empty(7)).await.is_ok());
    let after = group.status(0).await;
    assert_eq!((after.objects, after.user_pin, after.so_pin), (0, false, true));
}
