//! `jepsen-lite`: breaks a group of keyraft members on purpose, and judges what its clients were told.

use clap::{Parser, Subcommand};
use keyraft_jepsen_lite::history::read;
use keyraft_jepsen_lite::judge::{BUDGET, judge, told};
use keyraft_jepsen_lite::wgl::Verdict;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Breaks a group of keyraft members on purpose, and judges what its clients were told.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Judge a history: the last line is linearizable, not-linearizable or unknown (exit 0, 1, 2).
    Check {
        /// A log of jepsen.util's, EDN maps or JSON objects, one an event.
        file: PathBuf,
        /// Give up after so many steps.
        #[arg(long, default_value_t = BUDGET)]
        steps: u64,
    },
}

/// What could not be judged at all.
const BROKEN: u8 = 3;

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Check { file, steps } => check(&file, steps),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("jepsen-lite: {why}");
            ExitCode::from(BROKEN)
        }
    }
}

fn check(file: &Path, steps: u64) -> Result<u8, String> {
    let history = read(file).map_err(|error| error.to_string())?;
    let found = judge(&history, steps).map_err(|error| format!("{}: {error}", file.display()))?;
    println!(
        "{} operations, {} judged, {} keys, {} steps",
        found.operations, found.judged, found.keys, found.steps
    );
    if let Some(window) = &found.window {
        let key = window.key.as_ref().map(|key| format!(" of '{key}'")).unwrap_or_default();
        println!("no order{key} explains line {}; what cannot be put in order:", history.line(window.to));
        for event in window.calls.iter().chain([&window.to]) {
            let what = history.events.get(*event).map(told).unwrap_or_default();
            println!("  line {}: {what}", history.line(*event));
        }
    }
    println!("{}", found.verdict);
    Ok(match found.verdict {
        Verdict::Linearizable => 0,
        Verdict::NotLinearizable => 1,
        Verdict::Unknown => 2,
    })
}
