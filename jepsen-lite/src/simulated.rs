//! Runs of simulated seeds at the terminal.

use crate::terminal::say;
use crate::{Run, listen_for_the_end};
use indicatif::{ProgressBar, ProgressStyle};
use keyraft_engine::clock::Clock;
use keyraft_jepsen_lite::nemesis::{Fault, chosen};
use keyraft_jepsen_lite::report;
use keyraft_jepsen_lite::sim::{BY_VALUE, FAULTS, One, Options, Plan, Sum, judged, many};
use keyraft_jepsen_lite::workload::Workload;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a seed lasts, unless somebody says otherwise, seconds of simulated time.
const TIME: u64 = 20;
/// A seed may take so long in real time, and so many times its simulated time besides.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_TIMES: u32 = 10;
/// From so many seeds on each fault must have been worked under.
const COVERED_FROM: u64 = 100;
/// No more than one of so many seeds may leave a checker with nothing to look at.
const BLIND_ONE_OF: u64 = 20;
/// How often it is told how far a run is where there is no terminal, seeds.
const TOLD_EVERY: u64 = 25;
/// The variable that switches a mistake on.
const MUTANT: &str = "KEYRAFT_MUTANT";

fn options(given: &Run) -> Result<Options, String> {
    Ok(Options {
        seed: given.seed.first,
        workload: given.workload,
        faults: chosen(&given.nemesis, "sim", FAULTS)?,
        time: Duration::from_secs(given.time.unwrap_or(TIME)),
        members: usize::from(given.members),
        clients: usize::from(given.clients),
        labels: usize::from(given.labels),
        mode: given.mode.mode(),
        command: again(given, given.seed.first),
    })
}

/// Words that say the same of every seed.
fn words(given: &Run) -> Vec<String> {
    let rows = [
        ("--rung", "sim".to_string()),
        ("--workload", given.workload.name().into()),
        ("--nemesis", given.nemesis.join(",")),
        ("--time", given.time.unwrap_or(TIME).to_string()),
        ("--members", given.members.to_string()),
        ("--clients", given.clients.to_string()),
        ("--labels", given.labels.to_string()),
        ("--mode", given.mode.mode().name().into()),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    let mutant = given.mutant.iter().map(|mutant| ("--mutant", mutant.clone()));
    rows.chain(mutant).flat_map(|(name, value)| [name.to_string(), value]).collect()
}

fn again(given: &Run, seed: u64) -> String {
    format!("jepsen-lite run {} --seed {seed}", words(given).join(" "))
}

/// One seed in this process; its results go to standard output.
pub fn one(given: &Run, keep: bool) -> Result<u8, String> {
    let one = judged(&options(given)?, &given.out, keep)?;
    say(serde_json::to_string(&one).map_err(|error| error.to_string())?)?;
    Ok(u8::from(!one.passes))
}

/// Many seeds, each in a process of its own.
pub fn run(given: &Run) -> Result<u8, String> {
    static STOP: AtomicBool = AtomicBool::new(false);
    if given.keyraft.is_some() || given.module.is_some() {
        return Err("--keyraft and --module are for real members: rung sim has its own in it".into());
    }
    let options = options(given)?;
    report::begin(&given.out)?;
    let faults = options.faults;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan {
        seeds: given.seed,
        jobs: given.jobs.map_or(processors, usize::from),
        program: std::env::current_exe().map_err(|error| format!("our own path: {error}"))?,
        words: words(given),
        environment: given.mutant.iter().map(|mutant| (MUTANT.to_string(), mutant.clone())).collect(),
        out: given.out.clone(),
        first_failure: given.first_failure || given.mutant.is_some(),
        patience: PATIENCE + Duration::from_secs(given.time.unwrap_or(TIME)) * PATIENCE_TIMES,
    };
    listen_for_the_end(&STOP)?;
    let bar = ProgressBar::new(given.seed.last - given.seed.first + 1);
    let style = ProgressStyle::default_bar().template("{elapsed} {wide_bar} {pos}/{len} seeds, {msg}");
    bar.set_style(style.map_err(|error| error.to_string())?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let (began, mut untold) = (Clock.now(), None);
    let sum = many(&plan, &STOP, &mut |sum, one| {
        bar.set_position(sum.seeds);
        let so_far = format!("{} failed, {} operations", sum.failed.len(), sum.counts.operations);
        // Without a terminal now and then a line.
        if bar.is_hidden() && sum.seeds % TOLD_EVERY == 0 {
            eprintln!("{} seeds, {so_far}", sum.seeds);
        }
        bar.set_message(so_far);
        if !one.passes
            && let Err(why) = bar.suspend(|| fails(given, &plan, one))
        {
            untold.get_or_insert(why);
            STOP.store(true, Ordering::Relaxed);
        }
    })?;
    bar.finish_and_clear();
    if let Some(why) = untold {
        return Err(why);
    }
    summary(&sum, Clock.now().saturating_duration_since(began))?;
    if given.seed.is_one() && sum.seeds == 1 {
        say(format_args!("papers: {}", given.out.display()))?;
        say(format_args!("again: {}", again(given, given.seed.first)))?;
    }
    if STOP.load(Ordering::Relaxed) {
        return Err("stopped".into());
    }
    if given.mutant.is_some() {
        return caught(&sum);
    }
    if sum.seeds < COVERED_FROM {
        say(format_args!("coverage of all seeds is asked from {COVERED_FROM} seeds on"))?;
        return Ok(u8::from(!sum.failed.is_empty()));
    }
    let missed = missed(&sum, &faults, options.workload);
    for missed in &missed {
        say(format_args!("FAIL coverage of all seeds: {missed}"))?;
    }
    Ok(u8::from(!sum.failed.is_empty() || !missed.is_empty()))
}

/// What all seeds together should have done, and did not.
fn missed(sum: &Sum, faults: &[Fault], workload: Workload) -> Vec<String> {
    let none = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).is_none_or(|count| *count == 0);
    let faults_missed = faults.iter().filter(|fault| none(&sum.counts.commits, fault.name()));
    let functions = workload.functions();
    let calls = functions.iter().map(|function| function.name()).chain([BY_VALUE]);
    let calls_missed = calls.filter(|name| none(&sum.counts.calls, name));
    let mut missed: Vec<String> =
        faults_missed.map(|fault| format!("nothing was changed under {}", fault.name())).collect();
    missed.extend(calls_missed.map(|name| format!("no '{name}' was answered")));
    let blind = sum.blind.iter().filter(|(_, seeds)| **seeds * BLIND_ONE_OF > sum.seeds);
    missed
        .extend(blind.map(|(checker, seeds)| format!("'{checker}' had nothing to look at in {seeds} seeds")));
    if faults.iter().any(|fault| fault.elects()) && sum.counts.primaries <= sum.seeds {
        missed.push(format!(
            "{} primaries in {} seeds: nobody was elected in the end",
            sum.counts.primaries, sum.seeds
        ));
    }
    if faults.contains(&Fault::Snapshot) && sum.counts.snapshots == 0 {
        missed.push("no snapshot was taken".into());
    }
    missed
}

/// A mistake that no seed finds is a fault of ours.
fn caught(sum: &Sum) -> Result<u8, String> {
    match sum.failed.iter().find_map(|one| Some((one, one.broken_promise()?))) {
        Some((one, promise)) => {
            say(format_args!("caught by seed {} after {} seeds: {promise}", one.seed, sum.seeds))?;
            Ok(0)
        }
        None => {
            say(format_args!("not caught by {} seeds", sum.seeds))?;
            Ok(1)
        }
    }
}

fn fails(given: &Run, plan: &Plan, one: &One) -> Result<(), String> {
    say(format_args!("FAIL seed {}", one.seed))?;
    for complaint in &one.complaints {
        say(format_args!("       {complaint}"))?;
    }
    let papers = plan.folder(one.seed);
    if papers.join(report::HISTORY).exists() {
        say(format_args!("       papers: {}", papers.display()))?;
    }
    say(format_args!("       again: {}", again(given, one.seed)))
}

fn summary(sum: &Sum, took: Duration) -> Result<(), String> {
    let seconds = took.as_secs_f64().max(0.001);
    let lived = sum.counts.lived_ms as f64 / 1000.0;
    say(format_args!(
        "{} seeds, {} failed; {:.2} simulated hours in {seconds:.0} s ({:.0} seeds an hour, {:.0} simulated seconds a second)",
        sum.seeds,
        sum.failed.len(),
        lived / 3600.0,
        sum.seeds as f64 * 3600.0 / seconds,
        lived / seconds
    ))?;
    say(format_args!(
        "{} operations, {} answered; {} primaries, {} snapshots, {} processes that ended by themselves",
        sum.counts.operations,
        sum.counts.answered,
        sum.counts.primaries,
        sum.counts.snapshots,
        sum.counts.ended
    ))?;
    for (checker, seeds) in &sum.blind {
        say(format_args!("'{checker}' had nothing to look at in {seeds} seeds"))?;
    }
    let commits: Vec<String> =
        sum.counts.commits.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
    if !commits.is_empty() {
        say(format_args!("changes answered under faults: {}", commits.join(", ")))?;
    }
    Ok(())
}
