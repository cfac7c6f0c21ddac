use super::group::{Disk, Group, M1, M2, M3, PATIENCE, UNHURRIED};
use super::samples::{self, Grown};
use super::stand_ins::{MemoryLog, MemoryStore};
use crate::codec;
use crate::consensus::Consensus;
use crate::consensus::message::{Blob, Chunk, ChunkAnswer, Part, decode, encode};
use crate::consensus::store::Store;
use crate::consensus::types::Vote;
use crate::limits::{FRAME_MAX_BYTES, SNAPSHOT_CHUNK_MAX_BYTES, SNAPSHOT_STATE_MAX_BYTES};
use crate::wire::RaftCall;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// A group of one whose log begins behind a checkpoint: only a snapshot helps a newcomer.
async fn group_of(grown: Grown) -> Group {
    let (checkpoint, contents) = grown.checkpoint();
    let store = MemoryStore::default();
    store.put_contents(&contents).expect("puts");
    let log = MemoryLog::behind(checkpoint.last.expect("it has entries"));
    store.save_checkpoint(&checkpoint).expect("saves");
    let mut group = Group::new(UNHURRIED);
    group.disks.insert(M1, Disk { log, store: Arc::new(store) });
    group.start(M1).await;
    group.leader(None).await;
    group
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blank_member_gets_state_and_contents() {
    let mut group = group_of(Grown::new().objects(600, 4000)).await;
    group.start(M2).await;
    group.members[&M1].add_learner(M2).await.expect("follows");
    group.assert_equal().await;
    let chunks = group.wires.snapshot_chunks.load(Ordering::Relaxed);
    assert!(chunks >= 600 * 4000 / SNAPSHOT_CHUNK_MAX_BYTES, "{chunks} chunks");
    assert_eq!(group.disks[&M1].store.contents(), group.disks[&M2].store.contents());
    assert!(group.members[&M2].agreed().take_dirty().all);
    group.promote(M1, M2).await;

    // It stands on its own from then on.
    group.stop(M2).await;
    group.start(M2).await;
    group.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_several_frames_arrives() {
    let mut group = group_of(Grown::new().wide_objects(20_000)).await;
    let state = group.members[&M1].agreed().read(codec::encode).expect("encodes").len();
    assert!(state > FRAME_MAX_BYTES, "{state}");
    group.start(M2).await;
    let began = Instant::now();
    group.members[&M1].add_learner(M2).await.expect("follows");
    group.assert_equal().await;
    println!("20,000 objects, {state} bytes of state: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_away_for_too_long_is_brought_back_by_a_snapshot() {
    let mut group = Group::of_three(UNHURRIED).await;
    group.propose(samples::reserve(60)).await;
    group.propose(samples::put(1, 100)).await;
    group.stop(M3).await;
    for object in 2..=50 {
        group.propose(samples::put(object, 2000)).await;
    }
    let leader = group.members[&M1].clone();
    leader.inner.raft.trigger().snapshot().await.expect("runs");
    let last = leader.agreed().live().last.expect("it has entries").index;
    let end = Instant::now() + PATIENCE;
    while group.disks[&M1].log.purged().is_none_or(|purged| purged.index < last) {
        assert!(Instant::now() < end, "the log is not purged");
        leader.inner.raft.trigger().purge_log(last).await.expect("runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    group.start(M3).await;
    group.assert_equal().await;
    assert!(group.wires.snapshot_chunks.load(Ordering::Relaxed) > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_survives_cut_links() {
    let mut group = group_of(Grown::new().objects(2000, 4000)).await;
    group.start(M2).await;
    group.members[&M1].add_learner(M2).await.expect("follows");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        group.wires.isolate(M2);
        tokio::time::sleep(Duration::from_millis(50)).await;
        group.wires.heal();
    }
    group.assert_equal().await;
    assert_eq!(group.disks[&M1].store.contents(), group.disks[&M2].store.contents());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_on_while_a_checkpoint_is_written() {
    let group = Group::of_three(UNHURRIED).await;
    for disk in group.disks.values() {
        *disk.store.slow_checkpoint.lock() = Duration::from_secs(1);
    }
    for member in group.members.values() {
        member.inner.raft.trigger().snapshot().await.expect("runs");
    }
    let (began, mut worst) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < Duration::from_secs(1) {
        let proposed = Instant::now();
        group.propose(samples::draw()).await;
        worst = worst.max(proposed.elapsed());
    }
    println!("slowest command while a checkpoint took a second: {worst:?}");
    assert!(worst < Duration::from_millis(500), "{worst:?}");
    group.assert_equal().await;
}

async fn send(to: &Consensus, transfer: u64, part: Part) -> ChunkAnswer {
    let vote = Vote::new_committed(50, 1);
    let body = encode(&Chunk { transfer, vote, part }).expect("encodes");
    let answer = to.handle(M1, RaftCall::Snapshot, body).await.expect("answers");
    decode(&answer).expect("decodes")
}

fn state_part(total: u64, offset: u64, bytes: &[u8]) -> Part {
    Part::State { total, offset, bytes: Blob(bytes.to_vec()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_that_do_not_fit_are_refused() {
    let mut group = Group::new(UNHURRIED);
    let m3 = group.start(M3).await;
    let refused = |answer: ChunkAnswer| matches!(answer, ChunkAnswer::Refused(_));
    let taken = |answer: ChunkAnswer| matches!(answer, ChunkAnswer::Taken);
    let too_long = SNAPSHOT_STATE_MAX_BYTES as u64 + 1;
    assert!(refused(send(&m3, 1, state_part(too_long, 0, &[1])).await), "over the limit");
    assert!(refused(send(&m3, 1, Part::End { contents: 0 }).await), "nothing has begun");
    assert!(taken(send(&m3, 1, state_part(10, 0, &[1; 4])).await));
    assert!(refused(send(&m3, 1, state_part(10, 5, &[1; 4])).await), "a gap");
    assert!(taken(send(&m3, 2, state_part(10, 0, &[1; 4])).await));
    assert!(refused(send(&m3, 1, state_part(10, 4, &[1; 4])).await), "a transfer that was replaced");
    assert!(refused(send(&m3, 2, state_part(10, 4, &[1; 7])).await), "more than announced");
    assert!(taken(send(&m3, 3, state_part(10, 0, &[1; 4])).await));
    assert!(refused(send(&m3, 3, state_part(10, 4, &[1; 6])).await), "not a state");

    let (checkpoint, contents) = Grown::new().objects(2, 10).checkpoint();
    let bytes = encode(&checkpoint).expect("encodes");
    let total = bytes.len() as u64;
    assert!(taken(send(&m3, 4, state_part(total, 0, &bytes)).await));
    let (_, envelope) = contents[0].clone();
    let foreign = vec![(samples::content_key(77), envelope)];
    assert!(refused(send(&m3, 4, Part::Contents { offset: 0, contents: foreign }).await), "not named");
    assert!(taken(send(&m3, 5, state_part(total, 0, &bytes)).await));
    assert!(refused(send(&m3, 5, Part::End { contents: 0 }).await), "contents are missing");
    assert_eq!(m3.agreed().live().last, None);

    assert!(taken(send(&m3, 6, state_part(total, 0, &bytes)).await));
    assert!(taken(send(&m3, 6, Part::Contents { offset: 0, contents }).await));
    let ended = send(&m3, 6, Part::End { contents: 2 }).await;
    assert!(matches!(ended, ChunkAnswer::Ended(_)), "{ended:?}");
    assert_eq!(*m3.agreed().live(), checkpoint);
}
