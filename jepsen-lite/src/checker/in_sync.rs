//! An answered creation is usable at every in-sync member at once. Right after an answer the key is used at each member, and
//! the member's standing is asked before and after; one that was in sync both times must have had the key. `absent`: it knows of
//! no such key; `lacking`: it knows of it, and its token does not hold it.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::Function;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut complaints = Vec::new();
    let (mut good, mut silent, mut excused) = (0, 0, 0);
    for (at, probe) in facts.told(&Function::Probe) {
        let is = |key: &str| probe.get(key) == Some(&Value::Bool(true));
        match probe.get("result").and_then(Value::text) {
            Some("ok") => good += 1,
            Some("absent" | "lacking") if is("in-sync-before") && is("in-sync-after") => {
                let (id, member) = (probe.int_at("object"), probe.int_at("member"));
                // Somebody may have deleted it meanwhile.
                let deleted = id.and_then(|id| facts.first_deletion(id)).is_some_and(|deleted| deleted < at);
                if deleted {
                    excused += 1;
                } else {
                    let (id, member) = (id.unwrap_or(-1), member.unwrap_or(-1));
                    let place = facts.place(at);
                    complaints.push(format!("member {member} is in sync and lacks key {id} at {place}"));
                }
            }
            Some("absent" | "lacking") => excused += 1,
            _ => silent += 1,
        }
    }
    let mut finding =
        Finding::of_some("in-sync promise", good, "uses of new keys at each member", complaints);
    finding.numbers = vec![("ok", good as i64), ("silent", silent), ("excused", excused)];
    finding
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;

    #[test]
    fn a_member_in_sync_without_the_key_is_seen() {
        let mut story = Story::new("serve");
        story.create(1);
        story.probe(1, 0, true, "ok");
        story.probe(1, 1, true, "absent");
        complains(&story.told(look), "member 1 is in sync and lacks key 1");
        let mut story = Story::new("serve");
        story.create(1);
        story.probe(1, 0, true, "ok");
        story.probe(1, 1, true, "lacking");
        complains(&story.told(look), "member 1 is in sync and lacks key 1");
        assert!(good().told(look).passes());
    }

    #[test]
    fn a_member_that_left_or_a_key_that_went_is_excused() {
        let mut story = Story::new("serve");
        story.create(1);
        story.probe(1, 0, true, "ok");
        story.probe(1, 1, false, "absent");
        story.delete(1);
        story.probe(1, 0, true, "absent");
        story.probe(1, 1, true, "silent");
        let finding = story.told(look);
        assert!(finding.passes(), "{finding:?}");
        assert!(finding.numbers.contains(&("excused", 2)), "{finding:?}");
    }

    #[test]
    fn who_never_tried_does_not_pass() {
        let mut story = Story::new("serve");
        story.create(1);
        complains(&story.told(look), "nothing was looked at");
    }
}
