//! Which keys came of creations whose answer did not come.

use crate::edn::Value;
use crate::history::{End, Function, Operation};
use std::collections::BTreeMap;

/// The ids of creations whose answer did not come, by tag: as a look told them, and else the ids that somebody met and
/// nobody made, each given to the earliest such creation that began before it was met. These creations differ in nothing
/// else, so an earlier one serves whatever a later one would.
pub fn bind(operations: &[Operation]) -> BTreeMap<String, i64> {
    let mut answered: Vec<i64> = Vec::new();
    let mut open: Vec<(usize, &str)> = Vec::new();
    for operation in operations.iter().filter(|operation| operation.function == Function::Create) {
        match operation.end {
            End::Ok => answered.extend(operation.told.int()),
            End::Unknown => open.extend(operation.asked.text().map(|tag| (operation.called, tag))),
            End::Failed => {}
        }
    }
    let mut made = BTreeMap::new();
    let mut met: BTreeMap<i64, usize> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.end == End::Ok) {
        let when = operation.returned.unwrap_or(usize::MAX);
        let mut meet = |id: i64| {
            let first = met.entry(id).or_insert(when);
            *first = when.min(*first);
        };
        match operation.function {
            Function::Find => operation.told.ints().unwrap_or_default().into_iter().for_each(&mut meet),
            Function::Use | Function::Delete => operation.asked.int().into_iter().for_each(&mut meet),
            Function::Look => {
                if let Some([Value::Int(id), Value::Text(tag), _]) = operation.told.list() {
                    meet(*id);
                    if open.iter().any(|(_, asked)| asked == tag) {
                        made.entry(tag.clone()).or_insert(*id);
                    }
                }
            }
            _ => {}
        }
    }
    let known =
        |id: &i64, made: &BTreeMap<String, i64>| answered.contains(id) || made.values().any(|m| m == id);
    let mut nobodys: Vec<(usize, i64)> =
        met.iter().filter(|(id, _)| !known(id, &made)).map(|(id, when)| (*when, *id)).collect();
    nobodys.sort_unstable();
    for (when, id) in nobodys {
        let maker = open.iter().find(|(called, tag)| *called < when && !made.contains_key(*tag));
        if let Some((_, tag)) = maker {
            made.insert((*tag).to_string(), id);
        }
    }
    made
}
