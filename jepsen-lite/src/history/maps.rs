//! One EDN map an event, as Jepsen writes them and Knossos reads them; as a stream or in one vector.
//!
//! Porcupine's reader of get, put and append takes a line that has `:process :type :f :key :value` and nothing else, so
//! these are written so; every other event has `:time` and `:index` as well.

use super::{Event, Function, History, HistoryError, Kind, Process};
use crate::edn::{Reader, Value};
use crate::limits;
use std::io::{self, Write};

/// Reads such a history.
///
/// # Errors
/// A value is no event.
pub(super) fn parse(text: &str) -> Result<History, HistoryError> {
    let mut reader = Reader::new(text);
    let mut history = History::default();
    if reader.look()? == Some(b'[') {
        reader.pass();
        while reader.look()? != Some(b']') {
            take(&mut reader, &mut history)?;
        }
        reader.pass();
    }
    while reader.look()?.is_some() {
        take(&mut reader, &mut history)?;
    }
    Ok(history)
}

fn take(reader: &mut Reader<'_>, history: &mut History) -> Result<(), HistoryError> {
    reader.look()?;
    let line = reader.line();
    let value = reader.next_value()?.ok_or_else(|| HistoryError::at(line, "the history is not closed"))?;
    if history.events.len() >= limits::EVENTS_MAX {
        return Err(HistoryError::at(line, format!("more than {} events", limits::EVENTS_MAX)));
    }
    history.events.push(event(&value).map_err(|why| HistoryError::at(line, why))?);
    history.lines.push(line);
    Ok(())
}

fn event(map: &Value) -> Result<Event, String> {
    let get = |key: &str| map.get(key).ok_or_else(|| format!("an event has no :{key}: {map}"));
    let process = match get("process")? {
        Value::Int(number) => {
            Process::Client(u64::try_from(*number).map_err(|_| format!("{number} is no process"))?)
        }
        Value::Word(_) => Process::Nemesis,
        other => return Err(format!("{other} is no process")),
    };
    let kind = get("type")?;
    let named = if let Value::Word(word) = kind { Kind::named(word) } else { None };
    let function = get("f")?.text().ok_or("an event's :f is no keyword")?;
    let number = |key: &str| match map.get(key) {
        None | Some(Value::Nil) => Ok(None),
        Some(value) => {
            let number = value.int().and_then(|number| u64::try_from(number).ok());
            number.map(Some).ok_or_else(|| format!(":{key} {value} is no number from 0"))
        }
    };
    let key = match map.get("key") {
        None | Some(Value::Nil) => None,
        Some(Value::Text(text) | Value::Word(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    let error = match map.get("error") {
        None | Some(Value::Nil) => None,
        Some(Value::Text(text) | Value::Word(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    Ok(Event {
        process,
        kind: named.ok_or_else(|| format!("{kind} is none of :invoke, :ok, :fail, :info"))?,
        function: Function::named(function),
        key,
        value: map.get("value").cloned().unwrap_or_default(),
        error,
        member: number("member")?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)),
        time: number("time")?,
    })
}

/// Writes one map a line.
///
/// # Errors
/// The file does not take it.
pub fn write(history: &History, mut to: impl Write) -> io::Result<()> {
    for (index, event) in history.events.iter().enumerate() {
        writeln!(to, "{}", shown(index, event))?;
    }
    to.flush()
}

fn shown(index: usize, event: &Event) -> Value {
    let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let process = match event.process {
        Process::Client(process) => number(process),
        Process::Nemesis => Value::word("nemesis"),
    };
    let mut rows = vec![
        ("process", process),
        ("type", Value::word(event.kind.name())),
        ("f", Value::word(event.function.name())),
    ];
    rows.extend(event.key.as_ref().map(|key| ("key", Value::Text(key.clone()))));
    rows.push(("value", event.value.clone()));
    rows.extend(event.error.as_ref().map(|error| ("error", Value::Text(error.clone()))));
    rows.extend(event.member.map(|member| ("member", number(member as u64))));
    if !matches!(event.function, Function::Get | Function::Put | Function::Append) {
        rows.extend(event.time.map(|time| ("time", number(time))));
        rows.push(("index", number(index as u64)));
    }
    Value::Map(rows.into_iter().map(|(key, value)| (Value::word(key), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_vectors_are_read() {
        let lines = "{:process 0, :type :invoke, :f :get, :key \"4\", :value nil}\n{:process 0, :type :ok, :f :get, :key \"4\", :value \"x 0 1 y\"}\n";
        let stream = parse(lines).expect("is read");
        assert_eq!(stream.lines, [1, 2]);
        assert_eq!(stream.events[1].value, Value::Text("x 0 1 y".into()));
        assert_eq!(stream.events[0].key.as_deref(), Some("4"));
        assert_eq!(parse(&format!("[{lines}]")).expect("is read").events, stream.events);
        let mut written = Vec::new();
        write(&stream, &mut written).expect("is written");
        assert_eq!(String::from_utf8_lossy(&written), lines);
    }

    #[test]
    fn what_is_no_event_is_named() {
        for (text, why) in [
            ("{:process 0, :type :invoke}", ":f"),
            ("{:process 0, :type :done, :f :get}", ":done"),
            ("{:process -1, :type :ok, :f :get}", "-1"),
            ("7", ":process"),
            ("[{:process 0, :type :ok, :f :get}", "not closed"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with("line 1: ") && error.contains(why), "{text}: {error}");
        }
    }
}
