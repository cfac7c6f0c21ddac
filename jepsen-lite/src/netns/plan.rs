//! What comes when: rounds of one fault or two that overlap, each followed by the time to heal. Decided by the seed alone.

use super::dice::Dice;
use std::collections::BTreeSet;
use std::fmt;

/// What can happen to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9.
    Kill,
    /// SIGSTOP: they hang, and their connections stay open.
    Pause,
    /// Links between members are silently cut.
    Partition,
    /// A data folder takes nothing more.
    Disk,
    /// The power of their disks is cut: what was not synced is gone, and so are their processes.
    Power,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Kill, Self::Pause, Self::Partition, Self::Disk, Self::Power];

    /// As `--nemesis` and histories call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Partition => "partition",
            Self::Disk => "disk",
            Self::Power => "power",
        }
    }

    /// The fault of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// What it may hit. The first time of each fault it is one that leaves a quorum.
    fn shapes(self, first: bool) -> &'static [Shape] {
        match (self, first) {
            (Self::Kill | Self::Pause | Self::Power, true) => &[Shape::Primary],
            (Self::Kill | Self::Power, false) => {
                &[Shape::Primary, Shape::One, Shape::Minority, Shape::Majority, Shape::All]
            }
            (Self::Pause, false) => &[Shape::Primary, Shape::One, Shape::Minority, Shape::Majority],
            (Self::Partition, true) => &[Shape::PrimaryAlone],
            (Self::Partition, false) => {
                &[Shape::PrimaryAlone, Shape::Halves, Shape::DeafOne, Shape::MuteOne, Shape::Bridge]
            }
            (Self::Disk, _) => &[Shape::One],
        }
    }
}

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// The primary.
    Primary,
    /// Any one.
    One,
    /// Less than half.
    Minority,
    /// More than half.
    Majority,
    /// Everybody.
    All,
    /// The primary on one side, the others on the other.
    PrimaryAlone,
    /// A minority and a majority, by chance.
    Halves,
    /// One hears nobody, and is heard.
    DeafOne,
    /// One is heard by nobody, and hears.
    MuteOne,
    /// One is heard by all, and between the others there are two sides.
    Bridge,
}

impl Shape {
    /// For histories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::One => "one",
            Self::Minority => "minority",
            Self::Majority => "majority",
            Self::All => "all",
            Self::PrimaryAlone => "primary-alone",
            Self::Halves => "halves",
            Self::DeafOne => "deaf-one",
            Self::MuteOne => "mute-one",
            Self::Bridge => "bridge",
        }
    }
}

/// One fault of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// What.
    pub fault: Fault,
    /// Whom.
    pub shape: Shape,
    /// Since the round began, milliseconds.
    pub begins: u64,
    /// Since the round began, milliseconds.
    pub ends: u64,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.fault.name(), self.shape.name())
    }
}

/// Between two rounds, at least, milliseconds: a time without faults.
const REST_MS: u64 = 1_500;
/// A fault lasts at least and at most so long, milliseconds. Calls that were under way at a primary that hangs take some
/// seconds, and changes must get through while it does.
const LASTS_MS: (u64, u64) = (5_000, 9_000);

/// The next round. Each fault comes once before one comes again; `done` are those that came.
pub fn round(faults: &[Fault], done: &mut Vec<Fault>, dice: &mut Dice) -> Vec<Strike> {
    let mut seen: BTreeSet<Fault> = done.iter().copied().collect();
    let fresh: Vec<Fault> = faults.iter().copied().filter(|fault| !seen.contains(fault)).collect();
    let pool = if fresh.is_empty() { faults } else { &fresh };
    let mut kinds: Vec<Fault> = dice.one_of(pool).copied().into_iter().collect();
    // Overlaps only once each fault came alone: what a run must have seen is seen first.
    if fresh.is_empty() && faults.len() > 1 && dice.below(3) == 0 {
        let first = kinds.first().copied();
        let others: Vec<Fault> = faults.iter().copied().filter(|fault| Some(*fault) != first).collect();
        kinds.extend(dice.one_of(&others));
    }
    let mut begins = REST_MS;
    let mut strikes = Vec::new();
    for fault in kinds {
        let first = seen.insert(fault);
        let lasts = LASTS_MS.0 + dice.below(LASTS_MS.1 - LASTS_MS.0);
        if let Some(shape) = dice.one_of(fault.shapes(first)) {
            strikes.push(Strike { fault, shape: *shape, begins, ends: begins + lasts });
        }
        done.push(fault);
        begins += lasts / 2;
    }
    strikes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Vec<Vec<Strike>> {
        let (mut dice, mut done) = (Dice::new(seed), Vec::new());
        (0..40).map(|_| round(&Fault::ALL, &mut done, &mut dice)).collect()
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn each_fault_comes_first_with_a_quorum_left_and_later_they_overlap() {
        let plan = plan(3);
        let first: BTreeSet<Fault> = plan[..5].iter().flatten().map(|strike| strike.fault).collect();
        assert_eq!(first.len(), 5);
        assert!(plan[..5].iter().all(|round| round.len() == 1));
        assert!(plan[..5].iter().flatten().all(|s| !matches!(s.shape, Shape::Majority | Shape::All)));
        let overlap = |round: &Vec<Strike>| round.len() == 2 && round[1].begins < round[0].ends;
        assert!(plan.iter().any(overlap), "{plan:?}");
        let shapes: BTreeSet<Shape> = plan.iter().flatten().map(|strike| strike.shape).collect();
        assert!(shapes.len() > 6, "{shapes:?}");
    }
}
