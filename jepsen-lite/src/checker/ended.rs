//! A member's process ends by itself only where its disk or its token leaves it nothing else.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::Function;

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let ended = facts.told(&Function::Ended);
    let blamed = ended.iter().filter(|(_, value)| value.get("excused") != Some(&Value::Bool(true)));
    let complaints = blamed.map(|(at, value)| {
        let member = value.int_at("member").unwrap_or(-1);
        let why = value.get("why").and_then(Value::text).unwrap_or("nobody knows why");
        format!("{}: the process of member {member} ended by itself: {why}", facts.place(*at))
    });
    Finding::new("processes", format!("{} that ended by themselves", ended.len()), complaints.collect())
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains};
    use super::look;
    use crate::edn::Value;
    use crate::history::Function;

    #[test]
    fn an_end_without_a_disk_or_a_token_to_blame_is_found() {
        let ended = |excused| {
            Value::map([
                ("member", Value::Int(1)),
                ("why", Value::Text("a panic".into())),
                ("excused", Value::Bool(excused)),
            ])
        };
        let told = |excused| {
            let mut story = Story::new("serve");
            story.nemesis(Function::Ended, ended(excused));
            story.told(look)
        };
        assert!(told(true).passes());
        complains(&told(false), "member 1 ended by itself: a panic");
    }
}
