//! A key whose deletion was answered is never seen again: not in a search that began later, not in the end.

use super::{Facts, Finding};
use crate::history::{End, Function};

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let gone: Vec<(i64, usize)> =
        facts.deletions.keys().filter_map(|id| Some((*id, facts.deleted(*id)?))).collect();
    let mut complaints = Vec::new();
    for (id, when) in &gone {
        for (member, rows) in &facts.listed {
            if rows.iter().any(|row| row.id == *id) {
                let when = facts.place(*when);
                complaints.push(format!("member {member} has key {id}, deleted at {when}, in the end"));
            }
        }
    }
    for find in
        facts.of_function(&Function::Find).filter(|find| find.end == End::Ok && !facts.weak.excuses(find))
    {
        for id in find.told.ints().unwrap_or_default() {
            if let Some(when) = facts.deleted(id).filter(|when| *when < find.called) {
                let (deleted, found) = (facts.place(when), facts.place(find.called));
                complaints.push(format!("key {id} was deleted at {deleted} and found at {found}"));
            }
        }
    }
    if facts.listed.is_empty() {
        complaints.push("no member listed its keys in the end".into());
    }
    Finding::of_some("no undone delete", gone.len(), "answered deletions", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, end, good};
    use super::look;

    #[test]
    fn a_key_that_comes_back_is_seen() {
        let mut story = Story::new("serve");
        story.create(1);
        story.delete(1);
        end(&mut story, &[1]);
        complains(&story.told(look), "member 1 has key 1");
        let mut story = Story::new("serve");
        story.create(1);
        story.delete(1);
        story.find(&[1]);
        end(&mut story, &[]);
        complains(&story.told(look), "found at");
        assert!(good().told(look).passes());
    }
}
