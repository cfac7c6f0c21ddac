//! What members say: who leads, who is in sync, whether a new key is usable at each of them, and in the end what each has.

use super::ask::Member;
use super::cluster::Cluster;
use super::recorder::Recorder;
use crate::history::Event;
use crate::limits;
use crate::nemesis::events;
use crate::watch::{self, News, Tries, Wanted};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{LogIndex, MemberId};
use keyraft_engine::wire::GroupStatus;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is known of who leads.
#[derive(Debug)]
pub struct Look {
    /// Every member's ids, by its place; the last is the present one. A member that joins anew gets another.
    ids: Mutex<Vec<Vec<MemberId>>>,
    count: usize,
    /// The primary's place; as many as there are members if nobody knows.
    primary: AtomicUsize,
}

impl Look {
    /// Asks every member for its id.
    pub fn begin(cluster: &Cluster) -> Result<Self, String> {
        let count = cluster.count();
        let look = Self { ids: Mutex::new(vec![Vec::new(); count]), count, primary: AtomicUsize::new(count) };
        (0..count).try_for_each(|index| look.learn(cluster, index))?;
        Ok(look)
    }

    /// Asks a member for its id.
    pub fn learn(&self, cluster: &Cluster, index: usize) -> Result<(), String> {
        let id = Member::new(cluster.socket(index)).status(limits::COMMAND)?.answered_by;
        self.ids().get_mut(index).into_iter().for_each(|ids| ids.push(id));
        Ok(())
    }

    fn ids(&self) -> MutexGuard<'_, Vec<Vec<MemberId>>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member's present id.
    pub fn id(&self, index: usize) -> Option<MemberId> {
        self.ids().get(index)?.last().copied()
    }

    /// The primary's place, as last seen.
    pub fn primary(&self) -> Option<usize> {
        Some(self.primary.load(Ordering::Relaxed)).filter(|place| *place < self.count)
    }

    fn place(&self, id: MemberId) -> Option<usize> {
        self.ids().iter().position(|known| known.contains(&id))
    }

    /// How far the foremost has applied the log, if every member has as far as `applied`, and sees all in sync, no more
    /// unsettled than so many clients have under way, and a primary.
    pub fn whole(&self, cluster: &Cluster, clients: usize, applied: LogIndex) -> Result<LogIndex, String> {
        let wanted = Wanted { members: self.count, unsettled: clients as u64, applied };
        let mut foremost = applied;
        for index in 0..self.count {
            let now = Member::new(cluster.socket(index)).status(limits::LOOK);
            let now = now.map_err(|why| format!("member {index}: {why}"))?;
            foremost = foremost.max(watch::whole(index, &now, wanted)?);
        }
        Ok(foremost)
    }

    /// Looks at one member again and again until the end.
    pub fn watch(
        &self,
        index: usize,
        socket: PathBuf,
        snapshot: PathBuf,
        recorder: &Recorder,
        end: &AtomicBool,
    ) {
        let mut member = Member::new(socket);
        let written = || std::fs::metadata(&snapshot).and_then(|file| file.modified()).ok();
        // One from before the run is none of the run's.
        let before = written();
        while !end.load(Ordering::Relaxed) {
            if let Ok(status) = member.status(limits::LOOK) {
                self.note(index, &status, written() > before, recorder);
            }
            std::thread::sleep(limits::LOOK_EVERY);
        }
    }

    fn note(&self, index: usize, status: &GroupStatus, snapshot: bool, recorder: &Recorder) {
        let primary = status.primary.and_then(|id| self.place(id));
        if let Some(primary) = primary {
            self.primary.store(primary, Ordering::Relaxed);
        }
        recorder.take(watch::seen(index, status, snapshot, |id| self.place(id)));
    }

    /// Uses each key that was just answered at one member, and now and then one that was answered lately; and each that was
    /// just deleted.
    pub fn probe(&self, index: usize, socket: PathBuf, news: &Receiver<News>, recorder: &Recorder) {
        let (mut member, mut tries) = (Member::new(socket), Tries::default());
        loop {
            // Keys are tried also while nothing new is answered.
            let first = match news.recv_timeout(limits::LOOK_EVERY) {
                Ok(one) => Some(one),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let due = tries.next(first.into_iter().chain(news.try_iter()));
            let Some(id) = self.id(index) else { continue };
            for (function, object) in due {
                let stands = |member: &mut Member| {
                    let status = member.status(limits::LOOK);
                    status.is_ok_and(|status| watch::is_in_sync(&status, id))
                };
                let before = stands(&mut member);
                let used = member.use_key(object, id, limits::LOOK);
                let after = stands(&mut member);
                recorder.take(watch::tried(function, index, object, (before, &used, after)));
            }
        }
    }

    /// Every member lists its keys and uses each, while nothing changes: what a client gave up may still be carried by a
    /// member. A group that does not come to rest in time is looked at as it is, and that it does not is written down.
    pub fn last(&self, cluster: &Cluster, recorder: &Recorder, stop: &AtomicBool) {
        let began = Clock.now();
        let level = || {
            let foremost = self.whole(cluster, 0, LogIndex(0))?;
            // If nobody is before that now, all have applied just that.
            watch::stood_still(Ok(foremost), self.whole(cluster, 0, foremost))
        };
        while !stop.load(Ordering::Relaxed) {
            let is_last = Clock.now() >= began + limits::REST;
            let before = level();
            if before.is_err() && !is_last {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
            let seen = self.all_keys(cluster, stop);
            let restless = watch::restless(before, level());
            if restless.is_some() && !is_last {
                continue;
            }
            seen.into_iter().for_each(|event| recorder.take(event));
            if restless.is_some() {
                recorder.take(events::whole(Clock.now().saturating_duration_since(began), restless));
            }
            return;
        }
    }

    /// Every member's list of its keys, and a use of each. Of one that does not answer nothing is said, and checkers miss
    /// it. A run that is stopped sees no more, and one whose members answer nothing not much more.
    fn all_keys(&self, cluster: &Cluster, stop: &AtomicBool) -> Vec<Event> {
        let mut seen = Vec::new();
        let late = Clock.now() + limits::LAST_LOOK * 10;
        for index in 0..self.count {
            let Some(id) = self.id(index) else { continue };
            let mut member = Member::new(cluster.socket(index));
            let rows = patiently(stop, || member.list(limits::LOOK * 5));
            let Ok(rows) = rows else { continue };
            seen.push(watch::listed(index, &rows));
            for row in rows.iter().take_while(|_| !stop.load(Ordering::Relaxed) && Clock.now() < late) {
                let object = i64::try_from(row.object.0).unwrap_or(i64::MAX);
                let proof = patiently(stop, || member.use_key(object, id, limits::LOOK * 5).proof());
                // Who cannot use a key has no proof of it, and the checker says so.
                let Ok(output) = proof else { continue };
                seen.push(watch::proved(index, object, &output));
            }
        }
        seen
    }
}

/// Tries again until [`limits::LAST_LOOK`] is over.
fn patiently<T>(stop: &AtomicBool, mut ask: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let end = Clock.now() + limits::LAST_LOOK;
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(why) if Clock.now() >= end || stop.load(Ordering::Relaxed) => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
