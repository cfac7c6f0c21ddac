//! How faults and heals are written down, the same for every rung.

use super::{Hit, Strike, left};
use crate::edn::Value;
use crate::history::{Event, Function};
use std::collections::BTreeSet;
use std::time::Duration;

/// A fault begins. `hits` are all that last now, this one too, in a group of `count`.
pub fn begins(strike: Strike, hit: &Hit, hits: &[Hit], count: usize) -> Event {
    let left = left(hits, count);
    let numbers = |set: &BTreeSet<usize>| Value::numbers(set.iter().map(|member| *member as i64));
    let cut = hit.cut.iter().map(|(from, to)| Value::numbers([*from as i64, *to as i64])).collect();
    let value = Value::map([
        ("fault", Value::word(strike.fault.name())),
        ("shape", Value::word(strike.shape.name())),
        ("members", numbers(&hit.members)),
        ("cut", Value::List(cut)),
        ("weak", numbers(&left.weak)),
        ("quorum", Value::Bool(left.quorum)),
    ]);
    Event::nemesis(Function::FaultBegin, value)
}

/// A fault is mended.
pub fn ends(strike: Strike) -> Event {
    Event::nemesis(Function::FaultEnd, Value::map([("fault", Value::word(strike.fault.name()))]))
}

/// The group became whole in time, or did not: then why.
pub fn whole(took: Duration, missing: Option<String>) -> Event {
    let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
    let mut rows = vec![
        (Value::word("in-time"), Value::Bool(missing.is_none())),
        (Value::word("took-ms"), Value::Int(took)),
    ];
    rows.extend(missing.map(|why| (Value::word("why"), Value::Text(why))));
    Event::nemesis(Function::Whole, Value::Map(rows))
}
