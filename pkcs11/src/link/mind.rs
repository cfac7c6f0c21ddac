//! Whom to ask, and what was learned from asking: the ranking and the members' health, under one short lock. Nothing
//! waits while it is held.

use crate::config::GroupConfig;
use keyraft_engine::balance::{Balancer, Budget, Order};
use keyraft_engine::clock::Clock;
use keyraft_engine::health::{Call, Class, Outcome, Pace, Standing, Try, Watch};
use parking_lot::Mutex;
use std::time::Instant;

/// What one process knows of a group's members.
pub(super) struct Mind {
    state: Mutex<State>,
    /// So many of them are on this machine. The others know the application under another name, where it is not
    /// logged in: they are asked last.
    here: usize,
}

struct State {
    watch: Watch,
    balancer: Balancer,
    budget: Budget,
    dice: u64,
    /// The member that answers searches: what one has seen, another may not yet.
    searched: Option<usize>,
}

impl State {
    /// xorshift64*: good enough to choose by.
    fn order(&mut self, class: Class, now: Instant) -> Order {
        let Self { watch, balancer, dice, .. } = self;
        let mut roll = || {
            *dice ^= *dice << 13;
            *dice ^= *dice >> 7;
            *dice ^= *dice << 17;
            dice.wrapping_mul(0x2545_F491_4F6C_DD1D)
        };
        balancer.order(watch, class, now, &mut roll)
    }

    fn begin(&mut self, member: usize, pace: Pace, now: Instant) -> Call {
        let call = self.watch.begin(member, pace.class(), now);
        self.balancer.begin(&call);
        call
    }
}

impl Mind {
    pub fn new(config: &GroupConfig) -> Self {
        let weights = config.weights();
        let mut seed = [0; 8];
        // Without random numbers the choice is the same in each process: nothing depends on it.
        let _ = getrandom::fill(&mut seed);
        let state = State {
            watch: Watch::new(weights.len()),
            balancer: Balancer::new(config.ranking, weights),
            budget: Budget::new(Clock.now()),
            dice: u64::from_ne_bytes(seed) | 1,
            searched: None,
        };
        Self { state: Mutex::new(state), here: config.sockets.len() }
    }

    /// Whom to ask, in order, and the call to the first of them, which has begun unless a member that is out comes
    /// before. `fresh` says that the application has just made this call.
    pub fn start(&self, pace: Pace, now: Instant, fresh: bool) -> (Order, Option<Call>) {
        let mut state = self.state.lock();
        if fresh {
            state.budget.earn();
        }
        let mut order = state.order(pace.class(), now);
        if pace == Pace::Search
            && let Some(searched) = state.searched
            && matches!(state.watch.standings(now).nth(searched), Some(Standing::Fit(_)))
        {
            order.members.retain(|member| *member != searched);
            order.members.insert(0, searched);
        }
        order.members.sort_by_key(|member| *member >= self.here);
        let here = order.members.first().is_some_and(|first| *first < self.here);
        order.due = order.due.filter(|due| *due < self.here || !here);
        let first = order.members.first().filter(|_| order.due.is_none());
        let call = first.map(|first| state.begin(*first, pace, now));
        (order, call)
    }

    /// Takes on to find out whether a member is back. None if somebody else does.
    pub fn try_again(&self, member: usize) -> Option<Try> {
        self.state.lock().watch.try_again(member, Clock.now())
    }

    /// A member that was out greeted.
    pub fn came_back(&self, member: usize) {
        let mut state = self.state.lock();
        state.watch.came_back(member, Clock.now());
        state.balancer.begin_anew(member);
    }

    /// A member that is tried has not answered yet. True if that is the end of the try.
    pub fn not_yet(&self, member: usize) -> bool {
        self.state.lock().watch.not_yet(member, Clock.now())
    }

    /// True if no member is fit.
    pub fn is_alone(&self) -> bool {
        self.state.lock().watch.is_alone()
    }

    /// A member that was out is out still; `silent` if it took waiting to find out.
    pub fn stays_out(&self, member: usize, silent: bool) {
        self.state.lock().watch.stays_out(member, silent, Clock.now());
    }

    /// A call goes to a member.
    pub fn begin(&self, member: usize, pace: Pace) -> Call {
        self.state.lock().begin(member, pace, Clock.now())
    }

    /// The member works on it.
    pub fn heard(&self, call: &Call) {
        self.state.lock().watch.heard(call.member, Clock.now());
    }

    /// A call at a member ended.
    pub fn end(&self, call: &Call, outcome: Outcome) {
        let (now, answered) = (Clock.now(), outcome == Outcome::Answered);
        let mut state = self.state.lock();
        if state.watch.end(call, outcome, now) {
            state.balancer.begin_anew(call.member);
        }
        state.balancer.end(call, answered, now);
        if answered && call.class == Class::Search {
            state.searched = Some(call.member);
        }
    }

    /// Whether a call may leave a member that works on it for another one.
    pub fn may_leave(&self, member: usize) -> bool {
        let now = Clock.now();
        let mut state = self.state.lock();
        state.watch.has_other_fit(member, now) && state.budget.take(now)
    }

    /// Whether a call may ask a second living member.
    pub fn may_ask_another(&self) -> bool {
        self.state.lock().budget.take(Clock.now())
    }
}
