//! What applications see of the group, and what they may do with it: the thinking behind the virtual slot. Pure.
//!
//! `traits` is what use and search need of an object; `index` finds by it; `policy` says what it allows. `template`
//! turns an application's template into a record, `value` PKCS#11's parts of a key into the bytes that travel,
//! `visible` a record into what may be read. `sealed` carries session objects, `mechanisms` is what all members share. `pin` hashes
//! and checks PINs, `ticket` proves logins.

pub mod ckr;
pub mod index;
pub mod mechanisms;
pub mod pin;
pub mod policy;
pub mod sealed;
mod shape;
pub mod template;
pub mod ticket;
pub mod traits;
mod value;
mod visible;

pub use index::Entry;
pub use traits::{Flags, Traits};
pub use visible::visible;
