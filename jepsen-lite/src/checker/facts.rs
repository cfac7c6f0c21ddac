//! What all checkers want to know of a history of key lives.

use crate::edn::Value;
use crate::history::{End, Event, Function, History, HistoryError, Operation, operations};
use crate::model::bind;
use crate::weak::Weak;
use std::collections::{BTreeMap, BTreeSet};

/// How a key came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Its tag, which its creator chose.
    pub tag: String,
    /// The call of its creation.
    pub called: usize,
    /// Its answer; None if none came.
    pub answered: Option<usize>,
}

/// One key in a member's last list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Its id.
    pub id: i64,
    /// Its tag.
    pub tag: String,
    /// Its label.
    pub label: String,
}

/// A history, looked through once.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The history.
    pub history: &'a History,
    /// What clients did.
    pub operations: Vec<Operation>,
    /// When reads promise less.
    pub weak: Weak,
    /// Keys whose creation was answered, or that somebody met and an unanswered creation explains, by id.
    pub born: BTreeMap<i64, Birth>,
    /// Every deletion that may have happened, by id.
    pub deletions: BTreeMap<i64, Vec<Operation>>,
    /// The last lists of members, in the order of looking.
    pub listed: Vec<(i64, BTreeSet<Row>)>,
}

impl<'a> Facts<'a> {
    /// Looks through a history.
    ///
    /// # Errors
    /// It contradicts itself.
    pub fn of(history: &'a History) -> Result<Self, HistoryError> {
        let operations = operations(history)?;
        let mut facts = Self {
            history,
            weak: Weak::of(history),
            born: births(&operations),
            deletions: BTreeMap::new(),
            listed: Vec::new(),
            operations,
        };
        for operation in facts.of_function(&Function::Delete).filter(|one| one.may_have_happened()) {
            let Some(id) = operation.asked.int() else { continue };
            facts.deletions.entry(id).or_default().push(operation.clone());
        }
        for (at, event) in history.of_nemesis(&Function::Listed) {
            let list = list(event).ok_or_else(|| {
                HistoryError::at(history.line(at), format!("this is no list of keys: {}", event.value))
            })?;
            facts.listed.push(list);
        }
        Ok(facts)
    }

    /// True if this rung looks into tokens.
    pub fn sees_tokens(&self) -> bool {
        self.told(&Function::Group).iter().any(|(_, group)| group.get("tokens") == Some(&Value::Bool(true)))
    }

    /// Operations of one function.
    pub fn of_function(&self, function: &Function) -> std::vec::IntoIter<Operation> {
        let all = self.operations.iter().filter(|operation| operation.function == *function);
        all.cloned().collect::<Vec<_>>().into_iter()
    }

    /// The first call of a deletion of this key that may have happened.
    pub fn first_deletion(&self, id: i64) -> Option<usize> {
        self.deletions.get(&id)?.iter().map(|operation| operation.called).min()
    }

    /// The first answer of a deletion of this key.
    pub fn deleted(&self, id: i64) -> Option<usize> {
        let all = self.deletions.get(&id)?.iter().filter(|operation| operation.end == End::Ok);
        all.filter_map(|operation| operation.returned).min()
    }

    /// What the run demands of itself.
    pub fn demands(&self) -> Option<&'a Value> {
        self.told(&Function::Group).first().and_then(|(_, group)| group.get("demands"))
    }

    /// True if the run must have had each call of its workload answered.
    pub fn demands_each_call(&self) -> bool {
        self.demands().is_some_and(|demands| demands.get("each-call") == Some(&Value::Bool(true)))
    }

    /// True unless the run's workload does without this: then there is nothing of it to look at.
    pub fn wants(&self, function: &Function) -> bool {
        let functions = self.demands().and_then(|demands| demands.get("functions")).and_then(Value::list);
        functions.is_none_or(|all| all.contains(&Value::word(function.name())))
    }

    /// Where an event stands, for people.
    pub fn place(&self, event: usize) -> String {
        format!("event {event}, {:.3} s", self.history.time(event) as f64 / 1e9)
    }

    /// What the nemesis told with this function.
    pub fn told(&self, function: &Function) -> Vec<(usize, &'a Value)> {
        self.history.of_nemesis(function).map(|(at, event)| (at, &event.value)).collect()
    }
}

fn list(event: &Event) -> Option<(i64, BTreeSet<Row>)> {
    let member = event.value.int_at("member")?;
    let rows = event.value.get("objects")?.list()?.iter().map(|row| match row.list() {
        Some([Value::Int(id), Value::Text(tag), Value::Text(label)]) => {
            Some(Row { id: *id, tag: tag.clone(), label: label.clone() })
        }
        _ => None,
    });
    Some((member, rows.collect::<Option<_>>()?))
}

fn births(operations: &[Operation]) -> BTreeMap<i64, Birth> {
    let mut by_label: BTreeMap<&Option<String>, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        by_label.entry(&operation.key).or_default().push(operation.clone());
    }
    let made: BTreeMap<String, i64> = by_label.values().flat_map(|operations| bind(operations)).collect();
    let mut born = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.function == Function::Create) {
        let Some(tag) = operation.asked.text() else { continue };
        let (id, answered) = match operation.end {
            End::Ok => (operation.told.int(), operation.returned),
            End::Unknown => (made.get(tag).copied(), None),
            End::Failed => continue,
        };
        if let Some(id) = id {
            born.entry(id).or_insert(Birth { tag: tag.into(), called: operation.called, answered });
        }
    }
    born
}
