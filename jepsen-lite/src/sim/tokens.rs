//! What lies in members' tokens, and what is destroyed there, seen from outside: no member's word is taken for it.

use super::machine::Machine;
use super::recorder::Recorder;
use crate::edn::Value;
use crate::history::{Event, Function};
use keyraft_engine::domain::ObjectId;

fn number(object: ObjectId) -> i64 {
    i64::try_from(object.0).unwrap_or(i64::MAX)
}

fn member(machine: &Machine) -> Value {
    Value::Int(i64::try_from(machine.place).unwrap_or(i64::MAX))
}

/// Writes down the keys that a machine's token has lost since the last time.
pub fn note_destroyed(machine: &Machine, recorder: &Recorder) {
    for object in machine.token.take_destroyed() {
        let rows = [("member", member(machine)), ("object", Value::Int(number(object)))];
        recorder.take(Event::nemesis(Function::Destroyed, Value::map(rows)));
    }
}

/// What lies in each machine's token.
pub fn held(machines: &[Machine]) -> Vec<Event> {
    let one = |machine: &Machine| {
        let strangers = Value::Int(i64::try_from(machine.token.strangers()).unwrap_or(i64::MAX));
        let objects = Value::numbers(machine.token.copies().into_iter().map(number));
        Event::nemesis(
            Function::Held,
            Value::map([("member", member(machine)), ("objects", objects), ("strangers", strangers)]),
        )
    };
    machines.iter().map(one).collect()
}
