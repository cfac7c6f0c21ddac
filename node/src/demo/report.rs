//! What the demo tells: a story with times, and a count of what was really checked.

use crate::exit::{Exit, Problem};
use keyraft_engine::clock::Clock;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

/// The story so far.
pub struct Report {
    started: Instant,
    json: bool,
    checks: Vec<String>,
    facts: Vec<(String, String)>,
    /// Signatures found good outside the tokens.
    pub verified: usize,
}

/// A time as people read it.
pub fn shown(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

impl Report {
    /// Begins. With `json` the story goes to standard error, and standard output gets the summary alone.
    pub fn new(json: bool) -> Self {
        Self { started: Clock.now(), json, checks: Vec::new(), facts: Vec::new(), verified: 0 }
    }

    /// One line of the story.
    pub fn say(&self, line: impl Display) {
        let since = Clock.now().saturating_duration_since(self.started).as_secs_f64();
        self.put(&format!("{since:7.2} s  {line}"));
    }

    /// A line without a time.
    pub fn put(&self, line: &str) {
        // A reader that went away (`| head`) must not end the demo in the middle of its processes.
        let _ = if self.json {
            writeln!(std::io::stderr(), "{line}")
        } else {
            writeln!(std::io::stdout(), "{line}")
        };
    }

    /// Something that must be so; the demo ends if it is not.
    pub fn check(&mut self, good: bool, what: impl Display) -> Result<(), Problem> {
        if good {
            self.put(&format!("           ok  {what}"));
            self.checks.push(what.to_string());
            return Ok(());
        }
        self.put(&format!("       FAILED  {what}"));
        let remedy = "run it again with --keep or --dir to look into its folder; the logs are there";
        Err(Problem::new(Exit::CheckFailed, format!("a check failed: {what}"), remedy))
    }

    /// A line of the summary.
    pub fn fact(&mut self, name: impl Display, value: impl Display) {
        self.facts.push((name.to_string(), value.to_string()));
    }

    /// The end of the story: every check has passed.
    pub fn summary(&self) -> Value {
        self.put("\nWhat was really checked");
        let width = self.facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.facts {
            self.put(&format!("  {name:width$}  {value}"));
        }
        let count = self.checks.len();
        self.put(&format!("\n{count} of {count} checks passed"));
        let facts: serde_json::Map<String, Value> =
            self.facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({"passed": count, "failed": 0, "checks": self.checks, "facts": facts})
    }
}
