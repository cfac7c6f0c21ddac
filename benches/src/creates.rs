//! EC P-256 creates beside etcd's puts, in alternating rounds.

use crate::Options;
use crate::etcd::{Client, Etcd};
use crate::load::{self, Round, median};
use crate::members::{Creator, Group, P256};
use crate::table::{self, say};
use keyraft_node::engine::Socket;
use keyraft_node::exit::Problem;
use std::time::Duration;

/// Callers on each side, each with its own connection.
const CALLERS: usize = 8;
/// What a put carries.
const VALUE_BYTES: usize = 1024;

/// Prints the table.
pub async fn run(options: &Options) -> Result<(), Problem> {
    let (rounds, time) = if options.quick { (3, 1) } else { (5, 6) };
    let time = Duration::from_secs(time);
    say("creates: starting three members and three of etcd's");
    let group = Group::form(&options.dir, "embedded", 3, options.log.as_deref()).await?;
    let primary = group.primary().await?;
    let sockets: Vec<Socket> = (0..CALLERS).map(|_| group.connect(primary)).collect();
    let mut creators = Vec::new();
    for (index, socket) in sockets.iter().enumerate() {
        creators.push(Creator::begin(socket, P256, format!("c{index}")).await?);
    }
    let etcd = Etcd::form(&options.etcd, &options.dir, "etcd", &[]).await?;
    let mut putters = Vec::new();
    for index in 0..CALLERS {
        putters.push(Putter { client: etcd.client().await?, index, made: 0 });
    }
    let warm = Duration::from_secs(1);
    creates(warm, &mut creators).await?;
    puts(warm, &mut putters).await?;
    let mut ours: Vec<Round> = Vec::new();
    let mut theirs: Vec<Round> = Vec::new();
    for round in 1..=rounds {
        let a = creates(time, &mut creators).await?;
        let b = puts(time, &mut putters).await?;
        say(format!("round {round} of {rounds}: {:.0} creates/s, {:.0} puts/s", a.rate(), b.rate()));
        ours.push(a);
        theirs.push(b);
    }
    let rate = |rounds: &[Round]| median(rounds.iter().map(Round::rate).collect());
    let row = |what: String, rounds: &[Round], ratio: String| {
        let each: Vec<String> = rounds.iter().map(|r| table::rate(r.rate())).collect();
        let quantile = |share: f64| {
            let middle = median(rounds.iter().map(|r| r.quantile(share).as_secs_f64()).collect());
            table::millis(Duration::from_secs_f64(middle))
        };
        vec![what, table::rate(rate(rounds)), quantile(0.5), quantile(0.99), each.join(", "), ratio]
    };
    let heading = format!(
        "Creates: {CALLERS} callers at the primary, three members on loopback, {rounds} alternating rounds of {} s",
        time.as_secs()
    );
    let ratio = format!("{:.2}", rate(&ours) / rate(&theirs));
    let columns = ["what", "median /s", "p50", "p99", "each round /s", "ratio"];
    let mine = row("keyraft: EC P-256 creates".into(), &ours, ratio);
    let other =
        row(format!("etcd {}: puts of {VALUE_BYTES} bytes (gRPC)", etcd.version), &theirs, "1".into());
    table::print(&heading, &columns, &[mine, other]);
    Ok(())
}

async fn creates(time: Duration, creators: &mut [Creator<'_>]) -> Result<Round, Problem> {
    load::for_time(time, creators.iter_mut().map(|c| async || c.create().await).collect()).await
}

async fn puts(time: Duration, putters: &mut [Putter]) -> Result<Round, Problem> {
    load::for_time(time, putters.iter_mut().map(|p| async || p.put().await).collect()).await
}

struct Putter {
    client: Client,
    index: usize,
    made: usize,
}

impl Putter {
    async fn put(&mut self) -> Result<(), Problem> {
        self.made += 1;
        let key = format!("bench/{}/{}", self.index, self.made).into_bytes();
        self.client.put(key, vec![0x5A; VALUE_BYTES]).await
    }
}
