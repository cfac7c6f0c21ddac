//! Uses keys. The log is not touched: this member if it holds the key and is in sync, else another one that does.

use super::{Core, not_found, token_failure};
use crate::domain::{AttributeType, ContentKey, MemberId, ObjectClass};
use crate::limits;
use crate::state::Phase;
use crate::wire::{
    Answer, ClientRequest, Failure, FailureKind, MemberAnswer, MemberRequest, Remedy, SecretBytes, UseKind,
    UseRequest,
};

impl Core {
    pub(super) async fn use_key(&self, usage: UseRequest) -> Result<Answer, Failure> {
        if usage.data.0.len() > limits::OPERATION_DATA_MAX_BYTES {
            let text = format!("more than {} bytes for one operation", limits::OPERATION_DATA_MAX_BYTES);
            return Err(Failure::new(FailureKind::BadRequest, text));
        }
        match usage.at {
            Some(member) if member != self.me => {
                self.known(member).await?;
                return self.use_at(member, &usage).await;
            }
            Some(_) => return self.use_here(&usage).await,
            None => {}
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

    async fn use_anywhere(&self, usage: &UseRequest) -> Result<Answer, Failure> {
        let mut failure = match self.use_here(usage).await {
            Err(failure) if failure.remedy() != Remedy::GiveUp => failure,
            done => return done,
        };
        for member in self.other_holders(usage) {
            match self.use_at(member, usage).await {
                Err(next) if next.remedy() != Remedy::GiveUp => failure = next,
                done => return done,
            }
        }
        Err(failure)
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
            state.in_sync().into_iter().filter(|m| *m != self.me && !excluded.contains_key(m)).collect()
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
        let forward = MemberRequest::Forward(Box::new(ClientRequest::Use(copy)));
        match self.call_member(member, forward, limits::ATTEMPT).await? {
            MemberAnswer::Forwarded(answer) => Ok(*answer),
            _ => Err(Failure::new(
                FailureKind::Internal,
                format!("{} answered another question", self.named(member)),
            )),
        }
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
        let output =
            tokio::time::timeout(limits::ATTEMPT, self.operate(name, usage)).await.map_err(|_| {
                Failure::new(
                    FailureKind::TokenFailed,
                    format!("the token of {} did not answer in time", self.named(self.me)),
                )
            })??;
        // Removed while the token worked: the answer would come after the deletion's.
        let still = self.agreed.read(|s| s.object(usage.object).is_some_and(|o| o.phase == Phase::Settled));
        if !still {
            return Err(not_found(usage.object));
        }
        Ok(Answer::Used { output: SecretBytes(output), by: self.me })
    }

    async fn operate(
        &self,
        name: ContentKey,
        usage: &UseRequest,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, Failure> {
        let record = self.record(name)?;
        let needed = match usage.kind {
            UseKind::Sign => AttributeType::SIGN,
            UseKind::Verify(_) => AttributeType::VERIFY,
            UseKind::Encrypt => AttributeType::ENCRYPT,
            UseKind::Decrypt => AttributeType::DECRYPT,
        };
        if !record.flag(needed) {
            const KEY_FUNCTION_NOT_PERMITTED: u64 = 0x68;
            let kind = FailureKind::TokenRefused { code: KEY_FUNCTION_NOT_PERMITTED };
            return Err(Failure::new(kind, format!("object {} does not have {needed}", usage.object)));
        }
        let data = &usage.data.0;
        let done = match record.class {
            ObjectClass::PublicKey => {
                self.token.use_public(&record, &usage.kind, &usage.mechanism, data).await
            }
            ObjectClass::PrivateKey | ObjectClass::SecretKey => {
                self.token.use_key(usage.object, &usage.kind, &usage.mechanism, data).await
            }
            ObjectClass::Data | ObjectClass::Certificate => {
                return Err(Failure::new(
                    FailureKind::BadRequest,
                    format!("object {} is no key", usage.object),
                ));
            }
        };
        done.map_err(|error| token_failure(self.me, &error))
    }
}
