//! How the group agrees: openraft behind one door.
//!
//! A [`Consensus`] is one member's part in it. It applies what is committed to the state that [`Agreed`] shows,
//! keeps contents and checkpoints in a [`store::Store`], and speaks with other members over [`RaftLinks`].
//! Whatever is proposed is either applied on every member in the same order or nowhere; a failed call says which
//! of both is certain, or that neither is.

mod agreed; // what everyone reads
mod anew; // a history that one survivor begins
mod error; // what can go wrong, and what to do
mod handle; // one member's part
mod incoming; // what other members ask of us
mod keeper; // checkpoints, and contents that nothing names
mod machine; // the log becomes state
mod members; // who votes, who leads
mod message; // what travels
#[cfg(feature = "test-hooks")]
pub mod model_disk; // a disk in memory
mod network; // what we ask of other members
mod recall; // what other members must not forget
mod settings; // openraft's settings
pub mod store;
mod succession; // whose place is free, and who stands for it
#[cfg(test)]
mod tests;
pub mod types;

pub use agreed::{Agreed, Dirty};
pub use anew::{Remains, remains};
pub use error::ConsensusError;
pub use handle::{Consensus, Leadership};
#[cfg(feature = "test-hooks")]
pub(crate) use message::accepts;
pub use network::{LinkFailure, RaftLinks};
pub use settings::Timings;
