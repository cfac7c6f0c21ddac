//! What the known mistakes of this room come to.

use super::properties::{bootstrap, envelope};
use super::*;
use crate::domain::{ClientId, Version};
use crate::mutant::{Mutant, Tried};

fn beginning() -> State {
    let mut state = State::default();
    state.apply(LogIndex(1), bootstrap());
    reserve(&mut state);
    state
}

fn next(state: &mut State, command: Command) -> Outcome {
    state.apply(LogIndex(state.applied().0 + 1), command).outcome
}

fn reserve(state: &mut State) -> Outcome {
    next(state, Command::ReserveIds { member: MemberId(1), count: 8 })
}

fn put(state: &mut State, sequence: u64, object: u64) -> Outcome {
    let id = RequestId { client: ClientId { born: LogIndex(0), nonce: 7 }, sequence };
    let content = ContentKey { object: ObjectId(object), version: Version(1), generation: Generation(1) };
    let object =
        NewObject { content, class: ObjectClass::SecretKey, envelope: envelope(), excluded: BTreeMap::new() };
    let request = RequestContext { id, watermark: 0, parameters: [0; 16] };
    next(state, Command::Put { request, objects: vec![object] })
}

#[test]
fn a_repeated_request_makes_a_second_key() {
    let both = |state: &mut State| [put(state, 1, 1), put(state, 1, 2)].map(drop);
    let mut state = beginning();
    both(&mut state);
    assert_eq!(state.objects().count(), 1);
    let _tried = Tried::begin(Mutant::ApplyTwice);
    let mut state = beginning();
    both(&mut state);
    assert_eq!(state.objects().count(), 2);
}

#[test]
fn ids_are_reserved_a_second_time() {
    let mut state = beginning();
    assert_eq!(reserve(&mut state), Outcome::Reserved { first: ObjectId(9), count: 8 });
    let _tried = Tried::begin(Mutant::ReuseAnId);
    let mut state = beginning();
    put(&mut state, 1, 1);
    assert_eq!(reserve(&mut state), Outcome::Reserved { first: ObjectId(1), count: 8 });
    put(&mut state, 2, 1);
    assert_eq!(state.objects().map(|(_, object)| object.phase.clone()).collect::<Vec<_>>().len(), 1);
}

#[test]
fn a_used_id_of_a_reserved_block_is_taken() {
    let mut state = beginning();
    put(&mut state, 1, 1);
    assert_eq!(put(&mut state, 2, 1), Outcome::Rejected(Rejection::IdNotFree(ObjectId(1))));
    let _tried = Tried::begin(Mutant::ReuseAReservedBlock);
    let taken = put(&mut state, 2, 1);
    assert_eq!(taken, Outcome::Request(RequestState::Creating(vec![ObjectId(1)])));
}
