//! The handle that hands a token's threads their jobs, and awaits what comes of them.

use super::arrive::Arrival;
use super::calls::Work;
use super::crew::{Crew, Errand};
use super::desks::Desk;
use super::door::Session;
use super::outside::encrypt;
use super::smk::Purpose;
use super::vault::{Index, Vault};
use super::{
    Inventory, MemberKeys, NewSmk, Originated, Sending, SmkPresence, TokenConfig, TokenError, TokenVerdict,
    UsedKey,
};
use crate::clock::Clock;
use crate::domain::{
    AttributeRecord, Attributes, ContentKey, EnvelopeContent, Generation, GroupId, KeyAlgorithm, Mechanism,
    ObjectClass, ObjectId, Profile, Version, WrappedKey,
};
use crate::limits;
use crate::telemetry::Event;
use crate::wire::{SessionName, UseKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// A cheap handle on one open token. The token closes when the last handle is dropped (which waits up to
/// [`limits::CLOSE_GRACE`] for its threads), or by [`Token::close`].
#[derive(Clone)]
pub struct Token {
    crew: Arc<Crew>,
}

impl Token {
    /// Loads the library, logs in, removes half-written objects, probes what the token can do, starts the threads.
    /// Blocks for about the time of one RSA-2048 generation.
    ///
    /// # Errors
    /// No such library, folder or token; a wrong PIN; a token that cannot wrap keys; or one already open here.
    pub fn open(config: TokenConfig) -> Result<Self, TokenError> {
        Ok(Self { crew: Arc::new(Crew::start(&config)?) })
    }

    /// A job of the token's threads. Given up, and refused, while another one hangs; the canary alone is not.
    async fn job<T: Send + 'static>(
        &self,
        kind: Work,
        work: impl FnOnce(&Vault, &mut Desk) -> Result<T, TokenError> + Send + 'static,
    ) -> Result<T, TokenError> {
        self.crew.calls.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        let calls = &self.crew.ledger.calls;
        let first = kind == Work::Canary;
        if !first {
            calls.refuse_hanging()?;
        }
        self.crew.hand_in(Box::new(Errand { kind, tell, work }), first)?;
        let mut hangs = calls.hangs();
        let done = tokio::select! {
            biased;
            told = told => told.map_err(|_| TokenError::Closed)?,
            Ok(time) = hangs.wait_for(Option::is_some), if !first => {
                return Err(TokenError::Hangs(time.unwrap_or_default().as_secs()));
            }
        };
        // That the canary fails is heard by whoever had it sing: it sings again when it is time.
        done.inspect_err(|error| {
            if !first {
                self.doubt(error)
            }
        })
    }

    /// Has the canary sing soon if an error may mean that the token is broken.
    fn doubt(&self, error: &TokenError) {
        if error.verdict() == TokenVerdict::Failed {
            self.crew.ledger.calls.doubt.notify_one();
        }
    }

    async fn with_session<T: Send + 'static>(
        &self,
        kind: Work,
        work: impl FnOnce(&Vault, &Session) -> Result<T, TokenError> + Send + 'static,
    ) -> Result<T, TokenError> {
        self.job(kind, move |vault, desk| {
            let done = desk.with(vault, |session| work(vault, session));
            done.map_err(|error| vault.judge(error))
        })
        .await
    }

    /// Jobs that wait for the token's threads, and calls since it was opened.
    pub fn load(&self) -> (usize, u64) {
        (self.crew.queue.waiting(), self.crew.calls.load(Ordering::Relaxed))
    }

    /// What the token was proved to do.
    pub fn profile(&self) -> &Profile {
        &self.crew.ledger.profile
    }

    /// Says whose keys these are, once the group is known. Copies found in the token show as version 0 until they
    /// are imported (and so verified) again.
    pub fn bind(&self, group: GroupId) {
        self.crew.ledger.index.lock().bind(group);
    }

    /// What the token holds, from memory. Version 0 stands for copies that were found at open and are not verified.
    pub fn held(&self) -> BTreeMap<ObjectId, Version> {
        let index = self.crew.ledger.index.lock();
        index.keys.iter().map(|(id, copies)| (*id, Index::version(copies))).collect()
    }

    /// The same for one object; None if the token has no copy of it.
    pub fn held_version(&self, object: ObjectId) -> Option<Version> {
        self.crew.ledger.index.lock().keys.get(&object).map(Index::version)
    }

    /// The member's RSA public keys; the pairs are made if the token has none.
    ///
    /// # Errors
    /// The token cannot make them.
    pub async fn member_keys(&self) -> Result<MemberKeys, TokenError> {
        self.generating(async {
            self.job(Work::Generate, |vault, _| {
                Ok(MemberKeys {
                    transport_key: vault.member_key(Purpose::Transport)?.public.spki(),
                    unlock_key: vault.member_key(Purpose::Unlock)?.public.spki(),
                })
            })
            .await
        })
        .await
    }

    /// Encrypts to this member's unlock key (RSA-OAEP): only this token opens it.
    ///
    /// # Errors
    /// `clear` is longer than 190 bytes, or the token has no unlock key and cannot make one.
    pub async fn lock(&self, clear: &[u8]) -> Result<Vec<u8>, TokenError> {
        let key = self.member_keys().await?.unlock_key;
        encrypt(&key, clear)
    }

    /// Decrypts what [`Token::lock`] made.
    ///
    /// # Errors
    /// It was locked to another token, or altered.
    pub async fn unlock(&self, locked: &[u8]) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        let locked = locked.to_vec();
        self.with_session(Work::Use, move |vault, session| vault.unlock(session, &locked)).await
    }

    /// Encrypts to an RSA public key (SubjectPublicKeyInfo; RSA-OAEP with SHA-1), outside the token.
    ///
    /// # Errors
    /// `recipient` is no RSA key, or `clear` is longer than 190 bytes.
    #[expect(clippy::unused_async, reason = "it stands beside lock, and may come to ask the token")]
    pub async fn encrypt_to(&self, recipient: &[u8], clear: &[u8]) -> Result<Vec<u8>, TokenError> {
        encrypt(recipient, clear)
    }

    /// Makes the group's SMK of a new generation in this token. `recovery` is an RSA SubjectPublicKeyInfo that gets
    /// a copy.
    ///
    /// # Errors
    /// The token holds an SMK of this generation, or refuses a step.
    pub async fn create_smk(
        &self,
        generation: Generation,
        recovery: Option<&[u8]>,
    ) -> Result<NewSmk, TokenError> {
        let recovery = recovery.map(<[u8]>::to_vec);
        self.with_session(Work::Write, move |vault, session| {
            vault.create_smk(session, generation, recovery.as_deref())
        })
        .await
    }

    /// Says if the token holds the SMK whose own blob this is.
    ///
    /// # Errors
    /// The token fails.
    pub async fn has_smk(&self, generation: Generation, self_blob: &[u8]) -> Result<SmkPresence, TokenError> {
        let self_blob = self_blob.to_vec();
        self.job(Work::Write, move |vault, _| vault.has_smk(generation, &self_blob)).await
    }

    /// The SMK wrapped (RSA-OAEP) to another member's transport key. The caller has proved whose key that is.
    ///
    /// # Errors
    /// No such SMK here, or `recipient` is no RSA key.
    pub async fn deliver_smk(
        &self,
        generation: Generation,
        self_blob: &[u8],
        recipient: &[u8],
    ) -> Result<Vec<u8>, TokenError> {
        let (self_blob, recipient) = (self_blob.to_vec(), recipient.to_vec());
        self.with_session(Work::Write, move |vault, session| {
            vault.deliver_smk(session, generation, &self_blob, &recipient)
        })
        .await
    }

    /// Takes a delivered SMK in, proved by its own blob. Repeating it is harmless.
    ///
    /// # Errors
    /// It is not the SMK of this blob, or the token holds another one of this generation.
    pub async fn accept_smk(
        &self,
        generation: Generation,
        wrapped: &[u8],
        self_blob: &[u8],
    ) -> Result<(), TokenError> {
        let (wrapped, self_blob) = (wrapped.to_vec(), self_blob.to_vec());
        self.job(Work::Write, move |vault, _| {
            vault.accept_smk(generation, &wrapped, &self_blob).map_err(|error| vault.judge(error))
        })
        .await
    }

    /// Generates a key or pair; it leaves as `sending` says.
    ///
    /// # Errors
    /// The token cannot carry the kind, or refuses a step; nothing is left behind.
    pub async fn originate(
        &self,
        sending: impl Into<Sending>,
        algorithm: KeyAlgorithm,
        attributes: &Attributes,
    ) -> Result<Originated, TokenError> {
        let (sending, attributes) = (sending.into(), attributes.clone());
        let rsa = matches!(algorithm, KeyAlgorithm::Rsa { .. });
        let kind = if rsa { Work::Generate } else { Work::Write };
        let made = self.with_session(kind, move |vault, session| {
            vault.originate(session, &sending, algorithm, &attributes)
        });
        // Primes take long to find; nothing else does.
        if rsa { self.generating(made).await } else { made.await }
    }

    /// Wraps a key brought in by value: a secret's bytes, or PKCS#8.
    ///
    /// # Errors
    /// As [`Token::originate`], or the value is no key of this kind.
    pub async fn originate_value(
        &self,
        sending: impl Into<Sending>,
        algorithm: KeyAlgorithm,
        attributes: &Attributes,
        value: &[u8],
    ) -> Result<Originated, TokenError> {
        let (sending, attributes) = (sending.into(), attributes.clone());
        let value = Zeroizing::new(value.to_vec());
        self.with_session(Work::Write, move |vault, session| {
            vault.originate_value(session, &sending, algorithm, &attributes, &value)
        })
        .await
    }

    /// Makes one agreed content held. Idempotent, also after a crash at any instant.
    ///
    /// # Errors
    /// The token refuses or fails ([`TokenError::verdict`] tells which), or the content makes no sense.
    pub async fn import(
        &self,
        name: ContentKey,
        record: &AttributeRecord,
        wrapped: Option<&WrappedKey>,
    ) -> Result<(), TokenError> {
        let content = EnvelopeContent { record: record.clone(), wrapped: wrapped.cloned() };
        self.import_many(vec![(name, content)]).await.pop().unwrap_or(Err(TokenError::Closed))
    }

    /// Imports one after the other in one job, letting uses in between. One result for each content, in order.
    pub async fn import_many(
        &self,
        contents: Vec<(ContentKey, EnvelopeContent)>,
    ) -> Vec<Result<(), TokenError>> {
        let count = contents.len();
        let done = self
            .job(Work::Batch, move |vault, _| {
                let import = |(name, content): &(ContentKey, EnvelopeContent)| {
                    let _call = vault.ledger.calls.begin(Work::Write, Clock.now());
                    let done = vault.import(*name, &content.record, content.wrapped.as_ref());
                    done.map_err(|error| vault.judge(error))
                };
                Ok(contents.iter().map(import).collect::<Vec<_>>())
            })
            .await;
        done.unwrap_or_else(|error| vec![Err(error); count])
    }

    /// Makes every version and copy of an object go, and reads that it has gone. Absence is success.
    ///
    /// # Errors
    /// The token fails, or still shows a copy.
    pub async fn drop_object(&self, object: ObjectId) -> Result<(), TokenError> {
        self.job(Work::Write, move |vault, _| vault.drop_object(object).map_err(|error| vault.judge(error)))
            .await
    }

    /// Searches the whole token. Slow, and uses wait meanwhile: for `check`, not for serving.
    ///
    /// # Errors
    /// The token fails.
    pub async fn inventory(&self) -> Result<Inventory, TokenError> {
        self.job(Work::Search, |vault, _| vault.inventory()).await
    }

    /// Says from memory if the token knows a session object. It may be put out before it is used.
    pub fn knows_session(&self, name: SessionName) -> bool {
        self.crew.ledger.index.lock().guests.knows(name)
    }

    /// Makes the copy of a session object that has ended go. Absence is success.
    ///
    /// # Errors
    /// The token fails; the copy goes with the process at the latest, and nobody can name it.
    pub async fn drop_session(&self, name: SessionName) -> Result<(), TokenError> {
        self.job(Work::Write, move |vault, _| vault.drop_session(name).map_err(|error| vault.judge(error)))
            .await
    }

    /// One operation with a key. A verification answers with nothing.
    ///
    /// # Errors
    /// The key is not held or not known ([`TokenVerdict::Missing`](super::TokenVerdict::Missing)), the mechanism, the
    /// data or the signature do not fit it (the caller's CKR_ number), or the token fails.
    pub async fn operate(
        &self,
        key: UsedKey,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        let (kind, mechanism, data) = (kind.clone(), mechanism.clone(), Zeroizing::new(data.to_vec()));
        self.job(Work::Use, move |vault, desk| {
            desk.with(vault, |session| vault.operate(session, &key, &kind, &mechanism, &data))
        })
        .await
    }

    /// [`Token::operate`] with a held private or secret key.
    ///
    /// # Errors
    /// As there.
    pub async fn use_key(
        &self,
        object: ObjectId,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        self.operate(UsedKey::Agreed(object), kind, mechanism, data).await
    }

    /// [`Token::operate`] with the public key of a record.
    ///
    /// # Errors
    /// As there.
    pub async fn use_public(
        &self,
        record: &AttributeRecord,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        self.operate(UsedKey::Public(Arc::new(record.clone())), kind, mechanism, data).await
    }

    /// C_WrapKey with a key of the application's. The token lets only EXTRACTABLE keys out.
    ///
    /// # Errors
    /// As [`Token::operate`].
    pub async fn wrap_key(
        &self,
        mechanism: &Mechanism,
        wrapping: UsedKey,
        key: UsedKey,
    ) -> Result<Vec<u8>, TokenError> {
        let mechanism = mechanism.clone();
        self.job(Work::Use, move |vault, desk| {
            desk.with(vault, |session| vault.wrap_key(session, &mechanism, &wrapping, &key))
        })
        .await
    }

    /// Unwraps a key by a key of the application's (C_UnwrapKey), and wraps it under the SMK. Tells its real kind.
    ///
    /// # Errors
    /// As [`Token::operate`] and [`Token::originate`]; or what came out is no kind of key that a group holds.
    #[expect(clippy::too_many_arguments, reason = "C_UnwrapKey has as many")]
    pub async fn originate_unwrapped(
        &self,
        sending: impl Into<Sending>,
        mechanism: &Mechanism,
        unwrapping: UsedKey,
        wrapped: &[u8],
        class: ObjectClass,
        key_type: u64,
        attributes: &Attributes,
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        let (mechanism, wrapped) = (mechanism.clone(), wrapped.to_vec());
        let arrival = Arrival::new(sending.into(), class, key_type, attributes);
        self.with_session(Work::Write, move |vault, session| {
            vault.originate_unwrapped(session, arrival, &mechanism, &unwrapping, &wrapped)
        })
        .await
    }

    /// Derives a secret key from a key of the application's (C_DeriveKey), and wraps it under the SMK. Tells its real
    /// kind.
    ///
    /// # Errors
    /// As [`Token::originate_unwrapped`].
    pub async fn originate_derived(
        &self,
        sending: impl Into<Sending>,
        mechanism: &Mechanism,
        base: UsedKey,
        key_type: u64,
        value_len: Option<u64>,
        attributes: &Attributes,
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        let mechanism = mechanism.clone();
        let class = ObjectClass::SecretKey;
        let arrival = Arrival::new(sending.into(), class, key_type, attributes);
        self.with_session(Work::Write, move |vault, session| {
            vault.originate_derived(session, arrival, &mechanism, &base, value_len)
        })
        .await
    }

    /// C_GenerateRandom.
    ///
    /// # Errors
    /// More than [`limits::RANDOM_MAX_BYTES`], or the token fails.
    pub async fn random(&self, bytes: usize) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        self.with_session(Work::Use, move |vault, session| vault.random(session, bytes)).await
    }

    /// [`Token::operate`] on the calling thread, so that no other thread is woken. Blocks for as long as the token does,
    /// and up to [`limits::ATTEMPT`] for a free session before that.
    ///
    /// # Errors
    /// As [`Token::operate`]; or every session is in use.
    pub fn operate_now(
        &self,
        key: &UsedKey,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        self.crew.calls.fetch_add(1, Ordering::Relaxed);
        if self.crew.is_model() {
            // Its jobs take virtual time, which nobody can wait for here.
            return Err(TokenError::Busy(self.crew.queue.waiting()));
        }
        let done = self.crew.bench.with(|vault, desk| {
            desk.with(vault, |session| vault.operate(session, key, kind, mechanism, data))
        });
        done.inspect_err(|error| self.doubt(error))
    }

    /// Looks if a job hangs at the token: for how long it has been there. While one does, others are refused and those
    /// under way are given up by [`TokenError::Hangs`]; to be asked often, since nobody else notices.
    pub fn hangs(&self) -> Option<Duration> {
        self.crew.ledger.calls.look(Clock.now()).inspect(|_| self.crew.bench.wake())
    }

    /// True if a job hung when [`Token::hangs`] last looked.
    pub fn is_hung(&self) -> bool {
        self.crew.ledger.calls.is_hung()
    }

    /// Says that the token may be broken: another one did what it would not.
    pub fn suspect(&self) {
        self.crew.ledger.calls.doubt.notify_one();
    }

    /// Waits until an error says that the token may be broken.
    pub async fn doubted(&self) {
        self.crew.ledger.calls.doubt.notified().await;
    }

    /// Really uses a key that lies in the token, ahead of all waiting jobs. An open session proves nothing.
    ///
    /// # Errors
    /// The token fails, or gives no answer within [`limits::CANARY_LIMIT`] ([`limits::GENERATE_ATTEMPT`] while it
    /// generates a key, which blocks some tokens).
    pub async fn canary(&self) -> Result<(), TokenError> {
        let busy = self.crew.generating.load(Ordering::Relaxed) > 0;
        let limit = if busy { limits::GENERATE_ATTEMPT } else { limits::CANARY_LIMIT };
        let sing = self.job(Work::Canary, |vault, desk| {
            desk.with(vault, |session| {
                let _shared = vault.gate.read();
                vault.sing(session)
            })
        });
        match tokio::time::timeout(limit, sing).await {
            Ok(result) => result,
            Err(_) => Err(TokenError::Hangs(limit.as_secs())),
        }
    }

    /// Closes the token: running jobs end, waiting ones answer [`TokenError::Closed`], sessions close. A thread that
    /// hangs in the token is left behind after [`limits::CANARY_LIMIT`].
    pub async fn close(self) {
        self.crew.close();
        let mut alive = self.crew.alive.clone();
        let gone = async { while alive.changed().await.is_ok() {} };
        if tokio::time::timeout(limits::CANARY_LIMIT, gone).await.is_err() {
            tracing::error!(
                code = Event::TokenLeftBehind.code(),
                "the token hangs: its threads are left behind"
            );
        }
    }

    async fn generating<T>(&self, work: impl Future<Output = T>) -> T {
        /// Counts down even if the caller gives up.
        struct Busy<'a>(&'a AtomicUsize);
        impl Drop for Busy<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.crew.generating.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(&self.crew.generating);
        work.await
    }
}
