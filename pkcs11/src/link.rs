//! Carries calls to a group's members: to the one that the ranking says, and to another when one is lost, busy or not
//! able, until the deadline. Every call is safe to repeat, changes by their request ids. `member` is one member's
//! connections, `names` where it is, `mind` knows whom to ask. There are no threads of ours: whatever is learned of a member is learned
//! by calls.

mod member;
mod mind;
mod names;
#[cfg(test)]
mod tests;

use crate::config::GroupConfig;
use crate::rv::{Rv, explain};
use cryptoki_sys::{CKR_DEVICE_ERROR, CKR_DEVICE_REMOVED};
use keyraft_engine::client::CallError;
use keyraft_engine::clock::Clock;
use keyraft_engine::health::{Call, Onward, Outcome as Fate, Pace, Try, refused};
use keyraft_engine::wire::{
    Answer, ClientRequest, Failure, FailureKind, Remedy, SlotCall, SlotReply, SlotRequest, Undecided,
};
use member::{Ended, Member, Place};
use mind::Mind;
use std::time::{Duration, Instant};

/// The first pause when nobody answers; doubled up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long a member that said nothing may yet know better than those that refuse this application.
const REFUSED_PATIENCE: Duration = Duration::from_secs(2);

/// A group's members as this machine reaches them.
pub(crate) struct Link {
    members: Vec<Member>,
    mind: Mind,
    timeout: Duration,
    replay_bytes_max: usize,
}

/// An answer, or why there is none, and whether an attempt may have been carried out without its answer.
pub(crate) struct Outcome {
    /// The answer.
    pub reply: std::result::Result<SlotReply, Lost>,
    /// An attempt was lost on the way: it may have been carried out.
    pub lost_one: bool,
}

/// What is known when a call ends without an answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// A member said no.
    Failed(Failure),
    /// No member was reached before the deadline.
    Nobody,
    /// A member was lost under a call with more data than may be sent again.
    TooLong,
}

impl From<Lost> for Rv {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Failed(failure) => {
                explain(&failure);
                Self::from(&failure)
            }
            Lost::Nobody => Self(CKR_DEVICE_REMOVED),
            Lost::TooLong => {
                explain(
                    &"a member was lost under a call with more data than replay_bytes_max lets be sent again",
                );
                Self(CKR_DEVICE_ERROR)
            }
        }
    }
}

/// One call on its way.
struct Errand {
    request: ClientRequest,
    pace: Pace,
    begun: Instant,
    deadline: Instant,
    /// How long it stays at one member, unless nobody else is fit.
    attempt: Duration,
    /// What an attempt without an answer leaves undecided.
    undecided: Undecided,
    /// It may be sent again after a loss.
    repeatable: bool,
    lost_one: bool,
    /// Members that refused this application in the last round.
    refusals: usize,
    /// Rounds that have begun.
    rounds: u32,
}

impl Errand {
    fn ends(self, lost: Lost) -> Outcome {
        let lost = match lost {
            Lost::Failed(failure) if self.lost_one => Lost::Failed(failure.after_a_loss(self.undecided)),
            lost => lost,
        };
        Outcome { reply: Err(lost), lost_one: self.lost_one }
    }
}

/// How an attempt at a member ended.
enum Next {
    /// The call is at its end.
    End(std::result::Result<SlotReply, Lost>),
    /// Another member is asked, at no cost.
    Another(Lost),
    /// Another member is asked, if the budget for that allows.
    Second(Lost),
}

impl Link {
    pub fn new(config: &GroupConfig) -> Self {
        let local = config.sockets.iter().cloned().map(Place::Socket);
        let remote = config.remote.iter().flat_map(|remote| {
            let place = |address: &String| Place::Address(address.clone(), remote.credentials.clone());
            remote.members.iter().map(place)
        });
        Self {
            members: local.chain(remote).map(Member::new).collect(),
            mind: Mind::new(config),
            timeout: config.timeout,
            replay_bytes_max: config.replay_bytes_max,
        }
    }

    /// Asks the group. Returns by the deadline, whatever happens.
    pub fn call(&self, call: SlotCall, pace: Pace) -> std::result::Result<SlotReply, Lost> {
        self.ask(call, pace).reply
    }

    /// The same, telling whether an attempt was lost.
    pub fn ask(&self, call: SlotCall, pace: Pace) -> Outcome {
        let mut errand = self.errand(call, pace);
        let mut pause = PAUSE_MIN;
        loop {
            let failed = match self.round(&mut errand) {
                Ok(reply) => return Outcome { reply: Ok(reply), lost_one: errand.lost_one },
                Err(failed) => failed,
            };
            let left = errand.deadline.saturating_duration_since(Clock.now());
            if self.is_final(&failed, &errand) || left.is_zero() {
                return errand.ends(failed);
            }
            std::thread::sleep(pause.min(left));
            if pause >= left {
                return errand.ends(failed);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The same in one round: nobody is waited for who is not there.
    pub fn once(&self, call: SlotCall, pace: Pace) -> std::result::Result<SlotReply, Lost> {
        self.round(&mut self.errand(call, pace))
    }

    fn errand(&self, call: SlotCall, pace: Pace) -> Errand {
        let begun = Clock.now();
        Errand {
            repeatable: data_bytes(&call.ask) <= self.replay_bytes_max,
            undecided: call.ask.undecided(),
            request: ClientRequest::Slot(Box::new(call)),
            pace,
            begun,
            deadline: begun + self.timeout,
            attempt: pace.attempt(),
            lost_one: false,
            refusals: 0,
            rounds: 0,
        }
    }

    /// True if asking again would not help. One member's refusal of this application is final once no other one knows
    /// better, and those that say nothing have had some time.
    fn is_final(&self, lost: &Lost, errand: &Errand) -> bool {
        match lost {
            Lost::Failed(_) if lost.is_refusal() => {
                errand.refusals >= self.members.len()
                    || Clock.now().saturating_duration_since(errand.begun) >= REFUSED_PATIENCE
            }
            Lost::Failed(failure) => failure.remedy() == Remedy::GiveUp,
            Lost::Nobody => false,
            Lost::TooLong => true,
        }
    }

    /// One attempt at each member that may be asked, in the ranking's order.
    fn round(&self, errand: &mut Errand) -> std::result::Result<SlotReply, Lost> {
        let mut last = Lost::Nobody;
        errand.refusals = 0;
        let now = if errand.rounds == 0 { errand.begun } else { Clock.now() };
        let (order, mut first) = self.mind.start(errand.pace, now, errand.rounds == 0);
        errand.rounds = errand.rounds.saturating_add(1);
        let due = order.due.filter(|due| self.is_back(*due, errand.deadline));
        let known = order.members.into_iter().filter(|member| Some(*member) != due);
        let mut members = due.into_iter().chain(known).peekable();
        while let Some(member) = members.next() {
            let call = first.take().unwrap_or_else(|| self.mind.begin(member, errand.pace));
            let (lost, free) = match self.attempt(call, errand) {
                Next::End(reply) => return reply,
                Next::Another(lost) => (lost, true),
                Next::Second(lost) => (lost, false),
            };
            errand.refusals += usize::from(lost.is_refusal());
            if lost.outweighs(&last) {
                last = lost;
            }
            // With nobody left to ask, the budget is none of it.
            if Clock.now() >= errand.deadline
                || members.peek().is_none()
                || !(free || self.mind.may_ask_another())
            {
                break;
            }
        }
        Err(last)
    }

    /// Whether a member that was out is back: one caller at a time finds out, by a greeting. One that is out for its
    /// errors or slowness is known to greet: it is judged by the call.
    fn is_back(&self, member: usize, deadline: Instant) -> bool {
        let patience = match self.mind.try_again(member) {
            Some(Try::Greet(patience)) => patience,
            Some(Try::Call) => return true,
            None => return false,
        };
        let place = &self.members[member];
        let left = deadline.saturating_duration_since(Clock.now()).min(patience);
        // Nobody waits for one that may be gone, unless there is nobody else.
        let opened = if self.mind.is_alone() {
            place.open(Clock.now() + left, true).map(Some)
        } else {
            place.knock(left)
        };
        match opened {
            Ok(Some(connection)) => {
                place.stop_knocking();
                place.keep(connection);
                self.mind.came_back(member);
                true
            }
            Ok(None) => {
                if self.mind.not_yet(member) {
                    place.stop_knocking();
                }
                false
            }
            // It says nothing about the member.
            Err(error) if error.is_own() => {
                explain(&format_args!("{}: {error}", place.place));
                self.mind.not_yet(member);
                false
            }
            // It lives; what it says will be the call's answer.
            Err(CallError::Failed(_)) => {
                self.mind.came_back(member);
                true
            }
            Err(error) => {
                explain(&format_args!("{}: {error}", place.place));
                self.mind.stays_out(member, error.is_late());
                false
            }
        }
    }

    /// One attempt at a member, which has begun.
    fn attempt(&self, call: Call, errand: &mut Errand) -> Next {
        let member = &self.members[call.member];
        if let ClientRequest::Slot(asked) = &mut errand.request {
            asked.tries = asked.tries.saturating_add(1);
        }
        let mut leave = call.begun + errand.attempt;
        let mut goes_on = || {
            self.mind.heard(&call);
            if Clock.now() < leave {
                return true;
            }
            leave += errand.attempt;
            !(errand.repeatable && self.mind.may_leave(call.member))
        };
        let mut lost = false;
        let ended = member.call(&errand.request, errand.repeatable, errand.deadline, &mut goes_on, &mut lost);
        errand.lost_one |= lost;
        let (fate, next) = match ended {
            Ended::Done(Ok(Answer::Slot(reply))) => (Fate::Answered, Next::End(Ok(*reply))),
            Ended::Done(Ok(_)) => {
                explain(&"a member answered another question");
                (Fate::Failed, Next::Second(Lost::Nobody))
            }
            Ended::Done(Err(CallError::Failed(failure))) => {
                // It was given up somewhere on the way, and goes on there.
                errand.lost_one |= failure.kind == FailureKind::Deadline;
                judge(failure)
            }
            Ended::Done(Err(error)) => {
                explain(&format_args!("{}: {error}", member.place));
                self.lost(&call, &error, errand)
            }
            Ended::Left => {
                explain(&format_args!("{}: no answer yet: another member is asked", member.place));
                errand.lost_one = true;
                // The next one gets more time: what takes long everywhere must end somewhere.
                errand.attempt *= 2;
                (Fate::Late, Next::Another(Lost::Nobody))
            }
        };
        self.mind.end(&call, fate);
        next
    }

    /// A call that brought no answer.
    fn lost(&self, call: &Call, error: &CallError, errand: &mut Errand) -> (Fate, Next) {
        let sent = matches!(error, CallError::Lost(_));
        errand.lost_one |= sent;
        let now = Clock.now();
        let fate = match error.is_late() {
            // Nobody can say what the member would have done.
            _ if error.is_own() => Fate::Unknown,
            true if now < errand.deadline => Fate::Silent,
            true if now.saturating_duration_since(call.begun) >= errand.pace.attempt() => Fate::Late,
            true => Fate::Unknown,
            false => Fate::Lost,
        };
        if sent && matches!(fate, Fate::Silent | Fate::Lost) {
            self.members[call.member].forget();
        }
        if sent && !errand.repeatable {
            return (fate, Next::End(Err(Lost::TooLong)));
        }
        (fate, Next::Another(Lost::Nobody))
    }
}

/// What a failure says about the member that told it, and what to do.
fn judge(failure: Failure) -> (Fate, Next) {
    let (fate, onward) = refused(&failure);
    let next = match onward {
        Onward::End => return (fate, Next::End(Err(Lost::Failed(failure)))),
        Onward::Another => Next::Another,
        Onward::Second => Next::Second,
    };
    explain(&failure);
    (fate, next(Lost::Failed(failure)))
}

impl Lost {
    /// What a member says outweighs that another one said nothing. A refusal is kept until a member that serves says
    /// something else.
    fn outweighs(&self, last: &Self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Failed(failure) if last.is_refusal() => failure.remedy() == Remedy::TryAgain,
            Self::Failed(failure) if failure.kind == FailureKind::Forbidden => {
                !matches!(last, Self::Failed(last) if last.remedy() == Remedy::TryAgain)
            }
            Self::Failed(_) | Self::TooLong => true,
        }
    }

    /// True if a member does not let this application in.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.kind == FailureKind::Forbidden)
    }
}

/// The application's data that a call carries, bytes.
fn data_bytes(ask: &SlotRequest) -> usize {
    match ask {
        SlotRequest::Use { data, .. } => data.0.len(),
        _ => 0,
    }
}
