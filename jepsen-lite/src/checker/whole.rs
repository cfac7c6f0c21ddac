//! After every heal all members are in sync again within the deadline.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::Function;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let wholes = facts.told(&Function::Whole);
    let mut complaints: Vec<String> = wholes
        .iter()
        .filter(|(_, value)| value.get("in-time") != Some(&Value::Bool(true)))
        .map(|(at, value)| format!("the group is not whole at {}: {value}", facts.place(*at)))
        .collect();
    let last_fault = facts.told(&Function::FaultBegin).last().map(|(at, _)| *at);
    if last_fault.is_some() && wholes.last().map(|(at, _)| *at) < last_fault {
        complaints.push("nobody waited for the group to be whole after the last fault".into());
    }
    let longest = wholes.iter().filter_map(|(_, value)| value.int_at("took-ms")).max().unwrap_or_default();
    let mut finding = Finding::of_some("whole in time", wholes.len(), "heals", complaints);
    finding.numbers = vec![("longest-ms", longest)];
    finding
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;

    #[test]
    fn a_group_that_does_not_heal_is_seen() {
        let mut story = Story::new("serve");
        story.fault("kill", true, &[]);
        story.heal("kill", false);
        complains(&story.told(look), "not whole");
        let mut story = Story::new("serve");
        story.fault("kill", true, &[]);
        story.heal("kill", true);
        story.fault("kill", true, &[]);
        complains(&story.told(look), "after the last fault");
        assert!(good().told(look).passes());
    }
}
