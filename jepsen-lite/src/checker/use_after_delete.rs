//! No use begins after the key's deletion was answered and succeeds. In serve mode a member that is cut off may; that time is
//! left out. In fence mode none is.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{End, Function};

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut complaints = Vec::new();
    let mut count = 0;
    for operation in &facts.operations {
        let uses = matches!(operation.function, Function::Use | Function::Look);
        if !uses || operation.end != End::Ok || facts.weak.excuses(operation) {
            continue;
        }
        count += 1;
        let Some(id) = operation.asked.int() else { continue };
        if let Some(when) = facts.deleted(id).filter(|when| *when < operation.called) {
            let (deleted, used) = (facts.place(when), facts.place(operation.called));
            complaints.push(format!("key {id} was deleted at {deleted} and used at {used}"));
        }
    }
    for (at, probe) in facts.told(&Function::Ghost) {
        let (Some(id), Some(member)) = (probe.int_at("object"), probe.int_at("member")) else { continue };
        let Some(when) = facts.deleted(id) else { continue };
        count += 1;
        let excused = facts.weak.within(usize::try_from(member).ok(), when, at);
        if probe.get("result") == Some(&Value::word("ok")) && !excused {
            let (deleted, used) = (facts.place(when), facts.place(at));
            complaints
                .push(format!("key {id} was deleted at {deleted}, and member {member} used it at {used}"));
        }
    }
    Finding::of_some("no use after delete", count, "uses", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;

    fn story(mode: &str) -> Story {
        let mut story = Story::new(mode);
        story.create(1);
        story.fault("partition", true, &[1]);
        story.delete(1);
        story.used(1);
        story.heal("partition", true);
        story.create(2);
        story.used(2);
        story
    }

    #[test]
    fn a_member_that_still_uses_what_is_gone_is_seen() {
        let told = |mode, result| {
            let mut story = Story::new(mode);
            story.create(1);
            story.used(1);
            story.fault("partition", true, &[1]);
            story.delete(1);
            story.ghost(1, 1, result);
            story.heal("partition", true);
            story.told(look)
        };
        complains(&told("fence", "ok"), "and member 1 used it");
        assert!(told("fence", "absent").passes() && told("fence", "silent").passes());
        assert!(told("serve", "ok").passes(), "it was cut off");
    }

    #[test]
    fn a_use_of_what_is_gone_is_seen() {
        complains(&story("fence").told(look), "key 1 was deleted");
        let finding = story("serve").told(look);
        assert!(finding.passes(), "a member was cut off: {finding:?}");
        let mut whole = story("serve");
        whole.used(1);
        complains(&whole.told(look), "key 1 was deleted");
        assert!(good().told(look).passes());
    }
}
