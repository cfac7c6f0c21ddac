//! One open token: the session that keeps session objects, what lies in it, and the gate that orders its calls.

use super::calls::Calls;
use super::der::PublicKey;
use super::door::{Handle, Module, Session};
use super::error::Fault;
use super::guests::Guests;
use super::probe::Abilities;
use super::tag::Tag;
use super::{TokenError, TokenVerdict, proof};
use crate::domain::{AttributeType as A, ContentKey, Generation, GroupId, ObjectId, Profile, Version};
use crate::telemetry::Event;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The copies of one object.
#[derive(Default)]
pub(super) struct Copies {
    /// The content that was imported and verified since this start; none for copies only found.
    pub held: Option<ContentKey>,
    /// The copies that bear a tag.
    pub tagged: Vec<(ContentKey, Handle)>,
    /// A session object that bears no tag, for use.
    pub working: Option<Handle>,
}

impl Copies {
    /// What to use: the working copy if there is one.
    pub fn usable(&self) -> Option<Handle> {
        let name = self.held?;
        self.working.or_else(|| self.tagged.iter().find(|(n, _)| *n == name).map(|(_, handle)| *handle))
    }
}

/// The SMK of one generation.
pub(super) struct Smk {
    /// The token object.
    pub token: Handle,
    /// A session copy as strict as the token object: token objects are slow to use in kryoptic.
    pub working: Option<Handle>,
}

impl Smk {
    pub fn usable(&self) -> Handle {
        self.working.unwrap_or(self.token)
    }
}

/// A member's RSA key in the token.
#[derive(Clone)]
pub(super) struct MemberKey {
    pub handle: Handle,
    pub public: PublicKey,
}

/// What lies in the token, as far as we know: built once at open, kept up to date since, so that a serving token is
/// never searched.
#[derive(Default)]
pub(super) struct Index {
    pub group: Option<GroupId>,
    /// Tagged token objects found at open.
    pub found: BTreeMap<Tag, Vec<Handle>>,
    pub keys: HashMap<ObjectId, Copies>,
    pub smks: BTreeMap<Generation, Smk>,
    pub transport: Option<MemberKey>,
    pub unlock: Option<MemberKey>,
    pub guests: Guests,
}

impl Index {
    /// Makes the group's own among the found objects known as such.
    pub fn bind(&mut self, group: GroupId) {
        if self.group == Some(group) {
            return;
        }
        self.group = Some(group);
        let keys = self.found.iter().filter_map(|(tag, handles)| match tag {
            Tag::Key(g, name) if *g == group => Some((*name, handles)),
            _ => None,
        });
        for (name, handles) in keys {
            let copies = self.keys.entry(name.object).or_default();
            copies.tagged.extend(handles.iter().map(|handle| (name, *handle)));
        }
        self.found.retain(|tag, _| !matches!(tag, Tag::Key(g, _) if *g == group));
    }

    /// Version 0 stands for copies that were found and not yet verified.
    pub fn version(copies: &Copies) -> Version {
        copies.held.map_or(Version(0), |name| name.version)
    }
}

/// What outlives the sessions: readable through every handle on the token.
pub(super) struct Ledger {
    pub profile: Profile,
    pub index: Mutex<Index>,
    pub calls: Arc<Calls>,
}

/// The use that tells a working token from a broken one.
pub(super) struct Canary {
    pub key: Handle,
    pub expect: Vec<u8>,
    /// A session key that signs: some broken tokens still encrypt.
    pub signer: Option<(Handle, PublicKey)>,
    /// The embedded token's database, by path, device and inode: it goes on working when its file is gone.
    pub file: Option<(PathBuf, u64, u64)>,
}

/// An open token. Owned by its threads alone: with the last of them its sessions close.
pub(super) struct Vault {
    pub module: &'static Module,
    pub slot: u64,
    /// Owns every session object that must last. Used only while `gate` is held for writing.
    pub keeper: Session,
    /// Readers use keys, writers change objects: SoftHSM returns errors and loses handles otherwise. Fair, so that
    /// neither starves.
    pub gate: RwLock<()>,
    /// Counts the uses of keys, by which imports see that they have company.
    pub uses: AtomicU64,
    pub abilities: Abilities,
    pub ledger: Arc<Ledger>,
    pub canary: Canary,
    /// Frees the slot for another handle once the sessions are closed; dropped last.
    pub _seat: super::slot::Seat,
}

impl Vault {
    pub fn group(&self) -> Result<GroupId, TokenError> {
        self.ledger.index.lock().group.ok_or(TokenError::Unbound)
    }

    /// The handle to wrap and unwrap with.
    pub fn smk(&self, generation: Generation) -> Result<Handle, TokenError> {
        let index = self.ledger.index.lock();
        index.smks.get(&generation).map(Smk::usable).ok_or(TokenError::NoSmk(generation))
    }

    /// Uses the canary key. The caller holds the gate.
    pub fn sing(&self, session: &Session) -> Result<(), TokenError> {
        self.module.token_info(self.slot).map_err(broken)?;
        if let Some((path, device, inode)) = &self.canary.file {
            use std::os::unix::fs::MetadataExt;
            let there = std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (*device, *inode));
            if !there {
                let reason = "its database is gone or was replaced while the token was open".to_string();
                return Err(TokenError::Folder { folder: path.clone(), reason });
            }
        }
        let made =
            proof::encrypt_zeros(session, self.canary.key).map_err(|e| e.judged(TokenVerdict::Failed))?;
        if made != self.canary.expect {
            return Err(TokenError::Call { call: "C_Encrypt", code: 0x30, verdict: TokenVerdict::Failed });
        }
        match &self.canary.signer {
            Some((key, public)) => {
                proof::check_private(session, *key, public).map_err(|e| e.judged(TokenVerdict::Failed))
            }
            None => Ok(()),
        }
    }

    /// Decides whose fault an ambiguous error is: the token's, if its canary fails too.
    pub fn judge(&self, error: TokenError) -> TokenError {
        if !error.is_ambiguous() {
            return error;
        }
        let _shared = self.gate.read();
        self.diagnose(error)
    }

    /// The same for a caller that holds the gate.
    pub fn diagnose(&self, error: TokenError) -> TokenError {
        if !error.is_ambiguous() {
            return error;
        }
        let healthy = self.module.open(self.slot).is_ok_and(|session| self.sing(&session).is_ok());
        error.judged(if healthy { TokenVerdict::Refused } else { TokenVerdict::Failed })
    }

    /// Destroys an object and reads again: on a dead disk C_DestroyObject has been seen to return CKR_OK in vain.
    /// The caller holds the gate for writing.
    pub fn destroy(&self, handle: Handle) -> Result<bool, TokenError> {
        const OBJECT_HANDLE_INVALID: u64 = 0x82;
        match self.keeper.destroy(handle) {
            Ok(()) | Err(Fault { code: OBJECT_HANDLE_INVALID, .. }) => {}
            Err(fault) => return Err(fault.into()),
        }
        Ok(self.keeper.read(handle, A::CLASS).is_err())
    }

    /// Makes a new key as protected as it must be, or destroys it. Some tokens ignore a template's wishes.
    /// The caller holds the gate for writing.
    pub fn lock_down(&self, key: Handle, sensitive: bool, extractable: bool) -> Result<(), TokenError> {
        let wishes = [(A::SENSITIVE, sensitive, true), (A::EXTRACTABLE, !extractable, false)];
        for (attribute, _, value) in wishes.into_iter().filter(|(_, wanted, _)| *wanted) {
            if self.keeper.read_flag(key, attribute) == Some(value) {
                continue;
            }
            let locked = self.keeper.set_flag(key, attribute, value).is_ok()
                && self.keeper.read_flag(key, attribute) == Some(value);
            if !locked {
                self.destroy(key)?;
                return Err(TokenError::Unlockable);
            }
        }
        Ok(())
    }
}

/// The error of a call that a working token never refuses.
pub(super) fn broken(fault: Fault) -> TokenError {
    TokenError::from(fault).judged(TokenVerdict::Failed)
}

/// Session objects that must not outlive a scope; destroyed when dropped, whatever happened.
pub(super) struct Passing<'a> {
    session: &'a Session,
    handles: Vec<Handle>,
}

impl<'a> Passing<'a> {
    pub fn new(session: &'a Session) -> Self {
        Self { session, handles: Vec::new() }
    }

    pub fn keep(&mut self, handle: Handle) -> Handle {
        self.handles.push(handle);
        handle
    }

    /// Lets one stay.
    pub fn spare(&mut self, handle: Handle) {
        self.handles.retain(|kept| *kept != handle);
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        for handle in &self.handles {
            // Its session closes at the latest when its thread ends, and the object with it.
            if let Err(fault) = self.session.destroy(*handle) {
                tracing::warn!(
                    code = Event::SessionObjectStays.code(),
                    ckr = fault.code,
                    "a passing session object could not be destroyed"
                );
            }
        }
    }
}
