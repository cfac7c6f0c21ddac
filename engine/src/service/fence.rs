//! The fence at work: a member asks for leases, a primary gives them, and a change waits for those that it gave.

use super::lease::{self, Lease};
use super::{Core, consensus_failure};
use crate::clock::BootTime;
use crate::domain::{LogIndex, MemberId};
use crate::limits;
use crate::mutant::{self, Mutant};
use crate::state::{Command, GroupOption, IsolatedService};
use crate::telemetry::Event;
use crate::wire::{Answer, Failure, FailureKind, Lane, MemberAnswer, MemberRequest, Request, Response};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// What a member of a group that fences keeps in memory.
#[derive(Default)]
pub struct Fencing {
    /// Its own lease.
    lease: Lease,
    /// The entry since which the group fences, once this member's disk holds it.
    kept: Mutex<Option<LogIndex>>,
    /// When the last confirmation of its leadership by a quorum began, and the term that it confirmed. Pings that come
    /// together share one.
    confirmed: tokio::sync::Mutex<Option<(BootTime, u64)>>,
}

impl Core {
    /// Refuses what needs a lease while this member has none. Cheap: it is asked before and after every use of a key.
    pub(super) fn fenced(&self) -> Result<(), Failure> {
        if !self.fences()
            || mutant::is_on(Mutant::ServeWithoutALease)
            || self.fencing.lease.holds(self.clock.boot())
        {
            return Ok(());
        }
        let me = self.named(self.me);
        let text = format!(
            "{me} is cut off: no primary with a quorum has answered it for {} ms, and isolated_service is fence",
            limits::LEASE.as_millis()
        );
        Err(Failure::new(FailureKind::NotInSync, text))
    }

    /// True if members use keys under a lease alone.
    pub(super) fn fences(&self) -> bool {
        self.agreed.read(|state| state.fence().is_some())
    }

    /// Answers a member's ping: a quorum confirms, after it came, that this member leads. Any later primary is elected
    /// later, and counts from then.
    pub(super) async fn grant(
        &self,
        to: MemberId,
        applied: LogIndex,
        kept: Option<LogIndex>,
    ) -> Result<(), Failure> {
        let heard = self.clock.now();
        self.confirm_leadership().await?;
        // Under the lock in which deletions are decided: either that decision counts with this lease, or this one
        // sees the state that it was made on.
        let mut watch = self.watch.lock();
        let (granted, awaited) = self.agreed.read(|state| {
            let awaited = state.fence().is_some_and(|fence| fence.unconfirmed.contains(&to));
            (lease::may_grant(state.member(to), applied), awaited)
        });
        if let Some(kept) = kept.filter(|_| awaited) {
            watch.grants.kept.insert(to, kept);
            self.nudge.notify_one();
        }
        if granted {
            watch.grants.note(to, heard);
            return Ok(());
        }
        drop(watch);
        Err(Failure::new(FailureKind::NotInSync, format!("{} is not in sync", self.named(to))))
    }

    /// Lets a quorum confirm, after this call, that this member leads; gives the term.
    async fn confirm_leadership(&self) -> Result<u64, Failure> {
        let asked = self.clock.boot();
        let mut confirmed = self.fencing.confirmed.lock().await;
        if let Some((_, term)) = confirmed.filter(|(begun, _)| *begun >= asked) {
            return Ok(term);
        }
        let begun = self.clock.boot();
        let term = self.consensus.confirm().await.map_err(|e| consensus_failure(&e))?;
        *confirmed = Some((begun, term));
        Ok(term)
    }

    /// At a primary: returns once nobody besides the members that settling needs can hold a lease. At once in a group
    /// that does not fence.
    pub(super) async fn wait_leases(&self) -> Result<(), Failure> {
        loop {
            let now = self.clock.now();
            let (fences, over, term) = self.agreed.read(|state| {
                let watch = self.watch.lock();
                let over = lease::may_answer(state, &watch.grants, watch.since, &state.required(), now);
                (state.fence().is_some(), over, watch.term)
            });
            // What is known belongs to one term: another primary's leases, given in between, are not.
            if !fences || (over && self.confirm_leadership().await? == term) {
                return Ok(());
            }
            tokio::time::sleep(limits::RETRY_PAUSE).await;
        }
    }

    /// Sets whether members that are cut off serve. Fencing is answered once every member keeps it on its disk.
    pub(super) async fn set_isolated_service(&self, value: IsolatedService) -> Result<Answer, Failure> {
        let done = self.settle_simple(Command::SetOption(GroupOption::IsolatedService(value))).await?;
        let mut applied = self.agreed.applied();
        let unconfirmed =
            || self.agreed.read(|s| s.fence().map(|fence| fence.unconfirmed.clone()).unwrap_or_default());
        let confirmed = tokio::time::timeout(limits::FENCE_CONFIRM, async {
            while !unconfirmed().is_empty() && applied.changed().await.is_ok() {}
        });
        if confirmed.await.is_ok() {
            return Ok(done);
        }
        Err(Failure::new(FailureKind::Refused, self.unconfirmed_text(&unconfirmed())))
    }

    /// Whom the fence waits for, and what to do.
    pub(super) fn unconfirmed_text(&self, members: &BTreeSet<MemberId>) -> String {
        let names: Vec<String> = members.iter().map(|member| self.named(*member)).collect();
        format!(
            "isolated_service = fence is agreed, but not confirmed by {}: cut off since before, it may use keys without a \
             lease. Deletions are not answered until it is back, or was shut down and removed with 'keyraft member \
             remove'",
            names.join(", ")
        )
    }
}

/// Asks for leases as long as the group fences. Runs on every member, the primary too.
pub(super) async fn lease_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut applied = core.agreed.applied();
    let mut leadership = core.consensus.leadership();
    while !*stop.borrow() {
        applied.borrow_and_update();
        if core.fences() {
            let leader = leadership.borrow_and_update().leader;
            ping(&core, leader).await;
            tokio::select! {
                () = tokio::time::sleep(limits::LEASE_PING) => {}
                Ok(()) = leadership.changed() => {}
                _ = stop.changed() => {}
            }
        } else {
            tokio::select! {
                Ok(()) = applied.changed() => {}
                _ = stop.changed() => {}
            }
        }
    }
}

/// Keeps on this member's disk that the group fences, so that a restart cannot forget it.
pub(super) async fn keep_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut applied = core.agreed.applied();
    while !*stop.borrow() {
        applied.borrow_and_update();
        let since = core.agreed.read(|state| state.fence().map(|fence| fence.since));
        let known = *core.fencing.kept.lock();
        if let Some(since) = since.filter(|since| known != Some(*since)) {
            info!(code = Event::FenceBegan.code(), member = %core.me, "isolated_service is fence: keys are used under a lease alone");
            match core.consensus.keep(since).await {
                Ok(()) => *core.fencing.kept.lock() = Some(since),
                Err(error) => {
                    warn!(code = Event::FenceNotKept.code(), %error, "that the group fences is not on this member's disk yet")
                }
            }
            tokio::time::sleep(limits::RETRY_PAUSE).await;
            continue;
        }
        tokio::select! {
            Ok(()) = applied.changed() => {}
            _ = stop.changed() => {}
        }
    }
}

/// Sends one ping. The lease runs from here.
async fn ping(core: &Core, leader: Option<MemberId>) {
    // After a start this member's state may be older than what it had applied before.
    if !*core.confirmed.borrow() {
        return;
    }
    let Some(leader) = leader else { return };
    let kept = *core.fencing.kept.lock();
    let sent = core.clock.boot();
    let applied = core.agreed.read(|state| state.applied());
    let granted = if leader == core.me {
        let granted = core.grant(core.me, applied, kept);
        matches!(tokio::time::timeout(limits::LEASE_ANSWER, granted).await, Ok(Ok(())))
    } else {
        let request = Request::Member(MemberRequest::Lease { applied, kept });
        let answer = core.links.call(leader, Lane::Heartbeat, request, limits::LEASE_ANSWER).await;
        matches!(answer, Ok(Response::Member(MemberAnswer::Noted)))
    };
    if granted {
        core.fencing.lease.extend(sent);
    } else {
        debug!(%leader, "no lease was given");
    }
}
