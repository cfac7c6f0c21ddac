//! Many seeds, each in a process of its own, as many at once as there are processors; what they found, summed up.

use super::counts::Counts;
use super::journal;
use super::run::{Options, answered_calls, commits, simulate};
use crate::checker::{NOTHING_LOOKED_AT, look};
use crate::history::Function;
use crate::judge::BUDGET;
use crate::report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Seeds from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl Range {
    /// True for one seed alone.
    pub fn is_one(&self) -> bool {
        self.first == self.last
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim_start_matches('=').parse::<u64>().ok();
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!("'{text}' names no seeds: give a number, or a first and a last one as 1..1000")),
        }
    }
}

/// What one seed came to; as JSON, what a worker tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct One {
    /// The seed.
    pub seed: u64,
    /// Every checker passes, but for those that had nothing to look at.
    pub passes: bool,
    /// What they complain of, one a line; or why there is nothing to judge.
    pub complaints: Vec<String>,
    /// Checkers that had nothing to look at.
    pub blind: Vec<String>,
    /// What was counted in it.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Simulates one seed in this process and judges it. Papers go to `out` if it fails, or if `keep` says so; then
/// what members logged as well.
///
/// # Errors
/// The simulation itself fails, or the papers cannot be written.
pub fn judged(options: &Options, out: &Path, keep: bool) -> Result<One, String> {
    if keep {
        journal::begin(out)?;
    }
    let (history, lived) = simulate(options)?;
    let findings = look(&history, BUDGET).map_err(|error| error.to_string())?;
    // One short seed may lack what a checker looks at: that is asked of all seeds.
    let (mut blind, mut complaints) = (Vec::new(), Vec::new());
    for finding in findings.all.iter().filter(|finding| !finding.passes()) {
        if finding.complaints.iter().all(|complaint| complaint.ends_with(NOTHING_LOOKED_AT)) {
            blind.push(finding.name.to_string());
        } else {
            complaints
                .extend(finding.complaints.iter().map(|complaint| format!("{}: {complaint}", finding.name)));
        }
    }
    let passes = complaints.is_empty();
    if keep || !passes {
        report::keep(out, &history)?;
        report::make(out, &history)?;
    }
    let coverage = findings.all.iter().find(|finding| finding.name == "coverage");
    let number = |name: &str| {
        let rows = coverage.map(|finding| finding.numbers.as_slice()).unwrap_or_default();
        let row = rows.iter().find(|(row, _)| *row == name);
        row.and_then(|(_, number)| u64::try_from(*number).ok()).unwrap_or(0)
    };
    let counts = Counts {
        operations: findings.judgement.operations as u64,
        answered: number("answered"),
        primaries: number("primaries"),
        snapshots: number("snapshots"),
        ended: history.of_nemesis(&Function::Ended).count() as u64,
        lived_ms: u64::try_from(lived.as_millis()).unwrap_or(u64::MAX),
        commits: commits(&history)?.into_iter().map(|(fault, count)| (fault.to_string(), count)).collect(),
        calls: answered_calls(&history)?,
    };
    Ok(One { seed: options.seed, passes, complaints, blind, counts })
}

/// Begins the complaint of a seed that could not be judged.
const BROKEN: &str = "simulation";
/// Begins a complaint of a seed that proves too little.
const TOO_LITTLE: &str = "coverage";

impl One {
    /// The first promise that a checker found broken; not that a seed proves too little, or could not be judged.
    pub fn broken_promise(&self) -> Option<&str> {
        let others = |complaint: &&String| ![BROKEN, TOO_LITTLE].iter().any(|not| complaint.starts_with(not));
        self.complaints.iter().find(others).map(String::as_str)
    }
}

/// How many seeds are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which.
    pub seeds: Range,
    /// Processes at once.
    pub jobs: usize,
    /// The program that simulates one seed: this one.
    pub program: PathBuf,
    /// Its words but for the seed and the folder.
    pub words: Vec<String>,
    /// What its environment has besides.
    pub environment: Vec<(String, String)>,
    /// Where papers go: a single seed's here, and those of failing ones in folders below.
    pub out: PathBuf,
    /// End with the first seed that breaks a promise.
    pub first_failure: bool,
    /// How long one seed may take, in real time.
    pub patience: Duration,
}

impl Plan {
    /// Where a seed's papers go.
    pub fn folder(&self, seed: u64) -> PathBuf {
        if self.seeds.is_one() { self.out.clone() } else { self.out.join(format!("seed-{seed}")) }
    }
}

/// What all seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Seeds that were run.
    pub seeds: u64,
    /// Those that failed, and those that could not be run.
    pub failed: Vec<One>,
    /// Seeds in which a checker had nothing to look at, by checker.
    pub blind: BTreeMap<String, u64>,
    /// What was counted in all of them.
    pub counts: Counts,
}

impl Sum {
    fn add(&mut self, one: One) {
        self.seeds += 1;
        self.counts.add(&one.counts);
        for checker in &one.blind {
            *self.blind.entry(checker.clone()).or_default() += 1;
        }
        if !one.passes {
            self.failed.push(one);
        }
    }
}

/// A process that simulates one seed. It ends with its value.
struct Worker {
    seed: u64,
    child: Child,
    /// Files with what it says.
    says: PathBuf,
    complains: PathBuf,
    since: std::time::Instant,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nothing is left to do about a process that cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(plan: &Plan, scratch: &Path, seed: u64) -> Result<Worker, String> {
    let told = |what: &str| {
        let path = scratch.join(format!("{seed}.{what}"));
        std::fs::File::create(&path).map(|file| (file, path)).map_err(|error| error.to_string())
    };
    let ((stdout, says), (stderr, complains)) = (told("says")?, told("complains")?);
    let mut command = Command::new(&plan.program);
    command.arg("sim-one").args(&plan.words).arg("--seed").arg(seed.to_string());
    command.arg("--out").arg(plan.folder(seed));
    if plan.seeds.is_one() {
        command.arg("--keep");
    }
    command.envs(plan.environment.iter().cloned());
    // Whatever becomes of a worker, its folders go with ours.
    command.env("TMPDIR", scratch);
    // Ctrl-C is for us alone: we end them.
    command.process_group(0).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let child = command.spawn().map_err(|error| format!("{}: {error}", plan.program.display()))?;
    Ok(Worker { seed, child, says, complains, since: keyraft_engine::clock::Clock.now() })
}

/// What a worker that has ended says; a seed that could not be simulated has failed.
fn ended(worker: &Worker) -> One {
    // What cannot be read is missing, and that is told.
    let text = |from: &Path| std::fs::read_to_string(from).unwrap_or_default();
    let told = serde_json::from_str(&text(&worker.says));
    told.unwrap_or_else(|_| broken(worker.seed, text(&worker.complains).trim()))
}

fn broken(seed: u64, why: &str) -> One {
    let complaints = vec![format!("{BROKEN}: {why}")];
    One { seed, passes: false, complaints, blind: Vec::new(), counts: Counts::default() }
}

/// Runs all seeds. `told` hears of each that ends; `stop` ends all early.
///
/// # Errors
/// A process cannot be started.
pub fn many(plan: &Plan, stop: &AtomicBool, told: &mut dyn FnMut(&Sum, &One)) -> Result<Sum, String> {
    let mut sum = Sum::default();
    let mut seeds = plan.seeds.first..=plan.seeds.last;
    let mut workers: Vec<Worker> = Vec::new();
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    loop {
        let over = stop.load(Ordering::Relaxed)
            || (plan.first_failure && sum.failed.iter().any(|one| one.broken_promise().is_some()));
        while !over && workers.len() < plan.jobs.max(1) {
            let Some(seed) = seeds.next() else { break };
            workers.push(start(plan, scratch.path(), seed)?);
        }
        if over || workers.is_empty() {
            return Ok(sum);
        }
        let mut at = 0;
        while let Some(worker) = workers.get_mut(at) {
            let done = worker.child.try_wait().map_err(|error| error.to_string())?.is_some();
            let one = if done {
                ended(worker)
            } else if keyraft_engine::clock::Clock.now().saturating_duration_since(worker.since)
                > plan.patience
            {
                broken(worker.seed, &format!("it has not ended after {} s", plan.patience.as_secs()))
            } else {
                at += 1;
                continue;
            };
            workers.remove(at);
            sum.add(one.clone());
            told(&sum, &one);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_one_or_a_range() {
        assert_eq!("7".parse(), Ok(Range { first: 7, last: 7 }));
        assert_eq!("1..1000".parse(), Ok(Range { first: 1, last: 1000 }));
        assert_eq!("1..=3".parse(), Ok(Range { first: 1, last: 3 }));
        assert!("3..1".parse::<Range>().is_err());
        assert!("many".parse::<Range>().is_err());
    }

    #[test]
    fn what_a_worker_tells_is_understood() {
        let commits = BTreeMap::from([("kill".to_string(), 7)]);
        let counts = Counts { operations: 9, commits, ..Counts::default() };
        let one = One { blind: vec!["z".into()], counts, ..broken(3, "x: y") };
        let told = serde_json::to_string(&one).expect("is written");
        assert_eq!(serde_json::from_str::<One>(&told).expect("is read"), one);
    }
}
