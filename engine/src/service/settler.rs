//! What the primary proposes so that every pending object and unfinished removal comes to its end, and so that the
//! in-sync set tells the truth. Pure: state, reports and the time in, commands out.

use super::lease::{self, Grants};
use super::way_back::{Left, take_back};
use crate::domain::{LogIndex, MemberId, ObjectId, RequestId};
use crate::limits;
use crate::mutant::{self, Mutant};
use crate::state::{
    Command, LeaveReason, Member, Object, PartialKeys, Phase, Refusal, Settlement, Standing, State, Verdict,
};
use crate::wire::{ObjectStatus, Report, TokenHealth};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What the primary last heard of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When.
    pub at: Instant,
    /// What its reconciler has reached.
    pub reached: LogIndex,
    /// Objects that wait for a settlement.
    pub objects: BTreeMap<ObjectId, ObjectStatus>,
    /// Its token.
    pub token: TokenHealth,
    /// It tries in vain to bring its token up to date.
    pub stuck: bool,
}

impl Heard {
    /// A report, heard at this moment.
    pub fn new(report: Report, at: Instant) -> Self {
        let objects = report.objects.into_iter().map(|row| (row.object, row.status)).collect();
        Self { at, reached: report.reached, objects, token: report.token, stuck: report.stuck }
    }
}

/// What the primary knows besides the agreed state.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The last report of each member.
    pub heard: BTreeMap<MemberId, Heard>,
    /// Since when each unsettled request has been waiting here.
    pub waiting: BTreeMap<RequestId, Instant>,
    /// Since when this member has been primary: silence before it does not count.
    pub since: Option<Instant>,
    /// Members that vote, by the last finished change of the voters.
    pub voters: BTreeSet<MemberId>,
    /// Members whose machine says that no process of theirs listens.
    pub absent: BTreeSet<MemberId>,
    /// The members that left the in-sync set.
    pub left: Left,
    /// The term that this member leads in: whatever it knows belongs to it.
    pub term: u64,
    /// The leases that it gave.
    pub grants: Grants,
}

impl Watch {
    /// True if the group has to give the member a vote first. Counted on without one, it could be what is left of the
    /// group after a loss, and no quorum with it.
    pub(super) fn awaits_vote(&self, member: MemberId) -> bool {
        !self.voters.contains(&member) && self.voters.len() < limits::VOTERS_MAX
    }

    /// Notes which requests wait, and since when.
    pub fn note_waiting(&mut self, state: &State, now: Instant) {
        let unsettled: BTreeSet<RequestId> = state.unsettled().collect();
        self.waiting.retain(|request, _| unsettled.contains(request));
        for request in unsettled {
            self.waiting.entry(request).or_insert(now);
        }
        self.heard.retain(|member, _| state.member(*member).is_some());
        self.left.note(state, now);
        self.grants.forget_old(now);
    }
}

/// The commands to propose now.
pub fn decide(state: &State, watch: &Watch, now: Instant) -> Vec<Command> {
    let mut commands: Vec<Command> =
        state.members().filter_map(|(id, member)| standing(state, watch, now, id, member)).collect();
    commands.extend(lease::confirmations(state, &watch.grants));
    let settlements: Vec<Settlement> = state
        .unsettled()
        .filter(|request| {
            !mutant::is_on(Mutant::ResumeNothing) || watch.waiting.get(request) > watch.since.as_ref()
        })
        .filter_map(|request| settle(state, watch, now, request))
        .take(limits::SETTLEMENTS_PER_ENTRY_MAX)
        .collect();
    if !settlements.is_empty() {
        commands.push(Command::Settle { settlements });
    }
    commands
}

fn standing(state: &State, watch: &Watch, now: Instant, id: MemberId, member: &Member) -> Option<Command> {
    let heard = watch.heard.get(&id);
    match &member.standing {
        Standing::OutOfSync(_) => take_back(state, watch, now, id, member),
        Standing::Entering(entered) => match leave_reason(state, watch, now, id) {
            Some(reason) => Some(Command::LeaveInSync { member: id, reason }),
            None => heard
                .filter(|h| h.reached >= *entered || mutant::is_on(Mutant::CountALearner))
                .map(|h| Command::ReachInSync { member: id, reached: h.reached.max(*entered) }),
        },
        Standing::InSync => {
            let last = state.in_sync().len() == 1;
            let reason = leave_reason(state, watch, now, id).filter(|_| !last)?;
            Some(Command::LeaveInSync { member: id, reason })
        }
    }
}

pub(super) fn fresh(heard: &Heard, now: Instant) -> bool {
    now.saturating_duration_since(heard.at) < limits::MEMBER_DEAD
}

fn leave_reason(state: &State, watch: &Watch, now: Instant, id: MemberId) -> Option<LeaveReason> {
    let heard = watch.heard.get(&id);
    if let Some(TokenHealth::Failed(why)) = heard.map(|h| &h.token) {
        return Some(LeaveReason::TokenFailed(short(why)));
    }
    if watch.absent.contains(&id) {
        return Some(LeaveReason::Unreachable);
    }
    let last = heard.map(|h| h.at).into_iter().chain(watch.since).max()?;
    if now.saturating_duration_since(last) >= limits::MEMBER_DEAD {
        return Some(LeaveReason::Unreachable);
    }
    // Heard, but some object has been waiting for it beyond the import deadline.
    state.unsettled_objects().find_map(|(object, row)| {
        let request = waiting_request(row)?;
        let since = watch.waiting.get(&request)?;
        if now.saturating_duration_since(*since) < limits::IMPORT || !owes(row, id) {
            return None;
        }
        match heard.and_then(|h| h.objects.get(&object)) {
            Some(ObjectStatus::Failing(why)) => Some(LeaveReason::TokenFailed(short(why))),
            Some(_) => None,
            None => Some(LeaveReason::Unreachable),
        }
    })
}

fn waiting_request(row: &Object) -> Option<RequestId> {
    match row.phase {
        Phase::Pending(request) | Phase::Removing(request) => Some(request),
        Phase::Settled => None,
    }
}

fn owes(row: &Object, member: MemberId) -> bool {
    !row.excluded.contains_key(&member)
}

/// How a request ends now, if it does.
fn settle(state: &State, watch: &Watch, now: Instant, request: RequestId) -> Option<Settlement> {
    let rows: Vec<(ObjectId, &Object)> = state.objects_of(request).collect();
    let allow = state.options().partial_keys == PartialKeys::Allow;
    let mut holders = BTreeSet::new();
    let mut excluded = BTreeMap::new();
    let required = state.required();
    let removes = rows.iter().any(|(_, row)| matches!(row.phase, Phase::Removing(_)));
    if removes && !lease::may_answer(state, &watch.grants, watch.since, &required, now) {
        return None;
    }
    for member in required {
        match member_verdict(watch, member, &rows) {
            MemberVerdict::Done => {
                holders.insert(member);
            }
            MemberVerdict::Refused(refusal) if allow => {
                excluded.insert(member, refusal);
            }
            MemberVerdict::Refused(refusal) => {
                return Some(Settlement { request, verdict: Verdict::Aborted(refusal) });
            }
            MemberVerdict::Waiting
                if !removes && !holders.is_empty() && mutant::is_on(Mutant::AnswerBeforeInSyncHolds) =>
            {
                holders.insert(member);
            }
            MemberVerdict::Waiting => return None,
        }
    }
    if holders.is_empty() {
        let refusal = excluded.into_values().next()?;
        return Some(Settlement { request, verdict: Verdict::Aborted(refusal) });
    }
    Some(Settlement { request, verdict: Verdict::Done { holders, excluded } })
}

enum MemberVerdict {
    Done,
    Refused(Refusal),
    Waiting,
}

fn member_verdict(watch: &Watch, member: MemberId, rows: &[(ObjectId, &Object)]) -> MemberVerdict {
    let Some(heard) = watch.heard.get(&member) else { return MemberVerdict::Waiting };
    for (id, row) in rows {
        if row.excluded.contains_key(&member) {
            continue;
        }
        match (&row.phase, heard.objects.get(id)) {
            (Phase::Pending(_), Some(ObjectStatus::Held))
            | (Phase::Removing(_), Some(ObjectStatus::Dropped)) => {}
            (Phase::Pending(_), Some(ObjectStatus::Refused(why))) => {
                return MemberVerdict::Refused(Refusal { member, reason: short(why) });
            }
            _ => return MemberVerdict::Waiting,
        }
    }
    MemberVerdict::Done
}

/// A reason that fits into the log.
pub fn short(text: &str) -> String {
    let mut end = text.len().min(limits::TEXT_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

#[cfg(test)]
pub(super) mod tests;
