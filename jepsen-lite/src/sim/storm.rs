//! What comes when in a simulated run: rounds of several faults that overlap freely, since time costs little here. Decided
//! by the seed alone.

use crate::dice::Dice;
use crate::nemesis::{Fault, Strike};

/// Of more faults than this, one seed has so many.
const DRAWN_MAX: u64 = 4;
/// A round's first fault begins after this, and the others within as much again, milliseconds.
const BEGINS_MS: u64 = 1_500;
/// A fault lasts at least and at most so long, milliseconds: elections take less than the first, and what gives up a
/// connection or an operation does so before the second.
const LASTS_MS: (u64, u64) = (800, 6_000);

/// Which of these faults a seed has.
pub fn drawn(faults: &[Fault], dice: &mut Dice) -> Vec<Fault> {
    let mut all = dice.mixed(faults.to_vec());
    if all.len() as u64 > DRAWN_MAX {
        all.truncate(usize::try_from(1 + dice.below(DRAWN_MAX)).unwrap_or(1));
    }
    all
}

/// One round of faults, by their beginnings.
pub fn round(faults: &[Fault], dice: &mut Dice) -> Vec<Strike> {
    let mut strikes = Vec::new();
    for fault in dice.mixed(faults.to_vec()) {
        // Not all of them each time.
        if strikes.len() > 1 && dice.below(3) == 0 {
            continue;
        }
        // Half of them leave a quorum.
        let gentle = dice.below(2) == 0;
        let Some(shape) = dice.one_of(fault.shapes(gentle)).copied() else { continue };
        let begins = BEGINS_MS / 3 + dice.below(BEGINS_MS);
        let lasts = LASTS_MS.0 + dice.below(LASTS_MS.1 - LASTS_MS.0);
        strikes.push(Strike { fault, shape, begins, ends: begins + lasts });
    }
    strikes.sort_by_key(|strike| strike.begins);
    strikes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_seed_decides_and_faults_overlap() {
        let rounds = |seed| {
            let mut dice = Dice::new(seed);
            let faults = drawn(Fault::ALL, &mut dice);
            (0..5).map(|_| round(&faults, &mut dice)).collect::<Vec<_>>()
        };
        assert_eq!(rounds(4), rounds(4));
        assert_ne!(rounds(4), rounds(5));
        let all: Vec<Vec<Strike>> = (0..100).flat_map(rounds).collect();
        let faults: BTreeSet<Fault> = all.iter().flatten().map(|strike| strike.fault).collect();
        assert_eq!(faults.len(), Fault::ALL.len());
        assert!(all.iter().all(|round| !round.is_empty()));
        assert!(all.iter().any(|round| round.len() > 2 && round[2].begins < round[0].ends));
    }
}
