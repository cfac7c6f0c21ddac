//! Commands and states to try things with.

use crate::clock::UnixMillis;
use crate::consensus::store::Checkpoint;
use crate::consensus::types::{LeaderId, LogId, Membership};
use crate::domain::{
    ClientId, ContentKey, Envelope, Fingerprint, Generation, GroupId, Lineage, LogIndex, MemberCard,
    MemberId, ObjectClass, ObjectId, Profile, RequestId, Residency, TokenIdentity, Version,
};
use crate::limits::{ID_BLOCK_COUNT, TEXT_MAX_BYTES};
use crate::state::{
    Authority, Bootstrap, Command, GroupOption, InviteId, NewObject, Options, Outcome, PartialKeys, Refusal,
    RequestContext, Settlement, Smk, State, Verdict,
};
use openraft::EmptyNode;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(LeaderId { term }, index)
}

pub(super) fn membership(
    log_id: Option<LogId>,
    configs: Vec<BTreeSet<u64>>,
    nodes: impl IntoIterator<Item = u64>,
) -> Membership {
    let nodes: BTreeMap<u64, EmptyNode> = nodes.into_iter().map(|id| (id, EmptyNode {})).collect();
    Membership::new(log_id, openraft::Membership::new(configs, nodes).expect("the voters are nodes"))
}

fn card(number: u64) -> MemberCard {
    MemberCard {
        name: format!("member {number}"),
        address: format!("host{number}:7000"),
        tls: Fingerprint([number as u8; 32]),
        transport_key: vec![1; 422],
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

pub(super) fn bootstrap() -> Bootstrap {
    let sealed_key = Envelope { nonce: [3; 12], sealed: vec![4; 200] };
    Bootstrap {
        group: GroupId([7; 8]),
        lineage: Lineage(1),
        label: "test".into(),
        card: card(1),
        smk: Smk { generation: Generation(1), self_blob: vec![9; 40], recovery: None },
        authority: Authority { certificate: vec![5; 300], sealed_key },
        options: Options::default(),
    }
}

/// Draws an object id: its outcome is different each time, so that what was lost would show.
pub(super) fn draw() -> Command {
    Command::ReserveIds { member: MemberId(1), count: 1 }
}

pub(super) fn reserve(count: u64) -> Command {
    Command::ReserveIds { member: MemberId(1), count }
}

pub(super) fn invite(number: u8) -> Command {
    Command::Invite {
        duty: crate::state::Duty::Active,
        id: InviteId([number; 8]),
        secret_hash: [number; 32],
        expires: UnixMillis(2000),
        at: UnixMillis(1000),
    }
}

pub(super) fn content_key(object: u64) -> ContentKey {
    ContentKey { object: ObjectId(object), version: Version(1), generation: Generation(1) }
}

fn context(kind: u64, object: u64) -> RequestContext {
    // A client for each kind asks in the order of ids and remembers nothing it has asked before.
    let client = ClientId { born: LogIndex(1), nonce: kind };
    RequestContext { id: RequestId { client, sequence: object }, watermark: object, parameters: [0; 16] }
}

/// Puts one object in the record alone, so that no token is needed to settle it.
pub(super) fn put(object: u64, bytes: usize) -> Command {
    let sealed = (0..bytes).map(|i| (i as u64).wrapping_mul(object) as u8).collect();
    Command::Put {
        request: context(1, object),
        objects: vec![NewObject {
            content: content_key(object),
            class: ObjectClass::Data,
            envelope: Envelope { nonce: [object as u8; 12], sealed },
            excluded: BTreeMap::new(),
        }],
    }
}

/// Puts a key that the second member cannot carry, for a long reason: its row takes the room of many.
fn put_wide(object: u64) -> Command {
    let member = MemberId(2);
    let excluded = BTreeMap::from([(member, Refusal { member, reason: "x".repeat(TEXT_MAX_BYTES) })]);
    let envelope = Envelope { nonce: [0; 12], sealed: vec![0] };
    let new = NewObject { content: content_key(object), class: ObjectClass::SecretKey, envelope, excluded };
    Command::Put { request: context(1, object), objects: vec![new] }
}

fn done(request: RequestId) -> Command {
    let verdict = Verdict::Done { holders: BTreeSet::from([MemberId(1)]), excluded: BTreeMap::new() };
    Command::Settle { settlements: vec![Settlement { request, verdict }] }
}

pub(super) fn settle(object: u64) -> Command {
    done(context(1, object).id)
}

pub(super) fn remove(object: u64) -> Command {
    Command::Remove { request: context(2, object), objects: vec![ObjectId(object)] }
}

pub(super) fn settle_removal(object: u64) -> Command {
    done(context(2, object).id)
}

/// A state that grew by commands, as if a log had held them.
pub(super) struct Grown {
    state: State,
    index: u64,
    contents: Vec<(ContentKey, Envelope)>,
}

impl Grown {
    pub(super) fn new() -> Self {
        let mut grown = Self { state: State::default(), index: 0, contents: Vec::new() };
        grown.apply(Command::Bootstrap(Box::new(bootstrap())));
        grown
    }

    fn apply(&mut self, command: Command) {
        self.index += 1;
        let effects = self.state.apply(LogIndex(self.index), command);
        assert!(!matches!(effects.outcome, Outcome::Rejected(_)), "{:?}", effects.outcome);
        self.contents.extend(effects.contents);
    }

    fn put_all(mut self, objects: u64, put: impl Fn(u64) -> Command) -> Self {
        for object in 1..=objects {
            if object % ID_BLOCK_COUNT == 1 {
                self.apply(reserve(ID_BLOCK_COUNT));
            }
            self.apply(put(object));
            self.apply(settle(object));
        }
        self
    }

    /// Settled objects with contents of some length.
    pub(super) fn objects(self, objects: u64, bytes: usize) -> Self {
        self.put_all(objects, |object| put(object, bytes))
    }

    /// Settled objects with wide rows and next to no content.
    pub(super) fn wide_objects(mut self, objects: u64) -> Self {
        self.apply(Command::SetOption(GroupOption::PartialKeys(PartialKeys::Allow)));
        self.apply(invite(1));
        let card = Box::new(card(2));
        self.apply(Command::Admit { invite: InviteId([1; 8]), at: UnixMillis(1000), card });
        self.put_all(objects, put_wide)
    }

    /// As a checkpoint of a group with the first member alone; with the contents.
    pub(super) fn checkpoint(self) -> (Checkpoint, Vec<(ContentKey, Envelope)>) {
        let membership = membership(Some(log_id(0, 0)), vec![BTreeSet::from([1])], [1]);
        (Checkpoint { last: Some(log_id(1, self.index)), membership, state: self.state }, self.contents)
    }
}
