//! The parent of a member's process. A token's library can hang or crash the process it is in, and only a new process
//! gets rid of that: this one, which never loads a library, starts the member's again. It ends when the member ends of
//! its own accord, and the member ends at once when this one is killed.

use crate::exit::{Exit, Problem};
use keyraft_engine::clock::Clock;
use keyraft_engine::limits;
use keyraft_engine::telemetry::Event;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

/// What Rust's main ends with after a panic.
const PANICKED: i32 = 101;

/// How a member's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Code(i32),
    Signal(i32),
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(PANICKED) => f.write_str("it panicked"),
            Self::Code(code) if *code == i32::from(Exit::Again.code()) => f.write_str("it asked for it"),
            Self::Code(code) => write!(f, "it ended with {code}"),
            Self::Signal(signal) => write!(f, "it was ended by signal {signal}"),
        }
    }
}

/// SIGTERM and SIGINT, by number.
const TERM: i32 = 15;
const INT: i32 = 2;

impl Ending {
    /// What this process ends with; None if the member's is to be started again.
    fn verdict(self, stopping: bool) -> Option<u8> {
        match self {
            Self::Code(code) if code == i32::from(Exit::Again.code()) => {
                if stopping {
                    Some(Exit::Done.code())
                } else {
                    None
                }
            }
            Self::Code(PANICKED) | Self::Signal(_) if !stopping => None,
            // It had not got as far as to hear signals.
            Self::Signal(TERM | INT) => Some(Exit::Done.code()),
            Self::Code(code) => Some(u8::try_from(code).unwrap_or(Exit::Unexpected.code())),
            Self::Signal(_) => Some(Exit::Unexpected.code()),
        }
    }
}

/// The pauses before new starts.
#[derive(Debug)]
struct Pauses(Duration);

impl Pauses {
    fn new() -> Self {
        Self(limits::RESTART_MIN)
    }

    /// The pause after a process that has lived so long.
    fn next(&mut self, lived: Duration) -> Duration {
        if lived >= limits::RESTART_CALM {
            *self = Self::new();
        }
        let pause = self.0;
        self.0 = (pause * 2).min(limits::RESTART_MAX);
        pause
    }
}

/// SIGTERM and SIGINT, which are for the member.
struct Stops {
    terminate: Heard,
    interrupt: Heard,
}

impl Stops {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
        }
    }
}

/// Runs the member's process, again and again if need be; gives the code to end with.
pub async fn supervise() -> Result<u8, Problem> {
    let mut stops = Stops::new().map_err(|e| Problem::io("listening for signals", &e))?;
    let mut pauses = Pauses::new();
    let mut again = false;
    loop {
        let start = Clock.now();
        let why = match spawn(again) {
            Ok(mut child) => {
                let (ending, stopping) = follow(&mut child, &mut stops)
                    .await
                    .map_err(|e| Problem::io("waiting for the member's process", &e))?;
                if let Some(code) = ending.verdict(stopping) {
                    return Ok(code);
                }
                ending.to_string()
            }
            // The machine may be short of processes for a while; the member has lived here, so it can live again.
            Err(error) if again => format!("it could not be started: {error}"),
            Err(error) => return Err(Problem::io("starting the member's process", &error)),
        };
        let pause = pauses.next(Clock.now().saturating_duration_since(start));
        tracing::warn!(
            code = Event::MemberRestarted.code(),
            "the member's process is started again in {} ms: {why}",
            pause.as_millis()
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stops.next() => return Ok(Exit::Done.code()),
        }
        again = true;
    }
}

/// Waits for the process's end and hands signals on; says if one was.
async fn follow(child: &mut Child, stops: &mut Stops) -> std::io::Result<(Ending, bool)> {
    let mut stopping = false;
    loop {
        tokio::select! {
            status = child.wait() => return Ok((status?.into(), stopping)),
            signal = stops.next() => {
                stopping = true;
                let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
                if let Some(pid) = pid {
                    // It fails only if the process has ended, which the next round sees.
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        }
    }
}

fn spawn(again: bool) -> std::io::Result<Child> {
    let mut command = Command::new(program()?);
    command.args(std::env::args_os().skip(1)).args(words(std::process::id(), again)).kill_on_drop(true);
    command.spawn()
}

/// This program's file; by the kernel's own name of it if it was replaced meanwhile.
fn program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if path.is_file() { path } else { "/proc/self/exe".into() })
}

/// What the member's process is told besides: they follow `serve`, the last of the commands.
fn words(parent: u32, again: bool) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--supervised".into(), parent.to_string().into()];
    words.extend(again.then(|| OsString::from("--again")));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crashes_and_wishes_start_it_again() {
        let again = i32::from(Exit::Again.code());
        for ending in [Ending::Signal(6), Ending::Signal(9), Ending::Code(PANICKED), Ending::Code(again)] {
            assert_eq!(ending.verdict(false), None, "{ending}");
            assert!(ending.verdict(true).is_some(), "{ending}: it was told to stop");
        }
        for exit in [Exit::Done, Exit::Config, Exit::Token, Exit::CheckFailed, Exit::Unexpected] {
            assert_eq!(Ending::Code(exit.code().into()).verdict(false), Some(exit.code()));
        }
    }

    #[test]
    fn pauses_grow_until_it_lives() {
        let mut pauses = Pauses::new();
        let short: Vec<Duration> = (0..3).map(|_| pauses.next(Duration::ZERO)).collect();
        assert_eq!(short, [limits::RESTART_MIN, limits::RESTART_MIN * 2, limits::RESTART_MIN * 4]);
        for _ in 0..20 {
            pauses.next(Duration::ZERO);
        }
        assert_eq!(pauses.next(Duration::ZERO), limits::RESTART_MAX);
        assert_eq!(pauses.next(limits::RESTART_CALM), limits::RESTART_MIN);
    }
}
