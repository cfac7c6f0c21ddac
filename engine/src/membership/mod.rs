//! Who leads, and who votes. Pure: what members say of themselves in, the next step out.
//!
//! `election` compares candidates, `roll` keeps what members last said of themselves, `steering` says when the primary
//! hands over to a better one, `voters` says how votes follow the roster.

pub mod election;
pub mod roll;
pub mod steering;
pub mod voters;

pub use election::{Candidate, Rule, ranking, winner};
pub use roll::Roll;
pub use steering::Steering;
pub use voters::{Step, View, next_step};
