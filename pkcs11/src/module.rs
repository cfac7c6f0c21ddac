//! The module's functions, safe: what each C function does once its pointers are read.

use crate::attribute::{self, Unreadable};
use crate::config::Config;
use crate::hash::{Hash, Hasher};
use crate::object::{Body, Object};
use crate::operation::{KeyedOperation, Kind, Output, Room};
use crate::rv::{Result, Rv};
use crate::session::{Search, Session, Side};
use crate::slot::Slot;
use cryptoki_sys::{
    CKR_ATTRIBUTE_TYPE_INVALID, CKR_DEVICE_ERROR, CKR_KEY_INDIGESTIBLE, CKR_KEY_NOT_NEEDED,
    CKR_MECHANISM_INVALID, CKR_OBJECT_HANDLE_INVALID, CKR_OPERATION_ACTIVE, CKR_OPERATION_NOT_INITIALIZED,
    CKR_SAVED_STATE_INVALID, CKR_SESSION_COUNT, CKR_SESSION_EXISTS, CKR_SESSION_HANDLE_INVALID,
    CKR_SESSION_READ_ONLY, CKR_SESSION_READ_ONLY_EXISTS, CKR_SESSION_READ_WRITE_SO_EXISTS,
    CKR_SLOT_ID_INVALID, CKR_USER_NOT_LOGGED_IN,
};
use keyraft_engine::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, Mechanism, ObjectClass, ObjectId,
};
use keyraft_engine::health::Pace;
use keyraft_engine::limits;
use keyraft_engine::wire::{KeyRef, Made, Role, SecretBytes, SlotAnswer, SlotRequest};
use parking_lot::RwLock;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroizing;

/// Open sessions of one application.
const SESSIONS_MAX: usize = 65_536;

/// The initialised module.
pub(crate) struct Module {
    slots: Vec<Arc<Slot>>,
    sessions: RwLock<HashMap<u64, Arc<Session>>>,
    last: AtomicU64,
}

impl Module {
    pub fn new(config: &Config) -> Self {
        let groups = config.groups.iter().map(Slot::new);
        let members = config.members.iter().map(Slot::of_member);
        let slots = groups.chain(members).map(Arc::new).collect();
        Self { slots, sessions: RwLock::default(), last: AtomicU64::new(0) }
    }

    /// Every slot's id, or of those alone whose token is there.
    pub fn slots(&self, with_token: bool) -> Vec<u64> {
        self.slots.iter().filter(|slot| !with_token || slot.is_present()).map(|slot| slot.id).collect()
    }

    /// A slot whose token came or went since this was last asked.
    pub fn turned(&self) -> Option<u64> {
        self.slots.iter().find(|slot| slot.has_turned()).map(|slot| slot.id)
    }

    /// One slot.
    pub fn slot(&self, id: u64) -> Result<&Arc<Slot>> {
        self.slots.iter().find(|slot| slot.id == id).ok_or(Rv(CKR_SLOT_ID_INVALID))
    }

    /// One session.
    pub fn session(&self, handle: u64) -> Result<Arc<Session>> {
        self.sessions.read().get(&handle).cloned().ok_or(Rv(CKR_SESSION_HANDLE_INVALID))
    }

    /// Sessions of a slot: all, and those that are read-write.
    pub fn session_counts(&self, slot: u64) -> (u64, u64) {
        let sessions = self.sessions.read();
        let of = sessions.values().filter(|session| session.slot.id == slot);
        of.fold((0, 0), |(all, rw), session| (all + 1, rw + u64::from(session.read_write)))
    }

    /// C_OpenSession.
    pub fn open_session(&self, slot: u64, read_write: bool) -> Result<u64> {
        let slot = self.slot(slot)?.clone();
        slot.must_be_present()?;
        if !read_write && slot.role() == Some(Role::SecurityOfficer) {
            return Err(Rv(CKR_SESSION_READ_WRITE_SO_EXISTS));
        }
        let mut sessions = self.sessions.write();
        if sessions.len() >= SESSIONS_MAX {
            return Err(Rv(CKR_SESSION_COUNT));
        }
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        sessions.insert(handle, Arc::new(Session::new(handle, slot, read_write)));
        Ok(handle)
    }

    /// C_CloseSession. The last one's end is a logout.
    pub fn close_session(&self, handle: u64) -> Result<()> {
        let closed = self.sessions.write().remove(&handle).ok_or(Rv(CKR_SESSION_HANDLE_INVALID))?;
        closed.close();
        closed.slot.objects.end_session(handle);
        self.end_lonely_login(&closed.slot);
        Ok(())
    }

    /// C_CloseAllSessions.
    pub fn close_all(&self, slot: u64) -> Result<()> {
        let slot = self.slot(slot)?;
        let mut closed = Vec::new();
        self.sessions.write().retain(|handle, session| {
            let goes = session.slot.id == slot.id;
            if goes {
                session.close();
                closed.push(*handle);
            }
            !goes
        });
        closed.into_iter().for_each(|handle| slot.objects.end_session(handle));
        slot.forget_login();
        Ok(())
    }

    fn end_lonely_login(&self, slot: &Slot) {
        if self.session_counts(slot.id).0 == 0 {
            slot.forget_login();
        }
    }

    /// C_Login.
    pub fn login(&self, session: &Session, role: Role, pin: &[u8]) -> Result<()> {
        let (all, read_write) = self.session_counts(session.slot.id);
        if role == Role::SecurityOfficer && read_write < all {
            return Err(Rv(CKR_SESSION_READ_ONLY_EXISTS));
        }
        session.slot.login(role, pin)
    }

    /// C_InitToken.
    pub fn init_token(&self, slot: u64, pin: &[u8]) -> Result<()> {
        let slot = self.slot(slot)?;
        if self.session_counts(slot.id).0 > 0 {
            return Err(Rv(CKR_SESSION_EXISTS));
        }
        let pin = secret(pin);
        slot.change(|change| SlotRequest::InitToken { change, pin: pin.clone() }).map(|_| ())
    }
}

fn secret(bytes: &[u8]) -> SecretBytes {
    SecretBytes(Zeroizing::new(bytes.to_vec()))
}

/// The object that a handle names.
pub(crate) fn object(session: &Session, handle: u64) -> Result<Object> {
    session.slot.objects.get(handle).ok_or(Rv(CKR_OBJECT_HANDLE_INVALID))
}

/// The same where a key is meant.
pub(crate) fn key(session: &Session, handle: u64) -> Result<Object> {
    object(session, handle).map_err(Rv::of_key)
}

/// C_InitPIN.
pub(crate) fn init_pin(session: &Session, pin: &[u8]) -> Result<()> {
    if session.slot.role() != Some(Role::SecurityOfficer) {
        return Err(Rv(CKR_USER_NOT_LOGGED_IN));
    }
    let pin = secret(pin);
    session.slot.change(|change| SlotRequest::InitPin { change, pin: pin.clone() }).map(|_| ())
}

/// C_SetPIN.
pub(crate) fn set_pin(session: &Session, old: &[u8], new: &[u8]) -> Result<()> {
    if !session.read_write {
        return Err(Rv(CKR_SESSION_READ_ONLY));
    }
    let (old, new) = (secret(old), secret(new));
    let set =
        session.slot.change(|change| SlotRequest::SetPin { change, old: old.clone(), new: new.clone() })?;
    // The old PIN's ticket ends with it: the login goes on under the new one.
    if let SlotAnswer::Ticket(ticket) = set {
        session.slot.go_on(ticket);
    }
    Ok(())
}

/// C_WrapKey.
pub(crate) fn wrap_key(
    session: &Session,
    mechanism: &Mechanism,
    wrapping: u64,
    key_handle: u64,
    room: Room,
) -> Result<Output> {
    let wrapping = key(session, wrapping).map_err(|_| Rv(cryptoki_sys::CKR_WRAPPING_KEY_HANDLE_INVALID))?;
    let wrapped = key(session, key_handle)?;
    let ask = |mut keys: Vec<KeyRef>| SlotRequest::Wrap {
        mechanism: mechanism.clone(),
        wrapping: keys.remove(0),
        key: keys.remove(0),
    };
    match session.slot.ask_about(Pace::Heavy, &[&wrapping, &wrapped], ask)? {
        SlotAnswer::Output(output) => Ok(match Output::fit(output.0, room) {
            Ok(output) | Err((output, _)) => output,
        }),
        _ => Err(Rv(CKR_DEVICE_ERROR)),
    }
}

/// C_DestroyObject.
pub(crate) fn destroy_object(session: &Session, handle: u64) -> Result<()> {
    match object(session, handle)? {
        Object::Session(object) => {
            if !object.body().record.flag(A::DESTROYABLE) {
                return Err(Rv(cryptoki_sys::CKR_ACTION_PROHIBITED));
            }
            session.slot.objects.remove(handle);
            Ok(())
        }
        Object::Agreed(object) => {
            if !session.read_write {
                return Err(Rv(CKR_SESSION_READ_ONLY));
            }
            session.slot.forget(object);
            session.slot.change(|change| SlotRequest::Destroy { change, object }).map(|_| ())
        }
    }
}

/// C_GetAttributeValue's answers, one an attribute.
pub(crate) fn read_attributes(
    session: &Session,
    handle: u64,
    attributes: &[A],
) -> Result<Vec<std::result::Result<V, Unreadable>>> {
    let record = session.slot.record(&object(session, handle)?)?;
    Ok(attributes.iter().map(|attribute| attribute::read(&record, *attribute)).collect())
}

/// C_GetObjectSize: the bytes of everything that may be read.
pub(crate) fn object_size(session: &Session, handle: u64) -> Result<u64> {
    let record = session.slot.record(&object(session, handle)?)?;
    Ok(record.attributes.values().map(|value| attribute::bytes(value).len() as u64).sum())
}

/// C_SetAttributeValue.
pub(crate) fn set_attributes(session: &Session, handle: u64, attributes: &Attributes) -> Result<()> {
    let object = object(session, handle)?;
    match &object {
        Object::Agreed(id) => {
            if !session.read_write {
                return Err(Rv(CKR_SESSION_READ_ONLY));
            }
            session.slot.forget(*id);
        }
        Object::Session(kept) if object.key_ref(false).is_none() => {
            let body = kept.body();
            if !body.record.flag(A::MODIFIABLE) {
                return Err(Rv(cryptoki_sys::CKR_ACTION_PROHIBITED));
            }
            let fixed = [
                A::CLASS,
                A::TOKEN,
                A::PRIVATE,
                A::MODIFIABLE,
                A::COPYABLE,
                A::DESTROYABLE,
                A::TRUSTED,
                A::CERTIFICATE_TYPE,
            ];
            if attributes.keys().any(|attribute| fixed.contains(attribute)) {
                return Err(Rv(cryptoki_sys::CKR_ATTRIBUTE_READ_ONLY));
            }
            let mut record = AttributeRecord::clone(&body.record);
            record.attributes.extend(attributes.iter().map(|(attribute, value)| (*attribute, value.clone())));
            kept.replace(Body { record: Arc::new(record), sealed: None });
            return Ok(());
        }
        Object::Session(_) => {}
    }
    let ask = |change, mut keys: Vec<KeyRef>| SlotRequest::SetAttributes {
        change,
        key: keys.remove(0),
        attributes: attributes.clone(),
    };
    let answer = session.slot.change_about(&[&object], ask)?;
    if let (SlotAnswer::Made(made), Object::Session(kept)) = (answer, &object)
        && let Some(Made { key: KeyRef::Session { name, sealed: Some(sealed) }, record: Some(record) }) =
            made.into_iter().next()
    {
        kept.replace(Body { record: Arc::new(record), sealed: Some((name, *sealed)) });
    }
    Ok(())
}

/// C_FindObjectsInit.
pub(crate) fn find_init(session: &Session, mut template: Attributes) -> Result<()> {
    if session.is_searching() {
        return Err(Rv(CKR_OPERATION_ACTIVE));
    }
    let wanted = attribute::flag(&template, A::TOKEN);
    let mut found = VecDeque::new();
    if wanted != Some(true) {
        found.extend(session.slot.objects.find(&template, session.slot.role() == Some(Role::User)));
    }
    template.remove(&A::TOKEN);
    let mut search = Search { found, template, more_behind: Some(ObjectId(0)) };
    if wanted == Some(false) {
        search.more_behind = None;
    } else {
        find_more(session, &mut search)?;
    }
    session.begin_search(search);
    Ok(())
}

fn find_more(session: &Session, search: &mut Search) -> Result<()> {
    let after = search.more_behind.take().filter(|after| *after != ObjectId(0));
    let ask = SlotRequest::Find { template: search.template.clone(), after };
    match session.slot.ask(ask, Pace::Search)? {
        SlotAnswer::Found { objects, more } => {
            search.more_behind = objects.last().copied().filter(|_| more);
            search.found.extend(objects.iter().map(|object| object.0));
            Ok(())
        }
        _ => Err(Rv(CKR_DEVICE_ERROR)),
    }
}

/// C_FindObjects: at most so many handles.
pub(crate) fn find(session: &Session, most: usize) -> Result<Vec<u64>> {
    let mut search = session.take_search()?;
    while search.found.len() < most && search.more_behind.is_some() {
        find_more(session, &mut search)?;
    }
    let count = most.min(search.found.len());
    let handles = search.found.drain(..count).collect();
    session.begin_search(search);
    Ok(handles)
}

/// C_FindObjectsFinal.
pub(crate) fn find_final(session: &Session) -> Result<()> {
    session.take_search().map(|_| ())
}

/// The side that a kind of operation stands on.
pub(crate) fn side(kind: Kind) -> Side {
    match kind {
        Kind::Encrypt | Kind::Decrypt => Side::Cipher,
        Kind::Sign | Kind::SignRecover | Kind::Verify | Kind::VerifyRecover => Side::Hash,
    }
}

/// C_SignInit and its kin.
pub(crate) fn begin(session: &Session, kind: Kind, mechanism: Mechanism, key_handle: u64) -> Result<()> {
    session.must_be_free(side(kind))?;
    let key = key(session, key_handle)?;
    session.put(side(kind), KeyedOperation::begin(&session.slot, kind, key, mechanism)?);
    Ok(())
}

/// Runs a step of the operation under way. It goes on if the step says so, and ends by an error or its output.
fn step<T>(
    session: &Session,
    kind: Kind,
    goes_on: impl Fn(&Result<T>) -> bool,
    work: impl FnOnce(&mut KeyedOperation) -> Result<T>,
) -> Result<T> {
    let mut operation = session.take(side(kind), |operation| operation.kind == kind)?;
    let done = work(&mut operation);
    if goes_on(&done) {
        session.put(side(kind), operation);
    }
    done
}

/// Ends the operation of a kind, if it is under way.
pub(crate) fn cancel(session: &Session, kind: Kind) -> Result<()> {
    match session.take(side(kind), |operation| operation.kind == kind) {
        Ok(_) | Err(Rv(CKR_OPERATION_NOT_INITIALIZED)) => Ok(()),
        Err(rv) => Err(rv),
    }
}

fn waits(done: &Result<Output>) -> bool {
    matches!(done, Ok(Output::Length(_) | Output::TooSmall(_)))
}

/// C_Sign and its kin: the whole operation on one piece of data.
pub(crate) fn single(session: &Session, kind: Kind, data: &[u8], room: Room) -> Result<Output> {
    step(session, kind, waits, |operation| operation.single(&session.slot, data, room))
}

/// C_Verify.
pub(crate) fn verify(session: &Session, data: &[u8], signature: &[u8]) -> Result<()> {
    step(session, Kind::Verify, |_| false, |operation| operation.verify(&session.slot, data, signature))
}

/// C_SignUpdate and C_VerifyUpdate.
pub(crate) fn update(session: &Session, kind: Kind, part: &[u8]) -> Result<()> {
    step(session, kind, Result::is_ok, |operation| operation.update(&session.slot, part).map(|_| ()))
}

/// C_EncryptUpdate and C_DecryptUpdate.
pub(crate) fn update_cipher(session: &Session, kind: Kind, part: &[u8], room: Room) -> Result<Output> {
    step(session, kind, Result::is_ok, |operation| {
        let length = operation.update_length(part.len());
        match room {
            Room::Query => Ok(Output::Length(length)),
            Room::Bytes(space) if space < length => Ok(Output::TooSmall(length)),
            Room::Bytes(space) => match operation.update(&session.slot, part)? {
                output if output.len() > space => Err(Rv(CKR_DEVICE_ERROR)),
                output => Ok(Output::Bytes(output)),
            },
        }
    })
}

/// C_SignFinal and its kin.
pub(crate) fn finish(session: &Session, kind: Kind, room: Room) -> Result<Output> {
    step(session, kind, waits, |operation| operation.finish(&session.slot, room))
}

/// C_VerifyFinal.
pub(crate) fn finish_verify(session: &Session, signature: &[u8]) -> Result<()> {
    step(session, Kind::Verify, |_| false, |operation| operation.finish_verify(&session.slot, signature))
}

/// C_DigestInit.
pub(crate) fn digest_init(session: &Session, mechanism: &Mechanism) -> Result<()> {
    session.must_be_free(Side::Hash)?;
    let hash = Hash::of(mechanism.number).ok_or(Rv(CKR_MECHANISM_INVALID))?;
    session.put_digest(hash.begin());
    Ok(())
}

/// C_DigestUpdate.
pub(crate) fn digest_update(session: &Session, part: &[u8]) -> Result<()> {
    let mut hasher = session.take_digest()?;
    hasher.update(part);
    session.put_digest(hasher);
    Ok(())
}

/// C_DigestKey: only where the key's value may be read anyway.
pub(crate) fn digest_key(session: &Session, handle: u64) -> Result<()> {
    let hasher = session.take_digest()?;
    session.put_digest(hasher);
    let record = session.slot.record(&key(session, handle)?).map_err(Rv::of_key)?;
    match record.attributes.get(&A::VALUE) {
        Some(V::Bytes(value)) if record.class == ObjectClass::SecretKey => digest_update(session, value),
        _ => Err(Rv(CKR_KEY_INDIGESTIBLE)),
    }
}

/// C_Digest (with data) and C_DigestFinal (without).
pub(crate) fn digest_end(session: &Session, data: Option<&[u8]>, room: Room) -> Result<Output> {
    let hasher = session.take_digest()?;
    let length = hasher.hash().bytes();
    match room {
        Room::Query => {
            session.put_digest(hasher);
            Ok(Output::Length(length))
        }
        Room::Bytes(space) if space < length => {
            session.put_digest(hasher);
            Ok(Output::TooSmall(length))
        }
        Room::Bytes(_) => {
            let mut hasher = hasher;
            hasher.update(data.unwrap_or_default());
            Ok(Output::Bytes(Zeroizing::new(hasher.finish())))
        }
    }
}

/// C_GetOperationState.
pub(crate) fn save_state(session: &Session, room: Room) -> Result<Output> {
    let saved = Zeroizing::new(session.digest_alone()?.save());
    let (Ok(output) | Err((output, _))) = Output::fit(saved, room);
    Ok(output)
}

/// C_SetOperationState: what was under way ends.
pub(crate) fn restore_state(session: &Session, saved: &[u8], keys: [u64; 2]) -> Result<()> {
    let hasher = Hasher::restore(saved).ok_or(Rv(CKR_SAVED_STATE_INVALID))?;
    if keys != [0, 0] {
        return Err(Rv(CKR_KEY_NOT_NEEDED));
    }
    session.cancel(Side::Cipher);
    session.put_digest(hasher);
    Ok(())
}

/// C_GenerateRandom.
pub(crate) fn random(session: &Session, bytes: usize) -> Result<Zeroizing<Vec<u8>>> {
    // The caller's length is no reason to end the process: room grows as bytes come. What is moved is no secret yet.
    let mut all = Zeroizing::new(Vec::with_capacity(bytes.min(limits::RANDOM_MAX_BYTES)));
    while all.len() < bytes {
        let next = (bytes - all.len()).min(limits::RANDOM_MAX_BYTES);
        let ask = SlotRequest::Random { bytes: u32::try_from(next).unwrap_or(u32::MAX) };
        match session.slot.ask(ask, Pace::Quick)? {
            SlotAnswer::Output(output) if output.0.len() == next => all.extend_from_slice(&output.0),
            _ => return Err(Rv(CKR_DEVICE_ERROR)),
        }
    }
    Ok(all)
}

/// Refuses attributes that C_GetAttributeValue cannot be asked for at once.
pub(crate) fn check_count(count: usize) -> Result<()> {
    if count <= limits::ATTRIBUTES_MAX { Ok(()) } else { Err(Rv(CKR_ATTRIBUTE_TYPE_INVALID)) }
}
