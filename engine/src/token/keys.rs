//! The group's keys in this token: how they are made, brought in and dropped.

use super::carry::{self, Fresh};
use super::der::PublicKey;
use super::door::{Handle, Session};
use super::tag::Tag;
use super::template::{self, Template};
use super::vault::{Copies, Passing, Vault};
use super::{Originated, Sending, TokenError, proof};
use crate::clock::Clock;
use crate::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, CannotCarry, ContentKey,
    Generation, KeyAlgorithm, ObjectId, Residency, WrapAlgorithm, WrappedKey,
};
use crate::limits;
use parking_lot::RwLockWriteGuard;
use std::sync::atomic::Ordering;

impl Vault {
    /// Generates a key as a session object, wraps it under the SMK and destroys it.
    pub fn originate(
        &self,
        session: &Session,
        sending: &Sending,
        algorithm: KeyAlgorithm,
        asked: &Attributes,
    ) -> Result<Originated, TokenError> {
        self.carries(algorithm, sending.by_value(algorithm))?;
        let sensitive = is_sensitive(asked) && !sending.by_value(algorithm);
        let mut passing = Passing::new(session);
        // Generating an RSA key takes long and makes a session object only: others may use keys meanwhile.
        let slow = matches!(algorithm, KeyAlgorithm::Rsa { .. });
        let early = if slow {
            let _shared = self.gate.read();
            Some(carry::generate(session, &mut passing, algorithm, sensitive)?)
        } else {
            None
        };
        let exclusive = self.gate.write();
        let made = (|| {
            let fresh = match early {
                Some(fresh) => fresh,
                None => carry::generate(session, &mut passing, algorithm, sensitive)?,
            };
            self.send_off(session, sending, algorithm, asked, &fresh, None)
        })();
        drop(passing);
        RwLockWriteGuard::unlock_fair(exclusive);
        made
    }

    /// The same for a key brought in by value.
    pub fn originate_value(
        &self,
        session: &Session,
        sending: &Sending,
        algorithm: KeyAlgorithm,
        asked: &Attributes,
        value: &[u8],
    ) -> Result<Originated, TokenError> {
        self.carries(algorithm, sending.by_value(algorithm))?;
        let _exclusive = self.gate.write();
        let mut passing = Passing::new(session);
        let fresh = carry::from_value(session, &mut passing, algorithm, value)?;
        self.send_off(session, sending, algorithm, asked, &fresh, Some(value))
    }

    pub fn carries(&self, algorithm: KeyAlgorithm, in_memory: bool) -> Result<(), TokenError> {
        if let KeyAlgorithm::GenericSecret { bytes } = algorithm
            && (bytes == 0 || usize::from(bytes) > limits::SECRET_MAX_BYTES)
        {
            return Err(TokenError::BadInput("a secret of this length"));
        }
        let carried = self.ledger.profile.can_carry(algorithm, in_memory);
        carried.map_err(|why: CannotCarry| TokenError::CannotCarry { algorithm, why })
    }

    /// Wraps a session key and collects what is public of it. A key that is not sensitive goes by value, and so does,
    /// in a place of its own, one that some member's token could not unwrap.
    pub fn send_off(
        &self,
        session: &Session,
        sending: &Sending,
        algorithm: KeyAlgorithm,
        asked: &Attributes,
        fresh: &Fresh,
        value: Option<&[u8]>,
    ) -> Result<Originated, TokenError> {
        let mut facts = match &fresh.public {
            Some(public) => carry::public_facts(public),
            None => secret_facts(session, algorithm, fresh.key)?,
        };
        if !is_sensitive(asked) {
            let value = match value {
                Some(value) => value.to_vec(),
                None => carry::read_value(session, fresh.key, algorithm)?.to_vec(),
            };
            facts.insert(A::VALUE, V::Bytes(value));
            return Ok(Originated { wrapped: None, facts });
        }
        if sending.by_value(algorithm) {
            let mut value = match value {
                Some(value) => carry::bare_value(algorithm, value),
                None => carry::read_value(session, fresh.key, algorithm)?,
            };
            carry::recreate_proved(session, algorithm, asked, fresh, &value)?;
            let bytes = std::mem::take(&mut *value);
            let wrapped = Some(WrappedKey { algorithm: WrapAlgorithm::InEnvelope, bytes });
            return Ok(Originated { wrapped, facts });
        }
        let smk = self.smk(sending.generation)?;
        let bytes = carry::wrap_proved(session, (&self.abilities.rfc5649, smk), algorithm, asked, fresh)?;
        Ok(Originated { wrapped: Some(WrappedKey { algorithm: WrapAlgorithm::Rfc5649, bytes }), facts })
    }

    /// Makes one agreed object held. Repeating it, also after a crash at any instant, ends with one good copy.
    pub fn import(
        &self,
        name: ContentKey,
        record: &AttributeRecord,
        wrapped: Option<&WrappedKey>,
    ) -> Result<(), TokenError> {
        let (uses, start) = (self.uses.load(Ordering::Relaxed), Clock.now());
        let exclusive = self.gate.write();
        let done = self.import_alone(name, record, wrapped);
        // Handing the gate over, instead of racing for it, lets those who wait to use a key go first.
        RwLockWriteGuard::unlock_fair(exclusive);
        // A write to a slow disk shuts uses out for long, so they get as much time as it took.
        if self.uses.load(Ordering::Relaxed) != uses {
            let took = Clock.now().saturating_duration_since(start);
            std::thread::sleep(took.min(limits::IMPORT_PAUSE_MAX));
        }
        done
    }

    fn import_alone(
        &self,
        name: ContentKey,
        record: &AttributeRecord,
        wrapped: Option<&WrappedKey>,
    ) -> Result<(), TokenError> {
        let key = Incoming::new(self, name, record, wrapped)?;
        let before = {
            let mut index = self.ledger.index.lock();
            if index.keys.get(&name.object).is_some_and(|copies| copies.held == Some(name)) {
                return Ok(());
            }
            index.keys.remove(&name.object).unwrap_or_default()
        };
        let mut after = Copies::default();
        let made = self.bring_in(&key, &before, &mut after);
        if made.is_ok() {
            after.held = Some(name);
        }
        // Old versions and copies that could not be proved go; what cannot be destroyed now stays known as ours.
        let kept = |handle: &Handle| after.tagged.iter().any(|(_, h)| h == handle);
        let mut leftover = Vec::new();
        let mut undone = Ok(());
        for (old, handle) in before.tagged.iter().filter(|(_, handle)| !kept(handle)) {
            // A failed import leaves everything else as it was, to be tried again.
            if made.is_err() {
                leftover.push((*old, *handle));
                continue;
            }
            match self.destroy(*handle) {
                Ok(true) => {}
                other => {
                    leftover.push((*old, *handle));
                    undone = other.and(Err(TokenError::StillThere(name.object)));
                }
            }
        }
        if made.is_err() {
            (after.held, after.working) = (before.held, before.working);
        } else if let Some(working) = before.working {
            // A session object that stays goes with the keeper session; the new one is in use already.
            undone = undone.and(self.destroy(working).map(|_| ()));
        }
        after.tagged.extend(leftover);
        if after.held.is_some() || after.working.is_some() || !after.tagged.is_empty() {
            self.ledger.index.lock().keys.insert(name.object, after);
        }
        made.and(undone)
    }

    /// Finds or makes the copies that a content needs.
    fn bring_in(&self, key: &Incoming<'_>, before: &Copies, after: &mut Copies) -> Result<(), TokenError> {
        // A handle that the token no longer knows, or that was a session object, is no candidate.
        let alive = |handle: &Handle| self.keeper.read_flag(*handle, A::TOKEN) == Some(true);
        let candidates: Vec<Handle> = before
            .tagged
            .iter()
            .filter(|(name, handle)| *name == key.name && alive(handle))
            .map(|(_, handle)| *handle)
            .collect();
        if self.ledger.profile.residency == Residency::Session && candidates.is_empty() {
            let handle = key.make(self, false, true)?;
            after.tagged.push((key.name, handle));
            return Ok(());
        }
        let working = key.make(self, false, false)?;
        let good = candidates.into_iter().find(|handle| key.is_same(self, *handle, working));
        let handle = match good {
            Some(handle) => Ok(handle),
            None => key.make(self, true, true),
        };
        match handle {
            Ok(handle) => {
                after.working = Some(working);
                after.tagged.push((key.name, handle));
                Ok(())
            }
            Err(error) => {
                self.destroy(working)?;
                self.clean_after_failure(key, before)?;
                Err(error)
            }
        }
    }

    /// A failed token write may have left a copy, whole or half: an error says nothing about that. Whole ones bear
    /// the tag; half ones are found at the next start.
    fn clean_after_failure(&self, key: &Incoming<'_>, before: &Copies) -> Result<(), TokenError> {
        let template = Template::default().bytes(A::ID, key.tag.text().as_bytes()).flag(A::TOKEN, true);
        for handle in self.keeper.find(&template)? {
            if !before.tagged.iter().any(|(_, known)| *known == handle) {
                self.destroy(handle)?;
            }
        }
        Ok(())
    }

    /// Makes every copy of an object go, and reads that it has gone.
    pub fn drop_object(&self, object: ObjectId) -> Result<(), TokenError> {
        let _exclusive = self.gate.write();
        let Some(mut copies) = self.ledger.index.lock().keys.remove(&object) else {
            return Ok(());
        };
        copies.held = None;
        let mut result = Ok(());
        copies.tagged.retain(|(_, handle)| match self.destroy(*handle) {
            Ok(gone) => {
                if !gone {
                    result = Err(TokenError::StillThere(object));
                }
                !gone
            }
            Err(error) => {
                result = Err(error);
                true
            }
        });
        if let Some(working) = copies.working {
            match self.destroy(working) {
                Ok(true) => copies.working = None,
                Ok(false) => result = Err(TokenError::StillThere(object)),
                Err(error) => result = Err(error),
            }
        }
        if result.is_err() {
            self.ledger.index.lock().keys.insert(object, copies);
        }
        result
    }
}

/// True unless SENSITIVE=false was asked for.
pub(super) fn is_sensitive(attributes: &Attributes) -> bool {
    attributes.get(&A::SENSITIVE) != Some(&V::Bool(false))
}

/// The public attributes of a secret: its length, and for AES the check value.
fn secret_facts(session: &Session, algorithm: KeyAlgorithm, key: Handle) -> Result<Attributes, TokenError> {
    let mut facts = Attributes::new();
    match algorithm {
        KeyAlgorithm::Aes { bits } => {
            facts.insert(A::VALUE_LEN, V::Number(u64::from(bits / 8)));
            facts.insert(A::CHECK_VALUE, V::Bytes(proof::encrypt_zeros(session, key)?[..3].to_vec()));
        }
        KeyAlgorithm::GenericSecret { bytes } => {
            facts.insert(A::VALUE_LEN, V::Number(u64::from(bytes)));
        }
        KeyAlgorithm::Rsa { .. } | KeyAlgorithm::Ec(_) | KeyAlgorithm::Ed25519 => {}
    }
    Ok(facts)
}

/// A content as a token takes it: a wrapped key with the SMK that opens it, or a value.
pub(super) struct Material<'a> {
    record: &'a AttributeRecord,
    algorithm: KeyAlgorithm,
    source: Source<'a>,
}

enum Source<'a> {
    /// The blob and the SMK's handle.
    Wrapped(&'a [u8], Handle),
    Value(&'a [u8]),
}

impl<'a> Material<'a> {
    pub fn new(
        vault: &Vault,
        generation: Generation,
        record: &'a AttributeRecord,
        wrapped: Option<&'a WrappedKey>,
    ) -> Result<Self, TokenError> {
        let algorithm = record.algorithm.ok_or(TokenError::BadInput("a record without a kind of key"))?;
        if !record.class.is_resident() || record.class != algorithm.resident_class() {
            return Err(TokenError::BadInput("a record whose class no token holds"));
        }
        let source = match wrapped {
            Some(WrappedKey { algorithm: WrapAlgorithm::Rfc5649, bytes }) => {
                Source::Wrapped(bytes, vault.smk(generation)?)
            }
            Some(WrappedKey { algorithm: WrapAlgorithm::InEnvelope, bytes }) => Source::Value(bytes),
            None if record.bytes(A::VALUE).is_empty() => {
                return Err(TokenError::BadInput("a record with neither a wrapped key nor a value"));
            }
            None => Source::Value(record.bytes(A::VALUE)),
        };
        vault.carries(algorithm, matches!(source, Source::Value(_)))?;
        Ok(Self { record, algorithm, source })
    }

    /// Makes one copy with the portable template, owned by the keeper. The caller holds the gate for writing.
    pub fn make(&self, vault: &Vault, token: bool, tag: Option<&Tag>) -> Result<Handle, TokenError> {
        let (sensitive, extractable) =
            (is_sensitive(&self.record.attributes), self.record.flag(A::EXTRACTABLE));
        let mut template = template::key(self.algorithm, token, sensitive, extractable)
            .usages(self.record.class, |usage| self.record.flag(usage));
        if let Some(tag) = tag {
            let tag = tag.text();
            template = template.bytes(A::ID, tag.as_bytes()).bytes(A::LABEL, tag.as_bytes());
        }
        let handle = match self.source {
            Source::Wrapped(blob, smk) => {
                vault.keeper.unwrap(&vault.abilities.rfc5649, smk, blob, &template)?
            }
            Source::Value(value) => {
                vault.keeper.create(&carry::with_value(template, self.algorithm, value)?)?
            }
        };
        vault.lock_down(handle, sensitive, extractable)?;
        Ok(handle)
    }
}

/// An agreed content on its way into the token.
struct Incoming<'a> {
    name: ContentKey,
    tag: Tag,
    material: Material<'a>,
}

impl<'a> Incoming<'a> {
    fn new(
        vault: &Vault,
        name: ContentKey,
        record: &'a AttributeRecord,
        wrapped: Option<&'a WrappedKey>,
    ) -> Result<Self, TokenError> {
        let material = Material::new(vault, name.generation, record, wrapped)?;
        Ok(Self { name, tag: Tag::Key(vault.group()?, name), material })
    }

    fn make(&self, vault: &Vault, token: bool, tagged: bool) -> Result<Handle, TokenError> {
        self.material.make(vault, token, tagged.then_some(&self.tag))
    }

    /// True if a copy found in the token is proved to be this very key and as protected as it must be. One whose
    /// usage allows no proof counts as another: it is replaced.
    fn is_same(&self, vault: &Vault, found: Handle, working: Handle) -> bool {
        let Material { record, algorithm, .. } = self.material;
        let session = &vault.keeper;
        let protected = session.read_flag(found, A::SENSITIVE) == Some(is_sensitive(&record.attributes))
            && session.read_flag(found, A::EXTRACTABLE) == Some(record.flag(A::EXTRACTABLE));
        if !protected {
            return false;
        }
        // A failed operation spoils its session, so the proofs run on one of their own.
        let Ok(session) = vault.module.open(vault.slot) else { return false };
        match algorithm {
            other if !other.is_pair() && !proof::has_evidence(other) => false,
            KeyAlgorithm::Aes { .. } | KeyAlgorithm::GenericSecret { .. } => {
                let one = proof::evidence(&session, found, algorithm);
                one.is_ok_and(|one| {
                    proof::evidence(&session, working, algorithm).is_ok_and(|other| one == other)
                })
            }
            KeyAlgorithm::Rsa { .. } if !record.flag(A::SIGN) => {
                let modulus = session.read(found, A::MODULUS);
                modulus.is_ok_and(|m| super::der::trim(&m) == super::der::trim(record.bytes(A::MODULUS)))
            }
            KeyAlgorithm::Rsa { .. } | KeyAlgorithm::Ec(_) | KeyAlgorithm::Ed25519 => {
                PublicKey::parse(record.bytes(A::PUBLIC_KEY_INFO))
                    .is_some_and(|public| proof::check_private(&session, found, &public).is_ok())
            }
        }
    }
}
