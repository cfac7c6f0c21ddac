//! What lies on disk.

use crate::log::{checkpoint, entry};
use crate::run::fuzz;
use crate::samples::{bytes, envelope, golden};
use keyraft_engine::direct::{List, Made};
use keyraft_engine::domain::{
    ClientId, ContentKey, Generation, GroupId, LogIndex, MemberId, ObjectId, RequestId, Version,
};
use keyraft_engine::doors as engine;
use keyraft_storage::doors;

const CONTENT: ContentKey =
    ContentKey { object: ObjectId(259), version: Version(2), generation: Generation(1) };

#[test]
fn records_of_the_log() {
    let seeds = golden("commands.txt").iter().map(|command| entry(9, command)).collect();
    fuzz(seeds, |bytes| doors::entry(9, bytes));
}

#[test]
fn records_of_contents() {
    fuzz(vec![bytes(&envelope())], |bytes| doors::content(CONTENT, bytes));
}

#[test]
fn the_vote_and_the_marks() {
    // Term 5 of member 2, committed; entry 9 of that term; purged up to it, from 10 to 12.
    let seeds = vec![
        bytes(&(5u64, Some(2u64), true)),
        bytes(&(5u64, 9u64)),
        bytes(&(7u64, Some((5u64, 9u64)), 10u64, 12u64, Some((6u64, Some(1u64), true)))),
    ];
    fuzz(seeds, |bytes| doors::vote(bytes) | doors::marks(bytes));
}

#[test]
fn keys_of_the_store() {
    let log = [&[1][..], &9u64.to_be_bytes(), &[0, 0]].concat();
    let content = [&[4][..], &[0; 16], &[0, 1]].concat();
    fuzz(vec![log, content, vec![2, 0, 0]], doors::key);
}

#[test]
fn the_checkpoint() {
    fuzz(vec![checkpoint()], doors::checkpoint);
}

#[test]
fn the_list_of_a_members_own_changes() {
    let request = RequestId { client: ClientId { born: LogIndex(1), nonce: 2 }, sequence: 3 };
    let mut list = List::new(GroupId([7; 8]), MemberId(2));
    let made = Made { content: CONTENT, envelope: envelope(), request, adoption: Some(request) };
    list.put(vec![made]).expect("there is room");
    list.delete(ObjectId(9), request).expect("there is room");
    fuzz(vec![bytes(&list)], engine::direct_list);
}
