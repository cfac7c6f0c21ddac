//! One thing that a client does, what may come of it, and how both are written down.

use super::names::imported;
use crate::edn::Value;
use crate::history::{ABSENT, Function, Kind};

/// What a client does. Keys are objects' numbers; a session object's is the runner's to choose, and never that of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// An AES key of 32 bytes that encrypts, with this label; CKA_ID is the tag [`joined`](super::joined) with nothing. Its
    /// value is generated, or brought along if the tag says so ([`imported`], [`value_of`](super::value_of)); then it is sensitive.
    Create {
        /// CKA_LABEL.
        label: String,
        /// What tells this creation from all others.
        tag: String,
    },
    /// All keys with this label.
    Find {
        /// CKA_LABEL.
        label: String,
    },
    /// Encrypts a block with the key.
    Use {
        /// CKA_LABEL.
        label: String,
        /// The key.
        key: i64,
    },
    /// Reads CKA_ID.
    Look {
        /// CKA_LABEL.
        label: String,
        /// The key.
        key: i64,
    },
    /// Changes CKA_ID.
    Set {
        /// CKA_LABEL.
        label: String,
        /// The key.
        key: i64,
        /// Its tag.
        tag: String,
        /// The new value.
        value: String,
    },
    /// Destroys the key.
    Delete {
        /// CKA_LABEL.
        label: String,
        /// The key.
        key: i64,
    },
    /// The number that is the value in the key's CKA_ID, behind a read barrier.
    Read {
        /// The key.
        key: i64,
    },
    /// The number becomes another.
    Write {
        /// The key.
        key: i64,
        /// Its tag.
        tag: String,
        /// The new number.
        value: i64,
    },
    /// The number becomes another if it is this one; else [`Outcome::Differs`].
    Cas {
        /// The key.
        key: i64,
        /// Its tag.
        tag: String,
        /// If it is this.
        from: i64,
        /// It becomes this.
        to: i64,
    },
    /// A session of its own, and in it a session key that encrypts.
    SessionMake {
        /// Groups session objects in the history; no attribute.
        label: String,
        /// What tells it from all others.
        tag: String,
    },
    /// Encrypts a block with a session key, whoever made it.
    SessionUse {
        /// As it was made.
        label: String,
        /// The key.
        key: i64,
    },
    /// Closes the session that the client made this key in.
    SessionEnd {
        /// As it was made.
        label: String,
        /// The key.
        key: i64,
    },
}

/// What was told of something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// That it was done.
    Done,
    /// To Create and SessionMake: the key.
    Key(i64),
    /// To Find: the keys.
    Keys(Vec<i64>),
    /// To Look: CKA_ID.
    Id(String),
    /// To Read: the number; None if there is none yet.
    Number(Option<i64>),
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done(Told),
    /// There is no such key.
    Absent,
    /// A comparison failed.
    Differs,
    /// It was certainly not done.
    Refused(String),
    /// Nobody said whether it was done.
    Silent(String),
}

impl Outcome {
    /// True if the call was answered.
    pub fn answered(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Absent | Self::Differs)
    }
}

impl Call {
    /// As histories write it.
    pub fn function(&self) -> Function {
        match self {
            Self::Create { .. } => Function::Create,
            Self::Find { .. } => Function::Find,
            Self::Use { .. } => Function::Use,
            Self::Look { .. } => Function::Look,
            Self::Set { .. } => Function::Set,
            Self::Delete { .. } => Function::Delete,
            Self::Read { .. } => Function::Read,
            Self::Write { .. } => Function::Write,
            Self::Cas { .. } => Function::Cas,
            Self::SessionMake { .. } => Function::SessionMake,
            Self::SessionUse { .. } => Function::SessionUse,
            Self::SessionEnd { .. } => Function::SessionEnd,
        }
    }

    /// What histories group it under: the label, or the register.
    pub fn key(&self) -> String {
        match self {
            Self::Create { label, .. }
            | Self::Find { label }
            | Self::Use { label, .. }
            | Self::Look { label, .. }
            | Self::Set { label, .. }
            | Self::Delete { label, .. }
            | Self::SessionMake { label, .. }
            | Self::SessionUse { label, .. }
            | Self::SessionEnd { label, .. } => label.clone(),
            Self::Read { key } | Self::Write { key, .. } | Self::Cas { key, .. } => format!("register-{key}"),
        }
    }

    /// True for a creation whose value the client brings along.
    pub fn imports(&self) -> bool {
        matches!(self, Self::Create { tag, .. } if imported(tag))
    }

    /// What it asks, as histories write it.
    pub fn asked(&self) -> Value {
        match self {
            Self::Create { tag, .. } | Self::SessionMake { tag, .. } => Value::Text(tag.clone()),
            Self::Find { .. } | Self::Read { .. } => Value::Nil,
            Self::Use { key, .. }
            | Self::Look { key, .. }
            | Self::Delete { key, .. }
            | Self::SessionUse { key, .. }
            | Self::SessionEnd { key, .. } => Value::Int(*key),
            Self::Set { key, value, .. } => Value::List(vec![Value::Int(*key), Value::Text(value.clone())]),
            Self::Write { value, .. } => Value::Int(*value),
            Self::Cas { from, to, .. } => Value::numbers([*from, *to]),
        }
    }

    /// True if it changes nothing, so that a failure tells that nothing came of it.
    fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Find { .. }
                | Self::Use { .. }
                | Self::Look { .. }
                | Self::Read { .. }
                | Self::SessionUse { .. }
        )
    }

    /// The end of it, as histories write it: kind, value and error.
    pub(super) fn end(&self, outcome: &Outcome) -> (Kind, Value, Option<String>) {
        let failed = |why: &str| (Kind::Fail, self.asked(), Some(why.to_string()));
        match outcome {
            Outcome::Done(told) => (Kind::Ok, self.told(told), None),
            // The key came, and somebody deleted it before the answer: others have met it.
            Outcome::Absent if matches!(self, Self::Create { .. } | Self::SessionMake { .. }) => {
                (Kind::Info, self.asked(), Some("it is gone already".into()))
            }
            Outcome::Absent => failed(ABSENT),
            // Without an error: that the comparison failed is an answer.
            Outcome::Differs => (Kind::Fail, self.asked(), None),
            Outcome::Refused(why) => failed(why),
            Outcome::Silent(why) if self.only_looks() => failed(why),
            Outcome::Silent(why) => (Kind::Info, self.asked(), Some(why.clone())),
        }
    }

    fn told(&self, told: &Told) -> Value {
        match (self, told) {
            (_, Told::Key(key)) => Value::Int(*key),
            (_, Told::Keys(keys)) => Value::numbers(keys.iter().copied()),
            (Self::Look { key, .. }, Told::Id(id)) => {
                let (tag, value) = super::parted(id);
                Value::List(vec![Value::Int(*key), Value::Text(tag), Value::Text(value)])
            }
            (_, Told::Number(number)) => number.map_or(Value::Nil, Value::Int),
            (_, Told::Done | Told::Id(_)) => self.asked(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_change_is_unknown_and_an_unanswered_look_is_nothing() {
        let silent = Outcome::Silent("time".into());
        let delete = Call::Delete { label: "a".into(), key: 1 };
        assert_eq!(delete.end(&silent).0, Kind::Info);
        assert_eq!(Call::Find { label: "a".into() }.end(&silent).0, Kind::Fail);
        assert_eq!(delete.end(&Outcome::Absent), (Kind::Fail, Value::Int(1), Some(ABSENT.into())));
        let create = Call::Create { label: "a".into(), tag: "t".into() };
        assert_eq!(create.end(&Outcome::Absent).0, Kind::Info, "somebody has met it");
    }

    #[test]
    fn a_comparison_that_failed_has_no_error() {
        let cas = Call::Cas { key: 1, tag: "t".into(), from: 2, to: 3 };
        assert_eq!(cas.end(&Outcome::Differs), (Kind::Fail, Value::numbers([2, 3]), None));
        assert!(cas.end(&Outcome::Refused("no".into())).2.is_some());
    }
}
