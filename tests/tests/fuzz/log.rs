//! What the group agrees on: commands, entries, the agreed state, and Raft's messages.

use crate::run::fuzz;
use crate::samples::{bytes, envelope, golden, reads};
use keyraft_engine::codec;
use keyraft_engine::consensus::store::Checkpoint;
use keyraft_engine::consensus::types::{Entry, LogId, Vote};
use keyraft_engine::domain::{ContentKey, Generation, LogIndex, ObjectId, Version};
use keyraft_engine::doors;
use keyraft_engine::limits::FRAME_MAX_BYTES;
use keyraft_engine::state::{Command, Outcome, State};

/// An entry's bytes: term 5, this index, then a command.
pub fn entry(index: u64, command: &[u8]) -> Vec<u8> {
    const NORMAL: u32 = 1;
    [bytes(&(5u64, index, NORMAL)), command[1..].to_vec()].concat()
}

fn entries() -> Vec<Vec<u8>> {
    (1..).zip(golden("commands.txt")).map(|(index, command)| entry(index, &command)).collect()
}

/// A state in which something has happened.
fn state() -> State {
    let mut state = State::default();
    for (index, command) in (1..).zip(golden("commands.txt")) {
        let command: Command = codec::decode(&command, FRAME_MAX_BYTES).expect("golden");
        state.apply(LogIndex(index), command);
    }
    assert!(state.objects().count() > 0 && state.members().count() > 0, "nothing has happened");
    state
}

/// A checkpoint's bytes.
pub fn checkpoint() -> Vec<u8> {
    bytes(&Checkpoint { state: state(), ..Checkpoint::default() })
}

#[test]
fn commands_and_what_they_do() {
    let before = state();
    fuzz(golden("commands.txt"), |bytes| {
        let Ok(command) = codec::decode::<Command>(bytes, FRAME_MAX_BYTES) else { return false };
        for mut state in [State::default(), before.clone()] {
            let next = LogIndex(state.applied().0 + 1);
            let effects = state.apply(next, command.clone());
            assert!(state.applied() == next && reads::<Outcome>(&self::bytes(&effects.outcome)));
        }
        reads::<Command>(bytes)
    });
}

#[test]
fn outcomes() {
    fuzz(golden("outcomes.txt"), reads::<Outcome>);
}

#[test]
fn log_entries() {
    fuzz(entries(), reads::<Entry>);
}

#[test]
fn checkpoints_of_the_state() {
    fuzz(vec![bytes(&Checkpoint::default()), checkpoint()], reads::<Checkpoint>);
}

#[test]
fn messages_of_raft() {
    let vote: Vote = codec::decode(&[1, 5, 1, 2, 1], 5).expect("term 5 of member 2, committed");
    let last: LogId = codec::decode(&[1, 5, 9], 3).expect("entry 9");
    let content = ContentKey { object: ObjectId(7), version: Version(1), generation: Generation(1) };
    let following: Vec<_> = (10..).zip(golden("commands.txt")).map(|(i, c)| entry(i, &c)).collect();
    let seeds = vec![
        bytes(&(vote, Some(last), Some(last), following)),
        bytes(&(vote, Some(last), true)),
        bytes(&(vote, 3u64, Some(last))),
        bytes(&(9u64, vote, 0u32, 1000u64, 0u64, vec![1u8; 100])),
        bytes(&(9u64, vote, 1u32, 0u64, vec![(content, envelope()); 3])),
        bytes(&(9u64, vote, 2u32, 3u64)),
        bytes(&(1u32, Some(last))),
        bytes(&(2u32, "not now")),
    ];
    fuzz(seeds, doors::raft);
}
