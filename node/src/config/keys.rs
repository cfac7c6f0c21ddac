//! Every key that a configuration file may hold: what it means, what it must be, an example. One table checks
//! files, writes the commented example and is the reference.

use super::bad;
use crate::exit::Problem;
use keyraft_engine::limits::INTERFACES_MAX;
use std::path::Path;
use toml::{Table, Value};

/// What a key's value must be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Any text but the empty one.
    Text,
    /// A path; relative ones start at the file's folder.
    Path,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Milliseconds from here to there.
    Millis(i64, i64),
    /// A table of texts.
    Texts,
    /// A list of user ids.
    Users,
    /// A list of names of network interfaces.
    Interfaces,
}

impl Kind {
    fn expects(self) -> String {
        match self {
            Self::Text => "text in quotes".into(),
            Self::Path => "a path in quotes".into(),
            Self::OneOf(words) => format!("one of \"{}\"", words.join("\", \"")),
            Self::Millis(from, to) => format!("a number of milliseconds from {from} to {to}"),
            Self::Users => "a list of user ids, like [1000, 1001]".into(),
            Self::Interfaces => {
                format!("a list of at most {INTERFACES_MAX} network interfaces, as 'ip link' names them")
            }
            Self::Texts => "a table of texts, like { NAME = \"value\" }".into(),
        }
    }

    fn admits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text | Self::Path, Value::String(text)) => !text.trim().is_empty(),
            (Self::OneOf(words), Value::String(text)) => words.contains(&text.as_str()),
            (Self::Millis(from, to), Value::Integer(number)) => (from..=to).contains(number),
            (Self::Users, Value::Array(list)) => {
                list.iter().all(|v| v.as_integer().is_some_and(|n| u32::try_from(n).is_ok()))
            }
            (Self::Interfaces, Value::Array(list)) => {
                list.len() <= INTERFACES_MAX && list.iter().all(|v| v.as_str().is_some_and(is_interface))
            }
            (Self::Texts, Value::Table(table)) => table.values().all(Value::is_str),
            _ => false,
        }
    }
}

/// Linux takes any name of at most 15 bytes that has no slash, colon or space and is not `.` or `..`.
fn is_interface(name: &str) -> bool {
    let plain = !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    plain && (1..=15).contains(&name.len()) && name != "." && name != ".."
}

/// One key.
pub(super) struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    /// True if a file without it is refused.
    pub required: bool,
    /// TOML, as it stands in the example.
    pub example: &'static str,
    /// True if the example has it switched on.
    pub shown: bool,
    pub meaning: &'static str,
}

const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    (required, shown): (bool, bool),
    example: &'static str,
    meaning: &'static str,
) -> Key {
    Key { section, name, kind, required, example, shown, meaning }
}

const MUST: (bool, bool) = (true, true);
const USUAL: (bool, bool) = (false, true);
const MAY: (bool, bool) = (false, false);

/// The sections, in the order of the example.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("member", "This member."),
    (
        "token",
        "Its token. The PIN comes from exactly one of pin_file, pin_env and pin_credential, unless login says otherwise.",
    ),
    ("domain", "The cloning domain: a secret that every member of the group knows. Exactly one source."),
    ("log", "What it says, on standard error."),
    ("timings", "Times, in milliseconds. Leave them out unless a network or a token is slow."),
];

/// The keys, in the order of the example.
pub(super) const KEYS: &[Key] = &[
    key("member", "name", Kind::Text, MUST, r#""a""#, "A name for people; no two members share one."),
    key("member", "data", Kind::Path, MUST, r#""data""#, "The data folder; made if missing, mode 700."),
    key("member", "listen", Kind::Text, MUST, r#""0.0.0.0:7400""#, "IP address and port to listen on."),
    key(
        "member",
        "advertise",
        Kind::Text,
        USUAL,
        r#""a.example.net:7400""#,
        "host:port that other members reach it at; the listen address if left out.",
    ),
    key(
        "member",
        "socket",
        Kind::Path,
        MAY,
        r#""data/keyraft.sock""#,
        "Unix socket for local commands; keyraft.sock in the data folder if left out.",
    ),
    key(
        "member",
        "socket_users",
        Kind::Users,
        MAY,
        "[1000]",
        "User ids that may use the socket, besides root and the member's own.",
    ),
    key(
        "member",
        "monitored_interfaces",
        Kind::Interfaces,
        MAY,
        r#"["eth0"]"#,
        "Network interfaces that count when the group chooses its primary: who has more of them up leads.",
    ),
    key(
        "member",
        "metrics",
        Kind::Text,
        MAY,
        r#""127.0.0.1:9464""#,
        "IP address and port for monitors: /metrics (Prometheus) and /healthz, in clear. No port if left out.",
    ),
    key(
        "token",
        "module",
        Kind::Text,
        MUST,
        r#""embedded""#,
        "\"embedded\", or the path of a PKCS#11 library such as /usr/lib/softhsm/libsofthsm2.so.",
    ),
    key(
        "token",
        "label",
        Kind::Text,
        USUAL,
        r#""keyraft-a""#,
        "The token's label, if the library has more than one slot; the label of a token that is made.",
    ),
    key(
        "token",
        "serial",
        Kind::Text,
        MAY,
        r#""1234abcd""#,
        "The token's serial number, instead of its label.",
    ),
    key("token", "pin_file", Kind::Path, USUAL, r#""pin""#, "A file (mode 600) that holds the user PIN."),
    key("token", "pin_env", Kind::Text, MAY, r#""KEYRAFT_PIN""#, "An environment variable that holds it."),
    key("token", "pin_credential", Kind::Text, MAY, r#""pin""#, "A systemd credential that holds it."),
    key(
        "token",
        "login",
        Kind::OneOf(&["pin", "protected"]),
        MAY,
        r#""pin""#,
        "How the member logs in: by the PIN, or, \"protected\" and with no PIN here, by the token's own pad or quorum.",
    ),
    key(
        "token",
        "residency",
        Kind::OneOf(&["token", "session"]),
        MAY,
        r#""session""#,
        "Where keys live in the token: as token objects (the default for a library) or session objects.",
    ),
    key(
        "token",
        "environment",
        Kind::Texts,
        MAY,
        r#"{ SOFTHSM2_CONF = "/etc/softhsm2-a.conf" }"#,
        "Environment that the library needs.",
    ),
    key("domain", "name", Kind::Text, MUST, r#""production""#, "The domain's name."),
    key(
        "domain",
        "secret_file",
        Kind::Path,
        USUAL,
        r#""domain-secret""#,
        "A file (mode 600) that holds the secret, 16 characters or more.",
    ),
    key(
        "domain",
        "secret_env",
        Kind::Text,
        MAY,
        r#""KEYRAFT_DOMAIN""#,
        "An environment variable that holds it.",
    ),
    key("domain", "secret_credential", Kind::Text, MAY, r#""domain""#, "A systemd credential that holds it."),
    key("log", "format", Kind::OneOf(&["text", "json"]), MAY, r#""text""#, "\"text\" or \"json\"."),
    key(
        "log",
        "filter",
        Kind::Text,
        MAY,
        r#""info,openraft=error""#,
        "What is said: a level, or directives like keyraft_engine=debug.",
    ),
    key("timings", "heartbeat_ms", Kind::Millis(10, 10_000), MAY, "50", "Raft's heartbeat."),
    key(
        "timings",
        "election_min_ms",
        Kind::Millis(30, 60_000),
        MAY,
        "150",
        "Silence after which a member stands for election, at least: twice the heartbeat or more.",
    ),
    key(
        "timings",
        "election_max_ms",
        Kind::Millis(40, 120_000),
        MAY,
        "300",
        "The same, at most: more than election_min_ms.",
    ),
];

fn names_of(section: &str) -> String {
    let names: Vec<&str> = KEYS.iter().filter(|k| k.section == section).map(|k| k.name).collect();
    names.join(", ")
}

/// Checks every key of a file: known, of the right kind, none missing.
pub(super) fn check(path: &Path, file: &Table) -> Result<(), Problem> {
    for (section, value) in file {
        if !SECTIONS.iter().any(|(name, _)| name == section) {
            let names: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
            return Err(bad(
                path,
                section,
                "is unknown",
                format!("remove it; there are {}", names.join(", ")),
            ));
        }
        let Value::Table(table) = value else {
            return Err(bad(path, section, "is no section", format!("write [{section}], then its keys")));
        };
        for (name, value) in table {
            let full = format!("{section}.{name}");
            let Some(key) = KEYS.iter().find(|k| k.section == section && k.name == name) else {
                let remedy = format!("remove it; [{section}] may hold {}", names_of(section));
                return Err(bad(path, &full, "is unknown", remedy));
            };
            if !key.kind.admits(value) {
                let remedy = format!("give {}, for example {name} = {}", key.kind.expects(), key.example);
                return Err(bad(path, &full, format!("cannot be {}", shape(value)), remedy));
            }
        }
    }
    for key in KEYS.iter().filter(|k| k.required) {
        if file.get(key.section).and_then(|s| s.get(key.name)).is_none() {
            let remedy = format!("add {} = {} to [{}]", key.name, key.example, key.section);
            return Err(bad(path, &format!("{}.{}", key.section, key.name), "is missing", remedy));
        }
    }
    Ok(())
}

/// A wrong value as an error shows it: short, and nothing of long texts, which could be secrets gone astray.
fn shape(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() <= 32 => format!("\"{text}\""),
        Value::String(_) => "this text".into(),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        other => format!("a value of type {}", other.type_str()),
    }
}

/// A commented example; every key is in it, with its default where it has one.
pub fn example() -> String {
    let mut out = String::from(
        "# A keyraft member. Copy it, change it, check it: keyraft --config keyraft.toml check\n\
         # Relative paths start at this file's folder.\n",
    );
    for (section, meaning) in SECTIONS {
        out.push_str(&format!("\n# {meaning}\n[{section}]\n"));
        for key in KEYS.iter().filter(|k| k.section == *section) {
            let mark = if key.shown { "" } else { "# " };
            out.push_str(&format!("# {}\n{mark}{} = {}\n", key.meaning, key.name, key.example));
        }
    }
    out
}
