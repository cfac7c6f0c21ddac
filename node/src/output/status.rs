//! `status`, for a person at three in the morning: first whether all is well, and if not, what is wrong; then the group,
//! then its members.

use super::standing::{recovery_text, standing};
use super::{View, members, options, printable, table};
use crate::moment::{long, utc};
use data_encoding::BASE64;
use keyraft_engine::clock::UnixMillis;
use keyraft_engine::domain::{Generation, MemberId};
use keyraft_engine::limits::PRIORITY_DEFAULT;
use keyraft_engine::state::{IsolatedService, RecoveryCopy};
use keyraft_engine::wire::{GroupStatus, MemberPulse, MemberStatus, Pulse, TokenHealth};
use serde_json::{Value, json};

/// A member with what is known of it.
struct Row<'a> {
    member: &'a MemberStatus,
    role: &'static str,
    /// None if nobody was asked; `pulse` in it is None if the member did not answer.
    beat: Option<&'a MemberPulse>,
    /// How long ago the primary heard of it, milliseconds; 0 if it has just answered.
    heard: Option<u64>,
    now: UnixMillis,
}

impl Row<'_> {
    fn pulse(&self) -> Option<&Pulse> {
        self.beat.and_then(|beat| beat.pulse.as_ref())
    }

    fn named(&self) -> String {
        format!("{} ('{}')", self.member.member, printable(&self.member.name))
    }

    fn ago(&self) -> Option<String> {
        let since = self.beat?.since;
        Some(long(self.now.0.saturating_sub(since.0)))
    }

    /// The token in a word or two; empty if it is not known.
    fn token(&self) -> String {
        match self.pulse().map(|pulse| &pulse.token) {
            Some(TokenHealth::Healthy) => "works".into(),
            Some(TokenHealth::Failed(_)) => "FAILED".into(),
            None => String::new(),
        }
    }

    fn last_heard(&self) -> String {
        match self.heard {
            Some(0) => "now".into(),
            Some(millis) => format!("{} ago", long(millis)),
            None if self.beat.is_some() => "not known".into(),
            None => String::new(),
        }
    }

    /// What is wrong with it, and since when.
    fn trouble(&self) -> Option<String> {
        let named = self.named();
        let since = self.beat.zip(self.ago());
        let since = since.map_or(String::new(), |(beat, ago)| format!(" since {} ({ago})", utc(beat.since)));
        let pulse = self.pulse();
        if let Some(TokenHealth::Failed(why)) = pulse.map(|pulse| &pulse.token) {
            return Some(format!("the token of {named} failed: {}", printable(why)));
        }
        if !self.member.in_sync {
            return Some(format!("{named} is {}{since}", printable(&standing(self.member))));
        }
        if self.beat.is_some() && pulse.is_none() {
            return Some(format!("{named} does not answer"));
        }
        if let Some(why) = pulse.and_then(|pulse| pulse.refuses.as_ref()) {
            return Some(format!("{named} serves no keys: {}", printable(why)));
        }
        let troubles = pulse.map_or(0, |pulse| pulse.troubles);
        (troubles > 0).then(|| format!("{named} could not import {troubles} objects: see 'keyraft coverage'"))
    }

    fn json(&self) -> Value {
        let pulse = self.pulse();
        json!({
            "role": self.role,
            "since": self.beat.map(|beat| utc(beat.since)),
            "answers": self.beat.map(|beat| beat.pulse.is_some()),
            "serving": pulse.map(|pulse| pulse.refuses.is_none()),
            "refuses": pulse.and_then(|pulse| pulse.refuses.clone()),
            "token_works": pulse.map(|pulse| pulse.token == TokenHealth::Healthy),
            "operations_per_second": pulse.map(|pulse| pulse.rate),
            "pending": pulse.map(|pulse| pulse.pending),
            "troubles": pulse.map(|pulse| pulse.troubles),
            "started": pulse.map(|pulse| utc(pulse.started)),
            "last_heard_ms": self.heard,
        })
    }
}

/// A column of the members' table: another one is another line.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: &[Column] = &[
    ("MEMBER", |row| row.member.member.to_string()),
    ("NAME", |row| printable(&row.member.name)),
    ("ROLE", |row| role_text(row.role, row.member)),
    ("DUTY", |row| row.member.duty.to_string()),
    ("STANDING", |row| printable(&standing(row.member))),
    ("FOR", |row| row.ago().unwrap_or_default()),
    ("TOKEN", |row| row.token()),
    ("OPS/S", |row| row.pulse().map(|pulse| format!("{:.1}", pulse.rate)).unwrap_or_default()),
    ("PENDING", |row| row.pulse().map(|pulse| pulse.pending.to_string()).unwrap_or_default()),
    ("HEARD", |row| row.last_heard()),
    ("ADDRESS", |row| printable(&row.member.address)),
];

pub(super) fn role(status: &GroupStatus, member: &MemberStatus) -> &'static str {
    match (status.primary == Some(member.member), member.voter) {
        (true, _) => "primary",
        (false, true) => "voter",
        (false, false) => "learner",
    }
}

/// A role, and how much the group prefers the member as primary where that was said.
pub(super) fn role_text(role: &str, member: &MemberStatus) -> String {
    match member.priority {
        PRIORITY_DEFAULT => role.to_string(),
        priority => format!("{role}, priority {priority}"),
    }
}

/// `status`. `pulses` is None where the caller may not ask every member, or nobody was asked.
pub fn status(status: &GroupStatus, pulses: Option<&[MemberPulse]>, now: UnixMillis) -> View {
    let heard_by_primary = |member: MemberId| {
        let heard = pulses?.iter().filter_map(|beat| beat.pulse.as_ref()).flat_map(|pulse| &pulse.heard);
        heard.filter(|(known, _)| *known == member).map(|(_, millis)| *millis).min()
    };
    let row = |member| {
        let beat = pulses.and_then(|all| all.iter().find(|beat: &&MemberPulse| beat.member == member));
        (beat, if beat.is_some_and(|beat| beat.pulse.is_some()) { Some(0) } else { heard_by_primary(member) })
    };
    let rows: Vec<Row> = status
        .members
        .iter()
        .map(|member| {
            let (beat, heard) = row(member.member);
            Row { member, role: role(status, member), beat, heard, now }
        })
        .collect();
    let findings = findings(status, &rows);
    let header: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let cells = rows.iter().map(|row| COLUMNS.iter().map(|(_, cell)| cell(row)).collect());
    let text =
        format!("{}\n\n{}\n\n{}", words(status, &rows, &findings), group(status), table(&header, cells));
    let mut members = members(status).json;
    for (shown, row) in members.as_array_mut().into_iter().flatten().zip(&rows) {
        if let (Value::Object(shown), Value::Object(more)) = (shown, row.json()) {
            shown.extend(more);
        }
    }
    View { text, json: json(status, &findings, members) }
}

/// Whether all is well, in words; what is wrong, a line each.
fn words(status: &GroupStatus, rows: &[Row], findings: &[String]) -> String {
    let all = rows.len();
    let serving = rows.iter().filter(|row| row.member.in_sync && row.trouble().is_none()).count();
    if findings.is_empty() {
        let primary = rows.iter().find(|row| row.role == "primary").map(Row::named).unwrap_or_default();
        return format!("all is well: {serving} of {all} members are in sync, the primary is {primary}");
    }
    let changes = match lacking(rows) {
        Some(lack) => format!("CANNOT be changed: {lack}"),
        None if status.primary.is_none() => "CANNOT be changed: there is no primary".to_string(),
        None => "can be changed".to_string(),
    };
    let head = format!("SOMETHING IS WRONG: {serving} of {all} members serve keys, and keys {changes}");
    std::iter::once(head)
        .chain(findings.iter().map(|finding| format!("  - {finding}")))
        .collect::<Vec<_>>()
        .join("\n")
}

/// How many voters are missed, if those that answer are no majority. A primary that hears nobody leads nobody, though it
/// may not know that yet.
fn lacking(rows: &[Row]) -> Option<String> {
    let voters: Vec<&Row> = rows.iter().filter(|row| row.member.voter).collect();
    let silent = voters.iter().filter(|row| row.beat.is_some() && row.pulse().is_none()).count();
    let needed = voters.len() / 2 + 1;
    let answer = voters.len() - silent;
    (answer < needed).then(|| format!("{answer} of {} voters answer, {needed} are needed", voters.len()))
}

fn findings(status: &GroupStatus, rows: &[Row]) -> Vec<String> {
    let leaderless = status.primary.is_none().then(|| {
        let voters = rows.iter().filter(|row| row.member.voter).count();
        let uses = match status.options.isolated_service {
            IsolatedService::Serve => "keys are used on, but none can be made or deleted",
            IsolatedService::Fence => {
                "NO KEY IS USED (isolated_service is fence), and none can be made or deleted,"
            }
        };
        let needed = voters / 2 + 1;
        format!(
            "{} knows of no primary: {uses} until {needed} of the {voters} voters reach each other",
            status.answered_by
        )
    });
    leaderless.into_iter().chain(rows.iter().filter_map(Row::trouble)).collect()
}

fn group(status: &GroupStatus) -> String {
    let primary = status.primary.map_or("none".to_string(), |m| m.to_string());
    format!(
        "group {} '{}', lineage {}, answered by {}\nprimary {primary}, term {}, applied {}, objects {}, unsettled {}\n\
         user PIN {}, security officer's PIN {}\nrecovery {}",
        status.group,
        printable(&status.label),
        status.lineage,
        status.answered_by,
        status.term,
        status.applied,
        status.objects,
        status.unsettled,
        set_or_not(status.user_pin),
        set_or_not(status.so_pin),
        recovery_text(&status.options.auto_recovery)
    )
}

fn set_or_not(set: bool) -> &'static str {
    if set { "set" } else { "not set" }
}

fn json(status: &GroupStatus, findings: &[String], members: Value) -> Value {
    json!({
        "well": findings.is_empty(),
        "findings": findings,
        "answered_by": status.answered_by.to_string(),
        "group": status.group.to_string(),
        "lineage": status.lineage.0,
        "label": status.label,
        "primary": status.primary.map(|m| m.to_string()),
        "term": status.term,
        "applied": status.applied.0,
        "objects": status.objects,
        "unsettled": status.unsettled,
        "user_pin": status.user_pin,
        "so_pin": status.so_pin,
        "options": options(status).json,
        "members": members,
        "recovery": recovery(status),
    })
}

/// What the offline recovery key opens, in base64: RSA-OAEP with SHA-1 in both places, no label.
fn recovery(status: &GroupStatus) -> Vec<Value> {
    let row = |(generation, copy): &(Generation, RecoveryCopy)| {
        json!({
            "generation": generation.0,
            "recipient": BASE64.encode(&copy.recipient),
            "smk": BASE64.encode(&copy.smk),
            "envelope_key": BASE64.encode(&copy.envelope_key),
        })
    };
    status.recovery.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::group as sample;
    use super::*;
    use keyraft_engine::domain::LogIndex;

    const NOW: UnixMillis = UnixMillis(1_709_251_199_000);

    fn beat(member: u64, pulse: Option<Pulse>) -> MemberPulse {
        MemberPulse { member: MemberId(member), pulse, since: UnixMillis(NOW.0 - 240_000) }
    }

    fn pulse(token: TokenHealth, heard: &[(u64, u64)]) -> Pulse {
        Pulse {
            refuses: None,
            token,
            reached: LogIndex(9),
            troubles: 0,
            rate: 12.34,
            pending: 2,
            started: UnixMillis(0),
            heard: heard.iter().map(|(member, millis)| (MemberId(*member), *millis)).collect(),
        }
    }

    #[test]
    fn a_bad_night() {
        let beats = [beat(1, Some(pulse(TokenHealth::Healthy, &[(2, 4_500)]))), beat(2, None)];
        let view = status(&sample(), Some(&beats), NOW);
        assert_eq!(
            view.text,
            "SOMETHING IS WRONG: 1 of 2 members serve keys, and keys CANNOT be changed: 1 of 2 voters answer, 2 are needed\n  \
             - m2 ('b') is out of sync: unreachable since 2024-02-29T23:55:59.000Z (4 min)\n\
             \n\
             group 0101010101010101 'demo', lineage l1, answered by m1\n\
             primary m2, term 3, applied #9, objects 2, unsettled 0\n\
             user PIN set, security officer's PIN not set\n\
             recovery automatic, without end, every 1 s\n\
             \n\
             MEMBER  NAME  ROLE     DUTY     STANDING                  FOR    TOKEN  OPS/S  PENDING  HEARD    ADDRESS\n\
             m1      a     voter    active   in sync                   4 min  works  12.3   2        now      a:1\n\
             m2      b     primary  standby  out of sync: unreachable  4 min                         4 s ago  b:1"
        );
        assert_eq!(view.json["well"], false);
        assert_eq!(view.json["members"][1]["reason"], "unreachable");
        assert_eq!(view.json["members"][1]["last_heard_ms"], 4_500);
        assert_eq!(view.json["members"][0]["pending"], 2);
        assert_eq!(view.json["options"]["isolated_service"], "serve");
        let opens = json!([{"generation": 1, "recipient": "AQ==", "smk": "Ag==", "envelope_key": "Aw=="}]);
        assert_eq!(view.json["recovery"], opens);
    }

    #[test]
    fn a_good_night_and_a_failed_token() {
        let mut group = sample();
        group.members[1].in_sync = true;
        group.members[1].reason = None;
        let first = |view: &View| view.text.lines().next().unwrap_or_default().to_string();
        let well = status(&group, None, NOW);
        assert_eq!(first(&well), "all is well: 2 of 2 members are in sync, the primary is m2 ('b')");
        let failed = TokenHealth::Failed("gone\u{7}".into());
        let beats = [beat(1, Some(pulse(failed, &[]))), beat(2, None)];
        let view = status(&group, Some(&beats), NOW);
        assert_eq!(
            view.json["findings"],
            json!(["the token of m1 ('a') failed: gone\u{fffd}", "m2 ('b') does not answer"])
        );
        group.primary = None;
        assert!(first(&status(&group, None, NOW)).ends_with("CANNOT be changed: there is no primary"));
    }
}
