//! openraft's own suite, and what this store promises beyond it.

mod support;

use futures::executor::block_on;
use futures::{Stream, StreamExt};
use keyraft_engine::consensus::store::{Checkpoint, Store};
use keyraft_engine::consensus::types::{LogId, Membership, TypeConfig, Vote};
use keyraft_storage::{SledLog, Storage, StorageError, limits};
use openraft::storage::{EntryResponder, RaftLogStorage, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{EntryPayload, RaftLogReader, RaftSnapshotBuilder};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{append, append_later, content, entry, envelope, id};

/// The least state machine that openraft's suite accepts: it remembers where it is.
#[derive(Clone, Default)]
struct Machine {
    last: Option<LogId>,
    membership: Membership,
    snapshot: Option<SnapshotMetaOf<TypeConfig>>,
}

struct Builder(std::sync::Arc<parking_lot::Mutex<Machine>>);

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, ()>> {
        let mut machine = self.0.lock();
        let meta = SnapshotMetaOf::<TypeConfig> {
            last_log_id: machine.last,
            last_membership: machine.membership.clone(),
        };
        machine.snapshot = Some(meta.clone());
        Ok(SnapshotOf::<TypeConfig, ()> { meta, snapshot: () })
    }
}

#[derive(Default)]
struct Shared(std::sync::Arc<parking_lot::Mutex<Machine>>);

impl RaftStateMachine<TypeConfig> for Shared {
    type SnapshotData = ();
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, Membership)> {
        let machine = self.0.lock();
        Ok((machine.last, machine.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + openraft::OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, _) = item?;
            let mut machine = self.0.lock();
            machine.last = Some(entry.log_id);
            if let EntryPayload::Membership(membership) = entry.payload {
                machine.membership = Membership::new(Some(entry.log_id), membership);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder(self.0.clone())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMetaOf<TypeConfig>, (): ()) -> io::Result<()> {
        let mut machine = self.0.lock();
        machine.last = meta.last_log_id;
        machine.membership = meta.last_membership.clone();
        machine.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<TypeConfig, ()>>> {
        Ok(self.0.lock().snapshot.clone().map(|meta| SnapshotOf::<TypeConfig, ()> { meta, snapshot: () }))
    }
}

struct Folders;

impl StoreBuilder<TypeConfig, SledLog, Shared, tempfile::TempDir> for Folders {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, SledLog, Shared), openraft::StorageError<TypeConfig>> {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = open(folder.path());
        Ok((folder, storage.log, Shared::default()))
    }
}

fn open(folder: &Path) -> Storage {
    Storage::open(folder).expect("opens")
}

fn refusal(folder: &Path) -> StorageError {
    Storage::open(folder).err().expect("must be refused")
}

fn tags(log: &mut SledLog) -> Vec<u64> {
    let entries = block_on(log.try_get_log_entries(..)).expect("reads");
    entries.iter().map(|e| e.log_id.index).collect()
}

fn assert_no_blobs(folder: &Path) {
    let blobs = std::fs::read_dir(folder.join("store/blobs")).expect("sled makes it").count();
    assert_eq!(blobs, 0, "a value went into a file that sled never syncs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_suite() {
    Suite::test_all(Folders).await.expect("openraft's suite passes");
}

#[test]
fn everything_is_found_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = Checkpoint { last: Some(id(2, 3)), ..Checkpoint::default() };
    {
        let mut storage = open(folder.path());
        append(&mut storage.log, (0..10).map(|i| entry(2, i, i, 100)).collect()).expect("appends");
        block_on(storage.log.save_vote(&Vote::new_committed(2, 1))).expect("saves");
        block_on(storage.log.truncate_after(Some(id(2, 7)))).expect("truncates");
        block_on(storage.log.purge(id(2, 2))).expect("purges");
        block_on(storage.log.save_committed(Some(id(2, 6)))).expect("saves");
        storage
            .store
            .put_contents(&[(content(1), envelope(1, 9000)), (content(2), envelope(2, 10))])
            .expect("puts");
        assert_eq!(storage.store.retain_contents(&|key| key == content(1)).expect("retains"), 1);
        storage.store.save_checkpoint(&checkpoint).expect("saves");
    }
    let mut storage = open(folder.path());
    let state = block_on(storage.log.get_log_state()).expect("reads");
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(2, 2)), Some(id(2, 7))));
    assert_eq!(tags(&mut storage.log), [3, 4, 5, 6, 7]);
    assert_eq!(block_on(storage.log.read_vote()).expect("reads"), Some(Vote::new_committed(2, 1)));
    assert_eq!(block_on(storage.log.read_committed()).expect("reads"), Some(id(2, 6)));
    assert_eq!(storage.store.content(content(1)).expect("reads"), Some(envelope(1, 9000)));
    assert_eq!(storage.store.content(content(2)).expect("reads"), None);
    assert_eq!(storage.store.load_checkpoint().expect("loads"), Some(checkpoint));
    let hole = append(&mut storage.log, vec![entry(3, 9, 9, 10)]).expect_err("a hole").to_string();
    assert!(hole.contains("entry 9 was appended where 8 belongs"), "{hole}");
}

#[test]
fn one_process_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = open(folder.path());
    assert!(matches!(refusal(folder.path()), StorageError::InUse { .. }));
    assert!(refusal(folder.path()).to_string().contains("in use by another process"));
}

#[test]
fn every_size_around_a_part_is_kept_and_makes_no_blob() {
    let folder = tempfile::tempdir().expect("a folder");
    let sizes: Vec<usize> = (3900..4200).step_by(7).chain([0, 1, 40_000, 200_000, 600_000]).collect();
    {
        let mut storage = open(folder.path());
        for (index, size) in sizes.iter().enumerate() {
            append(&mut storage.log, vec![entry(1, index as u64, index as u64, *size)]).expect("appends");
            let one = [(content(index as u64), envelope(index as u64, *size))];
            storage.store.put_contents(&one).expect("puts");
        }
        storage.store.sync().expect("syncs");
    }
    assert_no_blobs(folder.path());
    let mut storage = open(folder.path());
    let entries = block_on(storage.log.try_get_log_entries(..)).expect("reads");
    for (index, size) in sizes.iter().enumerate() {
        assert_eq!(entries[index], entry(1, index as u64, index as u64, *size));
        let kept = storage.store.content(content(index as u64)).expect("reads");
        assert_eq!(kept, Some(envelope(index as u64, *size)));
    }
    let long = entry(1, sizes.len() as u64, 0, limits::RECORD_MAX_BYTES + 1);
    assert!(
        append(&mut storage.log, vec![long]).expect_err("too long").to_string().contains("cannot be stored")
    );
}

/// Reads meet the same entries in memory, on disk, and across the border, whole or in pieces.
#[test]
fn reads_cross_from_disk_to_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut storage = open(folder.path());
    let size = limits::TAIL_MAX_BYTES / 16;
    for index in 0..40 {
        append(&mut storage.log, vec![entry(1, index, index, size)]).expect("appends");
    }
    for (start, end) in [(0, 40), (3, 5), (20, 30), (39, 40), (10, 39)] {
        let entries = block_on(storage.log.try_get_log_entries(start..end)).expect("reads");
        let wanted: Vec<_> = (start..end).map(|i| entry(1, i, i, size)).collect();
        assert!(entries == wanted, "{start}..{end}");
        let some = block_on(storage.log.limited_get_log_entries(start, end)).expect("reads");
        assert!(!some.is_empty() && some[..] == wanted[..some.len()]);
        assert!(some.len() * size <= limits::READ_MAX_BYTES);
        let streamed: Vec<_> =
            block_on(async { storage.log.entries_stream(start..end).await.collect().await });
        let streamed: Vec<_> = streamed.into_iter().map(|e| e.expect("reads")).collect();
        assert!(streamed == wanted, "{start}..{end}");
    }
}

#[expect(clippy::disallowed_methods, reason = "measures; nothing is decided by it")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// A log that is written and purged for long stays small, opens fast, and keeps what it should.
#[test]
fn purging_keeps_it_small() {
    let rounds: u64 = std::env::var("KEYRAFT_SOAK_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(60);
    let folder = tempfile::tempdir().expect("a folder");
    let began = now();
    {
        let mut storage = open(folder.path());
        for round in 0..rounds {
            let mut waiting = Vec::new();
            for batch in 0..16 {
                let from = round * 512 + batch * 32;
                let entries = (from..from + 32).map(|i| entry(1, i, i, 900)).collect();
                waiting.push(append_later(&mut storage.log, entries).expect("appends"));
            }
            for receiver in waiting {
                block_on(receiver).expect("answers").expect("durable");
            }
            if round > 1 {
                block_on(storage.log.purge(id(1, round * 512 - 512))).expect("purges");
            }
        }
    }
    let size = std::fs::metadata(folder.path().join("store/db")).expect("exists").len();
    assert!(size < 48 * 1024 * 1024, "{size} bytes for a log of 1,024 entries");
    let (written, reopening) = (began.elapsed(), now());
    let mut storage = open(folder.path());
    let reopened = reopening.elapsed();
    println!("{} entries in {written:?}, reopened in {reopened:?}, {size} bytes", rounds * 512);
    // Generous: the machine may be busy. An open that replays what was purged would take longer by far.
    assert!(reopened.as_secs() < 5, "reopening took {reopened:?}");
    let kept = tags(&mut storage.log);
    assert_eq!((kept.first(), kept.last()), (Some(&(rounds * 512 - 1023)), Some(&(rounds * 512 - 1))));
    assert_no_blobs(folder.path());
}

fn with_sled<T>(folder: &Path, act: impl FnOnce(&sled::Db) -> T) -> T {
    let db = sled::Config::new().path(folder.join("store")).flush_every_ms(None).open().expect("opens");
    let result = act(&db);
    db.flush().expect("flushes");
    result
}

fn part(index: u64, part: u16) -> Vec<u8> {
    [&[1][..], &index.to_be_bytes(), &part.to_be_bytes()].concat()
}

fn ten_entries(folder: &Path) {
    let mut storage = open(folder);
    append(&mut storage.log, (0..10).map(|i| entry(1, i, i, 9000)).collect()).expect("appends");
}

/// A batch that a crash tore: entry 11 is whole, 12 lost a part, 13 is whole again. None was acknowledged.
#[test]
fn a_torn_tail_is_cut_back() {
    let folder = tempfile::tempdir().expect("a folder");
    ten_entries(folder.path());
    // An entry's bytes depend on its key, so whole entries are copied from another log.
    let other = tempfile::tempdir().expect("a folder");
    {
        let mut storage = open(other.path());
        append(&mut storage.log, (0..14).map(|i| entry(1, i, i, 9000)).collect()).expect("appends");
    }
    let parts: Vec<(Vec<u8>, Vec<u8>)> = with_sled(other.path(), |db| {
        db.range(part(10, 0)..part(14, 0))
            .map(|kv| kv.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("reads"))
            .collect()
    });
    with_sled(folder.path(), |db| {
        for (key, value) in parts.into_iter().filter(|(key, _)| *key != part(11, 1)) {
            db.insert(key, value).expect("inserts");
        }
    });
    for _ in 0..2 {
        let mut storage = open(folder.path());
        assert_eq!(tags(&mut storage.log), (0..=10).collect::<Vec<_>>());
    }
    let mut storage = open(folder.path());
    append(&mut storage.log, vec![entry(2, 11, 99, 9000)]).expect("appends");
}

#[test]
fn acknowledged_damage_is_refused() {
    type Act = fn(&sled::Db);
    let damage: [(&str, Act); 4] = [
        ("entry 4", |db| drop(db.remove(part(4, 1)))),
        ("entry 9", |db| (0..3).for_each(|p| drop(db.remove(part(9, p))))),
        ("entry 0", |db| drop(db.clear())),
        ("entry 5: its checksum differs", |db| {
            let mut value = db.get(part(5, 0)).expect("reads").expect("is there").to_vec();
            value[100] ^= 4;
            drop(db.insert(part(5, 0), value));
        }),
    ];
    for (expected, act) in damage {
        let folder = tempfile::tempdir().expect("a folder");
        ten_entries(folder.path());
        with_sled(folder.path(), act);
        let error = refusal(folder.path());
        let text = error.to_string();
        assert!(matches!(error, StorageError::Damaged { .. }), "{text}");
        let path = folder.path().display().to_string();
        assert!(
            text.contains(expected) && text.contains(&path) && text.contains("keyraft recover"),
            "{text}"
        );
    }
}

#[test]
fn what_another_version_wrote_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut storage = open(folder.path());
    block_on(storage.log.save_vote(&Vote::new(3, 1))).expect("votes");
    drop(storage);
    with_sled(folder.path(), |db| {
        let key = [2, 0, 0];
        let mut record = db.get(key).expect("reads").expect("there is a vote").to_vec();
        record[0] = 1;
        drop(db.insert(key, record));
    });
    let error = refusal(folder.path());
    assert!(matches!(error, StorageError::Version { found: 1, .. }), "{error}");
    assert!(error.to_string().contains("start the keyraft that wrote it"), "{error}");
}

/// One bit flipped anywhere in sled's file is refused with a remedy, or changed nothing: never a panic, never a
/// shorter log.
#[test]
fn a_flipped_bit_is_never_a_silent_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    ten_entries(folder.path());
    let db = folder.path().join("store/db");
    let snapshots: Vec<_> = files(&folder.path().join("store"));
    let mut outcomes = BTreeSet::new();
    let used =
        snapshots.iter().find(|(p, _)| *p == db).map_or(0, |(_, bytes)| bytes.len().min(110_000)) as u64;
    for at in (0..used).step_by(1499) {
        for (path, bytes) in &snapshots {
            std::fs::write(path, bytes).expect("restores");
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&db).expect("opens");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("reads");
        file.write_all_at(&[byte[0] ^ 0x20], at).expect("writes");
        match Storage::open(folder.path()) {
            Ok(mut storage) => {
                let entries = block_on(storage.log.try_get_log_entries(..)).expect("reads");
                assert!(entries == (0..10).map(|i| entry(1, i, i, 9000)).collect::<Vec<_>>(), "byte {at}");
                outcomes.insert("harmless");
            }
            Err(StorageError::Damaged { .. }) => drop(outcomes.insert("refused")),
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    assert!(outcomes.contains("refused"), "no flip was noticed: {outcomes:?}");
}

fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    std::fs::read_dir(folder)
        .expect("lists")
        .map(|entry| entry.expect("lists").path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).expect("reads")))
        .collect()
}
