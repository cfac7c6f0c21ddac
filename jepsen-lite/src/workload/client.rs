//! One client: what it does next, and what it learns.

use super::board::{Board, Known};
use super::call::{Call, Outcome, Told};
use super::names::tag;
use super::{Work, Workload};
use crate::dice::Dice;
use crate::edn::Value;
use crate::history::{Event, Kind, Process};

/// Keys of one label that clients leave alive, about.
const ALIVE: usize = 5;
/// A client rests so long between two calls, at most, milliseconds.
const REST_MS: u64 = 40;
/// Of so many creations one brings its value along.
const IMPORTS_ONE_OF: u64 = 4;
/// Registers in use at one time.
const REGISTERS: usize = 2;
/// Calls about one register before it makes place for another: what stays unknown of it makes its order hard to find.
const REGISTER_CALLS: u32 = 150;
/// A register holds one of so many numbers: the fewer, the more comparisons fit.
const NUMBERS: u64 = 5;
/// The keys that hold registers.
const REGISTER_LABEL: &str = "registers";
/// Creations under one set's label before the next set begins.
const ELEMENTS: usize = 60;
/// Sessions that one client holds open.
const SESSIONS: usize = 3;

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    work: Work,
    dice: Dice,
    member: Option<usize>,
    /// Counted up after every unknown outcome.
    process: u64,
    made: u64,
    /// Session keys that it made and did not end.
    own: Vec<(String, i64)>,
}

impl Client {
    /// The client of this number, from 0. Half of them ask any member, the others one alone each.
    pub fn new(work: &Work, index: usize) -> Self {
        let member = (index % 2 == 1).then(|| (index / 2) % work.members.max(1));
        Self {
            work: *work,
            dice: Dice::new(work.seed.wrapping_mul(1_000_003).wrapping_add(index as u64)),
            member,
            process: index as u64,
            made: 0,
            own: Vec::new(),
        }
    }

    /// The only member that it asks; None if it asks any.
    pub fn member(&self) -> Option<usize> {
        self.member
    }

    /// How long it rests before its next call, milliseconds.
    pub fn rest_ms(&mut self) -> u64 {
        self.dice.below(REST_MS)
    }

    /// What it does next.
    pub fn next(&mut self, board: &mut Board) -> Call {
        let workload = match self.work.workload {
            Workload::Mix => match self.dice.below(100) {
                0..=59 => Workload::Lives,
                60..=79 => Workload::Register,
                80..=89 => Workload::Set,
                _ => Workload::Sessions,
            },
            one => one,
        };
        match workload {
            Workload::Lives | Workload::Mix => self.lives(board),
            Workload::Register => self.register(board),
            Workload::Set => self.set(board),
            // Beside them the group agrees on something, as it does beside an application's session objects.
            Workload::Sessions if self.work.workload == workload && self.dice.below(3) == 0 => {
                self.lives(board)
            }
            Workload::Sessions => self.sessions(board),
        }
    }

    /// The event before a call. Its time is the runner's to write.
    pub fn before(&self, call: &Call) -> Event {
        self.event(call, Kind::Invoke, call.asked(), None)
    }

    /// The event after it; the board and the client learn what came of it. Its time is the runner's to write.
    pub fn after(&mut self, call: &Call, outcome: &Outcome, board: &mut Board) -> Event {
        let (kind, value, error) = call.end(outcome);
        let event = self.event(call, kind, value, error);
        if kind == Kind::Info {
            self.process += self.work.clients as u64;
        }
        self.learn(call, outcome, board);
        event
    }

    fn event(&self, call: &Call, kind: Kind, value: Value, error: Option<String>) -> Event {
        Event {
            process: Process::Client(self.process),
            kind,
            function: call.function(),
            key: Some(call.key()),
            value,
            error,
            member: self.member,
            time: None,
        }
    }

    fn one_of(&mut self, all: &[Known]) -> Option<Known> {
        self.dice.one_of(all).cloned()
    }

    fn label(&mut self, of: &str) -> String {
        format!("{of}-{}", self.dice.below(self.work.labels as u64))
    }

    fn tag(&mut self, imported: bool) -> String {
        self.made += 1;
        tag(self.process, self.made, imported)
    }

    fn create(&mut self, board: &mut Board, label: String) -> Call {
        board.tries(&label);
        let imported = self.dice.below(IMPORTS_ONE_OF) == 0;
        Call::Create { label, tag: self.tag(imported) }
    }

    fn lives(&mut self, board: &mut Board) -> Call {
        let label = self.label("life");
        let one = self.one_of(board.of(&label));
        let full = board.of(&label).len() > ALIVE;
        match (self.dice.below(100), one) {
            (0..=24, _) | (_, None) if !full => self.create(board, label),
            (0..=24 | 85..=99, Some(Known { key, .. })) => Call::Delete { label, key },
            (25..=44, _) | (_, None) => Call::Find { label },
            (45..=64, Some(Known { key, .. })) => Call::Use { label, key },
            (65..=74, Some(Known { key, tag: Some(tag), .. })) => {
                self.made += 1;
                Call::Set { label, key, tag, value: format!("{}.{}", self.process, self.made) }
            }
            (_, Some(Known { key, .. })) => Call::Look { label, key },
        }
    }

    fn register(&mut self, board: &mut Board) -> Call {
        let all = board.of(REGISTER_LABEL).iter().filter(|known| known.calls < REGISTER_CALLS);
        let fresh: Vec<Known> = all.cloned().collect();
        let one = self.one_of(&fresh).filter(|_| fresh.len() >= REGISTERS || self.dice.below(4) != 0);
        let Some(Known { key, tag: Some(tag), number, .. }) = one else {
            return self.create(board, REGISTER_LABEL.into());
        };
        if let Some(known) = board.get_mut(REGISTER_LABEL, key) {
            known.calls += 1;
        }
        let any = |dice: &mut Dice| i64::try_from(dice.below(NUMBERS)).unwrap_or(0);
        match self.dice.below(10) {
            0..=3 => Call::Read { key },
            4..=5 => Call::Write { key, tag, value: any(&mut self.dice) },
            _ => {
                let from = number.unwrap_or_else(|| any(&mut self.dice));
                Call::Cas { key, tag, from, to: any(&mut self.dice) }
            }
        }
    }

    fn set(&mut self, board: &mut Board) -> Call {
        let set = (0..usize::MAX).map(|number| format!("set-{number}"));
        let label = set.into_iter().find(|label| board.tried(label) < ELEMENTS).unwrap_or_default();
        match self.dice.below(3) {
            0 => self.create(board, label),
            _ => Call::Find { label },
        }
    }

    fn sessions(&mut self, board: &mut Board) -> Call {
        // A session object is seen in its own slot alone.
        let slot = self.member.map_or_else(|| "session-any".into(), |member| format!("session-{member}"));
        let label = self.label(&slot);
        let one = self.one_of(board.of(&label));
        let own = self.dice.one_of(&self.own).cloned();
        match (self.dice.below(10), one, own) {
            (0..=2, _, _) | (_, None, _) if self.own.len() < SESSIONS => {
                Call::SessionMake { label, tag: self.tag(false) }
            }
            (0..=2, _, Some((label, key))) | (_, None, Some((label, key))) => Call::SessionEnd { label, key },
            (_, Some(Known { key, .. }), _) => Call::SessionUse { label, key },
            (_, None, None) => Call::SessionMake { label, tag: self.tag(false) },
        }
    }

    fn learn(&mut self, call: &Call, outcome: &Outcome, board: &mut Board) {
        match (call, outcome) {
            (Call::Create { label, tag }, Outcome::Done(Told::Key(key))) => {
                board.learn(label, *key, Some(tag.clone()));
            }
            (Call::SessionMake { label, tag }, Outcome::Done(Told::Key(key))) => {
                board.learn(label, *key, Some(tag.clone()));
                self.own.push((label.clone(), *key));
            }
            (Call::Find { label }, Outcome::Done(Told::Keys(keys))) => {
                keys.iter().for_each(|key| board.learn(label, *key, None));
            }
            (Call::Look { label, key }, Outcome::Done(Told::Id(id))) => {
                if let Some(known) = board.get_mut(label, *key) {
                    known.tag = Some(super::parted(id).0);
                }
            }
            (Call::Read { key }, Outcome::Done(Told::Number(number))) => held(board, *key, *number),
            (
                Call::Write { key, value: number, .. } | Call::Cas { key, to: number, .. },
                Outcome::Done(_),
            ) => {
                held(board, *key, Some(*number));
            }
            (Call::Cas { key, .. }, Outcome::Differs) => held(board, *key, None),
            // Others may go on with a deleted key for a while: they find that it is gone.
            (Call::Delete { label, key }, _) if self.dice.below(2) == 0 => board.forget(label, *key),
            (Call::SessionEnd { label, key }, _) => {
                self.own.retain(|(_, own)| own != key);
                if self.dice.below(2) == 0 {
                    board.forget(label, *key);
                }
            }
            (
                Call::Use { label, key }
                | Call::Look { label, key }
                | Call::Set { label, key, .. }
                | Call::SessionUse { label, key },
                Outcome::Absent,
            ) if self.dice.below(4) == 0 => board.forget(label, *key),
            _ => {}
        }
    }
}

fn held(board: &mut Board, key: i64, number: Option<i64>) {
    if let Some(known) = board.get_mut(REGISTER_LABEL, key) {
        known.number = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, operations};
    use std::collections::BTreeMap;

    /// A world in which everything is done at once, and now and then nobody answers.
    #[derive(Default)]
    struct World {
        next: i64,
        ids: BTreeMap<i64, (String, String)>,
    }

    impl World {
        fn at(&mut self, call: &Call, dice: &mut Dice) -> Outcome {
            let told = match call {
                Call::Create { label, tag } | Call::SessionMake { label, tag } => {
                    self.next += 1;
                    self.ids.insert(self.next, (label.clone(), super::super::joined(tag, "")));
                    Told::Key(self.next)
                }
                Call::Find { label } => {
                    let all = self.ids.iter().filter(|(_, (of, _))| of == label);
                    Told::Keys(all.map(|(key, _)| *key).collect())
                }
                Call::Delete { key, .. } | Call::SessionEnd { key, .. } => match self.ids.remove(key) {
                    Some(_) => Told::Done,
                    None => return Outcome::Absent,
                },
                Call::Use { key, .. } | Call::Look { key, .. } | Call::SessionUse { key, .. } => {
                    match self.ids.get(key) {
                        Some((_, id)) => Told::Id(id.clone()),
                        None => return Outcome::Absent,
                    }
                }
                Call::Read { key } => {
                    let id = self.ids.get(key).map(|(_, id)| super::super::parted(id).1);
                    Told::Number(id.and_then(|number| number.parse().ok()))
                }
                Call::Set { key, tag, value, .. } => return self.set(*key, tag, value),
                Call::Write { key, tag, value } => return self.set(*key, tag, &value.to_string()),
                Call::Cas { key, tag, from, to } => {
                    let held = self.ids.get(key).map(|(_, id)| super::super::parted(id).1);
                    if held != Some(from.to_string()) {
                        return Outcome::Differs;
                    }
                    return self.set(*key, tag, &to.to_string());
                }
            };
            if dice.below(20) == 0 { Outcome::Silent("nobody answers".into()) } else { Outcome::Done(told) }
        }

        fn set(&mut self, key: i64, tag: &str, value: &str) -> Outcome {
            match self.ids.get_mut(&key) {
                Some((_, id)) => {
                    *id = super::super::joined(tag, value);
                    Outcome::Done(Told::Done)
                }
                None => Outcome::Absent,
            }
        }
    }

    fn played(workload: Workload, seed: u64) -> History {
        let work = Work { workload, clients: 4, labels: 2, members: 3, seed };
        let mut clients: Vec<Client> = (0..work.clients).map(|index| Client::new(&work, index)).collect();
        let (mut board, mut world, mut dice) = (Board::default(), World::default(), Dice::new(seed));
        let mut events = Vec::new();
        for round in 0..3_000 {
            let client = &mut clients[round % 4];
            let call = client.next(&mut board);
            events.push(client.before(&call));
            let outcome = world.at(&call, &mut dice);
            events.push(client.after(&call, &outcome, &mut board));
        }
        History::new(events)
    }

    #[test]
    fn what_clients_do_in_a_perfect_world_is_linearizable() {
        for workload in Workload::ALL {
            let history = played(workload, 5);
            operations(&history).expect("is no contradiction");
            let found = crate::judge::judge(&history, 1_000_000).expect("is judged");
            assert_eq!(found.verdict, crate::wgl::Verdict::Linearizable, "{}", workload.name());
            assert!(found.judged > 300, "{}: {}", workload.name(), found.judged);
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(played(Workload::Mix, 7), played(Workload::Mix, 7));
        assert_ne!(played(Workload::Mix, 7), played(Workload::Mix, 8));
    }

    #[test]
    fn every_function_comes() {
        let history = played(Workload::Mix, 3);
        for function in Workload::Mix.functions() {
            let came = history.events.iter().filter(|event| event.function == function).count();
            assert!(came > 20, "{} came {came} times", function.name());
        }
    }
}
