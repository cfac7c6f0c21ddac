//! Nobody meets a key that nobody made.

use super::{Facts, Finding};
use crate::history::{End, Function};
use std::collections::BTreeMap;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    // Where each key was first met.
    let mut met: BTreeMap<i64, String> = BTreeMap::new();
    for operation in facts.operations.iter().filter(|operation| operation.end == End::Ok) {
        let ids = match operation.function {
            Function::Find => operation.told.ints().unwrap_or_default(),
            Function::Look => operation.told.list().and_then(|row| row.first()?.int()).into_iter().collect(),
            _ => Vec::new(),
        };
        for id in ids {
            met.entry(id).or_insert_with(|| facts.place(operation.called));
        }
    }
    for (member, rows) in &facts.listed {
        for row in rows {
            met.entry(row.id).or_insert_with(|| format!("the end, by member {member}"));
        }
    }
    let tags: BTreeMap<&str, bool> = facts
        .operations
        .iter()
        .filter(|operation| operation.function == Function::Create)
        .filter_map(|operation| Some((operation.asked.text()?, operation.may_have_happened())))
        .collect();
    let listed_tag = |id: i64| {
        let rows = facts.listed.iter().flat_map(|(_, rows)| rows.iter());
        rows.filter(|row| row.id == id).map(|row| row.tag.as_str()).next()
    };
    let mut complaints = Vec::new();
    for (id, place) in &met {
        let made = facts.born.contains_key(id)
            // Only the last lists know it: its tag says which unanswered creation it comes from.
            || listed_tag(*id).is_some_and(|tag| tags.get(tag) == Some(&true));
        if !made {
            complaints.push(format!(
                "key {id} was made by nobody, or by a creation that failed; first met at {place}"
            ));
        }
    }
    Finding::of_some("no phantom", met.len(), "keys that were met", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, end, good};
    use super::look;
    use crate::edn::Value;
    use crate::history::{Function, Kind};

    #[test]
    fn a_key_from_nowhere_is_seen() {
        let mut story = Story::new("serve");
        story.create(1);
        story.find(&[1, 5]);
        complains(&story.told(look), "key 5 was made by nobody");
        let mut story = Story::new("serve");
        story.create(1);
        end(&mut story, &[1, 6]);
        complains(&story.told(look), "key 6 was made by nobody");
        assert!(good().told(look).passes());
    }

    #[test]
    fn a_failed_creation_leaves_no_key() {
        let mut story = Story::new("serve");
        let process = story.call(Function::Create, Value::Text("t1".into()));
        story.end(process, Kind::Fail, Function::Create, Value::Text("t1".into()));
        end(&mut story, &[1]);
        complains(&story.told(look), "a creation that failed");
    }

    #[test]
    fn an_unanswered_creation_may_leave_one() {
        let mut story = Story::new("serve");
        story.lost(Function::Create, Value::Text("t1".into()));
        end(&mut story, &[1]);
        let finding = story.told(look);
        assert!(finding.passes(), "{finding:?}");
    }
}
