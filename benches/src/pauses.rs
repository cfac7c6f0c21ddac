//! How long the use of keys pauses: eight threads sign through the module while a member is killed, or stopped with its
//! connections open, which to a caller is what a cut network is.

use crate::Options;
use crate::load::median;
use crate::members::Group;
use crate::shares::{PIN, Task, measured};
use crate::table::{self, say};
use keyraft_node::exit::Problem;
use std::time::Duration;

/// Threads that sign.
const CALLERS: usize = 8;
/// How long they do, seconds; the fault comes after the first one and stays.
const SECONDS: u64 = 4;

/// Prints the table.
pub async fn run(options: &Options) -> Result<(), Problem> {
    let rounds = if options.quick { 3 } else { 10 };
    say("pauses: starting three members");
    let mut group = Group::form(&options.dir, "embedded", 3, options.log.as_deref()).await?;
    group.set_pin(0, PIN).await?;
    let task = Task { callers: CALLERS, seconds: SECONDS };
    let quiet = measured(options, &group, &task, async || Ok(())).await?.pause_ms;
    let mut rows = vec![row("no fault", &[quiet])];
    for (name, kill, primary) in [
        ("kill -9 of a member", true, false),
        ("kill -9 of the primary", true, true),
        ("a member falls silent", false, false),
        ("the primary falls silent", false, true),
    ] {
        let mut pauses = Vec::new();
        for round in 1..=rounds {
            let leads = group.primary().await?;
            let index = if primary { leads } else { (leads + 1) % group.len() };
            let told = measured(options, &group, &task, async || {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if kill { group.kill_now(index) } else { group.silence(index, true) }
            })
            .await?;
            say(format!("{name}, round {round} of {rounds}: {:.0} ms", told.pause_ms));
            pauses.push(told.pause_ms);
            if kill {
                group.end(index);
                group.start(index).await?;
            } else {
                group.silence(index, false)?;
            }
            group.wait_in_sync(index).await?;
        }
        rows.push(row(name, &pauses));
    }
    let heading =
        format!("Pause of use: {CALLERS} threads sign; the longest way of any from one success to the next");
    table::print(&heading, &["fault", "median", "worst"], &rows);
    Ok(())
}

fn row(name: &str, pauses: &[f64]) -> Vec<String> {
    let worst = pauses.iter().copied().fold(0.0, f64::max);
    vec![name.into(), format!("{:.0} ms", median(pauses.to_vec())), format!("{worst:.0} ms")]
}
