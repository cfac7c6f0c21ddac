//! An answered creation is usable at every in-sync member at once. Right after an answer the key is used at each member, and
//! the member's standing is asked before and after; one that was in sync both times must have had the key. `absent`: it knows of
//! no such key; `lacking`: it knows of it, and its token does not hold it.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::Function;
use std::collections::BTreeMap;

/// Of a run's tries, and of those at one member while it was in sync, so many percent must have been answered. Where faults
/// come and go it is more than half of them. In fence mode one that may be cut off has to keep silent, and calls itself in sync
/// for as long as it hears of nothing else: that does not count.
const ANSWERED_PERCENT: i64 = 25;
/// Fewer tries at a member show nothing of it.
const TRIES_MIN: i64 = 20;

/// Tries that were answered, and those that were not.
#[derive(Clone, Copy, Default)]
struct Tries {
    answered: i64,
    silent: i64,
}

impl Tries {
    fn note(&mut self, answered: bool) {
        *(if answered { &mut self.answered } else { &mut self.silent }) += 1;
    }

    /// Says that too few were answered, if that is so.
    fn too_few(self, whose: &str) -> Option<String> {
        let all = self.answered + self.silent;
        let few = all >= TRIES_MIN && self.answered * 100 < all * ANSWERED_PERCENT;
        let Self { answered, .. } = self;
        few.then(|| {
            format!("{answered} of {all} tries {whose} were answered: who is silent keeps no promise")
        })
    }
}

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut complaints = Vec::new();
    let (mut good, mut excused) = (0, 0);
    let (mut all, mut while_in_sync) = (Tries::default(), BTreeMap::<i64, Tries>::new());
    for (at, probe) in facts.told(&Function::Probe) {
        let is = |key: &str| probe.get(key) == Some(&Value::Bool(true));
        let (in_sync, member) =
            (is("in-sync-before") && is("in-sync-after"), probe.int_at("member").unwrap_or(-1));
        let result = probe.get("result").and_then(Value::text);
        let answered = matches!(result, Some("ok" | "absent" | "lacking"));
        all.note(answered);
        if in_sync && !facts.weak.must_be_silent(usize::try_from(member).ok(), at) {
            while_in_sync.entry(member).or_default().note(answered);
        }
        match result {
            Some("ok") => good += 1,
            Some("absent" | "lacking") if in_sync => {
                let id = probe.int_at("object");
                // Somebody may have deleted it meanwhile.
                let deleted = id.and_then(|id| facts.first_deletion(id)).is_some_and(|deleted| deleted < at);
                if deleted {
                    excused += 1;
                } else {
                    let (id, place) = (id.unwrap_or(-1), facts.place(at));
                    complaints.push(format!("member {member} is in sync and lacks key {id} at {place}"));
                }
            }
            Some("absent" | "lacking") => excused += 1,
            _ => {}
        }
    }
    complaints.extend(all.too_few("of all members"));
    let few = |(member, tries): (&i64, &Tries)| tries.too_few(&format!("of member {member}, in sync,"));
    complaints.extend(while_in_sync.iter().filter_map(few));
    let mut finding =
        Finding::of_some("in-sync promise", good, "uses of new keys at each member", complaints);
    finding.numbers = vec![("ok", good as i64), ("silent", all.silent), ("excused", excused)];
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
    fn a_member_that_stays_silent_is_not_passed_over() {
        let told = |silent: u64, sure: bool| {
            let mut story = Story::new("serve");
            story.create(1);
            for _ in 0..30 {
                story.probe(1, 0, true, "ok");
            }
            for _ in 0..silent {
                story.probe(1, 1, sure, "silent");
            }
            story.probe(1, 1, true, "ok");
            story.told(look)
        };
        assert!(told(3, true).passes() && told(19, false).passes());
        let cut_off = |mode: &str, healed: bool| {
            let mut story = Story::new(mode);
            story.create(1);
            story.probe(1, 1, true, "ok");
            (0..30).for_each(|_| story.probe(1, 0, true, "ok"));
            story.fault("partition", true, &[1]);
            if healed {
                story.heal("partition", true);
            }
            (0..30).for_each(|_| story.probe(1, 1, true, "silent"));
            story.told(look)
        };
        assert!(cut_off("fence", false).passes(), "{:?}", cut_off("fence", false));
        complains(&cut_off("serve", false), "who is silent keeps no promise");
        complains(&cut_off("fence", true), "who is silent keeps no promise");
        complains(
            &told(19, true),
            "1 of 20 tries of member 1, in sync, were answered: who is silent keeps no promise",
        );
        complains(&told(99, false), "31 of 130 tries of all members were answered");
    }

    #[test]
    fn who_never_tried_does_not_pass() {
        let mut story = Story::new("serve");
        story.create(1);
        complains(&story.told(look), "nothing was looked at");
    }
}
