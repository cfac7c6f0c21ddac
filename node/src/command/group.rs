//! Commands about the group and its members.

use super::{done, standing};
use crate::caller::{Ask, Caller, status, unexpected};
use crate::cli::{Command, Member, Options, PinCommand, PinRole};
use crate::exit::Problem;
use crate::output::{self, View};
use crate::secret;
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{LogIndex, ObjectId, Role};
use keyraft_engine::limits::UPTIME_MARGIN_MAX_SECONDS;
use keyraft_engine::state::{DirectChanges, GroupOption, IsolatedService, PartialKeys};
use keyraft_engine::wire::{Answer, ClientRequest, CoverageRow, FailureKind, MemberPulse};
use serde_json::json;
use std::io::IsTerminal;
use std::time::Duration;

pub(super) async fn run(
    ask: &dyn Ask,
    limit: Duration,
    command: &Command,
    json: bool,
) -> Result<View, Problem> {
    let caller = Caller::born(ask, limit, LogIndex(0))?;
    match command {
        Command::Status => {
            let group = status(ask, limit).await?;
            let pulses = pulses(ask, limit).await?;
            Ok(output::status(&group, pulses.as_deref(), Clock.unix()))
        }
        Command::Invite { life } => {
            standing::invitation(caller.read(|| ClientRequest::Invite { life_seconds: *life }).await?)
        }
        Command::Check => findings(caller.read(|| ClientRequest::Check).await?, json, None),
        Command::Synchronize => {
            let spinner = spinner("comparing agreed with held on every member", json);
            let answer = caller.read(|| ClientRequest::Synchronize).await;
            spinner.finish_and_clear();
            standing::synchronized(answer?, json)
        }
        Command::Coverage => Ok(output::coverage(&coverage(ask, limit, json).await?)),
        Command::StepDown { to } => {
            done(&caller, || ClientRequest::StepDown { to: *to }).await?;
            let primary = status(ask, limit).await?.primary.map(|m| m.to_string());
            let text =
                primary.as_ref().map_or("handed over".into(), |m| format!("handed over: the primary is {m}"));
            Ok(View::line(text, json!({"done": true, "primary": primary})))
        }
        Command::Recover(_) => match caller.read(|| ClientRequest::Recover).await? {
            Answer::Done => Ok(View::done("this member is taken back as soon as it has caught up")),
            answer => findings(answer, json, Some("the token is in use: there is nothing to recover")),
        },
        // `run` of the crate's root keeps every other command to itself.
        other => Err(Problem::usage(format!("{other:?} needs no running member"), "")),
    }
}

/// How every member is; None if this caller may not ask that.
async fn pulses(ask: &dyn Ask, limit: Duration) -> Result<Option<Vec<MemberPulse>>, Problem> {
    match crate::caller::repeat(ask, limit, || ClientRequest::Pulses).await {
        Ok(Answer::Pulses(pulses)) => Ok(Some(pulses)),
        Ok(other) => Err(unexpected(&other)),
        Err(failure) if failure.kind == FailureKind::Forbidden => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// Findings of a member: an error if there are any, else `good` or the empty list.
fn findings(answer: Answer, json: bool, good: Option<&str>) -> Result<View, Problem> {
    match (answer, good) {
        (Answer::Findings(lines), Some(good)) if lines.is_empty() => Ok(View::done(good)),
        (Answer::Findings(lines), None) if lines.is_empty() => Ok(output::findings(&lines)),
        (Answer::Findings(lines), _) => {
            super::print(&output::findings(&lines), json)?;
            Err(super::found(&lines))
        }
        (other, _) => Err(unexpected(&other)),
    }
}

/// Progress on a terminal; nothing elsewhere.
fn spinner(text: &str, json: bool) -> indicatif::ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let spinner = indicatif::ProgressBar::new_spinner().with_message(text.to_string());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// All rows of coverage, page by page.
pub(crate) async fn coverage(
    ask: &dyn Ask,
    limit: Duration,
    json: bool,
) -> Result<Vec<CoverageRow>, Problem> {
    let total = status(ask, limit).await?.objects;
    let progress = spinner("asking every member", json);
    let mut all: Vec<CoverageRow> = Vec::new();
    loop {
        let after: Option<ObjectId> = all.last().map(|row| row.object);
        match crate::caller::repeat(ask, limit, || ClientRequest::Coverage { after }).await? {
            Answer::Coverage { rows, more } => {
                let end = rows.is_empty() || !more;
                all.extend(rows);
                progress.set_message(format!("{} of {total} objects", all.len()));
                if end {
                    progress.finish_and_clear();
                    return Ok(all);
                }
            }
            other => return Err(unexpected(&other)),
        }
    }
}

pub(super) async fn member(ask: &dyn Ask, limit: Duration, command: &Member) -> Result<View, Problem> {
    match command {
        Member::List => Ok(output::members(&status(ask, limit).await?)),
        Member::Remove { member } => {
            let caller = Caller::born(ask, limit, LogIndex(0))?;
            done(&caller, || ClientRequest::RemoveMember(*member)).await?;
            Ok(View::done(format!("{member} is removed for good")))
        }
        Member::Priority { member, priority } => {
            let caller = Caller::born(ask, limit, LogIndex(0))?;
            let request = || ClientRequest::SetPriority { member: *member, priority: *priority };
            done(&caller, request).await?;
            Ok(View::done(format!("{member} has priority {priority}")))
        }
        other => standing::member(ask, limit, other).await,
    }
}

pub(super) async fn option(ask: &dyn Ask, limit: Duration, command: &Options) -> Result<View, Problem> {
    match command {
        Options::Show => Ok(output::options(&status(ask, limit).await?)),
        Options::Set { name, value } => {
            let option = parse_option(name, value)?;
            let caller = Caller::born(ask, limit, LogIndex(0))?;
            done(&caller, || ClientRequest::SetOption(option)).await?;
            Ok(View::done(format!("{name} is {value}{}", meaning(option))))
        }
    }
}

pub(super) async fn pin(ask: &dyn Ask, limit: Duration, command: &PinCommand) -> Result<View, Problem> {
    let PinCommand::Set(options) = command;
    let (role, name) = match options.role {
        PinRole::User => (Role::User, "user"),
        PinRole::So => (Role::SecurityOfficer, "so"),
    };
    let (file, environment) = (options.pin_file.as_ref(), options.pin_env.as_ref());
    let source = secret::given(file, environment, options.pin_credential.as_ref()).ok_or_else(|| {
        Problem::usage("no PIN was named", "name it by --pin-file, --pin-env or --pin-credential")
    })?;
    let pin = crate::engine::group_pin(&source, "--pin")?;
    let caller = Caller::born(ask, limit, LogIndex(0))?;
    done(&caller, || ClientRequest::SetPin { role, pin: pin.clone() }).await?;
    Ok(View::done(format!("the {name} PIN is set")))
}

/// What an option does that nobody should learn from its name alone.
fn meaning(option: GroupOption) -> &'static str {
    match option {
        GroupOption::AllowInmemoryImport(true) => {
            ": new keys of kinds that some member's token cannot unwrap (on SoftHSM 2.6.1 Ed25519, and secrets whose \
             length is no multiple of 8 bytes) are in clear in the memory of every member's process while they are \
             made and imported, and lie by value in their sealed envelope, where the SMK does not protect them; all \
             other keys are made as before"
        }
        GroupOption::AllowInmemoryImport(false) => {
            ": no new key passes through the members' memory; keys that did so stay, and new members import them"
        }
        GroupOption::DirectChanges(DirectChanges::Adopt) => {
            ": the next 'keyraft synchronize' makes the group's what was made on one member's own slot, and deletes in \
             the whole group what was deleted there"
        }
        _ => "",
    }
}

fn parse_option(name: &str, value: &str) -> Result<GroupOption, Problem> {
    let wrong =
        |values: &str| Problem::usage(format!("{name} cannot be '{value}'"), format!("give {values}"));
    match (name, value) {
        ("partial_keys", "refuse") => Ok(GroupOption::PartialKeys(PartialKeys::Refuse)),
        ("partial_keys", "allow") => Ok(GroupOption::PartialKeys(PartialKeys::Allow)),
        ("partial_keys", _) => Err(wrong("refuse or allow")),
        ("allow_inmemory_import", flag) => {
            flag.parse().map(GroupOption::AllowInmemoryImport).map_err(|_| wrong("true or false"))
        }
        ("allow_init_token", flag) => {
            flag.parse().map(GroupOption::AllowInitToken).map_err(|_| wrong("true or false"))
        }
        ("primary_override", flag) => {
            flag.parse().map(GroupOption::PrimaryOverride).map_err(|_| wrong("true or false"))
        }
        ("uptime_margin_s", seconds) => {
            let margin = seconds.parse().ok().filter(|s| *s <= UPTIME_MARGIN_MAX_SECONDS);
            let values = format!("a number of seconds from 0 to {UPTIME_MARGIN_MAX_SECONDS}");
            margin.map(GroupOption::UptimeMargin).ok_or_else(|| wrong(&values))
        }
        ("isolated_service", "serve") => Ok(GroupOption::IsolatedService(IsolatedService::Serve)),
        ("isolated_service", "fence") => Ok(GroupOption::IsolatedService(IsolatedService::Fence)),
        ("isolated_service", _) => Err(wrong("serve or fence")),
        ("auto_recovery", numbers) => standing::parse_recovery(numbers)
            .map(GroupOption::AutoRecovery)
            .ok_or_else(|| wrong("the tries (0 for none, -1 for no end), and the seconds between two: 5,60")),
        ("direct_changes", "undo") => Ok(GroupOption::DirectChanges(DirectChanges::Undo)),
        ("direct_changes", "adopt") => Ok(GroupOption::DirectChanges(DirectChanges::Adopt)),
        ("direct_changes", _) => Err(wrong("undo or adopt")),
        _ => Err(Problem::usage(
            format!("there is no option '{name}'"),
            "there are partial_keys, allow_inmemory_import, isolated_service, allow_init_token, auto_recovery, \
             primary_override, uptime_margin_s and direct_changes",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_by_name() {
        assert_eq!(parse_option("partial_keys", "allow"), Ok(GroupOption::PartialKeys(PartialKeys::Allow)));
        assert_eq!(parse_option("allow_inmemory_import", "true"), Ok(GroupOption::AllowInmemoryImport(true)));
        for (name, value, remedy) in [
            ("partial_keys", "maybe", "refuse or allow"),
            ("allow_inmemory_import", "1", "true or false"),
            ("isolated_service", "x", "serve or fence"),
            ("primary_override", "yes", "true or false"),
            ("uptime_margin_s", "86401", "from 0 to 86400"),
            ("direct_changes", "keep", "undo or adopt"),
            ("x", "y", "partial_keys"),
        ] {
            let problem = parse_option(name, value).expect_err(name);
            assert!(problem.remedy.contains(remedy), "{problem}");
        }
    }
}
