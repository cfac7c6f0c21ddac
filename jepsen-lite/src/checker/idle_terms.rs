//! Terms are not used up for nothing. A member stands for election only once a majority would have it, so one that is cut off
//! does not push the term up and depose the primary when it is back. Votes may be split now and then.

use super::{Facts, Finding};
use crate::history::Function;
use std::collections::{BTreeMap, BTreeSet};

/// So many terms one after another may pass without a primary.
const IDLE_MAX: i64 = 4;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut led: BTreeSet<i64> = BTreeSet::new();
    let mut first_seen: BTreeMap<i64, usize> = BTreeMap::new();
    let looks = facts.told(&Function::Seen);
    for (at, seen) in &looks {
        let Some(term) = seen.int_at("term") else { continue };
        first_seen.entry(term).or_insert(*at);
        if seen.int_at("primary").is_some() {
            led.insert(term);
        }
    }
    // What lies before the first term that anybody led is the group's beginning.
    let begin = led.first().copied().unwrap_or_default();
    let newest = first_seen.keys().last().copied().unwrap_or_default();
    let mut complaints = Vec::new();
    let (mut before, mut longest) = (begin, 0);
    for term in led.iter().copied().filter(|term| *term > begin).chain([newest + 1]) {
        let idle = term - before - 1;
        longest = longest.max(idle);
        if idle > IDLE_MAX {
            let at =
                first_seen.range(before + 1..).next().map(|(_, at)| facts.place(*at)).unwrap_or_default();
            complaints.push(format!(
                "nobody led in the terms {} to {}, first seen at {at}",
                before + 1,
                term - 1
            ));
        }
        before = term;
    }
    let mut finding = Finding::of_some("no idle terms", looks.len(), "looks at the term", complaints);
    finding.numbers = vec![("longest", longest)];
    finding
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::*;
    use crate::edn::Value;

    fn leaderless(story: &mut Story, member: i64, term: i64) {
        let rows = [("member", Value::Int(member)), ("term", Value::Int(term)), ("primary", Value::Nil)];
        story.nemesis(Function::Seen, Value::map(rows));
    }

    #[test]
    fn a_member_that_pushes_the_term_up_is_seen() {
        let mut story = Story::new("serve");
        story.seen(0, 3, 0, 0);
        story.seen(0, 3 + IDLE_MAX + 2, 1, 0);
        complains(&story.told(look), "nobody led in the terms 4 to 8");
        let mut story = Story::new("serve");
        story.seen(0, 3, 0, 0);
        (4..10).for_each(|term| leaderless(&mut story, 1, term));
        complains(&story.told(look), "nobody led in the terms 4 to 9");
        assert!(good().told(look).passes());
    }

    #[test]
    fn split_votes_are_none_of_it() {
        let mut story = Story::new("serve");
        story.seen(0, 9, 0, 0);
        leaderless(&mut story, 1, 11);
        story.seen(1, 9 + IDLE_MAX + 1, 1, 0);
        story.seen(0, 9 + 2 * IDLE_MAX + 2, 0, 0);
        let finding = story.told(look);
        assert!(finding.passes(), "{finding:?}");
        assert_eq!(finding.numbers, [("longest", IDLE_MAX)]);
    }
}
