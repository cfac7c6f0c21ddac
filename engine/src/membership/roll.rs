//! What each member last said of its fitness to lead, and since when it has been up by this member's clock.

use super::election::Candidate;
use crate::domain::MemberId;
use crate::limits;
use crate::wire::Fitness;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What the primary has heard of fitness.
#[derive(Clone, Debug, Default)]
pub struct Roll(BTreeMap<MemberId, Entry>);

#[derive(Clone, Debug)]
struct Entry {
    fitness: Fitness,
    at: Instant,
    /// The earliest that any of its words since its last restart lead to: a word that was long on its way makes a
    /// member look younger than it is.
    up_since: Instant,
}

/// What the agreed state says of a member that may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// It is active, no standby.
    pub active: bool,
    /// Its priority.
    pub priority: u8,
    /// Its token's serial number.
    pub serial: String,
}

impl Roll {
    /// Notes what a member says of itself.
    pub fn note(&mut self, member: MemberId, fitness: Fitness, now: Instant) {
        let uptime = Duration::from_millis(fitness.uptime_ms);
        let mut up_since = now.checked_sub(uptime).unwrap_or(now);
        // Who was not heard for long may have begun anew meanwhile, and been up for longer since than it was by then. Taken
        // for older than it is by more than a primary prefers itself, it and another would hand over to each other for ever.
        let same = |old: &&Entry| {
            let younger = up_since.saturating_duration_since(old.up_since);
            old.fitness.uptime_ms <= fitness.uptime_ms && younger < limits::STEER_BIAS
        };
        if let Some(old) = self.0.get(&member).filter(same) {
            up_since = up_since.min(old.up_since);
        }
        self.0.insert(member, Entry { fitness, at: now, up_since });
    }

    /// Forgets members that are on the roster no more.
    pub fn retain(&mut self, on_roster: impl Fn(MemberId) -> bool) {
        self.0.retain(|member, _| on_roster(*member));
    }

    /// The candidates now: who was heard lately and is said to be fit by the agreed state.
    pub fn candidates(&self, now: Instant, fit: impl Fn(MemberId) -> Option<Agreed>) -> Vec<Candidate> {
        let word = self.last_word();
        let fresh = |entry: &Entry| now.saturating_duration_since(entry.at) < limits::MEMBER_DEAD;
        self.0
            .iter()
            .filter(|(_, entry)| fresh(entry))
            .filter_map(|(member, entry)| {
                let agreed = fit(*member)?;
                Some(Candidate {
                    member: *member,
                    active: agreed.active,
                    failed_over: word.is_against(*member),
                    disk_healthy: entry.fitness.disk_healthy,
                    ports: entry.fitness.ports,
                    uptime: now.saturating_duration_since(entry.up_since),
                    priority: agreed.priority,
                    serial: agreed.serial,
                })
            })
            .collect()
    }

    /// The operator's last word, by the term in which it was said. Terms grow, so there is one last word.
    fn last_word(&self) -> Word {
        let marks = |mark: fn(&Fitness) -> Option<u64>| {
            self.0.iter().filter_map(move |(member, entry)| Some((mark(&entry.fitness)?, *member))).max()
        };
        match (marks(|f| f.chosen), marks(|f| f.stepped_down)) {
            (Some((chosen, member)), stepped) if stepped.is_none_or(|(term, _)| term <= chosen) => {
                Word::For(member)
            }
            (_, Some((_, member))) => Word::Against(member),
            _ => Word::None,
        }
    }
}

/// What an operator said last of who shall lead.
enum Word {
    None,
    For(MemberId),
    Against(MemberId),
}

impl Word {
    fn is_against(&self, member: MemberId) -> bool {
        match self {
            Self::None => false,
            Self::For(chosen) => *chosen != member,
            Self::Against(stepped) => *stepped == member,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitness(uptime_ms: u64) -> Fitness {
        Fitness { uptime_ms, disk_healthy: true, ..Fitness::default() }
    }

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "a test's beginning of time")]
        let now = Instant::now();
        now + Duration::from_secs(3600)
    }

    fn everyone(_: MemberId) -> Option<Agreed> {
        Some(Agreed { active: true, priority: 1, serial: "s".into() })
    }

    fn against(roll: &Roll, now: Instant) -> Vec<u64> {
        let all = roll.candidates(now, everyone);
        all.iter().filter(|c| c.failed_over).map(|c| c.member.0).collect()
    }

    #[test]
    fn a_late_word_makes_nobody_younger_and_a_restart_does() {
        let (mut roll, now) = (Roll::default(), start());
        let uptime = |roll: &Roll, at| roll.candidates(at, everyone)[0].uptime;
        roll.note(MemberId(1), fitness(10_000), now);
        roll.note(MemberId(1), fitness(10_300), now + Duration::from_millis(800));
        assert_eq!(uptime(&roll, now + Duration::from_millis(800)), Duration::from_millis(10_800));
        roll.note(MemberId(1), fitness(5), now + Duration::from_secs(1));
        assert_eq!(uptime(&roll, now + Duration::from_secs(1)), Duration::from_millis(5));
    }

    #[test]
    fn who_began_anew_while_nobody_listened_is_as_young_as_it_says() {
        let (mut roll, now) = (Roll::default(), start());
        roll.note(MemberId(1), fitness(5_000), now);
        let later = now + Duration::from_secs(43);
        roll.note(MemberId(1), fitness(9_000), later);
        assert_eq!(roll.candidates(later, everyone)[0].uptime, Duration::from_secs(9));
    }

    #[test]
    fn who_is_silent_or_unfit_is_no_candidate() {
        let (mut roll, now) = (Roll::default(), start());
        roll.note(MemberId(1), fitness(1), now);
        roll.note(MemberId(2), fitness(1), now + limits::MEMBER_DEAD);
        let later = roll.candidates(now + limits::MEMBER_DEAD, everyone);
        assert_eq!(later.iter().map(|c| c.member.0).collect::<Vec<_>>(), [2]);
        assert!(roll.candidates(now + limits::MEMBER_DEAD, |_| None).is_empty());
        roll.retain(|member| member == MemberId(1));
        assert!(roll.candidates(now + limits::MEMBER_DEAD, everyone).is_empty());
    }

    #[test]
    fn an_operators_last_word_counts() {
        let (mut roll, now) = (Roll::default(), start());
        for member in 1..=3 {
            roll.note(MemberId(member), fitness(9), now);
        }
        assert_eq!(against(&roll, now), [] as [u64; 0]);
        roll.note(MemberId(1), Fitness { stepped_down: Some(4), ..fitness(9) }, now);
        assert_eq!(against(&roll, now), [1]);
        // Told to step down in favour of 3: of the others none comes before it.
        roll.note(MemberId(2), Fitness { stepped_down: Some(5), ..fitness(9) }, now);
        roll.note(MemberId(3), Fitness { chosen: Some(5), ..fitness(9) }, now);
        assert_eq!(against(&roll, now), [1, 2]);
        // Then 3 is told to step down in favour of nobody.
        let both = Fitness { chosen: Some(5), stepped_down: Some(7), ..fitness(9) };
        roll.note(MemberId(3), both, now);
        assert_eq!(against(&roll, now), [3]);
        // It restarts: what 2 was told is the last word again.
        roll.note(MemberId(3), fitness(0), now);
        assert_eq!(against(&roll, now), [2]);
    }
}
