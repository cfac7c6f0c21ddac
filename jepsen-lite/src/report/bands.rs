//! What the papers draw behind operations: when faults lasted, and how members stood.

use crate::edn::Value;
use crate::history::{Event, Function, History};

/// How long a primary's word on the group is drawn after it was given, ns: members are looked at five times a second.
const WORD_NS: u64 = 1_000_000_000;

/// A fault's time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Band {
    /// When it began, ns.
    pub begin: u64,
    /// When it was mended, ns.
    pub end: u64,
    /// When every member said that all was whole again, in time; ns. The history's end if none did.
    pub whole: u64,
    /// Its name and shape.
    pub name: String,
    /// Bands with one row do not overlap.
    pub row: usize,
}

/// Every fault's time, in order.
pub(super) fn bands(history: &History) -> Vec<Band> {
    let last = end(history);
    let fault = |value: &Value| value.get("fault").and_then(Value::text).unwrap_or("fault").to_string();
    let ends: Vec<(usize, String)> =
        history.of_nemesis(&Function::FaultEnd).map(|(at, event)| (at, fault(&event.value))).collect();
    let in_time = |event: &Event| event.value.get("in-time") == Some(&Value::Bool(true));
    let wholes = history.of_nemesis(&Function::Whole).filter(|(_, event)| in_time(event));
    let wholes: Vec<usize> = wholes.map(|(at, _)| at).collect();
    // Until when each row is taken.
    let mut taken: Vec<u64> = Vec::new();
    let band = |(at, event): (usize, &Event)| {
        let name = fault(&event.value);
        let shape = event.value.get("shape").and_then(Value::text).unwrap_or_default();
        let end = ends.iter().find(|(end, ended)| *end > at && *ended == name);
        let end = end.map_or(last, |(end, _)| history.time(*end));
        let whole = wholes.iter().find(|whole| **whole > at);
        let whole = whole.map_or(last, |whole| history.time(*whole)).max(end);
        let begin = history.time(at);
        let row = taken.iter().position(|until| *until <= begin).unwrap_or(taken.len());
        taken.resize(taken.len().max(row + 1), 0);
        taken[row] = end;
        Band { begin, end, whole, name: format!("{name} {shape}").trim_end().to_string(), row }
    };
    history.of_nemesis(&Function::FaultBegin).map(band).collect()
}

/// How a member stands, by the primary's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It leads.
    Primary,
    /// It holds all that it is meant to.
    InSync,
    /// It does not.
    Behind,
}

/// For how long a member stood so.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Its place.
    pub member: usize,
    /// Since when, ns.
    pub from: u64,
    /// Until when, ns.
    pub to: u64,
    pub standing: Standing,
}

/// How each of so many members stood. While nobody leads nothing is known.
pub(super) fn stretches(history: &History, members: usize) -> Vec<Stretch> {
    let leads = |event: &Event| event.value.get("leads") == Some(&Value::Bool(true));
    let words: Vec<(u64, &Event)> = history
        .of_nemesis(&Function::Seen)
        .filter(|(_, event)| leads(event))
        .map(|(at, event)| (history.time(at), event))
        .collect();
    let mut stretches = Vec::new();
    for member in 0..members {
        let mut open: Option<Stretch> = None;
        for (at, (from, event)) in words.iter().enumerate() {
            let next = words.get(at + 1).map_or_else(|| end(history), |(next, _)| *next);
            let to = next.min(from.saturating_add(WORD_NS));
            let standing = standing(event, member);
            match &mut open {
                Some(one) if one.to == *from && one.standing == standing => one.to = to,
                _ => stretches.extend(open.replace(Stretch { member, from: *from, to, standing })),
            }
        }
        stretches.extend(open);
    }
    stretches
}

fn standing(event: &Event, member: usize) -> Standing {
    let place = i64::try_from(member).unwrap_or(i64::MAX);
    let in_sync = event.value.get("in-sync").and_then(Value::ints).unwrap_or_default();
    if event.value.int_at("member") == Some(place) {
        Standing::Primary
    } else if in_sync.contains(&place) {
        Standing::InSync
    } else {
        Standing::Behind
    }
}

/// When the last event happened, ns.
pub(super) fn end(history: &History) -> u64 {
    history.time(history.events.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::parse;

    #[test]
    fn faults_that_overlap_have_rows_of_their_own() {
        let event = |f: &str, fault: &str, time: u64| {
            format!(
                "{{:process :nemesis, :type :info, :f :{f}, :time {time}, :value {{:fault :{fault}, :shape :one}}}}\n"
            )
        };
        let log = event("fault-begin", "kill", 1)
            + &event("fault-begin", "loss", 2)
            + &event("fault-end", "kill", 3)
            + &event("fault-begin", "pause", 4)
            + &event("fault-end", "loss", 5)
            + &event("fault-end", "pause", 6);
        let whole = |in_time: bool| {
            format!("{{:process :nemesis, :type :info, :f :whole, :time 8, :value {{:in-time {in_time}}}}}\n")
        };
        let drawn = |in_time: bool| {
            let later = event("fault-begin", "kill", 9);
            bands(&parse(&(log.clone() + &whole(in_time) + &later)).expect("is read"))
        };
        let rows = |bands: Vec<Band>| -> Vec<(String, u64, u64, u64, usize)> {
            bands.into_iter().map(|b| (b.name, b.begin, b.end, b.whole, b.row)).collect()
        };
        let row = |name: &str, begin, end, whole, row| (name.to_string(), begin, end, whole, row);
        let last = row("kill one", 9, 9, 9, 0);
        let healed = [
            row("kill one", 1, 3, 8, 0),
            row("loss one", 2, 5, 8, 1),
            row("pause one", 4, 6, 8, 0),
            last.clone(),
        ];
        assert_eq!(rows(drawn(true)), healed);
        // What did not become whole in time was not whole.
        assert!(rows(drawn(false)).iter().all(|(_, _, _, whole, _)| *whole == 9));
    }

    #[test]
    fn members_stand_as_the_primary_says_and_for_no_longer_than_its_word_lasts() {
        let seen = |ms: u64, member: u64, leads: bool, in_sync: &str| {
            format!(
                "{{:process :nemesis, :type :info, :f :seen, :time {}, :value {{:member {member}, :leads {leads}, :in-sync [{in_sync}]}}}}\n",
                ms * 1_000_000
            )
        };
        let log = seen(0, 0, true, "0 1")
            + &seen(100, 1, false, "")
            + &seen(200, 0, true, "0 1")
            + &seen(5_000, 1, true, "1")
            + &seen(5_100, 0, false, "");
        let drawn = stretches(&parse(&log).expect("is read"), 2);
        let ms: Vec<_> =
            drawn.iter().map(|s| (s.member, s.from / 1_000_000, s.to / 1_000_000, s.standing)).collect();
        assert_eq!(
            ms,
            [
                (0, 0, 1_200, Standing::Primary),
                (0, 5_000, 5_100, Standing::Behind),
                (1, 0, 1_200, Standing::InSync),
                (1, 5_000, 5_100, Standing::Primary)
            ]
        );
    }
}
