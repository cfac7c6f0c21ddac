//! A look at a key's attribute never tells a value that was certainly overwritten before it began.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{End, Function, Operation};
use std::collections::BTreeMap;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut sets: BTreeMap<i64, Vec<(String, Operation)>> = BTreeMap::new();
    for set in facts.of_function(&Function::Set).filter(Operation::may_have_happened) {
        if let Some([Value::Int(id), Value::Text(value)]) = set.asked.list() {
            sets.entry(*id).or_default().push((value.clone(), set.clone()));
        }
    }
    let mut complaints = Vec::new();
    let mut count = 0;
    for looked in facts.of_function(&Function::Look) {
        let Some([Value::Int(id), _, Value::Text(value)]) = looked.told.list() else { continue };
        if looked.end != End::Ok || facts.weak.excuses(&looked) {
            continue;
        }
        count += 1;
        let sets = sets.get(id).map(Vec::as_slice).unwrap_or_default();
        // When the value was there for certain: as a set of it was answered; from the beginning, if it is none's. One whose
        // answer never came may come late.
        let from = if value.is_empty() {
            Some(0)
        } else {
            let writers = sets.iter().filter(|(written, _)| written == value);
            let ends: Vec<Option<usize>> =
                writers.map(|(_, set)| set.returned.filter(|_| set.end == End::Ok)).collect();
            match ends.as_slice() {
                [] => {
                    complaints.push(format!(
                        "key {id} has '{value}' at {}, which nobody set",
                        facts.place(looked.called)
                    ));
                    continue;
                }
                ends => {
                    ends.iter().copied().collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max())
                }
            }
        };
        let over = |(_, set): &&(String, Operation)| {
            let before = set.returned.is_some_and(|returned| returned < looked.called);
            set.end == End::Ok && before && from.is_some_and(|from| from < set.called)
        };
        if let Some((newer, set)) = sets.iter().find(over) {
            let (set, at) = (facts.place(set.called), facts.place(looked.called));
            complaints.push(format!("key {id} has '{value}' at {at}, though '{newer}' was set at {set}"));
        }
    }
    Finding::of_some("no stale look", count, "looks", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;
    use crate::edn::Value;
    use crate::history::Function;

    fn set(value: &str) -> Value {
        Value::List(vec![Value::Int(1), Value::Text(value.into())])
    }

    fn seen(value: &str) -> Value {
        Value::List(vec![Value::Int(1), Value::Text("t1".into()), Value::Text(value.into())])
    }

    #[test]
    fn an_overwritten_value_is_seen() {
        for (value, passes) in [("x", false), ("", false), ("y", true)] {
            let mut story = Story::new("serve");
            story.create(1);
            story.ok(Function::Set, set("x"), set("x"));
            story.ok(Function::Set, set("y"), set("y"));
            story.ok(Function::Look, Value::Int(1), seen(value));
            assert_eq!(story.told(look).passes(), passes, "'{value}'");
        }
        assert!(good().told(look).passes());
    }

    #[test]
    fn an_unanswered_set_may_come_late_and_nobodys_never() {
        let mut story = Story::new("serve");
        story.create(1);
        story.lost(Function::Set, set("x"));
        story.ok(Function::Set, set("y"), set("y"));
        story.ok(Function::Look, Value::Int(1), seen("x"));
        assert!(story.told(look).passes());
        let mut story = Story::new("serve");
        story.create(1);
        story.ok(Function::Look, Value::Int(1), seen("z"));
        complains(&story.told(look), "which nobody set");
    }
}
