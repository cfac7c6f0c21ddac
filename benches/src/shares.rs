//! What more members bring: with tokens that take a fixed time an operation and serve one at a time, the rate of a group
//! beside one member's; and what one slow member of three costs.

use crate::members::{Folder, Group, write_private};
use crate::table::{self, say};
use crate::{Options, load};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, ObjectHandle};
use cryptoki::session::UserType;
use cryptoki::types::AuthPin;
use keyraft_engine::clock::Clock;
use keyraft_node::exit::{Exit, Problem};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// What one operation takes in a token.
const SERVICE_MS: u64 = 5;
/// What it takes in a slow one.
const SLOW_MS: u64 = 50;
/// Callers for each member.
const CALLERS: usize = 16;
/// The user's PIN.
pub const PIN: &str = "1234";

/// Tells the measuring process what to do: [`Task`], as JSON.
pub const TASK: &str = "KEYRAFT_BENCH_SHARES";

/// What the measuring process does: so many threads sign for so long, and say what each second brought.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Threads.
    pub callers: usize,
    /// How long.
    pub seconds: u64,
}

/// What came of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    seconds: Vec<Second>,
    /// The longest way of any thread from one success to the next, milliseconds.
    pub pause_ms: f64,
}

/// One second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Second {
    rate: f64,
    p99_ms: f64,
}

/// Prints both tables.
pub async fn run(options: &Options) -> Result<(), Problem> {
    gain(options).await?;
    slow(options).await
}

async fn gain(options: &Options) -> Result<(), Problem> {
    let seconds = if options.quick { 3 } else { 8 };
    let counts: &[usize] = if options.quick { &[1, 2] } else { &[1, 2, 4, 8] };
    let (mut rows, mut one) = (Vec::new(), f64::NAN);
    for count in counts.iter().copied() {
        say(format!("linear gain: {count} members"));
        let group = slow_tokens(options, count).await?;
        let task = Task { callers: CALLERS * count, seconds };
        let each = measured(options, &group, &task, async || Ok(())).await?.seconds;
        // The first second is spent on finding out who is there.
        let rates: Vec<f64> = each.iter().skip(1).map(|second| second.rate).collect();
        let rate = load::median(rates);
        if count == 1 {
            one = rate;
        }
        let share = rate / (one * count as f64);
        rows.push(vec![
            count.to_string(),
            task.callers.to_string(),
            table::rate(rate),
            format!("{share:.3}"),
        ]);
    }
    let heading = format!("Members and rate: tokens that take {SERVICE_MS} ms an operation, one at a time");
    table::print(&heading, &["members", "callers", "signatures /s", "of N times one member's"], &rows);
    Ok(())
}

async fn slow(options: &Options) -> Result<(), Problem> {
    let seconds = if options.quick { 12 } else { 40 };
    let (sick, healed) = (seconds / 4, seconds * 5 / 8);
    say("one slow member of three");
    let three = slow_tokens(options, 3).await?;
    let task = Task { callers: 6, seconds };
    let each = measured(options, &three, &task, async || {
        tokio::time::sleep(Duration::from_secs(sick)).await;
        three.rules(2, &format!("C_Sign serve {SLOW_MS}\n"))?;
        tokio::time::sleep(Duration::from_secs(healed - sick)).await;
        three.rules(2, &format!("C_Sign serve {SERVICE_MS}\n"))
    })
    .await?
    .seconds;
    drop(three);
    let two = slow_tokens(options, 2).await?;
    let alone = measured(options, &two, &Task { callers: 6, seconds: seconds / 4 }, async || Ok(())).await?;
    let alone = alone.seconds;
    let part = |name: &str, seconds: &[Second]| {
        let rate = load::median(seconds.iter().map(|second| second.rate).collect());
        let p99 = load::median(seconds.iter().map(|second| second.p99_ms).collect());
        vec![name.to_string(), table::rate(rate), format!("{p99:.1} ms")]
    };
    let at = |second: u64| usize::try_from(second).unwrap_or(usize::MAX).min(each.len());
    let settle = if options.quick { 1 } else { 5 };
    let rows = [
        part("three members, all well", &each[at(1)..at(sick)]),
        part(
            &format!("one of them {} times slower", SLOW_MS / SERVICE_MS),
            &each[at(sick + settle)..at(healed)],
        ),
        part("two members, both well", alone.get(1..).unwrap_or_default()),
        part("the slow one healed", &each[at(seconds - settle)..]),
    ];
    let heading = format!(
        "One slow member of three: 6 callers, medians of whole seconds from {settle} s after each change"
    );
    table::print(&heading, &["what", "signatures /s", "p99 of a second"], &rows);
    Ok(())
}

/// A group whose tokens take their time.
async fn slow_tokens(options: &Options, count: usize) -> Result<Group, Problem> {
    let library = options.softhsm.display().to_string();
    let group = Group::form_behind(&options.dir, &library, count, options.log.as_deref(), &shim()?).await?;
    group.set_pin(0, PIN).await?;
    for index in 0..count {
        group.rules(index, &format!("C_Sign serve {SERVICE_MS}\n"))?;
    }
    Ok(group)
}

/// The module that plays slow tokens, beside this program.
fn shim() -> Result<std::path::PathBuf, Problem> {
    let program = std::env::current_exe().map_err(|e| Problem::io("finding the own program", &e))?;
    let shim = program.parent().unwrap_or(Path::new(".")).join("libkeyraft_shim.so");
    if shim.is_file() {
        return Ok(shim);
    }
    let what = format!("{} is missing", shim.display());
    Err(Problem::new(Exit::Usage, what, "build it: cargo build --release --package keyraft-shim"))
}

/// Runs a task in a process of its own, and something beside it.
pub async fn measured(
    options: &Options,
    group: &Group,
    task: &Task,
    beside: impl AsyncFnOnce() -> Result<(), Problem>,
) -> Result<Told, Problem> {
    let folder = Folder::new(&options.dir, "shares", options.log.is_some())?;
    let config = folder.path().join("client.toml");
    let sockets: Vec<_> = (0..group.len()).map(|index| group.socket_path(index)).collect();
    write_private(&config, &format!("[[group]]\nsockets = {sockets:?}\n"))?;
    let program = std::env::current_exe().map_err(|e| Problem::io("finding the own program", &e))?;
    let text = serde_json::to_string(task).map_err(|e| Problem::new(Exit::Unexpected, e, ""))?;
    let mut command = tokio::process::Command::new(program);
    command.env(TASK, text).env("KEYRAFT_CONFIG", &config).kill_on_drop(true).stdin(Stdio::null());
    let running = async { command.output().await.map_err(|e| Problem::io("measuring shares", &e)) };
    let (output, ()) = futures::future::try_join(running, beside()).await?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Problem::new(
            Exit::Unexpected,
            format!("measuring shares failed: {}", said.trim_end()),
            "",
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| Problem::new(Exit::Unexpected, e, ""))
}

/// The measuring process.
pub fn measure(task: &str) -> Result<(), Problem> {
    let task: Task = serde_json::from_str(task).map_err(|e| Problem::new(Exit::Usage, e, ""))?;
    let each = sign(&task).map_err(|e| Problem::new(Exit::Token, e, ""))?;
    let text = serde_json::to_string(&each).map_err(|e| Problem::new(Exit::Unexpected, e, ""))?;
    println!("{text}");
    Ok(())
}

fn sign(task: &Task) -> Result<Told, cryptoki::error::Error> {
    let module = Pkcs11::new(crate::slot::own_module())?;
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))?;
    let slot = module.get_slots_with_initialized_token()?[0];
    let session = module.open_rw_session(slot)?;
    session.login(UserType::User, Some(&AuthPin::new(PIN.into())))?;
    let curve = Attribute::EcParams(vec![0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07]);
    let public = [Attribute::Token(true), curve];
    let private = [Attribute::Token(true), Attribute::Private(true), Attribute::Sign(true)];
    let (_, key) = session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private)?;
    let begin = Clock.now();
    let seconds = usize::try_from(task.seconds).unwrap_or(usize::MAX);
    let worker = || -> Result<Signed, cryptoki::error::Error> {
        let session = module.open_ro_session(slot)?;
        let mut done = Vec::new();
        loop {
            let start = Clock.now();
            if (start - begin).as_secs() >= task.seconds {
                return Ok(done);
            }
            once(&session, key)?;
            let end = Clock.now();
            done.push(((end - begin).as_secs() as usize, end - start));
        }
    };
    let all = std::thread::scope(|scope| {
        let running: Vec<_> = (0..task.callers).map(|_| scope.spawn(worker)).collect();
        let joined = running.into_iter().map(|t| t.join().expect("a measuring thread does not panic"));
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let mut each = vec![Vec::new(); seconds];
    let pause = all.iter().flatten().map(|(_, took)| *took).max().unwrap_or_default();
    for (second, took) in all.into_iter().flatten() {
        if let Some(times) = each.get_mut(second) {
            times.push(took);
        }
    }
    let second = |times: Vec<Duration>| {
        let round = load::Round::new(vec![times], Duration::from_secs(1));
        Second { rate: round.rate(), p99_ms: round.quantile(0.99).as_secs_f64() * 1000.0 }
    };
    let seconds = each.into_iter().map(second).collect();
    Ok(Told { seconds, pause_ms: pause.as_secs_f64() * 1000.0 })
}

/// In which second each signature came, and how long it took.
type Signed = Vec<(usize, Duration)>;

fn once(session: &cryptoki::session::Session, key: ObjectHandle) -> Result<(), cryptoki::error::Error> {
    session.sign(&Mechanism::Ecdsa, key, &[7; 32]).map(drop)
}
