//! What must hold whatever the log says.

use super::*;
use crate::codec;
use crate::domain::{
    ClientId, ClientName, Fingerprint, MemberCard, Profile, Residency, Role, TokenIdentity, Version,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A small step; small numbers make collisions, which is where mistakes live.
#[derive(Clone, Debug)]
enum Step {
    Invite(u8, u64),
    Admit(u8, u8, u64),
    Announce(u64, u8),
    RemoveMember(u64),
    Enter(u64),
    Reach(u64, u64),
    Leave(u64),
    Reserve(u64, u64),
    Put {
        client: u8,
        sequence: u64,
        watermark: u64,
        parameters: u8,
        ids: Vec<u8>,
        public: bool,
        excluded: u64,
    },
    Settle {
        unsettled: u8,
        holders: u32,
        aborted: bool,
        excluded: u64,
    },
    Remove {
        client: u8,
        sequence: u64,
        watermark: u64,
        ids: Vec<u8>,
    },
    Partial(bool),
    SetPin(bool, bool, u32),
    ChargePin(u8, bool, u64),
    ClearPin(u8, bool),
    Duty(u64, bool),
    CountRetry(u64),
    Recover(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let member = || 0..6u64;
    let ids = || prop_oneof![9 => vec(any::<u8>(), 1..3), 1 => vec(any::<u8>(), 0..4)];
    let put = (any::<u8>(), 0..12u64, 0..5u64, any::<u8>(), ids(), any::<u8>(), any::<u8>());
    let step = prop_oneof![
        2 => (any::<u8>(), 0..20u64).prop_map(|(id, expires)| Step::Invite(id % 4, expires * 10)),
        3 => (any::<u8>(), any::<u8>(), 0..20u64).prop_map(|(id, name, at)| Step::Admit(id % 4, name % 9, at)),
        1 => (member(), any::<u8>()).prop_map(|(m, name)| Step::Announce(m, name % 9)),
        1 => member().prop_map(Step::RemoveMember),
        4 => member().prop_map(Step::Enter),
        4 => (member(), 0..200u64).prop_map(|(m, reached)| Step::Reach(m, reached)),
        2 => member().prop_map(Step::Leave),
        2 => (member(), 0..20u64).prop_map(|(m, count)| Step::Reserve(m, count)),
        10 => put.prop_map(|(client, sequence, watermark, parameters, ids, class, excluded)| Step::Put {
            client: client % 3,
            sequence,
            watermark: watermark.saturating_sub(2),
            parameters: u8::from(parameters % 8 == 0),
            ids,
            public: class % 4 == 0,
            excluded: if excluded % 4 == 0 { u64::from(excluded / 4 % 6) } else { 0 },
        }),
        10 => (any::<u8>(), any::<u32>(), any::<u8>(), member()).prop_map(
            |(unsettled, holders, ending, excluded)| Step::Settle {
                unsettled,
                holders: if ending % 2 == 0 { holders } else { u32::MAX },
                aborted: ending % 5 == 0,
                excluded: if ending % 3 == 0 { excluded } else { 0 },
            }
        ),
        5 => (any::<u8>(), 0..12u64, 0..5u64, ids()).prop_map(|(client, sequence, watermark, ids)| {
            Step::Remove { client: client % 3, sequence, watermark: watermark.saturating_sub(2), ids }
        }),
        1 => any::<bool>().prop_map(Step::Partial),
        1 => (any::<bool>(), any::<bool>(), 0..3u32).prop_map(|(so, set, follows)| {
            Step::SetPin(so, set, follows)
        }),
        3 => (0..3u8, any::<bool>(), 0..30u64).prop_map(|(who, so, n)| Step::ChargePin(who, so, n)),
        1 => (0..3u8, any::<bool>()).prop_map(|(who, so)| Step::ClearPin(who, so)),
        4 => (1..4u64, any::<u8>()).prop_map(|(m, kind)| Step::Duty(m, kind % 4 != 0)),
        1 => member().prop_map(Step::CountRetry),
        1 => member().prop_map(Step::Recover),
    ];
    vec(step, 1..120)
}

/// Two members in sync, one out of it, some ids.
fn beginning() -> State {
    let mut state = State::default();
    let invite = |id: u8| Command::Invite {
        id: InviteId([id; 8]),
        secret_hash: [id; 32],
        expires: UnixMillis(1000),
        at: UnixMillis(0),
        duty: Duty::Active,
    };
    let admit = |id: u8, name: &str| Command::Admit {
        invite: InviteId([id; 8]),
        at: UnixMillis(0),
        card: Box::new(card(name)),
    };
    let commands = [
        bootstrap(),
        invite(0),
        admit(0, "n0"),
        invite(1),
        admit(1, "n1"),
        Command::EnterInSync { member: MemberId(2) },
        Command::ReachInSync { member: MemberId(2), reached: LogIndex(6) },
        Command::ReserveIds { member: MemberId(1), count: 16 },
    ];
    for (at, command) in commands.into_iter().enumerate() {
        let told = state.apply(LogIndex(at as u64 + 1), command).outcome;
        assert!(!matches!(told, Outcome::Rejected(_)), "{told:?}");
    }
    state
}

pub(super) fn card(name: &str) -> MemberCard {
    MemberCard {
        name: name.into(),
        address: format!("{name}:7100"),
        tls: Fingerprint([1; 32]),
        transport_key: vec![2; 4],
        profile: Profile {
            identity: TokenIdentity::default(),
            wraps: BTreeSet::new(),
            carries: BTreeSet::new(),
            carries_in_memory: BTreeSet::new(),
            exact_lengths: true,
            unwrap_template: true,
            residency: Residency::Session,
            mechanisms: Vec::new(),
        },
    }
}

pub(super) fn bootstrap() -> Command {
    Command::Bootstrap(Box::new(Bootstrap {
        group: GroupId([1; 8]),
        lineage: Lineage(1),
        label: "keys".into(),
        card: card("one"),
        smk: Smk { generation: Generation(1), self_blob: vec![3; 40], recovery: None },
        authority: Authority { certificate: vec![4], sealed_key: envelope() },
        options: Options::default(),
    }))
}

pub(super) fn envelope() -> Envelope {
    Envelope { nonce: [0; 12], sealed: vec![5; 3] }
}

fn role(so: bool) -> Role {
    if so { Role::SecurityOfficer } else { Role::User }
}

fn duty(standby: bool) -> Duty {
    if standby { Duty::Standby } else { Duty::Active }
}

fn client_name(who: u8) -> ClientName {
    ClientName(format!("uid:{who}"))
}

fn context(client: u8, sequence: u64, watermark: u64, parameters: u8) -> RequestContext {
    let client = ClientId { born: LogIndex(0), nonce: client.into() };
    RequestContext { id: RequestId { client, sequence }, watermark, parameters: [parameters; 16] }
}

fn members(bits: u32) -> BTreeSet<MemberId> {
    (0..8).filter(|bit| bits >> bit & 1 == 1).map(MemberId).collect()
}

fn refusals(member: u64) -> BTreeMap<MemberId, Refusal> {
    let member = MemberId(member);
    // Member 0 does not exist; it stands for "none" here.
    let some = (member.0 != 0).then(|| (member, Refusal { member, reason: "full".into() }));
    some.into_iter().collect()
}

/// The command for a step; object ids are taken from what is reserved or what exists, so that steps hit.
fn command(state: &State, step: &Step) -> Command {
    match step.clone() {
        Step::Invite(id, expires) => Command::Invite {
            id: InviteId([id; 8]),
            secret_hash: [id; 32],
            expires: UnixMillis(expires),
            at: UnixMillis(0),
            duty: duty(expires % 20 == 0),
        },
        Step::Admit(id, name, at) => Command::Admit {
            invite: InviteId([id; 8]),
            at: UnixMillis(at),
            card: Box::new(card(&format!("n{name}"))),
        },
        Step::Announce(m, name) => {
            Command::Announce { member: MemberId(m), card: Box::new(card(&format!("n{name}"))) }
        }
        Step::RemoveMember(m) => Command::RemoveMember { member: MemberId(m) },
        Step::Enter(m) => Command::EnterInSync { member: MemberId(m) },
        Step::Reach(m, reached) => Command::ReachInSync { member: MemberId(m), reached: LogIndex(reached) },
        Step::Leave(m) => Command::LeaveInSync { member: MemberId(m), reason: LeaveReason::Unreachable },
        Step::Reserve(m, count) => Command::ReserveIds { member: MemberId(m), count },
        Step::Put { client, sequence, watermark, parameters, ids, public, excluded } => {
            let free: Vec<ObjectId> = state.reserved.values().flatten().copied().collect();
            let object = |pick: u8| {
                let id = free.get(usize::from(pick) % 8).copied().unwrap_or(ObjectId(pick.into()));
                NewObject {
                    content: ContentKey { object: id, version: Version(1), generation: Generation(1) },
                    class: if public { ObjectClass::PublicKey } else { ObjectClass::SecretKey },
                    envelope: envelope(),
                    excluded: refusals(excluded),
                }
            };
            Command::Put {
                request: context(client, sequence, watermark, parameters),
                objects: ids.into_iter().map(object).collect(),
            }
        }
        Step::Settle { unsettled, holders, aborted, excluded } => {
            let all: Vec<RequestId> = state.unsettled().collect();
            let some = all.get(usize::from(unsettled) % all.len().max(1)).copied();
            let request = some.unwrap_or(context(unsettled % 3, 1, 0, 0).id);
            let refusal = Refusal { member: MemberId(1), reason: "no".into() };
            let done = Verdict::Done { holders: members(holders), excluded: refusals(excluded) };
            let verdict = if aborted { Verdict::Aborted(refusal) } else { done };
            Command::Settle { settlements: vec![Settlement { request, verdict }] }
        }
        Step::Remove { client, sequence, watermark, ids } => {
            let have: Vec<ObjectId> = state.objects().map(|(id, _)| id).collect();
            let pick = |n: u8| have.get(usize::from(n) % 8).copied().unwrap_or(ObjectId(n.into()));
            Command::Remove {
                request: context(client, sequence, watermark, 9),
                objects: ids.into_iter().map(pick).collect(),
            }
        }
        Step::SetPin(so, set, follows) => Command::SetPin {
            role: role(so),
            hash: set.then(|| PinHash("hash".into())),
            follows: follows.max(state.pins.pin(role(so)).version.saturating_sub(1)),
            by: None,
        },
        Step::ChargePin(who, so, n) => Command::ChargePin {
            who: client_name(who),
            role: role(so),
            attempt: context(who, n, 0, 0).id,
            tag: [u8::from(n % 7 == 0); 16],
        },
        Step::ClearPin(who, so) => Command::ClearPin { who: client_name(who), role: role(so) },
        Step::Duty(m, standby) => Command::SetDuty { member: MemberId(m), duty: duty(standby) },
        Step::CountRetry(m) => Command::CountRetry { member: MemberId(m) },
        Step::Recover(m) => Command::Recover { member: MemberId(m) },
        Step::Partial(true) => Command::SetOption(GroupOption::PartialKeys(PartialKeys::Allow)),
        Step::Partial(false) => Command::SetOption(GroupOption::PartialKeys(PartialKeys::Refuse)),
    }
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    contents: BTreeSet<ContentKey>,
    newest: u64,
    ended: BTreeMap<RequestId, RequestState>,
}

fn is_open(state: &RequestState) -> bool {
    matches!(state, RequestState::Creating(_) | RequestState::Removing(_))
}

fn check_step(before: &State, after: &State, command: &Command, effects: &Effects, seen: &mut Seen) {
    assert!(!after.in_sync().is_empty(), "nobody is in sync");
    for (key, _) in &effects.contents {
        assert!(seen.contents.insert(*key), "content {key} twice");
        assert!(after.contents().any(|named| named == *key));
    }
    if let Outcome::Admitted(member) = effects.outcome {
        assert!(member.0 > seen.newest, "member id reused");
        seen.newest = member.0;
    }
    check_rows(before, after, command, effects);
    check_duties(before, after, command);
    check_pins(before, after, command, effects);
    check_requests(before, after, command, effects, seen);
}

fn check_rows(before: &State, after: &State, command: &Command, effects: &Effects) {
    for (id, object) in before.objects() {
        let now = after.object(id);
        let removed = matches!(command, Command::Remove { objects, .. } if objects.contains(&id));
        match object.phase {
            Phase::Settled if removed => assert!(now.is_some()),
            Phase::Settled => assert_eq!(now, Some(object), "a settled object changed"),
            Phase::Pending(_) | Phase::Removing(_) => {
                assert!(now == Some(object) || matches!(command, Command::Settle { .. }));
            }
        }
    }
    let ids: BTreeSet<ObjectId> = before.objects().chain(after.objects()).map(|(id, _)| id).collect();
    let changed: BTreeSet<ObjectId> =
        ids.into_iter().filter(|id| before.object(*id) != after.object(*id)).collect();
    assert_eq!(changed, effects.objects.iter().copied().collect(), "changed rows are told");
    let same =
        before.members == after.members && before.options == after.options && before.smks == after.smks;
    assert!(same || effects.roster);
}

/// No SetDuty takes the last active member away; tries end with being in sync, and go up one at a time.
fn check_duties(before: &State, after: &State, command: &Command) {
    let active = |state: &State| state.members().filter(|(_, m)| m.duty == Duty::Active).count();
    if matches!(command, Command::SetDuty { .. }) && active(before) > 0 {
        assert!(active(after) > 0, "{command} left no active member");
    }
    for (id, member) in after.members() {
        let old = before.member(id).map_or(WayBack::default(), |old| old.way_back);
        let new = member.way_back;
        assert!(member.standing != Standing::InSync || new == WayBack::default());
        assert!(new == WayBack::default() || new.tries == old.tries || new.tries == old.tries + 1);
        assert!(!new.called || old.called || matches!(command, Command::Recover { .. }));
    }
}

/// A count goes up by charges alone, and down by a right try or a new PIN alone; nobody moves another's.
fn check_pins(before: &State, after: &State, command: &Command, effects: &Effects) {
    for (who, so) in (0..3).flat_map(|who| [(who, false), (who, true)]) {
        let (who, role) = (client_name(who), role(so));
        let (old, new) = (before.pins.tries(&who, role), after.pins.tries(&who, role));
        assert!(new <= crate::limits::PIN_TRIES_MAX);
        match command {
            Command::ChargePin { who: tried, role: of, .. } if (tried, *of) == (&who, role) => {
                assert!(new == old || new == old + 1);
                let told = matches!(effects.outcome, Outcome::Charged(count) if count == new);
                assert!(told || new == old);
            }
            Command::ClearPin { who: tried, role: of } if (tried, *of) == (&who, role) => assert_eq!(new, 0),
            Command::SetPin { role: of, .. } if *of == role => assert!(new == old || new == 0),
            _ => assert_eq!(new, old, "{who}'s count moved by {command}"),
        }
    }
}

fn check_requests(before: &State, after: &State, command: &Command, effects: &Effects, seen: &mut Seen) {
    let unsettled: BTreeSet<RequestId> = after.unsettled().collect();
    assert_eq!(unsettled, after.requests.open().collect());
    let phases = after.objects().filter_map(|(_, object)| match object.phase {
        Phase::Pending(request) | Phase::Removing(request) => Some(request),
        Phase::Settled => None,
    });
    assert_eq!(unsettled, phases.collect());
    for request in before.unsettled().filter(|request| !unsettled.contains(request)) {
        let Some(end) = after.request(request) else { panic!("an open outcome was dropped") };
        if let (RequestState::Created(_), Command::Settle { settlements }) = (&end, command) {
            let Verdict::Done { holders, excluded } = &settlements[0].verdict else { panic!("not done") };
            let waits = before.waits_for(request);
            assert!(waits.iter().all(|m| holders.contains(m) || excluded.contains_key(m)));
        }
        seen.ended.insert(request, end);
    }
    for (request, end) in &seen.ended {
        assert!(after.request(*request).is_none_or(|now| now == *end), "an outcome changed");
    }
    let (Command::Put { request, .. } | Command::Remove { request, .. }) = command else { return };
    let Outcome::Request(answer) = &effects.outcome else { return };
    // Asked again it answers the same and does nothing.
    let mut again = after.clone();
    let effects = again.apply(LogIndex(after.applied().0 + 1), command.clone());
    assert_eq!(effects, Effects { outcome: Outcome::Request(answer.clone()), ..Effects::default() });
    assert_eq!(after.request(request.id), Some(answer.clone()));
    if !is_open(answer) {
        seen.ended.insert(request.id, answer.clone());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_log_says(steps in steps()) {
        let mut state = beginning();
        let mut copy = state.clone();
        let mut seen = Seen { newest: 3, ..Seen::default() };
        let middle = steps.len() / 2;
        for (at, step) in steps.iter().enumerate() {
            let index = LogIndex(at as u64 + 100);
            let command = command(&state, step);
            let before = state.clone();
            let effects = state.apply(index, command.clone());
            check_step(&before, &state, &command, &effects, &mut seen);
            // Another member, which was restarted from a checkpoint half-way, comes to the same.
            if at == middle {
                let bytes = codec::encode(&copy).expect("encodes");
                copy = codec::decode(&bytes, bytes.len()).expect("decodes");
            }
            prop_assert_eq!(&copy.apply(index, command.clone()), &effects);
            prop_assert_eq!(&copy, &state);
            // A replay changes nothing.
            prop_assert_eq!(copy.apply(index, command), Effects::default());
            prop_assert_eq!(&copy, &state);
        }
    }
}

/// Properties of states that are never reached prove nothing: the steps must hit every ending.
#[test]
fn the_steps_reach_every_ending() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut reached: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..400 {
        let steps = steps().new_tree(&mut runner).expect("steps").current();
        let mut state = beginning();
        for (at, step) in steps.iter().enumerate() {
            let command = command(&state, step);
            let before: Vec<RequestId> = state.unsettled().collect();
            let told = format!("{:?}", state.apply(LogIndex(at as u64 + 100), command).outcome);
            let ends = before.into_iter().filter_map(|id| state.request(id)).filter(|end| !is_open(end));
            for text in ends.map(|end| format!("{end:?}")).chain([told]) {
                let kind: String = text.chars().take_while(|letter| !"[{ ".contains(*letter)).collect();
                let kind = kind.replace(|letter: char| letter.is_ascii_digit(), "");
                *reached.entry(kind).or_default() += 1;
            }
        }
    }
    for kind in [
        "Admitted(m)",
        "Created(",
        "Removed(",
        "Aborted(Refusal",
        "Request(Creating(",
        "Request(Removing(",
        "Request(Created(",
        "Request(Rejected(NoSuchObject()))",
        "Rejected(IdNotFree())",
        "Rejected(Expired)",
        "Rejected(ParametersDiffer)",
        "Rejected(LastInSync(m))",
        "Rejected(WrongStanding(m))",
        "Rejected(InviteInvalid)",
        "Charged()",
        "Rejected(LastActive(m))",
        "Rejected(PinChanged(User))",
        "Rejected(PinNotSet(User))",
    ] {
        assert!(reached.get(kind).is_some_and(|times| *times >= 50), "{kind} is hardly reached: {reached:?}");
    }
}
