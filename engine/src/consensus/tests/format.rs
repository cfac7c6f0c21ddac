//! The bytes that travel. A change here is a change of the protocol: members of both versions must understand it.

use super::samples::{self, log_id};
use crate::consensus::message::{
    Append, AppendAnswer, Ballot, BallotAnswer, Blob, Chunk, ChunkAnswer, Part, Transfer, TransferAnswer,
    decode, encode,
};
use crate::consensus::types::{Entry, Vote};
use crate::domain::MemberId;
use openraft::EntryPayload;
use serde::Serialize;
use std::collections::BTreeSet;

fn entry(index: u64, payload: EntryPayload<crate::state::Command, u64, openraft::EmptyNode>) -> Blob {
    Blob(encode(&Entry { log_id: log_id(3, index), payload }).expect("encodes"))
}

pub(super) fn append() -> Append {
    let membership = samples::membership(None, vec![BTreeSet::from([1]), BTreeSet::from([1, 2])], [1, 2]);
    Append {
        vote: Vote::new_committed(3, 1),
        previous: Some(log_id(2, 300)),
        committed: Some(log_id(2, 299)),
        entries: vec![
            entry(301, EntryPayload::Blank),
            entry(302, EntryPayload::Normal(samples::draw())),
            entry(303, EntryPayload::Membership(membership.membership().clone())),
        ],
    }
}

pub(super) fn encoded_ballot(vote: Vote) -> Vec<u8> {
    encode(&Ballot { vote, last: Some(log_id(2, 300)), transfer: false }).expect("encodes")
}

fn hex(value: &impl Serialize) -> String {
    encode(value).expect("encodes").iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_stand() {
    assert_eq!(
        hex(&append()),
        "01030101010102fb2c010102fb2b0103060103fb2d0100090103fb2e01010801010f0103fb2f0102020101020102020102"
    );
    assert_eq!(hex(&AppendAnswer::Success), "0100");
    assert_eq!(hex(&AppendAnswer::PartialSuccess(Some(log_id(1, 3)))), "0101010103");
    assert_eq!(hex(&AppendAnswer::Conflict), "0102");
    assert_eq!(hex(&AppendAnswer::HigherVote(Vote::new(4, 2))), "010304010200");
    assert_eq!(hex(&Ballot { vote: Vote::new(4, 2), last: None, transfer: true }), "01040102000001");
    let ballot = BallotAnswer { vote: Vote::new(4, 2), granted: true, last: Some(log_id(1, 3)) };
    assert_eq!(hex(&ballot), "010401020001010103");
    let transfer = Transfer { from: Vote::new_committed(3, 1), to: MemberId(2), last: Some(log_id(3, 9)) };
    assert_eq!(hex(&transfer), "010301010102010309");
    assert_eq!(hex(&TransferAnswer::Accepted), "0100");
    let part = Part::State { total: 5, offset: 0, bytes: Blob(vec![7; 5]) };
    assert_eq!(
        hex(&Chunk { transfer: 1, vote: Vote::new_committed(3, 1), part }),
        "010103010101000500050707070707"
    );
    let part = Part::End { contents: 600 };
    assert_eq!(hex(&Chunk { transfer: 1, vote: Vote::new_committed(3, 1), part }), "01010301010102fb5802");
    assert_eq!(hex(&ChunkAnswer::Taken), "0100");
    assert_eq!(hex(&ChunkAnswer::Refused("no".into())), "0102026e6f");
}

#[test]
fn entries_follow_each_other_without_a_gap() {
    let bytes = encode(&append()).expect("encodes");
    let mut read: Append = decode(&bytes).expect("decodes");
    let indices: Vec<u64> =
        read.decode_entries().expect("they follow").iter().map(|entry| entry.log_id.index).collect();
    assert_eq!(indices, [301, 302, 303]);
    read.entries.remove(1);
    assert!(read.decode_entries().is_err());
    read.entries.clear();
    assert_eq!(read.decode_entries().expect("a heartbeat").len(), 0);
}
