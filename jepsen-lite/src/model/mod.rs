//! What an object is that does one thing at a time: from a state, an operation leads to a state, or is impossible.

mod bind;
mod kv;
mod lives;
mod register;

pub use bind::bind;
pub use kv::{Kv, KvOp};
pub use lives::{LifeOp, Lives, Scope};
pub use register::{Register, RegisterOp};

use std::fmt::Debug;
use std::hash::Hash;

/// What an operation does to a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<S> {
    /// It cannot have happened in this state.
    Impossible,
    /// It happens, and changes nothing.
    Same,
    /// It leads here.
    To(S),
}

/// A sequential object.
pub trait Model {
    /// What it does.
    type Op: Clone + Debug + PartialEq + Eq + Hash;
    /// What it remembers.
    type State: Clone + Debug + PartialEq + Eq + Hash;

    /// Before anything happened.
    fn begin(&self) -> Self::State;
    /// What an operation does.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Step<Self::State>;
    /// True if the operation changes nothing in any state: it only tells of one.
    fn only_looks(&self, op: &Self::Op) -> bool;
    /// What a state takes in memory, bytes; about.
    fn weight(&self, state: &Self::State) -> usize;
}
