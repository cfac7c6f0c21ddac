//! A source stays with its member. A new one, or one whose member is not fit, chooses by weighted round robin. Here a
//! source is an application's process: where in the round it begins is random, since processes do not know each other.

use super::{Candidate, Policy, first, sorted_by_key};

/// This source's member.
#[derive(Debug, Default)]
pub(super) struct Affinity {
    mine: Option<usize>,
    /// The next turn of the round.
    turn: Option<u64>,
}

impl Policy for Affinity {
    fn rank(&mut self, candidates: &[Candidate], dice: &mut dyn FnMut() -> u64) -> Vec<usize> {
        let mine = candidates.iter().position(|c| Some(c.member) == self.mine);
        let place = mine.unwrap_or_else(|| {
            let turn = self.turn.get_or_insert_with(dice);
            let weights: Vec<u32> = candidates.iter().map(|c| c.weight).collect();
            let place = at_turn(&weights, *turn);
            *turn = turn.wrapping_add(1);
            place
        });
        self.mine = Some(candidates[place].member);
        first(place, sorted_by_key(candidates, |c| -f64::from(c.weight)))
    }
}

/// Whose turn it is in a round of as many turns as all weights together: each as often as its weight says. The turns of
/// each are spread over the round.
fn at_turn(weights: &[u32], turn: u64) -> usize {
    let sum: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
    let mut credits = vec![0; weights.len()];
    let mut best = 0;
    for _ in 0..=turn.checked_rem(sum.unsigned_abs()).unwrap_or(0) {
        credits.iter_mut().zip(weights).for_each(|(credit, weight)| *credit += i64::from(*weight));
        best = 0;
        for place in 1..credits.len() {
            if credits[place] > credits[best] {
                best = place;
            }
        }
        credits[best] -= sum;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::tests::{candidate, cases, dice};
    use super::*;

    #[test]
    fn vectors() {
        for case in cases(include_str!("../../../tests/vectors/source_affinity.json")) {
            let table = |key: &str| case[key].as_object().expect("a table").clone();
            let names: Vec<String> = table("weights").keys().cloned().collect();
            let number =
                |value: &serde_json::Value| u32::try_from(value.as_u64().expect("a number")).expect("small");
            let weights: Vec<u32> = table("weights").values().map(number).collect();
            let mut counts = vec![0; names.len()];
            for source in 0..case["new_sources"].as_u64().expect("a number") {
                counts[at_turn(&weights, source)] += 1;
            }
            for (name, count) in names.iter().zip(counts) {
                assert_eq!(number(&table("counts")[name]), count, "{name} of {case}");
            }
        }
    }

    #[test]
    fn it_stays_while_its_member_is_fit() {
        let (mut policy, mut dice) = (Affinity::default(), dice(9));
        let all = [0, 1, 2].map(candidate);
        let mine = policy.rank(&all, &mut dice)[0];
        for _ in 0..10 {
            assert_eq!(policy.rank(&all, &mut dice)[0], mine);
        }
        let others: Vec<Candidate> = all.iter().copied().filter(|c| c.member != mine).collect();
        let next = others[policy.rank(&others, &mut dice)[0]].member;
        assert_ne!(next, mine);
        assert_eq!(policy.rank(&all, &mut dice)[0], next, "and with the next one as long");
    }

    #[test]
    fn applications_that_do_not_know_each_other_spread_by_weights() {
        let mut dice = dice(11);
        let mut candidates = [0, 1, 2].map(candidate);
        for (candidate, weight) in candidates.iter_mut().zip([40, 40, 20]) {
            candidate.weight = weight;
        }
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[Affinity::default().rank(&candidates, &mut dice)[0]] += 1;
        }
        assert!((3700..4300).contains(&counts[0]) && (1800..2200).contains(&counts[2]), "{counts:?}");
    }
}
