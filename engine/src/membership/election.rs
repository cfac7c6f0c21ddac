//! Compares candidates for primary, key by key. Each key keeps the best and drops the rest, so the outcome depends on
//! nobody's order, also where uptimes within a margin count as equal.

use crate::domain::MemberId;
use std::cmp::Reverse;
use std::time::Duration;

/// A member that may lead: a voter that is heard, in sync, with a healthy token, and not far behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The member.
    pub member: MemberId,
    /// It is active, no standby: a standby leads only where no active member can.
    pub active: bool,
    /// An operator made it step down, or chose another one, and nothing was said since: last of all.
    pub failed_over: bool,
    /// Its data folder can be written.
    pub disk_healthy: bool,
    /// Monitored interfaces that are up.
    pub ports: u32,
    /// Since it started, its token failed or a monitored interface changed.
    pub uptime: Duration,
    /// The group's preference; the lowest leads.
    pub priority: u8,
    /// Its token's serial number: the greater one breaks a tie.
    pub serial: String,
}

/// The group's options of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Priority comes before uptime.
    pub priority_first: bool,
    /// Uptimes that differ by no more are equal.
    pub uptime_margin: Duration,
}

fn keep_greatest<K: Ord>(left: &mut Vec<&Candidate>, key: impl Fn(&Candidate) -> K) {
    if let Some(greatest) = left.iter().map(|candidate| key(candidate)).max() {
        left.retain(|candidate| key(candidate) == greatest);
    }
}

/// The best candidate; None if there is none.
pub fn winner(candidates: &[Candidate], rule: Rule) -> Option<MemberId> {
    best(candidates.iter().collect(), rule)
}

fn best(mut left: Vec<&Candidate>, rule: Rule) -> Option<MemberId> {
    keep_greatest(&mut left, |c| c.active);
    keep_greatest(&mut left, |c| !c.failed_over);
    keep_greatest(&mut left, |c| c.disk_healthy);
    keep_greatest(&mut left, |c| c.ports);
    if rule.priority_first {
        keep_greatest(&mut left, |c| Reverse(c.priority));
    }
    if let Some(longest) = left.iter().map(|c| c.uptime).max() {
        left.retain(|c| longest - c.uptime <= rule.uptime_margin);
    }
    if !rule.priority_first {
        keep_greatest(&mut left, |c| Reverse(c.priority));
    }
    keep_greatest(&mut left, |c| c.serial.clone());
    // Serials are the tokens' makers' business: two that are alike must not make two winners.
    left.iter().map(|c| c.member).min()
}

/// All candidates, the best first: who stands for election in which order when the primary is lost.
pub fn ranking(candidates: &[Candidate], rule: Rule) -> Vec<MemberId> {
    let mut left: Vec<&Candidate> = candidates.iter().collect();
    let mut order = Vec::with_capacity(left.len());
    while let Some(member) = best(left.clone(), rule) {
        left.retain(|candidate| candidate.member != member);
        order.push(member);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Deserialize)]
    struct Vectors {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        #[serde(rename = "override")]
        priority_first: bool,
        #[serde(default)]
        uptime_margin_s: u64,
        members: BTreeMap<String, Member>,
        winner: String,
    }

    #[derive(Deserialize)]
    struct Member {
        ports: u32,
        uptime_s: u64,
        priority: u8,
        serial: String,
    }

    fn candidate(member: u64) -> Candidate {
        Candidate {
            member: MemberId(member),
            active: true,
            failed_over: false,
            disk_healthy: true,
            ports: 1,
            uptime: Duration::from_secs(100),
            priority: 5,
            serial: member.to_string(),
        }
    }

    fn winner_of(candidates: &[Candidate]) -> u64 {
        winner(candidates, Rule::default()).expect("one wins").0
    }

    #[test]
    fn the_vectors_hold() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/primary_election.json");
        let text = std::fs::read_to_string(path).expect("reads the vectors");
        let vectors: Vectors = serde_json::from_str(&text).expect("are JSON");
        assert!(vectors.cases.len() >= 5);
        for case in vectors.cases {
            let names: Vec<&String> = case.members.keys().collect();
            let mut candidates: Vec<Candidate> = (0..)
                .zip(case.members.values())
                .map(|(index, m)| Candidate {
                    ports: m.ports,
                    uptime: Duration::from_secs(m.uptime_s),
                    priority: m.priority,
                    serial: m.serial.clone(),
                    ..candidate(index)
                })
                .collect();
            let rule = Rule {
                priority_first: case.priority_first,
                uptime_margin: Duration::from_secs(case.uptime_margin_s),
            };
            for _ in 0..2 {
                let won = winner(&candidates, rule).expect("one wins");
                assert_eq!(*names[won.0 as usize], case.winner);
                candidates.reverse();
            }
        }
    }

    #[test]
    fn an_operators_word_then_the_disk_come_first() {
        let better = Candidate { ports: 9, uptime: Duration::from_secs(999), priority: 0, ..candidate(1) };
        assert_eq!(winner_of(&[better.clone(), candidate(2)]), 1);
        assert_eq!(winner_of(&[Candidate { failed_over: true, ..better.clone() }, candidate(2)]), 2);
        let sick = Candidate { disk_healthy: false, ..candidate(2) };
        assert_eq!(winner_of(&[Candidate { disk_healthy: false, ..better.clone() }, candidate(2)]), 2);
        assert_eq!(winner_of(&[Candidate { failed_over: true, ..better }, sick]), 2);
        let standby = Candidate { active: false, ..candidate(1) };
        let stepped_down = Candidate { failed_over: true, ..candidate(2) };
        assert_eq!(winner_of(&[standby.clone(), stepped_down]), 2, "a standby leads where nobody else can");
        assert_eq!(winner_of(&[standby]), 1);
        assert_eq!(winner(&[], Rule::default()), None);
    }

    #[test]
    fn a_ranking_names_everyone_once() {
        let mut three = [candidate(1), candidate(2), candidate(3)];
        three[1].ports = 3;
        three[2].failed_over = true;
        assert_eq!(ranking(&three, Rule::default()), [MemberId(2), MemberId(1), MemberId(3)]);
    }

    /// 1000, 900 and 700 seconds with a margin of 250: pair by pair each is as good as its neighbour, yet the last
    /// is not as good as the first.
    #[test]
    fn a_margin_is_measured_from_the_longest_uptime() {
        let uptimes = [(1, 1000, 9), (2, 900, 5), (3, 700, 1)];
        let mut three = uptimes.map(|(member, seconds, priority)| Candidate {
            uptime: Duration::from_secs(seconds),
            priority,
            ..candidate(member)
        });
        let rule = Rule { priority_first: false, uptime_margin: Duration::from_secs(250) };
        for _ in 0..3 {
            three.rotate_left(1);
            assert_eq!(winner(&three, rule), Some(MemberId(2)));
        }
    }
}
