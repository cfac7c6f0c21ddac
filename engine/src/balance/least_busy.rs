//! Two different ones at random, and of these that with less to do: what a call takes there, times those that wait and
//! this one. The others follow by the same measure.

use super::{Candidate, Policy, first, sorted_by_key};

/// Without any answer yet a call takes this, seconds, so that waiting calls count.
const UNKNOWN: f64 = 1e-6;

#[derive(Debug)]
pub(super) struct LeastBusy;

fn load(candidate: &Candidate) -> f64 {
    candidate.takes.max(UNKNOWN) * (f64::from(candidate.pending) + 1.0)
}

impl Policy for LeastBusy {
    fn rank(&mut self, candidates: &[Candidate], dice: &mut dyn FnMut() -> u64) -> Vec<usize> {
        let places = sorted_by_key(candidates, load);
        let [one, other] = two(candidates.len(), dice());
        let better = if load(&candidates[other]) < load(&candidates[one]) { other } else { one };
        first(better, places)
    }
}

/// Two different places out of so many, which is at least two.
fn two(count: usize, random: u64) -> [usize; 2] {
    let count = count as u64;
    let one = (random >> 32) % count;
    let other = (one + 1 + (random & 0xFFFF_FFFF) % count.saturating_sub(1).max(1)) % count;
    [one as usize, other as usize]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{candidate, dice};
    use super::*;

    #[test]
    fn the_less_busy_of_two_and_of_equals_the_first() {
        let mut dice = dice(3);
        let mut candidates = [candidate(0), candidate(1)];
        let mut firsts = [0; 2];
        for _ in 0..1000 {
            firsts[LeastBusy.rank(&candidates, &mut dice)[0]] += 1;
        }
        assert!(firsts.iter().all(|count| *count > 400), "equals share: {firsts:?}");
        candidates[0].pending = 1;
        assert_eq!(LeastBusy.rank(&candidates, &mut dice), [1, 0]);
        candidates[1].takes *= 2.5;
        assert_eq!(LeastBusy.rank(&candidates, &mut dice), [0, 1]);
    }

    #[test]
    fn every_pair_is_drawn() {
        let mut dice = dice(5);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let [one, other] = two(4, dice());
            assert_ne!(one, other);
            seen.insert((one, other));
        }
        assert_eq!(seen.len(), 12);
    }
}
