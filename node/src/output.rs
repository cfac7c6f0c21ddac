//! Answers as people and programs read them: tables, or JSON with `--json`. Pure: values in, text out.

mod operations;
mod standing;
mod status;

pub use operations::operations;
pub use standing::{recovery_json, recovery_text, synchronized};
pub use status::status;

use crate::text::hex;
use comfy_table::{Table, presets};
use keyraft_engine::domain::{
    ApplicationName, AttributeType, AttributeValue, Attributes, Fingerprint, ObjectClass,
};
use keyraft_engine::wire::{CoverageRow, CoverageState, GroupStatus, ObjectRow};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A result in both shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// For people; ends without a line end.
    pub text: String,
    /// For programs.
    pub json: Value,
}

impl View {
    /// A result of one line.
    pub fn line(text: impl Into<String>, json: Value) -> Self {
        Self { text: text.into(), json }
    }

    /// Done, with nothing to tell.
    pub fn done(text: impl Into<String>) -> Self {
        Self::line(text, json!({"done": true}))
    }
}

fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table.add_rows(rows);
    // Columns at the left edge stand flush, and no line ends in blanks.
    let lines: Vec<String> =
        table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_string()).collect();
    lines.join("\n")
}

fn text_of(attributes: &Attributes, which: AttributeType) -> String {
    match attributes.get(&which) {
        Some(AttributeValue::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

fn hex_of(attributes: &Attributes, which: AttributeType) -> String {
    match attributes.get(&which) {
        Some(AttributeValue::Bytes(bytes)) => hex(bytes),
        _ => String::new(),
    }
}

/// What a terminal may be sent: control characters in a label could rewrite what is on the screen.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// `client config`: a client.toml, with one group.
pub fn client_config(sockets: &[PathBuf]) -> View {
    let quoted = |path: &PathBuf| json!(path.display().to_string()).to_string();
    let list: Vec<String> = sockets.iter().map(quoted).collect();
    let text = format!("[[group]]\nsockets = [{}]", list.join(", "));
    let names: Vec<String> = sockets.iter().map(|path| path.display().to_string()).collect();
    View { text, json: json!({"group": [{"sockets": names}]}) }
}

/// `client list`.
pub fn clients(clients: &[(ApplicationName, Fingerprint)]) -> View {
    let rows = clients.iter().map(|(name, tls)| vec![name.to_string(), hex(&tls.0)]);
    let json: Vec<Value> =
        clients.iter().map(|(name, tls)| json!({"client": name.to_string(), "key": hex(&tls.0)})).collect();
    let text = if clients.is_empty() {
        "no client has a certificate: 'keyraft client add' makes one".into()
    } else {
        table(&["CLIENT", "KEY (SHA-256)"], rows)
    };
    View { text, json: json!({"clients": json}) }
}

/// `member list`.
pub fn members(status: &GroupStatus) -> View {
    let rows = status.members.iter().map(|m| {
        let role = status::role_text(status::role(status, m), m);
        let cannot: Vec<String> = m.cannot.iter().map(|(kind, _)| kind.to_string()).collect();
        vec![
            m.member.to_string(),
            printable(&m.name),
            printable(&m.address),
            role,
            m.duty.to_string(),
            standing::standing(m),
            m.reached.map(|i| i.to_string()).unwrap_or_default(),
            printable(&m.token),
            cannot.join(" "),
        ]
    });
    let json = status.members.iter().map(|m| {
        json!({
            "member": m.member.to_string(),
            "name": m.name,
            "address": m.address,
            "voter": m.voter,
            "priority": m.priority,
            "primary": status.primary == Some(m.member),
            "duty": m.duty.to_string(),
            "in_sync": m.in_sync,
            "awaits_operator": m.awaits_operator,
            "reason": m.reason.as_ref().map(|r| r.to_string()),
            "reached": m.reached.map(|i| i.0),
            "token": m.token,
            "cannot": m.cannot.iter()
                .map(|(kind, why)| json!({"kind": kind.to_string(), "why": why.to_string()}))
                .collect::<Vec<_>>(),
        })
    });
    let header =
        ["MEMBER", "NAME", "ADDRESS", "ROLE", "DUTY", "STANDING", "REACHED", "TOKEN", "CANNOT CARRY"];
    View { json: json.collect(), text: table(&header, rows) }
}

/// `option show`.
pub fn options(status: &GroupStatus) -> View {
    let word = |value: Value| value.as_str().unwrap_or_default().to_string();
    let partial = word(json!(status.options.partial_keys));
    let isolated = word(json!(status.options.isolated_service));
    let direct = word(json!(status.options.direct_changes));
    let rows = [
        vec!["partial_keys".into(), partial.clone()],
        vec!["allow_inmemory_import".into(), status.options.allow_inmemory_import.to_string()],
        vec!["isolated_service".into(), isolated.clone()],
        vec!["allow_init_token".into(), status.options.allow_init_token.to_string()],
        vec!["auto_recovery".into(), recovery_text(&status.options.auto_recovery)],
        vec!["primary_override".into(), status.options.primary_override.to_string()],
        vec!["uptime_margin_s".into(), status.options.uptime_margin_s.to_string()],
        vec!["direct_changes".into(), direct.clone()],
    ];
    View {
        text: table(&["OPTION", "VALUE"], rows),
        json: json!({
            "partial_keys": partial,
            "allow_inmemory_import": status.options.allow_inmemory_import,
            "isolated_service": isolated,
            "allow_init_token": status.options.allow_init_token,
            "auto_recovery": recovery_json(&status.options.auto_recovery),
            "primary_override": status.options.primary_override,
            "uptime_margin_s": status.options.uptime_margin_s,
            "direct_changes": direct,
        }),
    }
}

fn object_json(row: &ObjectRow) -> Value {
    json!({
        "object": row.object.0,
        "class": row.class.to_string(),
        "kind": row.algorithm.map(|k| k.to_string()),
        "label": text_of(&row.attributes, AttributeType::LABEL),
        "id": hex_of(&row.attributes, AttributeType::ID),
    })
}

/// `key list`, and what `key create` and `key import` made. `more` if the list goes on.
pub fn objects(rows: &[ObjectRow], more: bool) -> View {
    let cells = rows.iter().map(|row| {
        vec![
            row.object.to_string(),
            row.class.to_string(),
            row.algorithm.map(|k| k.to_string()).unwrap_or_default(),
            printable(&text_of(&row.attributes, AttributeType::LABEL)),
            hex_of(&row.attributes, AttributeType::ID),
        ]
    });
    let mut text = table(&["OBJECT", "CLASS", "KIND", "LABEL", "ID"], cells);
    if more {
        text.push_str("\nthere are more: raise --limit, or name a --label");
    }
    View { text, json: json!({"objects": rows.iter().map(object_json).collect::<Vec<_>>(), "more": more}) }
}

/// `key show`: everything that may be read. A readable secret's value is not printed: only its length is.
pub fn object(row: &ObjectRow) -> View {
    let secret = matches!(row.class, ObjectClass::SecretKey | ObjectClass::PrivateKey);
    let value = |which: AttributeType, value: &AttributeValue| match value {
        AttributeValue::Bool(flag) => json!(flag),
        AttributeValue::Number(number) => json!(number),
        AttributeValue::Bytes(bytes) if which == AttributeType::VALUE && secret => {
            json!(format!("<{} bytes>", bytes.len()))
        }
        AttributeValue::Bytes(bytes) if which == AttributeType::LABEL => {
            json!(String::from_utf8_lossy(bytes))
        }
        AttributeValue::Bytes(bytes) => json!(hex(bytes)),
        AttributeValue::Template(map) => json!(format!("<{} attributes>", map.len())),
    };
    let attributes: serde_json::Map<String, Value> =
        row.attributes.iter().map(|(which, v)| (which.to_string(), value(*which, v))).collect();
    let head = [
        vec!["object".to_string(), row.object.to_string()],
        vec!["class".into(), row.class.to_string()],
        vec!["kind".into(), row.algorithm.map(|k| k.to_string()).unwrap_or_default()],
    ];
    let shown = attributes.iter().map(|(name, v)| {
        let text = v.as_str().map_or_else(|| v.to_string(), printable);
        vec![name.clone(), text]
    });
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.add_rows(head.into_iter().chain(shown));
    let lines: Vec<String> =
        table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_string()).collect();
    let mut json = object_json(row);
    json["attributes"] = Value::Object(attributes);
    View { text: lines.join("\n"), json }
}

fn cell_text(state: &CoverageState) -> String {
    match state {
        CoverageState::Present => "present".into(),
        CoverageState::Pending => "pending".into(),
        CoverageState::Excluded { why } => format!("excluded: {}", printable(why)),
        CoverageState::Failed { why, tries } => format!("failed {tries} times: {}", printable(why)),
        CoverageState::Unknown => "no answer".into(),
    }
}

fn cell_json(state: &CoverageState) -> Value {
    match state {
        CoverageState::Present => json!({"state": "present"}),
        CoverageState::Pending => json!({"state": "pending"}),
        CoverageState::Excluded { why } => json!({"state": "excluded", "why": why}),
        CoverageState::Failed { why, tries } => json!({"state": "failed", "why": why, "tries": tries}),
        CoverageState::Unknown => json!({"state": "unknown"}),
    }
}

/// `coverage`.
pub fn coverage(rows: &[CoverageRow]) -> View {
    let members: Vec<_> =
        rows.first().map(|r| r.members.iter().map(|c| c.member).collect()).unwrap_or_default();
    let names: Vec<String> = members.iter().map(|m| m.to_string().to_uppercase()).collect();
    let header: Vec<&str> =
        ["OBJECT", "CLASS", "LABEL"].into_iter().chain(names.iter().map(|n| n.as_str())).collect();
    let cells = rows.iter().map(|row| {
        let mut line = vec![row.object.to_string(), row.class.to_string(), printable(&row.label)];
        line.extend(members.iter().map(|m| {
            row.members.iter().find(|c| c.member == *m).map(|c| cell_text(&c.state)).unwrap_or_default()
        }));
        line
    });
    let json = rows.iter().map(|row| {
        let cells: serde_json::Map<String, Value> =
            row.members.iter().map(|c| (c.member.to_string(), cell_json(&c.state))).collect();
        json!({"object": row.object.0, "class": row.class.to_string(), "label": row.label, "members": cells})
    });
    let whole = rows.iter().filter(|r| r.members.iter().all(|c| c.state == CoverageState::Present)).count();
    let text = table(&header, cells);
    View {
        text: format!("{text}\n\n{whole} of {} objects are on every member", rows.len()),
        json: json.collect(),
    }
}

/// `check`.
pub fn findings(lines: &[String]) -> View {
    let nothing = "nothing is wrong with this member, its token and its place in the group; 'keyraft status' tells of the others";
    let text = if lines.is_empty() { nothing.to_string() } else { lines.join("\n") };
    View { text, json: json!({"findings": lines}) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::*;
    use keyraft_engine::limits::PRIORITY_DEFAULT;
    use keyraft_engine::state::{Duty, LeaveReason, Options, RecoveryCopy};
    use keyraft_engine::wire::{CoverageCell, MemberStatus};

    pub(super) fn group() -> GroupStatus {
        let member = |id, name: &str, in_sync, reason, cannot| MemberStatus {
            member: MemberId(id),
            name: name.into(),
            address: format!("{name}:1"),
            voter: true,
            in_sync,
            reason,
            reached: Some(LogIndex(9)),
            token: "SoftHSM v2".into(),
            cannot,
            duty: if in_sync { Duty::Active } else { Duty::Standby },
            awaits_operator: false,
            priority: PRIORITY_DEFAULT,
        };
        GroupStatus {
            answered_by: MemberId(1),
            group: GroupId([1; 8]),
            lineage: Lineage(1),
            label: "demo".into(),
            primary: Some(MemberId(2)),
            term: 3,
            applied: LogIndex(9),
            objects: 2,
            unsettled: 0,
            options: Options::default(),
            user_pin: true,
            so_pin: false,
            members: vec![
                member(1, "a", true, None, vec![(KeyAlgorithm::Ed25519, CannotCarry::Kind)]),
                member(2, "b", false, Some(LeaveReason::Unreachable), vec![]),
            ],
            recovery: vec![(
                Generation(1),
                RecoveryCopy { recipient: vec![1], smk: vec![2], envelope_key: vec![3] },
            )],
        }
    }

    fn row() -> ObjectRow {
        let attributes = [
            (AttributeType::LABEL, AttributeValue::Bytes(b"pay\x1b[2Jments".to_vec())),
            (AttributeType::ID, AttributeValue::Bytes(vec![10, 27])),
            (AttributeType::SENSITIVE, AttributeValue::Bool(false)),
            (AttributeType::VALUE, AttributeValue::Bytes(b"secret".to_vec())),
        ];
        ObjectRow {
            object: ObjectId(7),
            class: ObjectClass::SecretKey,
            algorithm: Some(KeyAlgorithm::Aes { bits: 256 }),
            attributes: attributes.into(),
        }
    }

    #[test]
    fn objects_golden() {
        assert_eq!(
            objects(&[row()], true).text,
            "OBJECT  CLASS   KIND     LABEL         ID\n\
             7       secret  aes:256  pay\u{fffd}[2Jments  0a1b\n\
             there are more: raise --limit, or name a --label"
        );
    }

    #[test]
    fn a_secret_value_is_never_printed() {
        let view = object(&row());
        for text in [view.text, view.json.to_string()] {
            assert!(text.contains("<6 bytes>"), "{text}");
            assert!(!text.contains(&hex(b"secret")) && !text.contains("\"secret\",\"v"), "{text}");
        }
    }

    #[test]
    fn coverage_golden() {
        let cell = |id, state| CoverageCell { member: MemberId(id), state };
        let rows = [
            CoverageRow {
                object: ObjectId(1),
                class: ObjectClass::PrivateKey,
                label: "x".into(),
                members: vec![cell(1, CoverageState::Present), cell(2, CoverageState::Present)],
            },
            CoverageRow {
                object: ObjectId(2),
                class: ObjectClass::SecretKey,
                label: "y".into(),
                members: vec![
                    cell(1, CoverageState::Present),
                    cell(2, CoverageState::Failed { why: "full".into(), tries: 3 }),
                ],
            },
        ];
        assert_eq!(
            coverage(&rows).text,
            "OBJECT  CLASS    LABEL  M1       M2\n\
             1       private  x      present  present\n\
             2       secret   y      present  failed 3 times: full\n\
             \n\
             1 of 2 objects are on every member"
        );
        assert_eq!(coverage(&rows).json[1]["members"]["m2"]["tries"], 3);
    }

    #[test]
    fn findings_golden() {
        assert!(findings(&[]).text.starts_with("nothing is wrong with this member"));
        assert_eq!(findings(&["a".into(), "b".into()]).text, "a\nb");
    }
}
