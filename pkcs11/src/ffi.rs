//! The door to C: the only file with `unsafe`. Each function reads its pointers, calls its safe twin, and writes what
//! came of it. A panic becomes CKR_GENERAL_ERROR; nothing unwinds into C.

use crate::attribute::{self, Shape, Unreadable};
use crate::make;
use crate::mechanism::{self, ParameterShape};
use crate::message;
use crate::module::{self, Module};
use crate::operation::{Kind, Output, Room};
use crate::process;
use crate::rv::{Result, Rv};
use crate::session::{Session, Side};
use cryptoki_sys::*;
use keyraft_engine::domain::{AttributeType as A, AttributeValue as V, Attributes, Mechanism, Parameters};
use keyraft_engine::limits;
use keyraft_engine::wire::Role;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type SessionHandle = CK_SESSION_HANDLE;
type Bytes = *mut CK_BYTE;
type Length = *mut CK_ULONG;

const BAD: Rv = Rv(CKR_ARGUMENTS_BAD);
const UNAVAILABLE: CK_ULONG = CK_UNAVAILABLE_INFORMATION;
const VERSION_2_40: CK_VERSION = CK_VERSION { major: 2, minor: 40 };
const VERSION_3_0: CK_VERSION = CK_VERSION { major: 3, minor: 0 };

/// Runs a function's body: its result becomes a CK_RV, a panic CKR_GENERAL_ERROR.
fn guard(work: impl FnOnce() -> Result<()>) -> CK_RV {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => CKR_OK,
        Ok(Err(rv)) => rv.0,
        Err(_) => CKR_GENERAL_ERROR,
    }
}

/// The same in an initialised process.
fn within(work: impl FnOnce(&Module) -> Result<()>) -> CK_RV {
    guard(|| work(&*process::current()?))
}

/// The same in a session.
fn in_session(handle: SessionHandle, work: impl FnOnce(&Session) -> Result<()>) -> CK_RV {
    guard(|| {
        let session: Arc<Session> = process::current()?.session(handle)?;
        work(&session)
    })
}

fn to_usize(length: CK_ULONG) -> Result<usize> {
    usize::try_from(length).map_err(|_| BAD)
}

/// A caller's bytes; NULL stands for none.
///
/// # Safety
/// `pointer` is NULL or points to `length` readable bytes that stay as they are during the call.
unsafe fn bytes<'a>(pointer: *const CK_BYTE, length: CK_ULONG) -> Result<&'a [u8]> {
    match (pointer.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(BAD),
        // SAFETY: the caller of this function promises it; a length beyond isize::MAX is no buffer.
        (false, length) if length <= isize::MAX as CK_ULONG => {
            // SAFETY: as above.
            Ok(unsafe { std::slice::from_raw_parts(pointer, to_usize(length)?) })
        }
        _ => Err(BAD),
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `place` is NULL or points to a writable `T`.
unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(BAD);
    }
    // SAFETY: not NULL; the caller of this function promises the rest. Callers' structures may be packed otherwise.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// The room of an output buffer.
///
/// # Safety
/// `length` is NULL or points to a readable CK_ULONG.
unsafe fn room(out: Bytes, length: Length) -> Result<Room> {
    if length.is_null() {
        return Err(BAD);
    }
    if out.is_null() {
        return Ok(Room::Query);
    }
    // SAFETY: not NULL, and readable by this function's contract.
    Ok(Room::Bytes(to_usize(unsafe { length.read_unaligned() })?))
}

/// Hands output over by PKCS#11's rules (v3.1 section 5.2).
///
/// # Safety
/// `out` has the room that `room` told of, and `length` is writable.
unsafe fn deliver(output: Output, out: Bytes, length: Length) -> Result<()> {
    let (count, result) = match output {
        Output::Length(count) => (count, Ok(())),
        Output::TooSmall(count) => (count, Err(Rv(CKR_BUFFER_TOO_SMALL))),
        Output::Bytes(bytes) => {
            // SAFETY: Output::Bytes never exceeds the room, by Output::fit and the lengths checked before.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, bytes.len()) };
            (bytes.len(), Ok(()))
        }
    };
    // SAFETY: by this function's contract.
    unsafe { put(length, count as CK_ULONG)? };
    result
}

/// Hands a list over by the same rules: its count for NULL, CKR_BUFFER_TOO_SMALL for too little room.
///
/// # Safety
/// `list` is NULL or has room for as many items as `count` says; `count` is NULL or readable and writable.
unsafe fn deliver_list<T: Copy>(items: &[T], list: *mut T, count: Length) -> Result<()> {
    // SAFETY: by this function's contract.
    let room = unsafe { room(list.cast(), count)? };
    // SAFETY: as above.
    unsafe { put(count, items.len() as CK_ULONG)? };
    match room {
        Room::Query => Ok(()),
        Room::Bytes(space) if space < items.len() => Err(Rv(CKR_BUFFER_TOO_SMALL)),
        Room::Bytes(_) => {
            for (index, item) in items.iter().enumerate() {
                // SAFETY: within the room that was told.
                unsafe { put(list.add(index), *item)? };
            }
            Ok(())
        }
    }
}

/// Text padded with blanks, cut between characters.
fn padded<const N: usize>(text: &str) -> [CK_UTF8CHAR; N] {
    let mut end = text.len().min(N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut field = [b' '; N];
    field[..end].copy_from_slice(&text.as_bytes()[..end]);
    field
}

fn version() -> CK_VERSION {
    CK_VERSION {
        major: env!("CARGO_PKG_VERSION_MAJOR").parse().unwrap_or(0),
        minor: env!("CARGO_PKG_VERSION_MINOR").parse().unwrap_or(0),
    }
}

/// A template as the caller gave it.
///
/// # Safety
/// `list` is NULL or points to `count` attributes, each with a value of its length or NULL.
unsafe fn template(list: *const CK_ATTRIBUTE, count: CK_ULONG) -> Result<Attributes> {
    // SAFETY: by this function's contract; the nested call below has the same.
    unsafe { read_template(list, count, true) }
}

/// # Safety
/// As [`template`]; values of templates inside are lists of attributes themselves.
unsafe fn read_template(list: *const CK_ATTRIBUTE, count: CK_ULONG, nest: bool) -> Result<Attributes> {
    let count = to_usize(count)?;
    module::check_count(count)?;
    if count > 0 && list.is_null() {
        return Err(BAD);
    }
    let mut attributes = Attributes::new();
    for index in 0..count {
        // SAFETY: `index` is within the list that the caller promised.
        let raw = unsafe { list.add(index).read_unaligned() };
        let attribute = A(raw.type_);
        let length = to_usize(raw.ulValueLen).map_err(|_| Rv(CKR_ATTRIBUTE_VALUE_INVALID))?;
        let value = if attribute::shape(attribute) == Shape::Template {
            if !nest || length % size_of::<CK_ATTRIBUTE>() != 0 {
                return Err(Rv(CKR_ATTRIBUTE_VALUE_INVALID));
            }
            let inner = (length / size_of::<CK_ATTRIBUTE>()) as CK_ULONG;
            // SAFETY: such a value is a list of attributes, by PKCS#11 and this function's contract.
            V::Template(unsafe { read_template(raw.pValue.cast(), inner, false)? })
        } else {
            if length > limits::ATTRIBUTE_MAX_BYTES {
                return Err(Rv(CKR_ATTRIBUTE_VALUE_INVALID));
            }
            // SAFETY: a value of its length, by this function's contract.
            attribute::value(attribute, unsafe { bytes(raw.pValue.cast(), raw.ulValueLen)? })?
        };
        if attributes.insert(attribute, value).is_some() {
            return Err(Rv(CKR_TEMPLATE_INCONSISTENT));
        }
    }
    Ok(attributes)
}

/// Answers C_GetAttributeValue: every entry is filled before an error is told.
///
/// # Safety
/// `list` points to as many writable attributes as there are answers, each with a buffer of its length or NULL.
unsafe fn answer_attributes(
    list: *mut CK_ATTRIBUTE,
    answers: &[std::result::Result<V, Unreadable>],
) -> Result<()> {
    let mut result = Ok(());
    let mut worse = |rv| {
        if result.is_ok() {
            result = Err(Rv(rv));
        }
    };
    for (index, answer) in answers.iter().enumerate() {
        // SAFETY: one place an answer, by this function's contract.
        let place = unsafe { list.add(index) };
        // SAFETY: as above.
        let mut raw = unsafe { place.read_unaligned() };
        match answer {
            Err(Unreadable::Sensitive) => {
                raw.ulValueLen = UNAVAILABLE;
                worse(CKR_ATTRIBUTE_SENSITIVE);
            }
            Err(Unreadable::Unknown) => {
                raw.ulValueLen = UNAVAILABLE;
                worse(CKR_ATTRIBUTE_TYPE_INVALID);
            }
            Ok(V::Template(inner)) => {
                let needed = inner.len() * size_of::<CK_ATTRIBUTE>();
                if raw.pValue.is_null() {
                    raw.ulValueLen = needed as CK_ULONG;
                } else if to_usize(raw.ulValueLen)? < needed {
                    raw.ulValueLen = UNAVAILABLE;
                    worse(CKR_BUFFER_TOO_SMALL);
                } else {
                    raw.ulValueLen = needed as CK_ULONG;
                    // SAFETY: the buffer has room for a list of this length.
                    if let Err(rv) = unsafe { answer_template(raw.pValue.cast(), inner) } {
                        worse(rv.0);
                    }
                }
            }
            Ok(value) => {
                let value = attribute::bytes(value);
                if raw.pValue.is_null() {
                    raw.ulValueLen = value.len() as CK_ULONG;
                } else if to_usize(raw.ulValueLen)? < value.len() {
                    raw.ulValueLen = UNAVAILABLE;
                    worse(CKR_BUFFER_TOO_SMALL);
                } else {
                    // SAFETY: the buffer has room for the value.
                    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), raw.pValue.cast(), value.len()) };
                    raw.ulValueLen = value.len() as CK_ULONG;
                }
            }
        }
        // SAFETY: as above.
        unsafe { place.write_unaligned(raw) };
    }
    result
}

/// Fills the list that is a template's value.
///
/// # Safety
/// `list` points to as many writable attributes as the template has, each with a buffer of its length or NULL.
unsafe fn answer_template(list: *mut CK_ATTRIBUTE, inner: &Attributes) -> Result<()> {
    for (index, attribute) in inner.keys().enumerate() {
        // SAFETY: within the list, by this function's contract.
        unsafe { (&raw mut (*list.add(index)).type_).write_unaligned(attribute.0) };
    }
    let answers: Vec<_> = inner.values().cloned().map(Ok).collect();
    // SAFETY: this function's contract is that one's. Templates in templates do not occur: the domain refuses them.
    unsafe { answer_attributes(list, &answers) }
}

/// A parameter structure of exactly this size.
///
/// # Safety
/// The mechanism's parameter is NULL or points to ulParameterLen readable bytes.
unsafe fn parameter<T: Copy>(raw: &CK_MECHANISM) -> Result<T> {
    if raw.pParameter.is_null() || to_usize(raw.ulParameterLen)? != size_of::<T>() {
        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
    }
    // SAFETY: not NULL and as long as a T, which is plain data.
    Ok(unsafe { raw.pParameter.cast::<T>().read_unaligned() })
}

/// Bytes that a parameter structure points to.
///
/// # Safety
/// As [`bytes`].
unsafe fn owned(pointer: *const CK_BYTE, length: CK_ULONG) -> Result<Vec<u8>> {
    if length > limits::ATTRIBUTE_MAX_BYTES as CK_ULONG {
        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
    }
    // SAFETY: by this function's contract.
    unsafe { bytes(pointer, length) }.map(<[u8]>::to_vec).map_err(|_| Rv(CKR_MECHANISM_PARAM_INVALID))
}

/// A mechanism with its parameters, whole.
///
/// # Safety
/// `raw` is NULL or points to a mechanism whose parameter is as its number says.
unsafe fn mechanism(raw: *const CK_MECHANISM) -> Result<Mechanism> {
    if raw.is_null() {
        return Err(BAD);
    }
    // SAFETY: not NULL, and readable by this function's contract.
    let raw = unsafe { raw.read_unaligned() };
    // SAFETY: the parameter is as the mechanism's number says.
    let parameters = unsafe { parameters(&raw)? };
    Ok(Mechanism { number: raw.mechanism, parameters })
}

/// # Safety
/// The mechanism's parameter is as its number says.
unsafe fn parameters(raw: &CK_MECHANISM) -> Result<Parameters> {
    // SAFETY (all of this function): each structure is read only at its own size, and what it points to is readable by
    // this function's contract.
    Ok(match mechanism::parameter_shape(raw.mechanism) {
        ParameterShape::Bytes | ParameterShape::Eddsa if raw.ulParameterLen == 0 => Parameters::None,
        ParameterShape::Bytes => {
            // SAFETY: as above.
            Parameters::Bytes(unsafe { owned(raw.pParameter.cast(), raw.ulParameterLen)? })
        }
        ParameterShape::Pss => {
            // SAFETY: as above.
            let pss: CK_RSA_PKCS_PSS_PARAMS = unsafe { parameter(raw)? };
            Parameters::Pss { hash: pss.hashAlg, mgf: pss.mgf, salt_bytes: pss.sLen }
        }
        ParameterShape::Oaep => {
            // SAFETY: as above.
            let oaep: CK_RSA_PKCS_OAEP_PARAMS = unsafe { parameter(raw)? };
            // SAFETY: as above.
            let label = unsafe { owned(oaep.pSourceData.cast(), oaep.ulSourceDataLen)? };
            Parameters::Oaep { hash: oaep.hashAlg, mgf: oaep.mgf, label }
        }
        // SAFETY: as above.
        ParameterShape::Gcm => unsafe { gcm(raw)? },
        // SAFETY: as above.
        ParameterShape::Ccm => unsafe { ccm(raw)? },
        ParameterShape::Ctr => {
            // SAFETY: as above.
            let ctr: CK_AES_CTR_PARAMS = unsafe { parameter(raw)? };
            Parameters::Ctr { counter_bits: ctr.ulCounterBits, block: ctr.cb }
        }
        ParameterShape::Ecdh => {
            // SAFETY: as above.
            let ecdh: CK_ECDH1_DERIVE_PARAMS = unsafe { parameter(raw)? };
            // SAFETY: as above.
            let shared = unsafe { owned(ecdh.pSharedData, ecdh.ulSharedDataLen)? };
            // SAFETY: as above.
            let public = unsafe { owned(ecdh.pPublicData, ecdh.ulPublicDataLen)? };
            Parameters::Ecdh { kdf: ecdh.kdf, shared, public }
        }
        ParameterShape::Eddsa => {
            // SAFETY: as above.
            let eddsa: CK_EDDSA_PARAMS = unsafe { parameter(raw)? };
            // SAFETY: as above.
            let context = unsafe { owned(eddsa.pContextData, eddsa.ulContextDataLen)? };
            Parameters::Eddsa { prehash: eddsa.phFlag != 0, context }
        }
        // SAFETY: as above.
        ParameterShape::Hkdf => unsafe { hkdf(raw)? },
        ParameterShape::CbcEncryptData => {
            // SAFETY: as above.
            let cbc: CK_AES_CBC_ENCRYPT_DATA_PARAMS = unsafe { parameter(raw)? };
            // SAFETY: as above.
            Parameters::CbcEncryptData { iv: cbc.iv, data: unsafe { owned(cbc.pData, cbc.length)? } }
        }
        ParameterShape::StringData => {
            // SAFETY: as above.
            let string: CK_KEY_DERIVATION_STRING_DATA = unsafe { parameter(raw)? };
            // SAFETY: as above.
            Parameters::StringData(unsafe { owned(string.pData, string.ulLen)? })
        }
        // SAFETY: as above.
        ParameterShape::Number => Parameters::Number(unsafe { parameter::<CK_ULONG>(raw)? }),
        ParameterShape::RsaAesWrap => {
            // SAFETY: as above.
            let wrap: CK_RSA_AES_KEY_WRAP_PARAMS = unsafe { parameter(raw)? };
            if wrap.pOAEPParams.is_null() {
                return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
            }
            // SAFETY: not NULL, and readable by this function's contract.
            let oaep = unsafe { wrap.pOAEPParams.read_unaligned() };
            // SAFETY: as above.
            let label = unsafe { owned(oaep.pSourceData.cast(), oaep.ulSourceDataLen)? };
            Parameters::RsaAesWrap { aes_bits: wrap.ulAESKeyBits, hash: oaep.hashAlg, mgf: oaep.mgf, label }
        }
    })
}

/// # Safety
/// As [`parameters`].
unsafe fn gcm(raw: &CK_MECHANISM) -> Result<Parameters> {
    // SAFETY: read at its own size.
    let gcm: CK_GCM_PARAMS = unsafe { parameter(raw)? };
    // SAFETY: readable by this function's contract.
    let iv = unsafe { owned(gcm.pIv, gcm.ulIvLen)? };
    // SAFETY: as above.
    let aad = unsafe { owned(gcm.pAAD, gcm.ulAADLen)? };
    Ok(Parameters::Gcm { iv, aad, tag_bits: gcm.ulTagBits })
}

/// # Safety
/// As [`parameters`].
unsafe fn ccm(raw: &CK_MECHANISM) -> Result<Parameters> {
    // SAFETY: read at its own size.
    let ccm: CK_CCM_PARAMS = unsafe { parameter(raw)? };
    // SAFETY: readable by this function's contract.
    let nonce = unsafe { owned(ccm.pNonce, ccm.ulNonceLen)? };
    // SAFETY: as above.
    let aad = unsafe { owned(ccm.pAAD, ccm.ulAADLen)? };
    Ok(Parameters::Ccm { data_bytes: ccm.ulDataLen, nonce, aad, mac_bytes: ccm.ulMACLen })
}

/// # Safety
/// As [`parameters`].
unsafe fn hkdf(raw: &CK_MECHANISM) -> Result<Parameters> {
    // SAFETY: read at its own size.
    let hkdf: CK_HKDF_PARAMS = unsafe { parameter(raw)? };
    let salt = match hkdf.ulSaltType {
        CKF_HKDF_SALT_NULL => None,
        // SAFETY: readable by this function's contract.
        CKF_HKDF_SALT_DATA => Some(unsafe { owned(hkdf.pSalt, hkdf.ulSaltLen)? }),
        // A salt that is a key would have to be one on every member: not offered.
        _ => return Err(Rv(CKR_MECHANISM_PARAM_INVALID)),
    };
    // SAFETY: as above.
    let info = unsafe { owned(hkdf.pInfo, hkdf.ulInfoLen)? };
    let (extract, expand) = (hkdf.bExtract != 0, hkdf.bExpand != 0);
    Ok(Parameters::Hkdf { extract, expand, hash: hkdf.prfHashMechanism, salt, info })
}

// ---- general ----

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Initialize(args: *mut c_void) -> CK_RV {
    guard(|| {
        if process::current().is_ok() {
            return Err(Rv(CKR_CRYPTOKI_ALREADY_INITIALIZED));
        }
        if !args.is_null() {
            // SAFETY: by PKCS#11 this is NULL or a CK_C_INITIALIZE_ARGS.
            let args = unsafe { args.cast::<CK_C_INITIALIZE_ARGS>().read_unaligned() };
            let mutexes = [
                args.CreateMutex.is_some(),
                args.DestroyMutex.is_some(),
                args.LockMutex.is_some(),
                args.UnlockMutex.is_some(),
            ];
            let some = mutexes.iter().any(|there| *there);
            if !args.pReserved.is_null() || (some && !mutexes.iter().all(|there| *there)) {
                return Err(BAD);
            }
            // This module locks by the system's means and starts no threads; foreign mutexes alone it cannot use.
            if some && args.flags & CKF_OS_LOCKING_OK == 0 {
                return Err(Rv(CKR_CANT_LOCK));
            }
        }
        process::initialize()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Finalize(reserved: *mut c_void) -> CK_RV {
    guard(|| {
        process::current()?;
        if !reserved.is_null() {
            return Err(BAD);
        }
        process::finalize()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetInfo(info: *mut CK_INFO) -> CK_RV {
    within(|_| {
        let told = CK_INFO {
            cryptokiVersion: VERSION_3_0,
            manufacturerID: padded("keyraft"),
            flags: 0,
            libraryDescription: padded("keyraft virtual slot"),
            libraryVersion: version(),
        };
        // SAFETY: by PKCS#11 a place for a CK_INFO, or NULL.
        unsafe { put(info, told) }
    })
}

/// The door to all others, which are found by their names as well: some programs look for nothing else.
///
/// # Safety
/// `list` is NULL or a place for a pointer (PKCS#11 v3.1 section 5.4.4).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn C_GetFunctionList(list: *mut *mut CK_FUNCTION_LIST) -> CK_RV {
    // SAFETY: by this function's contract. The list is constant; PKCS#11's type merely lacks the word.
    guard(|| unsafe { put(list, (&raw const LIST_2_40).cast_mut()) })
}

/// The interfaces that this module offers.
///
/// # Safety
/// `list` is NULL or has room for `count` interfaces; `count` is NULL or readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn C_GetInterfaceList(list: *mut CK_INTERFACE, count: Length) -> CK_RV {
    guard(|| {
        // SAFETY: by PKCS#11 a list with its room, or NULL.
        unsafe { deliver_list(&INTERFACES.0, list, count) }
    })
}

/// One interface, by name, version and flags; NULL and 0 stand for any.
///
/// # Safety
/// `name` is NULL or a C string; `version` is NULL or readable; `interface` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn C_GetInterface(
    name: *mut CK_UTF8CHAR,
    version: *mut CK_VERSION,
    interface: *mut *mut CK_INTERFACE,
    flags: CK_FLAGS,
) -> CK_RV {
    guard(|| {
        // SAFETY: a C string by this function's contract.
        if !name.is_null() && unsafe { std::ffi::CStr::from_ptr(name.cast()) } != NAME {
            return Err(Rv(CKR_FUNCTION_FAILED));
        }
        // SAFETY: readable by this function's contract.
        let version = (!version.is_null()).then(|| unsafe { version.read_unaligned() });
        let wanted = |offered: &CK_VERSION| {
            version.is_none_or(|wanted| (wanted.major, wanted.minor) == (offered.major, offered.minor))
        };
        let versions = [VERSION_3_0, VERSION_2_40];
        let found = versions.iter().position(wanted).filter(|_| flags & !CKF_INTERFACE_FORK_SAFE == 0);
        let found = found.ok_or(Rv(CKR_FUNCTION_FAILED))?;
        // SAFETY: by this function's contract. The interface is constant.
        unsafe { put(interface, (&raw const INTERFACES.0[found]).cast_mut()) }
    })
}

// ---- slots and tokens ----

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetSlotList(present: CK_BBOOL, list: *mut CK_SLOT_ID, count: Length) -> CK_RV {
    within(|module| {
        let slots = module.slots(present != CK_FALSE);
        // SAFETY: by PKCS#11 a list with its room, or NULL.
        unsafe { deliver_list(&slots, list, count) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetSlotInfo(slot: CK_SLOT_ID, info: *mut CK_SLOT_INFO) -> CK_RV {
    within(|module| {
        let slot = module.slot(slot)?;
        let present = if slot.is_present() { CKF_TOKEN_PRESENT } else { 0 };
        let told = CK_SLOT_INFO {
            slotDescription: padded(&slot.description()),
            manufacturerID: padded("keyraft"),
            flags: present | if slot.own.is_some() { CKF_REMOVABLE_DEVICE } else { 0 },
            hardwareVersion: version(),
            firmwareVersion: version(),
        };
        // SAFETY: by PKCS#11 a place for a CK_SLOT_INFO, or NULL.
        unsafe { put(info, told) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetTokenInfo(id: CK_SLOT_ID, info: *mut CK_TOKEN_INFO) -> CK_RV {
    within(|module| {
        let slot = module.slot(id)?;
        slot.must_be_present()?;
        let known = slot.learn()?;
        let (user, so) = (known.info.user_pin, known.info.so_pin);
        let mut flags = CKF_RNG | CKF_LOGIN_REQUIRED | CKF_TOKEN_INITIALIZED | CKF_DUAL_CRYPTO_OPERATIONS;
        let mut told = |condition, flag| {
            if condition {
                flags |= flag;
            }
        };
        told(user.set, CKF_USER_PIN_INITIALIZED);
        told(user.tries > 0, CKF_USER_PIN_COUNT_LOW);
        told(user.tries + 1 == user.tries_max, CKF_USER_PIN_FINAL_TRY);
        told(user.tries >= user.tries_max, CKF_USER_PIN_LOCKED);
        told(so.tries > 0, CKF_SO_PIN_COUNT_LOW);
        told(so.tries + 1 == so.tries_max, CKF_SO_PIN_FINAL_TRY);
        told(so.tries >= so.tries_max, CKF_SO_PIN_LOCKED);
        let (sessions, read_write) = module.session_counts(id);
        let told = CK_TOKEN_INFO {
            label: padded(&known.label()),
            manufacturerID: padded("keyraft"),
            model: padded(if slot.own.is_some() { "member" } else { "virtual slot" }),
            serialNumber: padded(&known.serial()),
            flags,
            ulMaxSessionCount: CK_EFFECTIVELY_INFINITE,
            ulSessionCount: sessions,
            ulMaxRwSessionCount: CK_EFFECTIVELY_INFINITE,
            ulRwSessionCount: read_write,
            ulMaxPinLen: limits::PIN_MAX_BYTES as CK_ULONG,
            ulMinPinLen: limits::PIN_MIN_BYTES as CK_ULONG,
            ulTotalPublicMemory: UNAVAILABLE,
            ulFreePublicMemory: UNAVAILABLE,
            ulTotalPrivateMemory: UNAVAILABLE,
            ulFreePrivateMemory: UNAVAILABLE,
            hardwareVersion: version(),
            firmwareVersion: version(),
            utcTime: padded(""),
        };
        // SAFETY: by PKCS#11 a place for a CK_TOKEN_INFO, or NULL.
        unsafe { put(info, told) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_WaitForSlotEvent(
    flags: CK_FLAGS,
    slot: *mut CK_SLOT_ID,
    reserved: *mut c_void,
) -> CK_RV {
    // The tokens of groups never come or go, those of members' own slots do.
    within(|module| match flags & CKF_DONT_BLOCK {
        _ if !reserved.is_null() => Err(BAD),
        0 => Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)),
        _ => {
            // Before the event is taken: whoever cannot be told must not use it up.
            if slot.is_null() {
                return Err(BAD);
            }
            let turned = module.turned().ok_or(Rv(CKR_NO_EVENT))?;
            // SAFETY: by PKCS#11 a place for a slot's id, or NULL.
            unsafe { put(slot, turned) }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetMechanismList(
    slot: CK_SLOT_ID,
    list: *mut CK_MECHANISM_TYPE,
    count: Length,
) -> CK_RV {
    within(|module| {
        let known = module.slot(slot)?.known()?;
        let numbers: Vec<_> = known.mechanisms.iter().map(|info| info.number).collect();
        // SAFETY: by PKCS#11 a list with its room, or NULL.
        unsafe { deliver_list(&numbers, list, count) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetMechanismInfo(
    slot: CK_SLOT_ID,
    number: CK_MECHANISM_TYPE,
    info: *mut CK_MECHANISM_INFO,
) -> CK_RV {
    within(|module| {
        let known = module.slot(slot)?.known()?;
        let found = known.mechanism(number).ok_or(Rv(CKR_MECHANISM_INVALID))?;
        let told = CK_MECHANISM_INFO {
            ulMinKeySize: found.min_key,
            ulMaxKeySize: found.max_key,
            flags: found.flags,
        };
        // SAFETY: by PKCS#11 a place for a CK_MECHANISM_INFO, or NULL.
        unsafe { put(info, told) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_InitToken(slot: CK_SLOT_ID, pin: Bytes, length: CK_ULONG, _label: Bytes) -> CK_RV {
    // The label is the group's, and stays.
    // SAFETY: by PKCS#11 a PIN of its length, or NULL.
    within(|module| module.init_token(slot, unsafe { bytes(pin, length)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_InitPIN(session: SessionHandle, pin: Bytes, length: CK_ULONG) -> CK_RV {
    // SAFETY: by PKCS#11 a PIN of its length, or NULL.
    in_session(session, |session| module::init_pin(session, unsafe { bytes(pin, length)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SetPIN(
    session: SessionHandle,
    old: Bytes,
    old_length: CK_ULONG,
    new: Bytes,
    new_length: CK_ULONG,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 PINs of their lengths, or NULL.
        module::set_pin(session, unsafe { bytes(old, old_length)? }, unsafe { bytes(new, new_length)? })
    })
}

// ---- sessions ----

#[unsafe(no_mangle)]
unsafe extern "C" fn C_OpenSession(
    slot: CK_SLOT_ID,
    flags: CK_FLAGS,
    _application: *mut c_void,
    _notify: CK_NOTIFY,
    handle: *mut SessionHandle,
) -> CK_RV {
    within(|module| {
        module.slot(slot)?;
        if flags & CKF_SERIAL_SESSION == 0 {
            return Err(Rv(CKR_SESSION_PARALLEL_NOT_SUPPORTED));
        }
        if handle.is_null() {
            return Err(BAD);
        }
        let opened = module.open_session(slot, flags & CKF_RW_SESSION != 0)?;
        // SAFETY: not NULL; by PKCS#11 a place for a handle.
        unsafe { put(handle, opened) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_CloseSession(session: SessionHandle) -> CK_RV {
    within(|module| module.close_session(session))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_CloseAllSessions(slot: CK_SLOT_ID) -> CK_RV {
    within(|module| module.close_all(slot))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetSessionInfo(session: SessionHandle, info: *mut CK_SESSION_INFO) -> CK_RV {
    in_session(session, |session| {
        let read_write = if session.read_write { CKF_RW_SESSION } else { 0 };
        let told = CK_SESSION_INFO {
            slotID: session.slot.id,
            state: session.state(),
            flags: CKF_SERIAL_SESSION | read_write,
            ulDeviceError: 0,
        };
        // SAFETY: by PKCS#11 a place for a CK_SESSION_INFO, or NULL.
        unsafe { put(info, told) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetOperationState(session: SessionHandle, state: Bytes, length: Length) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a buffer of its length, or NULL.
        let output = module::save_state(session, unsafe { room(state, length)? })?;
        // SAFETY: as above.
        unsafe { deliver(output, state, length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SetOperationState(
    session: SessionHandle,
    state: Bytes,
    length: CK_ULONG,
    encryption_key: CK_OBJECT_HANDLE,
    authentication_key: CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a state of its length, or NULL.
        let state = unsafe { bytes(state, length)? };
        module::restore_state(session, state, [encryption_key, authentication_key])
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Login(
    session: SessionHandle,
    user: CK_USER_TYPE,
    pin: Bytes,
    length: CK_ULONG,
) -> CK_RV {
    guard(|| {
        let module = process::current()?;
        let session = module.session(session)?;
        // SAFETY: by PKCS#11 a PIN of its length, or NULL.
        let pin = unsafe { bytes(pin, length)? };
        match user {
            CKU_USER => module.login(&session, Role::User, pin),
            CKU_SO => module.login(&session, Role::SecurityOfficer, pin),
            CKU_CONTEXT_SPECIFIC => {
                session.slot.prove(Role::User, pin)?;
                session.authenticate()
            }
            _ => Err(Rv(CKR_USER_TYPE_INVALID)),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_LoginUser(
    session: SessionHandle,
    user: CK_USER_TYPE,
    pin: Bytes,
    length: CK_ULONG,
    _name: Bytes,
    name_length: CK_ULONG,
) -> CK_RV {
    if name_length != 0 {
        // A group has one user and one security officer, without names.
        return in_session(session, |_| Err(Rv(CKR_USER_TYPE_INVALID)));
    }
    // SAFETY: this function's arguments are that one's.
    unsafe { C_Login(session, user, pin, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Logout(session: SessionHandle) -> CK_RV {
    in_session(session, |session| session.slot.logout())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SessionCancel(session: SessionHandle, flags: CK_FLAGS) -> CK_RV {
    in_session(session, |session| {
        if flags & (CKF_ENCRYPT | CKF_DECRYPT) != 0 {
            session.cancel(Side::Cipher);
        }
        if flags & (CKF_SIGN | CKF_VERIFY | CKF_SIGN_RECOVER | CKF_VERIFY_RECOVER | CKF_DIGEST) != 0 {
            session.cancel(Side::Hash);
        }
        for (flag, kind) in [
            (CKF_MESSAGE_ENCRYPT, Kind::Encrypt),
            (CKF_MESSAGE_DECRYPT, Kind::Decrypt),
            (CKF_MESSAGE_SIGN, Kind::Sign),
            (CKF_MESSAGE_VERIFY, Kind::Verify),
        ] {
            if flags & flag != 0 && session.messages(kind).is_ok() {
                session.end_messages(kind)?;
            }
        }
        if flags & CKF_FIND_OBJECTS != 0 && session.is_searching() {
            module::find_final(session)?;
        }
        Ok(())
    })
}

// ---- objects ----

#[unsafe(no_mangle)]
unsafe extern "C" fn C_CreateObject(
    session: SessionHandle,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
    object: *mut CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        if object.is_null() {
            return Err(BAD);
        }
        // SAFETY: by PKCS#11 a template of its length, or NULL.
        let made = make::create_object(session, &unsafe { template(list, count)? })?;
        // SAFETY: not NULL; a place for a handle.
        unsafe { put(object, made) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_CopyObject(
    session: SessionHandle,
    of: CK_OBJECT_HANDLE,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
    object: *mut CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        if object.is_null() {
            return Err(BAD);
        }
        // SAFETY: by PKCS#11 a template of its length, or NULL.
        let made = make::copy_object(session, of, &unsafe { template(list, count)? })?;
        // SAFETY: not NULL; a place for a handle.
        unsafe { put(object, made) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DestroyObject(session: SessionHandle, object: CK_OBJECT_HANDLE) -> CK_RV {
    in_session(session, |session| module::destroy_object(session, object))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetObjectSize(
    session: SessionHandle,
    object: CK_OBJECT_HANDLE,
    size: Length,
) -> CK_RV {
    in_session(session, |session| {
        let told = module::object_size(session, object)?;
        // SAFETY: by PKCS#11 a place for a CK_ULONG, or NULL.
        unsafe { put(size, told) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetAttributeValue(
    session: SessionHandle,
    object: CK_OBJECT_HANDLE,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
) -> CK_RV {
    in_session(session, |session| {
        let count = to_usize(count)?;
        module::check_count(count)?;
        if list.is_null() {
            return Err(BAD);
        }
        // SAFETY: by PKCS#11 a list of its length.
        let wanted = (0..count).map(|index| A(unsafe { list.add(index).read_unaligned() }.type_));
        let answers = module::read_attributes(session, object, &wanted.collect::<Vec<_>>())?;
        // SAFETY: as above, with buffers of their lengths or NULL.
        unsafe { answer_attributes(list, &answers) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SetAttributeValue(
    session: SessionHandle,
    object: CK_OBJECT_HANDLE,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
) -> CK_RV {
    // SAFETY: by PKCS#11 a template of its length, or NULL.
    in_session(session, |session| module::set_attributes(session, object, &unsafe { template(list, count)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_FindObjectsInit(
    session: SessionHandle,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
) -> CK_RV {
    // SAFETY: by PKCS#11 a template of its length, or NULL.
    in_session(session, |session| module::find_init(session, unsafe { template(list, count)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_FindObjects(
    session: SessionHandle,
    list: *mut CK_OBJECT_HANDLE,
    most: CK_ULONG,
    count: Length,
) -> CK_RV {
    in_session(session, |session| {
        if count.is_null() || (list.is_null() && most > 0) {
            return Err(BAD);
        }
        let found = module::find(session, to_usize(most)?)?;
        for (index, handle) in found.iter().enumerate() {
            // SAFETY: at most `most` handles, for which the list has room.
            unsafe { put(list.add(index), *handle)? };
        }
        // SAFETY: not NULL; a place for a count.
        unsafe { put(count, found.len() as CK_ULONG) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_FindObjectsFinal(session: SessionHandle) -> CK_RV {
    in_session(session, module::find_final)
}

// ---- operations ----

/// C_SignInit and its kin. By PKCS#11 v3.0 a NULL mechanism ends what is under way.
///
/// # Safety
/// As [`mechanism`].
unsafe fn begin(session: SessionHandle, kind: Kind, raw: *mut CK_MECHANISM, key: CK_OBJECT_HANDLE) -> CK_RV {
    in_session(session, |session| {
        if raw.is_null() {
            // Only what is of this kind: a digest or a verification beside it goes on.
            return module::cancel(session, kind);
        }
        // SAFETY: by this function's contract.
        module::begin(session, kind, unsafe { mechanism(raw)? }, key)
    })
}

/// C_Sign and its kin.
///
/// # Safety
/// As [`bytes`] for the data, and as [`deliver`] for the output.
unsafe fn single(
    session: SessionHandle,
    kind: Kind,
    (data, data_length): (Bytes, CK_ULONG),
    (out, out_length): (Bytes, Length),
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by this function's contract.
        let (data, room) = unsafe { (bytes(data, data_length)?, room(out, out_length)?) };
        let output = module::single(session, kind, data, room)?;
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

/// C_EncryptUpdate and C_DecryptUpdate, with what the dual functions do before (to the input) or after (to the output).
///
/// # Safety
/// As [`single`].
unsafe fn update_cipher(
    session: SessionHandle,
    kind: Kind,
    (data, data_length): (Bytes, CK_ULONG),
    (out, out_length): (Bytes, Length),
    beside: impl FnOnce(&Session, &[u8], &[u8]) -> Result<()>,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by this function's contract.
        let (data, room) = unsafe { (bytes(data, data_length)?, room(out, out_length)?) };
        let output = module::update_cipher(session, kind, data, room)?;
        if let Output::Bytes(bytes) = &output {
            beside(session, data, bytes)?;
        }
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

/// C_SignFinal and its kin.
///
/// # Safety
/// As [`deliver`].
unsafe fn finish(session: SessionHandle, kind: Kind, out: Bytes, out_length: Length) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by this function's contract.
        let room = unsafe { room(out, out_length)? };
        let output = module::finish(session, kind, room)?;
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

/// C_SignUpdate and C_VerifyUpdate.
///
/// # Safety
/// As [`bytes`].
unsafe fn update(session: SessionHandle, kind: Kind, part: Bytes, length: CK_ULONG) -> CK_RV {
    // SAFETY: by this function's contract.
    in_session(session, |session| module::update(session, kind, unsafe { bytes(part, length)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_EncryptInit(
    session: SessionHandle,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin(session, Kind::Encrypt, mechanism, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptInit(
    session: SessionHandle,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin(session, Kind::Decrypt, mechanism, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignInit(
    session: SessionHandle,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin(session, Kind::Sign, mechanism, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignRecoverInit(
    session: SessionHandle,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin(session, Kind::SignRecover, mechanism, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyInit(
    session: SessionHandle,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin(session, Kind::Verify, mechanism, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyRecoverInit(
    session: SessionHandle,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin(session, Kind::VerifyRecover, mechanism, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Encrypt(
    session: SessionHandle,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { single(session, Kind::Encrypt, (data, length), (out, out_length)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Decrypt(
    session: SessionHandle,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { single(session, Kind::Decrypt, (data, length), (out, out_length)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Sign(
    session: SessionHandle,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { single(session, Kind::Sign, (data, length), (out, out_length)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignRecover(
    session: SessionHandle,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { single(session, Kind::SignRecover, (data, length), (out, out_length)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyRecover(
    session: SessionHandle,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { single(session, Kind::VerifyRecover, (data, length), (out, out_length)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_EncryptUpdate(
    session: SessionHandle,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { update_cipher(session, Kind::Encrypt, (part, length), (out, out_length), |_, _, _| Ok(())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptUpdate(
    session: SessionHandle,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { update_cipher(session, Kind::Decrypt, (part, length), (out, out_length), |_, _, _| Ok(())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_EncryptFinal(session: SessionHandle, out: Bytes, out_length: Length) -> CK_RV {
    // SAFETY: by PKCS#11 a buffer of its length, or NULL.
    unsafe { finish(session, Kind::Encrypt, out, out_length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptFinal(session: SessionHandle, out: Bytes, out_length: Length) -> CK_RV {
    // SAFETY: by PKCS#11 a buffer of its length, or NULL.
    unsafe { finish(session, Kind::Decrypt, out, out_length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignFinal(session: SessionHandle, out: Bytes, out_length: Length) -> CK_RV {
    // SAFETY: by PKCS#11 a buffer of its length, or NULL.
    unsafe { finish(session, Kind::Sign, out, out_length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignUpdate(session: SessionHandle, part: Bytes, length: CK_ULONG) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, or NULL.
    unsafe { update(session, Kind::Sign, part, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyUpdate(session: SessionHandle, part: Bytes, length: CK_ULONG) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, or NULL.
    unsafe { update(session, Kind::Verify, part, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Verify(
    session: SessionHandle,
    data: Bytes,
    length: CK_ULONG,
    signature: Bytes,
    signature_length: CK_ULONG,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 data and signature of their lengths, or NULL.
        let (data, signature) = unsafe { (bytes(data, length)?, bytes(signature, signature_length)?) };
        module::verify(session, data, signature)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyFinal(session: SessionHandle, signature: Bytes, length: CK_ULONG) -> CK_RV {
    // SAFETY: by PKCS#11 a signature of its length, or NULL.
    in_session(session, |session| module::finish_verify(session, unsafe { bytes(signature, length)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DigestInit(session: SessionHandle, raw: *mut CK_MECHANISM) -> CK_RV {
    in_session(session, |session| {
        if raw.is_null() {
            session.cancel(Side::Hash);
            return Ok(());
        }
        // SAFETY: by PKCS#11 a mechanism as its number says.
        module::digest_init(session, &unsafe { mechanism(raw)? })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_Digest(
    session: SessionHandle,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
        let (data, room) = unsafe { (bytes(data, length)?, room(out, out_length)?) };
        let output = module::digest_end(session, Some(data), room)?;
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DigestUpdate(session: SessionHandle, part: Bytes, length: CK_ULONG) -> CK_RV {
    // SAFETY: by PKCS#11 data of its length, or NULL.
    in_session(session, |session| module::digest_update(session, unsafe { bytes(part, length)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DigestKey(session: SessionHandle, key: CK_OBJECT_HANDLE) -> CK_RV {
    in_session(session, |session| module::digest_key(session, key))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DigestFinal(session: SessionHandle, out: Bytes, out_length: Length) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a buffer of its length, or NULL.
        let output = module::digest_end(session, None, unsafe { room(out, out_length)? })?;
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DigestEncryptUpdate(
    session: SessionHandle,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    let digest = |session: &Session, clear: &[u8], _: &[u8]| module::digest_update(session, clear);
    // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
    unsafe { update_cipher(session, Kind::Encrypt, (part, length), (out, out_length), digest) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptDigestUpdate(
    session: SessionHandle,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    let digest = |session: &Session, _: &[u8], clear: &[u8]| module::digest_update(session, clear);
    // SAFETY: as C_DigestEncryptUpdate.
    unsafe { update_cipher(session, Kind::Decrypt, (part, length), (out, out_length), digest) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignEncryptUpdate(
    session: SessionHandle,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    let sign = |session: &Session, clear: &[u8], _: &[u8]| module::update(session, Kind::Sign, clear);
    // SAFETY: as C_DigestEncryptUpdate.
    unsafe { update_cipher(session, Kind::Encrypt, (part, length), (out, out_length), sign) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptVerifyUpdate(
    session: SessionHandle,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    let verify = |session: &Session, _: &[u8], clear: &[u8]| module::update(session, Kind::Verify, clear);
    // SAFETY: as C_DigestEncryptUpdate.
    unsafe { update_cipher(session, Kind::Decrypt, (part, length), (out, out_length), verify) }
}

// ---- keys ----

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GenerateKey(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
    key: *mut CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        if key.is_null() {
            return Err(BAD);
        }
        // SAFETY: by PKCS#11 a mechanism as its number says, and a template of its length.
        let (mechanism, template) = unsafe { (mechanism(raw)?, template(list, count)?) };
        let made = make::generate_key(session, &mechanism, &template)?;
        // SAFETY: not NULL; a place for a handle.
        unsafe { put(key, made) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GenerateKeyPair(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    publics: *mut CK_ATTRIBUTE,
    public_count: CK_ULONG,
    privates: *mut CK_ATTRIBUTE,
    private_count: CK_ULONG,
    public: *mut CK_OBJECT_HANDLE,
    private: *mut CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        if public.is_null() || private.is_null() {
            return Err(BAD);
        }
        // SAFETY: by PKCS#11 a mechanism as its number says, and templates of their lengths.
        let (mechanism, publics, privates) = unsafe {
            (mechanism(raw)?, template(publics, public_count)?, template(privates, private_count)?)
        };
        let made = make::generate_pair(session, &mechanism, &publics, &privates)?;
        // SAFETY: not NULL; places for handles.
        unsafe {
            put(public, made.0)?;
            put(private, made.1)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_WrapKey(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    wrapping: CK_OBJECT_HANDLE,
    key: CK_OBJECT_HANDLE,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a mechanism as its number says, and a buffer of its length, or NULL.
        let (mechanism, room) = unsafe { (mechanism(raw)?, room(out, out_length)?) };
        let output = module::wrap_key(session, &mechanism, wrapping, key, room)?;
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_UnwrapKey(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    unwrapping: CK_OBJECT_HANDLE,
    wrapped: Bytes,
    wrapped_length: CK_ULONG,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
    key: *mut CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        if key.is_null() {
            return Err(BAD);
        }
        // SAFETY: by PKCS#11 a mechanism as its number says, a blob and a template of their lengths.
        let (mechanism, wrapped, template) =
            unsafe { (mechanism(raw)?, bytes(wrapped, wrapped_length)?, template(list, count)?) };
        if wrapped.is_empty() || wrapped.len() > limits::WRAPPED_KEY_MAX_BYTES {
            return Err(Rv(CKR_WRAPPED_KEY_LEN_RANGE));
        }
        let made = make::unwrap_key(session, &mechanism, unwrapping, wrapped, &template)?;
        // SAFETY: not NULL; a place for a handle.
        unsafe { put(key, made) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DeriveKey(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    base: CK_OBJECT_HANDLE,
    list: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
    key: *mut CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        if key.is_null() {
            return Err(BAD);
        }
        // SAFETY: by PKCS#11 a mechanism as its number says, and a template of its length.
        let (mechanism, template) = unsafe { (mechanism(raw)?, template(list, count)?) };
        let made = make::derive_key(session, &mechanism, base, &template)?;
        // SAFETY: not NULL; a place for a handle.
        unsafe { put(key, made) }
    })
}

// ---- random, and what is left of parallel functions ----

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SeedRandom(session: SessionHandle, _seed: Bytes, _length: CK_ULONG) -> CK_RV {
    // Tokens seed themselves; a seed is taken and not needed.
    in_session(session, |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GenerateRandom(session: SessionHandle, out: Bytes, length: CK_ULONG) -> CK_RV {
    in_session(session, |session| {
        if out.is_null() {
            return Err(BAD);
        }
        let random = module::random(session, to_usize(length)?)?;
        // SAFETY: not NULL; by PKCS#11 a buffer of this length.
        unsafe { std::ptr::copy_nonoverlapping(random.as_ptr(), out, random.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_GetFunctionStatus(_session: SessionHandle) -> CK_RV {
    within(|_| Err(Rv(CKR_FUNCTION_NOT_PARALLEL)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_CancelFunction(_session: SessionHandle) -> CK_RV {
    within(|_| Err(Rv(CKR_FUNCTION_NOT_PARALLEL)))
}

// ---- messages ----

/// C_MessageEncryptInit and its kin. A NULL mechanism ends what is under way.
///
/// # Safety
/// As [`mechanism`]; GCM's own parameter comes with each message.
unsafe fn begin_messages(
    session: SessionHandle,
    kind: Kind,
    raw: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    in_session(session, |session| {
        if raw.is_null() {
            return session.end_messages(kind);
        }
        // SAFETY: not NULL, and readable by this function's contract.
        let number = unsafe { (*raw).mechanism };
        let mechanism = if matches!(kind, Kind::Encrypt | Kind::Decrypt) {
            Mechanism::plain(number)
        } else {
            // SAFETY: by this function's contract.
            unsafe { mechanism(raw)? }
        };
        message::begin(session, kind, mechanism, key)
    })
}

/// What a message's parameter says, as its caller laid it out.
///
/// # Safety
/// `parameter` is NULL or points to `length` readable bytes; a CK_GCM_MESSAGE_PARAMS points to an IV of its length.
unsafe fn gcm_message(
    parameter: *mut c_void,
    length: CK_ULONG,
) -> Result<(CK_GCM_MESSAGE_PARAMS, message::Gcm)> {
    if parameter.is_null() || to_usize(length)? != size_of::<CK_GCM_MESSAGE_PARAMS>() {
        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
    }
    // SAFETY: not NULL, and of this size.
    let raw = unsafe { parameter.cast::<CK_GCM_MESSAGE_PARAMS>().read_unaligned() };
    // SAFETY: by this function's contract.
    let iv = unsafe { owned(raw.pIv, raw.ulIvLen)? };
    if iv.is_empty() || raw.pTag.is_null() {
        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
    }
    let gcm = message::Gcm { iv, tag_bits: raw.ulTagBits };
    Ok((raw, gcm))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageEncryptInit(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin_messages(session, Kind::Encrypt, raw, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_EncryptMessage(
    session: SessionHandle,
    parameter: *mut c_void,
    parameter_length: CK_ULONG,
    aad: Bytes,
    aad_length: CK_ULONG,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a CK_GCM_MESSAGE_PARAMS, data of its lengths, and a buffer of its own, or NULL.
        let ((raw, mut gcm), aad, data, room) = unsafe {
            let gcm = gcm_message(parameter, parameter_length)?;
            (gcm, bytes(aad, aad_length)?, bytes(data, length)?, room(out, out_length)?)
        };
        if let Some(told) = told(data.len(), room) {
            // SAFETY: as above.
            return unsafe { deliver(told, out, out_length) };
        }
        fill_iv(session, &raw, &mut gcm)?;
        let sealed = message::encrypt(session, &gcm, aad, data)?;
        // SAFETY: the IV has its length, and pTag has room for the tag, by PKCS#11.
        unsafe {
            std::ptr::copy_nonoverlapping(gcm.iv.as_ptr(), raw.pIv, gcm.iv.len());
            std::ptr::copy_nonoverlapping(sealed.tag.as_ptr(), raw.pTag, sealed.tag.len());
        }
        // SAFETY: the room was checked above.
        unsafe { deliver(Output::Bytes(sealed.ciphertext.into()), out, out_length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageEncryptFinal(session: SessionHandle) -> CK_RV {
    in_session(session, |session| session.end_messages(Kind::Encrypt))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageDecryptInit(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin_messages(session, Kind::Decrypt, raw, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptMessage(
    session: SessionHandle,
    parameter: *mut c_void,
    parameter_length: CK_ULONG,
    aad: Bytes,
    aad_length: CK_ULONG,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a CK_GCM_MESSAGE_PARAMS, data of its lengths, and a buffer of its own, or NULL.
        let ((raw, gcm), aad, data, room) = unsafe {
            let gcm = gcm_message(parameter, parameter_length)?;
            (gcm, bytes(aad, aad_length)?, bytes(data, length)?, room(out, out_length)?)
        };
        if let Some(told) = told(data.len(), room) {
            // SAFETY: as above.
            return unsafe { deliver(told, out, out_length) };
        }
        // SAFETY: by PKCS#11 pTag holds a tag of ulTagBits.
        let tag = unsafe { owned(raw.pTag, raw.ulTagBits.div_ceil(8))? };
        let clear = message::decrypt(session, &gcm, aad, data, &tag)?;
        if clear.len() > data.len() {
            return Err(Rv(CKR_DEVICE_ERROR));
        }
        // SAFETY: no longer than the ciphertext, for which there is room.
        unsafe { deliver(Output::Bytes(clear), out, out_length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageDecryptFinal(session: SessionHandle) -> CK_RV {
    in_session(session, |session| session.end_messages(Kind::Decrypt))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageSignInit(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin_messages(session, Kind::Sign, raw, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignMessage(
    session: SessionHandle,
    _parameter: *mut c_void,
    parameter_length: CK_ULONG,
    data: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    in_session(session, |session| {
        if parameter_length != 0 {
            return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
        }
        // SAFETY: by PKCS#11 data of its length, and a buffer of its own, or NULL.
        let (data, room) = unsafe { (bytes(data, length)?, room(out, out_length)?) };
        let signature = message::sign(session, data)?;
        let (Ok(output) | Err((output, _))) = Output::fit(signature, room);
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageSignFinal(session: SessionHandle) -> CK_RV {
    in_session(session, |session| session.end_messages(Kind::Sign))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageVerifyInit(
    session: SessionHandle,
    raw: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    // SAFETY: by PKCS#11 a mechanism as its number says, or NULL.
    unsafe { begin_messages(session, Kind::Verify, raw, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyMessage(
    session: SessionHandle,
    _parameter: *mut c_void,
    parameter_length: CK_ULONG,
    data: Bytes,
    length: CK_ULONG,
    signature: Bytes,
    signature_length: CK_ULONG,
) -> CK_RV {
    in_session(session, |session| {
        if parameter_length != 0 {
            return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
        }
        // SAFETY: by PKCS#11 data and signature of their lengths, or NULL.
        let (data, signature) = unsafe { (bytes(data, length)?, bytes(signature, signature_length)?) };
        message::verify(session, data, signature)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_MessageVerifyFinal(session: SessionHandle) -> CK_RV {
    in_session(session, |session| session.end_messages(Kind::Verify))
}

// ---- messages in parts ----

/// An IV as its generator says.
fn fill_iv(session: &Session, raw: &CK_GCM_MESSAGE_PARAMS, gcm: &mut message::Gcm) -> Result<()> {
    match raw.ivGenerator {
        CKG_NO_GENERATE => Ok(()),
        CKG_GENERATE | CKG_GENERATE_RANDOM => message::random_iv(session, &mut gcm.iv, raw.ulIvFixedBits),
        // A counter would be one a member.
        _ => Err(Rv(CKR_MECHANISM_PARAM_INVALID)),
    }
}

/// What a caller is told of output of this length; None if it has the room.
fn told(needed: usize, room: Room) -> Option<Output> {
    match room {
        Room::Query => Some(Output::Length(needed)),
        Room::Bytes(space) if space < needed => Some(Output::TooSmall(needed)),
        Room::Bytes(_) => None,
    }
}

/// A part that is not the last: it yields nothing yet, and a length query leaves it out.
fn gather(session: &Session, kind: Kind, part: &[u8], room: Room) -> Result<Output> {
    if room != Room::Query {
        message::add_part(session, kind, part)?;
    }
    Ok(told(0, room).unwrap_or_else(|| Output::Bytes(Vec::new().into())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_EncryptMessageBegin(
    session: SessionHandle,
    parameter: *mut c_void,
    parameter_length: CK_ULONG,
    aad: Bytes,
    aad_length: CK_ULONG,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a CK_GCM_MESSAGE_PARAMS, and data of its length, or NULL.
        let ((raw, mut gcm), aad) =
            unsafe { (gcm_message(parameter, parameter_length)?, bytes(aad, aad_length)?) };
        fill_iv(session, &raw, &mut gcm)?;
        let iv = gcm.iv.clone();
        message::begin_parts(session, Kind::Encrypt, Some((gcm, aad.to_vec())))?;
        // SAFETY: pIv has this length, by PKCS#11.
        unsafe { std::ptr::copy_nonoverlapping(iv.as_ptr(), raw.pIv, iv.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_EncryptMessageNext(
    session: SessionHandle,
    parameter: *mut c_void,
    parameter_length: CK_ULONG,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
    flags: CK_FLAGS,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a CK_GCM_MESSAGE_PARAMS, data of its length, and a buffer of its own, or NULL.
        let ((raw, given), part, room) = unsafe {
            (gcm_message(parameter, parameter_length)?, bytes(part, length)?, room(out, out_length)?)
        };
        if flags & CKF_END_OF_MESSAGE == 0 {
            let output = gather(session, Kind::Encrypt, part, room)?;
            // SAFETY: as above.
            return unsafe { deliver(output, out, out_length) };
        }
        let seal =
            |gathering: &message::Gathering, whole: &[u8]| match (told(whole.len(), room), &gathering.gcm) {
                (Some(told), _) => Ok((told, Vec::new())),
                // This call's pTag has room for this call's tag.
                (None, Some((gcm, _))) if gcm.tag_bits != given.tag_bits => {
                    Err(Rv(CKR_MECHANISM_PARAM_INVALID))
                }
                (None, Some((gcm, aad))) => {
                    let sealed = message::encrypt(session, gcm, aad, whole)?;
                    Ok((Output::Bytes(sealed.ciphertext.into()), sealed.tag))
                }
                (None, None) => Err(Rv(CKR_GENERAL_ERROR)),
            };
        let waits = |done: &(Output, Vec<u8>)| !matches!(done.0, Output::Bytes(_));
        let (output, tag) = message::last_part(session, Kind::Encrypt, part, seal, waits)?;
        // SAFETY: pTag has room for the tag, by PKCS#11; the room for the output was looked at above.
        unsafe {
            std::ptr::copy_nonoverlapping(tag.as_ptr(), raw.pTag, tag.len());
            deliver(output, out, out_length)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptMessageBegin(
    session: SessionHandle,
    parameter: *mut c_void,
    parameter_length: CK_ULONG,
    aad: Bytes,
    aad_length: CK_ULONG,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a CK_GCM_MESSAGE_PARAMS, and data of its length, or NULL.
        let ((_, gcm), aad) = unsafe { (gcm_message(parameter, parameter_length)?, bytes(aad, aad_length)?) };
        message::begin_parts(session, Kind::Decrypt, Some((gcm, aad.to_vec())))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_DecryptMessageNext(
    session: SessionHandle,
    parameter: *mut c_void,
    parameter_length: CK_ULONG,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
    flags: CK_FLAGS,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 a CK_GCM_MESSAGE_PARAMS, data of its length, and a buffer of its own, or NULL.
        let ((raw, _), part, room) = unsafe {
            (gcm_message(parameter, parameter_length)?, bytes(part, length)?, room(out, out_length)?)
        };
        if flags & CKF_END_OF_MESSAGE == 0 {
            let output = gather(session, Kind::Decrypt, part, room)?;
            // SAFETY: as above.
            return unsafe { deliver(output, out, out_length) };
        }
        // SAFETY: by PKCS#11 pTag holds a tag of ulTagBits.
        let tag = unsafe { owned(raw.pTag, raw.ulTagBits.div_ceil(8))? };
        let open =
            |gathering: &message::Gathering, whole: &[u8]| match (told(whole.len(), room), &gathering.gcm) {
                (Some(told), _) => Ok(told),
                (None, Some((gcm, aad))) => {
                    let clear = message::decrypt(session, gcm, aad, whole, &tag)?;
                    if clear.len() > whole.len() {
                        Err(Rv(CKR_DEVICE_ERROR))
                    } else {
                        Ok(Output::Bytes(clear))
                    }
                }
                (None, None) => Err(Rv(CKR_GENERAL_ERROR)),
            };
        let waits = |done: &Output| !matches!(done, Output::Bytes(_));
        let output = message::last_part(session, Kind::Decrypt, part, open, waits)?;
        // SAFETY: no longer than the message, for which there is room.
        unsafe { deliver(output, out, out_length) }
    })
}

/// C_SignMessageBegin and C_VerifyMessageBegin: their messages have no parameters of their own.
fn begin_bare(session: SessionHandle, kind: Kind, parameter_length: CK_ULONG) -> CK_RV {
    in_session(session, |session| {
        if parameter_length != 0 {
            return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
        }
        message::begin_parts(session, kind, None)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignMessageBegin(
    session: SessionHandle,
    _parameter: *mut c_void,
    parameter_length: CK_ULONG,
) -> CK_RV {
    begin_bare(session, Kind::Sign, parameter_length)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_SignMessageNext(
    session: SessionHandle,
    _parameter: *mut c_void,
    _parameter_length: CK_ULONG,
    part: Bytes,
    length: CK_ULONG,
    out: Bytes,
    out_length: Length,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 data of its length, or NULL.
        let part = unsafe { bytes(part, length)? };
        if out_length.is_null() {
            return message::add_part(session, Kind::Sign, part);
        }
        // SAFETY: by PKCS#11 a buffer of its own, or NULL.
        let room = unsafe { room(out, out_length)? };
        let sign = |_: &message::Gathering, whole: &[u8]| {
            let (Ok(output) | Err((output, _))) = Output::fit(message::sign(session, whole)?, room);
            Ok(output)
        };
        let waits = |done: &Output| !matches!(done, Output::Bytes(_));
        let output = message::last_part(session, Kind::Sign, part, sign, waits)?;
        // SAFETY: as above.
        unsafe { deliver(output, out, out_length) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyMessageBegin(
    session: SessionHandle,
    _parameter: *mut c_void,
    parameter_length: CK_ULONG,
) -> CK_RV {
    begin_bare(session, Kind::Verify, parameter_length)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn C_VerifyMessageNext(
    session: SessionHandle,
    _parameter: *mut c_void,
    _parameter_length: CK_ULONG,
    part: Bytes,
    length: CK_ULONG,
    signature: Bytes,
    signature_length: CK_ULONG,
) -> CK_RV {
    in_session(session, |session| {
        // SAFETY: by PKCS#11 data of its length, or NULL.
        let part = unsafe { bytes(part, length)? };
        if signature.is_null() {
            return message::add_part(session, Kind::Verify, part);
        }
        // SAFETY: by PKCS#11 a signature of its length.
        let signature = unsafe { bytes(signature, signature_length)? };
        let verify = |_: &message::Gathering, whole: &[u8]| message::verify(session, whole, signature);
        message::last_part(session, Kind::Verify, part, verify, |()| false)
    })
}

// ---- the lists ----

/// Fills a function list: the 2.40 functions, and what follows them.
macro_rules! function_list {
    ($list:ident, $version:expr $(, $more:ident)*) => {
        $list {
            version: $version,
            C_Initialize: Some(C_Initialize),
            C_Finalize: Some(C_Finalize),
            C_GetInfo: Some(C_GetInfo),
            C_GetFunctionList: Some(C_GetFunctionList),
            C_GetSlotList: Some(C_GetSlotList),
            C_GetSlotInfo: Some(C_GetSlotInfo),
            C_GetTokenInfo: Some(C_GetTokenInfo),
            C_GetMechanismList: Some(C_GetMechanismList),
            C_GetMechanismInfo: Some(C_GetMechanismInfo),
            C_InitToken: Some(C_InitToken),
            C_InitPIN: Some(C_InitPIN),
            C_SetPIN: Some(C_SetPIN),
            C_OpenSession: Some(C_OpenSession),
            C_CloseSession: Some(C_CloseSession),
            C_CloseAllSessions: Some(C_CloseAllSessions),
            C_GetSessionInfo: Some(C_GetSessionInfo),
            C_GetOperationState: Some(C_GetOperationState),
            C_SetOperationState: Some(C_SetOperationState),
            C_Login: Some(C_Login),
            C_Logout: Some(C_Logout),
            C_CreateObject: Some(C_CreateObject),
            C_CopyObject: Some(C_CopyObject),
            C_DestroyObject: Some(C_DestroyObject),
            C_GetObjectSize: Some(C_GetObjectSize),
            C_GetAttributeValue: Some(C_GetAttributeValue),
            C_SetAttributeValue: Some(C_SetAttributeValue),
            C_FindObjectsInit: Some(C_FindObjectsInit),
            C_FindObjects: Some(C_FindObjects),
            C_FindObjectsFinal: Some(C_FindObjectsFinal),
            C_EncryptInit: Some(C_EncryptInit),
            C_Encrypt: Some(C_Encrypt),
            C_EncryptUpdate: Some(C_EncryptUpdate),
            C_EncryptFinal: Some(C_EncryptFinal),
            C_DecryptInit: Some(C_DecryptInit),
            C_Decrypt: Some(C_Decrypt),
            C_DecryptUpdate: Some(C_DecryptUpdate),
            C_DecryptFinal: Some(C_DecryptFinal),
            C_DigestInit: Some(C_DigestInit),
            C_Digest: Some(C_Digest),
            C_DigestUpdate: Some(C_DigestUpdate),
            C_DigestKey: Some(C_DigestKey),
            C_DigestFinal: Some(C_DigestFinal),
            C_SignInit: Some(C_SignInit),
            C_Sign: Some(C_Sign),
            C_SignUpdate: Some(C_SignUpdate),
            C_SignFinal: Some(C_SignFinal),
            C_SignRecoverInit: Some(C_SignRecoverInit),
            C_SignRecover: Some(C_SignRecover),
            C_VerifyInit: Some(C_VerifyInit),
            C_Verify: Some(C_Verify),
            C_VerifyUpdate: Some(C_VerifyUpdate),
            C_VerifyFinal: Some(C_VerifyFinal),
            C_VerifyRecoverInit: Some(C_VerifyRecoverInit),
            C_VerifyRecover: Some(C_VerifyRecover),
            C_DigestEncryptUpdate: Some(C_DigestEncryptUpdate),
            C_DecryptDigestUpdate: Some(C_DecryptDigestUpdate),
            C_SignEncryptUpdate: Some(C_SignEncryptUpdate),
            C_DecryptVerifyUpdate: Some(C_DecryptVerifyUpdate),
            C_GenerateKey: Some(C_GenerateKey),
            C_GenerateKeyPair: Some(C_GenerateKeyPair),
            C_WrapKey: Some(C_WrapKey),
            C_UnwrapKey: Some(C_UnwrapKey),
            C_DeriveKey: Some(C_DeriveKey),
            C_SeedRandom: Some(C_SeedRandom),
            C_GenerateRandom: Some(C_GenerateRandom),
            C_GetFunctionStatus: Some(C_GetFunctionStatus),
            C_CancelFunction: Some(C_CancelFunction),
            C_WaitForSlotEvent: Some(C_WaitForSlotEvent),
            $($more: Some($more),)*
        }
    };
}

static LIST_2_40: CK_FUNCTION_LIST = function_list!(CK_FUNCTION_LIST, VERSION_2_40);

static LIST_3_0: CK_FUNCTION_LIST_3_0 = function_list!(
    CK_FUNCTION_LIST_3_0,
    VERSION_3_0,
    C_GetInterfaceList,
    C_GetInterface,
    C_LoginUser,
    C_SessionCancel,
    C_MessageEncryptInit,
    C_EncryptMessage,
    C_EncryptMessageBegin,
    C_EncryptMessageNext,
    C_MessageEncryptFinal,
    C_MessageDecryptInit,
    C_DecryptMessage,
    C_DecryptMessageBegin,
    C_DecryptMessageNext,
    C_MessageDecryptFinal,
    C_MessageSignInit,
    C_SignMessage,
    C_SignMessageBegin,
    C_SignMessageNext,
    C_MessageSignFinal,
    C_MessageVerifyInit,
    C_VerifyMessage,
    C_VerifyMessageBegin,
    C_VerifyMessageNext,
    C_MessageVerifyFinal
);

const NAME: &std::ffi::CStr = c"PKCS 11";

/// Constant structures that point to constant lists.
struct Interfaces([CK_INTERFACE; 2]);

// SAFETY: nothing in it is ever written; PKCS#11's pointer types merely lack the word const.
unsafe impl Sync for Interfaces {}

/// The newest first: a caller that names no version gets it.
static INTERFACES: Interfaces = Interfaces([
    interface((&raw const LIST_3_0).cast_mut().cast()),
    interface((&raw const LIST_2_40).cast_mut().cast()),
]);

/// Nothing of a parent's is touched in a forked child, so both are fork-safe.
const fn interface(list: *mut c_void) -> CK_INTERFACE {
    CK_INTERFACE {
        pInterfaceName: NAME.as_ptr().cast_mut().cast(),
        pFunctionList: list,
        flags: CKF_INTERFACE_FORK_SAFE,
    }
}
