//! What members say: who leads, who is in sync, whether a new key is usable at each of them, and in the end what each has.
//! The same events as those of real members.

use super::network::{Network, guard};
use super::recorder::Recorder;
use super::tokens;
use super::world::{Unanswered, World, asks};
use crate::history::{Event, Function};
use crate::limits;
use crate::nemesis::events;
use crate::watch::{self, News, Tries, Used, Wanted, use_at};
use keyraft_engine::domain::LogIndex;
use keyraft_engine::wire::{Answer, ClientRequest, GroupStatus, ObjectRow};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// Between two tries of the last look.
const AGAIN: Duration = Duration::from_millis(100);

/// What is known of who leads.
#[derive(Debug, Default)]
pub struct Look {
    primary: Mutex<Option<usize>>,
}

async fn status(network: &Network, place: usize, limit: Duration) -> Result<GroupStatus, String> {
    match asks(network.clone(), place, ClientRequest::Status, limit).await {
        Ok(Answer::Status(status)) => Ok(*status),
        Ok(_) => Err("it answered another question".into()),
        Err(Unanswered::Failed(failure)) => Err(failure.to_string()),
        Err(Unanswered::Silent(why)) => Err(why),
    }
}

async fn use_key(network: &Network, place: usize, object: i64, limit: Duration) -> Used {
    let Some(member) = network.member_at(place) else { return Used::Silent("nobody is there".into()) };
    match asks(network.clone(), place, use_at(object, member), limit).await {
        Ok(answer) => Used::answered(Ok(answer)),
        Err(Unanswered::Failed(failure)) => Used::answered(Err(failure)),
        Err(Unanswered::Silent(why)) => Used::Silent(why),
    }
}

impl Look {
    /// The primary's place, as last seen.
    pub fn primary(&self) -> Option<usize> {
        *guard(&self.primary)
    }

    /// Asks one member now and then how it sees the group, for as long as its machine lives.
    pub async fn watch(
        self: Arc<Self>,
        network: Network,
        recorder: Arc<Recorder>,
        place: usize,
        disk: Snapshots,
    ) {
        loop {
            tokio::time::sleep(limits::LOOK_EVERY).await;
            if let Ok(status) = status(&network, place, limits::LOOK).await {
                self.note(&network, &recorder, place, &status, disk());
            }
        }
    }

    fn note(
        &self,
        network: &Network,
        recorder: &Recorder,
        place: usize,
        status: &GroupStatus,
        snapshot: bool,
    ) {
        let primary = status.primary.and_then(|member| network.place_of(member));
        if primary.is_some() {
            *guard(&self.primary) = primary;
        }
        recorder.take(watch::seen(place, status, snapshot, |member| network.place_of(member)));
    }

    /// Uses each key that was just answered at one member, and now and then one that was answered lately; and each that was
    /// just deleted.
    pub async fn probe(
        network: Network,
        recorder: Arc<Recorder>,
        place: usize,
        mut news: mpsc::UnboundedReceiver<News>,
    ) {
        let mut tries = Tries::default();
        loop {
            // A member that has come back must have what was answered before, also while nothing new is answered.
            let first = match tokio::time::timeout(limits::LOOK_EVERY, news.recv()).await {
                Ok(None) => return,
                Ok(news) => news,
                Err(_) => None,
            };
            let more = std::iter::from_fn(|| news.try_recv().ok());
            let next = match first {
                Some(first) => tries.next(std::iter::once(first).chain(more)),
                None => tries.next(std::iter::empty()),
            };
            for (function, object) in next {
                probe_one(&network, &recorder, place, function, object).await;
            }
        }
    }
}

async fn probe_one(network: &Network, recorder: &Recorder, place: usize, function: Function, object: i64) {
    let before = is_in_sync(network, place).await;
    let used = use_key(network, place, object, limits::LOOK).await;
    let after = is_in_sync(network, place).await;
    recorder.take(watch::tried(function, place, object, (before, &used, after)));
}

/// Says whether a machine's disk has taken a snapshot since the run began.
pub type Snapshots = Box<dyn Fn() -> bool + Send>;

async fn is_in_sync(network: &Network, place: usize) -> bool {
    let Some(member) = network.member_at(place) else { return false };
    let status = status(network, place, limits::LOOK).await;
    status.is_ok_and(|status| watch::is_in_sync(&status, member))
}

/// How far all have applied the log, if every member sees all in sync, nothing unsettled, and a primary, and no connection
/// between two of them is as good as broken.
///
/// # Errors
/// As [`World::step`]; inside, what is missing.
pub fn whole(world: &mut World) -> Result<Result<LogIndex, String>, String> {
    let all = world.machines.len();
    if !world.network.is_clear() {
        return Ok(Err("a message is lost, and its connection not given up yet".into()));
    }
    // What one had applied before another is asked, that one must have applied too: a member may not have heard yet how far
    // it is behind.
    let mut wanted = Wanted { members: all, unsettled: 0, applied: LogIndex(0) };
    for place in (0..all).chain(0..all) {
        let network = world.network.clone();
        let asked =
            world.wait(async move { status(&network, place, limits::LOOK).await }, limits::LOOK * 2)?;
        let now = match asked {
            Some(Ok(now)) => now,
            Some(Err(why)) => return Ok(Err(format!("member {place}: {why}"))),
            None => return Ok(Err(format!("member {place} says nothing"))),
        };
        match watch::whole(place, &now, wanted) {
            Ok(applied) => wanted.applied = applied,
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(wanted.applied))
}

/// How far all have applied the log, if the group is whole and every member stands at the same index.
///
/// # Errors
/// As [`whole`].
fn level(world: &mut World) -> Result<Result<LogIndex, String>, String> {
    // Who answers in the last round has applied all that anybody had at the end of the first.
    let before = whole(world)?;
    Ok(watch::stood_still(before, whole(world)?))
}

/// Every member lists its keys and uses each, and its token's copies are counted, all of it while nothing changes: what a
/// client gave up may still be carried by a member. A group that does not come to rest in time is looked at as it is, and
/// that it does not is written down.
///
/// # Errors
/// As [`World::step`].
pub fn last(world: &mut World, recorder: &Recorder) -> Result<(), String> {
    let began = world.now();
    loop {
        let is_last = world.now() >= began + limits::REST;
        let before = level(world)?;
        if before.is_err() && !is_last {
            world.rest(AGAIN)?;
            continue;
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let look = all_keys(world.network.clone(), world.machines.len(), seen.clone());
        // What was not seen by then checkers miss.
        world.wait(look, limits::LAST_LOOK * 10)?;
        let held = tokens::held(&world.machines);
        let restless = watch::restless(before, level(world)?);
        if restless.is_some() && !is_last {
            continue;
        }
        std::mem::take(&mut *guard(&seen)).into_iter().chain(held).for_each(|event| recorder.take(event));
        if restless.is_some() {
            recorder.take(events::whole(world.now().saturating_sub(began), restless));
        }
        return Ok(());
    }
}

/// Every member's list of its keys, and a use of each, as it comes to be `seen`. Of one that does not answer nothing is
/// said, and checkers miss it.
async fn all_keys(network: Network, members: usize, seen: Arc<Mutex<Vec<Event>>>) {
    for place in 0..members {
        let Some(rows) = patiently(|| list(&network, place)).await else { continue };
        guard(&seen).push(watch::listed(place, &rows));
        for row in &rows {
            let object = i64::try_from(row.object.0).unwrap_or(i64::MAX);
            let proof =
                patiently(|| async { use_key(&network, place, object, limits::LOOK * 5).await.proof() });
            // Who cannot use a key has no proof of it, and the checker says so.
            let Some(output) = proof.await else { continue };
            guard(&seen).push(watch::proved(place, object, &output));
        }
    }
}

async fn list(network: &Network, place: usize) -> Result<Vec<ObjectRow>, String> {
    let mut rows: Vec<ObjectRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| row.object);
        let request = ClientRequest::List { label: None, after };
        match asks(network.clone(), place, request, limits::LOOK * 5).await {
            Ok(Answer::Objects { rows: more_rows, more }) => {
                let end = !more || more_rows.is_empty();
                rows.extend(more_rows);
                if end {
                    return Ok(rows);
                }
            }
            Ok(_) => return Err("it answered another question".into()),
            Err(Unanswered::Failed(failure)) => return Err(failure.to_string()),
            Err(Unanswered::Silent(why)) => return Err(why),
        }
    }
}

/// Tries again until [`limits::LAST_LOOK`] is over.
async fn patiently<T, F: Future<Output = Result<T, String>>>(mut ask: impl FnMut() -> F) -> Option<T> {
    let end = tokio::time::Instant::now() + limits::LAST_LOOK;
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(_) if tokio::time::Instant::now() >= end => return None,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}
