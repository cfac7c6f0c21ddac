//! One run: a group, its clients, its faults, and what everybody was told.

use super::cluster::{Cluster, Needs};
use super::leaks::search;
use super::looks::Look;
use super::nemesis::Nemesis;
use super::recorder::Recorder;
use crate::edn::Value;
use crate::history::{Event, Function, History, parse};
use crate::limits;
use crate::nemesis::Fault;
use crate::report;
use crate::watch::{self, News};
use crate::weak::Mode;
use crate::workload::{Workload, mark};
use keyraft_engine::clock::Clock;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program under test.
    pub keyraft: PathBuf,
    /// The module under test.
    pub module: PathBuf,
    /// Members live in networks of their own; else they are ordinary processes on loopback.
    pub networks: bool,
    /// The module that plays a sick token, if a fault needs it.
    pub shim: Option<PathBuf>,
    /// What clients do.
    pub workload: Workload,
    /// Which faults.
    pub faults: Vec<Fault>,
    /// For how long.
    pub time: Duration,
    /// Members.
    pub members: usize,
    /// Clients.
    pub clients: usize,
    /// Labels.
    pub labels: usize,
    /// The plan's, and the clients'.
    pub seed: u64,
    /// What members do that are cut off.
    pub mode: Mode,
    /// Where the members' logs are kept.
    pub out: PathBuf,
    /// The line that repeats the run.
    pub command: String,
}

/// From this length on a run must have taken a snapshot.
const SNAPSHOT_FROM: Duration = Duration::from_secs(600);
/// A second brings at least so many answers, or the run proves too little.
const ANSWERS_A_SECOND: u64 = 10;
/// Percent of operations that are answered, at least.
const ANSWERED_PERCENT: i64 = 40;
/// Keys that wait for their use at a member that hangs.
const NEWS_MAX: usize = 256;

/// Runs. `told` hears what happens; `stop` ends it early, with an error.
///
/// # Errors
/// The group could not be formed, or the run was stopped. What was started is gone in any case.
pub fn run(options: &Options, stop: &AtomicBool, told: &mut dyn FnMut(&str)) -> Result<History, String> {
    let of = |kind: fn(Fault) -> bool| options.faults.iter().any(|fault| kind(*fault));
    let needs = Needs {
        networks: options.networks,
        disks: of(Fault::is_of_disks),
        shim: of(Fault::is_of_tokens).then(|| options.shim.clone()).flatten(),
        clocks: options.faults.contains(&Fault::Clock),
    };
    let mut cluster = Cluster::prepare(&options.keyraft, options.members, needs, options.seed)?;
    cluster.form(stop, &mut *told).inspect_err(|_| cluster.keep_logs(&options.out))?;
    if options.mode == Mode::Fence {
        cluster.keyraft(0, &["option", "set", "isolated_service", "fence"], stop)?;
    }
    let look = Look::begin(&cluster)?;
    let recorder = Recorder::new();
    recorder.take(Event::nemesis(Function::Group, described(options)));
    let snapshots: Vec<PathBuf> = (0..options.members).map(|index| cluster.snapshot(index)).collect();
    let end = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        for (index, snapshot) in snapshots.into_iter().enumerate() {
            let (look, recorder, end, socket) = (&look, &recorder, &end, cluster.socket(index));
            scope.spawn(move || look.watch(index, socket, snapshot, recorder, end));
        }
        let mut news = Vec::new();
        for index in 0..options.members {
            let (send, receive) = sync_channel(NEWS_MAX);
            news.push(send);
            let (look, recorder, socket) = (&look, &recorder, cluster.socket(index));
            scope.spawn(move || look.probe(index, socket, &receive, recorder));
        }
        let outcome = work(options, &mut cluster, &look, &recorder, news, stop, told);
        end.store(true, Ordering::Relaxed);
        outcome
    });
    let outcome = outcome.and_then(|()| look_last(options, &mut cluster, &look, &recorder, stop, &mut *told));
    cluster.keep_logs(&options.out);
    if let Err(why) = outcome {
        // What was heard until then: somebody may want to look.
        report::keep(&options.out, &recorder.end())?;
        return Err(format!("{why}; the history until then is in {}", options.out.display()));
    }
    Ok(recorder.end())
}

/// What is looked at once the clients have ended.
fn look_last(
    options: &Options,
    cluster: &mut Cluster,
    look: &Look,
    recorder: &Recorder,
    stop: &AtomicBool,
    told: &mut dyn FnMut(&str),
) -> Result<(), String> {
    told("every member lists and proves its keys");
    look.last(cluster, recorder, stop);
    // Nothing has been broken since all was whole.
    for (member, why) in cluster.ends() {
        recorder.take(watch::ended(member, why, false));
    }
    if stop.load(Ordering::Relaxed) {
        return Err("stopped".into());
    }
    if options.networks {
        told("keys in clear are looked for");
        recorder.take(Event::nemesis(Function::InClear, in_clear(cluster, options.seed)?));
    }
    Ok(())
}

/// Ends all members, and looks for keys in what they wrote and said.
fn in_clear(cluster: &mut Cluster, seed: u64) -> Result<Value, String> {
    (0..cluster.count()).for_each(|index| cluster.kill(index));
    let ear = cluster.silence()?;
    let searched = search(&cluster.path(""), mark(seed))?;
    let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let files = searched.leaks.iter().map(|path| path.display().to_string());
    let leaks = files.chain(ear.leaks.iter().cloned()).map(Value::Text).collect();
    Ok(Value::map([
        ("disk-bytes", number(searched.bytes)),
        ("wire-bytes", number(ear.bytes)),
        ("leaks", Value::List(leaks)),
    ]))
}

fn described(options: &Options) -> Value {
    let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let elects = options.faults.iter().any(|fault| fault.elects());
    let snapshot = options.time >= SNAPSHOT_FROM || options.faults.contains(&Fault::Snapshot);
    let functions = options.workload.functions();
    let demands = Value::map([
        ("answered", number(options.time.as_secs() * ANSWERS_A_SECOND)),
        ("ok-percent", Value::Int(ANSWERED_PERCENT)),
        ("primaries", Value::Int(if elects { 2 } else { 1 })),
        ("snapshot", Value::Bool(snapshot)),
        // Only a network of their own lets members be listened to.
        ("in-clear", Value::Bool(options.networks)),
        ("each-call", Value::Bool(true)),
        ("functions", Value::List(functions.iter().map(|one| Value::word(one.name())).collect())),
    ]);
    Value::map([
        ("mode", Value::word(options.mode.name())),
        ("members", number(options.members as u64)),
        ("clients", number(options.clients as u64)),
        ("seed", number(options.seed)),
        ("workload", Value::word(options.workload.name())),
        ("faults", Value::List(options.faults.iter().map(|fault| Value::word(fault.name())).collect())),
        ("demands", demands),
        ("command", Value::Text(options.command.clone())),
    ])
}

/// The clients' process. It ends with its value.
struct Clients(Child);

impl Drop for Clients {
    fn drop(&mut self) {
        // Nothing is left to do about a process that cannot be ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(options: &Options, cluster: &Cluster, base: u64) -> Result<(Clients, ChildStdout), String> {
    let own = std::env::current_exe().map_err(|error| format!("our own path: {error}"))?;
    let mut command = Command::new(own);
    command.arg("clients").arg("--module").arg(&options.module);
    for index in 0..options.members {
        command.arg("--socket").arg(cluster.socket(index));
    }
    command.arg("--workload").arg(options.workload.name());
    for (name, number) in [
        ("--clients", options.clients as u64),
        ("--labels", options.labels as u64),
        ("--members", options.members as u64),
        ("--seed", options.seed),
        ("--base", base),
    ] {
        command.arg(name).arg(number.to_string());
    }
    command.env("KEYRAFT_CONFIG", cluster.path("client.toml")).env_remove("KEYRAFT_DEBUG");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("the clients' process: {error}"))?;
    let out = child.stdout.take().ok_or("the clients' process has no output")?;
    Ok((Clients(child), out))
}

fn work(
    options: &Options,
    cluster: &mut Cluster,
    look: &Look,
    recorder: &Recorder,
    news: Vec<SyncSender<News>>,
    stop: &AtomicBool,
    told: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let (mut clients, out) = start(options, cluster, recorder.base)?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || listen(out, recorder, &news));
        let mut nemesis = Nemesis::new(cluster, look, recorder, stop, &options.faults, options.clients);
        let broken = nemesis.work(options.seed, options.time, told);
        told("the clients end");
        let early = reader.is_finished();
        // The end of its input tells it to end; what it still waits for is bounded by its calls' deadline.
        drop(clients.0.stdin.take());
        let late = Clock.now() + limits::LAST_ANSWER;
        while !reader.is_finished() && Clock.now() < late && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let hangs = !reader.is_finished();
        let status = if hangs { None } else { clients.0.wait().ok() };
        drop(clients);
        let heard = reader.join().map_err(|_| "the reader of the clients' events panicked".to_string())?;
        broken?;
        heard?;
        if hangs {
            return Err("the clients' last calls did not end in time".into());
        }
        if early || !status.is_some_and(|status| status.success()) {
            return Err(format!("the clients' process ended by itself or badly: {status:?}"));
        }
        // What ended with the last calls is settled before everybody looks.
        nemesis.whole(0).map(|_| ())
    })
}

/// Takes the clients' events until there are no more.
fn listen(out: ChildStdout, recorder: &Recorder, news: &[SyncSender<News>]) -> Result<(), String> {
    for line in BufReader::new(out).lines() {
        let line = line.map_err(|error| format!("the clients' events: {error}"))?;
        let events = parse(&line).map_err(|error| format!("the clients' events: {error}"))?.events;
        for event in events {
            for (send, one) in news.iter().zip(News::of(&event).into_iter().cycle()) {
                // A member that hangs has enough to try.
                let _ = send.try_send(one);
            }
            recorder.take(event);
        }
    }
    Ok(())
}
