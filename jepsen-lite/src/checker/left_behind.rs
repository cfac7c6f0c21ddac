//! What was deleted is gone from the tokens too, not only from what members list: in the end no token holds a key that its
//! member does not list, and nothing else that a session's end should have taken along. Where the rung can look into tokens.

use super::{Facts, Finding};
use crate::history::Function;
use std::collections::BTreeSet;

/// None on a rung that does not.
pub(super) fn look(facts: &Facts<'_>) -> Option<Finding> {
    let name = "nothing left behind";
    if !facts.sees_tokens() {
        return None;
    }
    let mut complaints = Vec::new();
    let mut tokens = 0;
    for (_, held) in facts.told(&Function::Held) {
        let (Some(member), Some(ids)) =
            (held.int_at("member"), held.get("objects").and_then(|ids| ids.ints()))
        else {
            continue;
        };
        let Some((_, rows)) = facts.listed.iter().find(|(who, _)| *who == member) else { continue };
        tokens += 1;
        let strangers = held.int_at("strangers").unwrap_or(0);
        if strangers > 0 {
            complaints.push(format!(
                "the token of member {member} keeps {strangers} objects for good that are none of the group's: a session \
                 object that outlives its session, or what was half made"
            ));
        }
        let listed: BTreeSet<i64> = rows.iter().map(|row| row.id).collect();
        for id in ids.into_iter().filter(|id| !listed.contains(id)) {
            let deleted = facts.deleted(id).map(|at| format!(", deleted at {}", facts.place(at)));
            complaints.push(format!(
                "the token of member {member} still holds key {id}{}",
                deleted.unwrap_or_default()
            ));
        }
    }
    Some(Finding::of_some(name, tokens, "tokens looked into in the end", complaints))
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, end, good};
    use super::*;
    use crate::edn::Value;

    fn seen(facts: &Facts<'_>) -> Finding {
        look(facts).expect("tokens are looked into")
    }

    #[test]
    fn a_copy_that_stays_is_seen() {
        let story = |held: &[i64]| {
            let mut story = Story::seeing_tokens();
            story.create(1);
            story.create(2);
            story.delete(1);
            end(&mut story, &[2]);
            story.held(0, &[2]);
            story.held(1, held);
            story.told(seen)
        };
        assert!(story(&[2]).passes());
        complains(&story(&[1, 2]), "the token of member 1 still holds key 1, deleted at");
    }

    #[test]
    fn a_session_object_that_outlives_its_session_is_seen() {
        let mut story = Story::seeing_tokens();
        story.create(1);
        end(&mut story, &[1]);
        let rows =
            [("member", Value::Int(1)), ("objects", Value::numbers([1])), ("strangers", Value::Int(2))];
        story.nemesis(Function::Held, Value::map(rows));
        complains(&story.told(seen), "the token of member 1 keeps 2 objects for good");
    }

    #[test]
    fn who_should_look_and_does_not_fails() {
        complains(&Story::seeing_tokens().told(seen), "nothing was looked at");
        let blind = good().history();
        assert_eq!(look(&Facts::of(&blind).expect("no contradiction")), None, "a rung that does not look");
    }
}
