//! Keeps the keys of a group of PKCS#11 tokens equal. Rooms are listed from the ground up: a room may use only
//! rooms listed before it. `tests/tidy.rs` of the tests crate holds us to it.

pub mod assembly;
pub mod clock; // the one real clock
pub mod cloning; // how a member is admitted to the SMK
pub mod codec; // values to bytes and back
pub mod consensus; // how the group agrees
pub mod domain; // objects, attributes, members
pub mod envelope; // how a key travels
pub mod limits; // every bound of the system
pub mod reconciler; // makes held what is agreed
pub mod service; // creates, uses and deletes keys
pub mod state; // what the group has agreed on
pub mod token; // where keys live
pub mod transport; // how it gets there
pub mod wire; // what members and clients say to each other // a whole member
