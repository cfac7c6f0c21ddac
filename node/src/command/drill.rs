//! `drill`: hands the primary over under a small load, and tells what the load noticed of it.

mod load;
mod report;

use crate::caller::{Ask, Caller, status, unexpected};
use crate::cli::Drill;
use crate::command::Keyring;
use crate::exit::{Exit, Problem};
use crate::output::View;
use crate::process;
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, Attributes, Curve, KeyAlgorithm, MemberId, ObjectClass, ObjectId,
};
use keyraft_engine::wire::{Answer, ClientRequest, CreateKey, Deletion, GroupStatus, KeyTemplate, ObjectRow};
use load::{Load, Tally};
use report::Report;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Callers that sign at once.
const SIGNERS: usize = 4;
/// Between two looks at who is primary.
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) async fn run(
    ask: &dyn Ask,
    limit: Duration,
    options: &Drill,
    json: bool,
) -> Result<View, Problem> {
    let before = status(ask, limit).await?;
    if !options.force {
        refuse_broken(&before)?;
    }
    let mut caller = Caller::born(ask, limit, before.applied)?;
    let label = format!("keyraft-drill-{:016x}", caller.nonce());
    let key = create(&mut caller, KeyAlgorithm::Ec(Curve::P256), &label).await?;
    let drilled = drill(ask, limit, options, json, &before, &label, &key).await;
    // Whatever became of the drill, its keys go.
    let left = clean(ask, limit, &mut caller, &label).await;
    let report = Report { left_over: left?, ..drilled? };
    let view = report.view();
    match report.problem() {
        None => Ok(view),
        Some(problem) => {
            super::print(&view, json)?;
            Err(problem)
        }
    }
}

/// Refuses a group that a hand-over could hurt.
fn refuse_broken(status: &GroupStatus) -> Result<(), Problem> {
    let away: Vec<String> =
        status.members.iter().filter(|m| !m.in_sync).map(|m| m.member.to_string()).collect();
    let why = if status.primary.is_none() {
        "it has no primary".to_string()
    } else if !away.is_empty() {
        format!(
            "{} out of sync",
            if away.len() == 1 { format!("{} is", away[0]) } else { format!("{} are", away.join(", ")) }
        )
    } else if status.members.iter().filter(|m| m.voter).count() < 2 {
        "there is no other voter to hand over to".to_string()
    } else {
        return Ok(());
    };
    let what = format!("the group is not whole: {why}. Nothing was done");
    Err(Problem::new(Exit::Refused, what, "see 'keyraft status', or give --force"))
}

async fn create(
    caller: &mut Caller<'_>,
    algorithm: KeyAlgorithm,
    label: &str,
) -> Result<Vec<ObjectRow>, Problem> {
    let attributes: Attributes =
        [(AttributeType::LABEL, AttributeValue::Bytes(label.as_bytes().to_vec()))].into();
    let template = KeyTemplate { algorithm, attributes };
    let make = |request, watermark| {
        ClientRequest::Create(CreateKey { request, watermark, template: template.clone() })
    };
    match caller.change(make).await? {
        Answer::Created(rows) => Ok(rows),
        other => Err(unexpected(&other)),
    }
}

async fn delete(caller: &mut Caller<'_>, objects: &[ObjectId]) -> Result<(), Problem> {
    let make = |request, watermark| {
        ClientRequest::Delete(Deletion { request, watermark, objects: objects.to_vec() })
    };
    match caller.change(make).await? {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Deletes what bears the drill's label; gives how many objects besides its signing key were still there.
async fn clean(
    ask: &dyn Ask,
    limit: Duration,
    caller: &mut Caller<'_>,
    label: &str,
) -> Result<usize, Problem> {
    let (rows, _) = Keyring::new(ask, limit).list(Some(label), usize::MAX).await?;
    for row in &rows {
        delete(caller, &[row.object]).await?;
    }
    Ok(rows.iter().filter(|row| row.class == ObjectClass::SecretKey).count())
}

/// Runs the load, and the hand-over in its midst.
async fn drill(
    ask: &dyn Ask,
    limit: Duration,
    options: &Drill,
    json: bool,
    before: &GroupStatus,
    label: &str,
    key: &[ObjectRow],
) -> Result<Report, Problem> {
    let start = Clock.now();
    let span = Duration::from_secs(options.seconds);
    let load = Load::new(ask, limit, start + span, key)?;
    let bar = bar(options.seconds, json);
    let signers = futures::future::join_all((0..SIGNERS).map(|_| load.sign()));
    let changes = load.change(label, before);
    let eyes = watch(ask, start + span, &load, &bar, start);
    let hand = hand_over(ask, limit, start + span / 3, &load);
    let stop = async {
        tokio::select! {
            signal = process::stop_signal() => {
                load.stop();
                Some(signal)
            }
            () = tokio::time::sleep(span) => None,
        }
    };
    let (signs, changes, seen, handed, signal) = futures::join!(signers, changes, eyes, hand, stop);
    bar.finish_and_clear();
    if let Some(signal) = signal {
        return Err(Problem::new(Exit::Interrupted, format!("the drill was ended by {signal}"), ""));
    }
    let (asked, answered) = handed?;
    let after = status(ask, limit).await?;
    Ok(Report {
        seconds: options.seconds,
        signs: signs.into_iter().fold(Tally::begun(start), Tally::with),
        changes: changes?,
        handed_over: answered.saturating_duration_since(asked),
        without_primary: without_primary(&seen, before.primary),
        before: before.primary,
        after: after.primary,
        left_over: 0,
    })
}

fn bar(seconds: u64, json: bool) -> indicatif::ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(seconds);
    if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Asks for the hand-over; gives when it was asked for and when it was answered.
async fn hand_over(
    ask: &dyn Ask,
    limit: Duration,
    at: Instant,
    load: &Load<'_>,
) -> Result<(Instant, Instant), Problem> {
    while Clock.now() < at {
        if !load.goes_on() {
            return Err(Problem::new(Exit::Interrupted, "the drill was ended before its hand-over", ""));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let asked = Clock.now();
    match crate::caller::repeat(ask, limit, || ClientRequest::StepDown { to: None }).await? {
        Answer::Done => Ok((asked, Clock.now())),
        other => Err(unexpected(&other)),
    }
}

/// Looks at who is primary until the end.
async fn watch(
    ask: &dyn Ask,
    end: Instant,
    load: &Load<'_>,
    bar: &indicatif::ProgressBar,
    start: Instant,
) -> Vec<(Instant, Option<MemberId>)> {
    let mut seen = Vec::new();
    while load.goes_on() {
        let asked = Clock.now();
        if let Ok(Answer::Status(status)) = ask.ask(ClientRequest::Status, end - asked.min(end)).await
            && seen.last().is_none_or(|(_, primary)| *primary != status.primary)
        {
            seen.push((Clock.now(), status.primary));
        }
        bar.set_position(Clock.now().saturating_duration_since(start).as_secs());
        bar.set_message(load.words());
        tokio::time::sleep(LOOK_EVERY).await;
    }
    seen
}

/// How long no primary was known while it moved; None if it did not move. `seen` has a row a change.
fn without_primary(seen: &[(Instant, Option<MemberId>)], before: Option<MemberId>) -> Option<Duration> {
    let moved = seen.iter().position(|(_, primary)| primary.is_some() && *primary != before)?;
    let (found, _) = seen[moved];
    let lost = seen[..moved].iter().rev().take_while(|(_, primary)| primary.is_none()).last();
    Some(lost.map_or(Duration::ZERO, |(at, _)| found.saturating_duration_since(*at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_primary_is_from_its_loss_to_the_next() {
        let start = Clock.now();
        let at =
            |millis, primary: Option<u64>| (start + Duration::from_millis(millis), primary.map(MemberId));
        let one = Some(MemberId(1));
        let seen = [at(0, Some(1)), at(100, None), at(140, Some(2))];
        assert_eq!(without_primary(&seen, one), Some(Duration::from_millis(40)));
        assert_eq!(without_primary(&[at(0, Some(1)), at(9, Some(2))], one), Some(Duration::ZERO));
        assert_eq!(without_primary(&seen[..2], one), None, "it never came");
        assert_eq!(without_primary(&[at(0, Some(1)), at(9, None), at(12, Some(1))], one), None);
    }
}
