//! A history's format is known by its content.

use super::{History, HistoryError, etcd, json, maps};
use crate::limits;
use std::io::Read;
use std::path::Path;

/// Reads a history file of any format we know.
///
/// # Errors
/// It cannot be read, is too long, or a line of it means nothing to us.
pub fn read(path: &Path) -> Result<History, HistoryError> {
    let told = |what: &dyn std::fmt::Display| HistoryError::File(format!("{}: {what}", path.display()));
    let file = std::fs::File::open(path).map_err(|e| told(&e))?;
    let mut bytes = Vec::new();
    file.take(limits::FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| told(&e))?;
    if bytes.len() as u64 > limits::FILE_MAX_BYTES {
        return Err(told(&format!("more than {} bytes", limits::FILE_MAX_BYTES)));
    }
    let text = String::from_utf8(bytes).map_err(|e| told(&e))?;
    parse(&text).map_err(|error| told(&error))
}

/// Reads a history of any format we know: events as JSON objects or EDN maps, or a log of jepsen.util's.
///
/// # Errors
/// A line means nothing to us, or there is no event at all.
pub fn parse(text: &str) -> Result<History, HistoryError> {
    let begin = text.trim_start();
    let history = match begin.as_bytes() {
        [b'{', rest @ ..] if rest.trim_ascii_start().first() == Some(&b'"') => json::parse(text)?,
        [b'{' | b'[' | b'(' | b'#' | b';', ..] => maps::parse(text)?,
        _ => etcd::parse(text)?,
    };
    if history.events.is_empty() {
        let why =
            "there is no event: a history is a log of jepsen.util's, EDN maps or JSON objects, one an event";
        return Err(HistoryError::File(why.into()));
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edn::Value;
    use crate::history::{Event, Function, Kind, Process, write_edn, write_jsonl};

    fn sample() -> History {
        let client = |kind, value, error: Option<&str>| Event {
            process: Process::Client(3),
            kind,
            function: Function::Look,
            key: Some("label \"a\"".into()),
            value,
            error: error.map(str::to_string),
            member: Some(1),
            time: Some(1_234_567_890_123),
        };
        let told = Value::List(vec![Value::Int(7), Value::Text("3.1".into()), Value::word("x")]);
        let fault = Value::map([("fault", Value::word("kill")), ("members", Value::numbers([0, 2]))]);
        History::new(vec![
            Event::nemesis(Function::FaultBegin, fault),
            client(Kind::Invoke, Value::Int(7), None),
            client(Kind::Ok, told, None),
            client(Kind::Invoke, Value::Int(7), None),
            client(Kind::Fail, Value::Int(7), Some("absent")),
        ])
    }

    #[test]
    fn what_is_written_is_read() {
        let history = sample();
        let mut edn = Vec::new();
        write_edn(&history, &mut edn).expect("is written");
        let edn = String::from_utf8(edn).expect("is text");
        assert_eq!(parse(&edn).expect("is read").events, history.events, "{edn}");
        let mut jsonl = Vec::new();
        write_jsonl(&history, &mut jsonl).expect("is written");
        let jsonl = String::from_utf8(jsonl).expect("is text");
        assert_eq!(parse(&jsonl).expect("is read").events, history.events, "{jsonl}");
    }

    #[test]
    fn what_is_no_history_is_refused() {
        assert!(parse("").expect_err("is empty").to_string().contains("no event"));
        assert!(parse("hello\n").expect_err("is none").to_string().contains("no event"));
        let error = parse("{\"process\": 1}\n").expect_err("is broken").to_string();
        assert!(error.starts_with("line 1: "), "{error}");
        let error = parse("\n{\"process\": 1\n").expect_err("is broken").to_string();
        assert!(error.starts_with("line 2: "), "{error}");
        let error = read(Path::new("/nonexistent/history")).expect_err("is missing").to_string();
        assert!(error.contains("/nonexistent/history"), "{error}");
    }
}
