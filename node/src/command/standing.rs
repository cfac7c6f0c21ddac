//! Commands about what members are for, how they come back, and whether they hold what is agreed.

use super::done;
use crate::caller::{Ask, Caller, unexpected};
use crate::cli::{Member, RecoveryKind, RecoveryMode};
use crate::exit::{Exit, Problem};
use crate::output::{self, View};
use keyraft_engine::domain::LogIndex;
use keyraft_engine::state::{AutoRecovery, Duty, GroupOption};
use keyraft_engine::wire::{Answer, ClientRequest};
use serde_json::json;
use std::time::Duration;

/// Carries out what `member` has besides its list and removal.
pub(super) async fn member(ask: &dyn Ask, limit: Duration, command: &Member) -> Result<View, Problem> {
    let caller = Caller::born(ask, limit, LogIndex(0))?;
    match command {
        Member::AddStandby(options) => {
            let life_seconds = options.life;
            invitation(caller.read(|| ClientRequest::InviteStandby { life_seconds }).await?)
        }
        Member::Activate(one) => {
            let (member, duty) = (one.member, Duty::Active);
            done(&caller, || ClientRequest::SetDuty { member, duty }).await?;
            Ok(View::done(format!("{member} is active: it serves while it is in sync")))
        }
        Member::Standby(one) => {
            let (member, duty) = (one.member, Duty::Standby);
            done(&caller, || ClientRequest::SetDuty { member, duty }).await?;
            Ok(View::done(format!("{member} is a standby: it serves only while no active member does")))
        }
        Member::Recover(one) => {
            let member = one.member;
            done(&caller, || ClientRequest::RecoverMember(member)).await?;
            Ok(View::done(format!("{member} is taken back as soon as it is there and has caught up")))
        }
        other => Err(Problem::usage(format!("{other:?} is another command's"), "")),
    }
}

/// An invitation as it is printed.
pub(super) fn invitation(answer: Answer) -> Result<View, Problem> {
    match answer {
        Answer::Invitation(text) => Ok(View::line(text.clone(), json!({"invitation": text}))),
        other => Err(unexpected(&other)),
    }
}

/// `recovery-mode`.
pub(super) async fn recovery_mode(
    ask: &dyn Ask,
    limit: Duration,
    options: &RecoveryMode,
) -> Result<View, Problem> {
    let retries = match options.mode {
        RecoveryKind::Manual => 0,
        RecoveryKind::Auto if options.retries == 0 => {
            let remedy = "name another number, or use 'keyraft recovery-mode manual'";
            return Err(Problem::usage("recovery-mode auto cannot have --retries 0", remedy));
        }
        RecoveryKind::Auto => options.retries,
    };
    let recovery = AutoRecovery { retries, interval_seconds: options.interval };
    let caller = Caller::born(ask, limit, LogIndex(0))?;
    done(&caller, || ClientRequest::SetOption(GroupOption::AutoRecovery(recovery))).await?;
    Ok(View::line(output::recovery_text(&recovery), output::recovery_json(&recovery)))
}

/// `option set auto_recovery RETRIES[,SECONDS]`.
pub(super) fn parse_recovery(value: &str) -> Option<AutoRecovery> {
    let (retries, seconds) = value.split_once(',').unwrap_or((value, ""));
    let mut recovery = AutoRecovery { retries: retries.trim().parse().ok()?, ..AutoRecovery::default() };
    if value.contains(',') {
        recovery.interval_seconds = seconds.trim().parse().ok()?;
    }
    recovery.is_valid().then_some(recovery)
}

/// The report of `synchronize`: an error if anything could not be done, printed all the same.
pub(super) fn synchronized(answer: Answer, json: bool) -> Result<View, Problem> {
    let Answer::Synchronized { rows, totals, more } = answer else { return Err(unexpected(&answer)) };
    let view = output::synchronized(&rows, &totals, more);
    let cannot: u64 = totals.iter().map(|(_, totals)| totals.cannot).sum();
    if cannot == 0 && rows.iter().all(|row| row.action.urgency() > 0) {
        return Ok(view);
    }
    super::print(&view, json)?;
    Err(Problem::new(
        Exit::CheckFailed,
        "not everything could be made equal",
        "the lines above say what could not and why; all the rest was done",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_by_numbers() {
        let is = |retries, interval_seconds| Some(AutoRecovery { retries, interval_seconds });
        assert_eq!(parse_recovery("-1"), is(-1, 1));
        assert_eq!(parse_recovery("0"), is(0, 1));
        assert_eq!(parse_recovery("5,60"), is(5, 60));
        for wrong in ["", "x", "-2", "501", "5,", "5,0", "5,x", "5,60,7", "5,86401"] {
            assert_eq!(parse_recovery(wrong), None, "{wrong}");
        }
    }
}
