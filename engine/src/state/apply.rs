//! Applies one command: the index rule, the order of checks, and who decides what.

use super::{Command, Effects, GroupOption, LeaveReason, Outcome, Refusal, Rejection, State};
use crate::domain::LogIndex;
use crate::limits::{TEXT_MAX_BYTES, UPTIME_MARGIN_MAX_SECONDS};

/// What a room of `apply` answers: effects, or a refusal that changed nothing.
pub(super) type Applied = Result<Effects, Rejection>;

pub(super) fn apply(state: &mut State, index: LogIndex, command: Command) -> Effects {
    // A replay after a torn write, or after a checkpoint that is ahead of the log: the row is there already.
    if index <= state.applied {
        return Effects::default();
    }
    state.applied = index;
    dispatch(state, index, command)
        .unwrap_or_else(|rejection| Effects { outcome: Outcome::Rejected(rejection), ..Effects::default() })
}

fn dispatch(state: &mut State, index: LogIndex, command: Command) -> Applied {
    if let Command::Bootstrap(bootstrap) = command {
        return state.bootstrap(index, *bootstrap);
    }
    if state.group.is_none() {
        return Err(Rejection::NotBootstrapped);
    }
    match command {
        Command::Bootstrap(_) => Err(Rejection::AlreadyBootstrapped),
        Command::Invite { id, secret_hash, expires, at, duty } => {
            state.open_invite(id, secret_hash, expires, at, duty)
        }
        Command::Admit { invite, at, card } => state.admit(index, invite, at, *card),
        Command::Announce { member, card } => state.announce(index, member, *card),
        Command::RemoveMember { member } => state.remove_member(member),
        Command::EnterInSync { member } => state.enter_in_sync(index, member),
        Command::ReachInSync { member, reached } => state.reach_in_sync(index, member, reached),
        Command::LeaveInSync { member, reason } => state.leave_in_sync(index, member, reason),
        Command::ReserveIds { member, count } => state.reserve_ids(member, count),
        Command::Put { request, objects } => state.put(index, &request, objects),
        Command::Settle { settlements } => state.settle(index, settlements),
        Command::Remove { request, objects } => state.remove(index, &request, objects),
        Command::SetOption(option) => state.set_option(index, option),
        Command::SetPin { role, hash, follows, by } => state.pins.set(role, hash, follows, by),
        Command::ChargePin { who, role, attempt, tag } => state.pins.charge(index, who, role, attempt, tag),
        Command::ClearPin { who, role } => Ok(state.pins.clear(who, role)),
        Command::Replace { request, object } => state.replace(index, &request, object),
        Command::AddClient { name, tls } => state.applications.add(name, tls),
        Command::RemoveClient { name } => state.applications.remove(name),
        Command::SetDuty { member, duty } => state.set_duty(index, member, duty),
        Command::CountRetry { member } => state.count_retry(index, member),
        Command::Recover { member } => state.recover(index, member),
        Command::SetPriority { member, priority } => state.set_priority(index, member, priority),
        Command::ConfirmFence { member, since } => state.confirm_fence(member, since),
        Command::Differ { request, object, version } => state.differ(index, &request, object, version),
    }
}

impl State {
    fn set_option(&mut self, index: LogIndex, option: GroupOption) -> Applied {
        match option {
            GroupOption::PartialKeys(value) => self.options.partial_keys = value,
            GroupOption::AllowInmemoryImport(value) => self.options.allow_inmemory_import = value,
            GroupOption::IsolatedService(value) => self.set_isolated_service(index, value),
            GroupOption::AllowInitToken(value) => self.options.allow_init_token = value,
            GroupOption::AutoRecovery(value) if !value.is_valid() => {
                return Err(malformed(
                    "auto_recovery has too many retries, or too short or long an interval",
                ));
            }
            GroupOption::AutoRecovery(value) => self.options.auto_recovery = value,
            GroupOption::PrimaryOverride(value) => self.options.primary_override = value,
            GroupOption::UptimeMargin(seconds) if seconds > UPTIME_MARGIN_MAX_SECONDS => {
                return Err(malformed("the margin of uptimes is over its limit"));
            }
            GroupOption::UptimeMargin(seconds) => self.options.uptime_margin_s = seconds,
            GroupOption::DirectChanges(value) => self.options.direct_changes = value,
        }
        Ok(Effects { roster: true, ..Effects::default() })
    }
}

/// Cuts a reason to its limit: a token's long message must not hold up the settlement that carries it.
pub(super) fn cut(mut text: String) -> String {
    let mut end = text.len().min(TEXT_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

pub(super) fn cut_refusal(refusal: Refusal) -> Refusal {
    Refusal { reason: cut(refusal.reason), ..refusal }
}

pub(super) fn cut_reason(reason: LeaveReason) -> LeaveReason {
    match reason {
        LeaveReason::TokenFailed(why) => LeaveReason::TokenFailed(cut(why)),
        other => other,
    }
}

pub(super) fn malformed(why: &str) -> Rejection {
    Rejection::Malformed(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(cut("short".into()), "short");
        let long = cut("é".repeat(TEXT_MAX_BYTES));
        assert_eq!(long.len(), TEXT_MAX_BYTES);
        let odd = cut(format!("x{}", "é".repeat(TEXT_MAX_BYTES)));
        assert_eq!(odd.len(), TEXT_MAX_BYTES - 1);
    }
}
