//! Changes of objects, and their end.

use super::super::change::{rejection_failure, unexpected};
use super::super::{Core, consensus_failure};
use super::{Answered, Halt};
use crate::domain::{
    AttributeType as A, AttributeValue, Attributes, ContentKey, EnvelopeContent, LogIndex, ObjectId, Version,
};
use crate::limits;
use crate::state::{Command, Outcome, Rejection, RequestContext, RequestState};
use crate::virtual_slot::policy::{Asker, day, may_touch};
use crate::virtual_slot::{Traits, ckr, template, visible};
use crate::wire::{
    Answer, Change, CompareAndSet, Deletion, Failure, FailureKind, KeyRef, Made, Role, SlotAnswer,
};
use std::collections::BTreeMap;

/// A change of an agreed object's attributes.
struct Swap<'a> {
    request: RequestContext,
    object: ObjectId,
    attributes: &'a Attributes,
    /// The value that an attribute must have now.
    expected: Option<(A, Option<&'a AttributeValue>)>,
}

/// The failure for a request that came to another end than a swap can.
fn otherwise(state: &RequestState) -> Failure {
    match state {
        RequestState::Rejected(rejection) => rejection_failure(rejection),
        _ => Failure::new(FailureKind::Expired, "the request id was used for another change"),
    }
}

impl Core {
    pub(super) async fn slot_set(
        &self,
        change: Change,
        key: &KeyRef,
        attributes: &Attributes,
        asker: Asker,
    ) -> Result<SlotAnswer, Halt> {
        template::check_trusted(attributes, asker.role)?;
        match key {
            KeyRef::Object(object) => Ok(self.set_agreed(change, *object, attributes, asker).await?),
            KeyRef::Session { .. } => {
                let old = self.opened(key, ckr::OBJECT_HANDLE_INVALID).await?;
                let record = &old.content.record;
                may_touch(&Traits::of(record), A::MODIFIABLE, asker.role)?;
                let record = template::change(record, attributes)?;
                let content = EnvelopeContent { record, wrapped: old.content.wrapped.clone() };
                let record = Some(visible(&content.record));
                // Tokens keep a session object by its name, so a changed one has another.
                let key = self.seal_session(self.new_session_name()?, old.generation, content)?;
                Ok(SlotAnswer::Made(vec![Made { key, record }]))
            }
        }
    }

    /// Puts an agreed object's next version in its place. Runs at the primary.
    async fn set_agreed(
        &self,
        change: Change,
        object: ObjectId,
        attributes: &Attributes,
        asker: Asker,
    ) -> Answered {
        let request = self.context(change.request, change.watermark, &(object, attributes))?;
        let swap = Swap { request, object, attributes, expected: None };
        match self.swap(&swap, asker).await? {
            RequestState::Replaced(object) => {
                self.reached(object).await?;
                // It was set, though somebody may have destroyed it since.
                let Some(name) = self.settled(object) else { return Ok(SlotAnswer::Done) };
                Ok(SlotAnswer::Record(Box::new(visible(&self.record(name)?))))
            }
            other => Err(otherwise(&other)),
        }
    }

    /// Sets an attribute of an agreed object if it has the value that is expected. Runs at the primary.
    pub(in crate::service) async fn compare_and_set(&self, ask: CompareAndSet) -> Result<Answer, Failure> {
        let CompareAndSet { request, watermark, object, attribute, expected, value } = ask;
        let request = self.context(request, watermark, &(object, attribute, &expected, &value))?;
        let attributes = &Attributes::from([(attribute, value)]);
        let swap = Swap { request, object, attributes, expected: Some((attribute, expected.as_ref())) };
        // Who may ask this may do what a logged-in user may.
        let asker = Asker { role: Some(Role::User), today: day(self.clock.unix()) };
        template::check_trusted(attributes, asker.role)?;
        match self.swap(&swap, asker).await? {
            RequestState::Replaced(object) => {
                self.reached(object).await?;
                Ok(Answer::ComparedAndSet(true))
            }
            RequestState::Differs(_) => Ok(Answer::ComparedAndSet(false)),
            other => Err(otherwise(&other)),
        }
    }

    /// What comes of a swap, or came of it before.
    async fn swap(&self, swap: &Swap<'_>, asker: Asker) -> Result<RequestState, Failure> {
        if let Some(known) = self.repeated(&swap.request)? {
            return Ok(known);
        }
        for _ in 0..limits::SUPERSEDED_TRIES {
            if let Some(state) = self.swap_once(swap, asker).await? {
                return Ok(state);
            }
        }
        let text = format!("object {} keeps changing: try again", swap.object);
        Err(Failure::new(FailureKind::Busy, text))
    }

    /// Proposes one replacement, or that the value is another one; None if another change came first. Both hold for the
    /// version that was looked at here, and for no other.
    async fn swap_once(&self, swap: &Swap<'_>, asker: Asker) -> Result<Option<RequestState>, Failure> {
        let Swap { request, object, .. } = *swap;
        let name = self.settled_surely(object, ckr::OBJECT_HANDLE_INVALID).await?;
        let old = self.content(name)?;
        may_touch(&Traits::of(&old.record), A::MODIFIABLE, asker.role)?;
        let record = template::change(&old.record, swap.attributes)?;
        let differs = swap.expected.is_some_and(|(a, expected)| old.record.attributes.get(&a) != expected);
        let command = if differs {
            Command::Differ { request, object, version: name.version }
        } else {
            let next = ContentKey { version: Version(name.version.0 + 1), ..name };
            let content = EnvelopeContent { record, wrapped: old.wrapped };
            Command::Replace { request, object: self.seal(next, content, &BTreeMap::new())? }
        };
        match self.consensus.propose(command).await.map_err(|e| consensus_failure(&e))?.1 {
            Outcome::Request(state) => Ok(Some(state)),
            Outcome::Rejected(Rejection::Superseded(_)) => Ok(None),
            Outcome::Rejected(Rejection::NoSuchObject(_)) => {
                Err(Failure::pkcs11(ckr::OBJECT_HANDLE_INVALID, "the object was destroyed meanwhile"))
            }
            Outcome::Rejected(rejection) => Err(rejection_failure(&rejection)),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until every in-sync member has reached an object's last change: no old version is used after that. Of one
    /// that has gone again nobody has any.
    async fn reached(&self, object: ObjectId) -> Result<(), Failure> {
        let Some(index) = self.agreed.read(|s| s.object(object).map(|row| row.index)) else {
            return Ok(());
        };
        let reached = async {
            while !self.reached_by_all(index) {
                tokio::time::sleep(limits::REPLACED_PAUSE).await;
            }
        };
        tokio::time::timeout(limits::OVERALL, reached).await.map_err(|_| {
            let text = "the change is agreed, but not every member in sync has reached it: repeat it";
            Failure::new(FailureKind::Deadline, text)
        })?;
        tokio::time::timeout(limits::OVERALL, self.wait_leases()).await.map_err(|_| {
            let text =
                "the change is agreed, but a member that is cut off may not have reached it: repeat it";
            Failure::new(FailureKind::Deadline, text)
        })?
    }

    /// True if every in-sync member holds what was agreed up to an index.
    fn reached_by_all(&self, index: LogIndex) -> bool {
        let members = self.agreed.read(|state| match state.fence() {
            // One that is only entering may hold a lease.
            Some(_) => state.required(),
            None => state.in_sync(),
        });
        let watch = self.watch.lock();
        members.into_iter().all(|member| {
            if member == self.me {
                return self.progress.reached() >= index;
            }
            watch.heard.get(&member).is_some_and(|heard| heard.reached >= index)
        })
    }

    /// Destroys an agreed object. Runs at the primary.
    pub(super) async fn slot_destroy(&self, change: Change, object: ObjectId, asker: Asker) -> Answered {
        if self.agreed.read(|state| state.request(change.request)).is_none() {
            let name = self.settled_surely(object, ckr::OBJECT_HANDLE_INVALID).await?;
            let (traits, _) = self.known_key(object, name)?;
            may_touch(&traits, A::DESTROYABLE, asker.role)?;
        }
        let (request, watermark) = (change.request, change.watermark);
        match self.delete(Deletion { request, watermark, objects: vec![object] }).await {
            Ok(_) => Ok(SlotAnswer::Done),
            Err(failure) if failure.kind == FailureKind::NotFound => {
                Err(Failure::pkcs11(ckr::OBJECT_HANDLE_INVALID, failure.message))
            }
            Err(failure) => Err(failure),
        }
    }
}
