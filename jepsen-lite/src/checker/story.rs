//! Small histories for the checkers' tests: a good one, and what makes it bad.

use super::{Facts, Finding};
use crate::edn::Value;
use crate::history::{ABSENT, Event, Function, History, Kind, Process};

/// Events, one after another.
pub struct Story {
    events: Vec<Event>,
    about: String,
    next: u64,
}

impl Story {
    /// Begins with what the group is.
    pub fn new(mode: &str) -> Self {
        Self::demanding(mode, &[])
    }

    /// The same, with more that the run demands of itself.
    pub fn demanding(mode: &str, more: &[(&str, Value)]) -> Self {
        let mut story = Self { events: Vec::new(), about: "a".into(), next: 0 };
        let demands = [
            ("answered", Value::Int(4)),
            ("ok-percent", Value::Int(50)),
            ("primaries", Value::Int(2)),
            ("snapshot", Value::Bool(true)),
        ];
        let demands = demands.into_iter().chain(more.iter().cloned());
        let demands = Value::Map(demands.map(|(name, value)| (Value::word(name), value)).collect());
        story.nemesis(
            Function::Group,
            Value::map([
                ("mode", Value::word(mode)),
                ("members", Value::Int(2)),
                ("faults", Value::List(vec![Value::word("kill")])),
                ("demands", demands),
            ]),
        );
        story
    }

    /// One of a rung that looks into tokens.
    pub fn seeing_tokens() -> Self {
        let mut story = Self { events: Vec::new(), about: "a".into(), next: 0 };
        let group =
            [("mode", Value::word("serve")), ("members", Value::Int(2)), ("tokens", Value::Bool(true))];
        story.nemesis(Function::Group, Value::map(group));
        story
    }

    /// In the end these keys lie in a member's token.
    pub fn held(&mut self, member: i64, ids: &[i64]) {
        let objects = Value::numbers(ids.iter().copied());
        self.nemesis(Function::Held, Value::map([("member", Value::Int(member)), ("objects", objects)]));
    }

    /// A key just deleted is used at a member.
    pub fn ghost(&mut self, id: i64, member: i64, result: &str) {
        let rows =
            [("object", Value::Int(id)), ("member", Value::Int(member)), ("result", Value::word(result))];
        self.nemesis(Function::Ghost, Value::map(rows));
    }

    /// A member's token destroys a key.
    pub fn destroyed(&mut self, member: i64, id: i64) {
        self.nemesis(
            Function::Destroyed,
            Value::map([("member", Value::Int(member)), ("object", Value::Int(id))]),
        );
    }

    /// An event of the nemesis.
    pub fn nemesis(&mut self, function: Function, value: Value) {
        self.events.push(Event::nemesis(function, value));
    }

    /// What follows is about this label or register.
    pub fn about(&mut self, key: &str) {
        self.about = key.into();
    }

    /// A call; gives the process.
    pub fn call(&mut self, function: Function, value: Value) -> u64 {
        let process = self.next;
        self.next += 1;
        self.push(process, Kind::Invoke, function, value, None);
        process
    }

    /// The end of a call.
    pub fn end(&mut self, process: u64, kind: Kind, function: Function, value: Value) {
        self.push(process, kind, function, value, None);
    }

    /// There is no such key.
    pub fn absent(&mut self, process: u64, function: Function, value: Value) {
        self.push(process, Kind::Fail, function, value, Some(ABSENT.into()));
    }

    /// A call and its good end.
    pub fn ok(&mut self, function: Function, asked: Value, told: Value) {
        let process = self.call(function.clone(), asked);
        self.end(process, Kind::Ok, function, told);
    }

    /// A call whose outcome stays unknown.
    pub fn lost(&mut self, function: Function, asked: Value) {
        let process = self.call(function.clone(), asked.clone());
        self.end(process, Kind::Info, function, asked);
    }

    fn push(&mut self, process: u64, kind: Kind, function: Function, value: Value, error: Option<String>) {
        self.events.push(Event {
            process: Process::Client(process),
            kind,
            function,
            key: Some(self.about.clone()),
            value,
            error,
            member: None,
            time: None,
        });
    }

    /// A key is created.
    pub fn create(&mut self, id: i64) {
        self.ok(Function::Create, Value::Text(format!("t{id}")), Value::Int(id));
    }

    /// It is deleted.
    pub fn delete(&mut self, id: i64) {
        self.ok(Function::Delete, Value::Int(id), Value::Int(id));
    }

    /// These are found.
    pub fn find(&mut self, ids: &[i64]) {
        self.ok(Function::Find, Value::Nil, Value::numbers(ids.iter().copied()));
    }

    /// It is used.
    pub fn used(&mut self, id: i64) {
        self.ok(Function::Use, Value::Int(id), Value::Int(id));
    }

    /// A member lists these in the end.
    pub fn listed(&mut self, member: i64, ids: &[i64]) {
        let row = |id: &i64| {
            let text = |text: String| Value::Text(text);
            Value::List(vec![Value::Int(*id), text(format!("t{id}")), text("a".into())])
        };
        let objects = Value::List(ids.iter().map(row).collect());
        self.nemesis(Function::Listed, Value::map([("member", Value::Int(member)), ("objects", objects)]));
    }

    /// A member proves a key.
    pub fn proof(&mut self, member: i64, id: i64, digest: &str) {
        let rows = [
            ("member", Value::Int(member)),
            ("object", Value::Int(id)),
            ("digest", Value::Text(digest.into())),
        ];
        self.nemesis(Function::Proof, Value::map(rows));
    }

    /// A member says who leads.
    pub fn seen(&mut self, member: i64, term: i64, primary: i64, snapshots: i64) {
        let rows = [
            ("member", Value::Int(member)),
            ("term", Value::Int(term)),
            ("primary", Value::Int(primary)),
            ("leads", Value::Bool(member == primary)),
            ("snapshots", Value::Int(snapshots)),
        ];
        self.nemesis(Function::Seen, Value::map(rows));
    }

    /// A fault begins, with these members cut off.
    pub fn fault(&mut self, name: &str, quorum: bool, weak: &[i64]) {
        let rows = [
            ("fault", Value::word(name)),
            ("quorum", Value::Bool(quorum)),
            ("weak", Value::numbers(weak.iter().copied())),
        ];
        self.nemesis(Function::FaultBegin, Value::map(rows));
    }

    /// It ends.
    pub fn heal(&mut self, name: &str, in_time: bool) {
        self.nemesis(Function::FaultEnd, Value::map([("fault", Value::word(name))]));
        self.nemesis(Function::Whole, Value::map([("in-time", Value::Bool(in_time))]));
    }

    /// A key just answered is used at a member.
    pub fn probe(&mut self, id: i64, member: i64, sure: bool, result: &str) {
        let rows = [
            ("object", Value::Int(id)),
            ("member", Value::Int(member)),
            ("in-sync-before", Value::Bool(true)),
            ("in-sync-after", Value::Bool(sure)),
            ("result", Value::word(result)),
        ];
        self.nemesis(Function::Probe, Value::map(rows));
    }

    /// What a checker finds in it.
    pub fn told(self, look: impl Fn(&Facts<'_>) -> Finding) -> Finding {
        let history = History::new(self.events);
        look(&Facts::of(&history).expect("the story is no contradiction"))
    }

    /// The history.
    pub fn history(self) -> History {
        History::new(self.events)
    }
}

/// A run as it should be: keys come, are used and go, a member is killed, and in the end all is equal.
pub fn good() -> Story {
    let mut story = Story::new("serve");
    story.seen(0, 1, 0, 0);
    story.create(1);
    story.probe(1, 0, true, "ok");
    story.probe(1, 1, true, "ok");
    story.create(2);
    story.find(&[1, 2]);
    story.fault("kill", true, &[]);
    story.create(3);
    story.used(3);
    story.delete(1);
    story.seen(1, 2, 1, 1);
    story.heal("kill", true);
    let set = |value: &str| Value::List(vec![Value::Int(2), Value::Text(value.into())]);
    story.ok(Function::Set, set("x"), set("x"));
    let looked = Value::List(vec![Value::Int(2), Value::Text("t2".into()), Value::Text("x".into())]);
    story.ok(Function::Look, Value::Int(2), looked);
    story.find(&[2, 3]);
    end(&mut story, &[2, 3]);
    story
}

/// Both members list and prove these keys.
pub fn end(story: &mut Story, ids: &[i64]) {
    for member in [0, 1] {
        story.listed(member, ids);
        for id in ids {
            story.proof(member, *id, &format!("d{id}"));
        }
    }
}

/// True if exactly one complaint was made, and it says this.
pub fn complains(finding: &Finding, text: &str) {
    assert!(!finding.passes(), "{} passes", finding.name);
    assert!(finding.complaints.iter().any(|one| one.contains(text)), "{finding:?} does not say '{text}'");
}

#[test]
fn the_good_story_passes_every_checker() {
    let findings = super::look(&good().history(), crate::judge::BUDGET).expect("is judged");
    for finding in &findings.all {
        assert!(finding.passes(), "{finding:?}");
    }
    assert!(findings.pass());
}

#[test]
fn an_empty_run_passes_none_that_looks_at_something() {
    let mut story = Story::new("serve");
    story.find(&[]);
    let findings = super::look(&story.history(), crate::judge::BUDGET).expect("is judged");
    assert!(!findings.pass());
    let empty = findings.all.iter().filter(|finding| !finding.passes()).count();
    assert!(empty >= 6, "{:#?}", findings.all);
}
