//! The member that does the least at once for this application: a connection is a session there, and is used by one
//! call at a time. Equals in turn.

use super::round_robin::RoundRobin;
use super::{Candidate, Policy};

/// Remembers whose turn it is.
#[derive(Debug, Default)]
pub(super) struct FewestSessions(RoundRobin);

impl Policy for FewestSessions {
    fn rank(&mut self, candidates: &[Candidate], dice: &mut dyn FnMut() -> u64) -> Vec<usize> {
        let fewest = candidates.iter().map(|c| c.sessions).min();
        let equals: Vec<Candidate> =
            candidates.iter().copied().filter(|c| Some(c.sessions) == fewest).collect();
        // Those that are not asked now keep their place in the row.
        let turn: Vec<usize> =
            self.0.rank(&equals, dice).into_iter().map(|place| equals[place].member).collect();
        let mut places: Vec<usize> = (0..candidates.len()).collect();
        let turn_of = |place: &usize| turn.iter().position(|member| *member == candidates[*place].member);
        places.sort_by_key(|place| (candidates[*place].sessions, turn_of(place)));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{candidate, dice};
    use super::*;

    #[test]
    fn the_fewest_first_and_equals_in_turn() {
        let (mut policy, mut dice) = (FewestSessions::default(), dice(1));
        let mut candidates = [0, 1, 2].map(candidate);
        candidates[0].sessions = 2;
        let firsts: Vec<usize> = (0..4).map(|_| policy.rank(&candidates, &mut dice)[0]).collect();
        assert!(firsts == [1, 2, 1, 2] || firsts == [2, 1, 2, 1], "{firsts:?}");
        candidates[1].sessions = 3;
        assert_eq!(policy.rank(&candidates, &mut dice), [2, 0, 1]);
    }
}
