//! The loop of a primary: settles what is pending, keeps the in-sync set true, and makes Raft's membership follow
//! the roster. It runs on every member and acts only while this one leads.

use super::Core;
use super::fence::{keep_loop, lease_loop};
use super::pause;
use super::settler::{self, Watch};
use super::steer::{steer_loop, succession_loop};
use super::vitals::vitals_loop;
use crate::consensus::ConsensusError;
use crate::domain::MemberId;
use crate::limits;
use crate::membership::{Step, View, next_step};
use crate::state::{Command, Outcome};
use crate::telemetry::Event;
use crate::wire::{Lane, MemberAnswer, MemberRequest, Request, Response};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tracing::{debug, info, warn};

/// Runs until `stop`.
pub async fn run_primary(core: Arc<Core>, stop: watch::Receiver<bool>) {
    // They end with this future, also when it is dropped.
    let mut loops = JoinSet::new();
    loops.spawn(settle_loop(core.clone(), stop.clone()));
    loops.spawn(membership_loop(core.clone(), stop.clone()));
    loops.spawn(vitals_loop(core.clone(), stop.clone()));
    loops.spawn(steer_loop(core.clone(), stop.clone()));
    loops.spawn(succession_loop(core.clone(), stop.clone()));
    loops.spawn(confirm_loop(core.clone(), stop.clone()));
    loops.spawn(lease_loop(core.clone(), stop.clone()));
    loops.spawn(keep_loop(core.clone(), stop.clone()));
    loops.spawn(report_loop(core, stop));
    while let Some(ended) = loops.join_next().await {
        if let Err(error) = ended {
            tracing::error!(code = Event::LoopEnded.code(), %error, "a loop of the member ended badly: restart the member");
        }
    }
}

async fn settle_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::MEMBER_HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leadership = core.consensus.leadership();
    let mut absences = core.links.absences();
    while !*stop.borrow() {
        tokio::select! {
            _ = tick.tick() => {}
            () = core.nudge.notified() => {}
            Ok(()) = absences.changed() => {}
            Ok(()) = leadership.changed() => {}
            _ = stop.changed() => return,
        }
        let now = *leadership.borrow();
        let leads = now.leader == Some(core.me) && now.ready;
        // What was known in an earlier term says nothing of what others led meanwhile.
        if leads && core.watch.lock().term != now.term {
            *core.watch.lock() = Watch { term: now.term, ..Watch::default() };
        }
        if !leads {
            *core.watch.lock() = Watch::default();
            *core.ids.lock().await = 0..0;
            continue;
        }
        settle_round(&core).await;
    }
}

async fn settle_round(core: &Core) {
    core.hear_myself();
    let term = core.watch.lock().term;
    loop {
        let now = core.clock.now();
        let voters = (!core.consensus.is_change_unfinished()).then(|| core.consensus.voters());
        let commands = core.agreed.read(|state| {
            let mut watch = core.watch.lock();
            if let Some(voters) = voters {
                watch.voters = voters;
            }
            watch.absent = state.members().map(|(id, _)| id).filter(|id| core.links.is_absent(*id)).collect();
            if watch.since.is_none() {
                info!(code = Event::PrimaryHere.code(), member = %core.me, "this member is the primary");
                watch.since = Some(now);
            }
            watch.note_waiting(state, now);
            settler::decide(state, &watch, now)
        });
        if commands.is_empty() {
            return;
        }
        let mut progressed = false;
        for command in commands {
            let text = command.to_string();
            let event = event_of(&command);
            let settles = matches!(command, Command::Settle { .. });
            if settles {
                pause::point("settle.before").await;
            }
            let proposed = core.consensus.propose_in(term, command).await;
            if settles {
                pause::point("settle.after").await;
            }
            match proposed {
                Ok((_, Outcome::Applied)) => {
                    if let Some(event) = event {
                        info!(code = event.code(), command = text, "the in-sync set changed");
                    }
                    progressed = true;
                }
                Ok((_, Outcome::Settled(honoured))) => progressed |= honoured.contains(&true),
                Ok((_, outcome)) => debug!(command = text, ?outcome, "not applied now"),
                Err(error) => {
                    debug!(command = text, %error, "not committed now");
                    return;
                }
            }
        }
        if !progressed {
            return;
        }
    }
}

/// What the log says when one of the loop's commands is applied.
fn event_of(command: &Command) -> Option<Event> {
    match command {
        Command::EnterInSync { .. } => Some(Event::EnteringInSync),
        Command::ReachInSync { .. } => Some(Event::EnteredInSync),
        Command::LeaveInSync { .. } => Some(Event::LeftInSync),
        _ => None,
    }
}

/// Makes voters and learners follow the roster, and finishes what an earlier primary began.
async fn membership_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::MEMBER_HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stop.borrow() {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        while leads(&core) {
            match membership_step(&core).await {
                // A member may have waited for its vote to enter the in-sync set.
                Ok(true) => core.nudge.notify_one(),
                Ok(false) => break,
                Err(error) => {
                    debug!(%error, "the membership could not be changed now; it will be tried again");
                    break;
                }
            }
        }
    }
}

pub(super) fn leads(core: &Core) -> bool {
    let leadership = *core.consensus.leadership().borrow();
    leadership.is_me && leadership.ready
}

/// Makes one change; says if there was one to make.
async fn membership_step(core: &Core) -> Result<bool, ConsensusError> {
    let Some(step) = next_step(&view(core)) else { return Ok(false) };
    match step {
        Step::Finish => {
            info!(
                code = Event::VotersFinished.code(),
                "finishing a change of the voters that an earlier primary began"
            );
            core.consensus.resume_change().await?;
        }
        Step::Remove(gone) => {
            warn!(code = Event::LogMemberRemoved.code(), member = %gone, "removing a member from the group's consensus");
            core.links.forget(gone);
            core.consensus.remove(gone).await?;
        }
        Step::AddLearner(new) => {
            info!(code = Event::LogMemberAdded.code(), member = %new, "adding a member to the group's consensus");
            core.consensus.add_learner(new).await?;
        }
        Step::Promote(learner) => {
            core.consensus.promote(learner).await?;
            info!(code = Event::VoterPromoted.code(), member = %learner, "a member is now a voter");
        }
        Step::Demote(lost) => {
            warn!(code = Event::VoterDemoted.code(), member = %lost, "a voter is lost for long: its vote goes to a member that follows");
            core.consensus.demote(lost).await?;
        }
    }
    Ok(true)
}

/// What the primary sees of voters and learners.
fn view(core: &Core) -> View {
    let now = core.clock.now();
    let learners = core.consensus.learners();
    let behind = learners.iter().filter_map(|m| Some((*m, core.consensus.behind(*m)?))).collect();
    let roster: BTreeSet<MemberId> = core.agreed.read(|state| state.members().map(|(id, _)| id).collect());
    let watch = core.watch.lock();
    let silence = |member: MemberId| {
        let heard = watch.heard.get(&member).map(|heard| heard.at);
        // Silence before this member was primary says nothing.
        let last = heard.into_iter().chain(watch.since).max();
        let silence = last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let unheard = heard.is_none() || core.links.is_absent(member);
        (member, if unheard { silence.max(limits::MEMBER_DEAD) } else { silence })
    };
    View {
        me: core.me,
        silence: roster.iter().map(|member| silence(*member)).collect(),
        roster,
        voters: core.consensus.voters(),
        learners,
        unfinished: core.consensus.is_change_unfinished(),
        behind,
    }
}

/// Confirms, once after a start, that this member's state is the group's.
async fn confirm_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        if let Ok(index) = core.barrier().await {
            core.confirmed_to.get_or_init(|| index);
            info!(code = Event::StateConfirmed.code(), member = %core.me, "the group has confirmed this member's state");
            core.confirmed.send_replace(true);
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(limits::RETRY_PAUSE) => {}
            _ = stop.changed() => {}
        }
    }
}

/// Carries the latest report to the primary.
async fn report_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut outbox = core.outbox.subscribe();
    // Counted on only once it may serve: an answered key is usable on every member in sync.
    let mut confirmed = core.confirmed.subscribe();
    tokio::select! {
        _ = confirmed.wait_for(|confirmed| *confirmed) => {}
        _ = stop.changed() => return,
    }
    // Nor before its token was looked at.
    tokio::select! {
        _ = outbox.wait_for(Option::is_some) => {}
        _ = stop.changed() => return,
    }
    outbox.mark_changed();
    // A round of the reconciler may take long, and whoever imports is not dead.
    let mut tick = tokio::time::interval(limits::MEMBER_HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leadership = core.consensus.leadership();
    while !*stop.borrow() {
        tokio::select! {
            Ok(()) = outbox.changed() => {}
            Ok(()) = leadership.changed() => {}
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        outbox.mark_unchanged();
        let leader = leadership.borrow_and_update().leader;
        match leader {
            Some(leader) if leader == core.me => core.hear_myself(),
            Some(leader) => tokio::select! {
                () = report_to(&core, leader) => {}
                // A primary that is lost silently does not answer, and the new one counts on hearing everyone soon.
                Ok(()) = leadership.changed() => leadership.mark_changed(),
                _ = stop.changed() => return,
            },
            None => {}
        }
    }
}

async fn report_to(core: &Core, leader: MemberId) {
    let request = Request::Member(MemberRequest::Report(core.own_report()));
    match core.links.call(leader, Lane::Calls, request, limits::ATTEMPT).await {
        Ok(Response::Member(MemberAnswer::Ranked(ranking))) => *core.ranking.lock() = ranking,
        Ok(_) | Err(_) => debug!(%leader, "a report did not reach the primary; the next one will"),
    }
}
