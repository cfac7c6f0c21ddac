//! Measures the group: creates beside etcd's puts, ten thousand keys on embedded tokens and two thousand on SoftHSM.
//! Everything runs in one run on one machine; the result is Markdown on standard output, progress on standard error.
//!
//! The members are real processes of this very binary, which is `keyraft` if an environment variable says so: so the
//! members are always of the same build as the bench. From the ground up: `load` (callers and their latencies), `table`,
//! `members` (a group of processes), `etcd`, `pkcs11` (a token's own limit), `creates`, `failover`,
//! `bulk`, `slot`, `shares` and
//! `pauses` (the benches).

mod bulk;
mod creates;
mod etcd;
mod failover;
mod load;
mod members;
mod pauses;
mod pkcs11;
mod shares;
mod slot;
mod table;

use clap::{Parser, ValueEnum};
use keyraft_node::exit::{Exit, Problem};
use keyraft_node::process;
use std::path::PathBuf;
use std::process::ExitCode;

/// The bench's command line.
#[derive(Debug, Parser)]
#[command(name = "keyraft-bench", about = "Measures a keyraft group, beside etcd, on this machine")]
struct Options {
    /// A short run, to see that everything works: its figures mean little
    #[arg(long)]
    quick: bool,
    /// Run this bench alone (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<Bench>,
    /// etcd's program
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// SoftHSM's library
    #[arg(long, default_value = "/usr/lib/softhsm/libsofthsm2.so")]
    softhsm: PathBuf,
    /// Keys of the bench on embedded tokens
    #[arg(long)]
    keys: Option<usize>,
    /// Where the folder of the run is made; its file system decides what a flush to disk costs
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// What to add to the members' log.filter, such as debug; their logs are then kept
    #[arg(long)]
    log: Option<String>,
    /// For the bench itself: times unwraps on the token that SOFTHSM2_CONF names
    #[arg(long, hide = true)]
    token_limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// EC P-256 creates beside etcd's puts
    Creates,
    /// Ten thousand keys on embedded tokens
    Embedded,
    /// Two thousand keys on SoftHSM
    Softhsm,
    /// The PKCS#11 module beside SoftHSM in process and p11-kit's remoting
    Module,
    /// What more members bring, and what a slow one costs
    Shares,
    /// How long the use of keys pauses when a member is lost
    Pauses,
    /// The time without a primary after its loss and at a hand-over, beside etcd's
    Failover,
}

impl Options {
    fn wants(&self, bench: Bench) -> bool {
        self.only.is_empty() || self.only.contains(&bench)
    }
}

fn main() -> ExitCode {
    if std::env::var_os(members::AS_MEMBER).is_some() {
        return keyraft_node::run::main();
    }
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(problem.exit.code())
        }
    }
}

fn run(options: &Options) -> Result<(), Problem> {
    if let Some(count) = options.token_limit {
        println!("{}", pkcs11::unwraps_per_second(&options.softhsm, count)?);
        return Ok(());
    }
    if std::env::var_os(slot::RIVALS).is_some() {
        return slot::measure(options);
    }
    if let Ok(task) = std::env::var(shares::TASK) {
        return shares::measure(&task);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Problem::io("starting", &e))?;
    runtime.block_on(async {
        tokio::select! {
            done = benches(options) => done,
            signal = process::stop_signal() => Err(Problem::new(Exit::Interrupted, signal, "")),
        }
    })
}

async fn benches(options: &Options) -> Result<(), Problem> {
    if options.wants(Bench::Creates) {
        creates::run(options).await?;
    }
    if options.wants(Bench::Failover) {
        failover::run(options).await?;
    }
    if options.wants(Bench::Embedded) {
        let count = options.keys.unwrap_or(if options.quick { 500 } else { 10_000 });
        bulk::run(options, "embedded", count).await?;
    }
    if options.wants(Bench::Module) {
        slot::run(options).await?;
    }
    if options.wants(Bench::Shares) {
        shares::run(options).await?;
    }
    if options.wants(Bench::Pauses) {
        pauses::run(options).await?;
    }
    if options.wants(Bench::Softhsm) {
        let module = options.softhsm.display().to_string();
        bulk::run(options, &module, if options.quick { 100 } else { 2_000 }).await?;
    }
    Ok(())
}
