//! In one term every member that names a primary names the same.

use super::{Facts, Finding};
use crate::history::Function;
use std::collections::BTreeMap;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut named: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    let mut complaints = Vec::new();
    let mut count = 0;
    for (at, seen) in facts.told(&Function::Seen) {
        let (Some(member), Some(term), Some(primary)) =
            (seen.int_at("member"), seen.int_at("term"), seen.int_at("primary"))
        else {
            continue;
        };
        count += 1;
        let (first, by) = *named.entry(term).or_insert((primary, member));
        if first != primary {
            let place = facts.place(at);
            complaints.push(format!(
                "term {term} has primary {first} for member {by} and {primary} for member {member}, {place}"
            ));
        }
    }
    let mut finding = Finding::of_some("one primary a term", count, "looks at who leads", complaints);
    finding.numbers = vec![("terms", named.len() as i64)];
    finding
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;

    #[test]
    fn two_primaries_of_one_term_are_seen() {
        let mut story = Story::new("serve");
        story.seen(0, 4, 0, 0);
        story.seen(1, 5, 1, 0);
        story.seen(1, 4, 1, 0);
        complains(&story.told(look), "term 4 has primary 0 for member 0 and 1 for member 1");
        assert!(good().told(look).passes());
    }
}
