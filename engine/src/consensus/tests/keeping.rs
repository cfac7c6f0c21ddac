use super::samples;
use super::stand_ins::MemoryStore;
use crate::consensus::agreed::Dirty;
use crate::consensus::keeper::Keeper;
use crate::consensus::store::{Checkpoint, Store};
use crate::domain::{ContentKey, LogIndex};
use crate::state::Command;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

struct Kept {
    store: Arc<MemoryStore>,
    keeper: Arc<Keeper>,
}

impl Kept {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let keeper = Arc::new(Keeper::open(store.clone()).expect("opens"));
        Self { store, keeper }
    }

    async fn apply(&self, command: Command) {
        let mut live = Checkpoint::clone(&self.keeper.agreed().live());
        let index = live.last.map_or(1, |last| last.index + 1);
        let effects = live.state.apply(LogIndex(index), command);
        live.last = Some(samples::log_id(1, index));
        self.keeper.publish(live, effects.contents, Dirty::default()).await.expect("publishes");
    }

    async fn begin(&self, ids: u64) {
        self.apply(Command::Bootstrap(Box::new(samples::bootstrap()))).await;
        self.apply(samples::reserve(ids)).await;
    }

    async fn put(&self, object: u64) {
        self.apply(samples::put(object, 10)).await;
        self.apply(samples::settle(object)).await;
    }

    async fn drop_object(&self, object: u64) {
        self.apply(samples::remove(object)).await;
        self.apply(samples::settle_removal(object)).await;
    }

    async fn save(&self) -> Arc<Checkpoint> {
        self.keeper.save(self.keeper.agreed().live()).await.expect("saves")
    }

    fn collect(&self) -> u64 {
        self.keeper.collect().expect("collects")
    }

    fn contents(&self) -> BTreeSet<ContentKey> {
        self.store.contents().into_keys().collect()
    }
}

fn keys(objects: &[u64]) -> BTreeSet<ContentKey> {
    objects.iter().map(|object| samples::content_key(*object)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_nothing_names_is_dropped() {
    let kept = Kept::new();
    kept.begin(10).await;
    for object in 1..=4 {
        kept.put(object).await;
    }
    kept.apply(samples::put(5, 10)).await;
    drop(kept.save().await);
    kept.drop_object(1).await;
    assert_eq!(kept.collect(), 0, "the checkpoint on disk names it");
    assert_eq!(kept.contents(), keys(&[1, 2, 3, 4, 5]));

    let sending = kept.keeper.current().expect("saved");
    drop(kept.save().await);
    assert_eq!(kept.collect(), 0, "a snapshot in use names it");
    drop(sending);
    assert_eq!(kept.collect(), 1);
    assert_eq!(kept.contents(), keys(&[2, 3, 4, 5]), "a pending one stays too");

    // Named by the live state alone: newer than the checkpoint.
    kept.put(6).await;
    assert_eq!(kept.collect(), 0);
    // Left behind by a member that ended in the middle.
    let envelope = kept.store.contents()[&samples::content_key(2)].clone();
    kept.store.put_contents(&[(samples::content_key(9), envelope)]).expect("puts");
    assert_eq!(kept.collect(), 1);
    assert_eq!(kept.contents(), keys(&[2, 3, 4, 5, 6]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_checkpoint_never_replaces_a_newer_one() {
    let kept = Kept::new();
    kept.begin(10).await;
    let old = kept.keeper.agreed().live();
    kept.put(1).await;
    let new = kept.save().await;
    let saved = kept.keeper.save(old).await.expect("nothing to do");
    assert_eq!(saved.last, new.last);
    assert_eq!(kept.store.load_checkpoint().expect("loads"), Some(Checkpoint::clone(&new)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_on_their_way_in_are_spared() {
    let kept = Kept::new();
    kept.begin(10).await;
    kept.put(1).await;
    let envelope = kept.store.contents()[&samples::content_key(1)].clone();
    let claim = kept.keeper.put(vec![(samples::content_key(2), envelope)]).await.expect("puts");
    assert_eq!(kept.collect(), 0, "claimed");
    drop(claim);
    assert_eq!(kept.collect(), 1);
}

/// A content that is just being dropped is named again: by a replay, or by a snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_on_their_way_out_are_waited_for() {
    let kept = Arc::new(Kept::new());
    kept.begin(10).await;
    kept.put(1).await;
    let envelope = kept.store.contents()[&samples::content_key(1)].clone();
    kept.store.put_contents(&[(samples::content_key(3), envelope)]).expect("puts");
    *kept.store.slow_drop.lock() = Duration::from_millis(100);
    let collector = std::thread::spawn({
        let kept = kept.clone();
        move || kept.collect()
    });
    while !kept.store.dropping.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    // Others are not held up.
    kept.put(2).await;
    assert!(!collector.is_finished());
    kept.put(3).await;
    assert_eq!(collector.join().expect("collects"), 1);
    assert_eq!(kept.contents(), keys(&[1, 2, 3]));
}

/// Replays what a store holds already, as after a restart, while the collector runs all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applying_and_collecting_never_lose_a_content() {
    let kept = Arc::new(Kept::new());
    let end = Arc::new(AtomicBool::new(false));
    for object in 1..=250 {
        let Command::Put { objects, .. } = samples::put(object, 10) else { unreachable!() };
        let contents: Vec<_> = objects.into_iter().map(|new| (new.content, new.envelope)).collect();
        kept.store.put_contents(&contents).expect("puts");
    }
    let collector = {
        let (kept, end) = (kept.clone(), end.clone());
        std::thread::spawn(move || {
            let mut rounds = 0;
            while !end.load(Ordering::Relaxed) {
                kept.collect();
                rounds += 1;
            }
            rounds
        })
    };
    kept.begin(250).await;
    for object in 1..=250 {
        kept.put(object).await;
        assert!(kept.contents().contains(&samples::content_key(object)), "{object} is lost");
        if object % 3 == 0 {
            kept.drop_object(object).await;
        }
    }
    end.store(true, Ordering::Relaxed);
    let rounds = collector.join().expect("collects");
    kept.collect();
    let named: BTreeSet<ContentKey> = kept.keeper.agreed().live().state.contents().collect();
    assert_eq!(kept.contents(), named, "after {rounds} rounds");
}
