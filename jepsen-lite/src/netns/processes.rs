//! A member is two processes: one that watches, which was started here, and the member's own, which ends with it.

use keyraft_engine::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Child;
use std::time::Duration;

/// How long the kernel may take to end what a killed process takes along.
const END_LIMIT: Duration = Duration::from_secs(5);

/// What a process has started. It has one thread.
fn children(process: u32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// False once a process holds nothing any more, also if nobody has waited for it yet.
fn is_alive(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name, which stands in brackets.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// kill -9 of both, and waits for their end.
pub fn kill(mut watcher: Child) {
    let members = children(watcher.id());
    // Nothing is left to do about a process that cannot be ended.
    let _ = watcher.kill();
    let _ = watcher.wait();
    let end = Clock.now() + END_LIMIT;
    while members.iter().any(|member| is_alive(*member)) && Clock.now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends the member's own process a signal, and the one that watches as well.
///
/// # Errors
/// The system refuses it.
pub fn signal(watcher: &Child, signal: Signal) -> Result<(), String> {
    for member in children(watcher.id()).into_iter().filter_map(Pid::from_raw) {
        kill_process(member, signal).map_err(|error| error.to_string())?;
    }
    kill_process(Pid::from_child(watcher), signal).map_err(|error| error.to_string())
}
