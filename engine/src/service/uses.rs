//! Uses keys. The log is not touched: this member if it holds the key and is in sync, else another one that does.

use super::opinions::Opinions;
use super::{Core, not_found, token_failure};
use crate::domain::{ContentKey, MemberId, ObjectClass, ObjectId};
use crate::limits;
use crate::token::UsedKey;
use crate::virtual_slot::policy::Need;
use crate::virtual_slot::{Traits, ckr};
use crate::wire::{Answer, ClientRequest, Failure, FailureKind, Remedy, SecretBytes, UseRequest};
use std::sync::Arc;

impl Core {
    pub(super) async fn use_key(&self, usage: UseRequest) -> Result<Answer, Failure> {
        if usage.data.0.len() > limits::OPERATION_DATA_MAX_BYTES {
            let text = format!("more than {} bytes for one operation", limits::OPERATION_DATA_MAX_BYTES);
            return Err(Failure::new(FailureKind::BadRequest, text));
        }
        if let Some(member) = usage.at.filter(|member| *member != self.me) {
            self.known(member).await?;
            return self.use_at(member, &usage).await;
        }
        if usage.at.is_some() {
            return self.use_warm(&usage).await;
        }
        loop {
            let waits = self.awaits_word();
            match self.use_anywhere(&usage).await {
                // Nobody else could: this member can once it has the group's word, or has waited for it in vain.
                Err(failure) if waits && failure.remedy() != Remedy::GiveUp => {
                    tokio::time::sleep(limits::RETRY_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    /// A use at this very member. One that has just started has its keys, and knows of each once it has proved it: that is
    /// waited for a little, and only then is a key said not to be there.
    async fn use_warm(&self, usage: &UseRequest) -> Result<Answer, Failure> {
        let end = self.clock.now() + limits::WARM_UP_WAIT;
        loop {
            let waits = self.warms_up() && self.clock.now() < end;
            match self.use_here(usage).await {
                Err(failure) if waits && failure.kind == FailureKind::NotInSync => {
                    tokio::time::sleep(limits::RETRY_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn use_anywhere(&self, usage: &UseRequest) -> Result<Answer, Failure> {
        let failure = match self.use_here(usage).await {
            Err(failure) if failure.remedy() != Remedy::GiveUp || failure.is_doubtful() => failure,
            done => return done,
        };
        // By the time that no active member has answered, this standby may serve.
        let standby = failure.kind == FailureKind::Standby;
        let mut opinions = Opinions::begin(failure, false);
        for member in self.other_holders(usage) {
            if let Some(done) = opinions.hear(self.use_at(member, usage).await) {
                if opinions.is_doubtful() && done.is_ok() {
                    self.token.suspect();
                }
                return done;
            }
        }
        if standby { self.use_here(usage).await } else { Err(opinions.end()) }
    }

    /// Refuses a member that the roster does not name.
    async fn known(&self, member: MemberId) -> Result<(), Failure> {
        let known = || self.agreed.read(|state| state.member(member).is_some());
        if known() {
            return Ok(());
        }
        self.patient_barrier().await?;
        if known() {
            return Ok(());
        }
        let text = format!("there is no member {member}: see 'keyraft member list'");
        Err(Failure::new(FailureKind::NotFound, text))
    }

    /// In-sync members besides this one that are meant to hold the key.
    fn other_holders(&self, usage: &UseRequest) -> Vec<MemberId> {
        self.agreed.read(|state| {
            let excluded = state.object(usage.object).map(|row| row.excluded.clone()).unwrap_or_default();
            state
                .in_serving_order()
                .into_iter()
                .filter(|m| *m != self.me && !excluded.contains_key(m))
                .collect()
        })
    }

    async fn use_at(&self, member: MemberId, usage: &UseRequest) -> Result<Answer, Failure> {
        let copy = UseRequest {
            object: usage.object,
            kind: usage.kind.clone(),
            mechanism: usage.mechanism.clone(),
            data: usage.data.clone(),
            at: Some(member),
        };
        self.forward_to(member, ClientRequest::Use(copy), limits::ATTEMPT).await
    }

    async fn use_here(&self, usage: &UseRequest) -> Result<Answer, Failure> {
        self.may_serve()?;
        let name = match self.settled(usage.object) {
            Some(name) => name,
            None => {
                self.patient_barrier().await?;
                self.settled(usage.object).ok_or_else(|| not_found(usage.object))?
            }
        };
        let working = tokio::time::timeout(limits::ATTEMPT, self.operate(name, usage)).await;
        let output = working.map_err(|_| self.late())??;
        // What was deleted while the token worked is not given out, if that can be known here.
        self.fenced()?;
        match self.settled(usage.object) {
            // Removed while the token worked: the answer would come after the deletion's.
            None => return Err(not_found(usage.object)),
            Some(now) if now != name => self.permitted(now, usage).map(drop)?,
            Some(_) => {}
        }
        Ok(Answer::Used { output: SecretBytes(output), by: self.me })
    }

    async fn operate(
        &self,
        name: ContentKey,
        usage: &UseRequest,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, Failure> {
        let key = self.permitted(name, usage)?;
        let done = self.token.operate(key, &usage.kind, &usage.mechanism, &usage.data.0).await;
        done.map_err(|error| token_failure(self.me, &error))
    }

    /// The key as the token takes it, if its flags permit this use.
    fn permitted(&self, name: ContentKey, usage: &UseRequest) -> Result<UsedKey, Failure> {
        let (traits, key) = self.known_key(usage.object, name)?;
        if traits.algorithm.is_none() {
            return Err(Failure::new(FailureKind::BadRequest, format!("object {} is no key", usage.object)));
        }
        let needed = Need::from(&usage.kind).flag();
        if !traits.flags.is_set(needed) {
            let text = format!("object {} does not have {needed}", usage.object);
            return Err(Failure::pkcs11(ckr::KEY_FUNCTION_NOT_PERMITTED, text));
        }
        Ok(key)
    }

    /// What a use needs of an agreed object. Its envelope is opened only while the catalogue lags behind.
    pub(super) fn known_key(&self, object: ObjectId, name: ContentKey) -> Result<(Traits, UsedKey), Failure> {
        let entry = self.catalogue.entry(object).filter(|entry| entry.version == name.version);
        let (traits, public) = match entry {
            Some(entry) => (entry.traits.clone(), entry.public.clone()),
            None => {
                let record = self.record(name)?;
                let traits = Traits::of(&record);
                (traits, (record.class == ObjectClass::PublicKey).then(|| Arc::new(record)))
            }
        };
        Ok((traits, public.map_or(UsedKey::Agreed(object), UsedKey::Public)))
    }
}
