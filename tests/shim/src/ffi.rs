//! The door to C, the shim's only file with `unsafe`: the function list that programs get, and the real one behind it.

#![allow(non_snake_case, reason = "the functions bear their PKCS#11 names")]

use crate::faults::Control;
use cryptoki_sys::{
    CK_ATTRIBUTE, CK_BBOOL, CK_BYTE, CK_FLAGS, CK_FUNCTION_LIST, CK_INFO, CK_MECHANISM, CK_MECHANISM_INFO,
    CK_MECHANISM_TYPE, CK_NOTIFY, CK_OBJECT_HANDLE, CK_RV, CK_SESSION_HANDLE, CK_SESSION_INFO, CK_SLOT_ID,
    CK_SLOT_INFO, CK_TOKEN_INFO, CK_ULONG, CK_USER_TYPE, CK_UTF8CHAR, CKF_PROTECTED_AUTHENTICATION_PATH,
    CKU_USER,
};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

const GENERAL_ERROR: CK_RV = 0x05;
const ARGUMENTS_BAD: CK_RV = 0x07;
const FUNCTION_NOT_SUPPORTED: CK_RV = 0x54;
const PIN_INCORRECT: CK_RV = 0xA0;
/// Where Debian puts SoftHSM.
const DEFAULT_MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// The real module, loaded for as long as the process lives.
struct Real {
    list: NonNull<CK_FUNCTION_LIST>,
    _library: libloading::Library,
}

// SAFETY: the list is constant, and its functions may be called from any thread by whoever initialised the module so.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

impl Real {
    fn load() -> Result<Self, String> {
        let path = std::env::var("KEYRAFT_SHIM_MODULE").unwrap_or_else(|_| DEFAULT_MODULE.into());
        // SAFETY: loading runs the library's constructors; who sets the variable names a PKCS#11 module.
        let library =
            unsafe { libloading::Library::new(&path) }.map_err(|error| format!("{path}: {error}"))?;
        type GetFunctionList = unsafe extern "C" fn(*mut *mut CK_FUNCTION_LIST) -> CK_RV;
        // SAFETY: C_GetFunctionList has this type in every PKCS#11 version.
        let get = unsafe { library.get::<GetFunctionList>(b"C_GetFunctionList\0") }
            .map_err(|error| format!("{path}: {error}"))?;
        let mut list = null_mut();
        // SAFETY: `list` is a live local.
        let code = unsafe { get(&raw mut list) };
        let list = NonNull::new(list).filter(|_| code == 0);
        let list = list.ok_or_else(|| format!("{path}: C_GetFunctionList returned {code:#x}"))?;
        Ok(Self { list, _library: library })
    }

    /// The one of this process; None, complained of once, if it cannot be loaded.
    fn own() -> Option<&'static CK_FUNCTION_LIST> {
        static OWN: OnceLock<Option<Real>> = OnceLock::new();
        let own = OWN.get_or_init(|| Self::load().inspect_err(|why| eprintln!("keyraft-shim: {why}")).ok());
        // SAFETY: the list came from C_GetFunctionList of a library that stays loaded.
        own.as_ref().map(|real| unsafe { real.list.as_ref() })
    }
}

/// The PIN that the played token knows by itself.
fn own_pin() -> Option<&'static str> {
    static PIN: OnceLock<Option<String>> = OnceLock::new();
    PIN.get_or_init(|| std::env::var("KEYRAFT_SHIM_PIN").ok()).as_deref()
}

/// For each function: one that hands its arguments on, round which the rules play; and the list of them all.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            unsafe extern "C" fn $name($($argument: $kind),*) -> CK_RV {
                let Some(real) = Real::own() else { return GENERAL_ERROR };
                let Some(function) = real.$name else { return FUNCTION_NOT_SUPPORTED };
                // SAFETY: the arguments are the caller's, who keeps the real function's promises.
                Control::own().around(stringify!($name), || unsafe { function($($argument),*) })
            }
        )*

        fn list(real: &CK_FUNCTION_LIST) -> CK_FUNCTION_LIST {
            CK_FUNCTION_LIST { version: real.version, C_GetFunctionList: Some(C_GetFunctionList), $($name: Some($name),)* }
        }
    };
}

forward! {
    C_Initialize(a1: *mut c_void);
    C_Finalize(a1: *mut c_void);
    C_GetInfo(a1: *mut CK_INFO);
    C_GetSlotList(a1: CK_BBOOL, a2: *mut CK_SLOT_ID, a3: *mut CK_ULONG);
    C_GetSlotInfo(a1: CK_SLOT_ID, a2: *mut CK_SLOT_INFO);
    C_GetTokenInfo(a1: CK_SLOT_ID, a2: *mut CK_TOKEN_INFO);
    C_GetMechanismList(a1: CK_SLOT_ID, a2: *mut CK_MECHANISM_TYPE, a3: *mut CK_ULONG);
    C_GetMechanismInfo(a1: CK_SLOT_ID, a2: CK_MECHANISM_TYPE, a3: *mut CK_MECHANISM_INFO);
    C_InitToken(a1: CK_SLOT_ID, a2: *mut CK_UTF8CHAR, a3: CK_ULONG, a4: *mut CK_UTF8CHAR);
    C_InitPIN(a1: CK_SESSION_HANDLE, a2: *mut CK_UTF8CHAR, a3: CK_ULONG);
    C_SetPIN(a1: CK_SESSION_HANDLE, a2: *mut CK_UTF8CHAR, a3: CK_ULONG, a4: *mut CK_UTF8CHAR, a5: CK_ULONG);
    C_OpenSession(a1: CK_SLOT_ID, a2: CK_FLAGS, a3: *mut c_void, a4: CK_NOTIFY, a5: *mut CK_SESSION_HANDLE);
    C_CloseSession(a1: CK_SESSION_HANDLE);
    C_CloseAllSessions(a1: CK_SLOT_ID);
    C_GetSessionInfo(a1: CK_SESSION_HANDLE, a2: *mut CK_SESSION_INFO);
    C_GetOperationState(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: *mut CK_ULONG);
    C_SetOperationState(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: CK_OBJECT_HANDLE, a5: CK_OBJECT_HANDLE);
    C_Login(a1: CK_SESSION_HANDLE, a2: CK_USER_TYPE, a3: *mut CK_UTF8CHAR, a4: CK_ULONG);
    C_Logout(a1: CK_SESSION_HANDLE);
    C_CreateObject(a1: CK_SESSION_HANDLE, a2: *mut CK_ATTRIBUTE, a3: CK_ULONG, a4: *mut CK_OBJECT_HANDLE);
    C_CopyObject(a1: CK_SESSION_HANDLE, a2: CK_OBJECT_HANDLE, a3: *mut CK_ATTRIBUTE, a4: CK_ULONG, a5: *mut CK_OBJECT_HANDLE);
    C_DestroyObject(a1: CK_SESSION_HANDLE, a2: CK_OBJECT_HANDLE);
    C_GetObjectSize(a1: CK_SESSION_HANDLE, a2: CK_OBJECT_HANDLE, a3: *mut CK_ULONG);
    C_GetAttributeValue(a1: CK_SESSION_HANDLE, a2: CK_OBJECT_HANDLE, a3: *mut CK_ATTRIBUTE, a4: CK_ULONG);
    C_SetAttributeValue(a1: CK_SESSION_HANDLE, a2: CK_OBJECT_HANDLE, a3: *mut CK_ATTRIBUTE, a4: CK_ULONG);
    C_FindObjectsInit(a1: CK_SESSION_HANDLE, a2: *mut CK_ATTRIBUTE, a3: CK_ULONG);
    C_FindObjects(a1: CK_SESSION_HANDLE, a2: *mut CK_OBJECT_HANDLE, a3: CK_ULONG, a4: *mut CK_ULONG);
    C_FindObjectsFinal(a1: CK_SESSION_HANDLE);
    C_EncryptInit(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE);
    C_Encrypt(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_EncryptUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_EncryptFinal(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: *mut CK_ULONG);
    C_DecryptInit(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE);
    C_Decrypt(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_DecryptUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_DecryptFinal(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: *mut CK_ULONG);
    C_DigestInit(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM);
    C_Digest(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_DigestUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG);
    C_DigestKey(a1: CK_SESSION_HANDLE, a2: CK_OBJECT_HANDLE);
    C_DigestFinal(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: *mut CK_ULONG);
    C_SignInit(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE);
    C_Sign(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_SignUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG);
    C_SignFinal(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: *mut CK_ULONG);
    C_SignRecoverInit(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE);
    C_SignRecover(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_VerifyInit(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE);
    C_Verify(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: CK_ULONG);
    C_VerifyUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG);
    C_VerifyFinal(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG);
    C_VerifyRecoverInit(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE);
    C_VerifyRecover(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_DigestEncryptUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_DecryptDigestUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_SignEncryptUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_DecryptVerifyUpdate(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG, a4: *mut CK_BYTE, a5: *mut CK_ULONG);
    C_GenerateKey(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: *mut CK_ATTRIBUTE, a4: CK_ULONG, a5: *mut CK_OBJECT_HANDLE);
    C_GenerateKeyPair(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: *mut CK_ATTRIBUTE, a4: CK_ULONG, a5: *mut CK_ATTRIBUTE, a6: CK_ULONG, a7: *mut CK_OBJECT_HANDLE, a8: *mut CK_OBJECT_HANDLE);
    C_WrapKey(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE, a4: CK_OBJECT_HANDLE, a5: *mut CK_BYTE, a6: *mut CK_ULONG);
    C_UnwrapKey(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE, a4: *mut CK_BYTE, a5: CK_ULONG, a6: *mut CK_ATTRIBUTE, a7: CK_ULONG, a8: *mut CK_OBJECT_HANDLE);
    C_DeriveKey(a1: CK_SESSION_HANDLE, a2: *mut CK_MECHANISM, a3: CK_OBJECT_HANDLE, a4: *mut CK_ATTRIBUTE, a5: CK_ULONG, a6: *mut CK_OBJECT_HANDLE);
    C_SeedRandom(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG);
    C_GenerateRandom(a1: CK_SESSION_HANDLE, a2: *mut CK_BYTE, a3: CK_ULONG);
    C_GetFunctionStatus(a1: CK_SESSION_HANDLE);
    C_CancelFunction(a1: CK_SESSION_HANDLE);
    C_WaitForSlotEvent(a1: CK_FLAGS, a2: *mut CK_SLOT_ID, a3: *mut c_void);
}

/// The shim's function list.
///
/// # Safety
/// `out` is null or points to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn C_GetFunctionList(out: *mut *mut CK_FUNCTION_LIST) -> CK_RV {
    static LIST: OnceLock<CK_FUNCTION_LIST> = OnceLock::new();
    if out.is_null() {
        return ARGUMENTS_BAD;
    }
    let Some(real) = Real::own() else { return GENERAL_ERROR };
    let list = LIST.get_or_init(|| {
        let mut list = list(real);
        if own_pin().is_some() {
            list.C_GetTokenInfo = Some(protected_token_info);
            list.C_Login = Some(protected_login);
        }
        list
    });
    // SAFETY: not null, and the caller's promise; nobody writes to a function list.
    unsafe { *out = std::ptr::from_ref(list).cast_mut() };
    0
}

unsafe extern "C" fn protected_token_info(slot: CK_SLOT_ID, info: *mut CK_TOKEN_INFO) -> CK_RV {
    // SAFETY: the caller's arguments, handed on.
    let code = unsafe { C_GetTokenInfo(slot, info) };
    // SAFETY: the caller's pointer is null or points to a CK_TOKEN_INFO of its own.
    if let (0, Some(info)) = (code, unsafe { info.as_mut() }) {
        info.flags |= CKF_PROTECTED_AUTHENTICATION_PATH;
    }
    code
}

/// Logs the user in by the token's own PIN; the security officer has none there.
unsafe extern "C" fn protected_login(
    session: CK_SESSION_HANDLE,
    user: CK_USER_TYPE,
    pin: *mut CK_UTF8CHAR,
    length: CK_ULONG,
) -> CK_RV {
    let (Some(own), CKU_USER) = (own_pin(), user) else {
        // SAFETY: the caller's arguments, handed on.
        return unsafe { C_Login(session, user, pin, length) };
    };
    if !pin.is_null() {
        return PIN_INCORRECT;
    }
    // SAFETY: the PIN lives as long as the process; C_Login only reads it.
    unsafe { C_Login(session, user, own.as_ptr().cast_mut(), own.len() as CK_ULONG) }
}
