//! Keys that lie in the token only because applications use them: their session objects and public keys. Kept as
//! session objects up to a bound, the longest unused going first, and made again from their content when needed.

use super::der::PublicKey;
use super::door::Handle;
use super::keys::Material;
use super::vault::{Copies, Vault};
use super::{TokenError, carry};
use crate::domain::{
    AttributeRecord, AttributeType as A, EnvelopeContent, Fingerprint, Generation, ObjectClass, ObjectId,
};
use crate::limits;
use crate::wire::SessionName;
use aws_lc_rs::digest;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A key to work with.
#[derive(Clone, Debug)]
pub enum UsedKey {
    /// A held private or secret key of the group.
    Agreed(ObjectId),
    /// An application's session object. Its name stands for one content for ever: a changed one gets a new name.
    Session {
        /// The name.
        name: SessionName,
        /// The generation that wrapped it, and the object itself: needed where the token does not know the name.
        content: Option<(Generation, Arc<EnvelopeContent>)>,
    },
    /// The public key of a record that has PUBLIC_KEY_INFO; what else the record grants holds too.
    Public(Arc<AttributeRecord>),
}

/// The usages that public keys have here, in the order of [`GuestName::Public`]'s bits.
const PUBLIC_USAGES: [A; 4] = [A::VERIFY, A::ENCRYPT, A::WRAP, A::VERIFY_RECOVER];

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum GuestName {
    Session(SessionName),
    /// SHA-256 of the SubjectPublicKeyInfo, and the usages granted.
    Public(Fingerprint, u8),
}

impl GuestName {
    fn of_public(record: &AttributeRecord) -> Self {
        let hash = digest::digest(&digest::SHA256, record.bytes(A::PUBLIC_KEY_INFO));
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(hash.as_ref());
        let granted = PUBLIC_USAGES.iter().map(|usage| u8::from(record.flag(*usage)));
        Self::Public(Fingerprint(fingerprint), granted.fold(0, |bits, bit| bits << 1 | bit))
    }
}

struct Guest {
    handle: Handle,
    /// When it was last used, counted in uses.
    used: u64,
}

/// The guests in the token, all owned by the keeper.
#[derive(Default)]
pub(super) struct Guests {
    present: HashMap<GuestName, Guest>,
    uses: u64,
}

impl Guests {
    /// A guest's handle, for use now.
    fn take(&mut self, name: GuestName) -> Option<Handle> {
        let guest = self.present.get_mut(&name)?;
        self.uses += 1;
        guest.used = self.uses;
        Some(guest.handle)
    }

    fn admit(&mut self, name: GuestName, handle: Handle) {
        self.uses += 1;
        self.present.insert(name, Guest { handle, used: self.uses });
    }

    /// Strikes out the longest unused guest, if there are as many as may be.
    fn longest_unused(&mut self) -> Option<Handle> {
        if self.present.len() < limits::SESSION_OBJECTS_MAX {
            return None;
        }
        let (name, _) = self.present.iter().min_by_key(|(_, guest)| guest.used)?;
        let name = *name;
        self.present.remove(&name).map(|guest| guest.handle)
    }

    pub fn knows(&self, name: SessionName) -> bool {
        self.present.contains_key(&GuestName::Session(name))
    }
}

impl Vault {
    /// Works with keys under the shared gate; those that the token does not hold are made first.
    pub fn with_keys<T, const N: usize>(
        &self,
        keys: [&UsedKey; N],
        mut work: impl FnMut([Handle; N]) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        {
            let _shared = self.gate.read();
            if let Some(handles) = self.all_known(keys) {
                match work(handles) {
                    Err(error) if error.is_of_a_handle() => {}
                    done => return done.map_err(|error| self.diagnose(error).blame_caller()),
                }
            }
        }
        let _exclusive = self.gate.write();
        self.with_keys_alone(keys, work)
    }

    /// The same for work that makes objects too. The caller holds the gate for writing.
    pub fn with_keys_alone<T, const N: usize>(
        &self,
        keys: [&UsedKey; N],
        mut work: impl FnMut([Handle; N]) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let handles = self.made(keys)?;
        let done = match work(handles) {
            Err(error) if error.is_of_a_handle() && self.forget_lost(keys, handles) => work(self.made(keys)?),
            done => done,
        };
        done.map_err(|error| self.diagnose(error).blame_caller())
    }

    /// Makes a session object's copy go. Absence is success.
    pub fn drop_session(&self, name: SessionName) -> Result<(), TokenError> {
        let _exclusive = self.gate.write();
        let guest = self.ledger.index.lock().guests.present.remove(&GuestName::Session(name));
        guest.map_or(Ok(()), |guest| self.destroy(guest.handle).map(|_| ()))
    }

    fn all_known<const N: usize>(&self, keys: [&UsedKey; N]) -> Option<[Handle; N]> {
        let mut handles = [0; N];
        for (handle, key) in handles.iter_mut().zip(keys) {
            *handle = self.known(key)?;
        }
        Some(handles)
    }

    fn known(&self, key: &UsedKey) -> Option<Handle> {
        let name = match key {
            UsedKey::Agreed(object) => {
                return self.ledger.index.lock().keys.get(object).and_then(Copies::usable);
            }
            UsedKey::Session { name, .. } => GuestName::Session(*name),
            UsedKey::Public(record) => GuestName::of_public(record),
        };
        self.ledger.index.lock().guests.take(name)
    }

    fn made<const N: usize>(&self, keys: [&UsedKey; N]) -> Result<[Handle; N], TokenError> {
        let mut handles = [0; N];
        for (handle, key) in handles.iter_mut().zip(keys) {
            *handle = match self.known(key) {
                Some(handle) => handle,
                None => self.bring(key)?,
            };
        }
        Ok(handles)
    }

    /// Makes a guest that is not there.
    fn bring(&self, key: &UsedKey) -> Result<Handle, TokenError> {
        let (name, handle) = match key {
            UsedKey::Agreed(object) => return Err(TokenError::Missing(*object)),
            UsedKey::Session { content: None, .. } => return Err(TokenError::UnknownSession),
            UsedKey::Session { name, content: Some((generation, content)) } => {
                (GuestName::Session(*name), self.make_session(*generation, content)?)
            }
            UsedKey::Public(record) => (GuestName::of_public(record), self.make_public(record)?),
        };
        let mut index = self.ledger.index.lock();
        let oldest = index.guests.longest_unused();
        index.guests.admit(name, handle);
        drop(index);
        if let Some(oldest) = oldest {
            self.destroy(oldest)?;
        }
        Ok(handle)
    }

    fn make_session(&self, generation: Generation, content: &EnvelopeContent) -> Result<Handle, TokenError> {
        let EnvelopeContent { record, wrapped } = content;
        match record.class {
            ObjectClass::PublicKey => self.make_public(record),
            _ => Material::new(self, generation, record, wrapped.as_ref())?.make(self, false, None),
        }
    }

    fn make_public(&self, record: &AttributeRecord) -> Result<Handle, TokenError> {
        let public = PublicKey::parse(record.bytes(A::PUBLIC_KEY_INFO))
            .ok_or(TokenError::BadInput("the record holds no public key that is known here"))?;
        let usages: Vec<A> = PUBLIC_USAGES.into_iter().filter(|usage| record.flag(*usage)).collect();
        carry::create_public(&self.keeper, &public, &usages)
    }

    /// Strikes out the copies that the token has lost; false if it has lost none of them.
    fn forget_lost<const N: usize>(&self, keys: [&UsedKey; N], handles: [Handle; N]) -> bool {
        let mut lost = false;
        for (key, handle) in keys.into_iter().zip(handles) {
            if self.keeper.read(handle, A::CLASS).is_ok() {
                continue;
            }
            lost = true;
            let mut index = self.ledger.index.lock();
            match key {
                // It counts as not held, so that it is imported again.
                UsedKey::Agreed(object) => {
                    if let Some(copies) = index.keys.get_mut(object) {
                        (copies.held, copies.working) = (None, None);
                    }
                }
                UsedKey::Session { name, .. } => {
                    index.guests.present.remove(&GuestName::Session(*name));
                }
                UsedKey::Public(record) => {
                    index.guests.present.remove(&GuestName::of_public(record));
                }
            }
        }
        lost
    }
}
