//! `jepsen-lite`: breaks a group of keyraft members on purpose, and judges what its clients were told.

mod simulated;
mod terminal;

use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use keyraft_engine::mutant::Mutant;
use keyraft_jepsen_lite::checker::Findings;
use keyraft_jepsen_lite::history::{HistoryError, read};
use keyraft_jepsen_lite::judge::{BUDGET, Judgement, judge, told};
use keyraft_jepsen_lite::limits;
use keyraft_jepsen_lite::nemesis::{Fault, chosen};
use keyraft_jepsen_lite::netns::{FAULTS, Job, OUTSIDE_FAULTS, Options, is_shipped, run, work};
use keyraft_jepsen_lite::report;
use keyraft_jepsen_lite::sim::Range;
use keyraft_jepsen_lite::weak::Mode;
use keyraft_jepsen_lite::wgl::Verdict;
use keyraft_jepsen_lite::workload::{Work, Workload};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terminal::say;

/// Breaks a group of keyraft members on purpose, and judges what its clients were told. Exit code 3: it could not be done at
/// all, and the error says why.
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
    /// Form a group, let clients work, break what is named, and let all checkers look (exit 0 if all pass, 1 if not).
    Run(Box<Run>),
    /// One simulated seed, in a process of its own: its results as JSON.
    #[command(hide = true)]
    SimOne {
        #[command(flatten)]
        run: Box<Run>,
        /// Papers are written whatever comes of it.
        #[arg(long)]
        keep: bool,
    },
    /// Make the papers of a run anew from its history.jsonl.
    Report {
        /// The run's folder.
        folder: PathBuf,
    },
    /// The clients of a run, in a process of their own.
    #[command(hide = true)]
    Clients {
        #[arg(long)]
        module: PathBuf,
        #[arg(long)]
        socket: Vec<PathBuf>,
        #[arg(long, value_parser = workload)]
        workload: Workload,
        #[arg(long)]
        clients: usize,
        #[arg(long)]
        labels: usize,
        #[arg(long)]
        members: usize,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        base: u64,
    },
}

/// How real a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rung {
    /// Whole members in simulated time: every seed a run that can be repeated byte for byte.
    Sim,
    /// Real processes in network namespaces. As root.
    Netns,
    /// The program and module as they are shipped, ordinary processes on loopback; kill and pause alone.
    Outside,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Isolated {
    Serve,
    Fence,
}

impl Isolated {
    fn mode(self) -> Mode {
        match self {
            Self::Serve => Mode::Serve,
            Self::Fence => Mode::Fence,
        }
    }
}

#[derive(Debug, Args)]
struct Run {
    #[arg(long, value_enum)]
    rung: Rung,
    /// What clients do: lives, register, set, sessions, or mix for all of it.
    #[arg(long, value_parser = workload, default_value = "mix")]
    workload: Workload,
    /// Faults, by commas, or 'all' that the rung has; docs/FAULT_TESTING.md lists them. None for a run without. Of many a
    /// simulated seed chooses some.
    #[arg(long, value_delimiter = ',')]
    nemesis: Vec<String>,
    /// Seconds; 60 if left out, 20 of simulated time.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time: Option<u64>,
    /// Decides faults and operations. Simulated are also many, as 1..1000.
    #[arg(long, default_value = "1")]
    seed: Range,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=limits::MEMBERS_MAX as i64))]
    members: u8,
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=limits::CLIENTS_MAX as i64))]
    clients: u8,
    /// The fewer, the more clients meet.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    labels: u8,
    /// What members do that are cut off: the group's option isolated_service.
    #[arg(long, value_enum, default_value_t = Isolated::Serve)]
    mode: Isolated,
    /// Where history and papers go.
    #[arg(long, default_value = "jepsen-lite-run")]
    out: PathBuf,
    /// Simulations at once; as many as there are processors if left out.
    #[arg(long)]
    jobs: Option<u8>,
    /// End with the first simulated seed that fails.
    #[arg(long)]
    first_failure: bool,
    /// A known mistake is switched on in all simulated members: the run is to find it.
    #[arg(long, value_parser = known_mistake)]
    mutant: Option<String>,
    /// The program under test; beside this one if left out.
    #[arg(long)]
    keyraft: Option<PathBuf>,
    /// The module under test; beside this program if left out.
    #[arg(long)]
    module: Option<PathBuf>,
}

fn workload(name: &str) -> Result<Workload, String> {
    let known: Vec<&str> = Workload::ALL.into_iter().map(Workload::name).collect();
    Workload::named(name)
        .ok_or_else(|| format!("there is none of that name: give one of {}", known.join(", ")))
}

fn known_mistake(name: &str) -> Result<String, String> {
    let known: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
    let found = known.contains(&name).then(|| name.to_string());
    found.ok_or_else(|| format!("there is none of that name: give one of {}", known.join(", ")))
}

/// How long a run of real members lasts, unless somebody says otherwise, seconds.
const TIME: u64 = 60;
/// What could not be judged at all.
const BROKEN: u8 = 3;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // 2 is a verdict.
            let code = if error.use_stderr() { BROKEN } else { 0 };
            // A reader who has gone needs no help text.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let outcome = match arguments.command {
        Command::Check { file, steps } => check(&file, steps),
        Command::Run(options) if options.rung == Rung::Sim => simulated::run(&options),
        Command::Run(options) => break_things(&options),
        Command::SimOne { run, keep } => simulated::one(&run, keep),
        Command::Report { folder } => papers(&folder),
        Command::Clients { module, socket, workload, clients, labels, members, seed, base } => work(&Job {
            module,
            sockets: socket,
            work: Work { workload, clients, labels, members, seed },
            base,
        })
        .map(|()| 0),
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
    let in_file = |error: HistoryError| format!("{}: {error}", file.display());
    let found = judge(&history, steps).map_err(in_file)?;
    let Judgement { operations, judged, keys, steps, .. } = &found;
    say(format_args!("{operations} operations, {judged} judged, {keys} keys, {steps} steps"))?;
    if let Some(window) = &found.window {
        let key = window.key.as_ref().map(|key| format!(" of '{key}'")).unwrap_or_default();
        let line = history.line(window.to);
        say(format_args!("no order{key} explains line {line}; what cannot be put in order:"))?;
        for event in window.calls.iter().chain([&window.to]) {
            let what = history.events.get(*event).map(told).unwrap_or_default();
            say(format_args!("  line {}: {what}", history.line(*event)))?;
        }
    }
    say(found.verdict)?;
    Ok(match found.verdict {
        Verdict::Linearizable => 0,
        Verdict::NotLinearizable => 1,
        Verdict::Unknown => 2,
    })
}

/// What is built beside this program.
fn beside(given: Option<&PathBuf>, name: &str, build: &str) -> Result<PathBuf, String> {
    let path = match given {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(|error| error.to_string())?.with_file_name(name),
    };
    path.canonicalize().map_err(|error| format!("{}: {error}; build it by '{build}'", path.display()))
}

/// Ctrl-C and SIGTERM end the run in order; whoever asks finds it in `stop`.
fn listen_for_the_end(stop: &'static AtomicBool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("signals: {error}"))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
            let Ok(mut terminate) = terminate else { return };
            loop {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
                stop.store(true, Ordering::Relaxed);
            }
        });
    });
    Ok(())
}

/// What a run of real members is to do.
fn options(given: &Run) -> Result<Options, String> {
    let networks = given.rung == Rung::Netns;
    let (rung, has) = if networks { ("netns", FAULTS) } else { ("outside", OUTSIDE_FAULTS) };
    if !given.seed.is_one() {
        return Err(format!("rung {rung} runs one seed at a time: give one number"));
    }
    let simulated = [
        ("--mutant", given.mutant.is_some()),
        ("--first-failure", given.first_failure),
        ("--jobs", given.jobs.is_some()),
    ];
    if let Some((word, _)) = simulated.into_iter().find(|(_, is_given)| *is_given) {
        return Err(format!("{word} is for rung sim alone: rung {rung} does not know it"));
    }
    if networks && !rustix::process::geteuid().is_root() {
        return Err("network namespaces need root: run as root".into());
    }
    let faults = chosen(&given.nemesis, rung, has)?;
    if faults.contains(&Fault::Snapshot) && matches!(given.mode, Isolated::Fence) {
        return Err("'snapshot' switches the group between serve and fence: give --mode serve".into());
    }
    let program = "cargo build --package keyraft-node --bin keyraft";
    let keyraft = beside(given.keyraft.as_ref(), "keyraft", program)?;
    let module = beside(given.module.as_ref(), "libkeyraft_pkcs11.so", "cargo build -p keyraft-pkcs11")?;
    if !networks {
        is_shipped(&keyraft)?;
        is_shipped(&module)?;
    }
    let (time, mode) = (given.time.unwrap_or(TIME), given.mode.mode());
    let mut command = format!(
        "jepsen-lite run --rung {rung} --workload {} --nemesis '{}' --time {time} --seed {} --members {} --clients {} \
         --labels {} --mode {}",
        given.workload.name(),
        given.nemesis.join(","),
        given.seed.first,
        given.members,
        given.clients,
        given.labels,
        mode.name()
    );
    for (name, path) in [("keyraft", &given.keyraft), ("module", &given.module)] {
        command.extend(path.iter().map(|path| format!(" --{name} {}", path.display())));
    }
    Ok(Options {
        keyraft,
        module,
        networks,
        shim: match faults.iter().any(|fault| fault.is_of_tokens()) {
            true => Some(beside(None, "libkeyraft_shim.so", "cargo build -p keyraft-shim")?),
            false => None,
        },
        workload: given.workload,
        faults,
        time: Duration::from_secs(time),
        members: usize::from(given.members),
        clients: usize::from(given.clients),
        labels: usize::from(given.labels),
        seed: given.seed.first,
        mode,
        out: given.out.clone(),
        command,
    })
}

fn break_things(given: &Run) -> Result<u8, String> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let options = options(given)?;
    report::begin(&given.out)?;
    listen_for_the_end(&STOP)?;
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::default_spinner().template("{spinner} {elapsed} {msg}").map_err(|e| e.to_string())?,
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let shown = bar.is_hidden();
    let history = run(&options, &STOP, &mut |what| {
        bar.set_message(what.to_string());
        if shown {
            eprintln!("{what}");
        }
    });
    bar.finish_and_clear();
    let history = history?;
    report::keep(&given.out, &history)?;
    let findings = report::make(&given.out, &history)?;
    let code = show(&findings)?;
    say(format_args!("papers: {}", given.out.display()))?;
    say(format_args!("again: {}", options.command))?;
    Ok(code)
}

fn papers(folder: &Path) -> Result<u8, String> {
    let history = read(&folder.join(report::HISTORY)).map_err(|error| error.to_string())?;
    show(&report::make(folder, &history)?)
}

fn show(findings: &Findings) -> Result<u8, String> {
    for finding in &findings.all {
        let mark = if finding.passes() { "ok  " } else { "FAIL" };
        let numbers: Vec<String> =
            finding.numbers.iter().map(|(name, number)| format!("{name} {number}")).collect();
        let numbers = if numbers.is_empty() { String::new() } else { format!("; {}", numbers.join(", ")) };
        say(format_args!("{mark} {}: {}{numbers}", finding.name, finding.looked))?;
        for complaint in &finding.complaints {
            say(format_args!("       {complaint}"))?;
        }
        if finding.wrong > finding.complaints.len() {
            say(format_args!("       and {} more", finding.wrong - finding.complaints.len()))?;
        }
    }
    say(findings.judgement.verdict)?;
    Ok(u8::from(!findings.pass()))
}
