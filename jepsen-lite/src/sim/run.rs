//! One seed: a group, its clients, its faults, and what everybody was told. For a process of its own, which does nothing
//! else.

use super::application::PIN;
use super::breaker::Breaker;
use super::clients::Clients;
use super::entropy;
use super::leaks::Search;
use super::looks::{self, Look};
use super::recorder::Recorder;
use super::storm;
use super::world::World;
use crate::checker::Facts;
use crate::checker::coverage::commits_under;
use crate::dice::Dice;
use crate::edn::Value;
use crate::history::{End, Event, Function, History};
use crate::limits;
use crate::nemesis::Fault;
use crate::weak::Mode;
use crate::workload::{Work, Workload, imported, mark};
use keyraft_engine::assembly::InitGroup;
use keyraft_engine::state::{IsolatedService, Options as GroupOptions};
use keyraft_engine::wire::{Answer, ClientRequest, SecretBytes};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// What clients do.
    pub workload: Workload,
    /// The faults that the seed chooses from.
    pub faults: Vec<Fault>,
    /// For how long, in simulated time.
    pub time: Duration,
    /// Members.
    pub members: usize,
    /// Clients.
    pub clients: usize,
    /// Labels.
    pub labels: usize,
    /// What members do that are cut off.
    pub mode: Mode,
    /// The line that repeats the run.
    pub command: String,
}

/// Of the simulated time clients are answered at least so often, a second: less proves too little.
const ANSWERS_A_SECOND: u64 = 2;
/// Percent of operations that are answered, at least.
const ANSWERED_PERCENT: i64 = 20;
/// Between two looks at a group that is being formed.
const FORM_PAUSE: Duration = Duration::from_millis(50);
/// How creations by value are called where calls are counted: in all seeds together there must be some.
pub const BY_VALUE: &str = "create-by-value";
/// The group's label.
const LABEL: &str = "jepsen";

/// Simulates. Everything in this process is simulated from then on, and only once.
///
/// # Errors
/// The group could not be formed, or the simulation itself fails.
pub fn simulate(options: &Options) -> Result<(History, Duration), String> {
    // Its name must not be drawn from what the seed decides.
    let folder = tempfile::Builder::new().prefix("ks").tempdir().map_err(|error| error.to_string())?;
    entropy::begin(options.seed);
    // A thread that has drawn nothing yet.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            keyraft_engine::simulation::begin(entropy::elapsed);
            run(options, folder.path())
        });
        run.join().map_err(|_| "the simulation panicked".to_string())?
    })
}

fn run(options: &Options, folder: &Path) -> Result<(History, Duration), String> {
    let mut dice = Dice::new(options.seed);
    let search = Arc::new(Search::new(mark(options.seed)));
    let mut world = World::new(options.members, folder, &mut dice, &search)?;
    form(&mut world, options)?;
    let faults = storm::drawn(&options.faults, &mut dice);
    let recorder = Arc::new(Recorder::new());
    recorder.take(Event::nemesis(Function::Group, described(options, &faults)));
    world.recorder = Some(recorder.clone());
    let look = Arc::new(Look::default());
    let mut news = Vec::new();
    for place in 0..options.members {
        let (send, receive) = mpsc::unbounded_channel();
        news.push(send);
        let (network, disk) = (world.network.clone(), world.machines[place].disk.clone());
        let before = disk.checkpoints();
        let snapshots = Box::new(move || disk.checkpoints() > before);
        world.outside.spawn(look.clone().watch(network.clone(), recorder.clone(), place, snapshots));
        world.outside.spawn(Look::probe(network, recorder.clone(), place, receive));
    }
    let work = Work {
        workload: options.workload,
        clients: options.clients,
        labels: options.labels,
        members: options.members,
        seed: options.seed,
    };
    let clients = Clients::new(work, &world.network, &recorder, news);
    for index in 0..options.clients {
        world.outside.spawn(clients.clone().live(index));
    }
    let until = world.now() + options.time;
    let mut breaker = Breaker::new(&mut world, &look, &recorder, &faults, Dice::new(dice.below(u64::MAX)));
    let whole = breaker.work(until)?;
    clients.stop();
    let late = breaker.world.now() + limits::LAST_ANSWER;
    while !clients.have_ended() && breaker.world.now() < late {
        breaker.world.step()?;
    }
    if !clients.have_ended() {
        return Err("the clients' last calls did not end in time".into());
    }
    // What ended with the last calls is settled before everybody looks.
    if whole && breaker.whole()? {
        looks::last(breaker.world, &recorder)?;
    }
    let lived = world.now();
    recorder.take(search.end(folder)?);
    Ok((recorder.end(), lived))
}

/// The first member makes the group, the others join one after another, and all is whole.
fn form(world: &mut World, options: &Options) -> Result<(), String> {
    let isolated_service = match options.mode {
        Mode::Serve => IsolatedService::Serve,
        Mode::Fence => IsolatedService::Fence,
    };
    let group = InitGroup {
        label: LABEL.into(),
        options: GroupOptions { isolated_service, ..GroupOptions::default() },
        user_pin: Some(SecretBytes(PIN.as_bytes().to_vec().into())),
        ..InitGroup::default()
    };
    let late = || "it takes too long".to_string();
    let founding = world.machines[0].founding(group);
    world
        .wait_at(0, founding, limits::COMMAND)?
        .ok_or_else(late)?
        .map_err(|error| format!("making the group: {error}"))?;
    start(world, 0)?;
    for place in 1..options.members {
        let invitation = invitation(world)?;
        let joining = world.machines[place].joining(invitation);
        world
            .wait_at(place, joining, limits::COMMAND)?
            .ok_or_else(late)?
            .map_err(|error| format!("member {place} joins: {error}"))?;
        start(world, place)?;
    }
    let end = world.now() + limits::WHOLE;
    loop {
        match looks::whole(world)? {
            Ok(_) => return Ok(()),
            Err(why) if world.now() >= end => return Err(format!("the group is not whole: {why}")),
            Err(_) => world.rest(FORM_PAUSE)?,
        }
    }
}

fn start(world: &mut World, place: usize) -> Result<(), String> {
    let now = world.now();
    world.machines[place].start(now)
}

fn invitation(world: &mut World) -> Result<String, String> {
    let end = world.now() + limits::COMMAND;
    loop {
        let asked = world.ask(0, ClientRequest::Invite { life_seconds: 600 }, limits::LOOK)?;
        match asked {
            Ok(Answer::Invitation(text)) => return Ok(text),
            Ok(_) => return Err("the member answered another question".into()),
            Err(why) if world.now() >= end => return Err(format!("inviting: {why:?}")),
            Err(_) => world.rest(FORM_PAUSE)?,
        }
    }
}

fn described(options: &Options, faults: &[Fault]) -> Value {
    let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let functions = options.workload.functions();
    // That changes come through under each fault, and that each call is answered, is asked of all seeds together.
    let demands = Value::map([
        ("answered", number(options.time.as_secs() * ANSWERS_A_SECOND)),
        ("ok-percent", Value::Int(ANSWERED_PERCENT)),
        ("primaries", Value::Int(1)),
        ("snapshot", Value::Bool(false)),
        ("in-clear", Value::Bool(true)),
        ("functions", Value::List(functions.iter().map(|one| Value::word(one.name())).collect())),
    ]);
    Value::map([
        ("mode", Value::word(options.mode.name())),
        ("tokens", Value::Bool(true)),
        ("members", number(options.members as u64)),
        ("clients", number(options.clients as u64)),
        ("seed", number(options.seed)),
        ("workload", Value::word(options.workload.name())),
        ("faults", Value::List(Vec::new())),
        ("drawn", Value::List(faults.iter().map(|fault| Value::word(fault.name())).collect())),
        ("demands", demands),
        ("command", Value::Text(options.command.clone())),
    ])
}

/// How many changes were answered under each fault that came and left a quorum.
///
/// # Errors
/// The history contradicts itself.
pub fn commits(history: &History) -> Result<BTreeMap<&'static str, u64>, String> {
    let facts = Facts::of(history).map_err(|error| error.to_string())?;
    let under = Fault::ALL.iter().filter_map(|fault| {
        let commits = commits_under(&facts, fault.name())?;
        Some((fault.name(), u64::try_from(commits).unwrap_or(0)))
    });
    Ok(under.collect())
}

/// How many calls of each function were answered.
///
/// # Errors
/// The history contradicts itself.
pub fn answered_calls(history: &History) -> Result<BTreeMap<String, u64>, String> {
    let facts = Facts::of(history).map_err(|error| error.to_string())?;
    let mut calls = BTreeMap::new();
    for operation in facts.operations.iter().filter(|operation| operation.end == End::Ok) {
        *calls.entry(operation.function.name().to_string()).or_default() += 1;
        if operation.function == Function::Create && operation.asked.text().is_some_and(imported) {
            *calls.entry(BY_VALUE.to_string()).or_default() += 1;
        }
    }
    Ok(calls)
}
