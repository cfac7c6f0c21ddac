//! The verdict on a history: which model it is about, key by key, and where it fails.

use crate::history::{Event, Function, History, HistoryError, Operation, operations};
use crate::limits;
use crate::model::{Kv, KvOp, LifeOp, Lives, Model, Register, RegisterOp, Scope, bind};
use crate::weak::Weak;
use crate::wgl::{Found, Timed, Verdict, check};
use std::collections::BTreeMap;

/// Which object a key of a history is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// A number.
    Register,
    /// Texts by key.
    Kv,
    /// Keys under labels.
    Lives,
}

/// The shortest beginning of one key's history that fails, and what cannot be put in order in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The key or label; None for the one register.
    pub key: Option<String>,
    /// The first call of those that cannot be put in order.
    pub from: usize,
    /// The event that no order explains: every beginning before it has one.
    pub to: usize,
    /// The calls of those that the longest order leaves out.
    pub calls: Vec<usize>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The worst of all keys.
    pub verdict: Verdict,
    /// Operations of clients.
    pub operations: usize,
    /// Those of them that were judged.
    pub judged: usize,
    /// Keys or labels.
    pub keys: usize,
    /// Steps of all searches.
    pub steps: u64,
    /// Where the first key fails that does.
    pub window: Option<Window>,
}

/// Judges a history.
///
/// # Errors
/// It is about nothing that we know, or contradicts itself.
pub fn judge(history: &History, budget: u64) -> Result<Judgement, HistoryError> {
    let all = operations(history)?;
    let mut keys: BTreeMap<Option<String>, Vec<Operation>> = BTreeMap::new();
    for operation in &all {
        keys.entry(operation.key.clone()).or_default().push(operation.clone());
    }
    let weak = Weak::of(history);
    let mut total = Judgement {
        verdict: Verdict::Linearizable,
        operations: all.len(),
        judged: 0,
        keys: keys.len(),
        steps: 0,
        window: None,
    };
    if all.is_empty() {
        return Err(HistoryError::File("no client does anything: there is nothing to judge".into()));
    }
    for (key, operations) in keys {
        let Some(subject) = subject(history, &operations)? else { continue };
        let left = budget.saturating_sub(total.steps);
        let one = match subject {
            Subject::Register => one_key(history, &Register, &operations, RegisterOp::of, left)?,
            Subject::Kv => one_key(history, &Kv, &operations, KvOp::of, left)?,
            Subject::Lives => {
                let made = bind(&operations);
                let scope = if weak.fenced() { Scope::Everything } else { Scope::Barrier };
                let of = |operation: &Operation| match weak.excuses(operation) {
                    true => Ok(None),
                    false => LifeOp::of(operation, scope, &made),
                };
                one_key(history, &Lives, &operations, of, left)?
            }
        };
        total.judged += one.judged;
        total.steps += one.found.steps;
        total.verdict = total.verdict.max(one.found.verdict);
        if total.window.is_none() {
            total.window = one.window.map(|window| Window { key, ..window });
        }
    }
    Ok(total)
}

/// The subject that every operation of a key fits; None if there are none.
fn subject(history: &History, all: &[Operation]) -> Result<Option<Subject>, HistoryError> {
    let mut found: Option<Subject> = None;
    for operation in all {
        let fits = match operation.function {
            Function::Read | Function::Write | Function::Cas => Subject::Register,
            Function::Get | Function::Put | Function::Append => Subject::Kv,
            Function::Create
            | Function::Find
            | Function::Use
            | Function::Look
            | Function::Set
            | Function::Delete
            | Function::SessionMake
            | Function::SessionUse
            | Function::SessionEnd => Subject::Lives,
            ref other => {
                let why = format!("no model of ours knows '{}'", other.name());
                return Err(HistoryError::at(history.line(operation.called), why));
            }
        };
        if found.is_some_and(|found| found != fits) {
            let why = format!(
                "'{}' is about another object than the key's lines before",
                operation.function.name()
            );
            return Err(HistoryError::at(history.line(operation.called), why));
        }
        found = Some(fits);
    }
    Ok(found)
}

struct One {
    found: Found,
    judged: usize,
    window: Option<Window>,
}

fn one_key<M: Model>(
    history: &History,
    model: &M,
    operations: &[Operation],
    of: impl Fn(&Operation) -> Result<Option<M::Op>, String>,
    budget: u64,
) -> Result<One, HistoryError> {
    let mut ops = Vec::new();
    for operation in operations {
        let op = of(operation).map_err(|why| {
            let at = operation.returned.unwrap_or(operation.called);
            HistoryError::at(history.line(at), why)
        })?;
        let Some(op) = op else { continue };
        let known = operation.end != crate::history::End::Unknown;
        ops.push(Timed { op, called: operation.called, returned: operation.returned.filter(|_| known) });
    }
    let found = check(model, &ops, budget);
    let window = (found.verdict == Verdict::NotLinearizable).then(|| window(model, &ops, &found, budget));
    Ok(One { found, judged: ops.len(), window })
}

/// A beginning of a history: what has not ended yet may happen or not.
fn beginning<O: Clone>(ops: &[Timed<O>], to: usize) -> Vec<Timed<O>> {
    let begun = ops.iter().filter(|timed| timed.called <= to);
    let cut = |timed: &Timed<O>| Timed { returned: timed.returned.filter(|at| *at <= to), ..timed.clone() };
    begun.map(cut).collect()
}

/// The shortest beginning that fails. A beginning of a history that has an order has one, so halving finds it.
fn window<M: Model>(model: &M, ops: &[Timed<M::Op>], whole: &Found, budget: u64) -> Window {
    let mut ends: Vec<usize> = ops.iter().filter_map(|timed| timed.returned).collect();
    ends.sort_unstable();
    let fails = |to: usize| check(model, &beginning(ops, to), budget).verdict == Verdict::NotLinearizable;
    let first = ends.partition_point(|to| !fails(*to));
    let to = ends.get(first).or(ends.last()).copied().unwrap_or_default();
    let cut = beginning(ops, to);
    let found = check(model, &cut, budget);
    let left_out = if found.left_out.is_empty() { &whole.left_out } else { &found.left_out };
    let mut calls: Vec<usize> =
        left_out.iter().filter_map(|op| cut.get(*op)).map(|timed| timed.called).collect();
    calls.sort_unstable();
    Window { key: None, from: calls.first().copied().unwrap_or(to), to, calls }
}

/// The budget that `check` and `run` use.
pub const BUDGET: u64 = limits::STEPS_MAX;

/// What an event says, for people.
pub fn told(event: &Event) -> String {
    let who = match event.process {
        crate::history::Process::Client(process) => process.to_string(),
        crate::history::Process::Nemesis => "nemesis".into(),
    };
    let key = event.key.as_ref().map(|key| format!(" {key}")).unwrap_or_default();
    let error = event.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    format!("{who} {} {}{key} {}{error}", event.kind.name(), event.function.name(), event.value)
}
