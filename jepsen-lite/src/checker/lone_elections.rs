//! A member stands for election only once a majority would have it. So one that hears nobody leaves the term as it is, and does
//! not depose the primary when it is back.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{Function, Process};
use std::collections::{BTreeMap, BTreeSet};

/// A member that hears nobody may go so many terms up: what was on its way when it was cut off still arrives.
const RISE_MAX: i64 = 2;
/// Faults that silence the members that they hit.
const SILENCING: [&str; 3] = ["kill", "pause", "power"];

/// A fault that lasts.
struct Lasting {
    name: String,
    /// Members that say nothing.
    silent: BTreeSet<i64>,
    /// From whom nothing reaches whom.
    cut: BTreeSet<(i64, i64)>,
}

impl Lasting {
    fn of(value: &Value) -> Option<Self> {
        let name = value.get("fault").and_then(Value::text)?.to_string();
        let members = value.get("members").and_then(Value::ints).unwrap_or_default();
        let silent = members.into_iter().filter(|_| SILENCING.contains(&name.as_str())).collect();
        let link = |link: &Value| match link.ints()?.as_slice() {
            [from, to] => Some((*from, *to)),
            _ => None,
        };
        let cut =
            value.get("cut").and_then(Value::list).unwrap_or_default().iter().filter_map(link).collect();
        Some(Self { name, silent, cut })
    }
}

fn hears_nobody(faults: &[Lasting], member: i64, members: i64) -> bool {
    let silent = |other: i64| {
        faults.iter().any(|fault| fault.silent.contains(&other) || fault.cut.contains(&(other, member)))
    };
    (0..members).filter(|other| *other != member).all(silent)
}

pub(super) fn look(facts: &Facts<'_>) -> Finding {
    let groups = facts.told(&Function::Group);
    let members = groups.iter().find_map(|(_, value)| value.int_at("members")).unwrap_or_default();
    let mut faults: Vec<Lasting> = Vec::new();
    // The first and the highest term that each has shown since it hears nobody.
    let mut alone: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    let (mut complaints, mut looks, mut highest) = (Vec::new(), 0, 0);
    let nemesis =
        facts.history.events.iter().enumerate().filter(|(_, event)| event.process == Process::Nemesis);
    for (at, event) in nemesis {
        match event.function {
            Function::FaultBegin => faults.extend(Lasting::of(&event.value)),
            // Of two of one kind nobody says which ends: then none counts.
            Function::FaultEnd => {
                let name = event.value.get("fault").and_then(Value::text).unwrap_or_default();
                faults.retain(|fault| fault.name != name);
            }
            Function::Seen => {
                let (Some(member), Some(term)) = (event.value.int_at("member"), event.value.int_at("term"))
                else {
                    continue;
                };
                if !hears_nobody(&faults, member, members) {
                    continue;
                }
                looks += 1;
                let (first, top) = alone.entry(member).or_insert((term, term));
                let (rise, news) = (term - *first, term > *top);
                *top = term.max(*top);
                highest = highest.max(rise);
                if rise > RISE_MAX && news {
                    let place = facts.place(at);
                    complaints.push(format!(
                        "member {member} hears nobody, and goes from term {first} to {term}: {place}"
                    ));
                }
            }
            _ => {}
        }
        alone.retain(|member, _| hears_nobody(&faults, *member, members));
    }
    let mut finding =
        Finding::new("no lone elections", format!("{looks} looks at members that hear nobody"), complaints);
    finding.numbers = vec![("highest-rise", highest)];
    finding
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::*;

    fn partition(cut: &[(i64, i64)]) -> Value {
        let cut = cut.iter().map(|(from, to)| Value::numbers([*from, *to])).collect();
        Value::map([("fault", Value::word("partition")), ("cut", Value::List(cut))])
    }

    fn told(cut: &[(i64, i64)], terms: &[i64]) -> Finding {
        let mut story = Story::new("serve");
        story.seen(1, 2, 0, 0);
        story.nemesis(Function::FaultBegin, partition(cut));
        for term in terms {
            let rows = [("member", Value::Int(1)), ("term", Value::Int(*term)), ("primary", Value::Nil)];
            story.nemesis(Function::Seen, Value::map(rows));
        }
        story.told(look)
    }

    #[test]
    fn a_member_that_pushes_the_term_up_alone_is_seen() {
        let cut = [(0, 1), (1, 0)];
        complains(&told(&cut, &[2, 3, 4, 5]), "member 1 hears nobody, and goes from term 2 to 5");
        let finding = told(&cut, &[2, 3, 4]);
        assert!(finding.passes(), "{finding:?}");
        assert_eq!(finding.numbers, [("highest-rise", 2)]);
        assert!(told(&[(1, 0)], &[2, 5, 9]).passes(), "it hears the other");
        assert!(good().told(look).passes());
    }

    #[test]
    fn what_it_hears_once_it_is_back_is_none_of_it() {
        let mut story = Story::new("serve");
        story.nemesis(Function::FaultBegin, partition(&[(0, 1)]));
        story.seen(1, 2, 0, 0);
        story.nemesis(Function::FaultEnd, partition(&[]));
        story.seen(1, 9, 0, 0);
        assert!(story.told(look).passes());
    }
}
