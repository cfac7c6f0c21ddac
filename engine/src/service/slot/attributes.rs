//! Changes of objects, and their end.

use super::super::change::{rejection_failure, unexpected};
use super::super::{Core, consensus_failure};
use super::{Answered, Halt};
use crate::domain::{
    AttributeType as A, Attributes, ContentKey, EnvelopeContent, LogIndex, ObjectId, Version,
};
use crate::limits;
use crate::state::{Command, Outcome, Rejection, RequestContext, RequestState};
use crate::virtual_slot::policy::{Asker, may_touch};
use crate::virtual_slot::{Traits, ckr, template, visible};
use crate::wire::{Change, Deletion, Failure, FailureKind, KeyRef, Made, SlotAnswer};
use std::collections::BTreeMap;

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
                let record = visible(&content.record);
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
        let mut state = self.repeated(&request)?;
        for _ in 0..limits::SUPERSEDED_TRIES {
            if state.is_some() {
                break;
            }
            state = self.replace_once(request, object, attributes, asker).await?;
        }
        match state {
            Some(RequestState::Replaced(object)) => self.replaced(object).await,
            Some(RequestState::Rejected(rejection)) => Err(rejection_failure(&rejection)),
            Some(_) => Err(Failure::new(FailureKind::Expired, "the request id was used for another change")),
            None => {
                Err(Failure::new(FailureKind::Busy, format!("object {object} keeps changing: try again")))
            }
        }
    }

    /// Proposes one replacement; None if another change came first.
    async fn replace_once(
        &self,
        request: RequestContext,
        object: ObjectId,
        attributes: &Attributes,
        asker: Asker,
    ) -> Result<Option<RequestState>, Failure> {
        let name = self.settled_surely(object, ckr::OBJECT_HANDLE_INVALID).await?;
        let old = self.content(name)?;
        may_touch(&Traits::of(&old.record), A::MODIFIABLE, asker.role)?;
        let record = template::change(&old.record, attributes)?;
        let next = ContentKey { version: Version(name.version.0 + 1), ..name };
        let content = EnvelopeContent { record, wrapped: old.wrapped };
        let object = self.seal(next, content, &BTreeMap::new())?;
        let replace = Command::Replace { request, object };
        match self.consensus.propose(replace).await.map_err(|e| consensus_failure(&e))?.1 {
            Outcome::Request(state) => Ok(Some(state)),
            Outcome::Rejected(Rejection::Superseded(_)) => Ok(None),
            Outcome::Rejected(Rejection::NoSuchObject(_)) => {
                Err(Failure::pkcs11(ckr::OBJECT_HANDLE_INVALID, "the object was destroyed meanwhile"))
            }
            Outcome::Rejected(rejection) => Err(rejection_failure(&rejection)),
            other => Err(unexpected(&other)),
        }
    }

    /// Answers a replacement once every in-sync member has reached it: no old version is used after that.
    async fn replaced(&self, object: ObjectId) -> Answered {
        let gone = || Failure::pkcs11(ckr::OBJECT_HANDLE_INVALID, format!("there is no object {object}"));
        let index = self.agreed.read(|s| s.object(object).map(|row| row.index)).ok_or_else(gone)?;
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
        })??;
        let record = self.record(self.settled(object).ok_or_else(gone)?)?;
        Ok(SlotAnswer::Record(Box::new(visible(&record))))
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
