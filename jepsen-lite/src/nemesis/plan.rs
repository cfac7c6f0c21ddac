//! What comes when: rounds of one fault or two that overlap, each followed by the time to heal. Decided by the seed alone.

use crate::dice::Dice;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What can happen to members.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $variant,)*
        }

        impl Fault {
            /// All of them. No rung needs to have every one.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As `--nemesis` and histories call it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

faults! {
    /// kill -9.
    Kill = "kill",
    /// SIGSTOP: they hang, and their connections stay open.
    Pause = "pause",
    /// Links between members are silently cut.
    Partition = "partition",
    /// Links lose packets or messages.
    Loss = "loss",
    /// Links deliver packets or messages twice.
    Duplicate = "duplicate",
    /// Links deliver late, and not in order.
    Delay = "delay",
    /// Members' clocks tell another time.
    Clock = "clock",
    /// A data folder takes nothing more.
    DiskFull = "disk-full",
    /// Whatever is written takes its time.
    SlowDisk = "slow-disk",
    /// Whatever is written hangs until the heal.
    HungDisk = "hung-disk",
    /// Whatever is written fails.
    ErringDisk = "erring-disk",
    /// The power of their disks is cut: what was not synced is gone, and so are their processes.
    Power = "power",
    /// Their tokens are gone: every call fails.
    TokenLost = "token-lost",
    /// Their tokens take their time.
    TokenSlow = "token-slow",
    /// Their tokens hang: no call returns until the heal.
    TokenHung = "token-hung",
    /// Their tokens do what they are asked, and say that it failed.
    TokenLying = "token-lying",
    /// A member is removed; at the heal it joins anew.
    Membership = "membership",
    /// Members take a snapshot and purge their logs.
    Snapshot = "snapshot",
}

/// What a fault does to those whom it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// They do not answer, or must not count on answers: no quorum can do with them.
    Stops,
    /// They may be cut off from the others at times, by chance.
    Loosens,
    /// They are as much a part of the group as before.
    Stays,
}

impl Fault {
    /// The fault of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| fault.name() == name)
    }

    /// True if another primary must follow when this hits the present one.
    pub fn elects(self) -> bool {
        matches!(
            self,
            Self::Kill | Self::Pause | Self::Partition | Self::HungDisk | Self::ErringDisk | Self::Power
        )
    }

    /// True if a member's process may have ended by it, and must be started again.
    pub fn stops_processes(self) -> bool {
        matches!(self, Self::Kill | Self::DiskFull | Self::HungDisk | Self::ErringDisk | Self::Power)
    }

    /// True if it needs a disk of the member's own.
    pub fn is_of_disks(self) -> bool {
        matches!(self, Self::DiskFull | Self::SlowDisk | Self::HungDisk | Self::ErringDisk | Self::Power)
    }

    /// True if it may leave the process that it hits no choice but to end.
    pub fn ends_processes(self) -> bool {
        let disk = matches!(self, Self::DiskFull | Self::HungDisk | Self::ErringDisk | Self::Power);
        disk || matches!(self, Self::TokenLost | Self::TokenHung | Self::TokenLying)
    }

    /// True if it needs a token that misbehaves on demand.
    pub fn is_of_tokens(self) -> bool {
        matches!(self, Self::TokenLost | Self::TokenSlow | Self::TokenHung | Self::TokenLying)
    }

    /// How much longer than others it must last, milliseconds: a primary whose disk hangs has to be known to hang before
    /// another one leads.
    fn is_noticed_after_ms(self) -> u64 {
        if self == Self::HungDisk { 6_000 } else { 0 }
    }

    /// True if both may happen at one time. Who joins needs the others; a hung disk holds a process that shall end, and
    /// has one trouble at a time.
    fn goes_with(self, other: Self) -> bool {
        let alone = |fault: Self| fault == Self::Membership;
        let hangs = |fault: Self| matches!(fault, Self::HungDisk | Self::SlowDisk | Self::ErringDisk);
        let holds = |fault: Self| fault.is_of_disks() || fault == Self::Kill;
        let excludes = |one: Self, other: Self| alone(one) || (hangs(one) && holds(other));
        self != other && !excludes(self, other) && !excludes(other, self)
    }

    pub(super) fn effect(self) -> Effect {
        match self {
            Self::Kill
            | Self::Pause
            | Self::Partition
            | Self::DiskFull
            | Self::HungDisk
            | Self::ErringDisk
            | Self::Power
            | Self::Membership => Effect::Stops,
            Self::Loss | Self::Delay | Self::SlowDisk => Effect::Loosens,
            Self::Duplicate
            | Self::Clock
            | Self::TokenLost
            | Self::TokenSlow
            | Self::TokenHung
            | Self::TokenLying
            | Self::Snapshot => Effect::Stays,
        }
    }

    /// What it may hit. The first time of each fault it is one that leaves a quorum.
    pub(crate) fn shapes(self, first: bool) -> &'static [Shape] {
        match (self, first) {
            (Self::Kill | Self::Pause | Self::Power | Self::HungDisk | Self::ErringDisk, true)
            | (Self::SlowDisk | Self::Clock, true)
            | (Self::TokenLost | Self::TokenSlow | Self::TokenHung | Self::TokenLying, true) => {
                &[Shape::Primary]
            }
            (Self::Kill | Self::Power, false) => {
                &[Shape::Primary, Shape::One, Shape::Minority, Shape::Majority, Shape::All]
            }
            (Self::Pause | Self::HungDisk | Self::ErringDisk, false) => {
                &[Shape::Primary, Shape::One, Shape::Minority, Shape::Majority]
            }
            (Self::Partition, true) => &[Shape::PrimaryAlone],
            (Self::Partition, false) => &[
                Shape::PrimaryAlone,
                Shape::Halves,
                Shape::PrimaryInMinority,
                Shape::PrimaryInMajority,
                Shape::DeafOne,
                Shape::MuteOne,
                Shape::Bridge,
                Shape::Ring,
            ],
            (Self::Loss | Self::Duplicate | Self::Delay, true) => &[Shape::All],
            (Self::Loss | Self::Duplicate | Self::Delay, false) => &[Shape::All, Shape::Primary, Shape::One],
            (Self::SlowDisk | Self::Clock | Self::TokenSlow, false) => {
                &[Shape::Primary, Shape::One, Shape::Minority, Shape::All]
            }
            (Self::TokenLost | Self::TokenHung | Self::TokenLying, false) => {
                &[Shape::Primary, Shape::One, Shape::Minority]
            }
            (Self::DiskFull, _) => &[Shape::One],
            (Self::Membership, _) => &[Shape::One, Shape::Primary],
            (Self::Snapshot, _) => &[Shape::All],
        }
    }
}

/// The faults of these names, for a rung that has some; `all` stands for these.
///
/// # Errors
/// There is no fault of a name, or the rung does not have it.
pub fn chosen(names: &[String], rung: &str, has: &[Fault]) -> Result<Vec<Fault>, String> {
    let known: Vec<&str> = has.iter().map(|fault| fault.name()).collect();
    let one = |name: &String| match Fault::named(name) {
        Some(fault) if has.contains(&fault) => Ok(fault),
        Some(_) => Err(format!("rung {rung} does not have the fault '{name}': it has {}", known.join(", "))),
        None => Err(format!("there is no fault '{name}': rung {rung} has {}", known.join(", "))),
    };
    if names == ["all"] {
        return Ok(has.to_vec());
    }
    names.iter().filter(|name| !name.is_empty()).map(one).collect()
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
    /// A minority with the primary, and a majority.
    PrimaryInMinority,
    /// A minority, and a majority with the primary.
    PrimaryInMajority,
    /// One hears nobody, and is heard.
    DeafOne,
    /// One is heard by nobody, and hears.
    MuteOne,
    /// One is heard by all, and between the others there are two sides.
    Bridge,
    /// Each hears its two neighbours in a ring alone; of three, two do not hear each other.
    Ring,
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
            Self::PrimaryInMinority => "primary-in-minority",
            Self::PrimaryInMajority => "primary-in-majority",
            Self::DeafOne => "deaf-one",
            Self::MuteOne => "mute-one",
            Self::Bridge => "bridge",
            Self::Ring => "ring",
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
/// The same in a run that is too short for that, milliseconds: on a busy machine three seconds may go by before a change gets
/// through that was under way at a primary which hangs.
const HURRIES_MS: (u64, u64) = (4_200, 5_200);
/// A run that has less time than this for each of its faults is short.
const CALM: Duration = Duration::from_secs(10);

/// How long the faults of a run last, at least and at most, milliseconds.
pub fn lasts(faults: &[Fault], time: Duration) -> (u64, u64) {
    let each = time / u32::try_from(faults.len().max(1)).unwrap_or(u32::MAX);
    if each < CALM { HURRIES_MS } else { LASTS_MS }
}

/// The next round. Each fault comes once before one comes again; `done` are those that came. They last as [`lasts`] says.
pub fn round(
    faults: &[Fault],
    done: &mut Vec<Fault>,
    (least, most): (u64, u64),
    dice: &mut Dice,
) -> Vec<Strike> {
    let mut seen: BTreeSet<Fault> = done.iter().copied().collect();
    let fresh: Vec<Fault> = faults.iter().copied().filter(|fault| !seen.contains(fault)).collect();
    let pool = if fresh.is_empty() { faults } else { &fresh };
    let mut kinds: Vec<Fault> = dice.one_of(pool).copied().into_iter().collect();
    // Overlaps only once each fault came alone: what a run must have seen is seen first.
    if fresh.is_empty() && faults.len() > 1 && dice.below(3) == 0 {
        let first = kinds.first().copied();
        let fits = |fault: &Fault| first.is_some_and(|first| first.goes_with(*fault));
        let others: Vec<Fault> = faults.iter().copied().filter(fits).collect();
        kinds.extend(dice.one_of(&others));
    }
    let mut begins = REST_MS;
    let mut strikes = Vec::new();
    for fault in kinds {
        let first = seen.insert(fault);
        let lasts = least + dice.below(most - least) + fault.is_noticed_after_ms();
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
        (0..80).map(|_| round(Fault::ALL, &mut done, LASTS_MS, &mut dice)).collect()
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn each_fault_comes_first_with_a_quorum_left_and_later_they_overlap() {
        let plan = plan(3);
        let (begin, _) = plan.split_at(Fault::ALL.len());
        let first: BTreeSet<Fault> = begin.iter().flatten().map(|strike| strike.fault).collect();
        assert_eq!(first.len(), Fault::ALL.len());
        assert!(begin.iter().all(|round| round.len() == 1));
        for strike in begin.iter().flatten() {
            let hit = super::super::hit(*strike, 3, Some(1), &mut Dice::new(1));
            assert!(super::super::left(&[hit], 3).quorum, "{strike}");
        }
        let overlap = |round: &Vec<Strike>| round.len() == 2 && round[1].begins < round[0].ends;
        assert!(plan.iter().any(overlap), "{plan:?}");
        let shapes: BTreeSet<Shape> = plan.iter().flatten().map(|strike| strike.shape).collect();
        assert!(shapes.len() > 6, "{shapes:?}");
    }

    #[test]
    fn a_short_run_hurries() {
        let four = &Fault::ALL[..4];
        assert_eq!(lasts(four, Duration::from_secs(60)), LASTS_MS);
        assert_eq!(lasts(four, Duration::from_secs(20)), HURRIES_MS);
        assert_eq!(lasts(&four[..2], Duration::from_secs(20)), LASTS_MS);
        assert_eq!(lasts(&[], Duration::from_secs(20)), LASTS_MS);
    }

    #[test]
    fn a_rung_refuses_by_name_what_it_does_not_have() {
        let names = |text: &str| text.split(',').map(str::to_string).collect::<Vec<_>>();
        let has = [Fault::Kill, Fault::DiskFull];
        assert_eq!(chosen(&names("disk-full,kill"), "netns", &has), Ok(vec![Fault::DiskFull, Fault::Kill]));
        assert_eq!(chosen(&names(""), "netns", &has), Ok(Vec::new()));
        assert_eq!(chosen(&names("all"), "netns", &has), Ok(has.to_vec()));
        let why = chosen(&names("kill,clock"), "netns", &has).expect_err("has no clock");
        assert!(why.contains("netns does not have the fault 'clock': it has kill, disk-full"), "{why}");
        let why = chosen(&names("flood"), "netns", &has).expect_err("is none");
        assert!(why.contains("no fault 'flood'"), "{why}");
    }
}
