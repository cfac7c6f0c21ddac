//! Keeps the keys of a group of PKCS#11 tokens equal. Without the feature `member` this is what a client needs alone:
//! the nouns, the requests and a blocking connection. Rooms are listed from the ground up: a room may use only
//! rooms listed before it. `tests/tests/tidy.rs` holds us to it.

pub mod limits; // every bound of the system
pub mod simulation; // whether time and threads are real
pub mod clock; // the one real clock
#[cfg(feature = "member")]
pub mod aside; // work that blocks
pub mod telemetry; // what a member tells of itself
pub mod mutant; // known mistakes, for tests alone
pub mod codec; // values to bytes and back
#[cfg(feature = "member")]
pub mod durable; // files that are there whole or not at all
pub mod domain; // objects, attributes, members
pub mod state; // what the group has agreed on
#[cfg(feature = "member")]
pub mod envelope; // how a key travels
#[cfg(feature = "member")]
pub mod cloning; // how a member is admitted to the SMK
pub mod wire; // what members and clients say to each other
pub mod frames; // how that is cut into frames
pub mod client; // a blocking connection to a member
pub mod health; // how fit each member is
pub mod balance; // which member to ask
#[cfg(feature = "member")]
pub mod token; // where keys live
#[cfg(feature = "member")]
pub mod membership; // who leads, and who votes
#[cfg(feature = "member")]
pub mod transport; // how it gets there
#[cfg(feature = "member")]
pub mod consensus; // how the group agrees
#[cfg(feature = "member")]
pub mod virtual_slot; // what applications see, and what they may do
#[cfg(feature = "member")]
pub mod direct; // what was changed on one member alone
#[cfg(feature = "member")]
pub mod reconciler; // makes held what is agreed
#[cfg(feature = "member")]
pub mod service; // creates, uses and deletes keys
#[cfg(feature = "member")]
pub mod assembly; // a whole member
#[cfg(feature = "test-hooks")]
pub mod doors; // decoders, for fuzz targets alone
