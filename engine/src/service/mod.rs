//! Creates, uses and deletes keys, and answers for the group. A request may come to any member; what only the
//! primary or another in-sync member can do is carried there.
//!
//! `record`, `settler` and `way_back` think (pure); `primary` is the loop of a primary, `standby` that of a standby;
//! `steer` says who leads, `vitals` how fit this member is for it; every other file is one kind of request.

mod admin;
mod admission;
mod change;
mod compare;
mod create;
mod direct;
mod expel;
mod explain;
mod fence;
mod forward;
pub mod lease;
mod notes;
mod opinions;
mod pause;
mod primary;
mod read;
pub mod record;
pub mod settler;
mod slot;
mod standby;
mod steer;
mod uses;
mod vitals;
mod watching;
mod way_back;

pub use admission::{Joins, authority_context};
pub use expel::expel_returned;
pub use fence::Fencing;
pub use notes::Telemetry;
pub use primary::run_primary;
pub use slot::Logins;
pub use standby::stand_by;
pub use vitals::Vitals;
pub use watching::run_watching;

use crate::clock::MemberClock;
use crate::cloning::Domain;
use crate::consensus::{Agreed, Consensus, ConsensusError};
use crate::direct::Direct;
use crate::domain::{ApplicationName, ClientName, GroupId, Lineage, LogIndex, MemberId, ObjectId};
use crate::envelope::EnvelopeKeys;
use crate::limits;
use crate::membership::Roll;
use crate::reconciler::{Catalogue, Progress, Reporter};
use crate::state::Standing;
use crate::telemetry::Event;
use crate::token::{Token, TokenError, TokenVerdict};
use crate::transport::pki::Bearer;
use crate::transport::{Caller, ConnectionId, Handler, Peers};
use crate::virtual_slot::sealed::Sessions;
use crate::wire::{
    Answer, ClientRequest, Comparison, Failure, FailureKind, Lane, MemberAnswer, MemberRequest, Report,
    Request, Response, TokenHealth,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use settler::{Heard, Watch};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::info;

/// What a member's service works with.
pub struct Core {
    /// This member.
    pub me: MemberId,
    /// Its group.
    pub group: GroupId,
    /// Its group's history.
    pub lineage: Lineage,
    /// Agreement.
    pub consensus: Consensus,
    /// What is agreed.
    pub agreed: Arc<Agreed>,
    /// Where keys live.
    pub token: Token,
    /// Seals and opens envelopes.
    pub keys: Arc<EnvelopeKeys>,
    /// The cloning domain.
    pub domain: Domain,
    /// What was changed on this member's own slot.
    pub direct: Arc<Direct>,
    /// One such change at a time.
    pub direct_turn: tokio::sync::Mutex<()>,
    /// Session objects of applications, opened lately.
    pub sessions: Mutex<Sessions>,
    /// The index of objects.
    pub catalogue: Arc<Catalogue>,
    /// How far the reconciler is.
    pub progress: Arc<Progress>,
    /// Asks the reconciler for a full comparison.
    pub comparisons: mpsc::Sender<oneshot::Sender<Comparison>>,
    /// To other members.
    pub links: Arc<dyn Peers>,
    /// What the primary knows of members.
    pub watch: Mutex<Watch>,
    /// What members said of their fitness to lead.
    pub roll: Mutex<Roll>,
    /// The candidates for primary, the best first, by the primary's last word.
    pub ranking: Mutex<Vec<MemberId>>,
    /// How fit this member is to lead.
    pub vitals: Vitals,
    /// Wakes the primary's loop.
    pub nudge: Notify,
    /// The rest of this primary's block of object ids.
    pub ids: tokio::sync::Mutex<std::ops::Range<u64>>,
    /// True once a quorum confirmed the state since this start.
    pub confirmed: watch::Sender<bool>,
    /// How far it was confirmed.
    pub confirmed_to: OnceLock<LogIndex>,
    /// The report of the reconciler's last round: something new to carry to the primary.
    pub outbox: watch::Sender<Option<Report>>,
    /// Logins under way.
    pub logins: Logins,
    /// Joins under way.
    pub joins: Joins,
    /// What this member tells of itself.
    pub telemetry: Telemetry,
    /// Time.
    pub clock: MemberClock,
    /// True while this member is a standby that hears no active one: then it serves.
    pub stands_in: AtomicBool,
    /// When this member started: the isolation grace runs from here.
    pub started: std::time::Instant,
    /// Its lease, in a group that fences.
    pub fencing: Fencing,
}

/// A member's service: answers members, clients and joiners.
#[derive(Clone)]
pub struct Service(pub Arc<Core>);

impl Service {
    /// Carries out a client's request, here or wherever it can be.
    pub async fn call(&self, request: ClientRequest) -> Result<Answer, Failure> {
        let who = slot_name(rustix::process::geteuid().as_raw());
        self.0.client_noted(who, request).await
    }

    async fn answer(self, connection: ConnectionId, caller: Caller, request: Request) -> Response {
        let answered = match (caller, request) {
            (Caller::Member(from), Request::Member(request)) => {
                self.0.member(connection, from, request).await.map(Response::Member)
            }
            (Caller::Application(name), Request::Client(request)) => {
                match asked_by_application(&name, request) {
                    Ok(request) => {
                        let who = ClientName(format!("client:{name}"));
                        let answered = self.0.client_noted(who, request).await;
                        answered.map(|answer| Response::Client(for_all(answer)))
                    }
                    Err(failure) => Err(failure),
                }
            }
            (Caller::Local { uid, .. }, Request::Client(request)) => match asked_by(uid, request) {
                Ok(request) => {
                    let answered = self.0.client_noted(slot_name(uid), request).await;
                    let shown = |answer| if is_operator(uid) { answer } else { for_all(answer) };
                    answered.map(|answer| Response::Client(shown(answer)))
                }
                Err(failure) => Err(failure),
            },
            (_, Request::Join(request)) => self.0.join(connection, request).await.map(Response::Join),
            _ => Err(Failure::new(FailureKind::Forbidden, "this connection may not ask this")),
        };
        answered.unwrap_or_else(Response::Failed)
    }
}

/// The name of a local process's user at the virtual slot.
fn slot_name(uid: u32) -> ClientName {
    ClientName(format!("uid:{uid}"))
}

fn is_operator(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// An answer for those who are no operators: what the offline recovery key opens is none of their business.
fn for_all(answer: Answer) -> Answer {
    match answer {
        Answer::Status(mut status) => {
            status.recovery.clear();
            Answer::Status(status)
        }
        other => other,
    }
}

/// A local process's request under its own name. Who is neither root nor the member's own user may use the virtual
/// slot and ask how the group is; the rest is for operators.
fn asked_by(uid: u32, request: ClientRequest) -> Result<ClientRequest, Failure> {
    match request {
        ClientRequest::Slot(mut call) => {
            call.who = slot_name(uid);
            Ok(ClientRequest::Slot(call))
        }
        ClientRequest::Status => Ok(ClientRequest::Status),
        request if is_operator(uid) => Ok(request),
        _ => {
            let text = format!(
                "user {uid} may use the virtual slot and ask for the status alone: run this as root or as the \
                 member's user"
            );
            Err(Failure::new(FailureKind::Forbidden, text))
        }
    }
}

/// An application's request under the name that its certificate proves.
fn asked_by_application(name: &ApplicationName, request: ClientRequest) -> Result<ClientRequest, Failure> {
    match request {
        ClientRequest::Slot(mut call) => {
            call.who = ClientName(format!("client:{name}"));
            Ok(ClientRequest::Slot(call))
        }
        ClientRequest::Status => Ok(ClientRequest::Status),
        _ => {
            let text = format!("the client '{name}' may use the virtual slot and ask for the status alone");
            Err(Failure::new(FailureKind::Forbidden, text))
        }
    }
}

impl Handler for Service {
    fn handle(
        &self,
        connection: ConnectionId,
        caller: Caller,
        request: Request,
    ) -> BoxFuture<'static, Response> {
        Box::pin(self.clone().answer(connection, caller, request))
    }

    fn handle_now(&self, caller: &Caller, request: Request) -> Result<Response, Box<Request>> {
        let (uid, mut call) = match (caller, request) {
            (Caller::Local { uid, .. }, Request::Client(ClientRequest::Slot(call))) => (*uid, call),
            (_, request) => return Err(Box::new(request)),
        };
        call.who = slot_name(uid);
        let begun = self.0.begin(notes::asked_of_slot(&call));
        match self.0.slot_now(&call) {
            Some(answer) => {
                self.0.note(begun, call.who, self.0.me, &answer);
                Ok(answer.map_or_else(Response::Failed, Response::Client))
            }
            None => Err(Box::new(Request::Client(ClientRequest::Slot(call)))),
        }
    }

    fn is_hung(&self) -> bool {
        self.0.token.is_hung()
    }

    fn closed(&self, connection: ConnectionId) {
        self.0.joins.forget(connection);
    }

    fn admits(&self, bearer: &Bearer) -> bool {
        self.0.agreed.read(|state| match (state.group(), bearer) {
            // A member that has no state yet trusts the group's authority alone, as to members.
            (None, bearer) => matches!(bearer, Bearer::Member(_)),
            // So does one that is behind, where somebody has joined since: that may be the only one to hear the rest from.
            (Some(_), Bearer::Member(named)) => match state.member(named.member) {
                Some(row) => row.card.tls == named.tls,
                None => state.is_to_come(named.member),
            },
            (Some(_), Bearer::Application(named)) => state.applications().has(&named.name, named.tls),
        })
    }
}

impl Reporter for Core {
    fn report(&self, report: Report) {
        self.outbox.send_replace(Some(report));
    }
}

impl Core {
    async fn member(
        &self,
        connection: ConnectionId,
        from: MemberId,
        request: MemberRequest,
    ) -> Result<MemberAnswer, Failure> {
        // Who joined behind this member's back brings it up to date by Raft; before that it may as well have been removed.
        let stranger = self.agreed.read(|state| state.group().is_some() && state.member(from).is_none());
        if stranger && !matches!(request, MemberRequest::Raft { .. }) {
            let text = format!("{} does not know {from} yet", self.named(self.me));
            return Err(Failure::new(FailureKind::NotInSync, text));
        }
        match request {
            MemberRequest::Raft { call, body } => {
                let body =
                    self.consensus.handle(from, call, body).await.map_err(|e| consensus_failure(&e))?;
                Ok(MemberAnswer::Raft(body))
            }
            MemberRequest::Report(report) => {
                self.hear(from, report);
                Ok(MemberAnswer::Ranked(self.ranking.lock().clone()))
            }
            MemberRequest::Chosen(term) => {
                self.vitals.note_chosen(term);
                self.report(self.progress.report());
                Ok(MemberAnswer::Noted)
            }
            MemberRequest::ReadIndex => {
                let index = self.consensus.barrier().await.map_err(|e| consensus_failure(&e))?;
                Ok(MemberAnswer::ReadIndex(index))
            }
            MemberRequest::Forward(request) => {
                let done = self.client_here(*request).await;
                let answer = self.gone_for_all(done).await?;
                Ok(MemberAnswer::Forwarded(Box::new(answer)))
            }
            MemberRequest::Announce(card) => {
                self.announce(from, *card).await?;
                Ok(MemberAnswer::Noted)
            }
            MemberRequest::Readmit(request) => {
                let answer = self.readmit(connection, from, *request).await?;
                Ok(MemberAnswer::Readmit(Box::new(answer)))
            }
            MemberRequest::Lease { applied, kept } => {
                self.grant(from, applied, kept).await?;
                Ok(MemberAnswer::Noted)
            }
            MemberRequest::Failures => {
                let troubles = self.own_troubles().into_iter();
                Ok(MemberAnswer::Failures(troubles.map(|(id, (why, tries))| (id, why, tries)).collect()))
            }
            MemberRequest::ServesActive => Ok(MemberAnswer::ServesActive(self.serves_active())),
            MemberRequest::Compare(index) => Ok(MemberAnswer::Compared(self.compare_here(index).await?)),
            MemberRequest::EndDirect => Ok(MemberAnswer::DirectEnded(self.end_direct().await)),
            MemberRequest::Pulse => Ok(MemberAnswer::Pulse(Box::new(self.pulse()))),
            MemberRequest::Operations { client, last } => {
                Ok(MemberAnswer::Operations(self.operations(client.as_deref(), last)))
            }
        }
    }

    /// What this member says of itself now.
    pub(super) fn own_report(&self) -> Report {
        let fitness = self.vitals.fitness(self.clock.now());
        Report { fitness, ..self.progress.report() }
    }

    /// Notes this member's own report, as its primary does.
    pub(super) fn hear_myself(&self) {
        self.hear(self.me, self.own_report());
    }

    /// Notes a member's report and wakes the primary's loop if it may change anything.
    pub fn hear(&self, from: MemberId, report: Report) {
        let now = self.clock.now();
        self.roll.lock().note(from, report.fitness.clone(), now);
        let heard = Heard::new(report, now);
        let mut watch = self.watch.lock();
        let news = watch.heard.get(&from).is_none_or(|old| {
            old.objects != heard.objects || old.token != heard.token || old.reached != heard.reached
        });
        let failed = |heard: &Heard| matches!(heard.token, TokenHealth::Failed(_));
        let healed = !failed(&heard) && watch.heard.get(&from).is_some_and(failed);
        watch.heard.insert(from, heard);
        drop(watch);
        if healed {
            info!(code = Event::TokenHealed.code(), member = %from, "a member's token works again");
        }
        if news {
            self.nudge.notify_one();
        }
    }

    /// True from the start until a quorum has confirmed this member's state, for the isolation grace at most.
    pub(super) fn awaits_word(&self) -> bool {
        !*self.confirmed.borrow() && self.is_new()
    }

    /// True from the start until this member has gone through its token up to the state that a quorum has confirmed, for the
    /// isolation grace at most: it has all its keys, and knows of each only once it has proved it.
    pub(super) fn warms_up(&self) -> bool {
        let gone_through = |to: &LogIndex| self.progress.reached() >= *to;
        self.is_new() && !self.confirmed_to.get().is_some_and(gone_through)
    }

    fn is_new(&self) -> bool {
        self.clock.now().saturating_duration_since(self.started) < limits::ISOLATION_GRACE
    }

    /// True if this member may use keys now.
    pub fn may_serve(&self) -> Result<(), Failure> {
        if self.progress.token() != crate::wire::TokenHealth::Healthy {
            return Err(Failure::new(
                FailureKind::TokenFailed,
                format!("the token of {} failed", self.named(self.me)),
            ));
        }
        self.fenced()?;
        if self.awaits_word() {
            let grace = limits::ISOLATION_GRACE.as_secs();
            let me = self.named(self.me);
            let text = format!("{me} has just started and waits up to {grace} s for the group's word");
            return Err(Failure::new(FailureKind::NotInSync, text));
        }
        let row = self
            .agreed
            .read(|state| state.member(self.me).map(|row| (row.standing == Standing::InSync, row.duty)));
        match row {
            // The last of the checks: `may_answer` leaves it out.
            Some((true, duty)) => self.on_duty(duty),
            _ => Err(Failure::new(
                FailureKind::NotInSync,
                format!("{} is not in sync yet", self.named(self.me)),
            )),
        }
    }

    /// A member as people know it: its id, and its name if it is on the roster.
    pub fn named(&self, member: MemberId) -> String {
        let name = self.agreed.read(|state| state.member(member).map(|row| row.card.name.clone()));
        name.map_or_else(|| member.to_string(), |name| format!("{member} ('{name}')"))
    }

    /// Waits until this member has applied an index.
    pub async fn wait_applied(&self, index: LogIndex, limit: Duration) -> Result<(), Failure> {
        let mut applied = self.agreed.applied();
        let reached = tokio::time::timeout(limit, applied.wait_for(|at| *at >= index)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Failure::new(
                FailureKind::Deadline,
                format!("{} did not reach index {index} in time", self.named(self.me)),
            )),
        }
    }

    /// Calls another member.
    pub async fn call_member(
        &self,
        to: MemberId,
        request: MemberRequest,
        limit: Duration,
    ) -> Result<MemberAnswer, Failure> {
        match self.links.call(to, Lane::Calls, Request::Member(request), limit).await {
            Ok(Response::Member(answer)) => Ok(answer),
            Ok(Response::Failed(failure)) => Err(failure),
            Ok(_) => Err(Failure::new(
                FailureKind::Internal,
                format!("{} gave an answer to another question", self.named(to)),
            )),
            Err(error) => Err(forward::link_failure(&self.named(to), &error)),
        }
    }
}

/// A consensus error as callers see it.
pub fn consensus_failure(error: &ConsensusError) -> Failure {
    let kind = match error {
        ConsensusError::NotLeader { leader } => FailureKind::NotPrimary { primary: *leader },
        ConsensusError::NoQuorum => FailureKind::NoQuorum,
        ConsensusError::Unknown | ConsensusError::Deadline(_) => FailureKind::Deadline,
        ConsensusError::Stopped(_) => FailureKind::Stopping,
        ConsensusError::ChangeUnderWay | ConsensusError::Behind { .. } => FailureKind::Busy,
        ConsensusError::NotAMember(_)
        | ConsensusError::NotAVoter(_)
        | ConsensusError::TooManyVoters
        | ConsensusError::LastVoter(_)
        | ConsensusError::OtherGroup
        | ConsensusError::TooLarge { .. } => FailureKind::Refused,
        ConsensusError::Returned(_) => FailureKind::Forbidden,
        ConsensusError::BadMessage { .. } | ConsensusError::Codec(_) => FailureKind::BadRequest,
        ConsensusError::Settings(_) | ConsensusError::Store(_) => FailureKind::Internal,
    };
    Failure::new(kind, error)
}

/// A token's error as callers see it.
pub fn token_failure(me: MemberId, error: &TokenError) -> Failure {
    let kind = match error.verdict() {
        TokenVerdict::Refused => FailureKind::Refused,
        TokenVerdict::Failed => FailureKind::TokenFailed,
        TokenVerdict::Caller(code) => FailureKind::TokenRefused { code },
        TokenVerdict::Missing => FailureKind::NotInSync,
        TokenVerdict::Limit => FailureKind::Busy,
    };
    Failure::new(kind, format!("{me}: {error}"))
}

/// Nothing bears this name.
pub fn not_found(object: ObjectId) -> Failure {
    Failure::new(FailureKind::NotFound, format!("there is no object {object}: see 'keyraft key list'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{SlotCall, SlotRequest};

    #[test]
    fn an_application_asks_under_the_name_that_it_proved_and_for_little() {
        let name: ApplicationName = "web".parse().expect("a name");
        let who = ClientName("uid:0".into());
        let call = SlotCall {
            who,
            ticket: None,
            seen: LogIndex(0),
            tries: 1,
            ask: SlotRequest::Info,
            direct: false,
        };
        let asked = asked_by_application(&name, ClientRequest::Slot(Box::new(call)));
        let Ok(ClientRequest::Slot(call)) = asked else { panic!("{asked:?}") };
        assert_eq!(call.who, ClientName("client:web".into()));
        assert!(asked_by_application(&name, ClientRequest::Status).is_ok());
        let failure = asked_by_application(&name, ClientRequest::Clients).expect_err("is an operator's");
        assert_eq!(failure.kind, FailureKind::Forbidden);
    }
}
