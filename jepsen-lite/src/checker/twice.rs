//! No creation makes two keys, however often it was repeated on the way: each tag has one id.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{End, Function};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut ids: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for operation in facts.operations.iter().filter(|operation| operation.end == End::Ok) {
        match (&operation.function, operation.told.list()) {
            (Function::Create, _) => {
                if let (Some(tag), Some(id)) = (operation.asked.text(), operation.told.int()) {
                    ids.entry(tag.into()).or_default().insert(id);
                }
            }
            (Function::Look, Some([Value::Int(id), Value::Text(tag), _])) => {
                ids.entry(tag.clone()).or_default().insert(*id);
            }
            _ => {}
        }
    }
    for row in facts.listed.iter().flat_map(|(_, rows)| rows) {
        ids.entry(row.tag.clone()).or_default().insert(row.id);
    }
    let twice = ids.iter().filter(|(_, ids)| ids.len() > 1);
    let complaints = twice.map(|(tag, ids)| format!("creation '{tag}' made the keys {ids:?}")).collect();
    Finding::of_some("no key twice", ids.len(), "creations", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;
    use crate::edn::Value;
    use crate::history::Function;

    #[test]
    fn a_creation_that_happened_twice_is_seen() {
        let mut story = Story::new("serve");
        story.create(1);
        let row =
            |id: i64| Value::List(vec![Value::Int(id), Value::Text("t1".into()), Value::Text("a".into())]);
        let rows = [("member", Value::Int(0)), ("objects", Value::List(vec![row(1), row(2)]))];
        story.nemesis(Function::Listed, Value::map(rows));
        complains(&story.told(look), "'t1' made the keys {1, 2}");
        assert!(good().told(look).passes());
    }
}
