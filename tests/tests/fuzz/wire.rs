//! What members, applications and people's commands send.

use crate::run::fuzz;
use crate::samples::{
    GENERATION, MEMBER, OBJECT, bytes, card, content, envelope, mechanisms, reads, request, secret, template,
    ticket,
};
use keyraft_engine::clock::UnixMillis;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, Curve, KeyAlgorithm, LogIndex, ObjectClass, Version,
};
use keyraft_engine::doors;
use keyraft_engine::state::InviteId;
use keyraft_engine::wire::{
    Answer, Change, ClientName, ClientRequest, CompareAndSet, CreateKey, Deletion, Failure, FailureKind,
    Fitness, Hello, ImportKey, JoinAnswer, JoinRequest, Keep, KeyRef, KeyTemplate, Lane, Made, MakeBy,
    MemberAnswer, MemberPulse, MemberRequest, ObjectReport, ObjectRow, ObjectStatus, Operation, Pulse,
    RaftCall, Report, Request, Response, Sealed, SessionName, SlotAnswer, SlotCall, SlotReply, SlotRequest,
    TokenHealth, UseKind, UseRequest,
};

fn session() -> KeyRef {
    let sealed = Sealed { generation: GENERATION, envelope: envelope() };
    KeyRef::Session { name: SessionName([6; 16]), sealed: Some(Box::new(sealed)) }
}

fn makings() -> Vec<MakeBy> {
    let mechanism = mechanisms().swap_remove(2);
    vec![
        MakeBy::Generate { mechanism: mechanism.clone(), template: template() },
        MakeBy::GeneratePair { mechanism: mechanism.clone(), public: template(), private: template() },
        MakeBy::Create { template: template() },
        MakeBy::Copy { of: session(), template: template() },
        MakeBy::Unwrap {
            mechanism: mechanism.clone(),
            unwrapping: session(),
            wrapped: vec![1; 40],
            template: template(),
        },
        MakeBy::Derive { mechanism, base: KeyRef::Object(OBJECT), template: template() },
    ]
}

fn slot_calls() -> Vec<SlotCall> {
    let change = Change { request: request(), watermark: 3 };
    let key = KeyRef::Object(OBJECT);
    let mut asks = vec![
        SlotRequest::Info,
        SlotRequest::Login {
            role: keyraft_engine::wire::Role::User,
            pin: secret(b"1234"),
            attempt: request(),
        },
        SlotRequest::SetPin { change, old: secret(b"1234"), new: secret(b"5678") },
        SlotRequest::InitToken { change, pin: secret(b"1234") },
        SlotRequest::Find { template: template(), after: Some(OBJECT) },
        SlotRequest::SetAttributes { change, key: key.clone(), attributes: template() },
        SlotRequest::Destroy { change, object: OBJECT },
        SlotRequest::Wrap { mechanism: mechanisms().swap_remove(3), wrapping: session(), key: key.clone() },
        SlotRequest::Random { bytes: 70_000 },
    ];
    asks.extend(makings().into_iter().map(|by| SlotRequest::Make {
        change,
        keep: Keep::Session,
        by: Box::new(by),
    }));
    asks.extend(mechanisms().into_iter().map(|mechanism| SlotRequest::Use {
        key: key.clone(),
        kind: UseKind::Verify(vec![1; 64]),
        mechanism,
        data: secret(b"data"),
    }));
    let call = |ask| SlotCall {
        who: ClientName("uid:5".into()),
        ticket: Some(ticket()),
        seen: LogIndex(1),
        tries: 1,
        ask,
        direct: false,
    };
    asks.into_iter().map(call).collect()
}

fn slot_replies() -> Vec<SlotReply> {
    let made = || Made { key: session(), record: Some(content().record) };
    let answers = vec![
        SlotAnswer::Done,
        SlotAnswer::Ticket(ticket()),
        SlotAnswer::Found { objects: vec![OBJECT; 3], more: true },
        SlotAnswer::Record(Box::new(content().record)),
        SlotAnswer::Made(vec![made(), made()]),
        SlotAnswer::Output(secret(&[1; 64])),
        SlotAnswer::SendSealed(SessionName([6; 16])),
    ];
    answers.into_iter().map(|answer| SlotReply { index: LogIndex(70_000), answer }).collect()
}

/// Requests of clients that change nothing, or nothing that matters.
pub fn client_requests() -> Vec<ClientRequest> {
    let algorithm = KeyAlgorithm::Ec(Curve::P256);
    let mut requests = vec![
        ClientRequest::Status,
        ClientRequest::List { label: Some("pay".into()), after: Some(OBJECT) },
        ClientRequest::Show(OBJECT),
        ClientRequest::Create(CreateKey {
            request: request(),
            watermark: 1,
            template: KeyTemplate { algorithm, attributes: template() },
        }),
        ClientRequest::Import(ImportKey {
            request: request(),
            watermark: 1,
            class: ObjectClass::SecretKey,
            algorithm: Some(KeyAlgorithm::Aes { bits: 128 }),
            attributes: template(),
            value: secret(&[1; 16]),
        }),
        ClientRequest::Delete(Deletion { request: request(), watermark: 1, objects: vec![OBJECT; 3] }),
        ClientRequest::Use(UseRequest {
            object: OBJECT,
            kind: UseKind::Sign,
            mechanism: mechanisms().swap_remove(1),
            data: secret(b"data"),
            at: Some(MEMBER),
        }),
        ClientRequest::CompareAndSet(Box::new(CompareAndSet {
            request: request(),
            watermark: 1,
            object: OBJECT,
            attribute: AttributeType::ID,
            expected: Some(AttributeValue::Bytes(vec![1])),
            value: AttributeValue::Bytes(vec![2]),
        })),
        ClientRequest::Coverage { after: None },
        ClientRequest::Pulses,
        ClientRequest::Explain { client: Some("web".into()), last: 20 },
    ];
    requests.extend(slot_calls().into_iter().map(|call| ClientRequest::Slot(Box::new(call))));
    requests
}

fn requests() -> Vec<Request> {
    let report = ObjectReport {
        object: OBJECT,
        version: Version(1),
        status: ObjectStatus::Refused("the token is full".into()),
    };
    let join = || JoinRequest::Open {
        invite: Some(InviteId([1; 8])),
        proof: vec![1; 64],
        card: Box::new(card()),
        signing_request: vec![0x30; 300],
        hello: vec![1; 500],
    };
    let members = [
        MemberRequest::Raft { call: RaftCall::Append, body: vec![1; 100] },
        MemberRequest::Report(Report {
            reached: LogIndex(9),
            objects: vec![report; 2],
            token: TokenHealth::Failed("gone".into()),
            fitness: Fitness {
                uptime_ms: 9,
                disk_healthy: true,
                ports: 2,
                stepped_down: Some(3),
                chosen: None,
            },
            stuck: true,
        }),
        MemberRequest::Chosen(4),
        MemberRequest::ReadIndex,
        MemberRequest::Forward(Box::new(ClientRequest::Show(OBJECT))),
        MemberRequest::Announce(Box::new(card())),
        MemberRequest::Readmit(Box::new(join())),
        MemberRequest::Pulse,
        MemberRequest::Operations { client: Some("web".into()), last: 20 },
    ];
    let mut requests: Vec<Request> = client_requests().into_iter().map(Request::Client).collect();
    requests.extend(members.map(Request::Member));
    requests.extend([join(), JoinRequest::Prove { proof: vec![1; 33] }].map(Request::Join));
    requests
}

fn pulse() -> Pulse {
    Pulse {
        refuses: Some("not in sync".into()),
        token: TokenHealth::Failed("gone".into()),
        reached: LogIndex(9),
        troubles: 1,
        rate: 12.5,
        pending: 3,
        started: UnixMillis(5),
        heard: vec![(MEMBER, 300)],
    }
}

fn operation() -> Operation {
    Operation {
        at: UnixMillis(7),
        client: "client:web".into(),
        kind: "sign".into(),
        mechanism: Some(0x1041),
        object: Some(OBJECT),
        asked: MEMBER,
        by: MEMBER,
        tries: 1,
        micros: 250,
        code: 0xA0,
        reason: "the PIN is wrong".into(),
    }
}

fn responses() -> Vec<Response> {
    let row = ObjectRow {
        object: OBJECT,
        class: ObjectClass::PrivateKey,
        algorithm: Some(KeyAlgorithm::Ed25519),
        attributes: template(),
    };
    let mut answers = vec![
        Answer::Created(vec![row.clone()]),
        Answer::Objects { rows: vec![row; 3], more: true },
        Answer::Used { output: secret(&[1; 64]), by: MEMBER },
        Answer::Invitation("kr1-abc".into()),
        Answer::Findings(vec!["one".into(), "two".into()]),
        Answer::ComparedAndSet(true),
        Answer::Pulses(vec![MemberPulse { member: MEMBER, pulse: Some(pulse()), since: UnixMillis(7) }]),
        Answer::Operations { rows: vec![operation(); 2], silent: vec![MEMBER] },
    ];
    answers.extend(slot_replies().into_iter().map(|reply| Answer::Slot(Box::new(reply))));
    let mut responses: Vec<Response> = answers.into_iter().map(Response::Client).collect();
    responses.extend([
        Response::Member(MemberAnswer::Raft(vec![1; 40])),
        Response::Member(MemberAnswer::Failures(vec![(OBJECT, "full".into(), 3)])),
        Response::Member(MemberAnswer::Pulse(Box::new(pulse()))),
        Response::Member(MemberAnswer::Operations(vec![operation(); 2])),
        Response::Join(JoinAnswer::Challenge { challenge: vec![1; 500] }),
        Response::Failed(Failure::new(FailureKind::Refused, "why")),
    ]);
    responses
}

fn hellos() -> Vec<Hello> {
    let member = Hello { member: Some(MEMBER), lane: Lane::Bulk, ..Hello::anonymous() };
    vec![Hello::anonymous(), Hello::application(), member]
}

/// The variant of `Ask` and `Reply` that bears a body; the frames' own tests pin these bytes.
const HELLO: u32 = 0;
const PING: u32 = 1;
const REQUEST: u32 = 2;
const RESPONSE: u32 = 3;

/// The bodies of a hello's frame and a request's.
pub fn hello_body(hello: &Hello) -> Vec<u8> {
    bytes(&(0u64, HELLO, hello))
}

/// The body of a request's frame.
pub fn request_body(request: &ClientRequest) -> Vec<u8> {
    const CLIENT: u32 = 1;
    bytes(&(300u64, REQUEST, CLIENT, request))
}

#[test]
fn frames_that_are_asked() {
    let mut seeds: Vec<_> = requests().iter().map(|request| bytes(&(7u64, REQUEST, request))).collect();
    seeds.extend(hellos().iter().map(hello_body));
    seeds.push(bytes(&(0u64, PING)));
    fuzz(seeds, doors::ask);
}

#[test]
fn frames_that_answer() {
    let seeds = responses().iter().map(|response| bytes(&(7u64, RESPONSE, response))).collect();
    fuzz(seeds, doors::reply);
}

#[test]
fn requests_and_responses() {
    let mut seeds: Vec<_> = requests().iter().map(bytes).collect();
    seeds.extend(responses().iter().map(bytes));
    fuzz(seeds, |bytes| reads::<Request>(bytes) | reads::<Response>(bytes));
}

#[test]
fn calls_of_applications() {
    let mut seeds: Vec<_> = slot_calls().iter().map(bytes).collect();
    seeds.extend(slot_replies().iter().map(bytes));
    seeds.extend(hellos().iter().map(bytes));
    fuzz(seeds, |bytes| reads::<SlotCall>(bytes) | reads::<SlotReply>(bytes) | reads::<Hello>(bytes));
}
