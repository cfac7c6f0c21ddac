//! Which member to ask: an order of those that may be asked, best first. Pure: (configuration, health, load) to an order;
//! times and random numbers are handed in. One policy a file; `peak_ewma` estimates what a member takes,
//! `budget` limits second tries.

mod budget;
mod fewest_sessions;
mod least_busy;
mod peak_ewma;
mod response_time;
mod round_robin;
#[cfg(test)]
mod simulation;
mod source_affinity;

pub use budget::Budget;

use crate::health::{Call, Class, Standing, Watch};
use peak_ewma::{Estimate, median};
use std::time::Instant;

/// How members are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// Of two random ones that with less to do, by what it takes and how many calls wait for it.
    #[default]
    LeastBusy,
    /// One after another.
    RoundRobin,
    /// That which does the least at once for this application.
    FewestSessions,
    /// Shares inverse to response times.
    ResponseTime,
    /// One member for each application, by weights, for as long as it is fit.
    SourceAffinity,
}

impl Ranking {
    /// Every one with its name in configurations.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("least-busy", Self::LeastBusy),
        ("round-robin", Self::RoundRobin),
        ("fewest-sessions", Self::FewestSessions),
        ("response-time", Self::ResponseTime),
        ("source-affinity", Self::SourceAffinity),
    ];
}

/// A member that may be asked, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    /// Its place in the caller's configuration.
    member: usize,
    /// Its weight.
    weight: u32,
    /// Calls of the asked class that wait for it.
    pending: u32,
    /// Calls of every class that wait for it.
    sessions: u32,
    /// What such a call takes there, seconds.
    takes: f64,
}

/// One way to rank.
trait Policy: Send {
    /// The candidates' places in this list, best first. There is at least one.
    fn rank(&mut self, candidates: &[Candidate], dice: &mut dyn FnMut() -> u64) -> Vec<usize>;
}

/// Ranks a group's members.
pub struct Balancer {
    policy: Box<dyn Policy>,
    weights: Vec<u32>,
    loads: Vec<[Load; Class::COUNT]>,
}

/// What waits at one member, and what it takes, for one class.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    pending: u32,
    estimate: Option<Estimate>,
}

/// The members in the order in which a call tries them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// One that is out: the caller may find out first whether it is back.
    pub due: Option<usize>,
    /// Those to ask.
    pub members: Vec<usize>,
}

impl Balancer {
    /// One weight a member; a weight of 0 gets nothing while another one is fit.
    pub fn new(ranking: Ranking, weights: Vec<u32>) -> Self {
        let policy: Box<dyn Policy> = match ranking {
            Ranking::LeastBusy => Box::new(least_busy::LeastBusy),
            Ranking::RoundRobin => Box::<round_robin::RoundRobin>::default(),
            Ranking::FewestSessions => Box::<fewest_sessions::FewestSessions>::default(),
            Ranking::ResponseTime => Box::new(response_time::Credits::new(weights.len())),
            Ranking::SourceAffinity => Box::<source_affinity::Affinity>::default(),
        };
        let loads = vec![<[Load; Class::COUNT]>::default(); weights.len()];
        Self { policy, weights, loads }
    }

    /// In which order to ask for something of this class. A member that has just come back takes part as often as its
    /// share says; those that are suspected, rest or answer badly are asked after all others.
    pub fn order(
        &mut self,
        watch: &Watch,
        class: Class,
        now: Instant,
        dice: &mut dyn FnMut() -> u64,
    ) -> Order {
        let mut order = Order::default();
        let (mut fit, mut waiting, mut behind) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
        for (member, standing) in watch.standings(now).enumerate() {
            match standing {
                Standing::Fit(_) if self.weights.get(member) == Some(&0) => waiting.push(member),
                Standing::Fit(share) if share < 1.0 && chance(dice()) >= share => waiting.push(member),
                Standing::Fit(_) => fit.push(member),
                Standing::Suspected => behind[0].push(member),
                Standing::Resting => behind[1].push(member),
                Standing::Judged => behind[2].push(member),
                Standing::Due if order.due.is_none() => order.due = Some(member),
                Standing::Due | Standing::Out => {}
            }
        }
        // The best there are share, whatever they are.
        for worse in std::iter::once(&mut waiting).chain(&mut behind) {
            if fit.is_empty() {
                std::mem::swap(&mut fit, worse);
            }
        }
        order.members = self.ranked(fit, class, now, dice);
        order.members.extend(waiting);
        order.members.extend(behind.into_iter().flatten());
        order
    }

    fn ranked(
        &mut self,
        fit: Vec<usize>,
        class: Class,
        now: Instant,
        dice: &mut dyn FnMut() -> u64,
    ) -> Vec<usize> {
        if fit.len() < 2 {
            return fit;
        }
        let load = |member: usize| self.loads[member][class.index()];
        let usual =
            median(fit.iter().filter_map(|member| load(*member).estimate.map(Estimate::raw)).collect());
        let candidate = |member: &usize| Candidate {
            member: *member,
            weight: self.weights[*member],
            pending: load(*member).pending,
            sessions: self.loads[*member].iter().map(|load| load.pending).sum(),
            takes: load(*member).estimate.map_or(usual, |estimate| estimate.at(now, usual)),
        };
        let candidates: Vec<Candidate> = fit.iter().map(candidate).collect();
        self.policy.rank(&candidates, dice).into_iter().map(|place| candidates[place].member).collect()
    }

    /// A call goes to a member.
    pub fn begin(&mut self, call: &Call) {
        if let Some(load) = self.load(call) {
            load.pending += 1;
        }
    }

    /// A call ended; `answered` says that its time tells something.
    pub fn end(&mut self, call: &Call, answered: bool, now: Instant) {
        let Some(load) = self.load(call) else { return };
        load.pending = load.pending.saturating_sub(1);
        if answered {
            let took = now.saturating_duration_since(call.begun).as_secs_f64();
            load.estimate = Some(Estimate::after(load.estimate, took, now));
        }
    }

    /// A member came back: what it took before is forgotten.
    pub fn begin_anew(&mut self, member: usize) {
        for load in self.loads.get_mut(member).into_iter().flatten() {
            load.estimate = None;
        }
    }

    fn load(&mut self, call: &Call) -> Option<&mut Load> {
        self.loads.get_mut(call.member).map(|loads| &mut loads[call.class.index()])
    }
}

/// A random number as one of [0, 1).
fn chance(random: u64) -> f64 {
    // The upper 53 bits are what a float tells apart.
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// The best first; of equals, those that stand first.
fn sorted_by_key<K: Fn(&Candidate) -> f64>(candidates: &[Candidate], key: K) -> Vec<usize> {
    let mut places: Vec<usize> = (0..candidates.len()).collect();
    places.sort_by(|one, other| key(&candidates[*one]).total_cmp(&key(&candidates[*other])));
    places
}

/// Moves a place to the front.
fn first(place: usize, mut places: Vec<usize>) -> Vec<usize> {
    places.retain(|other| *other != place);
    places.insert(0, place);
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::health::Outcome;
    use crate::limits;
    use proptest::prelude::*;
    use std::time::Duration;

    pub(super) fn candidate(member: usize) -> Candidate {
        Candidate { member, weight: 1, pending: 0, sessions: 0, takes: 0.001 }
    }

    /// A vector file's cases.
    pub(super) fn cases(text: &str) -> Vec<serde_json::Value> {
        let vectors: serde_json::Value = serde_json::from_str(text).expect("is JSON");
        let cases = vectors["cases"].as_array().expect("has cases").clone();
        assert!(!cases.is_empty());
        cases
    }

    /// Random enough, and the same in every run.
    pub(super) fn dice(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D)
        }
    }

    fn rankings() -> impl Strategy<Value = Ranking> {
        prop::sample::select(Ranking::NAMES.map(|(_, ranking)| ranking).to_vec())
    }

    #[test]
    fn worse_ones_are_asked_after_all_others() {
        let (now, mut dice) = (Clock.now(), dice(1));
        let mut watch = Watch::new(4);
        let later = now + limits::SUSPECT_AFTER;
        watch.begin(0, Class::Quick, now);
        for (member, outcome) in [(1, Outcome::NotServing), (2, Outcome::Lost)] {
            let call = watch.begin(member, Class::Quick, later);
            watch.end(&call, outcome, later);
        }
        for (_, ranking) in Ranking::NAMES {
            let mut balancer = Balancer::new(ranking, vec![1; 4]);
            let order = balancer.order(&watch, Class::Quick, later, &mut dice);
            assert_eq!(order, Order { due: None, members: vec![3, 0, 1] }, "{ranking:?}");
            let order = balancer.order(&watch, Class::Quick, later + limits::GONE_MIN, &mut dice);
            assert_eq!(order.due, Some(2), "{ranking:?}");
        }
    }

    #[test]
    fn where_all_rest_all_share() {
        let (now, mut dice) = (Clock.now(), dice(2));
        let (mut watch, mut balancer) = (Watch::new(3), Balancer::new(Ranking::LeastBusy, vec![1; 3]));
        for member in 0..3 {
            let call = watch.begin(member, Class::Quick, now);
            watch.end(&call, Outcome::NotServing, now);
        }
        let mut firsts = [0; 3];
        for _ in 0..300 {
            firsts[balancer.order(&watch, Class::Quick, now, &mut dice).members[0]] += 1;
        }
        assert!(firsts.iter().all(|count| *count > 50), "{firsts:?}");
    }

    proptest! {
        /// Every policy orders all that may be asked, each once, whatever their loads are.
        #[test]
        fn an_order_is_complete(
            ranking in rankings(),
            weights in prop::collection::vec(0u32..5, 1..8),
            calls in prop::collection::vec((0usize..8, 0u64..10_000), 0..64),
            seed: u64,
        ) {
            let (mut now, mut dice) = (Clock.now(), dice(seed));
            let count = weights.len();
            let (mut balancer, mut watch) = (Balancer::new(ranking, weights.clone()), Watch::new(count));
            for (member, micros) in calls {
                let call = watch.begin(member % count, Class::Quick, now);
                balancer.begin(&call);
                let mut order = balancer.order(&watch, Class::Quick, now, &mut dice).members;
                if weights.iter().any(|weight| *weight > 0) {
                    prop_assert!(weights[order[0]] > 0, "a weight of 0 gets nothing");
                }
                order.sort_unstable();
                prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
                now += Duration::from_micros(micros);
                balancer.end(&call, true, now);
                // Their health is another matter.
                watch = Watch::new(count);
            }
        }
    }
}
