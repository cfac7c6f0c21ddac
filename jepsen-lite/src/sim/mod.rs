//! Whole members, simulated: one process a seed, one thread, virtual time, and everything that is random drawn from the
//! seed, so that the same seed gives the same history byte for byte.
//!
//! `entropy` is the C boundary: what is random and what time it is. `host` is a machine's clock and its tasks, `network` carries
//! requests between machines, `peers` is what a member has in place of TLS. `machine` is a member's machine, `world` all of them
//! and their time. `asks` and `application` ask members as the PKCS#11 module does, `clients` lets the workload do so.
//! `storm` is what breaks when, `breaker` does and mends it, `looks` asks members what they see, `tokens` looks into their tokens. `run` is one seed, `seeds` many.

mod application;
mod asks;
mod breaker;
mod clients;
mod counts;
pub mod entropy;
mod host;
mod journal;
mod leaks;
mod looks;
mod machine;
mod network;
mod peers;
mod recorder;
mod run;
mod seeds;
mod storm;
mod tokens;
mod world;

pub use run::{BY_VALUE, Options, commits, simulate};
pub use seeds::{One, Plan, Range, Sum, judged, many};

use crate::nemesis::Fault;

/// The faults of this rung: all.
pub const FAULTS: &[Fault] = Fault::ALL;
