//! Sessions and what is under way in them. An operation is taken out while a member works on it, so that no lock is
//! held across a call.

use crate::hash::Hasher;
use crate::message::Gathering;
use crate::object::Body;
use crate::operation::{KeyedOperation, Kind};
use crate::rv::{Result, Rv};
use crate::slot::Slot;
use cryptoki_sys::{
    CK_STATE, CKR_OPERATION_ACTIVE, CKR_OPERATION_NOT_INITIALIZED, CKR_STATE_UNSAVEABLE,
    CKS_RO_PUBLIC_SESSION, CKS_RO_USER_FUNCTIONS, CKS_RW_PUBLIC_SESSION, CKS_RW_SO_FUNCTIONS,
    CKS_RW_USER_FUNCTIONS,
};
use keyraft_engine::domain::{Attributes, ObjectId};
use keyraft_engine::wire::Role;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open session.
pub(crate) struct Session {
    /// CK_SESSION_HANDLE
    pub handle: u64,
    /// Its slot.
    pub slot: Arc<Slot>,
    /// Opened with CKF_RW_SESSION.
    pub read_write: bool,
    closed: AtomicBool,
    work: Mutex<Work>,
}

/// What is under way. Digests, signatures and verifications stand beside encryptions and decryptions, as the dual
/// functions need it; two of one side exclude each other.
#[derive(Default)]
struct Work {
    search: Option<Search>,
    hash: Option<HashSide>,
    cipher: Option<KeyedOperation>,
    /// Message operations (PKCS#11 v3.0), one of each kind.
    messages: Vec<Arc<KeyedOperation>>,
    /// Messages of theirs that come in parts.
    gatherings: Vec<Gathering>,
}

/// A search under way.
pub(crate) struct Search {
    /// Found and not yet handed out.
    pub found: VecDeque<u64>,
    /// What to ask for more with.
    pub template: Attributes,
    /// There are more behind this one.
    pub more_behind: Option<ObjectId>,
}

/// The side of digests and signatures.
pub(crate) enum HashSide {
    /// C_DigestInit
    Digest(Hasher),
    /// C_SignInit, C_VerifyInit, and their recovering kin.
    Keyed(KeyedOperation),
}

/// Which side an operation stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Digest, sign, verify.
    Hash,
    /// Encrypt, decrypt.
    Cipher,
}

impl Session {
    pub fn new(handle: u64, slot: Arc<Slot>, read_write: bool) -> Self {
        Self { handle, slot, read_write, closed: AtomicBool::new(false), work: Mutex::default() }
    }

    /// Notes that it is closed: what a call under way still brings ends with it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Takes a session object in; its handle. In a session that was closed meanwhile it is gone at once.
    pub fn keep(&self, body: Body) -> u64 {
        let handle = self.slot.objects.insert(self.handle, body);
        if self.closed.load(Ordering::SeqCst) {
            self.slot.objects.end_session(self.handle);
        }
        handle
    }

    /// CK_STATE: follows the application's login.
    pub fn state(&self) -> CK_STATE {
        match (self.slot.role(), self.read_write) {
            (None, false) => CKS_RO_PUBLIC_SESSION,
            (None, true) => CKS_RW_PUBLIC_SESSION,
            (Some(Role::User), false) => CKS_RO_USER_FUNCTIONS,
            (Some(Role::User), true) => CKS_RW_USER_FUNCTIONS,
            (Some(Role::SecurityOfficer), _) => CKS_RW_SO_FUNCTIONS,
        }
    }

    /// Refuses a second operation on one side.
    pub fn must_be_free(&self, side: Side) -> Result<()> {
        let work = self.work.lock();
        let free = match side {
            Side::Hash => work.hash.is_none(),
            Side::Cipher => work.cipher.is_none(),
        };
        if free { Ok(()) } else { Err(Rv(CKR_OPERATION_ACTIVE)) }
    }

    /// Ends what is under way on one side.
    pub fn cancel(&self, side: Side) {
        let mut work = self.work.lock();
        match side {
            Side::Hash => work.hash = None,
            Side::Cipher => work.cipher = None,
        }
    }

    /// Puts an operation under way, or back.
    pub fn put(&self, side: Side, operation: KeyedOperation) {
        let mut work = self.work.lock();
        match side {
            Side::Hash => work.hash = Some(HashSide::Keyed(operation)),
            Side::Cipher => work.cipher = Some(operation),
        }
    }

    /// Takes the operation that is under way, if it is of the kind that is meant.
    pub fn take(&self, side: Side, meant: impl Fn(&KeyedOperation) -> bool) -> Result<KeyedOperation> {
        let mut work = self.work.lock();
        let taken = match side {
            Side::Hash => match work.hash.take() {
                Some(HashSide::Keyed(operation)) if meant(&operation) => Some(operation),
                other => {
                    work.hash = other;
                    None
                }
            },
            Side::Cipher => match work.cipher.take() {
                Some(operation) if meant(&operation) => Some(operation),
                other => {
                    work.cipher = other;
                    None
                }
            },
        };
        taken.ok_or(Rv(CKR_OPERATION_NOT_INITIALIZED))
    }

    /// Puts a digest under way, or back.
    pub fn put_digest(&self, hasher: Hasher) {
        self.work.lock().hash = Some(HashSide::Digest(hasher));
    }

    /// Takes the digest that is under way.
    pub fn take_digest(&self) -> Result<Hasher> {
        let mut work = self.work.lock();
        match work.hash.take() {
            Some(HashSide::Digest(hasher)) => Ok(hasher),
            other => {
                work.hash = other;
                Err(Rv(CKR_OPERATION_NOT_INITIALIZED))
            }
        }
    }

    /// The digest under way, if it is all that is: nothing else has a state that can be saved.
    pub fn digest_alone(&self) -> Result<Hasher> {
        let work = self.work.lock();
        match (&work.hash, &work.cipher) {
            (Some(HashSide::Digest(hasher)), None) => Ok(hasher.clone()),
            (None, None) => Err(Rv(CKR_OPERATION_NOT_INITIALIZED)),
            _ => Err(Rv(CKR_STATE_UNSAVEABLE)),
        }
    }

    /// Begins a message operation; another one of its kind must have ended.
    pub fn begin_messages(&self, operation: KeyedOperation) -> Result<()> {
        let mut work = self.work.lock();
        if work.messages.iter().any(|other| other.kind == operation.kind) {
            return Err(Rv(CKR_OPERATION_ACTIVE));
        }
        work.messages.push(Arc::new(operation));
        Ok(())
    }

    /// The message operation of a kind.
    pub fn messages(&self, kind: Kind) -> Result<Arc<KeyedOperation>> {
        let work = self.work.lock();
        let found = work.messages.iter().find(|operation| operation.kind == kind).cloned();
        found.ok_or(Rv(CKR_OPERATION_NOT_INITIALIZED))
    }

    /// Ends the message operation of a kind.
    pub fn end_messages(&self, kind: Kind) -> Result<()> {
        self.messages(kind)?;
        let mut work = self.work.lock();
        work.messages.retain(|operation| operation.kind != kind);
        work.gatherings.retain(|gathering| gathering.kind != kind);
        Ok(())
    }

    /// Begins a message that comes in parts.
    pub fn gather(&self, gathering: Gathering) -> Result<()> {
        let mut work = self.work.lock();
        if work.gatherings.iter().any(|other| other.kind == gathering.kind) {
            return Err(Rv(CKR_OPERATION_ACTIVE));
        }
        work.gatherings.push(gathering);
        Ok(())
    }

    /// Takes out what has come of a message.
    pub fn take_gathering(&self, kind: Kind) -> Result<Gathering> {
        let mut work = self.work.lock();
        let at = work.gatherings.iter().position(|gathering| gathering.kind == kind);
        at.map(|at| work.gatherings.swap_remove(at)).ok_or(Rv(CKR_OPERATION_NOT_INITIALIZED))
    }

    /// Notes that the user has proved himself for the operations under way (CKA_ALWAYS_AUTHENTICATE).
    pub fn authenticate(&self) -> Result<()> {
        let mut guard = self.work.lock();
        let work = &mut *guard;
        let hash = match &mut work.hash {
            Some(HashSide::Keyed(operation)) => Some(operation),
            _ => None,
        };
        let mut any = false;
        for operation in hash.into_iter().chain(work.cipher.as_mut()) {
            operation.authenticated = true;
            any = true;
        }
        for operation in &mut work.messages {
            let mut proved = KeyedOperation::clone(operation);
            proved.authenticated = true;
            *operation = Arc::new(proved);
            any = true;
        }
        if any { Ok(()) } else { Err(Rv(CKR_OPERATION_NOT_INITIALIZED)) }
    }

    /// Begins a search.
    pub fn begin_search(&self, search: Search) {
        self.work.lock().search = Some(search);
    }

    /// True while a search is under way.
    pub fn is_searching(&self) -> bool {
        self.work.lock().search.is_some()
    }

    /// Takes the search out.
    pub fn take_search(&self) -> Result<Search> {
        self.work.lock().search.take().ok_or(Rv(CKR_OPERATION_NOT_INITIALIZED))
    }
}
