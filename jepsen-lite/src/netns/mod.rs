//! Real members in network namespaces of their own, or as ordinary processes (`outside`); real clients through the PKCS#11
//! module, real faults.
//!
//! `net`, `disk` and `cluster` are the things that can be left behind; each goes with its value. `nemesis` breaks and mends by
//! `deeds`, `looks` asks members what they see, `workload` is what the clients' process does, `run` puts it all together.

mod ask;
mod cluster;
mod deeds;
mod disk;
mod ends;
mod looks;
mod nemesis;
mod net;
mod outside;
mod power;
mod processes;
mod recorder;
mod register;
mod run;
mod switch;
mod tun;
mod workload;

use crate::leaks;

pub use deeds::FAULTS;
pub use outside::{OUTSIDE_FAULTS, is_shipped};
pub use run::{Options, run};
pub use workload::{Job, work};
