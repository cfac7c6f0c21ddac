//! What is looked for in a history. Each checker is a pure file: a history in, a finding out. A checker that had nothing to
//! look at finds that, and does not pass.

pub(crate) mod coverage;
mod ended;
mod equal_keys;
mod facts;
mod in_clear;
mod in_sync;
mod kept_copies;
mod left_behind;
mod linear;
mod lone_elections;
mod lost_create;
mod one_primary;
mod phantom;
mod sessions;
mod set_full;
mod stale_look;
mod twice;
mod undone_delete;
mod unique;
mod use_after_delete;
mod whole;

#[cfg(test)]
mod story;

pub use facts::Facts;

use crate::history::{Function, History, HistoryError};
use crate::judge::Judgement;
use serde_json::{Map, Value as Json, json};

/// Complaints that a finding tells of; the rest is counted alone.
pub const COMPLAINTS_MAX: usize = 20;

/// Ends the complaint of a checker that finds no promise broken, but proves nothing.
pub const NOTHING_LOOKED_AT: &str = "nothing was looked at";

/// What a checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The checker's name.
    pub name: &'static str,
    /// What was looked at, for people.
    pub looked: String,
    /// What is wrong; the first [`COMPLAINTS_MAX`].
    pub complaints: Vec<String>,
    /// All that is wrong.
    pub wrong: usize,
    /// Numbers by name.
    pub numbers: Vec<(&'static str, i64)>,
}

impl Finding {
    /// A finding of so many complaints about what was looked at.
    pub fn new(name: &'static str, looked: String, complaints: Vec<String>) -> Self {
        let wrong = complaints.len();
        let complaints = complaints.into_iter().take(COMPLAINTS_MAX).collect();
        Self { name, looked, complaints, wrong, numbers: Vec::new() }
    }

    /// One that complains if there was nothing to look at.
    pub fn of_some(name: &'static str, count: usize, what: &str, mut complaints: Vec<String>) -> Self {
        if count == 0 {
            complaints.push(format!("no {what} in the history: {NOTHING_LOOKED_AT}"));
        }
        Self::new(name, format!("{count} {what}"), complaints)
    }

    /// The same of calls that come seldom: a run complains of their lack only if it demands each call of itself. Where many
    /// seeds are run, all of them together are asked.
    pub fn of_calls(
        facts: &Facts<'_>,
        name: &'static str,
        count: usize,
        what: &str,
        complaints: Vec<String>,
    ) -> Self {
        match facts.demands_each_call() {
            true => Self::of_some(name, count, what, complaints),
            false => Self::new(name, format!("{count} {what}"), complaints),
        }
    }

    /// True if nothing is wrong.
    pub fn passes(&self) -> bool {
        self.wrong == 0
    }

    /// As results.json has it.
    pub fn to_json(&self) -> Json {
        let numbers: Map<String, Json> =
            self.numbers.iter().map(|(name, number)| ((*name).to_string(), json!(number))).collect();
        json!({
            "passes": self.passes(), "looked": self.looked, "wrong": self.wrong,
            "complaints": self.complaints, "numbers": numbers,
        })
    }
}

/// What all checkers found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The verdict on linearizability.
    pub judgement: Judgement,
    /// One a checker.
    pub all: Vec<Finding>,
}

impl Findings {
    /// True if every checker passes.
    pub fn pass(&self) -> bool {
        self.all.iter().all(Finding::passes)
    }
}

/// Lets every checker look at a run's history.
///
/// # Errors
/// The history contradicts itself.
pub fn look(history: &History, budget: u64) -> Result<Findings, HistoryError> {
    let facts = Facts::of(history)?;
    let (judgement, linear) = linear::look(history, budget)?;
    let deletes = facts.wants(&Function::Delete);
    let mut all = vec![linear, lost_create::look(&facts)];
    all.extend(deletes.then(|| undone_delete::look(&facts)));
    all.extend([phantom::look(&facts), twice::look(&facts), unique::look(&facts)]);
    all.extend(facts.wants(&Function::Find).then(|| set_full::look(&facts)));
    all.extend([in_sync::look(&facts), one_primary::look(&facts), lone_elections::look(&facts)]);
    all.extend(deletes.then(|| use_after_delete::look(&facts)));
    all.extend(facts.wants(&Function::Look).then(|| stale_look::look(&facts)));
    all.push(equal_keys::look(&facts));
    all.extend(left_behind::look(&facts));
    all.extend(kept_copies::look(&facts));
    all.extend([whole::look(&facts), ended::look(&facts)]);
    all.extend(sessions::look(&facts));
    all.extend(in_clear::look(&facts));
    all.push(coverage::look(&facts));
    Ok(Findings { judgement, all })
}
