//! What members are for, how they come back, and what `synchronize` did.

use super::{View, printable, table};
use keyraft_engine::domain::MemberId;
use keyraft_engine::state::AutoRecovery;
use keyraft_engine::wire::{Compared, ComparisonRow, ComparisonTotals, MemberStatus};
use serde_json::{Value, json};

/// Whether a member is in sync; if not, why, and what it waits for.
pub(super) fn standing(member: &MemberStatus) -> String {
    let waits = if member.awaits_operator {
        format!("; waits for 'keyraft member recover {}'", member.member)
    } else {
        String::new()
    };
    match (&member.reason, member.in_sync) {
        (_, true) => "in sync".into(),
        (Some(reason), false) => format!("out of sync: {reason}{waits}"),
        (None, false) => "catching up".into(),
    }
}

/// How members come back, in a line.
pub fn recovery_text(recovery: &AutoRecovery) -> String {
    match recovery.retries {
        0 => "manual: a member that left waits for an operator".into(),
        -1 => format!("automatic, without end, every {} s", recovery.interval_seconds),
        retries => format!(
            "automatic, {retries} times every {} s; then a member waits for an operator",
            recovery.interval_seconds
        ),
    }
}

/// The same for programs.
pub fn recovery_json(recovery: &AutoRecovery) -> Value {
    json!({
        "mode": if recovery.retries == 0 { "manual" } else { "auto" },
        "retries": recovery.retries,
        "interval": recovery.interval_seconds,
    })
}

fn action(action: &Compared) -> (&'static str, Option<&str>) {
    match action {
        Compared::Imported => ("imported", None),
        Compared::Dropped => ("dropped", None),
        Compared::Kept => ("kept", None),
        Compared::Cannot { why } => ("cannot", Some(why)),
    }
}

/// `synchronize`. People are spared the rows of what was kept; they are counted.
pub fn synchronized(rows: &[ComparisonRow], totals: &[(MemberId, ComparisonTotals)], more: bool) -> View {
    let shown = rows.iter().filter(|row| row.action != Compared::Kept).map(|row| {
        let (name, why) = action(&row.action);
        vec![
            row.member.to_string(),
            row.object.map(|object| object.to_string()).unwrap_or_default(),
            printable(&row.label),
            why.map_or_else(|| name.to_string(), |why| format!("{name}: {}", printable(why))),
        ]
    });
    let shown: Vec<Vec<String>> = shown.collect();
    let mut parts = Vec::new();
    if !shown.is_empty() {
        parts.push(table(&["MEMBER", "OBJECT", "LABEL", "ACTION"], shown));
    }
    if more {
        parts.push(
            "there are more rows than one answer holds: synchronize again, or see 'keyraft coverage'".into(),
        );
    }
    let counts = totals.iter().map(|(member, n)| {
        let cells = [n.imported, n.dropped, n.kept, n.cannot].map(|n| n.to_string());
        std::iter::once(member.to_string()).chain(cells).collect()
    });
    parts.push(table(&["MEMBER", "IMPORTED", "DROPPED", "KEPT", "CANNOT"], counts));
    let row_json = |row: &ComparisonRow| {
        let (name, why) = action(&row.action);
        json!({
            "member": row.member.to_string(),
            "object": row.object.map(|object| object.0),
            "label": row.label,
            "action": name,
            "why": why,
        })
    };
    let totals_json = totals.iter().map(|(member, n)| {
        json!({
            "member": member.to_string(),
            "imported": n.imported,
            "dropped": n.dropped,
            "kept": n.kept,
            "cannot": n.cannot,
        })
    });
    View {
        text: parts.join("\n\n"),
        json: json!({
            "rows": rows.iter().map(row_json).collect::<Vec<_>>(),
            "members": totals_json.collect::<Vec<_>>(),
            "more": more,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::ObjectId;

    #[test]
    fn synchronized_golden() {
        let row = |member, object, label: &str, action| ComparisonRow {
            member: MemberId(member),
            object,
            label: label.into(),
            action,
        };
        let rows = [
            row(3, None, "", Compared::Cannot { why: "m3 does not answer".into() }),
            row(2, Some(ObjectId(7)), "pay\x1b", Compared::Cannot { why: "full".into() }),
            row(2, Some(ObjectId(8)), "y", Compared::Imported),
            row(1, Some(ObjectId(7)), "pay\x1b", Compared::Kept),
        ];
        let counts = |imported, kept, cannot| ComparisonTotals { imported, dropped: 0, kept, cannot };
        let totals =
            [(MemberId(1), counts(0, 1, 0)), (MemberId(2), counts(1, 0, 1)), (MemberId(3), counts(0, 0, 1))];
        let view = synchronized(&rows, &totals, false);
        assert_eq!(
            view.text,
            "MEMBER  OBJECT  LABEL  ACTION\n\
             m3                     cannot: m3 does not answer\n\
             m2      7       pay\u{fffd}   cannot: full\n\
             m2      8       y      imported\n\
             \n\
             MEMBER  IMPORTED  DROPPED  KEPT  CANNOT\n\
             m1      0         0        1     0\n\
             m2      1         0        0     1\n\
             m3      0         0        0     1"
        );
        assert_eq!(view.json["rows"][1]["why"], "full");
        assert_eq!(view.json["rows"][3]["action"], "kept");
        assert_eq!(view.json["members"][1]["imported"], 1);
        assert!(synchronized(&[], &totals, true).text.contains("there are more rows"));
    }

    #[test]
    fn ways_back_in_words() {
        let text = |retries| recovery_text(&AutoRecovery { retries, interval_seconds: 60 });
        assert!(text(0).starts_with("manual"));
        assert_eq!(text(-1), "automatic, without end, every 60 s");
        assert!(text(3).starts_with("automatic, 3 times every 60 s"));
    }
}
