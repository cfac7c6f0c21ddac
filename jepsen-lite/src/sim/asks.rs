//! How a simulated application asks a group, as the PKCS#11 module does: the member that the engine's own ranking says, and
//! another one when that is lost, busy or not able, under the same request id, until the deadline.

use super::network::{Network, OUTSIDE, Place, Way};
use keyraft_engine::balance::{Balancer, Budget, Order, Ranking};
use keyraft_engine::clock::Clock;
use keyraft_engine::codec::{decode, encode};
use keyraft_engine::health::{Call, Onward, Outcome as Fate, Pace, Standing, Try, Watch, refused};
use keyraft_engine::limits::FRAME_MAX_BYTES;
use keyraft_engine::transport::{Caller, ConnectionId, LinkError};
use keyraft_engine::wire::{Answer, ClientRequest, Failure, FailureKind, Remedy, Request, Response};
use std::time::{Duration, Instant};

/// The first pause when nobody answers; doubled up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Why there is no answer.
#[derive(Clone, Debug)]
pub enum Lost {
    /// A member said no.
    Failed(Failure),
    /// No member was reached before the deadline.
    Nobody,
}

/// What came of a call.
#[derive(Debug)]
pub struct Asked {
    /// The answer, or why there is none.
    pub answer: Result<Answer, Lost>,
    /// An attempt may have been carried out without its answer.
    pub lost_one: bool,
}

/// One application's way to its members.
pub struct Asker {
    network: Network,
    members: Vec<(Place, ConnectionId)>,
    timeout: Duration,
    watch: Watch,
    balancer: Balancer,
    budget: Budget,
    dice: u64,
    searched: Option<usize>,
}

/// One call on its way.
struct Errand {
    request: ClientRequest,
    pace: Pace,
    deadline: Instant,
    attempt: Duration,
    lost_one: bool,
    first: bool,
}

impl Errand {
    fn ends(self, lost: Lost) -> Asked {
        let lost = match lost {
            Lost::Failed(failure) if self.lost_one => {
                Lost::Failed(failure.after_a_loss(self.request.undecided()))
            }
            lost => lost,
        };
        Asked { answer: Err(lost), lost_one: self.lost_one }
    }
}

/// How an attempt at a member ended.
enum Next {
    End(Result<Answer, Lost>),
    /// Another member is asked, at no cost.
    Another(Lost),
    /// Another member is asked, if the budget for that allows.
    Second(Lost),
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Clock.now())
}

impl Asker {
    /// One that asks these members.
    pub fn new(network: &Network, places: &[Place], seed: u64, timeout: Duration) -> Self {
        Self {
            members: places.iter().map(|place| (*place, network.connection())).collect(),
            network: network.clone(),
            timeout,
            watch: Watch::new(places.len()),
            balancer: Balancer::new(Ranking::default(), vec![1; places.len()]),
            budget: Budget::new(Clock.now()),
            dice: seed | 1,
            searched: None,
        }
    }

    /// Asks the group. Returns by the deadline, whatever happens.
    pub async fn ask(&mut self, request: ClientRequest, pace: Pace) -> Asked {
        let deadline = Clock.now() + self.timeout;
        let attempt = pace.attempt();
        let mut errand = Errand { request, pace, deadline, attempt, lost_one: false, first: true };
        let mut pause = PAUSE_MIN;
        loop {
            let failed = match self.round(&mut errand).await {
                Ok(answer) => return Asked { answer: Ok(answer), lost_one: errand.lost_one },
                Err(failed) => failed,
            };
            let is_final = matches!(&failed, Lost::Failed(failure) if failure.remedy() == Remedy::GiveUp);
            let left = left(errand.deadline);
            if is_final || left.is_zero() {
                return errand.ends(failed);
            }
            tokio::time::sleep(pause.min(left)).await;
            if pause >= left {
                return errand.ends(failed);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn order(&mut self, pace: Pace) -> Order {
        let (now, dice) = (Clock.now(), &mut self.dice);
        // xorshift64*, as the module has it.
        let mut roll = || {
            *dice ^= *dice << 13;
            *dice ^= *dice >> 7;
            *dice ^= *dice << 17;
            dice.wrapping_mul(0x2545_F491_4F6C_DD1D)
        };
        let mut order = self.balancer.order(&self.watch, pace.class(), now, &mut roll);
        if pace == Pace::Search
            && let Some(searched) = self.searched
            && matches!(self.watch.standings(now).nth(searched), Some(Standing::Fit(_)))
        {
            order.members.retain(|member| *member != searched);
            order.members.insert(0, searched);
        }
        order
    }

    /// One attempt at each member that may be asked, in the ranking's order.
    async fn round(&mut self, errand: &mut Errand) -> Result<Answer, Lost> {
        let mut last = Lost::Nobody;
        if std::mem::take(&mut errand.first) {
            self.budget.earn();
        }
        let order = self.order(errand.pace);
        let due = match order.due {
            Some(due) if self.is_back(due, errand.deadline).await => Some(due),
            _ => None,
        };
        let known = order.members.into_iter().filter(|member| Some(*member) != due);
        let members: Vec<usize> = due.into_iter().chain(known).collect();
        for (nth, member) in members.iter().enumerate() {
            let (lost, free) = match self.attempt(*member, errand).await {
                Next::End(reply) => return reply,
                Next::Another(lost) => (lost, true),
                Next::Second(lost) => (lost, false),
            };
            if matches!(lost, Lost::Failed(_)) {
                last = lost;
            }
            if left(errand.deadline).is_zero()
                || nth + 1 == members.len()
                || !(free || self.budget.take(Clock.now()))
            {
                break;
            }
        }
        Err(last)
    }

    fn way(&self, member: usize) -> Way {
        let (to, connection) = self.members.get(member).copied().unwrap_or((OUTSIDE, ConnectionId(0)));
        let caller = Caller::Local { uid: 0, pid: None };
        Way { from: OUTSIDE, to, caller, bearer: None, connection }
    }

    /// Whether a member that was out is back, found out by a small question in place of a greeting.
    async fn is_back(&mut self, member: usize, deadline: Instant) -> bool {
        let patience = match self.watch.try_again(member, Clock.now()) {
            Some(Try::Greet(patience)) => patience.min(left(deadline)),
            Some(Try::Call) => return true,
            None => return false,
        };
        let Ok(request) = encode(&Request::Client(ClientRequest::Status)) else { return false };
        match self.network.call(self.way(member), request, patience, false).await {
            Ok(_) => {
                self.watch.came_back(member, Clock.now());
                self.balancer.begin_anew(member);
                true
            }
            Err(error) => {
                self.watch.stays_out(member, error == LinkError::Deadline, Clock.now());
                false
            }
        }
    }

    async fn attempt(&mut self, member: usize, errand: &mut Errand) -> Next {
        if let ClientRequest::Slot(asked) = &mut errand.request {
            asked.tries = asked.tries.saturating_add(1);
        }
        let call = self.watch.begin(member, errand.pace.class(), Clock.now());
        self.balancer.begin(&call);
        let (fate, next) = match encode(&Request::Client(errand.request.clone())) {
            Ok(request) => self.converse(&call, request, errand).await,
            Err(error) => {
                let failure = Failure::new(FailureKind::BadRequest, error);
                (Fate::Unknown, Next::End(Err(Lost::Failed(failure))))
            }
        };
        let (now, answered) = (Clock.now(), fate == Fate::Answered);
        if self.watch.end(&call, fate, now) {
            self.balancer.begin_anew(member);
        }
        self.balancer.end(&call, answered, now);
        if answered && errand.pace == Pace::Search {
            self.searched = Some(member);
        }
        next
    }

    async fn converse(&mut self, call: &Call, request: Vec<u8>, errand: &mut Errand) -> (Fate, Next) {
        let mut answer = self.network.ask(self.way(call.member), request, false);
        let told = loop {
            let patience = errand.attempt.min(left(errand.deadline));
            match tokio::time::timeout(patience, &mut answer).await {
                Ok(Ok(told)) => break told,
                Ok(Err(_)) => break Err(LinkError::Lost),
                Err(_) if left(errand.deadline).is_zero() => {
                    errand.lost_one = true;
                    let enough = Clock.now().saturating_duration_since(call.begun) >= errand.pace.attempt();
                    let fate = if enough { Fate::Late } else { Fate::Unknown };
                    return (fate, Next::Another(Lost::Nobody));
                }
                Err(_) => {
                    let now = Clock.now();
                    self.watch.heard(call.member, now);
                    if self.watch.has_other_fit(call.member, now) && self.budget.take(now) {
                        // The answer may still come, and nobody reads it. The next one gets more time.
                        errand.lost_one = true;
                        errand.attempt *= 2;
                        return (Fate::Late, Next::Another(Lost::Nobody));
                    }
                }
            }
        };
        match told {
            Ok(bytes) => match decode::<Response>(&bytes, FRAME_MAX_BYTES) {
                Ok(Response::Client(answer)) => (Fate::Answered, Next::End(Ok(answer))),
                Ok(Response::Failed(failure)) => {
                    errand.lost_one |= failure.kind == FailureKind::Deadline;
                    judge(failure)
                }
                Ok(Response::Member(_) | Response::Join(_)) | Err(_) => {
                    (Fate::Failed, Next::Second(Lost::Nobody))
                }
            },
            Err(LinkError::Unreachable(_) | LinkError::Refused(_)) => {
                (Fate::Lost, Next::Another(Lost::Nobody))
            }
            Err(LinkError::Lost) => {
                errand.lost_one = true;
                (Fate::Lost, Next::Another(Lost::Nobody))
            }
            Err(LinkError::Deadline) => {
                errand.lost_one = true;
                (Fate::Silent, Next::Another(Lost::Nobody))
            }
        }
    }
}

/// What a failure says about the member that told it, and what to do.
fn judge(failure: Failure) -> (Fate, Next) {
    let (fate, onward) = refused(&failure);
    let next = match onward {
        Onward::End => Next::End(Err(Lost::Failed(failure))),
        Onward::Another => Next::Another(Lost::Failed(failure)),
        Onward::Second => Next::Second(Lost::Failed(failure)),
    };
    (fate, next)
}
