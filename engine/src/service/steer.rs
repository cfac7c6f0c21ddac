//! Steers who leads: the primary hands over to the best candidate, and when a primary's process is gone the best
//! candidate stands first.

use super::Core;
use super::primary::leads;
use crate::domain::MemberId;
use crate::limits;
use crate::membership::roll::Agreed;
use crate::membership::steering::Look;
use crate::membership::{self, Rule, Steering};
use crate::state::{Duty, Standing};
use crate::telemetry::Event;
use crate::wire::{Failure, MemberRequest, TokenHealth};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{debug, info};

impl Core {
    /// The candidates for primary, the best first, as the primary sees them.
    pub(super) fn rank_candidates(&self, now: Instant) -> Vec<MemberId> {
        let voters = self.consensus.voters();
        let works: BTreeSet<MemberId> = {
            let watch = self.watch.lock();
            let works = |m: &MemberId| watch.heard.get(m).is_some_and(|h| h.token == TokenHealth::Healthy);
            voters.into_iter().filter(|m| works(m) && !self.links.is_absent(*m)).collect()
        };
        let near = |m: MemberId| {
            m == self.me || self.consensus.behind(m).is_some_and(|n| n <= limits::PROMOTE_LAG_MAX_ENTRIES)
        };
        let (candidates, rule) = self.agreed.read(|state| {
            let fit = |member: MemberId| {
                let row = state.member(member).filter(|row| row.standing == Standing::InSync)?;
                let serial = row.card.profile.identity.serial.clone();
                let active = row.duty == Duty::Active;
                let agreed = Agreed { active, priority: row.priority, serial };
                (works.contains(&member) && near(member)).then_some(agreed)
            };
            let options = state.options();
            let rule = Rule {
                priority_first: options.primary_override,
                uptime_margin: Duration::from_secs(options.uptime_margin_s.into()),
            };
            let mut roll = self.roll.lock();
            roll.retain(|member| state.member(member).is_some());
            let mut candidates = roll.candidates(now, fit);
            // Two that are about equal must not hand over to each other in turns.
            if let Some(own) = candidates.iter_mut().find(|candidate| candidate.member == self.me) {
                own.uptime += limits::STEER_BIAS;
            }
            (candidates, rule)
        });
        membership::ranking(&candidates, rule)
    }

    /// True if every voter whose process runs has been heard since this moment.
    fn heard_all_since(&self, moment: Instant) -> bool {
        let voters = self.consensus.voters();
        let watch = self.watch.lock();
        let heard = |m: &MemberId| watch.heard.get(m).is_some_and(|h| h.at >= moment);
        voters.iter().all(|m| heard(m) || self.links.is_absent(*m))
    }

    /// Hands over by an operator's word, which the members remember: who steps down comes last from now on, and who
    /// is chosen first.
    pub(super) async fn hand_over(&self, to: MemberId, chosen: bool) -> Result<(), Failure> {
        let term = self.consensus.leadership().borrow().term;
        // Before the next primary looks at the candidates for the first time.
        let before = self.vitals.note_stepped_down(Some(term));
        if let Err(error) = self.consensus.step_down(to).await {
            self.vitals.note_stepped_down(before);
            return Err(super::consensus_failure(&error));
        }
        if chosen {
            // Not earlier: of a hand-over that failed nothing may be left. Nor can it come late, for a new primary
            // steers when it has heard everyone after its first look.
            if let Err(failure) = self.call_member(to, MemberRequest::Chosen(term), limits::ATTEMPT).await {
                debug!(%to, %failure, "it leads, and does not know that it was chosen to");
            }
        }
        Ok(())
    }

    /// Before this member stops: hands over if it leads and anyone can take its place.
    pub async fn leave_the_lead(&self) {
        if !leads(self) {
            return;
        }
        let best = self.rank_candidates(self.clock.now()).into_iter().find(|member| *member != self.me);
        let Some(to) = best else { return };
        match self.consensus.step_down(to).await {
            Ok(()) => info!(code = Event::HandedOver.code(), %to, "handed over before stopping"),
            Err(error) => debug!(%error, "could not hand over before stopping"),
        }
    }
}

/// Makes the best candidate lead, for as long as this member does.
pub(super) async fn steer_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::MEMBER_HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leading: Option<(Instant, Steering)> = None;
    while !*stop.borrow() {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        if !leads(&core) {
            leading = None;
            continue;
        }
        let now = core.clock.now();
        core.hear_myself();
        let ranking = core.rank_candidates(now);
        let best = ranking.first().copied();
        *core.ranking.lock() = ranking;
        let (elected, steering) = leading.get_or_insert_with(|| (now, Steering::new(now)));
        let fit = core.progress.token() == TokenHealth::Healthy;
        let whole = core.heard_all_since(*elected);
        let Some(to) = steering.decide(Look { me: core.me, fit, best, whole }, now) else { continue };
        let why = if fit { "a better candidate for primary" } else { "a candidate whose token works" };
        info!(code = Event::HandedOver.code(), %to, "handing over to {why}");
        if let Err(error) = core.consensus.step_down(to).await {
            debug!(%to, %error, "the hand-over did not come about");
        }
    }
}

/// Stands for election when the primary's process is gone, each candidate a little later than the better one, rather
/// than when Raft's timers are over.
pub(super) async fn succession_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut absences = core.links.absences();
    while !*stop.borrow() {
        tokio::select! {
            Ok(()) = absences.changed() => {}
            _ = stop.changed() => return,
        }
        let leadership = *core.consensus.leadership().borrow();
        let Some(lost) = leadership.leader.filter(|leader| *leader != core.me) else { continue };
        let voters = core.consensus.voters();
        if !voters.contains(&core.me) || !core.links.is_absent(lost) {
            continue;
        }
        let place = {
            let ranking = core.ranking.lock();
            let unranked = voters.iter().filter(|m| !ranking.contains(m));
            let order = ranking.iter().chain(unranked).filter(|member| **member != lost);
            order.take_while(|member| **member != core.me).count()
        };
        debug!(%lost, place, "the primary's process is gone");
        let patience = limits::SUCCESSION_STEP * u32::try_from(place).unwrap_or(u32::MAX);
        tokio::select! {
            () = core.consensus.succeed(lost, patience) => {}
            _ = stop.changed() => return,
        }
    }
}
