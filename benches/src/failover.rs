//! How long nobody leads: after kill -9 of the primary and at a planned hand-over, beside etcd with its own times and
//! with those that are nearest to a member's.

use crate::Options;
use crate::etcd::Etcd;
use crate::load::median;
use crate::members::{Creator, Group, P256, in_time};
use crate::table::{self, say};
use keyraft_engine::clock::Clock;
use keyraft_engine::state::GroupOption;
use keyraft_engine::wire::{Answer, ClientRequest};
use keyraft_node::caller::{Ask, status};
use keyraft_node::engine::Socket;
use keyraft_node::exit::Problem;
use std::time::{Duration, Instant};

/// Between two looks at who leads.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// What one question may take; a member that has just been killed answers none.
const PATIENCE: Duration = Duration::from_secs(2);
/// What etcd is told to come near to a member's times, milliseconds.
const TUNED: [&str; 4] = ["--heartbeat-interval", "50", "--election-timeout", "250"];
/// Rest between two rounds, so that every round meets a quiet group.
const REST: Duration = Duration::from_secs(1);

/// One kind of measurement: from the fault, or the wish, to each of its stages.
#[derive(Default)]
struct Gaps {
    leads: Vec<Duration>,
    changed: Vec<Duration>,
    created: Vec<Duration>,
}

/// Prints the table.
pub async fn run(options: &Options) -> Result<(), Problem> {
    let rounds = if options.quick { 3 } else { 10 };
    say("failover: starting three members, and twice three of etcd's");
    let mut group = Group::form(&options.dir, "embedded", 3, options.log.as_deref()).await?;
    let mut plain = Etcd::form(&options.etcd, &options.dir, "etcd", &[]).await?;
    let mut tuned = Etcd::form(&options.etcd, &options.dir, "tuned", &TUNED).await?;
    let mut kills: [Gaps; 3] = Default::default();
    let mut moves: [Gaps; 3] = Default::default();
    for round in 1..=rounds {
        tokio::time::sleep(REST).await;
        kill(&mut group, &mut kills[0]).await?;
        plain.kill_leader(&mut kills[1].leads, &mut kills[1].changed).await?;
        tuned.kill_leader(&mut kills[2].leads, &mut kills[2].changed).await?;
        tokio::time::sleep(REST).await;
        step_down(&group, &mut moves[0]).await?;
        plain.move_leader(&mut moves[1].leads, &mut moves[1].changed).await?;
        tuned.move_leader(&mut moves[2].leads, &mut moves[2].changed).await?;
        let last = |gaps: &[Gaps]| {
            let last = gaps.iter().filter_map(|gaps| gaps.changed.last());
            last.map(|time| table::millis(*time)).collect::<Vec<_>>().join(", ")
        };
        say(format!("round {round} of {rounds}: kill -9 {}; hand-over {}", last(&kills), last(&moves)));
    }
    let names = [
        "keyraft (heartbeat 50 ms, election 150 to 300 ms)".to_string(),
        format!("etcd {} (heartbeat 100 ms, election 1000 ms)", plain.version),
        format!("etcd {} (heartbeat 50 ms, election 250 ms)", tuned.version),
    ];
    let row = |what: &str, name: &String, gaps: &Gaps| {
        let cell = |times: &[Duration]| match times.iter().max() {
            None => "-".to_string(),
            Some(worst) => {
                let middle = median(times.iter().map(Duration::as_secs_f64).collect());
                format!("{} ({})", table::millis(Duration::from_secs_f64(middle)), table::millis(*worst))
            }
        };
        vec![what.to_string(), name.clone(), cell(&gaps.leads), cell(&gaps.changed), cell(&gaps.created)]
    };
    let of = |what: &str, gaps: &[Gaps]| {
        names.iter().zip(gaps).map(|(name, gaps)| row(what, name, gaps)).collect::<Vec<_>>()
    };
    let rows = [of("kill -9 of the primary", &kills), of("planned hand-over", &moves)].concat();
    let heading = format!("Time without a primary: three members on loopback, median (worst) of {rounds}");
    let columns =
        ["fault", "of", "until another leads", "until a change is answered", "until a key is created"];
    table::print(&heading, &columns, &rows);
    Ok(())
}

async fn kill(group: &mut Group, gaps: &mut Gaps) -> Result<(), Problem> {
    let primary = group.primary().await?;
    let others: Vec<Socket> =
        (0..group.len()).filter(|i| *i != primary).map(|index| group.connect(index)).collect();
    for socket in &others {
        socket.greet().await?;
    }
    let begin = Clock.now();
    group.end(primary);
    follow(&others, begin, gaps).await?;
    group.start(primary).await?;
    group.wait_in_sync(primary).await
}

async fn step_down(group: &Group, gaps: &mut Gaps) -> Result<(), Problem> {
    let primary = group.primary().await?;
    let others: Vec<Socket> =
        (0..group.len()).filter(|i| *i != primary).map(|index| group.connect(index)).collect();
    for socket in &others {
        socket.greet().await?;
    }
    let old = group.connect(primary);
    old.greet().await?;
    let begin = Clock.now();
    let ask = old.ask(ClientRequest::StepDown { to: None }, PATIENCE);
    let (stepped, followed) = tokio::join!(ask, follow(&others, begin, gaps));
    stepped.map_err(Problem::from)?;
    followed
}

/// Notes when one of these members leads, has answered a change, and has made a key.
async fn follow(members: &[Socket], begin: Instant, gaps: &mut Gaps) -> Result<(), Problem> {
    let leader = 'found: loop {
        for socket in members {
            let seen = status(socket, PATIENCE).await?;
            if seen.primary == Some(seen.answered_by) {
                break 'found socket;
            }
        }
        in_time(begin, "another primary")?;
        tokio::time::sleep(LOOK_EVERY).await;
    };
    gaps.leads.push(Clock.now() - begin);
    loop {
        let same = ClientRequest::SetOption(GroupOption::AllowInitToken(false));
        if matches!(leader.ask(same, PATIENCE).await, Ok(Answer::Done)) {
            break;
        }
        in_time(begin, "a change")?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    gaps.changed.push(Clock.now() - begin);
    Creator::begin(leader, P256, "f".into()).await?.create().await?;
    gaps.created.push(Clock.now() - begin);
    Ok(())
}
