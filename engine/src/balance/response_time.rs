//! Credits: each pick costs a member what its answers take, and whoever has most left is picked. Shares are inverse to
//! costs.

use super::{Candidate, Policy, first, sorted_by_key};

/// What each begins with, and gains when all is spent.
const CREDITS: i64 = 100;
/// What the fastest costs; the others cost as many times more as they take.
const FASTEST: f64 = 10.0;
/// The most that one costs, so that all is spent and gained in few steps.
const COST_MAX: f64 = 1000.0;

/// Each member's credits.
#[derive(Debug)]
pub(super) struct Credits(Vec<i64>);

impl Credits {
    pub fn new(members: usize) -> Self {
        Self(vec![CREDITS; members])
    }

    fn of(&mut self, member: usize) -> &mut i64 {
        if member >= self.0.len() {
            self.0.resize(member + 1, CREDITS);
        }
        &mut self.0[member]
    }

    /// Picks one of those (member, cost) that are available, by its place among them.
    fn pick(&mut self, available: &[(usize, i64)]) -> usize {
        while available.iter().all(|(member, _)| *self.of(*member) <= 0) {
            available.iter().for_each(|(member, _)| *self.of(*member) += CREDITS);
        }
        let best = available.iter().map(|(member, _)| *self.of(*member)).max();
        let place = available.iter().position(|(member, _)| Some(*self.of(*member)) == best).unwrap_or(0);
        if let Some((member, cost)) = available.get(place) {
            *self.of(*member) -= cost;
        }
        place
    }
}

impl Policy for Credits {
    fn rank(&mut self, candidates: &[Candidate], _: &mut dyn FnMut() -> u64) -> Vec<usize> {
        let known = candidates.iter().map(|c| c.takes).filter(|takes| *takes > 0.0);
        let fastest = known.fold(f64::INFINITY, f64::min);
        let cost = |takes: f64| {
            let times = if takes > 0.0 { takes / fastest } else { 1.0 };
            (FASTEST * times).min(COST_MAX).round() as i64
        };
        let available: Vec<(usize, i64)> = candidates.iter().map(|c| (c.member, cost(c.takes))).collect();
        first(self.pick(&available), sorted_by_key(candidates, |c| c.takes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{candidate, cases, dice};
    use super::*;

    #[test]
    fn vectors() {
        for case in cases(include_str!("../../../tests/vectors/response_time_balancer.json")) {
            let numbers = |list: &serde_json::Value| -> Vec<i64> {
                list.as_array().expect("a list").iter().map(|n| n.as_i64().expect("a number")).collect()
            };
            let available: Vec<(usize, i64)> = numbers(&case["costs"]).into_iter().enumerate().collect();
            let mut credits = Credits::new(available.len());
            for wanted in numbers(&case["picks"]) {
                assert_eq!(credits.pick(&available) as i64, wanted, "{case}");
            }
            let Some(shares) = case.get("shares_after") else { continue };
            let (mut credits, mut counts) = (Credits::new(available.len()), vec![0; available.len()]);
            for _ in 0..shares["picks"].as_i64().expect("a number") {
                counts[credits.pick(&available)] += 1;
            }
            assert_eq!(counts, numbers(&shares["counts"]), "{case}");
        }
    }

    #[test]
    fn shares_are_inverse_to_times() {
        let mut credits = Credits::new(2);
        let mut candidates = [candidate(0), candidate(1)];
        candidates[1].takes *= 4.0;
        let mut dice = dice(1);
        let firsts = (0..1000).filter(|_| credits.rank(&candidates, &mut dice)[0] == 1).count();
        assert_eq!(firsts, 200);
    }
}
