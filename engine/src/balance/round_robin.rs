//! One after another, in the order of the configuration.

use super::{Candidate, Policy};

/// Remembers who was last.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    last: Option<usize>,
}

impl Policy for RoundRobin {
    fn rank(&mut self, candidates: &[Candidate], dice: &mut dyn FnMut() -> u64) -> Vec<usize> {
        let count = candidates.len();
        // Programs that start anew each time must not all begin with the same one.
        let start = match self.last {
            Some(last) => candidates.iter().position(|c| c.member > last).unwrap_or(0),
            None => (dice() % count as u64) as usize,
        };
        self.last = Some(candidates[start].member);
        (start..count).chain(0..start).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{candidate, dice};
    use super::*;

    #[test]
    fn everybody_in_turn_also_when_one_is_missing() {
        let (mut policy, mut dice) = (RoundRobin { last: Some(2) }, dice(1));
        let all = [0, 1, 2].map(candidate);
        let firsts: Vec<usize> = (0..6).map(|_| policy.rank(&all, &mut dice)[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 0, 1, 2]);
        let some = [all[0], all[2]];
        let firsts: Vec<usize> = (0..4).map(|_| some[policy.rank(&some, &mut dice)[0]].member).collect();
        assert_eq!(firsts, [0, 2, 0, 2]);
        assert_eq!(policy.rank(&all, &mut dice), [0, 1, 2]);
    }
}
