//! The virtual slot's requests: what applications ask through the PKCS#11 module. Changes of agreed objects go to the
//! primary; everything else is done here, or by another in-sync member if this one cannot.
//!
//! `find` searches and reads, `make` makes objects, `uses` works with keys, `attributes` changes and destroys. `direct`
//! is a member's own slot.

mod attributes;
mod direct;
mod find;
mod login;
mod make;
mod pins;
mod uses;

pub use login::Logins;
pub(super) use make::{Birth, name};

use super::Core;
use super::opinions::Opinions;
use crate::domain::{ContentKey, EnvelopeContent, Generation, LogIndex, MemberId, ObjectId};
use crate::limits;
use crate::state::IsolatedService;
use crate::virtual_slot::policy::{Asker, day};
use crate::virtual_slot::sealed::{self, Opened};
use crate::wire::{
    Answer, ClientRequest, Failure, FailureKind, KeyRef, Remedy, Sealed, SessionName, SlotAnswer, SlotCall,
    SlotReply, SlotRequest, Undecided,
};
use std::sync::Arc;

/// Which object a call names.
#[derive(Clone, Copy)]
enum Which {
    Agreed(ObjectId),
    Session(SessionName),
}

/// An object that a call names, opened.
struct Named {
    which: Which,
    /// The generation that its content is wrapped under.
    generation: Generation,
    content: Arc<EnvelopeContent>,
}

/// A call's end: an answer, or a failure.
type Answered = Result<SlotAnswer, Failure>;

/// Why a call stops early: a failure, or a session object that this member does not know.
enum Halt {
    Failed(Failure),
    Unknown(SessionName),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn answered(result: Result<SlotAnswer, Halt>) -> Answered {
    match result {
        Ok(answer) => Ok(answer),
        Err(Halt::Failed(failure)) => Err(failure),
        Err(Halt::Unknown(name)) => Ok(SlotAnswer::SendSealed(name)),
    }
}

/// True for what only the primary does.
pub(super) fn is_change(ask: &SlotRequest) -> bool {
    matches!(ask, SlotRequest::Login { .. }) || ask.undecided() != Undecided::Nothing
}

impl Core {
    /// Carries out a call on the virtual slot: here, or at another in-sync member where this one cannot. The first try
    /// of what any member can do is refused instead by one that does not serve. `by` becomes the member that did it, or
    /// said no last.
    pub(super) async fn slot(&self, call: SlotCall, by: &mut MemberId) -> Result<Answer, Failure> {
        let repeatable = matches!(&call.ask, SlotRequest::Use { .. } | SlotRequest::Wrap { .. });
        let failure = match self.slot_here(&call).await {
            Err(failure) if failure.remedy() != Remedy::GiveUp => failure,
            Err(failure) if repeatable && failure.is_doubtful() => failure,
            done => return done,
        };
        let own = self.does_not_serve(&failure);
        // It would be a detour for every further call: the module goes elsewhere, and comes back if nobody else serves.
        if own && call.tries == 1 && !is_change(&call.ask) {
            return Err(failure);
        }
        let limit = match &call.ask {
            SlotRequest::Make { .. } => limits::GENERATE_ATTEMPT,
            _ => limits::ATTEMPT,
        };
        // By the time that no active member has answered, this standby may serve.
        let standby = failure.kind == FailureKind::Standby;
        let mut opinions = Opinions::begin(failure, own);
        let others = self.agreed.read(|state| state.in_serving_order());
        for member in others.into_iter().filter(|member| *member != self.me) {
            *by = member;
            let said = self.forward_to(member, ClientRequest::Slot(Box::new(call.clone())), limit).await;
            if let Some(done) = opinions.hear(said) {
                if opinions.is_doubtful() && done.is_ok() {
                    self.token.suspect();
                }
                return done;
            }
        }
        if standby { self.slot_here(&call).await } else { Err(opinions.end()) }
    }

    /// True if a failure says that this member serves nobody now, and not that it cannot do this one thing.
    fn does_not_serve(&self, failure: &Failure) -> bool {
        match failure.kind {
            FailureKind::Stopping => true,
            FailureKind::NotInSync | FailureKind::Standby | FailureKind::TokenFailed => {
                self.may_serve().is_err()
            }
            _ => false,
        }
    }

    /// Carries out a call on the virtual slot at this member, or says who can.
    pub(super) async fn slot_here(&self, call: &SlotCall) -> Result<Answer, Failure> {
        self.wait_seen(call.seen).await?;
        let answer = self.slot_answer(call).await?;
        let index = self.agreed.read(|state| state.applied());
        Ok(Answer::Slot(Box::new(SlotReply { index, answer })))
    }

    async fn slot_answer(&self, call: &SlotCall) -> Answered {
        match &call.ask {
            SlotRequest::Login { .. }
            | SlotRequest::Renew
            | SlotRequest::SetPin { .. }
            | SlotRequest::InitPin { .. }
            | SlotRequest::InitToken { .. } => return self.slot_login(call).await,
            SlotRequest::Info => return self.slot_info(call),
            _ => {}
        }
        let asker = Asker { role: self.ticket_role(call)?, today: day(self.clock.unix()) };
        match &call.ask {
            SlotRequest::Find { template, after } => self.slot_find(template, *after, asker).await,
            SlotRequest::Read(object) => self.slot_read(*object, asker).await,
            SlotRequest::Make { change, keep, by } => {
                answered(self.slot_make(*change, *keep, by, asker).await)
            }
            SlotRequest::SetAttributes { change, key, attributes } => {
                answered(self.slot_set(*change, key, attributes, asker).await)
            }
            SlotRequest::Destroy { change, object } => self.slot_destroy(*change, *object, asker).await,
            SlotRequest::Use { key, kind, mechanism, data } => {
                answered(self.slot_use(key, kind, mechanism, &data.0, asker).await)
            }
            SlotRequest::Wrap { mechanism, wrapping, key } => {
                answered(self.slot_wrap(mechanism, wrapping, key, asker).await)
            }
            SlotRequest::Random { bytes } => self.slot_random(*bytes).await,
            SlotRequest::Info
            | SlotRequest::Login { .. }
            | SlotRequest::Renew
            | SlotRequest::SetPin { .. }
            | SlotRequest::InitPin { .. }
            | SlotRequest::InitToken { .. } => {
                Err(Failure::new(FailureKind::Internal, "a call was answered twice"))
            }
        }
    }

    /// Waits until this member shows what the application has seen.
    async fn wait_seen(&self, seen: LogIndex) -> Result<(), Failure> {
        let (applied, serves) = self
            .agreed
            .read(|state| (state.applied(), state.options().isolated_service == IsolatedService::Serve));
        // A member that is cut off will not get further: it answers with what it has, as the group wants it.
        let is_all = || serves && !self.hears_a_primary();
        if applied >= seen || is_all() {
            return Ok(());
        }
        match self.wait_applied(seen, limits::SEEN_PATIENCE).await {
            Err(_) if is_all() => Ok(()),
            // Another member may be further.
            waited => waited.map_err(|failure| Failure::new(FailureKind::NotInSync, failure.message)),
        }
    }

    /// The object that a call names, opened, whatever its class. An agreed one is looked for behind a barrier if it
    /// is not there. A handle that names nothing is called `code`.
    async fn opened(&self, key: &KeyRef, code: u64) -> Result<Named, Halt> {
        match key {
            KeyRef::Object(object) => {
                let name = self.settled_surely(*object, code).await?;
                let content = Arc::new(self.content(name)?);
                Ok(Named { which: Which::Agreed(*object), generation: name.generation, content })
            }
            KeyRef::Session { name, sealed } => {
                let opened = self.session(*name, sealed.as_deref(), code)?;
                let (generation, content) = (opened.generation, opened.content.clone());
                Ok(Named { which: Which::Session(*name), generation, content })
            }
        }
    }

    /// A settled object's content name; the failure bears `code`.
    async fn settled_surely(&self, object: ObjectId, code: u64) -> Result<ContentKey, Failure> {
        if let Some(name) = self.settled(object) {
            return Ok(name);
        }
        self.patient_barrier().await?;
        let gone = || Failure::pkcs11(code, format!("there is no object {object}"));
        self.settled(object).ok_or_else(gone)
    }

    /// A session object, from memory or from its sealed form.
    fn session(&self, name: SessionName, sealed: Option<&Sealed>, code: u64) -> Result<Arc<Opened>, Halt> {
        if let Some(opened) = self.sessions.lock().get(name) {
            return Ok(opened);
        }
        let Some(sealed) = sealed else { return Err(Halt::Unknown(name)) };
        let content = sealed::open(&self.keys, self.group, name, sealed).map_err(|error| {
            Failure::pkcs11(code, format!("the session object is not this group's: {error}"))
        })?;
        Ok(self.sessions.lock().keep(name, sealed.generation, content))
    }

    /// Seals a new or changed session object, and keeps it at hand.
    fn seal_session(
        &self,
        name: SessionName,
        generation: Generation,
        content: EnvelopeContent,
    ) -> Result<KeyRef, Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, e);
        let key = self.keys.get(generation).ok_or_else(|| {
            Failure::new(FailureKind::NotInSync, format!("{} has no envelope key of {generation}", self.me))
        })?;
        let nonce = crate::transport::random_bytes().map_err(|e| internal(&e))?;
        let sealed =
            sealed::seal((generation, key), self.group, name, &content, nonce).map_err(|e| internal(&e))?;
        self.sessions.lock().keep(name, generation, content);
        Ok(KeyRef::Session { name, sealed: Some(Box::new(sealed)) })
    }
}
