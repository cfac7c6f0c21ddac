//! A run that did not try what it was made for proves nothing: it must have committed under each of its faults, elected
//! primaries, taken a snapshot, and had enough of its operations answered.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{End, Function, Operation};
use std::collections::BTreeSet;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let groups = facts.told(&Function::Group);
    let Some((_, group)) = groups.first() else {
        return Finding::of_some("coverage", 0, "description of the group", Vec::new());
    };
    let mut complaints = Vec::new();
    let Some(demands) = group.get("demands") else {
        return Finding::of_some("coverage", 0, "demands", Vec::new());
    };
    let demand = |key: &str| demands.int_at(key).unwrap_or(i64::MAX);
    let all = facts.operations.len() as i64;
    let answers = facts.operations.iter().filter(|operation| operation.end == End::Ok || operation.absent());
    let answered = answers.count() as i64;
    if answered < demand("answered") {
        complaints.push(format!("{answered} operations were answered, not {}", demand("answered")));
    }
    let percent = (answered * 100).checked_div(all).unwrap_or(0);
    if percent < demand("ok-percent") {
        complaints.push(format!("{percent} % of operations were answered, not {}", demand("ok-percent")));
    }
    let leads = |value: &&Value| value.get("leads") == Some(&Value::Bool(true));
    let seen = facts.told(&Function::Seen);
    let primaries: BTreeSet<(Option<i64>, Option<i64>)> = seen
        .iter()
        .map(|(_, value)| *value)
        .filter(leads)
        .map(|value| (value.int_at("term"), value.int_at("member")))
        .collect();
    if (primaries.len() as i64) < demand("primaries") {
        complaints.push(format!("{} primaries were elected, not {}", primaries.len(), demand("primaries")));
    }
    // Rungs tell of those alone that were taken since the run began.
    let snapshots = seen.iter().filter_map(|(_, value)| value.int_at("snapshots")).max().unwrap_or(0);
    if demands.get("snapshot") == Some(&Value::Bool(true)) && snapshots == 0 {
        complaints.push("no snapshot was taken".into());
    }
    let functions = demands.get("functions").filter(|_| facts.demands_each_call()).and_then(Value::list);
    for function in functions.unwrap_or_default() {
        let Some(name) = function.text() else { continue };
        let done = |operation: &&Operation| operation.end == End::Ok && operation.function.name() == name;
        if facts.operations.iter().find(done).is_none() {
            complaints.push(format!("no '{name}' was answered"));
        }
    }
    let mut commits = 0;
    for fault in group.get("faults").and_then(Value::list).unwrap_or_default().iter().filter_map(Value::text)
    {
        let under = commits_under(facts, fault);
        commits += under.unwrap_or(0);
        match under {
            None => complaints.push(format!("no fault '{fault}' came that left a quorum")),
            Some(0) => complaints.push(format!("nothing was changed while '{fault}' lasted")),
            Some(_) => {}
        }
    }
    let looked = format!("{answered} of {all} operations answered, {} primaries", primaries.len());
    let mut finding = Finding::new("coverage", looked, complaints);
    finding.numbers = vec![
        ("answered", answered),
        ("answered-percent", percent),
        ("primaries", primaries.len() as i64),
        ("snapshots", snapshots),
        ("commits-under-faults", commits),
    ];
    finding
}

/// Changes that were asked for and answered while a fault of this name lasted that left a quorum; None if none did.
pub(crate) fn commits_under(facts: &Facts<'_>, fault: &str) -> Option<i64> {
    let named = |value: &Value| value.get("fault") == Some(&Value::word(fault));
    let quorum = |value: &Value| value.get("quorum") == Some(&Value::Bool(true));
    let ends = facts.told(&Function::FaultEnd);
    let begins: Vec<usize> = facts
        .told(&Function::FaultBegin)
        .into_iter()
        .filter(|(_, value)| named(value) && quorum(value))
        .map(|(at, _)| at)
        .collect();
    if begins.is_empty() {
        return None;
    }
    let spans: Vec<(usize, usize)> = begins
        .into_iter()
        .map(|begin| {
            let end = ends.iter().find(|(at, value)| *at > begin && named(value));
            (begin, end.map_or(usize::MAX, |(at, _)| *at))
        })
        .collect();
    let changes = facts.operations.iter().filter(|operation| {
        let changes = operation.function.changes();
        let returned = operation.returned.unwrap_or(usize::MAX);
        let within = |(begin, end): &(usize, usize)| operation.called > *begin && returned < *end;
        changes && operation.end == End::Ok && spans.iter().any(within)
    });
    Some(changes.count() as i64)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;
    use crate::edn::Value;
    use crate::history::{Function, Kind};

    #[test]
    fn a_run_that_tried_nothing_is_rejected() {
        let mut story = Story::new("serve");
        for _ in 0..9 {
            let process = story.call(Function::Find, Value::Nil);
            story.end(process, Kind::Fail, Function::Find, Value::Nil);
        }
        story.create(1);
        story.fault("kill", true, &[]);
        story.find(&[1]);
        story.heal("kill", true);
        let finding = story.told(look);
        for text in [
            "2 operations were answered, not 4",
            "18 % of operations",
            "0 primaries",
            "no snapshot",
            "nothing was changed while 'kill' lasted",
        ] {
            complains(&finding, text);
        }
        assert!(good().told(look).passes());
    }

    #[test]
    fn what_clients_should_have_done_is_missed() {
        let wanted = Value::List(vec![Value::word("create"), Value::word("cas")]);
        let mut story = Story::demanding("serve", &[("functions", wanted), ("each-call", Value::Bool(true))]);
        story.create(1);
        let finding = story.told(look);
        complains(&finding, "no 'cas' was answered");
        assert!(!finding.complaints.iter().any(|one| one.contains("'create'")), "{finding:?}");
    }

    #[test]
    fn a_fault_that_never_came_is_missed() {
        let mut story = Story::new("serve");
        story.fault("kill", false, &[0, 1]);
        story.create(1);
        story.heal("kill", true);
        complains(&story.told(look), "no fault 'kill' came that left a quorum");
    }
}
