//! What breaks and when, the same for every rung: faults and their shapes, rounds of them, whom they hit, and what they
//! leave of a quorum. Pure; each rung does in its own way what is decided here.

mod cuts;
pub mod events;
mod plan;

pub use cuts::{Hit, Left, hit, left};
pub use plan::{Fault, Shape, Strike, chosen, lasts, round};
