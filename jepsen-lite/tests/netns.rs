//! Short runs with real processes and real faults, as root. KEYRAFT_SKIP_ROOT_TESTS=1 leaves it out, and says so.

use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One group at a time: members that fight for the processor time out, and runs would tell of that alone.
static TURN: Mutex<()> = Mutex::new(());

fn root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    let skip = std::env::var("KEYRAFT_SKIP_ROOT_TESTS").is_ok_and(|value| value == "1");
    assert!(skip, "network namespaces need root: run as root, or set KEYRAFT_SKIP_ROOT_TESTS=1");
    // Not by eprintln: what a passing test prints is kept from whoever runs it, and this run proves less.
    writeln!(std::io::stderr(), "skipped, since KEYRAFT_SKIP_ROOT_TESTS=1: network namespaces need root")
        .expect("is told");
    false
}

fn jepsen_lite(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jepsen-lite"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(nemesis: &str, mode: &str, seed: &str, out: &Path) -> Child {
    let out = out.display().to_string();
    let what = ["run", "--rung", "netns", "--nemesis", nemesis, "--mode", mode];
    let how = ["--time", "20", "--seed", seed, "--out", &out];
    jepsen_lite(&[&what[..], &how].concat()).spawn().expect("starts")
}

/// A run that must pass.
fn passes(nemesis: &str, mode: &str, seed: &str, out: &Path) {
    let child = run(nemesis, mode, seed, out);
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
fn nothing_is_lost_when_members_are_cut_off_or_hang() {
    if !root() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("makes a folder");
    passes("partition,pause", "serve", "7", folder.path());
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
fn nothing_is_lost_when_processes_and_power_are_cut() {
    if !root() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("makes a folder");
    passes("kill,power", "fence", "9", folder.path());
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    if !root() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("makes a folder");
    let child = run("disk-full,partition", "serve", "8", folder.path());
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
    std::thread::sleep(Duration::from_secs(8));
    kill_process(Pid::from_child(&child), Signal::INT).expect("can be signalled");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("stopped"), "{}", said(&output));
    assert_eq!(left_behind(pid), Vec::<String>::new());
}
