//! Callers and members in simulated time: what a policy does with a member that is slow, and with calls that take long.

use super::tests::dice;
use super::{Balancer, Ranking};
use crate::clock::Clock;
use crate::health::{Call, Class, Outcome, Watch};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// A caller whose call is under way, by the moment of its end, the soonest greatest.
type Running = (Reverse<Instant>, usize);

/// Callers that ask again as soon as they are answered. A member serves one call at a time.
struct Simulation {
    balancer: Balancer,
    watch: Watch,
    dice: Box<dyn FnMut() -> u64>,
    now: Instant,
    /// What a call takes at each member.
    takes: Vec<Duration>,
    free: Vec<Instant>,
    running: BinaryHeap<Running>,
    /// Each caller's call.
    calls: Vec<Option<Call>>,
    /// Calls answered by each member, and all times.
    served: Vec<u32>,
    times: Vec<Duration>,
}

impl Simulation {
    fn new(ranking: Ranking, takes: &[Duration], callers: usize) -> Self {
        let now = Clock.now();
        let count = takes.len();
        let mut simulation = Self {
            balancer: Balancer::new(ranking, vec![1; count]),
            watch: Watch::new(count),
            dice: Box::new(dice(42)),
            now,
            takes: takes.to_vec(),
            free: vec![now; count],
            running: BinaryHeap::new(),
            calls: vec![None; callers],
            served: vec![0; count],
            times: Vec::new(),
        };
        (0..callers).for_each(|caller| simulation.ask(caller));
        simulation
    }

    fn ask(&mut self, caller: usize) {
        let order = self.balancer.order(&self.watch, Class::Signing, self.now, &mut self.dice);
        let tried = order.due.filter(|due| self.watch.try_again(*due, self.now).is_some());
        let member = tried.unwrap_or(order.members[0]);
        let call = self.watch.begin(member, Class::Signing, self.now);
        self.balancer.begin(&call);
        let end = self.free[member].max(self.now) + self.takes[member];
        self.free[member] = end;
        self.running.push((Reverse(end), caller));
        self.calls[caller] = Some(call);
    }

    /// Runs for a while, and counts anew.
    fn run(&mut self, time: Duration) {
        let stop = self.now + time;
        self.served.fill(0);
        self.times.clear();
        while let Some((Reverse(end), caller)) = self.running.peek().copied().filter(|(end, _)| end.0 <= stop)
        {
            self.running.pop();
            self.now = end;
            let call = self.calls[caller].take().expect("a call is under way");
            if self.watch.end(&call, Outcome::Answered, end) {
                self.balancer.begin_anew(call.member);
            }
            self.balancer.end(&call, true, end);
            self.served[call.member] += 1;
            self.times.push(end - call.begun);
            self.ask(caller);
        }
        self.now = stop;
    }

    fn share(&self, member: usize) -> f64 {
        f64::from(self.served[member]) / f64::from(self.served.iter().sum::<u32>())
    }

    fn p99(&mut self) -> Duration {
        self.times.sort_unstable();
        self.times[self.times.len() * 99 / 100]
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The slow one gets nearly nothing after 5 s, callers hardly notice it, and its share is back within 15 s.
fn slow_and_healed(each: Duration, callers: usize, slow_for: Duration) {
    let mut two = Simulation::new(Ranking::LeastBusy, &[each; 2], callers);
    two.run(20 * SECOND);
    let alone = two.p99();
    let mut three = Simulation::new(Ranking::LeastBusy, &[each; 3], callers);
    three.run(5 * SECOND);
    three.takes[2] = each * 10;
    three.run(5 * SECOND);
    three.run(slow_for);
    let what = format!("{callers} callers of {each:?}");
    assert!(three.share(2) < 0.01, "{what}: the slow one serves {}", three.share(2));
    let with_slow = three.p99();
    assert!(with_slow <= alone.mul_f64(1.5), "{what}: p99 of {with_slow:?} instead of {alone:?}");
    three.takes[2] = each;
    three.run(15 * SECOND);
    three.run(5 * SECOND);
    assert!(three.share(2) > 0.25, "{what}: the healed one serves {}", three.share(2));
}

#[test]
fn a_slow_member_is_left_alone_and_gets_its_share_back() {
    for callers in [3, 8, 16, 48] {
        for millis in [5, 20] {
            slow_and_healed(Duration::from_millis(millis), callers, 25 * SECOND);
        }
    }
}

/// What every policy gives to members that are alike.
#[test]
fn equal_members_get_equal_shares_and_all_their_time_is_used() {
    for (name, ranking) in Ranking::NAMES {
        if ranking == Ranking::SourceAffinity {
            continue;
        }
        for members in [2, 4, 8] {
            let each = Duration::from_millis(5);
            let mut simulation = Simulation::new(ranking, &vec![each; members], 16 * members);
            simulation.run(2 * SECOND);
            simulation.run(10 * SECOND);
            let served: u32 = simulation.served.iter().sum();
            let possible = members as f64 * 10.0 / each.as_secs_f64();
            assert!(f64::from(served) >= 0.95 * possible, "{name} with {members}: {served} of {possible}");
            for member in 0..members {
                let share = simulation.share(member) * members as f64;
                assert!((0.8..1.25).contains(&share), "{name} with {members}: {:?}", simulation.served);
            }
        }
    }
}

/// Calls that take long spread over all members, however many short ones each has.
#[test]
fn long_calls_fill_no_single_queue() {
    let (now, mut dice) = (Clock.now(), dice(7));
    let mut balancer = Balancer::new(Ranking::LeastBusy, vec![1; 3]);
    let mut watch = Watch::new(3);
    // Short calls were fastest at the first.
    for (member, micros) in [(0, 10), (1, 100), (2, 100)] {
        let call = watch.begin(member, Class::Quick, now);
        balancer.begin(&call);
        balancer.end(&call, true, now + Duration::from_micros(micros));
    }
    let mut waiting = [0; 3];
    for _ in 0..30 {
        let member = balancer.order(&watch, Class::Long, now, &mut dice).members[0];
        balancer.begin(&watch.begin(member, Class::Long, now));
        waiting[member] += 1;
    }
    assert!(waiting.iter().all(|count| (7..=13).contains(count)), "{waiting:?}");
    // And they do not turn short ones away.
    assert_eq!(balancer.order(&watch, Class::Quick, now, &mut dice).members.len(), 3);
    let firsts = (0..300).filter(|_| balancer.order(&watch, Class::Quick, now, &mut dice).members[0] == 0);
    assert!(firsts.count() > 150);
}
