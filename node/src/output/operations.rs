//! `explain`: what clients asked lately, and what became of it.

use super::{View, printable, table};
use crate::moment::utc;
use crate::names;
use keyraft_engine::domain::MemberId;
use keyraft_engine::wire::Operation;
use serde_json::{Value, json};

/// `explain`.
pub fn operations(rows: &[Operation], silent: &[MemberId]) -> View {
    let cells = rows.iter().map(|row| {
        let result = match row.reason.as_str() {
            "" => names::return_value(row.code),
            why => format!("{}: {}", names::return_value(row.code), printable(why)),
        };
        let by =
            if row.by == row.asked { row.by.to_string() } else { format!("{} by {}", row.asked, row.by) };
        vec![
            utc(row.at),
            printable(&row.client),
            printable(&row.kind),
            row.mechanism.map(names::mechanism).unwrap_or_default(),
            row.object.map(|object| object.to_string()).unwrap_or_default(),
            by,
            row.tries.to_string(),
            millis(row),
            result,
        ]
    });
    let header = ["TIME", "CLIENT", "WHAT", "MECHANISM", "OBJECT", "MEMBER", "TRY", "MS", "RESULT"];
    let mut text =
        if rows.is_empty() { "no member remembers such an operation".into() } else { table(&header, cells) };
    if !silent.is_empty() {
        let names: Vec<String> = silent.iter().map(ToString::to_string).collect();
        text.push_str(&format!("\nwhat was asked of {} is not known: no answer", names.join(", ")));
    }
    let silent: Vec<String> = silent.iter().map(ToString::to_string).collect();
    View { text, json: json!({"operations": rows.iter().map(json_of).collect::<Vec<_>>(), "silent": silent}) }
}

fn millis(row: &Operation) -> String {
    format!("{}.{}", row.micros / 1000, row.micros % 1000 / 100)
}

fn json_of(row: &Operation) -> Value {
    json!({
        "time": utc(row.at),
        "client": row.client,
        "what": row.kind,
        "mechanism": row.mechanism.map(names::mechanism),
        "object": row.object.map(|object| object.0),
        "asked": row.asked.to_string(),
        "by": row.by.to_string(),
        "try": row.tries,
        "micros": row.micros,
        "result": names::return_value(row.code),
        "reason": if row.reason.is_empty() { None } else { Some(&row.reason) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::clock::UnixMillis;
    use keyraft_engine::domain::ObjectId;

    #[test]
    fn operations_golden() {
        let done = Operation {
            at: UnixMillis(1_709_251_199_000),
            client: "client:web".into(),
            kind: "sign".into(),
            mechanism: Some(0x1041),
            object: Some(ObjectId(7)),
            asked: MemberId(1),
            by: MemberId(1),
            tries: 1,
            micros: 1_250,
            code: 0,
            reason: String::new(),
        };
        let failed = Operation {
            by: MemberId(2),
            tries: 3,
            mechanism: None,
            kind: "login".into(),
            object: None,
            code: 0xA0,
            reason: "the PIN is wrong".into(),
            ..done.clone()
        };
        let view = operations(&[done, failed], &[MemberId(3)]);
        assert_eq!(
            view.text,
            "TIME                      CLIENT      WHAT   MECHANISM  OBJECT  MEMBER    TRY  MS   RESULT\n\
             2024-02-29T23:59:59.000Z  client:web  sign   CKM_ECDSA  7       m1        1    1.2  CKR_OK\n\
             2024-02-29T23:59:59.000Z  client:web  login                     m1 by m2  3    1.2  CKR_PIN_INCORRECT: the PIN is wrong\n\
             what was asked of m3 is not known: no answer"
        );
        assert_eq!(view.json["operations"][1]["result"], "CKR_PIN_INCORRECT");
        assert_eq!(view.json["silent"], json!(["m3"]));
    }
}
