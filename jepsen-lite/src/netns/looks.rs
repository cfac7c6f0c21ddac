//! What members say: who leads, who is in sync, whether a new key is usable at each of them, and in the end what each has.

use super::ask::{Member, Used, text};
use super::cluster::Cluster;
use super::recorder::Recorder;
use crate::edn::Value;
use crate::history::{Event, Function};
use crate::limits;
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{AttributeType, MemberId};
use keyraft_engine::wire::GroupStatus;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
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

    /// Fine if every member sees all in sync, no more unsettled than so many clients have under way, and a primary.
    pub fn whole(&self, cluster: &Cluster, clients: usize) -> Result<(), String> {
        for index in 0..self.count {
            let now = Member::new(cluster.socket(index)).status(limits::LOOK);
            let now = now.map_err(|why| format!("member {index}: {why}"))?;
            let in_sync = now.members.iter().filter(|member| member.in_sync).count();
            if in_sync != self.count || now.unsettled > clients as u64 || now.primary.is_none() {
                let (all, unsettled, primary) = (self.count, now.unsettled, now.primary);
                return Err(format!(
                    "member {index} sees {in_sync} of {all} in sync, {unsettled} unsettled, primary {primary:?}"
                ));
            }
        }
        Ok(())
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
        while !end.load(Ordering::Relaxed) {
            if let Ok(status) = member.status(limits::LOOK) {
                self.note(index, &status, snapshot.exists(), recorder);
            }
            std::thread::sleep(limits::LOOK_EVERY);
        }
    }

    fn note(&self, index: usize, status: &GroupStatus, snapshot: bool, recorder: &Recorder) {
        let primary = status.primary.and_then(|id| self.place(id));
        if let Some(primary) = primary {
            self.primary.store(primary, Ordering::Relaxed);
        }
        let number = |number: usize| Value::Int(number as i64);
        let in_sync = status.members.iter().filter(|row| row.in_sync);
        let in_sync = in_sync.filter_map(|row| self.place(row.member)).map(|place| place as i64);
        let value = Value::map([
            ("member", number(index)),
            ("term", Value::Int(i64::try_from(status.term).unwrap_or(i64::MAX))),
            ("primary", primary.map_or(Value::Nil, number)),
            ("leads", Value::Bool(primary == Some(index))),
            ("in-sync", Value::numbers(in_sync)),
            ("applied", Value::Int(i64::try_from(status.applied.0).unwrap_or(i64::MAX))),
            ("snapshots", Value::Int(i64::from(snapshot))),
        ]);
        recorder.take(Event::nemesis(Function::Seen, value));
    }

    /// Uses each key that was just answered at one member.
    pub fn probe(&self, index: usize, socket: PathBuf, fresh: &Receiver<i64>, recorder: &Recorder) {
        let mut member = Member::new(socket);
        while let Ok(mut object) = fresh.recv() {
            let Some(id) = self.id(index) else { continue };
            // While a member hung, many came: the last is tried.
            while let Ok(newer) = fresh.try_recv() {
                object = newer;
            }
            let stands = |member: &mut Member| {
                let status = member.status(limits::LOOK);
                status.is_ok_and(|status| status.members.iter().any(|row| row.member == id && row.in_sync))
            };
            let before = stands(&mut member);
            let used = member.use_key(object, id, limits::LOOK);
            let after = stands(&mut member);
            let result = match used {
                Used::Output(_) => "ok",
                Used::Absent => "absent",
                Used::Silent(_) => "silent",
            };
            let value = Value::map([
                ("object", Value::Int(object)),
                ("member", Value::Int(index as i64)),
                ("in-sync-before", Value::Bool(before)),
                ("in-sync-after", Value::Bool(after)),
                ("result", Value::word(result)),
            ]);
            recorder.take(Event::nemesis(Function::Probe, value));
        }
    }

    /// Every member lists its keys and uses each. Of one that does not answer nothing is written down, and checkers miss it.
    pub fn last(&self, cluster: &Cluster, recorder: &Recorder, stop: &AtomicBool) {
        for index in 0..self.count {
            let Some(id) = self.id(index) else { continue };
            let mut member = Member::new(cluster.socket(index));
            let rows = patiently(stop, || member.list(limits::LOOK * 5));
            let Ok(rows) = rows else { continue };
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let shown = rows.iter().map(|row| {
                let (tag, _) = crate::workload::parted(&text(row, AttributeType::ID));
                let label = Value::Text(text(row, AttributeType::LABEL));
                Value::List(vec![Value::Int(number(row.object.0)), Value::Text(tag), label])
            });
            let objects = Value::List(shown.collect());
            let value = Value::map([("member", Value::Int(index as i64)), ("objects", objects)]);
            recorder.take(Event::nemesis(Function::Listed, value));
            for row in &rows {
                let object = number(row.object.0);
                let proof = patiently(stop, || match member.use_key(object, id, limits::LOOK * 5) {
                    Used::Output(output) => Ok(output),
                    Used::Absent => Ok(b"absent".to_vec()),
                    Used::Silent(why) => Err(why),
                });
                // Who cannot use a key has no proof of it, and the checker says so.
                let Ok(output) = proof else { continue };
                let mut digest = String::new();
                output.iter().for_each(|byte| {
                    let _ = write!(digest, "{byte:02x}");
                });
                let value = Value::map([
                    ("member", Value::Int(index as i64)),
                    ("object", Value::Int(object)),
                    ("digest", Value::Text(digest)),
                ]);
                recorder.take(Event::nemesis(Function::Proof, value));
            }
        }
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
