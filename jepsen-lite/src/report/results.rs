//! results.json: the verdict, what each checker found, and the line that repeats the run.

use crate::checker::Findings;
use crate::edn::Value;
use crate::history::{Function, History, from_value};
use crate::judge::told;
use serde_json::{Map, Value as Json, json};

/// A run's results.
pub fn results(history: &History, findings: &Findings) -> Json {
    let group = history.of_nemesis(&Function::Group).map(|(_, event)| &event.value).next();
    let command = group.and_then(|group| group.get("command")).and_then(Value::text);
    let judgement = &findings.judgement;
    let window = judgement.window.as_ref().map(|window| {
        let lines = window.calls.iter().chain([&window.to]);
        let lines: Vec<String> = lines.filter_map(|at| history.events.get(*at)).map(told).collect();
        json!({ "key": window.key, "from-event": window.from, "to-event": window.to, "events": lines })
    });
    let checkers: Map<String, Json> =
        findings.all.iter().map(|finding| (finding.name.to_string(), finding.to_json())).collect();
    json!({
        "passes": findings.pass(),
        "verdict": judgement.verdict.to_string(),
        "operations": judgement.operations,
        "judged": judgement.judged,
        "steps": judgement.steps,
        "window": window,
        "checkers": checkers,
        "group": group.map(from_value),
        "reproduce": command,
    })
}
