//! Makes held what is agreed. Replication, catch-up after an absence, recovery of a lost token and `synchronize`
//! are one comparison, run at different moments.
//!
//! `plan` is the comparison (pure), `comparison` what it came to; `catalogue` the index that it fills on the way;
//! `held` how far it has come; `task` the only file here that awaits.

mod catalogue;
mod comparison;
mod held;
mod plan;
mod task;

pub use catalogue::Catalogue;
pub use held::{Progress, Trouble};
pub use plan::{Step, plan};
pub use task::{Reconciler, Reporter, watch_token};
