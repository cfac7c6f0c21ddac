//! A token loses its last copy of a key only once somebody has asked for the key's deletion. Members that come back with an
//! old state must not destroy what that state does not name. Where the rung sees what tokens destroy.

use super::{Facts, Finding};
use crate::history::Function;

/// None on a rung that does not.
pub(super) fn look(facts: &Facts<'_>) -> Option<Finding> {
    let name = "no copy destroyed early";
    if !facts.sees_tokens() {
        return None;
    }
    let destroyed = facts.told(&Function::Destroyed);
    let mut complaints = Vec::new();
    for (at, value) in &destroyed {
        let (Some(member), Some(id)) = (value.int_at("member"), value.int_at("object")) else { continue };
        let answered = facts.born.get(&id).and_then(|birth| birth.answered).is_some_and(|born| born < *at);
        let asked = facts.first_deletion(id).is_some_and(|called| called < *at);
        if answered && !asked {
            let place = facts.place(*at);
            complaints.push(format!(
                "member {member} destroyed key {id} at {place}, and nobody had asked for that"
            ));
        }
    }
    Some(Finding::new(name, format!("{} copies that were destroyed", destroyed.len()), complaints))
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::*;

    fn seen(facts: &Facts<'_>) -> Finding {
        look(facts).expect("tokens are looked into")
    }

    #[test]
    fn a_copy_that_nobody_wanted_gone_is_missed() {
        let mut story = Story::seeing_tokens();
        story.create(1);
        story.destroyed(1, 1);
        story.delete(1);
        complains(&story.told(seen), "member 1 destroyed key 1");
        let mut story = Story::seeing_tokens();
        story.create(1);
        story.delete(1);
        story.destroyed(1, 1);
        // What was never answered is taken back.
        story.destroyed(0, 2);
        assert!(story.told(seen).passes());
        let blind = good().history();
        assert_eq!(look(&Facts::of(&blind).expect("no contradiction")), None, "a rung that does not look");
    }
}
