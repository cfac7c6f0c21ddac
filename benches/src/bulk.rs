//! Many keys: created, listed, taken over by a member from empty, found again by a restarted one; and memory.

use crate::Options;
use crate::load;
use crate::members::{Creator, Group, P256, STEP_LIMIT, keys_among};
use crate::pkcs11;
use crate::table::{self, say};
use keyraft_engine::clock::Clock;
use keyraft_node::command::Keyring;
use keyraft_node::engine::Socket;
use keyraft_node::exit::{Exit, Problem};
use std::time::Duration;

/// Callers that create, each with its own connection.
const CALLERS: usize = 64;

/// Prints the table.
pub async fn run(options: &Options, module: &str, count: usize) -> Result<(), Problem> {
    let token = if module == "embedded" { "embedded" } else { "SoftHSM" };
    say(format!("{count} keys, {token}: starting three members"));
    let mut group = Group::form(&options.dir, module, 3, options.log.as_deref()).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let empty = memory(&group)?;

    say(format!("creating {count} keys"));
    let primary = group.primary().await?;
    let sockets: Vec<Socket> = (0..CALLERS).map(|_| group.connect(primary)).collect();
    let mut creators = Vec::new();
    for (index, socket) in sockets.iter().enumerate() {
        creators.push(Creator::begin(socket, P256, format!("k{index}")).await?);
    }
    let made =
        load::for_count(count, creators.iter_mut().map(|c| async || c.create().await).collect()).await?;
    let full = memory(&group)?;

    say("listing");
    let socket = group.connect(primary);
    let begin = Clock.now();
    let (rows, _) = Keyring::new(&socket, STEP_LIMIT).list(None, usize::MAX).await?;
    let listed = Clock.now() - begin;
    if keys_among(&rows) != count {
        let what = format!("{} keys are listed of {count}", keys_among(&rows));
        return Err(Problem::new(Exit::CheckFailed, what, ""));
    }

    say("a fourth member, from empty");
    let fourth = group.add().await?;
    let begin = Clock.now();
    let answered = group.start(fourth).await?;
    group.wait_in_sync(fourth).await?;
    let caught_up = Clock.now() - begin;
    let fourth_memory = group.resident(fourth)?;

    say("a restart");
    let other = (0..3).find(|index| *index != primary).unwrap_or_default();
    group.kill(other).await?;
    let begin = Clock.now();
    let restart_answered = group.start(other).await?;
    group.wait_in_sync(other).await?;
    let restarted = Clock.now() - begin;
    let again = group.resident(other)?;

    let per_second = |time: Duration| table::rate(count as f64 / time.as_secs_f64());
    let row = |what: &str, value: String, remark: String| vec![what.into(), value, remark];
    let mut rows = vec![
        row(
            &format!("create, {CALLERS} callers"),
            format!("{} keys/s", table::rate(made.rate())),
            format!(
                "{} in all; p50 {}, p99 {}",
                table::seconds(made.took()),
                table::millis(made.quantile(0.5)),
                table::millis(made.quantile(0.99))
            ),
        ),
        row("list all", table::seconds(listed), format!("{} objects: private and public halves", rows.len())),
        row(
            "catch up from empty, from the start of its process",
            format!("{} keys/s", per_second(caught_up)),
            format!("{}; its first answer after {}", table::seconds(caught_up), table::seconds(answered)),
        ),
        row(
            "catch up from empty, from its first answer",
            format!("{} keys/s", per_second(caught_up.saturating_sub(answered))),
            table::seconds(caught_up.saturating_sub(answered)),
        ),
        row(
            "restart after kill -9, until in sync",
            table::seconds(restarted),
            format!("its first answer after {}", table::seconds(restart_answered)),
        ),
        row("memory of each member, no keys", megabytes(&empty), "resident".into()),
        row(&format!("memory of each member, {count} keys"), megabytes(&full), per_key(&empty, &full, count)),
        row("memory of the fourth member", megabytes(&[fourth_memory]), "after it has caught up".into()),
        row("memory of the restarted member", megabytes(&[again]), "after it is in sync".into()),
    ];
    drop(group);
    if module != "embedded" {
        say("the token's own limit");
        let limit = pkcs11::limit(&options.dir, &options.softhsm, count)?;
        let remark = "one process, one session: C_UnwrapKey of token objects and nothing else".into();
        rows.push(row("the token's own limit", format!("{} imports/s", table::rate(limit)), remark));
    }
    let heading = format!("{count} EC P-256 keys on {token} tokens, three members and a fourth");
    table::print(&heading, &["what", "value", "remark"], &rows);
    Ok(())
}

fn memory(group: &Group) -> Result<Vec<u64>, Problem> {
    (0..group.len()).map(|index| group.resident(index)).collect()
}

fn megabytes(kib: &[u64]) -> String {
    let each: Vec<String> = kib.iter().map(|kib| format!("{:.0}", *kib as f64 / 1024.0)).collect();
    format!("{} MiB", each.join(", "))
}

fn per_key(before: &[u64], after: &[u64], count: usize) -> String {
    let sum = |all: &[u64]| all.iter().sum::<u64>() as f64 / all.len().max(1) as f64;
    format!("{:.1} KiB more a key, on average", (sum(after) - sum(before)) / count.max(1) as f64)
}
