//! No two creations were answered with one id.

use super::{Facts, Finding};
use crate::history::{End, Function};
use std::collections::BTreeMap;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut first: BTreeMap<i64, usize> = BTreeMap::new();
    let mut complaints = Vec::new();
    let mut count = 0;
    for create in facts.of_function(&Function::Create).filter(|create| create.end == End::Ok) {
        let Some(id) = create.told.int() else { continue };
        count += 1;
        if let Some(before) = first.insert(id, create.called) {
            let (one, other) = (facts.place(before), facts.place(create.called));
            complaints.push(format!("id {id} was given at {one} and at {other}"));
        }
    }
    Finding::of_some("unique ids", count, "answered creations", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;
    use crate::edn::Value;
    use crate::history::Function;

    #[test]
    fn an_id_that_is_given_twice_is_seen() {
        let mut story = Story::new("serve");
        story.create(1);
        story.ok(Function::Create, Value::Text("another".into()), Value::Int(1));
        complains(&story.told(look), "id 1 was given");
        assert!(good().told(look).passes());
    }
}
