//! Events become operations: each invocation and what came of it.

use super::{ABSENT, Event, Function, History, HistoryError, Kind, Process};
use crate::edn::Value;
use std::collections::HashMap;

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was done.
    Ok,
    /// It was certainly not done; with [`ABSENT`], and of a comparison, that is an answer.
    Failed,
    /// Nobody knows. It may be done at any time after its call, or never.
    Unknown,
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who.
    pub process: u64,
    /// What.
    pub function: Function,
    /// About what.
    pub key: Option<String>,
    /// What was asked.
    pub asked: Value,
    /// What was told; nil if nothing was.
    pub told: Value,
    /// What came of it.
    pub end: End,
    /// Why it failed or is not known.
    pub error: Option<String>,
    /// The only member that the client asks.
    pub member: Option<usize>,
    /// The event of its call.
    pub called: usize,
    /// The event of its end; None if there is none.
    pub returned: Option<usize>,
}

impl Operation {
    /// True if it was told that there is no such key.
    pub fn absent(&self) -> bool {
        self.end == End::Failed && self.error.as_deref() == Some(ABSENT)
    }

    /// True if it may have changed something: it was done, or nobody knows.
    pub fn may_have_happened(&self) -> bool {
        self.end != End::Failed
    }
}

/// The operations of all clients, in the order of their calls.
///
/// # Errors
/// A process does two things at once, ends what it did not begin, or goes on after an unknown outcome.
pub fn operations(history: &History) -> Result<Vec<Operation>, HistoryError> {
    let mut all: Vec<Operation> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    let mut lost: HashMap<u64, usize> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        let Process::Client(process) = event.process else { continue };
        let fail = |why: String| HistoryError::at(history.line(index), why);
        if let Some(at) = lost.get(&process) {
            let line = history.line(*at);
            return Err(fail(format!("process {process} goes on after its unknown outcome in line {line}")));
        }
        if event.kind == Kind::Invoke {
            if let Some(at) = open.insert(process, all.len()) {
                let line = history.line(all[at].called);
                return Err(fail(format!("process {process} still does what it began in line {line}")));
            }
            all.push(begun(process, index, event));
            continue;
        }
        let Some(at) = open.remove(&process) else {
            return Err(fail(format!("process {process} ends what it did not begin")));
        };
        if event.kind == Kind::Info {
            lost.insert(process, index);
        }
        finish(&mut all[at], index, event).map_err(fail)?;
    }
    Ok(all)
}

fn begun(process: u64, index: usize, event: &Event) -> Operation {
    Operation {
        process,
        function: event.function.clone(),
        key: event.key.clone(),
        asked: event.value.clone(),
        told: Value::Nil,
        end: End::Unknown,
        error: None,
        member: event.member,
        called: index,
        returned: None,
    }
}

fn finish(operation: &mut Operation, index: usize, event: &Event) -> Result<(), String> {
    if event.function != operation.function || event.key != operation.key {
        let (began, ends) = (operation.function.name(), event.function.name());
        return Err(format!("process {} began {began} and ends {ends}", operation.process));
    }
    operation.end = match event.kind {
        Kind::Ok => End::Ok,
        Kind::Fail => End::Failed,
        Kind::Info | Kind::Invoke => End::Unknown,
    };
    operation.told = event.value.clone();
    operation.error = event.error.clone();
    operation.returned = Some(index);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::parse;

    fn ops(lines: &[&str]) -> Result<Vec<Operation>, HistoryError> {
        let lines: Vec<String> = lines.iter().map(|line| format!("INFO  jepsen.util - {line}\n")).collect();
        operations(&parse(&lines.concat())?)
    }

    #[test]
    fn calls_and_ends_belong_together() {
        let all = ops(&[
            "0 :invoke :write 1",
            "1 :invoke :read nil",
            "0 :ok :write 1",
            "1 :fail :read :timed-out",
            "2 :invoke :cas [1 2]",
            ":nemesis :info :start nil",
            "2 :info :cas :timed-out",
            "3 :invoke :write 5",
        ])
        .expect("pair");
        let ends: Vec<End> = all.iter().map(|operation| operation.end).collect();
        assert_eq!(ends, [End::Ok, End::Failed, End::Unknown, End::Unknown]);
        assert_eq!((all[0].called, all[0].returned), (0, Some(2)));
        assert_eq!(all[3].returned, None);
    }

    #[test]
    fn a_process_does_one_thing_at_a_time() {
        for (lines, why) in [
            (
                &["0 :invoke :read nil", "0 :invoke :read nil"][..],
                "line 2: process 0 still does what it began in line 1",
            ),
            (&["0 :ok :read 1"], "line 1: process 0 ends what it did not begin"),
            (&["0 :invoke :read nil", "0 :ok :write 1"], "line 2: process 0 began read and ends write"),
            (
                &["0 :invoke :write 1", "0 :info :write :timed-out", "0 :invoke :read nil"],
                "line 3: process 0 goes on after its unknown outcome in line 2",
            ),
        ] {
            assert_eq!(ops(lines).expect_err(why).to_string(), why);
        }
    }
}
