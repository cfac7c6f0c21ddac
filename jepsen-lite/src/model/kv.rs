//! A text that is got, put and appended to. It begins empty.

use super::{Model, Step};
use crate::history::{End, Function, Operation};
use std::rc::Rc;

/// One key's text.
#[derive(Clone, Copy, Debug)]
pub struct Kv;

/// What is done to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KvOp {
    /// It was this.
    Get(String),
    /// It is this.
    Put(String),
    /// It goes on with this.
    Append(String),
}

impl KvOp {
    /// The operation in terms of the text; None if nothing can be said of it.
    ///
    /// # Errors
    /// Its value is no text.
    pub fn of(operation: &Operation) -> Result<Option<Self>, String> {
        let text = |value: &crate::edn::Value| match value.text() {
            Some(text) => Ok(text.to_string()),
            None => Err(format!("{} is about texts, not {value}", operation.function.name())),
        };
        Ok(match operation.function {
            Function::Get if operation.end == End::Ok => Some(Self::Get(text(&operation.told)?)),
            Function::Put if operation.may_have_happened() => Some(Self::Put(text(&operation.asked)?)),
            Function::Append if operation.may_have_happened() => Some(Self::Append(text(&operation.asked)?)),
            Function::Get | Function::Put | Function::Append => None,
            ref other => return Err(format!("a store of texts knows no {}", other.name())),
        })
    }
}

impl Model for Kv {
    type Op = KvOp;
    type State = Rc<str>;

    fn begin(&self) -> Self::State {
        Rc::from("")
    }

    fn step(&self, state: &Self::State, op: &KvOp) -> Step<Self::State> {
        match op {
            KvOp::Get(text) if **text == **state => Step::Same,
            KvOp::Get(_) => Step::Impossible,
            KvOp::Put(text) if **text == **state => Step::Same,
            KvOp::Put(text) => Step::To(Rc::from(text.as_str())),
            KvOp::Append(text) if text.is_empty() => Step::Same,
            KvOp::Append(text) => Step::To(Rc::from(format!("{state}{text}"))),
        }
    }

    fn only_looks(&self, op: &KvOp) -> bool {
        matches!(op, KvOp::Get(_))
    }

    fn weight(&self, state: &Self::State) -> usize {
        state.len() + 32
    }
}
