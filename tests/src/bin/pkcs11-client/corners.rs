//! The edges of PKCS#11 that programs lean on: one step each, `ok NAME` or `failed NAME: why`.

use crate::policy;
use crate::raw::{Answer, Begin, Module, Refused};
use crate::talk::slot_of;
use cryptoki_sys::*;
use std::fmt::Debug;

/// How a step went, in words for people.
pub type Outcome = Result<(), String>;

impl From<Refused> for String {
    fn from(refused: Refused) -> Self {
        format!("{} returned {:#x}", refused.by, refused.code)
    }
}

/// Two values that must be the same.
pub fn same<T: PartialEq + Debug>(got: T, right: T, what: &str) -> Outcome {
    if got == right { Ok(()) } else { Err(format!("{what}: {got:x?}, not {right:x?}")) }
}

/// A call that must return this number.
pub fn refused<T: Debug>(answer: Answer<T>, code: CK_RV, what: &str) -> Outcome {
    match answer {
        Err(refused) => same(refused.code, code, what),
        Ok(value) => Err(format!("{what}: {value:x?}, not {code:#x}")),
    }
}

/// Where the steps are taken.
pub struct At<'a> {
    /// The module.
    pub module: &'a Module,
    /// The token's slot.
    pub slot: CK_SLOT_ID,
    /// A session that stays open.
    pub session: CK_SESSION_HANDLE,
    /// The user's PIN.
    pub pin: &'a str,
}

/// All of them.
pub fn corners(module: &str, label: &str, pin: &str) -> Outcome {
    let module = Module::load(module)?;
    said("C_Initialize and C_Finalize", beginnings(&module));
    said("interfaces", interfaces(&module));
    module.initialize()?;
    let slot = slot_of(&module, label)?.ok_or("no such token")?;
    let session = module.open(slot, true)?;
    let at = At { module: &module, slot, session, pin };
    let before: &[Step] = &[
        ("slot lists and short rooms", slot_lists),
        ("flags of sessions", session_flags),
        ("the state of a session follows the login", states),
        ("functions of old: C_GetFunctionStatus, C_CancelFunction", old_functions),
    ];
    let logged_in: &[Step] = &[
        ("C_SeedRandom", |at| Ok(at.module.seed(at.session)?)),
        ("token objects in a read-only session", read_only),
        ("session objects are seen everywhere and end with their session", session_objects),
        ("one operation at a time", one_operation),
        ("C_Sign with no room, too little, and enough", sign_rooms),
        ("C_Encrypt with no room, too little, and enough", encrypt_rooms),
        ("C_EncryptUpdate with too little room", update_rooms),
        ("C_Digest with no room, too little, and enough", digest_rooms),
        ("C_GetAttributeValue fills every entry", attribute_entries),
        ("usages that nobody names are allowed", usages),
        ("handles that are none", no_handles),
    ];
    let last: &[Step] = &[("the last session's end is the logout", last_session)];
    before.iter().for_each(|(name, step)| said(name, step(&at)));
    module.login(session, CKU_USER, pin)?;
    let logged_in = logged_in.iter().chain(policy::STEPS).chain(last);
    logged_in.for_each(|(name, step)| said(name, step(&at)));
    Ok(module.finalize()?)
}

/// A step and its name.
pub type Step = (&'static str, fn(&At<'_>) -> Outcome);

fn said(name: &str, outcome: Outcome) {
    match outcome {
        Ok(()) => println!("ok {name}"),
        Err(why) => println!("failed {name}: {why}"),
    }
}

fn beginnings(module: &Module) -> Outcome {
    refused(module.info_into_nothing(), CKR_CRYPTOKI_NOT_INITIALIZED, "C_GetInfo(NULL) before C_Initialize")?;
    refused(module.finalize_nowhere(), CKR_CRYPTOKI_NOT_INITIALIZED, "C_Finalize before C_Initialize")?;
    for how in [Begin::ThreeMutexFunctions, Begin::Reserved] {
        refused(module.initialize_as(how), CKR_ARGUMENTS_BAD, &format!("{how:?}"))?;
    }
    for how in [Begin::Null, Begin::Locking, Begin::LockingWithoutThreads] {
        module.initialize_as(how)?;
        refused(module.initialize_as(how), CKR_CRYPTOKI_ALREADY_INITIALIZED, "a second C_Initialize")?;
        refused(module.info_into_nothing(), CKR_ARGUMENTS_BAD, "C_GetInfo(NULL)")?;
        refused(module.finalize_nowhere(), CKR_ARGUMENTS_BAD, "C_Finalize with an argument")?;
        module.finalize()?;
    }
    refused(module.finalize(), CKR_CRYPTOKI_NOT_INITIALIZED, "a second C_Finalize")
}

fn interfaces(module: &Module) -> Outcome {
    let standard = Some(c"PKCS 11");
    let usual = module.interface(None, None, 0)?;
    same(module.interface(standard, None, 0)?, usual, "pkcs11-tool's")?;
    same(module.interface(standard, Some((3, 0)), 0)?, usual, "python-pkcs11's")?;
    let old = module.interface(standard, Some((2, 40)), 0)?;
    same(module.interface(standard, Some((2, 40)), 0)?, old, "the second time")?;
    // A child must initialise for itself: NSS is told so, and asks again without the flag.
    if module.interface(standard, None, CKF_INTERFACE_FORK_SAFE).is_ok_and(|functions| functions != usual) {
        return Err("other functions with CKF_INTERFACE_FORK_SAFE".into());
    }
    for (name, version) in [(c"Vendor NSS FIPS Interface", None), (c"PKCS 11", Some((3, 2))), (c"", None)] {
        if module.interface(Some(name), version, 0).is_ok() {
            return Err(format!("there is a {name:?} {version:?}"));
        }
    }
    Ok(())
}

fn slot_lists(at: &At<'_>) -> Outcome {
    let slots = at.module.slots()?;
    same(at.module.slots_into(0), (CKR_BUFFER_TOO_SMALL, slots.len() as CK_ULONG), "room for none")?;
    same(at.module.slots_into(64), (CKR_OK, slots.len() as CK_ULONG), "room for many")?;
    same(at.module.slots()?, slots.clone(), "the second time")?;
    refused(at.module.token(4711), CKR_SLOT_ID_INVALID, "a slot that is none").and_then(|()| {
        if slots.iter().all(|slot| *slot < 1000) {
            Ok(())
        } else {
            Err(format!("slot ids are large: {slots:?}"))
        }
    })
}

fn session_flags(at: &At<'_>) -> Outcome {
    refused(
        at.module.open_with(at.slot, CKF_RW_SESSION),
        CKR_SESSION_PARALLEL_NOT_SUPPORTED,
        "without SERIAL",
    )?;
    refused(at.module.open_with(4711, CKF_SERIAL_SESSION), CKR_SLOT_ID_INVALID, "a slot that is none")
}

fn states(at: &At<'_>) -> Outcome {
    let (module, session) = (at.module, at.session);
    let reading = module.open(at.slot, false)?;
    same(module.state(reading)?, CKS_RO_PUBLIC_SESSION, "before")?;
    same(module.state(session)?, CKS_RW_PUBLIC_SESSION, "before")?;
    refused(module.login(session, CKU_USER, "wrong-pin-9999"), CKR_PIN_INCORRECT, "a wrong PIN")?;
    module.login(session, CKU_USER, at.pin)?;
    same(module.state(reading)?, CKS_RO_USER_FUNCTIONS, "after another session's login")?;
    refused(module.login(reading, CKU_USER, at.pin), CKR_USER_ALREADY_LOGGED_IN, "a second login")?;
    refused(module.login(session, CKU_SO, at.pin), CKR_USER_ANOTHER_ALREADY_LOGGED_IN, "the other's login")
        .or_else(|_| {
        refused(module.login(session, CKU_SO, at.pin), CKR_SESSION_READ_ONLY_EXISTS, "the other's login")
    })?;
    module.logout(reading)?;
    same(module.state(session)?, CKS_RW_PUBLIC_SESSION, "after another session's logout")?;
    module.close(reading)?;
    refused(module.state(reading), CKR_SESSION_HANDLE_INVALID, "a closed session")
}

fn old_functions(at: &At<'_>) -> Outcome {
    for session in [0, at.session] {
        refused(at.module.function_status(session), CKR_FUNCTION_NOT_PARALLEL, "C_GetFunctionStatus")?;
        refused(at.module.cancel_function(session), CKR_FUNCTION_NOT_PARALLEL, "C_CancelFunction")?;
    }
    Ok(())
}

fn read_only(at: &At<'_>) -> Outcome {
    let reading = at.module.open(at.slot, false)?;
    refused(at.module.aes(reading, true, "corner"), CKR_SESSION_READ_ONLY, "C_GenerateKey")?;
    at.module.aes(reading, false, "corner")?;
    let stored = at.module.aes(at.session, true, "corner-stored")?;
    refused(at.module.destroy(reading, stored), CKR_SESSION_READ_ONLY, "C_DestroyObject")?;
    at.module.close(reading)?;
    Ok(at.module.destroy(at.session, stored)?)
}

fn session_objects(at: &At<'_>) -> Outcome {
    let other = at.module.open(at.slot, true)?;
    let key = at.module.aes(other, false, "corner-object")?;
    same(at.module.find(at.session, "corner-object")?, vec![key], "in another session")?;
    let sealed = at.module.seal(at.session, key)?;
    same(at.module.seal(other, key)?, sealed, "in its own session")?;
    at.module.close(other)?;
    same(at.module.find(at.session, "corner-object")?, vec![], "after its session")?;
    refused(at.module.seal(at.session, key), CKR_KEY_HANDLE_INVALID, "after its session")
}

fn one_operation(at: &At<'_>) -> Outcome {
    let key = at.module.ec(at.session, false, "corner-one")?;
    at.module.sign_init(at.session, key)?;
    refused(at.module.sign_init(at.session, key), CKR_OPERATION_ACTIVE, "a second C_SignInit")?;
    let mut signature = [0; 64];
    same(at.module.sign_into(at.session, Some(&mut signature)), (CKR_OK, 64), "C_Sign")?;
    same(
        at.module.sign_into(at.session, Some(&mut signature)).0,
        CKR_OPERATION_NOT_INITIALIZED,
        "a second C_Sign",
    )
}

/// What every function with an output does: NULL and too little room tell the length and end nothing; the buffer is
/// untouched until there is room.
pub fn rooms(needed: usize, mut call: impl FnMut(Option<&mut [u8]>) -> (CK_RV, CK_ULONG)) -> Outcome {
    let length = needed as CK_ULONG;
    same(call(None), (CKR_OK, length), "no room")?;
    let mut short = vec![0xee; needed - 1];
    same(call(Some(&mut short)), (CKR_BUFFER_TOO_SMALL, length), "too little room")?;
    same(short, vec![0xee; needed - 1], "the short buffer")?;
    same(call(None), (CKR_OK, length), "no room again")?;
    let mut buffer = vec![0xee; needed + 10];
    same(call(Some(&mut buffer)), (CKR_OK, length), "enough room")?;
    same(buffer[needed..].to_vec(), vec![0xee; 10], "what lies behind the output")
}

fn sign_rooms(at: &At<'_>) -> Outcome {
    let key = at.module.ec(at.session, false, "corner-sign")?;
    at.module.sign_init(at.session, key)?;
    rooms(64, |buffer| at.module.sign_into(at.session, buffer))
}

fn encrypt_rooms(at: &At<'_>) -> Outcome {
    let key = at.module.aes(at.session, false, "corner-encrypt")?;
    at.module.encrypt_init(at.session, key)?;
    rooms(32, |buffer| at.module.encrypt_into(at.session, false, buffer))
}

fn update_rooms(at: &At<'_>) -> Outcome {
    let other = at.module.open(at.slot, true)?;
    let outcome = update_rooms_in(at, other);
    at.module.close(other)?;
    outcome
}

fn update_rooms_in(at: &At<'_>, other: CK_SESSION_HANDLE) -> Outcome {
    let key = at.module.aes(other, false, "corner-update")?;
    at.module.encrypt_init(other, key)?;
    let mut short = [0xee; 15];
    let (code, length) = at.module.encrypt_into(other, true, Some(&mut short));
    same((code, short), (CKR_BUFFER_TOO_SMALL, [0xee; 15]), "too little room")?;
    if length < 16 {
        return Err(format!("{length} bytes are said to be enough for a block"));
    }
    let mut enough = [0; 64];
    same(at.module.encrypt_into(other, true, Some(&mut enough)), (CKR_OK, 16), "enough room")
}

fn digest_rooms(at: &At<'_>) -> Outcome {
    at.module.digest_init(at.session)?;
    rooms(32, |buffer| at.module.digest_into(at.session, buffer))
}

fn attribute_entries(at: &At<'_>) -> Outcome {
    let key = at.module.aes(at.session, false, "corner-attributes")?;
    let gone = CK_UNAVAILABLE_INFORMATION;
    let wanted = [(CKA_VALUE, 32), (CKA_LABEL, 64), (CKA_MODULUS, 16), (CKA_TOKEN, 1)];
    let (code, got) = at.module.attributes(at.session, key, &wanted);
    if ![CKR_ATTRIBUTE_SENSITIVE, CKR_ATTRIBUTE_TYPE_INVALID].contains(&code) {
        return Err(format!("returned {code:#x}"));
    }
    let lengths: Vec<CK_ULONG> = got.iter().map(|(length, _)| *length).collect();
    same(lengths, vec![gone, 17, gone, 1], "lengths")?;
    same(&got[1].1[..17], b"corner-attributes".as_slice(), "the label")?;
    same(got[3].1.as_slice(), &[CK_FALSE][..], "CKA_TOKEN")?;
    let (code, got) = at.module.attributes(at.session, key, &[(CKA_LABEL, 3), (CKA_TOKEN, 1)]);
    same(code, CKR_BUFFER_TOO_SMALL, "too little room")?;
    same((got[0].1.clone(), got[1].0), (vec![0xee; 3], 1), "the short entry, and the one after it")
}

fn usages(at: &At<'_>) -> Outcome {
    let key = at.module.bare_aes(at.session)?;
    let kinds = [CKA_ENCRYPT, CKA_DECRYPT, CKA_SIGN, CKA_VERIFY, CKA_WRAP, CKA_UNWRAP];
    let (code, got) = at.module.attributes(at.session, key, &kinds.map(|kind| (kind, 1)));
    same(code, CKR_OK, "C_GetAttributeValue")?;
    same(got, vec![(1, vec![CK_TRUE]); kinds.len()], "the usages")?;
    at.module.seal(at.session, key)?;
    Ok(())
}

fn no_handles(at: &At<'_>) -> Outcome {
    refused(at.module.seal(at.session, 0), CKR_KEY_HANDLE_INVALID, "key 0")?;
    refused(at.module.seal(at.session, 0x7fff_ffff), CKR_KEY_HANDLE_INVALID, "a key that never was")?;
    refused(
        at.module.destroy(at.session, 0x7fff_ffff),
        CKR_OBJECT_HANDLE_INVALID,
        "an object that never was",
    )?;
    refused(at.module.state(0), CKR_SESSION_HANDLE_INVALID, "session 0")
}

fn last_session(at: &At<'_>) -> Outcome {
    at.module.close(at.session)?;
    let fresh = at.module.open(at.slot, true)?;
    same(at.module.state(fresh)?, CKS_RW_PUBLIC_SESSION, "a session after the last one")
}
