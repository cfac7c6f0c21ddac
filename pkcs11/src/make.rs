//! The ways in which objects come: each is one change asked of the group, or a record kept here.

use crate::attribute;
use crate::module::{key, object};
use crate::object::{Body, Object};
use crate::rv::{Result, Rv};
use crate::session::Session;
use cryptoki_sys::{
    CKR_ACTION_PROHIBITED, CKR_ATTRIBUTE_READ_ONLY, CKR_DEVICE_ERROR, CKR_SESSION_READ_ONLY,
    CKR_TEMPLATE_INCOMPLETE, CKR_TEMPLATE_INCONSISTENT, CKR_UNWRAPPING_KEY_HANDLE_INVALID,
    CKR_USER_NOT_LOGGED_IN,
};
use keyraft_engine::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, Mechanism, ObjectClass,
};
use keyraft_engine::wire::{Keep, KeyRef, Made, MakeBy, Role, SlotAnswer, SlotRequest};
use std::sync::Arc;

/// Where a new object shall live, by its template or else by default.
fn keep(session: &Session, template: &Attributes, default: bool) -> Result<Keep> {
    if !attribute::flag(template, A::TOKEN).unwrap_or(default) {
        return Ok(Keep::Session);
    }
    if session.read_write { Ok(Keep::Agreed) } else { Err(Rv(CKR_SESSION_READ_ONLY)) }
}

/// Makes objects by a member; their handles.
fn make(
    session: &Session,
    keep: Keep,
    keys: &[&Object],
    by: impl Fn(Vec<KeyRef>) -> MakeBy,
) -> Result<Vec<u64>> {
    let ask = |change, keys| SlotRequest::Make { change, keep, by: Box::new(by(keys)) };
    match session.slot.change_about(keys, ask)? {
        SlotAnswer::Made(made) => made.into_iter().map(|made| take_in(session, made)).collect(),
        _ => Err(Rv(CKR_DEVICE_ERROR)),
    }
}

fn take_in(session: &Session, made: Made) -> Result<u64> {
    match made.key {
        KeyRef::Object(id) => Ok(id.0),
        KeyRef::Session { name, sealed: Some(sealed) } => {
            let record = made.record.ok_or(Rv(CKR_DEVICE_ERROR))?;
            let body = Body { record: Arc::new(record), sealed: Some((name, *sealed)) };
            Ok(session.keep(body))
        }
        KeyRef::Session { sealed: None, .. } => Err(Rv(CKR_DEVICE_ERROR)),
    }
}

fn one(handles: &[u64]) -> Result<u64> {
    handles.first().copied().ok_or(Rv(CKR_DEVICE_ERROR))
}

/// C_GenerateKey.
pub(crate) fn generate_key(session: &Session, mechanism: &Mechanism, template: &Attributes) -> Result<u64> {
    let keep = keep(session, template, false)?;
    let by = |_| MakeBy::Generate { mechanism: mechanism.clone(), template: template.clone() };
    one(&make(session, keep, &[], by)?)
}

/// C_GenerateKeyPair: the public key's handle, then the private one's.
pub(crate) fn generate_pair(
    session: &Session,
    mechanism: &Mechanism,
    public: &Attributes,
    private: &Attributes,
) -> Result<(u64, u64)> {
    // Both halves live in one place: the private key's.
    let keep = keep(session, private, false)?;
    let by = |_| MakeBy::GeneratePair {
        mechanism: mechanism.clone(),
        public: public.clone(),
        private: private.clone(),
    };
    match make(session, keep, &[], by)?.as_slice() {
        [public, private] => Ok((*public, *private)),
        _ => Err(Rv(CKR_DEVICE_ERROR)),
    }
}

/// C_CreateObject.
pub(crate) fn create_object(session: &Session, template: &Attributes) -> Result<u64> {
    let keep = keep(session, template, false)?;
    let class = match template.get(&A::CLASS) {
        Some(V::Number(class)) => *class,
        _ => return Err(Rv(CKR_TEMPLATE_INCOMPLETE)),
    };
    let plain = [ObjectClass::Data, ObjectClass::Certificate].into_iter().find(|kind| kind.number() == class);
    if let (Keep::Session, Some(class)) = (keep, plain) {
        return keep_here(session, class, template);
    }
    one(&make(session, keep, &[], |_| MakeBy::Create { template: template.clone() })?)
}

/// A session object that is no key never leaves the module.
fn keep_here(session: &Session, class: ObjectClass, template: &Attributes) -> Result<u64> {
    let mut attributes = template.clone();
    attributes.remove(&A::CLASS);
    for (flag, default) in [
        (A::TOKEN, false),
        (A::PRIVATE, false),
        (A::MODIFIABLE, true),
        (A::COPYABLE, true),
        (A::DESTROYABLE, true),
    ] {
        attributes.entry(flag).or_insert(V::Bool(default));
    }
    attributes.entry(A::LABEL).or_insert_with(|| V::Bytes(Vec::new()));
    if attribute::flag(&attributes, A::PRIVATE) == Some(true) && session.slot.role() != Some(Role::User) {
        return Err(Rv(CKR_USER_NOT_LOGGED_IN));
    }
    if attribute::flag(&attributes, A::TRUSTED) == Some(true)
        && session.slot.role() != Some(Role::SecurityOfficer)
    {
        return Err(Rv(CKR_ATTRIBUTE_READ_ONLY));
    }
    let record = AttributeRecord { class, algorithm: None, attributes };
    Ok(session.keep(Body { record: Arc::new(record), sealed: None }))
}

/// C_CopyObject.
pub(crate) fn copy_object(session: &Session, handle: u64, template: &Attributes) -> Result<u64> {
    let of = object(session, handle)?;
    let record = session.slot.record(&of)?;
    let keep = keep(session, template, record.flag(A::TOKEN))?;
    if of.key_ref(false).is_none() {
        if !record.flag(A::COPYABLE) {
            return Err(Rv(CKR_ACTION_PROHIBITED));
        }
        // A copy may be hidden, and not shown.
        if record.flag(A::PRIVATE) && attribute::flag(template, A::PRIVATE) == Some(false) {
            return Err(Rv(CKR_TEMPLATE_INCONSISTENT));
        }
        let mut all = record.attributes.clone();
        all.insert(A::CLASS, V::Number(record.class.number()));
        all.extend(template.iter().map(|(attribute, value)| (*attribute, value.clone())));
        return create_object(session, &all);
    }
    let by = |mut keys: Vec<KeyRef>| MakeBy::Copy { of: keys.remove(0), template: template.clone() };
    one(&make(session, keep, &[&of], by)?)
}

/// C_UnwrapKey.
pub(crate) fn unwrap_key(
    session: &Session,
    mechanism: &Mechanism,
    unwrapping: u64,
    wrapped: &[u8],
    template: &Attributes,
) -> Result<u64> {
    let unwrapping = key(session, unwrapping).map_err(|_| Rv(CKR_UNWRAPPING_KEY_HANDLE_INVALID))?;
    let keep = keep(session, template, false)?;
    let by = |mut keys: Vec<KeyRef>| MakeBy::Unwrap {
        mechanism: mechanism.clone(),
        unwrapping: keys.remove(0),
        wrapped: wrapped.to_vec(),
        template: template.clone(),
    };
    one(&make(session, keep, &[&unwrapping], by)?)
}

/// C_DeriveKey.
pub(crate) fn derive_key(
    session: &Session,
    mechanism: &Mechanism,
    base: u64,
    template: &Attributes,
) -> Result<u64> {
    let base = key(session, base)?;
    let keep = keep(session, template, false)?;
    let by = |mut keys: Vec<KeyRef>| MakeBy::Derive {
        mechanism: mechanism.clone(),
        base: keys.remove(0),
        template: template.clone(),
    };
    one(&make(session, keep, &[&base], by)?)
}
