//! Which answers are slow: much slower than the others' usual ones, again and again.

use super::{Call, Class};
use crate::limits;
use std::time::Instant;

/// What one answer counts in the usual times.
const WEIGHT: f64 = 0.1;

/// What an answer took, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// All in all.
    whole: f64,
    /// For each of the calls that were under way there with it: a member with much to do is not slow.
    each: f64,
}

impl Times {
    fn of(call: &Call, now: Instant) -> Self {
        let whole = now.saturating_duration_since(call.begun).as_secs_f64();
        Self { whole, each: whole / f64::from(call.among.max(1)) }
    }

    fn towards(self, next: Self) -> Self {
        let step = |from: f64, to: f64| from + (to - from) * WEIGHT;
        Self { whole: step(self.whole, next.whole), each: step(self.each, next.each) }
    }

    /// What is usual among several: the medians.
    pub fn median(all: &[Self]) -> Option<Self> {
        let middle = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            let high = values.get(values.len() / 2).copied()?;
            let low = values.get(values.len().saturating_sub(1) / 2).copied()?;
            Some((low + high) / 2.0)
        };
        let whole = middle(all.iter().map(|times| times.whole).collect())?;
        Some(Self { whole, each: middle(all.iter().map(|times| times.each).collect())? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Slow,
    /// Slow for the little that it had to do, and yet no slower than others that had more.
    Open,
    Usual,
}

fn judge(times: Times, elsewhere: Times) -> Verdict {
    let over = |took: f64, usual: f64, factor: f64| took > usual * factor + limits::SLOW_MARGIN.as_secs_f64();
    let idle = over(times.each, elsewhere.each, limits::SLOW_FACTOR);
    let much = over(times.whole, elsewhere.whole, limits::SLOW_FACTOR);
    let more = over(times.whole, elsewhere.whole, limits::SLOW_FACTOR / 2.0);
    match (idle, much, more) {
        (_, true, _) | (true, _, true) => Verdict::Slow,
        (true, false, false) => Verdict::Open,
        (false, false, _) => Verdict::Usual,
    }
}

/// What a member's answers usually take, by class, and how many slow ones came in a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulse {
    usual: [Option<Times>; Class::COUNT],
    row: Option<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    first: Instant,
    count: u32,
}

impl Pulse {
    /// The usual times; None without an answer of this class.
    pub fn usual(&self, class: Class) -> Option<Times> {
        self.usual[class.index()]
    }

    /// Takes an answer in. True once the member must be called slow beside what is usual elsewhere: a hiccup that
    /// meets some calls at once is not enough.
    pub fn answered(&mut self, call: &Call, elsewhere: Option<Times>, now: Instant) -> bool {
        let times = Times::of(call, now);
        let usual = &mut self.usual[call.class.index()];
        *usual = Some(usual.map_or(times, |before| before.towards(times)));
        let Some(elsewhere) = elsewhere.filter(|_| call.class.is_even()) else { return false };
        match judge(times, elsewhere) {
            Verdict::Usual => self.row = None,
            Verdict::Open => {}
            Verdict::Slow => self.row.get_or_insert(Row { first: now, count: 0 }).count += 1,
        }
        self.row.is_some_and(|row| {
            row.count >= limits::SLOW_ANSWERS && now.saturating_duration_since(row.first) >= limits::SLOW_SPAN
        })
    }

    /// Forgets what was, when the member comes back.
    pub fn begin_anew(&mut self) {
        *self = Self::default();
    }
}
