//! One JSON object an event: history.jsonl. Keywords are strings with a colon before them.

use super::{Event, Function, History, HistoryError, Kind, Process};
use crate::edn::Value;
use crate::limits;
use serde_json::{Map, Value as Json, json};
use std::io::{self, Write};

/// Reads such a history.
///
/// # Errors
/// A line is no event.
pub(super) fn parse(text: &str) -> Result<History, HistoryError> {
    let mut history = History::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if history.events.len() >= limits::EVENTS_MAX {
            return Err(HistoryError::at(index + 1, format!("more than {} events", limits::EVENTS_MAX)));
        }
        let object: Json = serde_json::from_str(line).map_err(|e| HistoryError::at(index + 1, e))?;
        history.events.push(event(&object).map_err(|why| HistoryError::at(index + 1, why))?);
        history.lines.push(index + 1);
    }
    Ok(history)
}

fn event(object: &Json) -> Result<Event, String> {
    let text = |key: &str| object[key].as_str().ok_or_else(|| format!("an event has no \"{key}\""));
    let process = match &object["process"] {
        Json::String(name) if name == "nemesis" => Process::Nemesis,
        number => Process::Client(number.as_u64().ok_or_else(|| format!("{number} is no process"))?),
    };
    let kind = text("type")?;
    let number = |key: &str| match &object[key] {
        Json::Null => Ok(None),
        value => value.as_u64().map(Some).ok_or_else(|| format!("\"{key}\": {value} is no number from 0")),
    };
    Ok(Event {
        process,
        kind: Kind::named(kind).ok_or_else(|| format!("'{kind}' is none of invoke, ok, fail, info"))?,
        function: Function::named(text("f")?),
        key: object["key"].as_str().map(str::to_string),
        value: to_value(&object["value"])?,
        error: object["error"].as_str().map(str::to_string),
        member: number("member")?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)),
        time: number("time")?,
    })
}

/// A JSON value as one of ours.
///
/// # Errors
/// It has a fraction.
pub fn to_value(json: &Json) -> Result<Value, String> {
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => {
            Value::Int(number.as_i64().ok_or_else(|| format!("{number} is no 64-bit integer"))?)
        }
        Json::String(text) => match text.strip_prefix(':') {
            Some(word) if !word.is_empty() => Value::word(word),
            _ => Value::Text(text.clone()),
        },
        Json::Array(list) => Value::List(list.iter().map(to_value).collect::<Result<_, _>>()?),
        Json::Object(rows) => {
            let rows = rows.iter().map(|(key, value)| Ok((Value::word(key), to_value(value)?)));
            Value::Map(rows.collect::<Result<_, String>>()?)
        }
    })
}

/// A value of ours as JSON.
pub fn from_value(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => json!(flag),
        Value::Int(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Word(word) => json!(format!(":{word}")),
        Value::List(list) => list.iter().map(from_value).collect(),
        Value::Map(rows) => {
            let name = |key: &Value| key.text().map_or_else(|| key.to_string(), str::to_string);
            rows.iter().map(|(key, value)| (name(key), from_value(value))).collect::<Map<_, _>>().into()
        }
    }
}

/// Writes one object a line.
///
/// # Errors
/// The file does not take it.
pub fn write(history: &History, mut to: impl Write) -> io::Result<()> {
    for (index, event) in history.events.iter().enumerate() {
        let process = match event.process {
            Process::Client(process) => json!(process),
            Process::Nemesis => json!("nemesis"),
        };
        let mut object = json!({
            "index": index, "time": event.time, "process": process, "type": event.kind.name(),
            "f": event.function.name(), "value": from_value(&event.value),
        });
        for (name, value) in [
            ("key", event.key.as_ref().map(|key| json!(key))),
            ("error", event.error.as_ref().map(|error| json!(error))),
            ("member", event.member.map(|member| json!(member))),
        ] {
            if let Some(value) = value {
                object[name] = value;
            }
        }
        writeln!(to, "{object}")?;
    }
    to.flush()
}
