//! A member's life: examined, started, announced to systemd, stopped by a signal or by a fault.

use crate::config::{Config, LogSection};
use crate::engine::{self, Fault, Running};
use crate::exit::{Exit, Problem};
use crate::http::Port;
use crate::process;
use keyraft_engine::limits;
use keyraft_engine::telemetry::Event;
use tracing_subscriber::EnvFilter;

/// Sends what the process says to standard error.
pub fn start_log(log: &LogSection) -> Result<(), Problem> {
    let filter = EnvFilter::try_new(&log.filter)
        .map_err(|e| Problem::new(Exit::Config, format!("log.filter: {e}"), "write a level, such as info"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if log.json { builder.json().try_init() } else { builder.with_ansi(false).try_init() };
    started.map_err(|e| Problem::new(Exit::Unexpected, format!("the log cannot start: {e}"), ""))
}

/// Serves until SIGTERM or SIGINT (then Ok), or until the member cannot go on. `again` is true for a member whose
/// process ran before and ended badly: it is back sooner, and comes back for a token that is not there yet.
pub async fn serve(config: &Config, again: bool) -> Result<(), Problem> {
    // Two processes must never have one token open: the store's lock comes first.
    let storage = engine::claim(config).await?;
    if !again {
        opened(false, examine(config)).await?;
    }
    let port = match config.metrics {
        Some(address) => Some(Port::bind(address).await?),
        None => None,
    };
    let running = opened(again, Running::start(config, storage, again)).await?;
    // It ends with this function, before the member stops.
    let mut monitors = tokio::task::JoinSet::new();
    if let Some(port) = port {
        monitors.spawn(port.serve(running.monitor()));
    }
    process::notify("READY=1\nSTATUS=serving");
    tracing::info!(code = Event::MemberReady.code(), member = %running.member(), socket = %config.socket.display(), "ready");
    let fault = tokio::select! {
        signal = process::stop_signal() => {
            tracing::info!(code = Event::MemberStopping.code(), signal, "stopping");
            None
        }
        fault = running.failed() => Some(fault),
    };
    match &fault {
        // systemd must not take the end of this process for the unit's.
        Some(Fault { again: true, .. }) => process::notify("STATUS=the member's process is started again"),
        _ => process::notify("STOPPING=1"),
    }
    drop(monitors);
    match fault {
        None => {
            running.stop().await;
            Ok(())
        }
        // The member's state cannot be trusted any more: what is on disk is all that counts, so it stops at once.
        Some(Fault { reason, again: false }) => Err(Problem::new(
            Exit::Unexpected,
            format!("the member cannot go on: {reason}"),
            "start it again; if it fails again, see 'keyraft check'",
        )),
        Some(Fault { reason, again: true }) => Err(Problem::new(
            Exit::Again,
            format!("only a new process can use the token again: {reason}"),
            "",
        )),
    }
}

/// What opens the token, within a limit: a library may hang in C_Initialize.
async fn opened<T>(again: bool, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let limit = limits::TOKEN_OPEN;
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let exit = if again { Exit::Again } else { Exit::Token };
        let what = format!("the token's library has not let itself be opened within {} s", limit.as_secs());
        Err(Problem::new(
            exit,
            what,
            "see that the token is there and its library's own log, then start it again",
        ))
    })
}

/// Refuses to serve with what `check` finds wrong.
async fn examine(config: &Config) -> Result<(), Problem> {
    let findings = engine::check(config).await?;
    for note in &findings.notes {
        tracing::info!(code = Event::CheckNoted.code(), "{note}");
    }
    let Some(first) = findings.errors.first() else { return Ok(()) };
    for error in &findings.errors {
        tracing::error!(code = Event::CheckFailed.code(), "{error}");
    }
    let count = findings.errors.len();
    let what = format!("the member does not serve, since its check found {count}: {first}");
    Err(Problem::new(Exit::CheckFailed, what, "put that right, then see 'keyraft check'"))
}
