//! A member's own slot: what this member holds, and changes that act on this member alone. Nothing here is carried to
//! another member but the counting of PINs, which are the group's.
//!
//! An object of this member alone is used as a session object is: its name leads to what the list keeps of it.

use super::super::Core;
use super::make::name;
use super::{Answered, Halt, answered};
use crate::direct::{Full, List, Made as Kept, is_direct, session_name};
use crate::domain::{
    AttributeType as A, Attributes, ContentKey, EnvelopeContent, Generation, ObjectId, RequestId, Version,
};
use crate::envelope;
use crate::limits;
use crate::state::command::FIRST_VERSION;
use crate::state::{Phase, State};
use crate::virtual_slot::policy::{Asker, Need, day, may_see, may_touch};
use crate::virtual_slot::{ckr, mechanisms, template, visible};
use crate::wire::{
    Answer, Change, Failure, FailureKind, Keep, KeyRef, Made, MakeBy, Role, SlotAnswer, SlotCall, SlotReply,
    SlotRequest,
};

impl From<Full> for Failure {
    fn from(full: Full) -> Self {
        Self::pkcs11(ckr::DEVICE_MEMORY, full)
    }
}

fn refused(what: &str) -> Failure {
    let text = format!("{what} on the group's slot: this slot is one member's own");
    Failure::pkcs11(ckr::FUNCTION_REJECTED, text)
}

/// Refuses what is on its way to the group: the group would have it as it was, beside what this member makes of it.
fn unclaimed(made: &Kept) -> Result<&Kept, Failure> {
    if made.adoption.is_none() {
        return Ok(made);
    }
    let text = format!(
        "object {} may be the group's already: run 'keyraft synchronize', which ends that, and try again",
        made.content.object
    );
    Err(Failure::new(FailureKind::Busy, text))
}

impl Core {
    /// Carries out a call on this member's own slot.
    pub(in crate::service) async fn slot_direct(&self, mut call: SlotCall) -> Result<Answer, Failure> {
        if matches!(call.ask, SlotRequest::Login { .. }) {
            call.direct = false;
            return self.login_anywhere(Box::new(call)).await;
        }
        let answer = self.direct_answer(&call).await.map_err(|failure| self.final_here(failure))?;
        let index = self.agreed.read(|state| state.applied());
        Ok(Answer::Slot(Box::new(SlotReply { index, answer })))
    }

    /// No other member can stand in on this slot: what a standby does not do would be asked for until the time is up.
    fn final_here(&self, failure: Failure) -> Failure {
        if failure.kind != FailureKind::Standby {
            return failure;
        }
        let me = self.named(self.me);
        let text = format!(
            "{me} is a standby, whose own slot does nothing while active members serve: use the group's slot, or run \
             'keyraft member activate {}'",
            self.me
        );
        Failure::pkcs11(ckr::FUNCTION_REJECTED, text)
    }

    async fn direct_answer(&self, call: &SlotCall) -> Answered {
        match &call.ask {
            SlotRequest::Info => return self.direct_info(call),
            SlotRequest::Login { .. } | SlotRequest::Renew => return self.slot_login(call).await,
            SlotRequest::SetPin { .. } | SlotRequest::InitPin { .. } => {
                return Err(refused("the PINs are the group's: change them"));
            }
            SlotRequest::InitToken { .. } => {
                return Err(refused("C_InitToken empties the whole group: call it"));
            }
            _ => self.may_serve()?,
        }
        let asker = Asker { role: self.ticket_role(call)?, today: day(self.clock.unix()) };
        match &call.ask {
            SlotRequest::Find { template, after } => self.direct_find(template, *after, asker).await,
            SlotRequest::Read(object) => self.direct_read(*object, asker).await,
            SlotRequest::Destroy { change, object } => self.direct_destroy(*change, *object, asker).await,
            SlotRequest::SetAttributes { key: KeyRef::Object(object), attributes, .. } => {
                self.direct_set(*object, attributes, asker).await
            }
            ask @ SlotRequest::Make { change, keep: Keep::Agreed, .. } => {
                answered(self.direct_make(*change, ask, asker).await)
            }
            ask => {
                let local = SlotCall { ask: self.local(ask)?, ..call.clone() };
                let answer = self.slot_answer(&local).await?;
                // The answer of a key that was deleted while the token worked would come after the deletion's.
                self.local(ask)?;
                Ok(answer)
            }
        }
    }

    fn direct_info(&self, call: &SlotCall) -> Answered {
        let SlotAnswer::Info(mut info) = self.slot_info(call)? else {
            return Err(Failure::new(FailureKind::Internal, "a question was answered otherwise"));
        };
        self.agreed.read(|state| {
            if let Some(row) = state.member(self.me) {
                info.mechanisms = mechanisms::shared([&row.card.profile.mechanisms[..]]);
                info.member = Some((self.me, row.card.name.clone()));
            }
        });
        Ok(SlotAnswer::Info(info))
    }

    /// The content of a settled object of the group that this member holds.
    fn here(&self, state: &State, object: ObjectId) -> Option<ContentKey> {
        let row = state.object(object).filter(|row| row.phase == Phase::Settled)?;
        let held = !row.class.is_resident() || self.token.held_version(object).is_some();
        (held && !self.direct.is_deleted(object)).then_some(row.content)
    }

    /// The same; the failure bears `code`.
    fn held_here(&self, object: ObjectId, code: u64) -> Result<ContentKey, Failure> {
        let name = self.agreed.read(|state| self.here(state, object));
        name.ok_or_else(|| {
            if self.warms_up() {
                let text = format!("{} has just started and goes through its token", self.named(self.me));
                return Failure::new(FailureKind::NotInSync, text);
            }
            Failure::pkcs11(code, format!("{} holds no object {object}", self.me))
        })
    }

    /// The same request with the objects of this member alone named as session objects. Refuses handles of what is
    /// not here.
    fn local(&self, ask: &SlotRequest) -> Result<SlotRequest, Failure> {
        let mut ask = ask.clone();
        match &mut ask {
            SlotRequest::Use { key, kind, .. } => self.localise(key, Need::from(&*kind).bad_handle())?,
            SlotRequest::Wrap { wrapping, key, .. } => {
                self.localise(wrapping, ckr::WRAPPING_KEY_HANDLE_INVALID)?;
                self.localise(key, ckr::KEY_HANDLE_INVALID)?;
            }
            SlotRequest::Make { by, .. } => match &mut **by {
                MakeBy::Copy { of, .. } => self.localise(of, ckr::OBJECT_HANDLE_INVALID)?,
                MakeBy::Unwrap { unwrapping, .. } => {
                    self.localise(unwrapping, ckr::UNWRAPPING_KEY_HANDLE_INVALID)?;
                }
                MakeBy::Derive { base, .. } => self.localise(base, ckr::KEY_HANDLE_INVALID)?,
                MakeBy::Generate { .. } | MakeBy::GeneratePair { .. } | MakeBy::Create { .. } => {}
            },
            _ => {}
        }
        Ok(ask)
    }

    fn localise(&self, key: &mut KeyRef, code: u64) -> Result<(), Failure> {
        match key {
            KeyRef::Object(object) if is_direct(*object) => {
                let none = || Failure::pkcs11(code, format!("{} has no object {object} of its own", self.me));
                let (content, opened) = self.direct.get(*object).ok_or_else(none)?;
                let name = session_name(content);
                self.sessions.lock().admit(name, opened);
                *key = KeyRef::Session { name, sealed: None };
                Ok(())
            }
            KeyRef::Object(object) => self.held_here(*object, code).map(|_| ()),
            KeyRef::Session { .. } => Ok(()),
        }
    }

    async fn direct_find(&self, template: &Attributes, after: Option<ObjectId>, asker: Asker) -> Answered {
        // What the group answered before is found, where the group can be asked; this member answers in any case.
        let _ = tokio::time::timeout(limits::FIND_PATIENCE, self.barrier()).await;
        let private = asker.role == Some(Role::User);
        let mut objects = Vec::new();
        if !after.is_some_and(is_direct) {
            let page = self.agreed.read(|state| {
                let here = |id| self.here(state, id).is_some();
                self.catalogue.search(template, private, after, limits::FOUND_MAX, here)
            });
            if page.more {
                return Ok(SlotAnswer::Found { objects: page.objects, more: true });
            }
            objects = page.objects;
        }
        let own = self.direct.find(template, private, after, limits::FOUND_MAX - objects.len());
        objects.extend(own.objects);
        Ok(SlotAnswer::Found { objects, more: own.more })
    }

    async fn direct_read(&self, object: ObjectId, asker: Asker) -> Answered {
        if let Some((_, opened)) = self.direct.get(object) {
            may_see(&opened.traits, asker.role)?;
            return Ok(SlotAnswer::Record(Box::new(visible(&opened.content.record))));
        }
        self.held_here(object, ckr::OBJECT_HANDLE_INVALID)?;
        self.slot_read(object, asker).await
    }

    /// Waits until no other change of what is this member's alone is under way, but not for the end of a long one.
    async fn take_turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, Failure> {
        tokio::time::timeout(limits::ATTEMPT, self.direct_turn.lock()).await.map_err(|_| {
            let text = format!("another change of what is {}'s alone is under way: try again", self.me);
            Failure::new(FailureKind::Busy, text)
        })
    }

    /// Makes objects of this member alone.
    async fn direct_make(&self, change: Change, ask: &SlotRequest, asker: Asker) -> Result<SlotAnswer, Halt> {
        let _turn = self.take_turn().await?;
        let before = self.direct.list();
        let mut list = List::clone(&before);
        let mut ids = list.made_by(change.request);
        if ids.is_empty() {
            let SlotRequest::Make { by, .. } = self.local(ask)? else {
                return Err(Failure::new(FailureKind::Internal, "a call became another one").into());
            };
            let birth = self.birth(&by, asker).await?;
            let (generation, contents) = self.born(&birth).await?;
            // A key that it came from may have been deleted while the token worked, or this member been cut off.
            self.fenced()?;
            self.local(ask)?;
            ids = list.next_ids(contents.len() as u64).map_err(Failure::from)?;
            let mut kept = Vec::new();
            for (object, mut content) in ids.iter().zip(contents) {
                name(&mut content.record, true, format!("{:016x}", object.0));
                let content_key = ContentKey { object: *object, version: FIRST_VERSION, generation };
                kept.push(self.seal_direct(content_key, &content, change.request)?);
            }
            list.put(kept).map_err(Failure::from)?;
            self.save_direct(&before, list).await?;
        }
        let made = ids.into_iter().map(|object| {
            let gone =
                || Failure::pkcs11(ckr::OBJECT_HANDLE_INVALID, format!("object {object} has gone again"));
            let (_, opened) = self.direct.get(object).ok_or_else(gone)?;
            Ok(Made { key: KeyRef::Object(object), record: Some(visible(&opened.content.record)) })
        });
        Ok(SlotAnswer::Made(made.collect::<Result<_, Failure>>()?))
    }

    fn seal_direct(
        &self,
        content: ContentKey,
        body: &EnvelopeContent,
        request: RequestId,
    ) -> Result<Kept, Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, e);
        let generation: Generation = content.generation;
        let key = self.keys.get(generation).ok_or_else(|| {
            Failure::new(FailureKind::NotInSync, format!("{} has no envelope key of {generation}", self.me))
        })?;
        let nonce = crate::transport::random_bytes().map_err(|e| internal(&e))?;
        let envelope = envelope::seal(key, self.group, content, body, nonce).map_err(|e| internal(&e))?;
        Ok(Kept { content, envelope, request, adoption: None })
    }

    /// C_SetAttributeValue, on what is this member's alone.
    async fn direct_set(&self, object: ObjectId, attributes: &Attributes, asker: Asker) -> Answered {
        template::check_trusted(attributes, asker.role)?;
        if !is_direct(object) {
            self.held_here(object, ckr::OBJECT_HANDLE_INVALID)?;
            let text = "the object is the group's: change its attributes on the group's slot";
            return Err(Failure::pkcs11(ckr::ACTION_PROHIBITED, text));
        }
        let _turn = self.take_turn().await?;
        let before = self.direct.list();
        let mut list = List::clone(&before);
        let none = || Failure::pkcs11(ckr::OBJECT_HANDLE_INVALID, format!("there is no object {object}"));
        let (old, opened) = self.direct.get(object).ok_or_else(none)?;
        may_touch(&opened.traits, A::MODIFIABLE, asker.role)?;
        let record = template::change(&opened.content.record, attributes)?;
        let body = EnvelopeContent { record, wrapped: opened.content.wrapped.clone() };
        let next = ContentKey { version: Version(old.version.0 + 1), ..old };
        let request = unclaimed(list.object(object).ok_or_else(none)?)?.request;
        list.put(vec![self.seal_direct(next, &body, request)?])?;
        self.save_direct(&before, list).await?;
        self.forget_direct(old).await;
        Ok(SlotAnswer::Record(Box::new(visible(&body.record))))
    }

    /// C_DestroyObject on this member alone. What is the group's stays there for the others.
    async fn direct_destroy(&self, change: Change, object: ObjectId, asker: Asker) -> Answered {
        let _turn = self.take_turn().await?;
        let before = self.direct.list();
        let mut list = List::clone(&before);
        if list.has_ended(change.request) {
            return Ok(SlotAnswer::Done);
        }
        if let Some((content, opened)) = self.direct.get(object) {
            may_touch(&opened.traits, A::DESTROYABLE, asker.role)?;
            list.remove(object, change.request);
            self.save_direct(&before, list).await?;
            self.forget_direct(content).await;
            return Ok(SlotAnswer::Done);
        }
        let name = self.held_here(object, ckr::OBJECT_HANDLE_INVALID)?;
        let (traits, _) = self.known_key(object, name)?;
        may_touch(&traits, A::DESTROYABLE, asker.role)?;
        list.delete(object, change.request)?;
        self.save_direct(&before, list).await?;
        self.drop_directly(object).await?;
        Ok(SlotAnswer::Done)
    }
}
