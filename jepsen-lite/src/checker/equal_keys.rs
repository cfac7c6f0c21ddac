//! In the end every member has the same keys, by use and not by name: each makes the same of one text with each key.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::Function;
use std::collections::BTreeMap;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut complaints = Vec::new();
    let groups = facts.told(&Function::Group);
    let members = groups.iter().find_map(|(_, value)| value.int_at("members")).unwrap_or_default();
    for member in 0..members {
        if !facts.listed.iter().any(|(who, _)| *who == member) {
            complaints.push(format!("member {member} did not list its keys in the end"));
        }
    }
    if let Some((first, rows)) = facts.listed.first() {
        for (member, others) in &facts.listed[1..] {
            for row in rows.symmetric_difference(others) {
                complaints.push(format!("members {first} and {member} list key {} differently", row.id));
            }
        }
    }
    let mut proofs: BTreeMap<i64, BTreeMap<i64, String>> = BTreeMap::new();
    for (_, proof) in facts.told(&Function::Proof) {
        if let (Some(member), Some(id), Some(digest)) =
            (proof.int_at("member"), proof.int_at("object"), proof.get("digest").and_then(Value::text))
        {
            proofs.entry(id).or_default().insert(member, digest.to_string());
        }
    }
    for (member, rows) in &facts.listed {
        for row in rows {
            let id = row.id;
            let all = proofs.get(&id);
            let Some(own) = all.and_then(|all| all.get(member)) else {
                complaints.push(format!("member {member} lists key {id} and cannot use it"));
                continue;
            };
            let first = all.and_then(|all| all.iter().next());
            if let Some((other, theirs)) = first.filter(|(_, theirs)| *theirs != own) {
                complaints
                    .push(format!("key {id} of member {member} ({own}) is not that of {other} ({theirs})"));
            }
        }
    }
    let count = proofs.values().map(BTreeMap::len).sum();
    Finding::of_some("equal keys", count, "uses in the end", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;

    #[test]
    fn members_that_differ_are_seen() {
        let mut story = Story::new("serve");
        for member in [0, 1] {
            story.listed(member, &[1]);
            story.proof(member, 1, &format!("d{member}"));
        }
        complains(&story.told(look), "key 1 of member 1 (d1) is not that of 0 (d0)");
        let mut story = Story::new("serve");
        story.listed(0, &[1, 2]);
        story.listed(1, &[1]);
        story.proof(0, 1, "d");
        story.proof(1, 1, "d");
        let finding = story.told(look);
        complains(&finding, "list key 2 differently");
        complains(&finding, "member 0 lists key 2 and cannot use it");
        let mut story = Story::new("serve");
        story.listed(0, &[1]);
        story.proof(0, 1, "d");
        complains(&story.told(look), "member 1 did not list");
        assert!(good().told(look).passes());
    }
}
