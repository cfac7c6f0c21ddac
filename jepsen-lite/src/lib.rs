//! Faults that prove the promises. Rooms are listed from the ground up; a room uses only rooms listed before it.

pub mod limits; // every bound of the harness
pub mod dice; // what the seed decides
pub mod edn; // values of histories
pub mod history; // what happened, and its files
pub mod model; // what should have happened
pub mod wgl; // whether it could have
pub mod weak; // when reads promise less
pub mod judge; // the verdict on a history
pub mod nemesis; // what comes when, and what it leaves
pub mod checker; // what is looked for in a run
pub mod report; // the papers of a run
pub mod workload; // what clients do
pub mod watch; // what members are asked, and how it is noted
pub mod leaks; // keys in clear in what members keep and say
pub mod sim; // simulated members, one process a seed
pub mod netns; // real members, real clients, real faults
