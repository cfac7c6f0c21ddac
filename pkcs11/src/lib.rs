//! The virtual slot: a PKCS#11 module that shows a group of keyraft members as one token. Rooms are listed from the
//! ground up.
//!
//! - `ffi` is the door to C, the only file with `unsafe`; `process` knows whether this process is initialised.
//! - `module` holds the slots and the sessions, `make` makes objects; `slot` is one group: its login, its objects, its identity.
//! - `own` is what makes a slot one member's own.
//! - `link` carries calls to the group's members and tries again elsewhere when one is lost.
//! - `session`, `operation`, `blocks` and `hash` are what the module keeps of an application's operations: parts,
//!   lengths and buffers never reach a token.

mod attribute;
mod blocks;
mod config;
mod hash;
mod link;
mod mechanism;
mod object;
mod operation;
mod own;
mod rv;
mod session;
mod slot;

mod make;
mod message;
mod module;
mod process;

pub mod ffi;
