//! The disk of simulations keeps the promises of a real one, and breaks as one does.

use super::group::{M1, UNHURRIED};
use super::samples::{self, content_key, log_id};
use super::stand_ins::{Link, Wires};
use crate::consensus::keeper::Keeper;
use crate::consensus::machine::Machine;
use crate::consensus::model_disk::{DiskFault, ModelDisk, ModelLog};
use crate::consensus::store::Checkpoint;
use crate::consensus::types::{Entry, TypeConfig, Vote};
use crate::consensus::{Consensus, ConsensusError};
use crate::domain::Envelope;
use crate::limits;
use crate::state::State;
use futures::FutureExt;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::OneshotReceiverOf;
use openraft::{EntryPayload, RaftLogReader};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const SYNC: Duration = Duration::from_millis(20);

struct Blank;

impl StoreBuilder<TypeConfig, ModelLog, Machine, ()> for Blank {
    async fn build(&self) -> Result<((), ModelLog, Machine), openraft::StorageError<TypeConfig>> {
        let disk = ModelDisk::default();
        let keeper = Keeper::open(disk.store()).expect("a blank store opens");
        Ok(((), disk.log().expect("a blank log opens"), Machine::new(Arc::new(keeper))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_suite() {
    Suite::test_all(Blank).await.expect("openraft's suite passes");
}

fn entry(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Blank }
}

/// Where the answer to an append comes.
type Later = OneshotReceiverOf<TypeConfig, io::Result<()>>;

/// Appends; the receiver hears when it is durable.
async fn append(log: &mut ModelLog, entries: Vec<Entry>) -> io::Result<Later> {
    let (tell, told) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::signal(tell)).await?;
    Ok(told)
}

async fn indexes(log: &mut ModelLog) -> Vec<u64> {
    let entries = log.try_get_log_entries(..).await.expect("reads");
    entries.into_iter().map(|entry| entry.log_id.index).collect()
}

fn contents(object: u64) -> [(crate::domain::ContentKey, Envelope); 1] {
    [(content_key(object), Envelope { nonce: [0; 12], sealed: vec![7; 40] })]
}

#[tokio::test(start_paused = true)]
async fn a_witness_hears_all_that_is_written_and_nothing_twice() {
    let disk = ModelDisk::default();
    let heard = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let ear = heard.clone();
    disk.set_witness(Arc::new(move |bytes| ear.lock().push(bytes.to_vec())));
    let planted = b"what should not stand here";
    let (mut log, store) = (disk.log().unwrap(), disk.store());
    append(&mut log, vec![entry(1, 0), entry(1, 1)]).await.unwrap();
    let key = content_key(7);
    store.put_contents(&[(key, Envelope { nonce: [0; 12], sealed: planted.to_vec() })]).unwrap();
    store.retain_contents(&|_| false).unwrap();
    store.save_checkpoint(&Checkpoint::default()).unwrap();
    store.content(key).unwrap();
    let heard = heard.lock();
    assert_eq!(heard.len(), 4, "two entries, a content and a checkpoint");
    let holds = |bytes: &&Vec<u8>| bytes.windows(planted.len()).any(|window| window == planted);
    assert_eq!(heard.iter().filter(holds).count(), 1, "dropped since, and told all the same");
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_loses_what_was_not_synced_and_nothing_else() {
    let disk = ModelDisk::default();
    disk.set_sync_time(SYNC);
    let (mut log, store) = (disk.log().unwrap(), disk.store());
    let began = Instant::now();
    log.save_vote(&Vote::new(1, 1)).await.unwrap();
    assert_eq!(began.elapsed(), SYNC);
    let first = append(&mut log, vec![entry(1, 0), entry(1, 1)]).await.unwrap();
    first.await.unwrap().unwrap();
    assert_eq!((began.elapsed(), disk.unsynced()), (SYNC * 2, 0));
    store.put_contents(&contents(1)).unwrap();
    store.sync().unwrap();
    store.put_contents(&contents(2)).unwrap();
    let mut second = append(&mut log, vec![entry(1, 2)]).await.unwrap();
    assert!((&mut second).now_or_never().is_none() && disk.unsynced() == 2);
    assert_eq!(indexes(&mut log).await, [0, 1, 2]);
    disk.cut_power();
    tokio::time::sleep(SYNC * 2).await;
    assert!(!matches!(second.await, Ok(Ok(()))), "what is lost was never acknowledged");
    assert!(log.read_vote().await.is_err(), "the dead process reads nothing more");

    let (mut log, store) = (disk.log().unwrap(), disk.store());
    assert_eq!(indexes(&mut log).await, [0, 1]);
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(1, 1)));
    assert!(
        store.content(content_key(1)).unwrap().is_some() && store.content(content_key(2)).unwrap().is_none()
    );
    // Of three writes the first two reach the disk.
    for index in 2..5 {
        append(&mut log, vec![entry(2, index)]).await.unwrap();
    }
    disk.cut_power_keeping(2);
    assert_eq!(indexes(&mut disk.log().unwrap()).await, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_kill_keeps_what_was_written() {
    let disk = ModelDisk::default();
    disk.set_sync_time(SYNC);
    let mut log = disk.log().unwrap();
    append(&mut log, (0..4).map(|index| entry(1, index)).collect()).await.unwrap();
    disk.kill();
    assert!(append(&mut log, vec![entry(1, 4)]).await.is_err());
    let mut log = disk.log().unwrap();
    // What the next process has found stays, whatever comes.
    disk.cut_power();
    assert!(log.truncate_after(None).await.is_err());
    let mut log = disk.log().unwrap();
    assert_eq!(indexes(&mut log).await, [0, 1, 2, 3]);
    log.truncate_after(Some(log_id(1, 2))).await.unwrap();
    log.purge(log_id(1, 0)).await.unwrap();
    let hole = append(&mut log, vec![entry(1, 4)]).await.unwrap_err().to_string();
    assert!(hole.contains("entry 4 was appended where 3 belongs"), "{hole}");
    disk.cut_power();
    assert_eq!(indexes(&mut disk.log().unwrap()).await, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_is_the_end_until_the_next_process() {
    let disk = ModelDisk::default();
    let (mut log, store) = (disk.log().unwrap(), disk.store());
    log.save_vote(&Vote::new(1, 1)).await.unwrap();
    disk.set_fault(Some(DiskFault::Fails));
    let told = append(&mut log, vec![entry(1, 0)]).await.unwrap();
    assert!(told.await.unwrap().is_err());
    disk.set_fault(None);
    assert!(append(&mut log, vec![entry(1, 1)]).await.is_err());
    assert!(log.save_vote(&Vote::new(2, 1)).await.is_err());
    assert!(store.sync().is_err() && store.save_checkpoint(&Checkpoint::default()).is_err());
    disk.kill();
    let mut log = disk.log().unwrap();
    assert_eq!((indexes(&mut log).await, log.read_vote().await.unwrap()), (vec![], Some(Vote::new(1, 1))));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_takes_nothing_and_a_hung_one_says_nothing() {
    let disk = ModelDisk::default();
    let (mut log, store) = (disk.log().unwrap(), disk.store());
    disk.set_fault(Some(DiskFault::Full));
    let kinds = [
        append(&mut log, vec![entry(1, 0)]).await.unwrap_err().kind(),
        log.save_vote(&Vote::new(1, 1)).await.unwrap_err().kind(),
        store.put_contents(&contents(1)).unwrap_err().kind(),
        store.save_checkpoint(&Checkpoint::default()).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [io::ErrorKind::StorageFull; 4]);
    disk.set_fault(None);
    assert_eq!((indexes(&mut log).await, log.read_vote().await.unwrap()), (vec![], None));

    disk.set_hung(true);
    let mut told = append(&mut log, vec![entry(1, 0)]).await.unwrap();
    let vote = Vote::new(1, 1);
    let vote = tokio::time::timeout(limits::IMPORT, log.save_vote(&vote)).await;
    assert!(vote.is_err() && (&mut told).now_or_never().is_none() && disk.unsynced() == 2);
    disk.set_hung(false);
    told.await.unwrap().unwrap();
    assert_eq!(disk.unsynced(), 0);
}

async fn member(disk: &ModelDisk) -> Consensus {
    let link = Arc::new(Link { from: M1, wires: Arc::<Wires>::default() });
    let log = disk.log().unwrap();
    Consensus::start(M1, log, disk.store(), link, UNHURRIED).await.expect("starts")
}

/// What a member has acknowledged is there after a power cut; and no disk, no answer.
#[tokio::test(start_paused = true)]
async fn a_member_answers_for_what_is_durable() {
    let disk = ModelDisk::default();
    disk.set_sync_time(SYNC);
    let first = member(&disk).await;
    first.bootstrap(samples::bootstrap()).await.unwrap();
    let began = Instant::now();
    let (mut index, _) = first.propose(samples::draw()).await.unwrap();
    assert!(began.elapsed() >= SYNC);
    for _ in 0..20 {
        (index, _) = first.propose(samples::draw()).await.unwrap();
    }
    disk.set_hung(true);
    assert!(tokio::time::timeout(limits::IMPORT, first.propose(samples::draw())).await.is_err());
    disk.cut_power();
    disk.set_hung(false);
    let second = member(&disk).await;
    second.bootstrap(samples::bootstrap()).await.unwrap();
    assert!(second.agreed().read(State::applied) >= index);
    disk.set_fault(Some(DiskFault::Fails));
    assert!(matches!(second.propose(samples::draw()).await, Err(ConsensusError::Stopped(_))));
}
