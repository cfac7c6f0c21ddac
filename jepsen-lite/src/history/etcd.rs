//! The log of an old Jepsen: `INFO  jepsen.util - 2  :invoke  :cas  [3 0]`, one event a line, one register.

use super::{Event, Function, History, HistoryError, Kind, Process};
use crate::edn::{Reader, Value};

/// Reads such a log. Lines of other programs' are passed over.
///
/// # Errors
/// A line of Jepsen's is not as above.
pub(super) fn parse(text: &str) -> Result<History, HistoryError> {
    let mut history = History::default();
    for (index, line) in text.lines().enumerate() {
        let Some((_, rest)) = line.split_once("jepsen.util - ") else { continue };
        history.events.push(event(rest).map_err(|why| HistoryError::at(index + 1, why))?);
        history.lines.push(index + 1);
    }
    Ok(history)
}

fn event(text: &str) -> Result<Event, String> {
    let mut words = text.split_whitespace();
    let mut word = |what: &str| words.next().ok_or_else(|| format!("has no {what}"));
    let process = match word("process")? {
        ":nemesis" => Process::Nemesis,
        number => Process::Client(number.parse().map_err(|_| format!("'{number}' is no process"))?),
    };
    let kind = word("type")?;
    let kind = kind.strip_prefix(':').and_then(Kind::named).ok_or_else(|| format!("'{kind}' is no type"))?;
    let function = word("function")?;
    let name = function.strip_prefix(':').ok_or_else(|| format!("'{function}' is no function"))?;
    let rest: Vec<&str> = words.collect();
    let value = Reader::new(&rest.join(" ")).next_value().map_err(|error| error.why)?.unwrap_or(Value::Nil);
    let late = value == Value::word("timed-out");
    Ok(Event {
        process,
        kind,
        function: Function::named(name),
        key: None,
        value: if late { Value::Nil } else { value },
        error: late.then(|| "timed-out".into()),
        member: None,
        time: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabs_and_blanks_part_words() {
        let text = "INFO  jepsen.util - 0\t:invoke\t:read\tnil\nINFO  jepsen.core - setting up\n\
                    INFO  jepsen.util - 0   :ok     :read   3\nINFO  jepsen.util - 11\t:invoke\t:cas\t[3 0]\n\
                    INFO  jepsen.util - 11\t:info\t:cas\t:timed-out\n";
        let history = parse(text).expect("is read");
        assert_eq!(history.lines, [1, 3, 4, 5]);
        assert_eq!(history.events[1].value, Value::Int(3));
        assert_eq!(history.events[2].value, Value::numbers([3, 0]));
        assert_eq!(history.events[3].kind, Kind::Info);
        assert_eq!(history.events[3].error.as_deref(), Some("timed-out"));
    }

    #[test]
    fn a_broken_line_is_named() {
        for (line, why) in [
            ("x :ok :read 1", "process"),
            ("1 :okay :read 1", "type"),
            ("1 :ok read 1", "function"),
            ("1", "no type"),
            ("1 :ok :cas [1", "closed"),
        ] {
            let text = format!("\nINFO jepsen.util - {line}\n");
            let error = parse(&text).expect_err(line).to_string();
            assert!(error.starts_with("line 2: ") && error.contains(why), "{error}");
        }
    }
}
