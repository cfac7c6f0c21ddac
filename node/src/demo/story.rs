//! The story itself, chapter by chapter.

use super::group::Group;
use super::report::{Report, shown};
use super::token::TokenKind;
use super::uses::{self, Made};
use crate::caller::{Ask, Caller, status, unexpected};
use crate::cli::Demo;
use crate::command::coverage;
use crate::exit::{Exit, Problem};
use crate::mechanism::{Named, Purpose};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{AttributeType, AttributeValue, Attributes, Curve, KeyAlgorithm, MemberId};
use keyraft_engine::limits;
use keyraft_engine::wire::{
    Answer, ClientRequest, CoverageState, CreateKey, Deletion, GroupStatus, KeyTemplate, UseKind,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long one step may take: imports on a slow machine, an election, a member's return.
pub(super) const STEP_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at something that is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Tells everything. Every check that fails ends it.
pub(super) async fn tell(
    options: &Demo,
    kind: &TokenKind,
    group: &mut Group,
    report: &mut Report,
) -> Result<(), Problem> {
    let count = group.members.len();
    report.say(format!("{count} members, each a process with a token of its own ({})", kind.module()));
    let members = form(options, group, report).await?;
    let made = create_each_kind(group, report).await?;
    everywhere(group, report, 0, count).await?;
    for at in 0..count {
        uses::all_at(group, report, &made, &members, at).await?;
    }
    report.fact("keys on every token", format!("{} keys on {count} of {count} tokens", made.len()));

    let lost = position(&members, primary(group, 0).await?)?;
    let mut keys = lose_primary(group, report, lost, &members, &made).await?;
    let away = keys.len();
    report.say(format!("member {} comes back", group.members[lost].name));
    let back = Clock.now();
    group.start(lost).await?;
    wait_in_sync(group, other(lost), count).await?;
    report.say(format!("it is in sync again {} after its start", shown(Clock.now() - back)));
    everywhere(group, report, lost, count).await?;
    keys.extend(made.iter().cloned());
    uses::all_at(group, report, &keys, &members, lost).await?;
    report.fact(
        "keys made while it was away",
        format!("{away} of {away} found and used on it after its return"),
    );

    delete(group, report, &made, count).await?;
    let verified = report.verified;
    report.fact("signatures verified outside the tokens", format!("{verified} of {verified}"));
    Ok(())
}

/// A member that is not this one.
fn other(index: usize) -> usize {
    usize::from(index == 0)
}

fn position(members: &[MemberId], member: MemberId) -> Result<usize, Problem> {
    members
        .iter()
        .position(|m| *m == member)
        .ok_or_else(|| Problem::new(Exit::Unexpected, format!("{member} is none of the demo's members"), ""))
}

async fn seen(group: &Group, index: usize) -> Result<GroupStatus, Problem> {
    status(&group.members[index].socket, STEP_LIMIT).await
}

async fn primary(group: &Group, index: usize) -> Result<MemberId, Problem> {
    let end = Clock.now() + STEP_LIMIT;
    loop {
        if let Some(primary) = seen(group, index).await?.primary {
            return Ok(primary);
        }
        if Clock.now() >= end {
            return Err(Problem::new(Exit::TryAgain, "the group has found no primary", ""));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn wait_in_sync(group: &Group, index: usize, count: usize) -> Result<(), Problem> {
    let end = Clock.now() + STEP_LIMIT;
    loop {
        let now = seen(group, index).await?;
        let in_sync = now.members.iter().filter(|m| m.in_sync).count();
        let voters = now.members.iter().filter(|m| m.voter).count();
        if in_sync == count && voters >= count.min(limits::VOTERS_MAX) {
            return Ok(());
        }
        if Clock.now() >= end {
            let what =
                format!("only {in_sync} of {count} members are in sync after {} s", STEP_LIMIT.as_secs());
            return Err(Problem::new(Exit::CheckFailed, what, ""));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Chapter 1: the group forms. Gives the members' ids, in the order of their names.
async fn form(options: &Demo, group: &mut Group, report: &mut Report) -> Result<Vec<MemberId>, Problem> {
    let so_pin = group.folder().join("so-pin").display().to_string();
    let token = ["--create-token", "--so-pin-file", &so_pin];
    let pin = group.folder().join("pin").display().to_string();
    let pins = ["--group-pin-file", &pin, "--group-so-pin-file", &so_pin];
    let words = [&["init", "--label", &options.label][..], &token, &pins].concat();
    let begun = group.run(0, &words).await?;
    report.say(format!("member a makes its token, the SMK in it, and group {}", text(&begun, "group")));
    group.start(0).await?;
    let mut members = vec![seen(group, 0).await?.answered_by];
    for index in 1..group.members.len() {
        let invitation = group.run(0, &["invite"]).await?;
        let path = group.folder().join(format!("invitation-{index}"));
        std::fs::write(&path, text(&invitation, "invitation"))
            .map_err(|e| Problem::io("saving an invitation", &e))?;
        let path = path.display().to_string();
        group.run(index, &[&["join", &path][..], &token].concat()).await?;
        group.start(index).await?;
        let joined = seen(group, index).await?.answered_by;
        report.say(format!(
            "member {} makes its token, proves the cloning domain and is admitted as {joined}",
            group.members[index].name
        ));
        members.push(joined);
    }
    let count = group.members.len();
    wait_in_sync(group, 0, count).await?;
    let distinct: BTreeSet<&MemberId> = members.iter().collect();
    report.check(distinct.len() == count, format!("{count} of {count} members are in sync"))?;
    Ok(members)
}

fn text(value: &serde_json::Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_string()
}

/// Every kind of key that every member can carry.
async fn carried(
    group: &Group,
    report: &Report,
    index: usize,
) -> Result<Vec<(&'static str, KeyAlgorithm)>, Problem> {
    let kinds = [
        ("payments", KeyAlgorithm::Ec(Curve::P256)),
        ("ledger", KeyAlgorithm::Ec(Curve::P384)),
        ("documents", KeyAlgorithm::Rsa { bits: 2048 }),
        ("shell", KeyAlgorithm::Ed25519),
        ("vault", KeyAlgorithm::Aes { bits: 256 }),
        ("tokens", KeyAlgorithm::GenericSecret { bytes: 32 }),
    ];
    let now = seen(group, index).await?;
    let mut carried = Vec::new();
    for (label, algorithm) in kinds {
        let cannot = now.members.iter().find_map(|m| {
            m.cannot.iter().find(|(kind, _)| *kind == algorithm).map(|(_, why)| format!("{}: {why}", m.name))
        });
        match cannot {
            None => carried.push((label, algorithm)),
            Some(why) => report.say(format!("no {algorithm} key in this group, since member {why}")),
        }
    }
    Ok(carried)
}

async fn create(ask: &dyn Ask, label: String, algorithm: KeyAlgorithm) -> Result<Made, Problem> {
    let attributes: Attributes =
        [(AttributeType::LABEL, AttributeValue::Bytes(label.clone().into_bytes()))].into();
    let template = KeyTemplate { algorithm, attributes };
    let mut caller = Caller::begin(ask, STEP_LIMIT).await?;
    let answer = caller
        .change(|request, watermark| {
            ClientRequest::Create(CreateKey { request, watermark, template: template.clone() })
        })
        .await?;
    match answer {
        Answer::Created(rows) => Ok(Made { label, algorithm, rows }),
        other => Err(unexpected(&other)),
    }
}

/// Chapter 2: keys of each kind, asked for at changing members.
async fn create_each_kind(group: &Group, report: &mut Report) -> Result<Vec<Made>, Problem> {
    let mut made = Vec::new();
    for (turn, (label, algorithm)) in carried(group, report, 0).await?.into_iter().enumerate() {
        let member = &group.members[turn % group.members.len()];
        let start = Clock.now();
        let key = create(&member.socket, label.to_string(), algorithm).await?;
        let took = shown(Clock.now() - start);
        report.say(format!("key '{}' ({algorithm}), asked for at member {}: {took}", key.label, member.name));
        made.push(key);
    }
    Ok(made)
}

/// Chapter 3: every key on every token, as the members themselves say.
async fn everywhere(group: &Group, report: &mut Report, index: usize, count: usize) -> Result<(), Problem> {
    let rows = coverage(&group.members[index].socket, STEP_LIMIT, true).await?;
    let whole = rows
        .iter()
        .filter(|row| {
            row.members.len() == count && row.members.iter().all(|c| c.state == CoverageState::Present)
        })
        .count();
    let what = format!("coverage: {whole} of {} objects are on {count} of {count} tokens", rows.len());
    report.check(whole == rows.len() && !rows.is_empty(), what)
}

/// Chapter 5: the primary dies, the others carry on. Gives the keys made without it.
async fn lose_primary(
    group: &mut Group,
    report: &mut Report,
    lost: usize,
    members: &[MemberId],
    made: &[Made],
) -> Result<Vec<Made>, Problem> {
    let survivor = other(lost);
    report.say(format!("kill -9 of member {}, the primary ({})", group.members[lost].name, members[lost]));
    let killed = Clock.now();
    group.kill(lost);
    uses::all_at(group, report, made, members, survivor).await?;
    report.say(format!(
        "existing keys need no primary: all used {} after the kill",
        shown(Clock.now() - killed)
    ));
    let mut away = Vec::new();
    let socket = &group.members[survivor].socket;
    let (first, elected) =
        tokio::try_join!(create(socket, "while away 1".into(), KeyAlgorithm::Ec(Curve::P256)), async {
            loop {
                let primary = primary(group, survivor).await?;
                if primary != members[lost] {
                    return Ok((primary, Clock.now()));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })?;
    let gap = Clock.now() - killed;
    let (primary, at) = elected;
    report.say(format!("{primary} is the primary {} after the kill", shown(at - killed)));
    report.say(format!("the first key without the old primary is answered {} after the kill", shown(gap)));
    report.fact("time without a primary", shown(at - killed));
    report.fact("from kill -9 to the next answered key", shown(gap));
    report.check(primary != members[lost], format!("{primary} took over from {}", members[lost]))?;
    away.push(first);
    for (label, algorithm) in carried(group, report, survivor).await?.into_iter().take(2) {
        away.push(create(&group.members[survivor].socket, format!("{label} while away"), algorithm).await?);
    }
    report.say(format!("{} keys are made while it is away", away.len()));
    for at in (0..members.len()).filter(|at| *at != lost) {
        uses::all_at(group, report, &away, members, at).await?;
    }
    Ok(away)
}

/// Chapter 6: a deleted key is gone everywhere.
async fn delete(group: &Group, report: &mut Report, made: &[Made], count: usize) -> Result<(), Problem> {
    let Some(key) = made.first() else { return Ok(()) };
    let objects = key.ids();
    let ask: &dyn Ask = &group.members[0].socket;
    let answer = Caller::begin(ask, STEP_LIMIT)
        .await?
        .change(|request, watermark| {
            ClientRequest::Delete(Deletion { request, watermark, objects: objects.clone() })
        })
        .await?;
    if !matches!(answer, Answer::Done) {
        return Err(unexpected(&answer));
    }
    report.say(format!("key '{}' is deleted", key.label));
    let named = Named::default_for(Some(key.algorithm), Purpose::Sign)?;
    let mut refused = 0;
    for member in &group.members {
        let used = uses::job(key, UseKind::Sign, named, None)?.run(&member.socket, STEP_LIMIT).await;
        refused += usize::from(used.is_err_and(|problem| problem.exit == Exit::NotFound));
    }
    report.check(refused == count, format!("{refused} of {count} members know it no more"))?;
    let rows = coverage(ask, STEP_LIMIT, true).await?;
    report.check(!rows.iter().any(|row| objects.contains(&row.object)), "it is gone from coverage")?;
    everywhere(group, report, 0, count).await?;
    report.fact("deleted key", format!("gone from {count} of {count} members"));
    Ok(())
}
