//! How members' processes ended that nobody of ours ended. A member is two processes: the one that watches says in the log when
//! it starts the member's own again, and why; it ends itself when the member ended for good. Pure but for the log.

use crate::nemesis::Fault;
use keyraft_engine::telemetry::Event;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// What Rust's main ends with after a panic.
const PANICKED: i32 = 101;
/// The words of a process that watches, and ours for one that has ended for good.
const BY_SIGNAL: &str = "ended by signal ";
const BY_FORCE: &str = "it was ended by signal 9";
const BY_PANIC: &str = "it panicked";
const UNREADABLE: &str = "its log cannot be read";
const IN_ORDER: &str = "it ended with 0";

/// Why the member's process was started again, by what was added to the log since; `heard` is how far it was read, in bytes.
pub fn since(log: &Path, heard: &mut u64) -> Vec<String> {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(*heard))?;
        file.read_to_end(&mut text)
    });
    match read {
        // It is not there yet.
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        // What cannot be read may hide an end: nobody is to take that for silence.
        Err(error) => return vec![format!("{UNREADABLE}: {error}")],
        Ok(_) => {}
    }
    // The end of a line that is being written comes next time.
    let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    *heard += end as u64 + 1;
    String::from_utf8_lossy(&text[..end]).lines().filter_map(started_again).collect()
}

/// The reason, if a line of a log says that the member's process is started again.
fn started_again(line: &str) -> Option<String> {
    let code = Event::MemberRestarted.code();
    let (said, _) = line.split_once(code)?;
    let why = said.split_once(" ms: ").map_or(said, |(_, why)| why);
    // The code's own name stands before it.
    Some(why.rsplit_once(" code").map_or(why, |(why, _)| why).to_string())
}

/// How a process that watches has ended; `log` is all that it has said.
pub fn for_good(status: ExitStatus, log: &str) -> String {
    let errors = log.lines().rev().find_map(|line| line.strip_prefix("error: "));
    let last_words = errors.or_else(|| log.lines().last()).unwrap_or_default();
    match (status.code(), status.signal()) {
        (Some(PANICKED), _) => BY_PANIC.into(),
        (Some(0), _) => IN_ORDER.into(),
        (Some(code), _) => format!("it ended with {code}: {last_words}"),
        (None, signal) => format!("its watcher was ended by signal {}", signal.unwrap_or_default()),
    }
}

/// True if faults that have hit a member may leave its process nothing but to end so. A panic, and a signal that nobody of
/// ours has sent, never are excused; but a process that cannot end while something hangs ends itself by force.
pub fn excused(why: &str, faults: &BTreeSet<Fault>) -> bool {
    let hangs = |fault: &Fault| matches!(fault, Fault::HungDisk | Fault::TokenHung);
    // One that is no member any more may go.
    let ends = |fault: &Fault| fault.ends_processes() || *fault == Fault::Membership;
    match why {
        BY_FORCE => faults.iter().any(hangs),
        IN_ORDER => false,
        _ if why.starts_with(UNREADABLE) || why.starts_with(BY_PANIC) || why.contains(BY_SIGNAL) => false,
        _ => faults.iter().any(ends),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(why: &str) -> String {
        let code = Event::MemberRestarted.code();
        format!(
            "2026-01-01T00:00:00Z  WARN keyraft_node::supervisor: the member's process is started again in 100 ms: {why} \
             code=\"{code}\"\n"
        )
    }

    #[test]
    fn each_new_start_is_heard_once_and_half_lines_wait() {
        let mut log = tempfile::NamedTempFile::new().expect("is made");
        let mut heard = 0;
        assert_eq!(since(Path::new("/nonexistent/log"), &mut heard), Vec::<String>::new());
        let folder = tempfile::tempdir().expect("is made");
        let unreadable = since(folder.path(), &mut heard);
        assert!(unreadable[0].starts_with(UNREADABLE), "{unreadable:?}");
        assert!(!excused(&unreadable[0], &BTreeSet::from([Fault::DiskFull])));
        write!(log, "ready code=\"KR1000\"\n{}", line("it panicked")).expect("is written");
        let half = line("it was ended by signal 11");
        write!(log, "{}", &half[..80]).expect("is written");
        assert_eq!(since(log.path(), &mut heard), ["it panicked"]);
        write!(log, "{}", &half[80..]).expect("is written");
        assert_eq!(since(log.path(), &mut heard), ["it was ended by signal 11"]);
        assert_eq!(since(log.path(), &mut heard), Vec::<String>::new());
    }

    #[test]
    fn panics_and_signals_of_others_are_never_excused() {
        let all: BTreeSet<Fault> = Fault::ALL.iter().copied().collect();
        let killed = for_good(ExitStatus::from_raw(9), "");
        let panicked = for_good(ExitStatus::from_raw(PANICKED << 8), "");
        let stopped = for_good(ExitStatus::from_raw(0), "");
        for why in [&killed, &panicked, &stopped, "it panicked", "it was ended by signal 11"] {
            assert!(!excused(why, &all), "{why}");
        }
    }

    #[test]
    fn only_what_leaves_no_choice_excuses_an_end() {
        let failed = for_good(ExitStatus::from_raw(1 << 8), "error: a\nerror: no room\n  help: make some\n");
        assert_eq!(failed, "it ended with 1: no room");
        for (why, fault, is) in [
            (failed.as_str(), Fault::DiskFull, true),
            (&failed, Fault::Membership, true),
            (&failed, Fault::Kill, false),
            ("it asked for it", Fault::TokenHung, true),
            ("it asked for it", Fault::Partition, false),
            (BY_FORCE, Fault::HungDisk, true),
            (BY_FORCE, Fault::DiskFull, false),
        ] {
            assert_eq!(excused(why, &BTreeSet::from([fault])), is, "{why}, {fault:?}");
            assert!(!excused(why, &BTreeSet::new()), "{why}");
        }
    }
}
