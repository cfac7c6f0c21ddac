//! No key in clear: values that clients brought along stand nowhere on a member's disk, and nowhere in what members said to
//! each other. Only where a run looked for them ("in-clear" among its demands).

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{End, Function};
use crate::workload::imported;

pub(super) fn look(facts: &Facts<'_>) -> Option<Finding> {
    facts.demands().filter(|demands| demands.get("in-clear") == Some(&Value::Bool(true)))?;
    let mut complaints = Vec::new();
    let searches = facts.told(&Function::InClear);
    for (_, search) in &searches {
        let leaks = search.get("leaks").and_then(Value::list).unwrap_or_default();
        complaints.extend(leaks.iter().map(|leak| format!("a key stands in clear: {leak}")));
        for what in ["disk-bytes", "wire-bytes"] {
            if search.int_at(what).unwrap_or(0) == 0 {
                complaints.push(format!("no {what} were searched"));
            }
        }
    }
    if searches.is_empty() {
        complaints.push("nobody searched".into());
    }
    let brought = facts
        .of_function(&Function::Create)
        .filter(|create| create.end == End::Ok && create.asked.text().is_some_and(imported));
    let mut finding = Finding::of_some(
        "no key in clear",
        brought.count(),
        "keys whose value a client brought along",
        complaints,
    );
    let of = |what: &str| searches.first().and_then(|(_, search)| search.int_at(what)).unwrap_or(0);
    finding.numbers = vec![("disk-bytes", of("disk-bytes")), ("wire-bytes", of("wire-bytes"))];
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains};
    use super::look;
    use crate::edn::Value;
    use crate::history::Function;

    fn searched(disk: i64, wire: i64, leaks: &[&str]) -> Story {
        let mut story = Story::demanding("serve", &[("in-clear", Value::Bool(true))]);
        story.ok(Function::Create, Value::Text("v1.1".into()), Value::Int(1));
        let leaks = leaks.iter().map(|leak| Value::Text((*leak).into())).collect();
        story.nemesis(
            Function::InClear,
            Value::map([
                ("disk-bytes", Value::Int(disk)),
                ("wire-bytes", Value::Int(wire)),
                ("leaks", Value::List(leaks)),
            ]),
        );
        story
    }

    #[test]
    fn a_key_in_clear_is_seen() {
        let told = |story: Story| story.told(|facts| look(facts).expect("is demanded"));
        assert!(told(searched(9, 9, &[])).passes());
        complains(&told(searched(9, 9, &["m1/data/log/3"])), "m1/data/log/3");
        complains(&told(searched(9, 0, &[])), "no wire-bytes were searched");
    }

    #[test]
    fn who_does_not_search_does_not_pass() {
        let told = |story: Story| story.told(|facts| look(facts).expect("is demanded"));
        let story = Story::demanding("serve", &[("in-clear", Value::Bool(true))]);
        let finding = told(story);
        complains(&finding, "nobody searched");
        complains(&finding, "nothing was looked at");
    }
}
