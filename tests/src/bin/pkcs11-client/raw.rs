//! The module's own functions, with the numbers that they return. With `raw/wishes.rs` the only file of this program
//! with `unsafe`.

use cryptoki_sys::*;
use std::ffi::{CStr, c_void};
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

/// How programs call C_Initialize.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// No arguments: pkcs11-tool, OpenSSH, python-pkcs11.
    Null,
    /// CKF_OS_LOCKING_OK: Java, the OpenSSL engine, the cryptoki crate.
    Locking,
    /// The same, and no threads may be made: GnuTLS, NSS.
    LockingWithoutThreads,
    /// Three of the four mutex functions.
    ThreeMutexFunctions,
    /// A pReserved, which points nowhere.
    Reserved,
}

/// A pointer that must not be followed.
fn nowhere() -> *mut c_void {
    std::ptr::without_provenance_mut(1)
}

unsafe extern "C" fn no_mutex(_: *mut c_void) -> CK_RV {
    CKR_OK
}

unsafe extern "C" fn no_new_mutex(_: *mut *mut c_void) -> CK_RV {
    CKR_OK
}

/// A loaded module.
pub struct Module {
    functions: NonNull<CK_FUNCTION_LIST>,
    // Unloaded never: the functions are used to the end of the process.
    library: std::mem::ManuallyDrop<libloading::Library>,
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

mod wishes;

pub use wishes::{Value, Wish};

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
        Ok(Self { functions, library: std::mem::ManuallyDrop::new(library) })
    }

    /// C_Initialize with CKF_OS_LOCKING_OK.
    pub fn initialize(&self) -> Answer<()> {
        self.initialize_as(Begin::Locking)
    }

    /// C_Initialize.
    pub fn initialize_as(&self, how: Begin) -> Answer<()> {
        let mut arguments = CK_C_INITIALIZE_ARGS::default();
        match how {
            Begin::Null => return call!(self, C_Initialize(null_mut())),
            Begin::Locking => arguments.flags = CKF_OS_LOCKING_OK,
            Begin::LockingWithoutThreads => {
                arguments.flags = CKF_OS_LOCKING_OK | CKF_LIBRARY_CANT_CREATE_OS_THREADS;
            }
            Begin::ThreeMutexFunctions => {
                arguments.flags = CKF_OS_LOCKING_OK;
                arguments.CreateMutex = Some(no_new_mutex);
                arguments.DestroyMutex = Some(no_mutex);
                arguments.LockMutex = Some(no_mutex);
            }
            Begin::Reserved => {
                arguments.flags = CKF_OS_LOCKING_OK;
                arguments.pReserved = nowhere();
            }
        }
        call!(self, C_Initialize((&raw mut arguments).cast()))
    }

    /// C_Finalize.
    pub fn finalize(&self) -> Answer<()> {
        call!(self, C_Finalize(null_mut()))
    }

    /// C_Finalize with an argument, which points nowhere.
    pub fn finalize_nowhere(&self) -> Answer<()> {
        call!(self, C_Finalize(nowhere()))
    }

    /// C_GetInfo into nothing.
    pub fn info_into_nothing(&self) -> Answer<()> {
        call!(self, C_GetInfo(null_mut()))
    }

    /// C_GetInterface; gives the address of the functions.
    pub fn interface(
        &self,
        name: Option<&CStr>,
        version: Option<(u8, u8)>,
        flags: CK_FLAGS,
    ) -> Answer<usize> {
        type Get = unsafe extern "C" fn(
            *mut CK_UTF8CHAR,
            *mut CK_VERSION,
            *mut *mut CK_INTERFACE,
            CK_FLAGS,
        ) -> CK_RV;
        const BY: &str = "C_GetInterface";
        let missing = Refused { code: CKR_FUNCTION_NOT_SUPPORTED, by: BY };
        let mut version = version.map(|(major, minor)| CK_VERSION { major, minor });
        let version = version.as_mut().map_or(null_mut(), std::ptr::from_mut);
        let name = name.map_or(null_mut(), |name| name.as_ptr().cast_mut().cast());
        let mut interface: *mut CK_INTERFACE = null_mut();
        // SAFETY: PKCS#11 3.0 gives the function this type; name and version live to the end of this call.
        let code = unsafe {
            let get: libloading::Symbol<'_, Get> =
                self.library.get(b"C_GetInterface\0").map_err(|_| missing)?;
            get(name, version, &raw mut interface, flags)
        };
        if code != CKR_OK {
            return Err(Refused { code, by: BY });
        }
        // SAFETY: the module's own interface, which it never takes away.
        let interface = NonNull::new(interface).map(|found| unsafe { found.as_ref() }.pFunctionList.addr());
        interface.ok_or(missing)
    }

    /// C_GetSlotList with room for so many; gives the count.
    pub fn slots_into(&self, room: usize) -> (CK_RV, CK_ULONG) {
        let (mut slots, mut count) = (vec![0; room.max(1)], room as CK_ULONG);
        let code = call!(self, C_GetSlotList(CK_TRUE, slots.as_mut_ptr(), &raw mut count));
        (code.err().map_or(CKR_OK, |refused| refused.code), count)
    }

    /// C_OpenSession with these flags.
    pub fn open_with(&self, slot: CK_SLOT_ID, flags: CK_FLAGS) -> Answer<CK_SESSION_HANDLE> {
        let mut session = 0;
        call!(self, C_OpenSession(slot, flags, null_mut(), None, &raw mut session))?;
        Ok(session)
    }

    /// C_GenerateKey: AES-256, with a length and nothing else.
    pub fn bare_aes(&self, session: CK_SESSION_HANDLE) -> Answer<CK_OBJECT_HANDLE> {
        let bytes: CK_ULONG = 32;
        let mut template = [attribute(CKA_VALUE_LEN, &bytes, size_of::<CK_ULONG>())];
        let (mut mechanism, mut key) = (plain(CKM_AES_KEY_GEN), 0);
        call!(self, C_GenerateKey(session, &raw mut mechanism, template.as_mut_ptr(), 1, &raw mut key))?;
        Ok(key)
    }

    /// C_SignInit: CKM_ECDSA.
    pub fn sign_init(&self, session: CK_SESSION_HANDLE, key: CK_OBJECT_HANDLE) -> Answer<()> {
        let mut mechanism = plain(CKM_ECDSA);
        call!(self, C_SignInit(session, &raw mut mechanism, key))
    }

    /// C_Sign of 32 bytes into a buffer, or into none; gives the length too.
    pub fn sign_into(&self, session: CK_SESSION_HANDLE, buffer: Option<&mut [u8]>) -> (CK_RV, CK_ULONG) {
        let mut data = [7_u8; 32];
        let (place, mut length) = buffer.map_or((null_mut(), 0), |buffer| (buffer.as_mut_ptr(), len(buffer)));
        let code = call!(self, C_Sign(session, data.as_mut_ptr(), 32, place, &raw mut length));
        (code.err().map_or(CKR_OK, |refused| refused.code), length)
    }

    /// C_EncryptInit: AES-CBC-PAD.
    pub fn encrypt_init(&self, session: CK_SESSION_HANDLE, key: CK_OBJECT_HANDLE) -> Answer<()> {
        let mut iv = [3_u8; 16];
        let mut mechanism = CK_MECHANISM {
            mechanism: CKM_AES_CBC_PAD,
            pParameter: iv.as_mut_ptr().cast(),
            ulParameterLen: 16,
        };
        call!(self, C_EncryptInit(session, &raw mut mechanism, key))
    }

    /// C_Encrypt of 20 bytes, or C_EncryptUpdate of them, into a buffer, or into none; gives the length too.
    pub fn encrypt_into(
        &self,
        session: CK_SESSION_HANDLE,
        part: bool,
        buffer: Option<&mut [u8]>,
    ) -> (CK_RV, CK_ULONG) {
        let mut data = [9_u8; 20];
        let (place, mut length) = buffer.map_or((null_mut(), 0), |buffer| (buffer.as_mut_ptr(), len(buffer)));
        let code = if part {
            call!(self, C_EncryptUpdate(session, data.as_mut_ptr(), 20, place, &raw mut length))
        } else {
            call!(self, C_Encrypt(session, data.as_mut_ptr(), 20, place, &raw mut length))
        };
        (code.err().map_or(CKR_OK, |refused| refused.code), length)
    }

    /// C_EncryptUpdate of 20 bytes; gives the output.
    pub fn encrypt_part(&self, session: CK_SESSION_HANDLE) -> Answer<Vec<u8>> {
        let (mut data, mut sealed, mut length) = ([9_u8; 20], vec![0; 64], 64);
        call!(self, C_EncryptUpdate(session, data.as_mut_ptr(), 20, sealed.as_mut_ptr(), &raw mut length))?;
        sealed.truncate(length as usize);
        Ok(sealed)
    }

    /// C_EncryptFinal; gives the output.
    pub fn encrypt_final(&self, session: CK_SESSION_HANDLE) -> Answer<Vec<u8>> {
        let (mut sealed, mut length) = (vec![0; 64], 64);
        call!(self, C_EncryptFinal(session, sealed.as_mut_ptr(), &raw mut length))?;
        sealed.truncate(length as usize);
        Ok(sealed)
    }

    /// C_DigestInit: SHA-256.
    pub fn digest_init(&self, session: CK_SESSION_HANDLE) -> Answer<()> {
        let mut mechanism = plain(CKM_SHA256);
        call!(self, C_DigestInit(session, &raw mut mechanism))
    }

    /// C_Digest of 20 bytes into a buffer, or into none; gives the length too.
    pub fn digest_into(&self, session: CK_SESSION_HANDLE, buffer: Option<&mut [u8]>) -> (CK_RV, CK_ULONG) {
        let mut data = [9_u8; 20];
        let (place, mut length) = buffer.map_or((null_mut(), 0), |buffer| (buffer.as_mut_ptr(), len(buffer)));
        let code = call!(self, C_Digest(session, data.as_mut_ptr(), 20, place, &raw mut length));
        (code.err().map_or(CKR_OK, |refused| refused.code), length)
    }

    /// C_GetAttributeValue, each attribute with room for so many bytes; gives the lengths and what was written.
    pub fn attributes(
        &self,
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        wanted: &[(CK_ATTRIBUTE_TYPE, usize)],
    ) -> (CK_RV, Vec<(CK_ULONG, Vec<u8>)>) {
        let mut rooms: Vec<Vec<u8>> = wanted.iter().map(|(_, room)| vec![0xee; *room]).collect();
        let mut template: Vec<CK_ATTRIBUTE> = wanted
            .iter()
            .zip(&mut rooms)
            .map(|((kind, _), room)| CK_ATTRIBUTE {
                type_: *kind,
                pValue: room.as_mut_ptr().cast(),
                ulValueLen: len(room),
            })
            .collect();
        let count = template.len() as CK_ULONG;
        let code = call!(self, C_GetAttributeValue(session, object, template.as_mut_ptr(), count));
        let lengths = template.iter().map(|attribute| attribute.ulValueLen);
        (code.err().map_or(CKR_OK, |refused| refused.code), lengths.zip(rooms).collect())
    }

    /// C_GetFunctionStatus.
    pub fn function_status(&self, session: CK_SESSION_HANDLE) -> Answer<()> {
        call!(self, C_GetFunctionStatus(session))
    }

    /// C_CancelFunction.
    pub fn cancel_function(&self, session: CK_SESSION_HANDLE) -> Answer<()> {
        call!(self, C_CancelFunction(session))
    }

    /// C_SeedRandom.
    pub fn seed(&self, session: CK_SESSION_HANDLE) -> Answer<()> {
        let mut seed = [1_u8; 8];
        call!(self, C_SeedRandom(session, seed.as_mut_ptr(), 8))
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
        self.open_with(slot, CKF_SERIAL_SESSION | if writes { CKF_RW_SESSION } else { 0 })
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

    /// C_InitPIN.
    pub fn init_pin(&self, session: CK_SESSION_HANDLE, pin: &str) -> Answer<()> {
        call!(self, C_InitPIN(session, pin.as_ptr().cast_mut(), len(pin.as_bytes())))
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
