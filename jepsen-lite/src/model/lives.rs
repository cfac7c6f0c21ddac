//! The keys under one label: they are created, found, used, changed and deleted. An id never comes twice.
//!
//! What keyraft promises to be linearizable is what lies behind its read barrier: changes, searches, and the answer that
//! there is no such key ([`Scope::Barrier`]). A use of a key that is there touches no log: it may succeed at one member
//! while another already answers that the key is gone, as long as the deletion is not answered yet. A checker of its own
//! looks at that. [`Scope::Everything`] takes uses and looks as well:
//! in fence mode a member that says that a key has gone says so once no other uses it any more.

use super::{Model, Step};
use crate::edn::Value;
use crate::history::{End, Function, Operation};
use std::collections::BTreeMap;

/// What of a history is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Changes, searches, and answers that there is no such key.
    Barrier,
    /// Uses and looks that found the key, too.
    Everything,
}

/// The keys under a label.
#[derive(Clone, Copy, Debug)]
pub struct Lives;

/// What happens to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LifeOp {
    /// This id comes, with its attribute's value.
    Create(i64, String),
    /// Exactly these ids are there, in rising order.
    Find(Vec<i64>),
    /// It is there.
    Present(i64),
    /// It is there, and its attribute has this value.
    Look(i64, String),
    /// Its attribute gets this value.
    Set(i64, String),
    /// It is not there.
    Absent(i64),
    /// It goes.
    Delete(i64),
}

impl LifeOp {
    /// The operation in terms of keys; None if nothing can be said of it. `made` are the ids that creations brought whose
    /// answer did not come, by their tags.
    ///
    /// # Errors
    /// Its values are none of a key's life.
    pub fn of(
        operation: &Operation,
        scope: Scope,
        made: &BTreeMap<String, i64>,
    ) -> Result<Option<Self>, String> {
        let wrong = |value: &Value| format!("{} cannot have {value}", operation.function.name());
        let id = |value: &Value| value.int().ok_or_else(|| wrong(value));
        let pair = |value: &Value| match value.list() {
            Some([Value::Int(id), Value::Text(text)]) => Ok((*id, text.clone())),
            _ => Err(wrong(value)),
        };
        let everything = scope == Scope::Everything;
        if operation.absent() && operation.function != Function::Create {
            let asked = match operation.function {
                Function::Set => Value::Int(pair(&operation.asked)?.0),
                _ => operation.asked.clone(),
            };
            return id(&asked).map(|id| Some(Self::Absent(id)));
        }
        if operation.end == End::Failed {
            return Ok(None);
        }
        let done = operation.end == End::Ok;
        Ok(match operation.function {
            Function::Create | Function::SessionMake => {
                let tag = operation.asked.text().ok_or_else(|| wrong(&operation.asked))?;
                let id = if done { Some(id(&operation.told)?) } else { made.get(tag).copied() };
                id.map(|id| Self::Create(id, String::new()))
            }
            Function::Find if done => {
                let mut ids = operation.told.ints().ok_or_else(|| wrong(&operation.told))?;
                ids.sort_unstable();
                Some(Self::Find(ids))
            }
            // A session object is the application's own: where it is used says nothing of whether it is there.
            Function::SessionUse if done => Some(Self::Present(id(&operation.asked)?)),
            Function::Use if done && everything => Some(Self::Present(id(&operation.asked)?)),
            Function::Look if done && everything => match operation.told.list() {
                Some([Value::Int(id), _, Value::Text(text)]) => Some(Self::Look(*id, text.clone())),
                _ => return Err(wrong(&operation.told)),
            },
            Function::Find | Function::Use | Function::Look | Function::SessionUse => None,
            Function::Set => {
                let (id, text) = pair(&operation.asked)?;
                match (done, everything) {
                    (_, true) => Some(Self::Set(id, text)),
                    (true, false) => Some(Self::Present(id)),
                    (false, false) => None,
                }
            }
            Function::Delete | Function::SessionEnd => Some(Self::Delete(id(&operation.asked)?)),
            ref other => return Err(format!("a key's life knows no {}", other.name())),
        })
    }
}

impl Model for Lives {
    type Op = LifeOp;
    /// What is there, in rising order.
    type State = Vec<(i64, String)>;

    fn begin(&self) -> Self::State {
        Vec::new()
    }

    fn step(&self, state: &Self::State, op: &LifeOp) -> Step<Self::State> {
        let place = |id: &i64| state.binary_search_by_key(id, |(id, _)| *id);
        let same = |possible: bool| if possible { Step::Same } else { Step::Impossible };
        match op {
            LifeOp::Find(ids) => same(ids.iter().eq(state.iter().map(|(id, _)| id))),
            LifeOp::Present(id) => same(place(id).is_ok()),
            LifeOp::Absent(id) => same(place(id).is_err()),
            LifeOp::Look(id, text) => same(place(id).is_ok_and(|at| state[at].1 == *text)),
            LifeOp::Create(id, text) => place(id).map_or_else(
                |at| {
                    let mut next = state.clone();
                    next.insert(at, (*id, text.clone()));
                    Step::To(next)
                },
                |_| Step::Impossible,
            ),
            LifeOp::Set(id, text) => match place(id) {
                Ok(at) if state[at].1 == *text => Step::Same,
                Ok(at) => {
                    let mut next = state.clone();
                    next[at].1.clone_from(text);
                    Step::To(next)
                }
                Err(_) => Step::Impossible,
            },
            LifeOp::Delete(id) => place(id).map_or(Step::Impossible, |at| {
                let mut next = state.clone();
                next.remove(at);
                Step::To(next)
            }),
        }
    }

    fn only_looks(&self, op: &LifeOp) -> bool {
        matches!(op, LifeOp::Find(_) | LifeOp::Present(_) | LifeOp::Absent(_) | LifeOp::Look(..))
    }

    fn weight(&self, state: &Self::State) -> usize {
        24 + state.iter().map(|(_, text)| 40 + text.len()).sum::<usize>()
    }
}
