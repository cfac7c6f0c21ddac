//! Every key as an element of the set under its label: once it is known to be there, every search that begins later has
//! it, until somebody may have deleted it. A key that no later search has is lost; one that a search misses and a later
//! one has was stale for so long.

use super::{Facts, Finding};
use crate::history::{End, Function, Operation};
use std::collections::BTreeMap;

/// What became of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Every search had it.
    Stable,
    /// No search began after it was known.
    NeverRead,
    /// The last search missed it.
    Lost(usize),
    /// A search missed it, and a later one had it.
    Stale(usize),
}

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut finds: BTreeMap<Option<String>, Vec<Operation>> = BTreeMap::new();
    for find in
        facts.of_function(&Function::Find).filter(|find| find.end == End::Ok && !facts.weak.excuses(find))
    {
        finds.entry(find.key.clone()).or_default().push(find);
    }
    let mut complaints = Vec::new();
    let (mut stable, mut never, mut lost, mut stale, mut longest) = (0, 0, 0, 0, 0);
    let creations = facts.of_function(&Function::Create).filter(|create| create.end == End::Ok);
    let mut count = 0;
    for create in creations {
        let (Some(id), Some(answered)) = (create.told.int(), create.returned) else { continue };
        count += 1;
        let finds = finds.get(&create.key).map(Vec::as_slice).unwrap_or_default();
        let (fate, latency) = fate(facts, id, answered, finds);
        longest = longest.max(latency);
        match fate {
            Fate::Stable => stable += 1,
            Fate::NeverRead => never += 1,
            Fate::Lost(at) => {
                lost += 1;
                complaints.push(format!("key {id} is lost since {}", facts.place(at)));
            }
            Fate::Stale(at) => {
                stale += 1;
                complaints.push(format!("key {id} was not found at {}", facts.place(at)));
            }
        }
    }
    if count > 0 && stable + lost + stale == 0 {
        complaints.push("no key was searched for after it was created".into());
    }
    let mut finding = Finding::of_some("set-full", count, "answered creations", complaints);
    finding.numbers = vec![
        ("stable", stable),
        ("never-read", never),
        ("lost", lost),
        ("stale", stale),
        ("longest-stale-ms", i64::try_from(longest / 1_000_000).unwrap_or(i64::MAX)),
    ];
    finding
}

/// A key's fate, and for how long after it was known a search still missed it, nanoseconds.
fn fate(facts: &Facts<'_>, id: i64, answered: usize, finds: &[Operation]) -> (Fate, u64) {
    let has =
        |find: &Operation| find.told.list().is_some_and(|list| list.iter().any(|one| one.int() == Some(id)));
    let returned = |find: &Operation| find.returned.unwrap_or(usize::MAX);
    let first_seen = finds.iter().filter(|find| has(find)).map(returned).min();
    let known = first_seen.map_or(answered, |seen| seen.min(answered));
    let until = facts.first_deletion(id).unwrap_or(usize::MAX);
    let mut last_missed = None;
    let mut last_had = None;
    for find in finds.iter().filter(|find| find.called > known && returned(find) < until) {
        let last = if has(find) { &mut last_had } else { &mut last_missed };
        *last = (*last).max(Some(find.called));
    }
    match (last_missed, last_had) {
        (None, None) => (Fate::NeverRead, 0),
        (None, Some(_)) => (Fate::Stable, 0),
        (Some(missed), had) => {
            let latency = facts.history.time(missed).saturating_sub(facts.history.time(known));
            let fate = if had > Some(missed) { Fate::Stale(missed) } else { Fate::Lost(missed) };
            (fate, latency)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::look;

    #[test]
    fn lost_and_stale_keys_are_told_apart() {
        let mut story = Story::new("serve");
        story.create(1);
        story.create(2);
        story.find(&[1]);
        story.find(&[2]);
        let finding = story.told(look);
        complains(&finding, "key 1 is lost");
        complains(&finding, "key 2 was not found");
        assert!(finding.numbers.contains(&("lost", 1)) && finding.numbers.contains(&("stale", 1)));
        let finding = good().told(look);
        assert!(finding.passes(), "{finding:?}");
        assert!(finding.numbers.contains(&("stable", 3)), "{finding:?}");
    }

    #[test]
    fn a_key_that_may_be_deleted_may_be_missed() {
        let mut story = Story::new("serve");
        story.create(1);
        story.find(&[1]);
        story.lost(crate::history::Function::Delete, crate::edn::Value::Int(1));
        story.find(&[]);
        let finding = story.told(look);
        assert!(finding.passes(), "{finding:?}");
    }

    #[test]
    fn who_never_searches_does_not_pass() {
        let mut story = Story::new("serve");
        story.create(1);
        complains(&story.told(look), "no key was searched for");
    }
}
