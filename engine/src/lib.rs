//! Keeps the keys of a group of PKCS#11 tokens equal. Rooms are listed from the ground up: a room may use only
//! rooms listed before it. `tests/tests/tidy.rs` holds us to it.

pub mod limits; // every bound of the system
pub mod clock; // the one real clock
pub mod codec; // values to bytes and back
pub mod domain; // objects, attributes, members
pub mod state; // what the group has agreed on
pub mod envelope; // how a key travels
pub mod cloning; // how a member is admitted to the SMK
pub mod wire; // what members and clients say to each other
pub mod token; // where keys live
pub mod transport; // how it gets there
pub mod consensus; // how the group agrees
pub mod reconciler; // makes held what is agreed
pub mod service; // creates, uses and deletes keys
pub mod assembly; // a whole member
