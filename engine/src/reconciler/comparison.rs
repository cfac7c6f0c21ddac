//! What `synchronize` tells of one member: object by object what a comparison did, or could not do and why. Pure.

use super::held::Trouble;
use super::plan::Step;
use crate::domain::{MemberId, ObjectId};
use crate::limits;
use crate::state::{Phase, State};
use crate::wire::{Compared, Comparison, ComparisonTotals};
use std::collections::{BTreeMap, BTreeSet};

/// What came of a round at `me`: what was compared, what there was to do, what failed, and what is held now.
pub fn comparison(
    agreed: &State,
    me: MemberId,
    scope: &BTreeSet<ObjectId>,
    steps: &[Step],
    troubles: &BTreeMap<ObjectId, Trouble>,
    held: impl Fn(ObjectId) -> bool,
) -> Comparison {
    let done: BTreeMap<ObjectId, Compared> = steps
        .iter()
        .map(|step| match step {
            Step::Import(name) => (name.object, Compared::Imported),
            Step::Drop(object) => (*object, Compared::Dropped),
        })
        .collect();
    let cannot = |why: &str| Some(Compared::Cannot { why: why.to_string() });
    let what = |id: ObjectId| {
        if let Some(trouble) = troubles.get(&id) {
            return cannot(&trouble.reason);
        }
        if let Some(done) = done.get(&id) {
            return Some(done.clone());
        }
        match agreed.object(id).filter(|row| !matches!(row.phase, Phase::Removing(_))) {
            Some(row) => match row.excluded.get(&me) {
                Some(refusal) => cannot(&refusal.reason),
                None => Some(Compared::Kept),
            },
            None if held(id) => {
                cannot("it is not agreed any more, and no quorum has confirmed that since this start")
            }
            None => None,
        }
    };
    let mut rows: Vec<(ObjectId, Compared)> = scope.iter().filter_map(|id| Some((*id, what(*id)?))).collect();
    let mut totals = ComparisonTotals::default();
    rows.iter().for_each(|(_, what)| totals.count(what));
    rows.sort_by_key(|(_, what)| what.urgency());
    let mut bytes = 0;
    let fits = |(_, what): &&(ObjectId, Compared)| {
        bytes += what.bytes();
        bytes <= limits::COMPARISON_MAX_BYTES
    };
    let count = rows.iter().take(limits::ROWS_MAX).take_while(fits).count();
    let more = rows.len() > count;
    rows.truncate(count);
    Comparison { totals, rows, more }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ContentKey, Generation, Version};

    fn name(object: u64) -> ContentKey {
        ContentKey { object: ObjectId(object), version: Version(1), generation: Generation(1) }
    }

    fn trouble(reason: &str) -> Trouble {
        #[expect(clippy::disallowed_methods, reason = "a test's time")]
        let next = std::time::Instant::now();
        Trouble { reason: reason.into(), tries: 1, refused: true, next }
    }

    #[test]
    fn failures_come_first_and_hide_nothing_that_was_done() {
        let scope = (1..=5).map(ObjectId).collect();
        let steps = [Step::Import(name(1)), Step::Import(name(2)), Step::Drop(ObjectId(3))];
        let troubles = [(ObjectId(2), trouble("full"))].into();
        let held = |id| id == ObjectId(4);
        let told = comparison(&State::default(), MemberId(1), &scope, &steps, &troubles, held);
        let ids: Vec<u64> = told.rows.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [2, 4, 1, 3], "nobody has or wants the fifth");
        assert_eq!(told.rows[0].1, Compared::Cannot { why: "full".into() });
        assert!(matches!(&told.rows[1].1, Compared::Cannot { why } if why.contains("quorum")));
        assert_eq!(told.rows[2].1, Compared::Imported);
        assert_eq!(told.rows[3].1, Compared::Dropped);
        let totals = ComparisonTotals { imported: 1, dropped: 1, kept: 0, cannot: 2 };
        assert_eq!((told.totals, told.more), (totals, false));
    }

    #[test]
    fn rows_are_bounded_and_counts_are_not() {
        let many = limits::ROWS_MAX as u64 + 5;
        let scope: BTreeSet<ObjectId> = (1..=many).map(ObjectId).collect();
        let steps: Vec<Step> = scope.iter().map(|id| Step::Drop(*id)).collect();
        let told = comparison(&State::default(), MemberId(1), &scope, &steps, &BTreeMap::new(), |_| false);
        assert_eq!((told.rows.len(), told.totals.dropped, told.more), (limits::ROWS_MAX, many, true));
        let long = trouble(&"x".repeat(limits::COMPARISON_MAX_BYTES / 2));
        let troubles = (1..=3).map(|id| (ObjectId(id), long.clone())).collect();
        let told = comparison(&State::default(), MemberId(1), &scope, &steps, &troubles, |_| false);
        assert!(told.rows.len() < 3 && told.more && told.totals.cannot == 3);
    }
}
