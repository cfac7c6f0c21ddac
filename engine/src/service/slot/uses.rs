//! Work with keys. The log is not touched.

use super::super::{Core, token_failure};
use super::{Answered, Halt, Named, Which, answered};
use crate::domain::{ContentKey, Mechanism, ObjectClass};
use crate::limits;
use crate::token::{TokenError, UsedKey};
use crate::virtual_slot::ckr;
use crate::virtual_slot::policy::{Asker, Need, day, may_use, may_wrap};
use crate::wire::{
    Answer, Failure, FailureKind, KeyRef, Remedy, SecretBytes, SlotAnswer, SlotCall, SlotReply, SlotRequest,
    UseKind,
};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

impl Core {
    pub(super) async fn slot_use(
        &self,
        key: &KeyRef,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
        asker: Asker,
    ) -> Result<SlotAnswer, Halt> {
        let need = Need::from(kind);
        if let KeyRef::Object(object) = key {
            self.settled_surely(*object, need.bad_handle()).await?;
        }
        let used = self.key_for(key, need, mechanism, data, asker)?;
        let before = self.version_of(key);
        let output = self.in_time(limits::ATTEMPT, self.token.operate(used, kind, mechanism, data)).await?;
        self.still_allowed(key, before, need, mechanism, asker)?;
        Ok(SlotAnswer::Output(SecretBytes(output)))
    }

    /// The same on the calling thread; None if something has to be waited for, or another member has to be asked.
    pub(in super::super) fn slot_now(&self, call: &SlotCall) -> Option<Result<Answer, Failure>> {
        let SlotRequest::Use { key, kind, mechanism, data } = &call.ask else { return None };
        if call.direct {
            return None;
        }
        let index = self.agreed.read(|state| state.applied());
        if index < call.seen {
            return None;
        }
        match answered(self.use_now(call, key, kind, mechanism, &data.0)) {
            Ok(answer) => Some(Ok(Answer::Slot(Box::new(SlotReply { index, answer })))),
            // That may have to be waited for.
            Err(failure) if failure.tells_absence() && self.fences() => None,
            Err(failure) if failure.remedy() == Remedy::GiveUp && !failure.is_doubtful() => {
                Some(Err(failure))
            }
            Err(_) => None,
        }
    }

    fn use_now(
        &self,
        call: &SlotCall,
        key: &KeyRef,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<SlotAnswer, Halt> {
        let need = Need::from(kind);
        let asker = Asker { role: self.ticket_role(call)?, today: day(self.clock.unix()) };
        if let KeyRef::Object(object) = key
            && self.settled(*object).is_none()
        {
            let text = format!("{} does not know object {object} yet", self.me);
            return Err(Failure::new(FailureKind::NotInSync, text).into());
        }
        let used = self.key_for(key, need, mechanism, data, asker)?;
        let before = self.version_of(key);
        let output = self.token.operate_now(&used, kind, mechanism, data);
        let output = output.map_err(|error| token_failure(self.me, &error))?;
        self.still_allowed(key, before, need, mechanism, asker)?;
        Ok(SlotAnswer::Output(SecretBytes(output)))
    }

    /// A key as the token takes it, if it may be used so.
    fn key_for(
        &self,
        key: &KeyRef,
        need: Need,
        mechanism: &Mechanism,
        data: &[u8],
        asker: Asker,
    ) -> Result<UsedKey, Halt> {
        if data.len() > limits::OPERATION_DATA_MAX_BYTES {
            let text = format!("more than {} bytes for one operation", limits::OPERATION_DATA_MAX_BYTES);
            return Err(Failure::pkcs11(ckr::DATA_LEN_RANGE, text).into());
        }
        self.may_serve()?;
        match key {
            KeyRef::Object(object) => {
                let name = self.settled(*object).ok_or_else(|| need.unknown())?;
                let (traits, used) = self.known_key(*object, name)?;
                may_use(&traits, need, mechanism.number, asker)?;
                Ok(used)
            }
            KeyRef::Session { name, sealed } => {
                let opened = self.session(*name, sealed.as_deref(), need.bad_handle())?;
                may_use(&opened.traits, need, mechanism.number, asker)?;
                Ok(match &opened.public {
                    Some(public) => UsedKey::Public(public.clone()),
                    None => UsedKey::Session {
                        name: *name,
                        content: Some((opened.generation, opened.content.clone())),
                    },
                })
            }
        }
    }

    pub(super) async fn slot_wrap(
        &self,
        mechanism: &Mechanism,
        wrapping: &KeyRef,
        key: &KeyRef,
        asker: Asker,
    ) -> Result<SlotAnswer, Halt> {
        self.may_serve()?;
        let before = (self.version_of(wrapping), self.version_of(key));
        let by = self.opened(wrapping, ckr::WRAPPING_KEY_HANDLE_INVALID).await?;
        let target = self.opened(key, ckr::KEY_HANDLE_INVALID).await?;
        may_wrap(&by.content.record, &target.content.record, mechanism.number, asker)?;
        let wrap = self.token.wrap_key(mechanism, by.used(), target.used());
        let wrapped = self.in_time(limits::ATTEMPT, wrap).await?;
        self.fenced()?;
        self.still_there(wrapping, Need::Wrap)?;
        self.still_there(key, Need::Sign)?;
        if before != (self.version_of(wrapping), self.version_of(key)) {
            let by = self.opened(wrapping, ckr::WRAPPING_KEY_HANDLE_INVALID).await?;
            let target = self.opened(key, ckr::KEY_HANDLE_INVALID).await?;
            may_wrap(&by.content.record, &target.content.record, mechanism.number, asker)?;
        }
        Ok(SlotAnswer::Output(SecretBytes(Zeroizing::new(wrapped))))
    }

    pub(super) async fn slot_random(&self, bytes: u32) -> Answered {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > limits::RANDOM_MAX_BYTES {
            let text = format!("more than {} random bytes of one call", limits::RANDOM_MAX_BYTES);
            return Err(Failure::new(FailureKind::BadRequest, text));
        }
        self.may_answer()?;
        let random = self.in_time(limits::ATTEMPT, self.token.random(bytes)).await;
        let output = random.map_err(|failure| match failure.kind {
            // There is nothing wrong with the request: another member's token gives what this one does not.
            FailureKind::Refused => Failure::new(FailureKind::TokenFailed, failure.message),
            _ => failure,
        })?;
        Ok(SlotAnswer::Output(SecretBytes(output)))
    }

    /// A token's work, within a limit. One that does not come to it in time has failed only if nothing comes out of it.
    pub(super) async fn in_time<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, TokenError>>,
    ) -> Result<T, Failure> {
        let done = tokio::time::timeout(limit, work).await.map_err(|_| self.late())?;
        done.map_err(|error| token_failure(self.me, &error))
    }

    /// The token did not come to a use in time.
    pub(in super::super) fn late(&self) -> Failure {
        let me = self.named(self.me);
        if self.token.is_hung() {
            return Failure::new(FailureKind::TokenFailed, format!("the token of {me} does not answer"));
        }
        let seconds = limits::ATTEMPT.as_secs();
        let text = format!("the token of {me} is busy with others: it did not come to this in {seconds} s");
        Failure::new(FailureKind::Busy, text)
    }

    /// Which content of an agreed key is in force.
    fn version_of(&self, key: &KeyRef) -> Option<ContentKey> {
        match key {
            KeyRef::Object(object) => self.settled(*object),
            KeyRef::Session { .. } => None,
        }
    }

    /// Refuses the answer of a key that was removed, or may not be used so any more, since the token began.
    fn still_allowed(
        &self,
        key: &KeyRef,
        before: Option<ContentKey>,
        need: Need,
        mechanism: &Mechanism,
        asker: Asker,
    ) -> Result<(), Failure> {
        self.fenced()?;
        self.still_there(key, need)?;
        match (key, self.version_of(key)) {
            (KeyRef::Object(object), Some(now)) if Some(now) != before => {
                let (traits, _) = self.known_key(*object, now)?;
                may_use(&traits, need, mechanism.number, asker)
            }
            _ => Ok(()),
        }
    }

    /// Refuses the answer of a key that was removed while the token worked: it would come after the deletion's.
    fn still_there(&self, key: &KeyRef, need: Need) -> Result<(), Failure> {
        match key {
            KeyRef::Object(object) if self.settled(*object).is_none() => Err(need.unknown()),
            KeyRef::Object(_) | KeyRef::Session { .. } => Ok(()),
        }
    }
}

impl Named {
    /// The key as the token takes it.
    pub(super) fn used(&self) -> UsedKey {
        if self.content.record.class == ObjectClass::PublicKey {
            return UsedKey::Public(Arc::new(self.content.record.clone()));
        }
        match self.which {
            Which::Agreed(object) => UsedKey::Agreed(object),
            Which::Session(name) => {
                UsedKey::Session { name, content: Some((self.generation, self.content.clone())) }
            }
        }
    }
}
