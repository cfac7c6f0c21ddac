//! Is there an order of the operations, each at one instant between its call and its end, in which a sequential object
//! could have answered so? The search of Wing and Gong with Lowe's cache, over a doubly linked list of calls and ends.
//!
//! Three things keep it short, and none changes a verdict:
//! - an operation that only looks, and saw what is here, is taken at once and never put off: it stands nowhere better (a write
//!   of what is there already is no such operation: it may be needed later);
//! - an operation whose outcome is unknown need not be taken at all, and is not if it would change nothing;
//! - of equal unknown operations the one that was called first is taken first.
//!
//! The search is deterministic. It gives up with [`Verdict::Unknown`] when its budget is spent.

use crate::limits;
use crate::model::{Model, Step};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// What is said of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// Nobody knows: the budget was spent. Never a pass.
    Unknown,
    /// There is none.
    NotLinearizable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linearizable => "linearizable",
            Self::Unknown => "unknown",
            Self::NotLinearizable => "not-linearizable",
        })
    }
}

/// An operation and when it ran, as places in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<O> {
    /// What.
    pub op: O,
    /// Its call.
    pub called: usize,
    /// Its end; None if its outcome is unknown: it may happen at any time after its call, or never.
    pub returned: Option<usize>,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The verdict.
    pub verdict: Verdict,
    /// What it took.
    pub steps: u64,
    /// The operations that the longest order found leaves out, of those that must be in it; empty if there is an order.
    pub left_out: Vec<usize>,
}

type Hasher = BuildHasherDefault<DefaultHasher>;

/// A list node: the head, an operation's call, or its end.
type Node = usize;
const HEAD: Node = 0;

fn call_of(op: usize) -> Node {
    2 * op + 1
}

fn end_of(op: usize) -> Node {
    2 * op + 2
}

/// Calls and ends in their order, of operations that are not taken.
struct List {
    next: Vec<Node>,
    before: Vec<Node>,
}

impl List {
    fn new<O>(ops: &[Timed<O>]) -> Self {
        let mut places: Vec<(usize, Node)> = Vec::with_capacity(2 * ops.len());
        for (op, timed) in ops.iter().enumerate() {
            places.push((timed.called, call_of(op)));
            places.extend(timed.returned.map(|at| (at, end_of(op))));
        }
        places.sort_unstable();
        let mut list = Self { next: vec![HEAD; 2 * ops.len() + 1], before: vec![HEAD; 2 * ops.len() + 1] };
        let mut last = HEAD;
        for (_, node) in places {
            (list.next[last], list.before[node]) = (node, last);
            last = node;
        }
        (list.next[last], list.before[HEAD]) = (HEAD, last);
        list
    }

    fn take(&mut self, node: Node) {
        let (before, next) = (self.before[node], self.next[node]);
        (self.next[before], self.before[next]) = (next, before);
    }

    fn put_back(&mut self, node: Node) {
        let (before, next) = (self.before[node], self.next[node]);
        (self.next[before], self.before[next]) = (node, node);
    }
}

/// A decision that can be taken back.
struct Choice<S> {
    op: usize,
    state: S,
    /// How many operations had been taken before it.
    taken: usize,
}

struct Search<'a, M: Model> {
    model: &'a M,
    ops: &'a [Timed<M::Op>],
    list: List,
    /// The equal unknown operation that was called before.
    twin: Vec<Option<usize>>,
    bits: Vec<u64>,
    /// In the order in which they were taken.
    taken: Vec<usize>,
    /// Those that must be taken and are not.
    left: usize,
    steps: u64,
}

impl<M: Model> Search<'_, M> {
    fn is_taken(&self, op: usize) -> bool {
        self.bits[op / 64] >> (op % 64) & 1 == 1
    }

    fn take(&mut self, op: usize) {
        self.list.take(call_of(op));
        if self.ops[op].returned.is_some() {
            self.list.take(end_of(op));
            self.left -= 1;
        }
        self.bits[op / 64] |= 1 << (op % 64);
        self.taken.push(op);
    }

    fn take_back(&mut self, down_to: usize) {
        while self.taken.len() > down_to {
            let Some(op) = self.taken.pop() else { return };
            if self.ops[op].returned.is_some() {
                self.list.put_back(end_of(op));
                self.left += 1;
            }
            self.list.put_back(call_of(op));
            self.bits[op / 64] &= !(1 << (op % 64));
        }
    }

    /// Takes what only looks and saw this state.
    fn absorb(&mut self, state: &M::State) {
        let mut at = self.list.next[HEAD];
        while at % 2 == 1 {
            let op = at / 2;
            // Taken nodes keep their pointers, so the walk goes on from them.
            let next = self.list.next[at];
            if self.ops[op].returned.is_some() && self.model.only_looks(&self.ops[op].op) {
                self.steps += 1;
                if self.model.step(state, &self.ops[op].op) == Step::Same {
                    self.take(op);
                    // Its end may have been the one that the walk would have stopped at.
                    at = if next == end_of(op) { self.list.next[next] } else { next };
                    continue;
                }
            }
            at = next;
        }
    }

    fn found(&self, verdict: Verdict, best: &[u64]) -> Found {
        let out = |op: &usize| self.ops[*op].returned.is_some() && best[op / 64] >> (op % 64) & 1 == 0;
        Found { verdict, steps: self.steps, left_out: (0..self.ops.len()).filter(out).collect() }
    }
}

fn twins<O: Eq + std::hash::Hash>(ops: &[Timed<O>]) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..ops.len()).filter(|op| ops[*op].returned.is_none()).collect();
    order.sort_by_key(|op| ops[*op].called);
    let mut last: HashMap<&O, usize, Hasher> = HashMap::default();
    let mut twin = vec![None; ops.len()];
    for op in order {
        twin[op] = last.insert(&ops[op].op, op);
    }
    twin
}

/// Searches for an order, within so many steps.
pub fn check<M: Model>(model: &M, ops: &[Timed<M::Op>], budget: u64) -> Found {
    let mut search = Search {
        model,
        ops,
        list: List::new(ops),
        twin: twins(ops),
        bits: vec![0; ops.len().div_ceil(64)],
        taken: Vec::with_capacity(ops.len()),
        left: ops.iter().filter(|timed| timed.returned.is_some()).count(),
        steps: 0,
    };
    let mut seen: HashSet<(Box<[u64]>, M::State), Hasher> = HashSet::default();
    let mut seen_bytes = 0;
    let mut choices: Vec<Choice<M::State>> = Vec::new();
    let mut state = model.begin();
    search.absorb(&state);
    let mut best = (search.left, search.bits.clone());
    let mut at = search.list.next[HEAD];
    while search.left > 0 {
        if search.steps > budget || seen_bytes > limits::CACHE_MAX_BYTES {
            return search.found(Verdict::Unknown, &best.1);
        }
        if at % 2 == 1 {
            let op = at / 2;
            let put_off = search.twin[op].is_some_and(|twin| !search.is_taken(twin));
            search.steps += 1;
            let next = match model.step(&state, &ops[op].op) {
                Step::To(next) if !put_off => Some(next),
                Step::Same if ops[op].returned.is_some() => Some(state.clone()),
                _ => None,
            };
            if let Some(next) = next {
                let taken = search.taken.len();
                search.take(op);
                search.absorb(&next);
                let here = (search.bits.clone().into_boxed_slice(), next.clone());
                let bytes = here.0.len() * 8 + model.weight(&next) + 48;
                if seen.insert(here) {
                    seen_bytes += bytes;
                    choices.push(Choice { op, state: std::mem::replace(&mut state, next), taken });
                    if search.left < best.0 {
                        best = (search.left, search.bits.clone());
                    }
                    at = search.list.next[HEAD];
                    continue;
                }
                search.take_back(taken);
            }
            at = search.list.next[at];
            continue;
        }
        // An end, or the end of all: something before it must have been taken otherwise.
        let Some(choice) = choices.pop() else {
            return search.found(Verdict::NotLinearizable, &best.1);
        };
        search.take_back(choice.taken);
        state = choice.state;
        at = search.list.next[call_of(choice.op)];
    }
    search.found(Verdict::Linearizable, &search.bits)
}
