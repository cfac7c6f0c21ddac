//! Short runs with real processes and real faults, as root. KEYRAFT_SKIP_ROOT_TESTS=1 leaves it out, and says so.

#[path = "../../tests/src/root.rs"]
mod root;

use root::root;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One group at a time: members that fight for the processor time out, and runs would tell of that alone.
static TURN: Mutex<()> = Mutex::new(());

/// All that a run breaks in half a minute: each fault comes once alone, and leaves a quorum.
const FOUR: &str = "partition,kill,pause,power";

fn may_run() -> bool {
    root("making network namespaces and loop devices")
}

fn jepsen_lite(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jepsen-lite"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(nemesis: &str, mode: &str, (time, seed): (&str, &str), out: &Path) -> Child {
    let out = out.display().to_string();
    let what = ["run", "--rung", "netns", "--nemesis", nemesis, "--mode", mode];
    let how = ["--time", time, "--seed", seed, "--out", &out];
    jepsen_lite(&[&what[..], &how].concat()).spawn().expect("starts")
}

/// A run that must pass.
fn passes(nemesis: &str, mode: &str, seed: &str, out: &Path) {
    let child = run(nemesis, mode, ("20", seed), out);
    let pid = child.id();
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(left_behind(pid), Vec::<String>::new());
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Namespaces and mounts of this run's process.
fn left_behind(pid: u32) -> Vec<String> {
    let list = Command::new("ip").args(["netns", "list"]).output().expect("ip lists");
    let spaces = String::from_utf8_lossy(&list.stdout).into_owned();
    let mounts = std::fs::read_to_string("/proc/mounts").expect("is read");
    let (own_space, own_mount) = (format!("keyraft-jl-{pid}-"), format!(" /tmp/kj{pid}-"));
    let spaces = spaces.lines().filter(|line| line.starts_with(&own_space));
    let mounts = mounts.lines().filter(|line| line.contains(&own_mount));
    spaces.chain(mounts).map(str::to_string).collect()
}

#[test]
fn nothing_is_lost_while_members_that_are_cut_off_serve() {
    if !may_run() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("makes a folder");
    passes(FOUR, "serve", "26", folder.path());
    let results = folder.path().join("results.json");
    let first = std::fs::read_to_string(&results).expect("there are results");
    for paper in ["history.edn", "timeline.html", "rate.svg", "latency.svg"] {
        assert!(folder.path().join(paper).metadata().is_ok_and(|file| file.len() > 0), "{paper}");
    }
    std::fs::remove_file(&results).expect("is removed");
    let folder_name = folder.path().display().to_string();
    let again = jepsen_lite(&["report", &folder_name]).output().expect("runs");
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    assert_eq!(std::fs::read_to_string(&results).expect("there are results again"), first);
    let edn = folder.path().join("history.edn").display().to_string();
    let check = jepsen_lite(&["check", &edn]).output().expect("runs");
    assert_eq!(check.status.code(), Some(0), "{}", said(&check));
}

#[test]
fn nothing_is_lost_while_members_that_are_cut_off_do_not_serve() {
    if !may_run() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("makes a folder");
    passes(FOUR, "fence", "199", folder.path());
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let list = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let list = list.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let list: Vec<String> = list.collect();
    list.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect()
}

fn words(process: u32) -> String {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// The processes that watch members, once clients work.
fn watchers(run: u32) -> Option<Vec<u32>> {
    let all = children(run);
    let watchers = all.iter().copied().filter(|one| words(*one).contains(" serve "));
    all.iter().any(|one| words(*one).contains(" clients ")).then(|| watchers.collect())
}

#[test]
fn a_process_that_nobody_of_ours_ends_fails_the_run() {
    if !may_run() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("makes a folder");
    let mut child = run("", "serve", ("5", "1"), folder.path());
    let watchers = loop {
        if let Some(watchers) = watchers(child.id()) {
            break watchers;
        }
        assert!(child.try_wait().expect("can be asked").is_none(), "no clients began to work");
        std::thread::sleep(Duration::from_millis(25));
    };
    assert_eq!(watchers.len(), 3);
    std::thread::sleep(Duration::from_secs(1));
    let member = children(watchers[1])[0];
    let member = i32::try_from(member).ok().and_then(Pid::from_raw).expect("is a process");
    // Its watcher starts it again: within a moment nothing is amiss.
    kill_process(member, Signal::KILL).expect("can be signalled");
    let output = child.wait_with_output().expect("ends");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FAIL processes: 1 that ended by themselves"), "{said}");
    assert!(said.contains("of member 1 ended by itself: it was ended by signal 9"), "{said}");
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    if !may_run() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("makes a folder");
    let child = run("disk-full,partition", "serve", ("20", "8"), folder.path());
    let pid = child.id();
    let begun = || !left_behind(pid).is_empty();
    for _ in 0..400 {
        if begun() {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    assert!(begun(), "no run began");
    // In the middle of things: members are being made, or clients work.
    std::thread::sleep(Duration::from_secs(6));
    kill_process(Pid::from_child(&child), Signal::INT).expect("can be signalled");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("stopped"), "{}", said(&output));
    assert_eq!(left_behind(pid), Vec::<String>::new());
}
