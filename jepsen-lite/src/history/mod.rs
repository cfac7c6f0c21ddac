//! What happened: events in the order in which they happened, and the files they come from and go to.

mod etcd;
mod files;
mod json;
mod maps;
mod pair;

pub use files::{parse, read};
pub use json::{from_value, to_value, write as write_jsonl};
pub use maps::write as write_edn;
pub use pair::{End, Operation, operations};

use crate::edn::Value;
use std::fmt;

/// Who did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// A client, one thing at a time. After an unknown outcome it goes on under another number.
    Client(u64),
    /// Whoever breaks, mends and looks.
    Nemesis,
}

/// What an event says of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It begins.
    Invoke,
    /// It was done.
    Ok,
    /// It was certainly not done; of a comparison, and of an absence, that is an answer too.
    Fail,
    /// Nobody knows whether it was done, or ever will be.
    Info,
}

impl Kind {
    /// As histories write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invoke => "invoke",
            Self::Ok => "ok",
            Self::Fail => "fail",
            Self::Info => "info",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Invoke, Self::Ok, Self::Fail, Self::Info].into_iter().find(|kind| kind.name() == name)
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What is done.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Function {
            $($(#[$doc])* $variant,)*
            /// Something that no checker of ours knows.
            Other(String),
        }

        impl Function {
            /// As histories write it.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }

            /// The function of this name.
            pub fn named(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }
        }
    };
}

functions! {
    /// Of a register: its value.
    Read = "read",
    /// Of a register: a new value.
    Write = "write",
    /// Of a register: [from to].
    Cas = "cas",
    /// Of a text by key.
    Get = "get",
    /// A new text.
    Put = "put",
    /// More text at the end.
    Append = "append",
    /// A key: asked is its tag, told its object's id. Events' `key` is the label.
    Create = "create",
    /// The ids under a label.
    Find = "find",
    /// A key is used.
    Use = "use",
    /// Its attribute is read: told are [id tag value].
    Look = "look",
    /// Its attribute gets a value: [id value].
    Set = "set",
    /// It is deleted.
    Delete = "delete",
    /// A session, and in it a session key: asked is its tag, told its number.
    SessionMake = "session-make",
    /// A session key is used.
    SessionUse = "session-use",
    /// The session that made it is closed.
    SessionEnd = "session-end",
    /// By the nemesis, once: what the group is.
    Group = "group",
    /// By the nemesis: a fault begins.
    FaultBegin = "fault-begin",
    /// By the nemesis: it is healed.
    FaultEnd = "fault-end",
    /// By the nemesis: every member is in sync again, or was not in time.
    Whole = "whole",
    /// By the nemesis: a member's process has ended by itself, and why.
    Ended = "ended",
    /// By the nemesis: what a member says of the group.
    Seen = "seen",
    /// By the nemesis: a key that has just been answered, used at one member.
    Probe = "probe",
    /// By the nemesis, at the end: the ids that a member lists.
    Listed = "listed",
    /// By the nemesis, at the end: what a member makes of one text by one key.
    Proof = "proof",
    /// By the nemesis, at the end: the ids of the keys that lie in a member's token.
    Held = "held",
    /// By the nemesis: a member's token has destroyed its last copy of a key.
    Destroyed = "destroyed",
    /// By the nemesis, at the end: where keys stand in clear, and how much was searched.
    InClear = "in-clear",
}

impl Function {
    /// True if it changes what the group has agreed on.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Create | Self::Set | Self::Delete | Self::Write | Self::Cas)
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who.
    pub process: Process,
    /// What it says of the operation.
    pub kind: Kind,
    /// The operation.
    pub function: Function,
    /// What it is about: the register's key, or the label.
    pub key: Option<String>,
    /// What was asked, or told.
    pub value: Value,
    /// Why it failed or is not known. [`ABSENT`] is an answer.
    pub error: Option<String>,
    /// The only member that the client asks, from 0; None for one that asks any.
    pub member: Option<usize>,
    /// Since the run began, nanoseconds. None where a file does not tell.
    pub time: Option<u64>,
}

/// The error of an operation that was told that there is no such key: an answer, not a failure.
pub const ABSENT: &str = "absent";

impl Event {
    /// An event of the nemesis.
    pub fn nemesis(function: Function, value: Value) -> Self {
        Self {
            process: Process::Nemesis,
            kind: Kind::Info,
            function,
            key: None,
            value,
            error: None,
            member: None,
            time: None,
        }
    }
}

/// Events in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The events.
    pub events: Vec<Event>,
    /// The line that each stands in, from 1; empty for a history that was not read.
    pub lines: Vec<usize>,
}

impl History {
    /// A history that comes from no file.
    pub fn new(events: Vec<Event>) -> Self {
        Self { events, lines: Vec::new() }
    }

    /// The line of an event; its number, from 1, where there are no lines.
    pub fn line(&self, event: usize) -> usize {
        self.lines.get(event).copied().unwrap_or(event + 1)
    }

    /// When an event happened, nanoseconds; where no times are told, one a millisecond.
    pub fn time(&self, event: usize) -> u64 {
        let told = self.events.get(event).and_then(|event| event.time);
        told.unwrap_or(event as u64 * 1_000_000)
    }

    /// Events of the nemesis that do this, with their places.
    pub fn of_nemesis(&self, function: &Function) -> impl Iterator<Item = (usize, &Event)> {
        let all = self.events.iter().enumerate();
        all.filter(move |(_, event)| event.process == Process::Nemesis && event.function == *function)
    }
}

/// Why a history cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The file.
    #[error("{0}")]
    File(String),
    /// What a line says.
    #[error("line {line}: {why}")]
    Line {
        /// From 1.
        line: usize,
        /// For people.
        why: String,
    },
}

impl HistoryError {
    /// An error of one line.
    pub fn at(line: usize, why: impl fmt::Display) -> Self {
        Self::Line { line, why: why.to_string() }
    }
}

impl From<crate::edn::EdnError> for HistoryError {
    fn from(error: crate::edn::EdnError) -> Self {
        Self::Line { line: error.line, why: error.why }
    }
}
