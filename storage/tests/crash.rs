//! Kills and power cuts. A child (this test binary, started again) appends, truncates, purges, votes and saves; it
//! says what it begins and what was acknowledged. Afterwards the store must be in a state that the begun operations
//! pass through, at or behind the last acknowledged one.
//!
//! `KEYRAFT_CRASH_SEED` replays from one seed, `KEYRAFT_CRASH_ROUNDS` sets how many there are.

#[path = "support/power.rs"]
mod power;
#[path = "../../tests/src/root.rs"]
mod root;
mod support;

use futures::executor::block_on;
use keyraft_engine::consensus::store::{Checkpoint, Store};
use keyraft_engine::consensus::types::{Entry, LogId, Vote};
use keyraft_engine::state::Command as LogCommand;
use keyraft_storage::Storage;
use openraft::storage::RaftLogStorage;
use openraft::{EntryPayload, RaftLogReader};
use power::Drive;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use support::{Later, append, append_later, content, entry, envelope, id};

/// A small generator: one seed decides everything.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// `count` entries from `first`, with tags from `tag`.
    Append {
        first: u64,
        term: u64,
        count: u64,
        tag: u64,
    },
    /// Keep entries below `end`.
    Truncate {
        end: u64,
    },
    Purge {
        upto: u64,
    },
    Vote {
        term: u64,
    },
    /// A content, synced.
    Content {
        tag: u64,
    },
    /// A checkpoint whose last log id says which.
    Checkpoint {
        tag: u64,
    },
}

impl Step {
    fn text(&self) -> String {
        match self {
            Self::Append { first, term, count, tag } => format!("A {first} {term} {count} {tag}"),
            Self::Truncate { end } => format!("T {end} 0 0 0"),
            Self::Purge { upto } => format!("P {upto} 0 0 0"),
            Self::Vote { term } => format!("V {term} 0 0 0"),
            Self::Content { tag } => format!("C {tag} 0 0 0"),
            Self::Checkpoint { tag } => format!("K {tag} 0 0 0"),
        }
    }

    fn parse(text: &str) -> Self {
        let (kind, numbers) = text.split_once(' ').expect("a step");
        let n: Vec<u64> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
        match kind {
            "A" => Self::Append { first: n[0], term: n[1], count: n[2], tag: n[3] },
            "T" => Self::Truncate { end: n[0] },
            "P" => Self::Purge { upto: n[0] },
            "V" => Self::Vote { term: n[0] },
            "C" => Self::Content { tag: n[0] },
            "K" => Self::Checkpoint { tag: n[0] },
            other => panic!("no step {other}"),
        }
    }
}

/// 16 bytes to 4 KiB, and now and then more than one part.
fn size(tag: u64) -> usize {
    let mut random = Random(tag);
    let size = if random.below(12) == 0 { 16 + random.below(30_000) } else { 16 + random.below(4096) };
    size as usize
}

fn one(term: u64, index: u64, tag: u64) -> Entry {
    entry(term, index, tag, size(tag))
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    purged: Option<LogId>,
    /// Term and tag, by index.
    entries: BTreeMap<u64, (u64, u64)>,
    vote: Option<u64>,
    contents: BTreeSet<u64>,
    checkpoint: Option<u64>,
}

impl Model {
    fn end(&self) -> u64 {
        let after_purged = self.purged.map_or(0, |id| id.index + 1);
        self.entries.last_key_value().map_or(after_purged, |(index, _)| index + 1)
    }

    fn last(&self, end: u64) -> Option<LogId> {
        let before = end.checked_sub(1)?;
        self.entries.get(&before).map(|(term, _)| id(*term, before)).or(self.purged)
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Append { first, term, count, tag } => {
                self.entries.extend((0..count).map(|i| (first + i, (term, tag + i))));
            }
            Step::Truncate { end } => drop(self.entries.split_off(&end)),
            Step::Purge { upto } => {
                self.purged = Some(id(self.entries[&upto].0, upto));
                self.entries = self.entries.split_off(&(upto + 1));
            }
            Step::Vote { term } => self.vote = Some(term),
            Step::Content { tag } => drop(self.contents.insert(tag)),
            Step::Checkpoint { tag } => self.checkpoint = Some(tag),
        }
    }

    /// The states that a crash may leave while `step` is under way.
    fn during(&self, step: &Step) -> Vec<Model> {
        let with = |step: Step| {
            let mut model = self.clone();
            model.take(&step);
            model
        };
        match *step {
            Step::Append { first, term, count, tag } => {
                (0..=count).map(|count| with(Step::Append { first, term, count, tag })).collect()
            }
            Step::Truncate { end } => (end..=self.end()).map(|end| with(Step::Truncate { end })).collect(),
            _ => vec![self.clone(), with(step.clone())],
        }
    }

    /// True if `found` is this state. Contents may be there early: they are written before they are asked to be durable.
    fn allows(&self, found: &Model) -> bool {
        let contents = self.contents.clone();
        contents.is_subset(&found.contents) && Model { contents, ..found.clone() } == *self
    }
}

fn tag_of(entry: &Entry) -> u64 {
    match &entry.payload {
        EntryPayload::Normal(LogCommand::Put { request, .. }) => request.watermark,
        other => panic!("not an entry of this test: {other:?}"),
    }
}

/// What the store holds, every byte compared with what its tag says.
fn look(storage: &mut Storage, known: &BTreeSet<u64>) -> Model {
    let purged = block_on(storage.log.get_log_state()).expect("reads").last_purged_log_id;
    let mut model = Model { purged, ..Model::default() };
    for found in block_on(storage.log.try_get_log_entries(..)).expect("reads") {
        let (term, index, tag) = (found.log_id.leader_id.term, found.log_id.index, tag_of(&found));
        assert!(found == one(term, index, tag), "entry {index} is not what was appended");
        model.entries.insert(index, (term, tag));
    }
    model.vote = block_on(storage.log.read_vote()).expect("reads").map(|vote| vote.leader_id.term);
    model.checkpoint =
        storage.store.load_checkpoint().expect("loads").and_then(|c| c.last).map(|id| id.index);
    for tag in known {
        if let Ok(Some(found)) = storage.store.content(content(*tag)) {
            assert!(found == envelope(*tag, size(*tag)), "content {tag} is not what was put");
            model.contents.insert(*tag);
        }
    }
    let committed = block_on(storage.log.read_committed()).expect("reads");
    assert!(committed.is_none_or(|id| id.index < model.end()), "committed lies behind the log");
    model
}

// ---- the child

const CHILD: &str = "KEYRAFT_CRASH_CHILD";

fn say(line: &str) {
    if writeln!(std::io::stdout().lock(), "{line}").is_err() {
        std::process::exit(0); // the parent has gone
    }
}

#[test]
#[ignore = "killed by its parent, a test below"]
fn child() {
    let order = std::env::var(CHILD).expect("is started as the child of a test here");
    let (seed, folder) = order.split_once(' ').expect("seed and folder");
    let mut random = Random(seed.parse().expect("a seed"));
    let mut storage = Storage::open(Path::new(folder)).expect("the child opens the store");
    let mut model = look(&mut storage, &BTreeSet::new());
    let mut tag = random.below(1 << 40) << 20;
    let (acknowledged, waiting) = mpsc::sync_channel::<Option<Later>>(8);
    std::thread::spawn(move || {
        for receiver in waiting {
            if let Some(receiver) = receiver {
                or_end(or_end(block_on(receiver)));
            }
            say("@d");
        }
    });
    say("\n@ready"); // libtest leaves a line open
    loop {
        let step = next_step(&mut random, &model, &mut tag);
        say(&format!("@b {}", step.text()));
        let receiver = carry_out(&mut storage, &model, &step);
        acknowledged.send(receiver).expect("the other thread lives");
        model.take(&step);
        let committed = model.last(model.end().saturating_sub(random.below(5)));
        or_end(block_on(storage.log.save_committed(committed)));
    }
}

/// Between the cut and the child's stop a write may fail; the parent notices a child that ends before.
fn or_end<T, E>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|_| std::process::exit(1))
}

fn next_step(random: &mut Random, model: &Model, tag: &mut u64) -> Step {
    let first = model.entries.keys().next().copied().unwrap_or(model.end());
    let held = model.end() - first;
    let term = model.vote.unwrap_or(0) + 1;
    match random.below(20) {
        0 if held > 4 => Step::Truncate { end: model.end() - random.below(held.min(20)) },
        1 if held > 40 => Step::Purge { upto: first + random.below(held - 20) },
        2 => Step::Vote { term },
        3 => {
            *tag += 1;
            Step::Content { tag: *tag }
        }
        4 if random.below(4) == 0 => {
            *tag += 1;
            Step::Checkpoint { tag: *tag }
        }
        _ => {
            let count = 1 + random.below(16);
            *tag += count;
            Step::Append { first: model.end(), term, count, tag: *tag - count }
        }
    }
}

/// Does one step; an append is answered later, all others are durable when this returns.
fn carry_out(storage: &mut Storage, model: &Model, step: &Step) -> Option<Later> {
    match *step {
        Step::Append { first, term, count, tag } => {
            let entries = (0..count).map(|i| one(term, first + i, tag + i)).collect();
            return Some(or_end(append_later(&mut storage.log, entries)));
        }
        Step::Truncate { end } => {
            or_end(block_on(storage.log.truncate_after(model.last(end))));
        }
        Step::Purge { upto } => {
            or_end(block_on(storage.log.purge(id(model.entries[&upto].0, upto))));
        }
        Step::Vote { term } => or_end(block_on(storage.log.save_vote(&Vote::new(term, 1)))),
        Step::Content { tag } => {
            or_end(storage.store.put_contents(&[(content(tag), envelope(tag, size(tag)))]));
            or_end(storage.store.sync());
        }
        Step::Checkpoint { tag } => {
            let checkpoint = Checkpoint { last: Some(id(1, tag)), ..Checkpoint::default() };
            or_end(storage.store.save_checkpoint(&checkpoint));
        }
    }
    None
}

// ---- the parent

/// A running child. Killed when dropped.
struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(seed: u64, folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{seed} {}", folder.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("starts itself");
        let mut output = BufReader::new(child.stdout.take().expect("is piped"));
        let mut line = String::new();
        while line.trim_end() != "@ready" {
            line.clear();
            assert!(output.read_line(&mut line).expect("reads") > 0, "the child ended before it was ready");
        }
        Self { child, output }
    }

    /// Lets it work for `time`, then calls `end`, which must leave it stopped or dead. Says what it began, and how
    /// much of that was acknowledged.
    fn work(mut self, time: Duration, end: impl FnOnce(Pid)) -> (Vec<Step>, usize) {
        let pid = Pid::from_child(&self.child);
        let output = &mut self.output;
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut begun, mut acknowledged) = (Vec::new(), 0);
                let mut line = String::new();
                while output.read_line(&mut line).is_ok_and(|n| n > 0) {
                    // A line that the kill cut short says nothing.
                    match line.strip_suffix('\n') {
                        Some("@d") => acknowledged += 1,
                        Some(text) => begun.extend(text.strip_prefix("@b ").map(Step::parse)),
                        None => {}
                    }
                    line.clear();
                }
                (begun, acknowledged)
            });
            std::thread::sleep(time);
            assert!(self.child.try_wait().expect("looks").is_none(), "the child ended by itself");
            end(pid);
            // It may have ended by itself; then there is nothing to kill.
            let _ = kill_process(pid, Signal::KILL);
            reader.join().expect("reads")
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens the store and holds it against what was begun and acknowledged.
fn judge(folder: &Path, before: &Model, begun: &[Step], acknowledged: usize, what: &str) -> Model {
    let mut known = before.contents.clone();
    known.extend(begun.iter().filter_map(|s| if let Step::Content { tag } = s { Some(*tag) } else { None }));
    let mut storage = Storage::open(folder).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = look(&mut storage, &known);
    assert_eq!(std::fs::read_dir(folder.join("store/blobs")).expect("lists").count(), 0, "{what}: a blob");
    let mut state = before.clone();
    begun[..acknowledged].iter().for_each(|step| state.take(step));
    let mut allowed = state.allows(&found);
    for step in &begun[acknowledged..] {
        allowed = allowed || state.during(step).iter().any(|s| s.allows(&found));
        state.take(step);
    }
    assert!(
        allowed || state.allows(&found),
        "{what}: {acknowledged} of {} steps were acknowledged; found purged {:?}, entries {:?} to {:?}, vote {:?}, \
         checkpoint {:?}; last steps {:?}",
        begun.len(),
        found.purged,
        found.entries.first_key_value(),
        found.entries.last_key_value(),
        found.vote,
        found.checkpoint,
        &begun[acknowledged.saturating_sub(3)..]
    );
    found
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|v| v.parse().unwrap_or_else(|_| panic!("{name} must be a number, not '{v}'")))
}

/// Runs rounds of children against folders below `root`, five rounds a folder.
fn rounds(root: &Path, count: u64, kind: &str, end: impl Fn(Pid), between: impl Fn()) {
    let first_seed = number("KEYRAFT_CRASH_SEED").unwrap_or(1);
    let count = number("KEYRAFT_CRASH_ROUNDS").unwrap_or(count);
    let (mut model, mut steps) = (Model::default(), 0);
    for seed in first_seed..first_seed + count {
        let folder = root.join(format!("{}", (seed - first_seed) / 5));
        if (seed - first_seed).is_multiple_of(5) {
            model = Model::default();
        }
        let time = Duration::from_millis(60 + Random(seed).below(440));
        let (begun, acknowledged) = Worker::start(seed, &folder).work(time, &end);
        between();
        let what =
            format!("{kind}, seed {seed} (KEYRAFT_CRASH_SEED={first_seed} KEYRAFT_CRASH_ROUNDS={count})");
        model = judge(&folder, &model, &begun, acknowledged, &what);
        steps += acknowledged;
        if (seed - first_seed + 1).is_multiple_of(5) {
            std::fs::remove_dir_all(&folder).expect("removes");
        }
    }
    println!("{kind}: {count} of {count} reopened, {steps} acknowledged steps");
    assert!(steps as u64 > count, "the children did too little to prove anything: {steps} steps");
}

#[test]
fn kill_at_any_instant_loses_nothing() {
    let root = tempfile::tempdir().expect("a folder");
    rounds(root.path(), 20, "kill -9", |pid| kill_process(pid, Signal::KILL).expect("kills"), || ());
}

#[test]
fn power_cut_at_any_instant_loses_nothing() {
    let Some(drive) = Drive::new(256) else { return };
    let cut = |pid| {
        kill_process(pid, Signal::STOP).expect("stops");
        drive.cut();
    };
    rounds(&drive.path(), 50, "power cut", cut, || drive.restore());
}

/// A test above, again, with a known mistake of the store switched on: it must be noticed.
#[cfg(feature = "test-hooks")]
fn noticed(test: &str, mutant: keyraft_engine::mutant::Mutant) {
    let ran = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", test])
        .env("KEYRAFT_MUTANT", mutant.name())
        .output()
        .expect("starts itself");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(said.contains("running 1 test"), "{said}");
    assert!(!ran.status.success(), "{} is not noticed by {test}: {said}", mutant.name());
    assert!(said.contains("steps were acknowledged") || said.contains("damaged"), "{said}");
}

#[cfg(feature = "test-hooks")]
#[test]
fn what_is_forgotten_over_a_kill_is_noticed() {
    noticed("kill_at_any_instant_loses_nothing", keyraft_engine::mutant::Mutant::ForgetTheVote);
    noticed("kill_at_any_instant_loses_nothing", keyraft_engine::mutant::Mutant::ForgetLastPurged);
}

#[cfg(feature = "test-hooks")]
#[test]
fn what_is_acknowledged_too_early_is_noticed() {
    if Drive::new(16).is_some() {
        noticed(
            "power_cut_at_any_instant_loses_nothing",
            keyraft_engine::mutant::Mutant::AcknowledgeBeforeFsync,
        );
    }
}

#[test]
fn a_failed_write_stops_the_store() {
    let Some(drive) = Drive::new(64) else { return };
    let folder = drive.path().join("data");
    {
        let mut storage = Storage::open(&folder).expect("opens");
        append(&mut storage.log, (0..10).map(|i| one(1, i, i)).collect()).expect("appends");
        drive.cut();
        append(&mut storage.log, vec![one(1, 10, 10)]).expect_err("the disk is gone");
        // Even if the disk came back, nobody knows what it has.
        let refusals = [
            append(&mut storage.log, vec![one(1, 11, 11)]).expect_err("appends"),
            block_on(storage.log.save_vote(&Vote::new(9, 1))).expect_err("votes"),
            block_on(storage.log.truncate_after(Some(id(1, 3)))).expect_err("truncates"),
            block_on(storage.log.purge(id(1, 3))).expect_err("purges"),
            block_on(storage.log.try_get_log_entries(..)).expect_err("reads"),
            storage.store.sync().expect_err("syncs"),
            storage.store.save_checkpoint(&Checkpoint::default()).expect_err("saves"),
            storage.store.put_contents(&[(content(1), envelope(1, 1))]).expect_err("puts"),
        ];
        for error in refusals {
            assert!(error.to_string().contains("stopped after a failure"), "{error}");
        }
    }
    drive.restore();
    let mut storage = Storage::open(&folder).expect("opens again");
    let found = block_on(storage.log.try_get_log_entries(..)).expect("reads");
    assert!(found.len() >= 10 && found[..10] == (0..10).map(|i| one(1, i, i)).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_refuses_and_keeps() {
    let Some(drive) = Drive::new(64) else { return };
    let folder = drive.path().join("data");
    let filler = drive.path().join("filler");
    let mut kept = 0;
    {
        let mut storage = Storage::open(&folder).expect("opens");
        let error = loop {
            match append(&mut storage.log, vec![entry(1, kept, kept, 60_000)]) {
                Ok(()) => kept += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert!(kept > 50 && error.contains("make room"), "{kept} entries, then {error}");
        fill(&filler);
        for refused in [
            append(&mut storage.log, vec![entry(1, kept, kept, 10)]).err(),
            block_on(storage.log.save_vote(&Vote::new(9, 1))).err(),
            storage.store.put_contents(&[(content(1), envelope(1, 1))]).err(),
            storage.store.save_checkpoint(&Checkpoint::default()).err(),
        ] {
            let error = refused.expect("must be refused").to_string();
            assert!(error.contains("make room"), "{error}");
        }
        assert_eq!(block_on(storage.log.try_get_log_entries(..)).expect("reads").len() as u64, kept);
    }
    {
        // The reserve makes room to start.
        let mut storage = Storage::open(&folder).expect("opens on a full disk");
        let found = block_on(storage.log.try_get_log_entries(..)).expect("reads");
        assert!(found == (0..kept).map(|i| entry(1, i, i, 60_000)).collect::<Vec<_>>());
        assert!(append(&mut storage.log, vec![entry(1, kept, kept, 10)]).is_err());
    }
    std::fs::remove_file(&filler).expect("makes room");
    let mut storage = Storage::open(&folder).expect("opens");
    block_on(storage.log.purge(id(1, kept - 2))).expect("purges");
    append(&mut storage.log, vec![entry(1, kept, kept, 10)]).expect("appends again");
}

/// Fills a file system to its last byte.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).expect("creates");
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    // Delayed allocation may find out only now.
    let _ = file.sync_all();
}
