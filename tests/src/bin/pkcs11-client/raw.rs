//! The module's own functions, with the numbers that they return. The only file of this program with `unsafe`.

use cryptoki_sys::*;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// A CKR_ number that is not CKR_OK, and the function that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The number.
    pub code: CK_RV,
    /// The function.
    pub by: &'static str,
}

/// What a call yields.
pub type Answer<T> = Result<T, Refused>;

/// A loaded module.
pub struct Module {
    functions: NonNull<CK_FUNCTION_LIST>,
    // Unloaded never: the functions are used to the end of the process.
    _library: std::mem::ManuallyDrop<libloading::Library>,
}

// SAFETY: a module's functions may be called by any thread once it is initialised with CKF_OS_LOCKING_OK, as
// `initialize` does; the list itself never changes.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

macro_rules! call {
    ($module:expr, $name:ident ( $($argument:expr),* )) => {{
        // SAFETY: the list lives as long as the library, which is never unloaded; every pointer among the arguments
        // is to a live local of the length beside it.
        let code = unsafe {
            match $module.functions.as_ref().$name {
                Some(function) => function($($argument),*),
                None => CKR_FUNCTION_NOT_SUPPORTED,
            }
        };
        if code == CKR_OK { Ok(()) } else { Err(Refused { code, by: stringify!($name) }) }
    }};
}

fn len(bytes: &[u8]) -> CK_ULONG {
    bytes.len() as CK_ULONG
}

fn attribute<T>(kind: CK_ATTRIBUTE_TYPE, value: &T, bytes: usize) -> CK_ATTRIBUTE {
    CK_ATTRIBUTE {
        type_: kind,
        pValue: std::ptr::from_ref(value).cast_mut().cast::<c_void>(),
        ulValueLen: bytes as CK_ULONG,
    }
}

fn text(kind: CK_ATTRIBUTE_TYPE, bytes: &[u8]) -> CK_ATTRIBUTE {
    CK_ATTRIBUTE { type_: kind, pValue: bytes.as_ptr().cast_mut().cast::<c_void>(), ulValueLen: len(bytes) }
}

const YES: CK_BBOOL = CK_TRUE;
const NO: CK_BBOOL = CK_FALSE;

fn flag(kind: CK_ATTRIBUTE_TYPE, value: bool) -> CK_ATTRIBUTE {
    attribute(kind, if value { &YES } else { &NO }, 1)
}

const fn plain(mechanism: CK_MECHANISM_TYPE) -> CK_MECHANISM {
    CK_MECHANISM { mechanism, pParameter: null_mut(), ulParameterLen: 0 }
}

impl Module {
    /// Loads it; initialises nothing.
    pub fn load(path: &str) -> Result<Self, String> {
        // SAFETY: the library under test, whose initialisers may run.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
        type GetList = unsafe extern "C" fn(*mut *mut CK_FUNCTION_LIST) -> CK_RV;
        let mut list = null_mut();
        // SAFETY: PKCS#11 gives the function this type.
        let code = unsafe {
            let get: libloading::Symbol<'_, GetList> =
                library.get(b"C_GetFunctionList\0").map_err(|error| error.to_string())?;
            get(&raw mut list)
        };
        let functions = NonNull::new(list).filter(|_| code == CKR_OK).ok_or("no list of functions")?;
        Ok(Self { functions, _library: std::mem::ManuallyDrop::new(library) })
    }

    /// C_Initialize with CKF_OS_LOCKING_OK.
    pub fn initialize(&self) -> Answer<()> {
        let mut arguments = CK_C_INITIALIZE_ARGS { flags: CKF_OS_LOCKING_OK, ..Default::default() };
        call!(self, C_Initialize((&raw mut arguments).cast()))
    }

    /// C_Finalize.
    pub fn finalize(&self) -> Answer<()> {
        call!(self, C_Finalize(null_mut()))
    }

    /// The slots with a token, by C_GetSlotList.
    pub fn slots(&self) -> Answer<Vec<CK_SLOT_ID>> {
        let mut count = 0;
        call!(self, C_GetSlotList(CK_TRUE, null_mut(), &raw mut count))?;
        let mut slots = vec![0; count as usize];
        call!(self, C_GetSlotList(CK_TRUE, slots.as_mut_ptr(), &raw mut count))?;
        slots.truncate(count as usize);
        Ok(slots)
    }

    /// C_GetTokenInfo.
    pub fn token(&self, slot: CK_SLOT_ID) -> Answer<CK_TOKEN_INFO> {
        let mut info = CK_TOKEN_INFO::default();
        call!(self, C_GetTokenInfo(slot, &raw mut info))?;
        Ok(info)
    }

    /// C_OpenSession.
    pub fn open(&self, slot: CK_SLOT_ID, writes: bool) -> Answer<CK_SESSION_HANDLE> {
        let flags = CKF_SERIAL_SESSION | if writes { CKF_RW_SESSION } else { 0 };
        let mut session = 0;
        call!(self, C_OpenSession(slot, flags, null_mut(), None, &raw mut session))?;
        Ok(session)
    }

    /// C_CloseSession.
    pub fn close(&self, session: CK_SESSION_HANDLE) -> Answer<()> {
        call!(self, C_CloseSession(session))
    }

    /// C_GetSessionInfo: the state.
    pub fn state(&self, session: CK_SESSION_HANDLE) -> Answer<CK_STATE> {
        let mut info = CK_SESSION_INFO::default();
        call!(self, C_GetSessionInfo(session, &raw mut info))?;
        Ok(info.state)
    }

    /// C_Login.
    pub fn login(&self, session: CK_SESSION_HANDLE, role: CK_USER_TYPE, pin: &str) -> Answer<()> {
        call!(self, C_Login(session, role, pin.as_ptr().cast_mut(), len(pin.as_bytes())))
    }

    /// C_Logout.
    pub fn logout(&self, session: CK_SESSION_HANDLE) -> Answer<()> {
        call!(self, C_Logout(session))
    }

    /// C_GenerateKey: AES-256.
    pub fn aes(&self, session: CK_SESSION_HANDLE, stored: bool, label: &str) -> Answer<CK_OBJECT_HANDLE> {
        let bytes: CK_ULONG = 32;
        let mut template = [
            flag(CKA_TOKEN, stored),
            flag(CKA_ENCRYPT, true),
            flag(CKA_DECRYPT, true),
            attribute(CKA_VALUE_LEN, &bytes, size_of::<CK_ULONG>()),
            text(CKA_LABEL, label.as_bytes()),
        ];
        let (mut mechanism, mut key) = (plain(CKM_AES_KEY_GEN), 0);
        call!(
            self,
            C_GenerateKey(
                session,
                &raw mut mechanism,
                template.as_mut_ptr(),
                template.len() as CK_ULONG,
                &raw mut key
            )
        )?;
        Ok(key)
    }

    /// C_GenerateKeyPair: P-256; gives the private key.
    pub fn ec(&self, session: CK_SESSION_HANDLE, stored: bool, label: &str) -> Answer<CK_OBJECT_HANDLE> {
        const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        let mut public = [
            flag(CKA_TOKEN, stored),
            flag(CKA_VERIFY, true),
            text(CKA_EC_PARAMS, P256),
            text(CKA_LABEL, label.as_bytes()),
        ];
        let mut private = [flag(CKA_TOKEN, stored), flag(CKA_SIGN, true), text(CKA_LABEL, label.as_bytes())];
        let (mut mechanism, mut one, mut two) = (plain(CKM_EC_KEY_PAIR_GEN), 0, 0);
        call!(
            self,
            C_GenerateKeyPair(
                session,
                &raw mut mechanism,
                public.as_mut_ptr(),
                public.len() as CK_ULONG,
                private.as_mut_ptr(),
                private.len() as CK_ULONG,
                &raw mut one,
                &raw mut two
            )
        )?;
        Ok(two)
    }

    /// C_SignInit and C_Sign: CKM_ECDSA over 32 bytes; gives the signature's length.
    pub fn sign(&self, session: CK_SESSION_HANDLE, key: CK_OBJECT_HANDLE) -> Answer<CK_ULONG> {
        let (mut mechanism, mut data) = (plain(CKM_ECDSA), [7_u8; 32]);
        call!(self, C_SignInit(session, &raw mut mechanism, key))?;
        let mut signature = [0_u8; 128];
        let mut length = len(&signature);
        call!(self, C_Sign(session, data.as_mut_ptr(), 32, signature.as_mut_ptr(), &raw mut length))?;
        Ok(length)
    }

    /// C_EncryptInit and C_Encrypt: AES-ECB of 16 zeros, which tells keys apart.
    pub fn seal(&self, session: CK_SESSION_HANDLE, key: CK_OBJECT_HANDLE) -> Answer<[u8; 16]> {
        let (mut mechanism, mut data) = (plain(CKM_AES_ECB), [0_u8; 16]);
        call!(self, C_EncryptInit(session, &raw mut mechanism, key))?;
        let (mut sealed, mut length) = ([0_u8; 16], 16);
        call!(self, C_Encrypt(session, data.as_mut_ptr(), 16, sealed.as_mut_ptr(), &raw mut length))?;
        Ok(sealed)
    }

    /// C_FindObjects by label, up to 64.
    pub fn find(&self, session: CK_SESSION_HANDLE, label: &str) -> Answer<Vec<CK_OBJECT_HANDLE>> {
        let mut template = [text(CKA_LABEL, label.as_bytes())];
        call!(self, C_FindObjectsInit(session, template.as_mut_ptr(), 1))?;
        let (mut found, mut count) = (vec![0; 64], 0);
        let outcome = call!(self, C_FindObjects(session, found.as_mut_ptr(), 64, &raw mut count));
        call!(self, C_FindObjectsFinal(session))?;
        outcome?;
        found.truncate(count as usize);
        Ok(found)
    }

    /// C_DestroyObject.
    pub fn destroy(&self, session: CK_SESSION_HANDLE, object: CK_OBJECT_HANDLE) -> Answer<()> {
        call!(self, C_DestroyObject(session, object))
    }
}

/// Forks. The child does this and ends with the number that it yields; the parent waits and gets the number, or None
/// if the child was killed or could not be made.
pub fn in_child(work: impl FnOnce() -> u8) -> Option<u8> {
    // SAFETY: this program has one thread whenever it forks.
    let pid = unsafe { fork() };
    if pid == 0 {
        let code = work();
        // SAFETY: ends the child without what the parent registered for its own end.
        unsafe { _exit(code.into()) }
    }
    let mut status = 0;
    // SAFETY: the status lives here.
    let waited = unsafe { waitpid(pid, &raw mut status, 0) };
    let ended_itself = status & 0x7f == 0;
    (pid > 0 && waited == pid && ended_itself).then_some(((status >> 8) & 0xff) as u8)
}
