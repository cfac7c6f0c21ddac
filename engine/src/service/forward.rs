//! Carries a request to the member that can answer it, and follows the remedy of each failure until the deadline.

use super::{Core, slot};
use crate::consensus::Leadership;
use crate::domain::MemberId;
use crate::limits;
use crate::state::{Command, Duty};
use crate::transport::LinkError;
use crate::wire::{
    Answer, ClientRequest, Failure, FailureKind, Lane, MemberAnswer, MemberRequest, Remedy, Request,
    Response, SlotRequest,
};
use std::time::Duration;
use tokio::sync::watch;

/// Where a request must be carried out.
enum Place {
    /// At the member that was asked.
    Here,
    /// At the primary.
    Primary,
    /// At the member that was asked, or at another in-sync one.
    InSync,
}

fn place(request: &ClientRequest) -> Place {
    match request {
        ClientRequest::Create(_)
        | ClientRequest::Import(_)
        | ClientRequest::Delete(_)
        | ClientRequest::Invite { .. }
        | ClientRequest::RemoveMember(_)
        | ClientRequest::StepDown { .. }
        | ClientRequest::SetPin { .. }
        | ClientRequest::AddClient { .. }
        | ClientRequest::RemoveClient(_)
        | ClientRequest::InviteStandby { .. }
        | ClientRequest::SetDuty { .. }
        | ClientRequest::RecoverMember(_)
        | ClientRequest::SetPriority { .. }
        | ClientRequest::Adopt(_)
        | ClientRequest::CompareAndSet(_)
        | ClientRequest::SetOption(_) => Place::Primary,
        ClientRequest::Status
        | ClientRequest::List { .. }
        | ClientRequest::Show(_)
        | ClientRequest::Use(_)
        | ClientRequest::Coverage { .. }
        | ClientRequest::Synchronize
        | ClientRequest::Recover
        | ClientRequest::Clients
        | ClientRequest::Pulses
        | ClientRequest::Explain { .. }
        | ClientRequest::Check => Place::Here,
        ClientRequest::Slot(call) if slot::is_change(&call.ask) => Place::Primary,
        ClientRequest::Slot(_) => Place::InSync,
    }
}

impl Core {
    /// Carries out a client's request, wherever that must be; `by` becomes the member that did it.
    pub(super) async fn client(&self, request: ClientRequest, by: &mut MemberId) -> Result<Answer, Failure> {
        // On its own slot a member promises nothing of others.
        let direct = matches!(&request, ClientRequest::Slot(call) if call.direct);
        let done = self.client_anywhere(request, by).await;
        if direct { done } else { self.gone_for_all(done).await }
    }

    async fn client_anywhere(&self, request: ClientRequest, by: &mut MemberId) -> Result<Answer, Failure> {
        let request = match request {
            ClientRequest::Slot(call) if call.direct => return self.slot_direct(*call).await,
            ClientRequest::Slot(call) if matches!(call.ask, SlotRequest::Login { .. }) => {
                let done = self.login_anywhere(call).await;
                *by = self.primary_or_me();
                return done;
            }
            ClientRequest::Recover if self.is_left().await => ClientRequest::RecoverMember(self.me),
            other => other,
        };
        match (place(&request), request) {
            (Place::InSync, ClientRequest::Slot(call)) => self.slot(*call, by).await,
            (Place::Primary, request) => {
                let done = self.at_primary(request).await;
                *by = self.primary_or_me();
                done
            }
            (Place::Here | Place::InSync, request) => self.client_here(request).await,
        }
    }

    fn primary_or_me(&self) -> MemberId {
        self.consensus.leadership().borrow().leader.unwrap_or(self.me)
    }

    /// Carries out a request at this member, or says who can.
    pub(super) async fn client_here(&self, request: ClientRequest) -> Result<Answer, Failure> {
        match request {
            ClientRequest::Status => Ok(self.status()),
            ClientRequest::Create(create) => self.create(create).await,
            ClientRequest::Import(import) => self.import(import).await,
            ClientRequest::Delete(deletion) => self.delete(deletion).await,
            ClientRequest::List { label, after } => self.list(label, after).await,
            ClientRequest::Show(object) => self.show(object).await,
            ClientRequest::Use(usage) => self.use_key(usage).await,
            ClientRequest::Coverage { after } => self.coverage(after).await,
            ClientRequest::Synchronize => self.synchronize().await,
            ClientRequest::Invite { life_seconds } => self.invite(life_seconds, Duty::Active).await,
            ClientRequest::InviteStandby { life_seconds } => self.invite(life_seconds, Duty::Standby).await,
            ClientRequest::SetDuty { member, duty } => {
                self.settle_simple(Command::SetDuty { member, duty }).await
            }
            ClientRequest::RecoverMember(member) => self.settle_simple(Command::Recover { member }).await,
            ClientRequest::RemoveMember(member) => self.remove_member(member).await,
            ClientRequest::StepDown { to } => self.step_down(to).await,
            ClientRequest::Recover => self.recover(),
            ClientRequest::SetOption(option) => self.set_option(option).await,
            ClientRequest::Check => self.check().await,
            ClientRequest::Slot(call) => self.slot_here(&call).await,
            ClientRequest::SetPin { role, pin } => self.set_pin(role, &pin).await,
            ClientRequest::AddClient { name, signing_request } => {
                self.add_client(name, &signing_request).await
            }
            ClientRequest::RemoveClient(name) => self.settle_simple(Command::RemoveClient { name }).await,
            ClientRequest::Clients => self.clients().await,
            ClientRequest::SetPriority { member, priority } => {
                self.settle_simple(Command::SetPriority { member, priority }).await
            }
            ClientRequest::Adopt(adoption) => self.adopt(*adoption).await,
            ClientRequest::CompareAndSet(ask) => self.compare_and_set(*ask).await,
            ClientRequest::Pulses => Ok(self.pulses().await),
            ClientRequest::Explain { client, last } => Ok(self.explain(client, last).await),
        }
    }

    /// Carries a change to the primary, following it when it moves, until the overall deadline.
    pub(super) async fn at_primary(&self, request: ClientRequest) -> Result<Answer, Failure> {
        self.at_primary_within(request, limits::OVERALL).await
    }

    /// The same; after a failure it is tried again only while less than `patience` has gone by.
    pub(super) async fn at_primary_within(
        &self,
        request: ClientRequest,
        patience: Duration,
    ) -> Result<Answer, Failure> {
        let deadline = self.clock.now() + limits::OVERALL;
        let last_try = self.clock.now() + patience;
        let bytes =
            crate::codec::encode_secret(&request).map_err(|e| Failure::new(FailureKind::BadRequest, e))?;
        let removes = matches!(request, ClientRequest::RemoveClient(_) | ClientRequest::RemoveMember(_));
        let undecided = request.undecided();
        // It replaces the primary itself.
        let hands_over = matches!(request, ClientRequest::StepDown { .. });
        drop(request);
        let mut uncertain = false;
        let mut leadership = self.consensus.leadership();
        loop {
            leadership.mark_unchanged();
            let request: ClientRequest = crate::codec::decode(&bytes, limits::FRAME_MAX_BYTES)
                .map_err(|e| Failure::new(FailureKind::BadRequest, e))?;
            let left = deadline.saturating_duration_since(self.clock.now());
            let attempt = self.primary_once(request, left);
            tokio::pin!(attempt);
            let done = tokio::select! {
                done = &mut attempt => done,
                () = self.another_leads(self.consensus.leadership()), if !hands_over => {
                    // One that handed over answers what it had begun; one that hangs does not.
                    let answer = tokio::time::timeout(limits::MEMBER_HEARTBEAT, &mut attempt).await;
                    answer.unwrap_or_else(|_| {
                        let text = "the primary was replaced before it answered";
                        Err(Failure::new(FailureKind::Deadline, text))
                    })
                }
            };
            let failure = match done {
                Ok(answer) => return Ok(answer),
                // What an attempt without an answer removed is gone by now.
                Err(failure) if removes && uncertain && failure.kind == FailureKind::NotFound => {
                    return Ok(Answer::Done);
                }
                Err(failure) => failure,
            };
            if failure.remedy() == Remedy::GiveUp
                || last_try.saturating_duration_since(self.clock.now()) <= limits::RETRY_PAUSE
            {
                return Err(if uncertain { failure.after_a_loss(undecided) } else { failure });
            }
            uncertain |= failure.kind == FailureKind::Deadline;
            // A new primary needs no more waiting.
            tokio::select! {
                () = tokio::time::sleep(limits::RETRY_PAUSE) => {}
                Ok(()) = leadership.changed() => {}
            }
        }
    }

    /// Returns once another member leads than the one that does now; never while this one does, which knows itself.
    async fn another_leads(&self, mut leadership: watch::Receiver<Leadership>) {
        let asked = leadership.borrow_and_update().leader.filter(|leader| *leader != self.me);
        let other = |now: &Leadership| now.leader.is_some_and(|leader| Some(leader) != asked);
        if asked.is_none() || leadership.wait_for(other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Has another member carry out a client's request by itself.
    pub(super) async fn forward_to(
        &self,
        member: MemberId,
        request: ClientRequest,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        match self.call_member(member, MemberRequest::Forward(Box::new(request)), limit).await? {
            MemberAnswer::Forwarded(answer) => Ok(*answer),
            _ => Err(Failure::new(
                FailureKind::Internal,
                format!("{} answered another question", self.named(member)),
            )),
        }
    }

    /// Calls the primary. One that cannot be reached leads nobody: until another is elected there is no quorum.
    pub(super) async fn call_primary(
        &self,
        primary: MemberId,
        request: MemberRequest,
        limit: Duration,
    ) -> Result<MemberAnswer, Failure> {
        match self.links.call(primary, Lane::Calls, Request::Member(request), limit).await {
            Ok(Response::Member(answer)) => Ok(answer),
            Ok(Response::Failed(failure)) => Err(failure),
            Ok(_) => Err(Failure::new(
                FailureKind::Internal,
                format!("{primary} gave an answer to another question"),
            )),
            Err(LinkError::Unreachable(why)) => {
                let text = format!("the primary {primary} is gone and no other was elected: {why}");
                Err(Failure::new(FailureKind::NoQuorum, text))
            }
            Err(error) => Err(link_failure(&self.named(primary), &error)),
        }
    }

    async fn primary_once(&self, request: ClientRequest, left: Duration) -> Result<Answer, Failure> {
        let leadership = *self.consensus.leadership().borrow();
        let Some(primary) = leadership.leader else {
            return Err(Failure::new(
                FailureKind::NoQuorum,
                "the group has no primary now: no quorum of members answers",
            ));
        };
        let late = || {
            Failure::new(
                FailureKind::Deadline,
                "the group did not answer in time; the change may still happen",
            )
        };
        if primary == self.me {
            if !leadership.ready {
                return Err(Failure::new(FailureKind::NoQuorum, "the new primary is not ready yet"));
            }
            return tokio::time::timeout(left, self.client_here(request)).await.map_err(|_| late())?;
        }
        let forward = MemberRequest::Forward(Box::new(request));
        match self.call_primary(primary, forward, left).await? {
            MemberAnswer::Forwarded(answer) => Ok(*answer),
            _ => Err(Failure::new(
                FailureKind::Internal,
                format!("{} gave an answer to another question", self.named(primary)),
            )),
        }
    }
}

/// A link's error as callers see it.
pub(super) fn link_failure(to: &str, error: &LinkError) -> Failure {
    let kind = match error {
        LinkError::Unreachable(_) | LinkError::Refused(_) => FailureKind::NotPrimary { primary: None },
        LinkError::Lost | LinkError::Deadline => FailureKind::Deadline,
    };
    Failure::new(kind, format!("{to} does not answer: {error}"))
}
