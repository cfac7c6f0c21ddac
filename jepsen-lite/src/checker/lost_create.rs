//! A key whose creation was answered, and that nobody may have deleted, is there in the end at every member.

use super::{Facts, Finding};

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let mut complaints = Vec::new();
    let mut count = 0;
    for (id, birth) in &facts.born {
        let Some(answered) = birth.answered.filter(|_| !facts.deletions.contains_key(id)) else { continue };
        count += 1;
        for (member, rows) in &facts.listed {
            if !rows.iter().any(|row| row.id == *id) {
                let when = facts.place(answered);
                complaints.push(format!("member {member} lacks key {id}, created at {when}"));
            }
        }
    }
    if facts.listed.is_empty() {
        complaints.push("no member listed its keys in the end".into());
    }
    Finding::of_some("no lost create", count, "keys that were created and not deleted", complaints)
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, end, good};
    use super::look;

    #[test]
    fn a_key_that_is_gone_is_missed() {
        let mut story = Story::new("serve");
        story.create(1);
        story.create(2);
        end(&mut story, &[1]);
        let finding = story.told(look);
        complains(&finding, "member 0 lacks key 2");
        assert_eq!(finding.wrong, 2);
        assert!(good().told(look).passes());
    }

    #[test]
    fn who_does_not_look_does_not_pass() {
        let mut story = Story::new("serve");
        story.create(1);
        complains(&story.told(look), "no member listed");
    }
}
