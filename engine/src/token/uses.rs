//! Using keys.

use super::door::{Handle, Operation, SIGNATURE_INVALID, Session};
use super::slot::{Seen, look};
use super::smk::{Purpose, oaep};
use super::tag::Tag;
use super::template::Template;
use super::vault::Vault;
use super::{Inventory, TokenError, UsedKey, parameters};
use crate::domain::{AttributeType as A, Mechanism};
use crate::limits;
use crate::wire::UseKind;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

impl Vault {
    /// One operation with a key.
    pub fn operate(
        &self,
        session: &Session,
        key: &UsedKey,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        if data.len() > limits::OPERATION_DATA_MAX_BYTES {
            return Err(TokenError::TooLong(data.len()));
        }
        parameters::check("C_Sign and its like", mechanism)?;
        self.with_keys([key], |[handle]| operate(session, handle, kind, mechanism, data))
    }

    /// C_WrapKey.
    pub fn wrap_key(
        &self,
        session: &Session,
        mechanism: &Mechanism,
        wrapping: &UsedKey,
        key: &UsedKey,
    ) -> Result<Vec<u8>, TokenError> {
        parameters::check("C_WrapKey", mechanism)?;
        self.with_keys([wrapping, key], |[wrapping, key]| Ok(session.wrap(mechanism, wrapping, key)?))
    }

    /// Bytes of the token's random generator.
    pub fn random(&self, session: &Session, bytes: usize) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        if bytes > limits::RANDOM_MAX_BYTES {
            return Err(TokenError::TooLong(bytes));
        }
        let _shared = self.gate.read();
        Ok(session.random(bytes)?)
    }

    /// Decrypts what is locked to this member's unlock key.
    pub fn unlock(&self, session: &Session, locked: &[u8]) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        let key = self.member_key(Purpose::Unlock)?;
        let done = {
            let _shared = self.gate.read();
            session.run(Operation::Decrypt, &oaep(), key.handle, locked)
        };
        done.map_err(|fault| self.judge(fault.into()))
    }

    /// Looks at everything in the token.
    pub fn inventory(&self) -> Result<Inventory, TokenError> {
        let _exclusive = self.gate.write();
        let group = self.ledger.index.lock().group;
        let mut inventory = Inventory::default();
        let mut others: BTreeMap<_, usize> = BTreeMap::new();
        let session = &self.keeper;
        for object in session.find(&Template::default())? {
            match look(session, object) {
                Seen::Whole(Some(Tag::Key(g, name))) if Some(g) == group => inventory.ours.push(name),
                Seen::Whole(Some(Tag::Smk(g, generation))) if Some(g) == group => {
                    inventory.smks.push(generation)
                }
                Seen::Whole(Some(Tag::Key(g, _) | Tag::Smk(g, _))) => *others.entry(g).or_default() += 1,
                Seen::Whole(None) => inventory.foreign += 1,
                // Session objects are seen here too; only what answers no class is half-written for sure.
                Seen::Half if session.read_number(object, A::CLASS).is_none() => inventory.half_written += 1,
                Seen::Half => {
                    let id = session.read(object, A::ID).ok();
                    if let Some(Tag::Key(g, name)) = id.and_then(|id| Tag::parse(&id))
                        && Some(g) == group
                    {
                        inventory.ours.push(name);
                    }
                }
                Seen::Whole(Some(Tag::Transport | Tag::Unlock | Tag::Canary)) | Seen::Scenery => {}
            }
        }
        inventory.other_groups = others.into_iter().collect();
        inventory.ours.sort_unstable();
        Ok(inventory)
    }
}

/// Runs an operation. Verify answers with nothing, or with CKR_SIGNATURE_INVALID as the caller's error.
fn operate(
    session: &Session,
    key: Handle,
    kind: &UseKind,
    mechanism: &Mechanism,
    data: &[u8],
) -> Result<Zeroizing<Vec<u8>>, TokenError> {
    let operation = match kind {
        UseKind::Sign => Operation::Sign,
        UseKind::Encrypt => Operation::Encrypt,
        UseKind::Decrypt => Operation::Decrypt,
        UseKind::SignRecover => Operation::SignRecover,
        UseKind::VerifyRecover => Operation::VerifyRecover,
        UseKind::Verify(signature) => {
            return match session.verify(mechanism, key, data, signature) {
                Ok(()) => Ok(Zeroizing::default()),
                Err(fault) if fault.code == SIGNATURE_INVALID => Err(TokenError::Call {
                    call: fault.call,
                    code: fault.code,
                    verdict: super::TokenVerdict::Caller(fault.code),
                }),
                Err(fault) => Err(fault.into()),
            };
        }
    };
    Ok(session.run(operation, mechanism, key, data)?)
}
