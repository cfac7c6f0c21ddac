//! Known mistakes of the engine, switched on one after another in all members of the simulation: each must be found within so
//! many seeds, and by the checker that is made for it. docs/FAULT_TESTING.md has the table.

use keyraft_engine::mutant::Mutant;
use keyraft_jepsen_lite::checker::NOTHING_LOOKED_AT;
use keyraft_jepsen_lite::sim::{Plan, Range, Sum, many};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A mistake, and how it is looked for.
struct Hunt {
    mutant: Mutant,
    mode: &'static str,
    nemesis: &'static str,
    /// Seconds of simulated time.
    time: &'static str,
    /// It is found within so many seeds.
    seeds: u64,
    /// The checker that finds it.
    by: &'static str,
}

const fn hunt(
    mutant: Mutant,
    (mode, nemesis, time): (&'static str, &'static str, &'static str),
    seeds: u64,
    by: &'static str,
) -> Hunt {
    Hunt { mutant, mode, nemesis, time, seeds, by }
}

const HUNTS: &[Hunt] = &[
    hunt(Mutant::AcknowledgeBeforeFsync, ("serve", "power", "10"), 6, "whole in time"),
    hunt(Mutant::ForgetLastPurged, ("serve", "snapshot,kill", "12"), 6, "processes"),
    hunt(Mutant::PreVoteGrants, ("serve", "partition,pause,kill", "12"), 12, "no lone elections"),
    hunt(Mutant::SkipReadBarrier, ("fence", "delay", "10"), 4, "in-sync promise"),
    hunt(Mutant::ApplyTwice, ("serve", "kill,loss", "10"), 6, "whole in time"),
    hunt(Mutant::ReuseAnId, ("serve", "kill", "10"), 6, "linearizable"),
    hunt(Mutant::ReuseAReservedBlock, ("serve", "kill", "10"), 6, "linearizable"),
    hunt(Mutant::AnswerBeforeInSyncHolds, ("serve", "token-slow", "8"), 8, "in-sync promise"),
    hunt(Mutant::AnswerBeforeSettle, ("serve", "token-slow", "8"), 6, "linearizable"),
    hunt(Mutant::CountALearner, ("serve", "partition,token-slow", "14"), 6, "in-sync promise"),
    hunt(
        Mutant::DestroyOnUnconfirmedState,
        ("serve", "power,hung-disk", "10"),
        12,
        "no copy destroyed early",
    ),
    hunt(Mutant::KeepStaleCopy, ("serve", "kill", "6"), 3, "nothing left behind"),
    hunt(Mutant::ServeWithoutALease, ("fence", "partition", "12"), 8, "no use after delete"),
    hunt(Mutant::ResumeNothing, ("serve", "kill", "10"), 6, "whole in time"),
    // Several must be killed at once, and another than the last primary must stand first: one strike of a dozen.
    hunt(Mutant::ForgetTheVote, ("serve", "kill", "4"), 12, "processes"),
];

/// Seeds with the mistake until one shows it; or one seed without.
fn hunted(hunt: &Hunt, control: Option<u64>, out: &Path) -> Sum {
    let mutant = control.is_none().then(|| hunt.mutant.name());
    let mut words = vec![
        ["--rung", "sim"],
        ["--workload", "lives"],
        ["--mode", hunt.mode],
        ["--nemesis", hunt.nemesis],
        ["--time", hunt.time],
    ];
    words.extend(mutant.map(|name| ["--mutant", name]));
    let (first, last) = control.map_or((1, hunt.seeds), |seed| (seed, seed));
    let plan = Plan {
        seeds: Range { first, last },
        jobs: 1,
        program: env!("CARGO_BIN_EXE_jepsen-lite").into(),
        words: words.concat().into_iter().map(str::to_string).collect(),
        environment: mutant.map(|name| ("KEYRAFT_MUTANT".into(), name.into())).into_iter().collect(),
        out: out.join(hunt.mutant.name()),
        first_failure: true,
        patience: Duration::from_secs(600),
    };
    many(&plan, &AtomicBool::new(false), &mut |_, _| {}).expect("seeds are run")
}

/// Hunts one, and lets the seed that shows it live without it. Fine if the checker that is made for it found it.
fn caught(hunt: &Hunt, out: &Path) -> Result<(), String> {
    let sum = hunted(hunt, None, out);
    let name = hunt.mutant.name();
    let shown = |said: &String| said.starts_with(hunt.by) && !said.ends_with(NOTHING_LOOKED_AT);
    let Some(one) = sum.failed.iter().find(|one| one.complaints.iter().any(shown)) else {
        let said: Vec<&String> = sum.failed.iter().flat_map(|one| &one.complaints).collect();
        return Err(format!("{name}: not found by '{}' in {} seeds: {said:#?}", hunt.by, sum.seeds));
    };
    eprintln!("{name}: seed {} of {}, by '{}'", one.seed, hunt.seeds, hunt.by);
    let control = hunted(hunt, Some(one.seed), out);
    if control.blind.contains_key(hunt.by) {
        return Err(format!("{name}: without it '{}' has nothing to look at in seed {}", hunt.by, one.seed));
    }
    match control.failed.is_empty() {
        true => Ok(()),
        false => Err(format!("{name}: seed {} fails without it: {:?}", one.seed, control.failed)),
    }
}

#[test]
fn every_known_mistake_is_found() {
    let folder = tempfile::tempdir().expect("makes a folder");
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Each hunt goes seed by seed, so that the first one counts; as many hunts at once as there are processors.
    let hunts = || {
        while let Some(hunt) = HUNTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = caught(hunt, folder.path()) {
                missed.lock().expect("nobody panicked").push(why);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(hunts);
        }
    });
    let missed = missed.into_inner().expect("nobody panicked");
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_mistake_is_hunted_and_told_of() {
    let hunted: BTreeSet<&str> = HUNTS.iter().map(|hunt| hunt.mutant.name()).collect();
    let all: BTreeSet<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
    assert_eq!(hunted, all);
    assert_eq!(HUNTS.len(), Mutant::ALL.len());
    let table = include_str!("../../docs/FAULT_TESTING.md");
    for hunt in HUNTS {
        let row = format!("| `{}` |", hunt.mutant.name());
        let line = table.lines().find(|line| line.starts_with(&row));
        assert!(line.is_some_and(|line| line.contains(hunt.by)), "docs/FAULT_TESTING.md: {row}");
    }
}
