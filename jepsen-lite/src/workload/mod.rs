//! What clients do, and how it is written down. Pure: whoever runs clients asks [`Client::next`] what to do, does it, and
//! tells what came of it; real threads that call the PKCS#11 module do so, and simulated ones as well.
//!
//! ```text
//! let call = client.next(&mut board);
//! record(client.before(&call));
//! let outcome = /* do it */;
//! record(client.after(&call, &outcome, &mut board));
//! ```

mod board;
mod call;
mod client;
mod names;

pub use board::Board;
pub use call::{Call, Outcome, Told};
pub use client::Client;
pub use names::{MARK_BYTES, imported, joined, mark, parted, value_of};

use crate::history::Function;

/// What clients do with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Keys under few labels are created, found, used, looked at, changed and deleted.
    Lives,
    /// A number in a key's attribute is read, written, and compared and set.
    Register,
    /// Keys under one label are created and found, and never deleted.
    Set,
    /// Session objects are made, used by other clients too, and end with their session; a third are key lives.
    Sessions,
    /// All of it.
    Mix,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Lives, Self::Register, Self::Set, Self::Sessions, Self::Mix];

    /// As `--workload` and histories call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lives => "lives",
            Self::Register => "register",
            Self::Set => "set",
            Self::Sessions => "sessions",
            Self::Mix => "mix",
        }
    }

    /// What a run with it must have done.
    pub fn functions(self) -> Vec<Function> {
        let lives = [
            Function::Create,
            Function::Find,
            Function::Use,
            Function::Look,
            Function::Set,
            Function::Delete,
        ];
        let register = [Function::Create, Function::Read, Function::Write, Function::Cas];
        let sessions = [Function::SessionMake, Function::SessionUse, Function::SessionEnd];
        match self {
            Self::Lives => lives.into(),
            Self::Register => register.into(),
            Self::Set => vec![Function::Create, Function::Find],
            Self::Sessions => lives.into_iter().chain(sessions).collect(),
            Self::Mix => lives.into_iter().chain(register).chain(sessions).collect(),
        }
    }

    /// The workload of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }
}

/// What all clients of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What they do.
    pub workload: Workload,
    /// Clients.
    pub clients: usize,
    /// Labels of key lives, and of session objects.
    pub labels: usize,
    /// Members of the group.
    pub members: usize,
    /// What they do follows from it.
    pub seed: u64,
}
