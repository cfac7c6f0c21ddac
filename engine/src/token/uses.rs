//! Using keys.

use super::der::PublicKey;
use super::ffi::{Handle, Operation, SIGNATURE_INVALID, Session};
use super::slot::{Seen, look};
use super::smk::{Purpose, oaep};
use super::tag::Tag;
use super::template::Template;
use super::vault::{Passing, Vault};
use super::{Inventory, TokenError, carry};
use crate::domain::{AttributeRecord, AttributeType as A, Mechanism, ObjectId};
use crate::limits;
use crate::wire::UseKind;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use zeroize::Zeroizing;

const KEY_HANDLE_INVALID: u64 = 0x60;
const OBJECT_HANDLE_INVALID: u64 = 0x82;

impl Vault {
    /// One operation with a held key.
    pub fn use_key(
        &self,
        session: &Session,
        object: ObjectId,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        check_length(data)?;
        self.uses.fetch_add(1, Ordering::Relaxed);
        let shared = self.gate.read();
        let handle = {
            let index = self.ledger.index.lock();
            let usable = index.keys.get(&object).and_then(super::vault::Copies::usable);
            usable.ok_or(TokenError::Missing(object))?
        };
        let done = operate(session, handle, kind, mechanism, data);
        drop(shared);
        match done {
            Err(TokenError::Call { code: KEY_HANDLE_INVALID | OBJECT_HANDLE_INVALID, .. }) => {
                // The token has lost the copy: forget that it is held, so that it is imported again.
                if let Some(copies) = self.ledger.index.lock().keys.get_mut(&object) {
                    copies.held = None;
                    copies.working = None;
                }
                Err(TokenError::Missing(object))
            }
            Err(error) => Err(self.judge(error).blame_caller()),
            Ok(out) => Ok(out),
        }
    }

    /// One operation with a public key, made a session object for it.
    pub fn use_public(
        &self,
        session: &Session,
        record: &AttributeRecord,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        check_length(data)?;
        let public = PublicKey::parse(record.bytes(A::PUBLIC_KEY_INFO))
            .ok_or(TokenError::BadInput("the record holds no public key that is known here"))?;
        let usages: Vec<A> =
            [A::VERIFY, A::ENCRYPT].into_iter().filter(|usage| record.flag(*usage)).collect();
        let done = {
            let _exclusive = self.gate.write();
            let mut passing = Passing::new(session);
            carry::create_public(session, &public, &usages)
                .and_then(|handle| operate(session, passing.keep(handle), kind, mechanism, data))
        };
        done.map_err(|error| self.judge(error).blame_caller())
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

fn check_length(data: &[u8]) -> Result<(), TokenError> {
    if data.len() > limits::OPERATION_DATA_MAX_BYTES { Err(TokenError::TooLong(data.len())) } else { Ok(()) }
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
