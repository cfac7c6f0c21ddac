//! A session key is there, for every client of its slot and at whatever member, from the answer of its making until its
//! session is closed, and not a moment longer. Only where a run has session keys.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{End, Function, Operation};
use std::collections::BTreeMap;

pub(super) fn look(facts: &Facts<'_>) -> Option<Finding> {
    let made: BTreeMap<i64, usize> = facts
        .of_function(&Function::SessionMake)
        .filter(|make| make.end == End::Ok)
        .filter_map(|make| Some((make.told.int()?, make.returned?)))
        .collect();
    let ends: BTreeMap<i64, Operation> =
        facts.of_function(&Function::SessionEnd).filter_map(|end| Some((end.asked.int()?, end))).collect();
    facts.of_function(&Function::SessionMake).next()?;
    let hits =
        |value: &Value| value.get("members").and_then(Value::list).is_some_and(|list| !list.is_empty());
    let faults: Vec<usize> = facts
        .told(&Function::FaultBegin)
        .into_iter()
        .filter(|(_, value)| hits(value))
        .map(|(at, _)| at)
        .collect();
    let mut complaints = Vec::new();
    let (mut good, mut outlived) = (0, 0);
    for operation in facts.of_function(&Function::SessionUse) {
        let Some(id) = operation.asked.int() else { continue };
        let (end, returned) = (ends.get(&id), operation.returned.unwrap_or(usize::MAX));
        let place = facts.place(operation.called);
        if operation.absent() {
            let there = made.get(&id).is_some_and(|made| *made < operation.called);
            if there && end.is_none_or(|end| end.called > returned) {
                complaints
                    .push(format!("session key {id} was not there at {place}, and its session was open"));
            }
        }
        if operation.end != End::Ok {
            continue;
        }
        good += 1;
        let made = made.get(&id).copied().unwrap_or(usize::MAX);
        outlived += i64::from(faults.iter().any(|fault| made < *fault && *fault < operation.called));
        let closed = end.filter(|end| end.end == End::Ok).and_then(|end| end.returned);
        if closed.is_some_and(|closed| closed < operation.called) {
            complaints.push(format!("session key {id} was used at {place}, after its session was closed"));
        }
    }
    let mut finding = Finding::of_calls(facts, "sessions", good, "uses of session keys", complaints);
    finding.numbers =
        vec![("made", made.len() as i64), ("ended", ends.len() as i64), ("used-after-a-fault", outlived)];
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;
    use crate::edn::Value;
    use crate::history::{Function, Kind};

    fn begun() -> Story {
        let mut story = Story::new("serve");
        story.ok(Function::SessionMake, Value::Text("1.1".into()), Value::Int(7));
        story
    }

    fn used(story: &mut Story, absent: bool) {
        match absent {
            true => {
                let process = story.call(Function::SessionUse, Value::Int(7));
                story.absent(process, Function::SessionUse, Value::Int(7));
            }
            false => story.ok(Function::SessionUse, Value::Int(7), Value::Int(7)),
        }
    }

    #[test]
    fn a_session_key_is_there_exactly_while_its_session_is_open() {
        for (before, after, says) in [
            (false, true, None),
            (true, true, Some("its session was open")),
            (false, false, Some("after its session was closed")),
        ] {
            let mut story = begun();
            used(&mut story, false);
            used(&mut story, before);
            story.ok(Function::SessionEnd, Value::Int(7), Value::Int(7));
            used(&mut story, after);
            let finding = story.told(|facts| look(facts).expect("has sessions"));
            match says {
                None => assert!(finding.passes(), "{finding:?}"),
                Some(says) => complains(&finding, says),
            }
        }
    }

    #[test]
    fn while_a_session_is_closed_its_key_may_be_there_or_not() {
        for absent in [false, true] {
            let mut story = begun();
            used(&mut story, false);
            let ends = story.call(Function::SessionEnd, Value::Int(7));
            used(&mut story, absent);
            story.end(ends, Kind::Ok, Function::SessionEnd, Value::Int(7));
            let finding = story.told(|facts| look(facts).expect("has sessions"));
            assert!(finding.passes(), "{finding:?}");
        }
    }

    #[test]
    fn who_never_used_one_does_not_pass_and_who_has_none_is_not_asked() {
        for each_call in [true, false] {
            let mut story = Story::demanding("serve", &[("each-call", Value::Bool(each_call))]);
            story.ok(Function::SessionMake, Value::Text("1.1".into()), Value::Int(7));
            let finding = story.told(|facts| look(facts).expect("has sessions"));
            // One seed of many need not have used any.
            assert_eq!(finding.passes(), !each_call, "{finding:?}");
        }
        let history = good().history();
        assert!(look(&super::Facts::of(&history).expect("is no contradiction")).is_none());
    }
}
