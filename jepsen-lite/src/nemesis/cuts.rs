//! Who is hit, which links are cut, and whom that leaves with a quorum.

use super::plan::{Effect, Fault, Shape, Strike};
use crate::dice::Dice;
use std::collections::BTreeSet;

/// What a fault does, to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// What.
    pub fault: Fault,
    /// Those whose process, disk, clock, token or links are hit.
    pub members: BTreeSet<usize>,
    /// Links that are cut: nothing from the first reaches the second.
    pub cut: BTreeSet<(usize, usize)>,
}

/// Decides whom a strike hits among so many members.
pub fn hit(strike: Strike, count: usize, primary: Option<usize>, dice: &mut Dice) -> Hit {
    let all: Vec<usize> = dice.mixed((0..count).collect());
    let first = all.first().copied().unwrap_or(0);
    let primary = primary.unwrap_or(first);
    let most = count / 2 + 1;
    let take = |many: usize| all.iter().copied().take(many).collect::<BTreeSet<usize>>();
    let apart = |side: &BTreeSet<usize>| {
        let crosses = |(from, to): &(usize, usize)| side.contains(from) != side.contains(to);
        links(count).filter(crosses).collect::<BTreeSet<_>>()
    };
    let nobody = BTreeSet::new;
    let (members, cut) = match strike.shape {
        Shape::Primary => (BTreeSet::from([primary]), nobody()),
        Shape::One => (take(1), nobody()),
        Shape::Minority => (take((count - most).max(1)), nobody()),
        Shape::Majority => (take(most), nobody()),
        Shape::All => (take(count), nobody()),
        Shape::PrimaryAlone => (BTreeSet::new(), apart(&BTreeSet::from([primary]))),
        Shape::Halves => (BTreeSet::new(), apart(&take((count - most).max(1)))),
        Shape::PrimaryInMinority | Shape::PrimaryInMajority => {
            let less = (count - most).max(1);
            let others = all.iter().copied().filter(|member| *member != primary);
            let side = match strike.shape {
                Shape::PrimaryInMinority => others.take(less - 1).chain([primary]).collect(),
                _ => others.take(less).collect(),
            };
            (BTreeSet::new(), apart(&side))
        }
        Shape::DeafOne => (BTreeSet::new(), links(count).filter(|(_, to)| *to == first).collect()),
        Shape::MuteOne => (BTreeSet::new(), links(count).filter(|(from, _)| *from == first).collect()),
        Shape::Bridge => {
            let side: BTreeSet<usize> = all.iter().copied().skip(1).take((count - 1).div_ceil(2)).collect();
            let mut cut = apart(&side);
            cut.retain(|(from, to)| *from != first && *to != first);
            (BTreeSet::new(), cut)
        }
        Shape::Ring => {
            // A ring of three cuts nothing: then it is a row.
            let (ends, ring) = (count - 1, count > 3);
            let place = |member: usize| all.iter().position(|one| *one == member).unwrap_or(0);
            let near = |from: usize, to: usize| {
                let apart = place(from).abs_diff(place(to));
                apart == 1 || (ring && apart == ends)
            };
            (BTreeSet::new(), links(count).filter(|(from, to)| !near(*from, *to)).collect())
        }
    };
    Hit { fault: strike.fault, members, cut }
}

fn links(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |from| (0..count).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

/// What faults leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Members that may not reach a quorum, or not the primary that another one has: whoever reaches a majority may have
    /// been elected.
    pub weak: BTreeSet<usize>,
    /// Some member reaches a majority.
    pub quorum: bool,
}

/// What all of these leave of so many members.
pub fn left(hits: &[Hit], count: usize) -> Left {
    let hit_so = |member: usize, effect: Effect| {
        hits.iter().any(|hit| hit.fault.effect() == effect && hit.members.contains(&member))
    };
    let down = |member: usize| hit_so(member, Effect::Stops);
    // Where one's links are bad, any may lose sight of the others for a while.
    let shaken = (0..count).any(|member| hit_so(member, Effect::Loosens));
    let cut = |from: usize, to: usize| hits.iter().any(|hit| hit.cut.contains(&(from, to)));
    let reaches = |one: usize, other: usize| {
        one == other || (!down(one) && !down(other) && !cut(one, other) && !cut(other, one))
    };
    let majority = |member: &usize| {
        !down(*member) && (0..count).filter(|other| reaches(*member, *other)).count() > count / 2
    };
    let electable: Vec<usize> = (0..count).filter(majority).collect();
    let strong =
        |member: &usize| electable.contains(member) && electable.iter().all(|other| reaches(*member, *other));
    let weak = (0..count).filter(|member| shaken || !strong(member)).collect();
    Left { weak, quorum: !electable.is_empty() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(fault: Fault, shape: Shape, count: usize) -> Hit {
        let strike = Strike { fault, shape, begins: 0, ends: 1 };
        hit(strike, count, Some(1), &mut Dice::new(5))
    }

    #[test]
    fn shapes_leave_what_they_say() {
        for (hits, count, strong) in [
            (vec![shape(Fault::Kill, Shape::Primary, 3)], 3, 2),
            (vec![shape(Fault::Kill, Shape::Majority, 3)], 3, 0),
            (vec![shape(Fault::Kill, Shape::All, 3)], 3, 0),
            (vec![shape(Fault::Kill, Shape::Minority, 5)], 5, 3),
            (vec![shape(Fault::Partition, Shape::PrimaryAlone, 3)], 3, 2),
            (vec![shape(Fault::Partition, Shape::Halves, 5)], 5, 3),
            (vec![shape(Fault::Partition, Shape::PrimaryInMinority, 5)], 5, 3),
            (vec![shape(Fault::Partition, Shape::PrimaryInMajority, 5)], 5, 3),
            (vec![shape(Fault::Partition, Shape::DeafOne, 3)], 3, 2),
            (vec![shape(Fault::Partition, Shape::MuteOne, 3)], 3, 2),
            // All of five see the one in the middle and their own side of two: a majority, but perhaps not the primary.
            (vec![shape(Fault::Partition, Shape::Bridge, 5)], 5, 1),
            // In a row of three the one in the middle sees all; in a ring of five each sees three, and none all.
            (vec![shape(Fault::Partition, Shape::Ring, 3)], 3, 1),
            (vec![shape(Fault::Partition, Shape::Ring, 5)], 5, 0),
            (vec![shape(Fault::TokenLost, Shape::Primary, 3)], 3, 3),
            (vec![], 3, 3),
        ] {
            let found = left(&hits, count);
            assert_eq!(count - found.weak.len(), strong, "{hits:?}");
            let quorum = !matches!(hits.first(), Some(hit) if hit.members.len() > count / 2);
            assert_eq!(found.quorum, quorum, "{hits:?}");
        }
        let primary = shape(Fault::Partition, Shape::PrimaryAlone, 3);
        assert_eq!(left(&[primary], 3).weak, BTreeSet::from([1]));
        let with = shape(Fault::Partition, Shape::PrimaryInMinority, 5);
        assert!(left(&[with], 5).weak.contains(&1));
        let without = shape(Fault::Partition, Shape::PrimaryInMajority, 5);
        assert!(!left(&[without], 5).weak.contains(&1));
    }

    #[test]
    fn bad_links_leave_a_quorum_and_promise_no_member() {
        let found = left(&[shape(Fault::Loss, Shape::One, 3)], 3);
        assert_eq!((found.weak.len(), found.quorum), (3, true));
    }

    #[test]
    fn faults_add_up() {
        let killed = Hit { fault: Fault::Kill, members: BTreeSet::from([0]), cut: BTreeSet::new() };
        let cut = Hit { fault: Fault::Partition, members: BTreeSet::new(), cut: BTreeSet::from([(1, 2)]) };
        assert_eq!(left(std::slice::from_ref(&killed), 3).weak.len(), 1);
        assert_eq!(left(&[killed, cut], 3).weak.len(), 3);
    }
}
