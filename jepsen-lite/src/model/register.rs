//! One number that is read, written, and compared and set. It begins as nil.

use super::{Model, Step};
use crate::edn::Value;
use crate::history::{End, Function, Operation};

/// The register.
#[derive(Clone, Copy, Debug)]
pub struct Register;

/// What is done to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// It held this.
    Read(Option<i64>),
    /// It holds this.
    Write(Option<i64>),
    /// It held the first and holds the second.
    Cas(Option<i64>, Option<i64>),
    /// It did not hold this: a comparison that failed is an answer.
    Differs(Option<i64>),
}

impl RegisterOp {
    /// The operation in terms of the register; None if nothing can be said of it.
    ///
    /// # Errors
    /// Its values are none of a register's.
    pub fn of(operation: &Operation) -> Result<Option<Self>, String> {
        let number = |value: &Value| match value {
            Value::Nil => Ok(None),
            Value::Int(number) => Ok(Some(*number)),
            other => Err(format!("a register holds numbers, not {other}")),
        };
        let done = operation.end;
        Ok(match operation.function {
            Function::Read if done == End::Ok => Some(Self::Read(number(&operation.told)?)),
            Function::Write if operation.may_have_happened() => Some(Self::Write(number(&operation.asked)?)),
            Function::Read | Function::Write => None,
            Function::Cas => {
                let Some([from, to]) = operation.asked.list() else {
                    return Err(format!("a comparison is [from to], not {}", operation.asked));
                };
                let (from, to) = (number(from)?, number(to)?);
                match done {
                    End::Failed if operation.error.is_none() => Some(Self::Differs(from)),
                    // It failed for another reason, and says nothing of what the register held.
                    End::Failed => None,
                    End::Ok | End::Unknown => Some(Self::Cas(from, to)),
                }
            }
            ref other => return Err(format!("a register knows no {}", other.name())),
        })
    }
}

impl Model for Register {
    type Op = RegisterOp;
    type State = Option<i64>;

    fn begin(&self) -> Self::State {
        None
    }

    fn step(&self, state: &Self::State, op: &RegisterOp) -> Step<Self::State> {
        let (possible, next) = match op {
            RegisterOp::Read(value) => (value == state, *state),
            RegisterOp::Write(value) => (true, *value),
            RegisterOp::Cas(from, to) => (from == state, *to),
            RegisterOp::Differs(from) => (from != state, *state),
        };
        match possible {
            false => Step::Impossible,
            true if next == *state => Step::Same,
            true => Step::To(next),
        }
    }

    fn only_looks(&self, op: &RegisterOp) -> bool {
        matches!(op, RegisterOp::Read(_) | RegisterOp::Differs(_))
    }

    fn weight(&self, _: &Self::State) -> usize {
        16
    }
}
