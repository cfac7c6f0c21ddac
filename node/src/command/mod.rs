//! The commands that ask a running member, one file a noun.

mod client;
mod drill;
mod explain;
pub(crate) mod force;
mod group;
pub(crate) use group::coverage;
mod key;
mod keyring;
mod standing;
mod streams;
pub(crate) mod uses;

pub use keyring::{Keyring, Want};

use crate::caller::{Ask, Caller, unexpected};
use crate::cli::{Cli, Command};
use crate::exit::{Exit, Problem};
use crate::output::View;
use keyraft_engine::wire::{Answer, ClientRequest};
use std::io::Write;

/// Runs a command against a member, and gives what to print. None if it has printed its result itself.
pub async fn run(ask: &dyn Ask, cli: &Cli) -> Result<Option<View>, Problem> {
    let limit = cli.global.deadline();
    match &cli.command {
        Command::Key(command) => key::run(ask, limit, command).await,
        Command::Member(command) => group::member(ask, limit, command).await.map(Some),
        Command::Client(command) => client::run(ask, limit, command).await.map(Some),
        Command::Explain(options) => explain::run(ask, limit, options).await.map(Some),
        Command::Drill(options) => drill::run(ask, limit, options, cli.global.json).await.map(Some),
        Command::Pin(command) => group::pin(ask, limit, command).await.map(Some),
        Command::RecoveryMode(options) => standing::recovery_mode(ask, limit, options).await.map(Some),
        Command::GroupOption(command) => group::option(ask, limit, command).await.map(Some),
        other => group::run(ask, limit, other, cli.global.json).await.map(Some),
    }
}

/// Prints a result.
pub fn print(view: &View, json: bool) -> Result<(), Problem> {
    let text = if json { format!("{:#}\n", view.json) } else { format!("{}\n", view.text) };
    write_out(text.as_bytes())
}

/// Writes to standard output; a reader that has gone away is no error of ours.
pub fn write_out(bytes: &[u8]) -> Result<(), Problem> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Problem::io("writing the result", &e)),
        _ => Ok(()),
    }
}

/// Asks for something that is answered by Done.
async fn done(caller: &Caller<'_>, make: impl Fn() -> ClientRequest) -> Result<(), Problem> {
    match caller.read(make).await? {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// What a check that found something ends with.
pub fn found(lines: &[String]) -> Problem {
    let count = if lines.len() == 1 { "1 thing".into() } else { format!("{} things", lines.len()) };
    Problem::new(Exit::CheckFailed, format!("check found {count}"), "each line above says what to do")
}
