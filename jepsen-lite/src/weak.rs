//! When reads promise less: in serve mode a member that is cut off from the quorum answers with what it has, and says so
//! to nobody but its log. What it reads in that time, and what a client reads that may have asked it, is not judged. In
//! fence mode everything is.

use crate::edn::Value;
use crate::history::{Function, History, Operation};
use std::collections::BTreeSet;

/// What a group does with members that are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They serve.
    Serve,
    /// They do not.
    Fence,
}

impl Mode {
    /// As the group's option calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Fence => "fence",
        }
    }
}

/// The spans in which members may have been cut off.
#[derive(Clone, Debug)]
pub struct Weak {
    fenced: bool,
    /// From the event at which a fault began to the event at which all was whole again, and the members.
    spans: Vec<(usize, usize, BTreeSet<usize>)>,
}

impl Weak {
    /// As the nemesis of a history tells it.
    pub fn of(history: &History) -> Self {
        let fenced = history
            .of_nemesis(&Function::Group)
            .any(|(_, event)| event.value.get("mode") == Some(&Value::word(Mode::Fence.name())));
        let wholes: Vec<usize> = history
            .of_nemesis(&Function::Whole)
            .filter(|(_, event)| event.value.get("in-time") == Some(&Value::Bool(true)))
            .map(|(at, _)| at)
            .collect();
        let spans = history
            .of_nemesis(&Function::FaultBegin)
            .filter_map(|(at, event)| {
                let members = event.value.get("weak").and_then(Value::ints).unwrap_or_default();
                let members: BTreeSet<usize> =
                    members.iter().filter_map(|m| usize::try_from(*m).ok()).collect();
                let end = wholes.iter().find(|whole| **whole > at).copied().unwrap_or(usize::MAX);
                (!members.is_empty()).then_some((at, end, members))
            })
            .collect();
        Self { fenced, spans }
    }

    /// True if no member that is cut off serves.
    pub fn fenced(&self) -> bool {
        self.fenced
    }

    /// True if the member, or any where none is named, may have answered while it was cut off, at some time within these
    /// events.
    pub fn within(&self, member: Option<usize>, from: usize, to: usize) -> bool {
        !self.fenced && self.is_cut_off(member, from, to)
    }

    /// True if the member may have been cut off at this event, and must not answer then.
    pub fn must_be_silent(&self, member: Option<usize>, at: usize) -> bool {
        self.fenced && self.is_cut_off(member, at, at)
    }

    /// True if the member, or any where none is named, may have been cut off at some time within these events.
    fn is_cut_off(&self, member: Option<usize>, from: usize, to: usize) -> bool {
        self.spans.iter().any(|(begin, end, members)| {
            *begin <= to && from <= *end && member.is_none_or(|member| members.contains(&member))
        })
    }

    /// True if what an operation read is not judged. What it changed always is.
    pub fn excuses(&self, operation: &Operation) -> bool {
        let reads =
            matches!(operation.function, Function::Find | Function::Use | Function::Look | Function::Read);
        let to = operation.returned.unwrap_or(usize::MAX);
        reads && self.within(operation.member, operation.called, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, Kind, Process};

    fn history(mode: Mode) -> History {
        let fault = Value::map([("fault", Value::word("partition")), ("weak", Value::numbers([1]))]);
        let whole = Value::map([("in-time", Value::Bool(true))]);
        let client = |function| Event { process: Process::Client(0), ..Event::nemesis(function, Value::Nil) };
        History::new(vec![
            Event::nemesis(Function::Group, Value::map([("mode", Value::word(mode.name()))])),
            client(Function::Find),
            Event::nemesis(Function::FaultBegin, fault),
            client(Function::Find),
            Event::nemesis(Function::Whole, whole),
            Event { kind: Kind::Ok, ..client(Function::Find) },
        ])
    }

    #[test]
    fn a_cut_off_member_is_weak_until_all_is_whole() {
        let weak = Weak::of(&history(Mode::Serve));
        assert!(weak.within(Some(1), 3, 3) && weak.within(None, 1, 5));
        assert!(!weak.within(Some(0), 1, 5), "another member");
        assert!(!weak.within(Some(1), 0, 1) && !weak.within(Some(1), 5, 9), "another time");
    }

    #[test]
    fn in_fence_mode_nothing_is_excused() {
        assert!(!Weak::of(&history(Mode::Fence)).within(Some(1), 3, 3));
    }
}
