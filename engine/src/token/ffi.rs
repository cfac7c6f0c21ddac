//! The door to PKCS#11: the only file with `unsafe`. Everything else sees sessions, handles, templates and faults.

use super::error::Fault;
use super::raw::{RawMechanism, RawTemplate, length};
use super::template::Template;
use crate::domain::{AttributeType, Mechanism, MechanismInfo};
use cryptoki_sys::{
    CK_ATTRIBUTE, CK_C_INITIALIZE_ARGS, CK_FUNCTION_LIST, CK_MECHANISM_INFO, CK_TOKEN_INFO, CK_ULONG,
    CKF_OS_LOCKING_OK, CKF_RW_SESSION, CKF_SERIAL_SESSION, CKU_SO, CKU_USER,
};
use std::ffi::CString;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use zeroize::Zeroizing;

/// CKR_FUNCTION_NOT_SUPPORTED, for functions that a library's list leaves out.
const FUNCTION_NOT_SUPPORTED: u64 = 0x54;
/// CKR_CRYPTOKI_ALREADY_INITIALIZED
pub(super) const ALREADY_INITIALIZED: u64 = 0x191;
/// CKR_SIGNATURE_INVALID
pub(super) const SIGNATURE_INVALID: u64 = 0xC0;
/// Room for what an operation may add to its input: an RSA-4096 block, a GCM tag, padding.
const OUTPUT_ROOM_BYTES: usize = 4096;
/// Room for one attribute's value.
const ATTRIBUTE_ROOM_BYTES: usize = 8192;
/// Room for one digest.
const DIGEST_ROOM_BYTES: usize = 64;
/// Handles asked for by one C_FindObjects.
const FIND_BATCH: usize = 512;

/// A handle of an object, as the token gave it.
pub(super) type Handle = u64;

/// A loaded and initialised PKCS#11 library. Lives as long as the process: C_Finalize under running calls crashes
/// some libraries.
pub(super) struct Module {
    list: NonNull<CK_FUNCTION_LIST>,
    _library: Option<libloading::Library>,
}

// SAFETY: the list is constant after C_GetFunctionList, and the library was initialised with CKF_OS_LOCKING_OK, which
// promises that any thread may call it.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// Calls one function of the list; the result is Ok or a [`Fault`] that names the function.
macro_rules! call {
    ($module:expr, $name:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: `list` came from C_GetFunctionList of a library that stays loaded for ever.
        let function = unsafe { $module.list.as_ref() }.$name;
        match function {
            None => Err(Fault { call: stringify!($name), code: FUNCTION_NOT_SUPPORTED }),
            Some(function) => {
                // SAFETY: each pointer among the arguments points to a live local value or buffer, and each length
                // is that of its buffer; PKCS#11 functions keep no pointer after they return.
                match unsafe { function($($argument),*) } {
                    0 => Ok(()),
                    code => Err(Fault { call: stringify!($name), code }),
                }
            }
        }
    }};
}

impl Module {
    /// Loads and initialises a vendor's library. The text says what is wrong with it.
    pub fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the library's constructors; the operator named this file as his token's library.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
        type GetFunctionList = unsafe extern "C" fn(*mut *mut CK_FUNCTION_LIST) -> CK_ULONG;
        // SAFETY: C_GetFunctionList has this type in every PKCS#11 version.
        let get = unsafe { library.get::<GetFunctionList>(b"C_GetFunctionList\0") }
            .map_err(|error| format!("it is no PKCS#11 library: {error}"))?;
        let mut list = null_mut();
        // SAFETY: `list` is a live local.
        let code = unsafe { get(&raw mut list) };
        let list = NonNull::new(list).filter(|_| code == 0);
        let list = list.ok_or_else(|| format!("C_GetFunctionList returned {code:#x}"))?;
        let module = Self { list, _library: Some(library) };
        match module.initialize(None) {
            Ok(()) | Err(Fault { code: ALREADY_INITIALIZED, .. }) => Ok(module),
            Err(fault) => Err(format!("{} returned {}", fault.call, super::error::rv_name(fault.code))),
        }
    }

    /// The linked-in kryoptic, not initialised yet. Its OpenSSL is told first to read no configuration file: a foreign
    /// one could load a foreign library into this process.
    #[cfg(feature = "embedded")]
    pub fn embedded() -> Result<Self, String> {
        const NO_LOAD_CONFIG: u64 = 0x80;
        // SAFETY: takes no pointer; may be called at any time from any thread.
        if unsafe { openssl_sys::OPENSSL_init_crypto(NO_LOAD_CONFIG, std::ptr::null()) } != 1 {
            return Err("its OpenSSL does not initialise".to_string());
        }
        let mut list = null_mut();
        let code = kryoptic_lib::fns::general::fn_get_function_list(&raw mut list);
        // The list's layout is fixed by the PKCS#11 standard; both crates generate it from the same header.
        let list = NonNull::new(list.cast::<CK_FUNCTION_LIST>()).filter(|_| code == 0);
        let list = list.ok_or_else(|| format!("C_GetFunctionList returned {code:#x}"))?;
        Ok(Self { list, _library: None })
    }

    /// C_Initialize with OS locking; `reserved` is a string for libraries that take one.
    pub fn initialize(&self, reserved: Option<&str>) -> Result<(), Fault> {
        let reserved = reserved.map(|text| CString::new(text).unwrap_or_default());
        let mut args = CK_C_INITIALIZE_ARGS {
            CreateMutex: None,
            DestroyMutex: None,
            LockMutex: None,
            UnlockMutex: None,
            flags: CKF_OS_LOCKING_OK,
            pReserved: reserved.as_ref().map_or(null_mut(), |text| text.as_ptr().cast_mut().cast()),
        };
        call!(self, C_Initialize((&raw mut args).cast()))
    }

    /// Slots with a token in them.
    pub fn slots(&self) -> Result<Vec<u64>, Fault> {
        let mut count = 0;
        call!(self, C_GetSlotList(1, null_mut(), &raw mut count))?;
        let mut slots = vec![0; to_usize(count)];
        call!(self, C_GetSlotList(1, slots.as_mut_ptr(), &raw mut count))?;
        slots.truncate(to_usize(count));
        Ok(slots)
    }

    /// CK_TOKEN_INFO.
    pub fn token_info(&self, slot: u64) -> Result<TokenInfo, Fault> {
        // SAFETY: a structure of integers and byte arrays; all zero is a value of it.
        let mut info: CK_TOKEN_INFO = unsafe { std::mem::zeroed() };
        call!(self, C_GetTokenInfo(slot, &raw mut info))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches([' ', '\0']).to_string();
        Ok(TokenInfo {
            label: text(&info.label),
            manufacturer: text(&info.manufacturerID),
            model: text(&info.model),
            serial: text(&info.serialNumber),
            flags: info.flags,
        })
    }

    /// Smallest and largest key of a mechanism; None if the token does not know it.
    pub fn key_sizes(&self, slot: u64, mechanism: u64) -> Option<(u64, u64)> {
        let mut info = CK_MECHANISM_INFO { ulMinKeySize: 0, ulMaxKeySize: 0, flags: 0 };
        call!(self, C_GetMechanismInfo(slot, mechanism, &raw mut info)).ok()?;
        Some((info.ulMinKeySize, info.ulMaxKeySize))
    }

    /// What the token says of its mechanisms, by number.
    pub fn mechanisms(&self, slot: u64) -> Result<Vec<MechanismInfo>, Fault> {
        let mut count = 0;
        call!(self, C_GetMechanismList(slot, null_mut(), &raw mut count))?;
        let mut numbers = vec![0; to_usize(count).min(crate::limits::CARD_MECHANISMS_MAX)];
        count = numbers.len() as CK_ULONG;
        call!(self, C_GetMechanismList(slot, numbers.as_mut_ptr(), &raw mut count))?;
        numbers.truncate(to_usize(count));
        numbers.sort_unstable();
        numbers.dedup();
        let info = |number| {
            let mut info = CK_MECHANISM_INFO { ulMinKeySize: 0, ulMaxKeySize: 0, flags: 0 };
            call!(self, C_GetMechanismInfo(slot, number, &raw mut info)).ok()?;
            let CK_MECHANISM_INFO { ulMinKeySize, ulMaxKeySize, flags } = info;
            Some(MechanismInfo { number, min_key: ulMinKeySize, max_key: ulMaxKeySize, flags })
        };
        Ok(numbers.into_iter().filter_map(info).collect())
    }

    /// C_InitToken.
    pub fn init_token(&self, slot: u64, so_pin: &str, label: &str) -> Result<(), Fault> {
        let mut padded = [b' '; 32];
        for (place, byte) in padded.iter_mut().zip(label.bytes()) {
            *place = byte;
        }
        let pin = so_pin.as_bytes();
        call!(self, C_InitToken(slot, pin.as_ptr().cast_mut(), length(pin), padded.as_mut_ptr()))
    }

    /// C_OpenSession, read and write.
    pub fn open(&'static self, slot: u64) -> Result<Session, Fault> {
        let mut handle = 0;
        let flags = CKF_SERIAL_SESSION | CKF_RW_SESSION;
        call!(self, C_OpenSession(slot, flags, null_mut(), None, &raw mut handle))?;
        Ok(Session { module: self, handle })
    }
}

/// What a token says of itself.
pub(super) struct TokenInfo {
    pub label: String,
    pub manufacturer: String,
    pub model: String,
    pub serial: String,
    /// CKF_
    pub flags: u64,
}

/// An open session. Closed when dropped, and with it the session objects that it made.
pub(super) struct Session {
    module: &'static Module,
    handle: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        // A session that the token has lost is closed already.
        let _ = call!(self.module, C_CloseSession(self.handle));
    }
}

/// Who logs in.
#[derive(Clone, Copy)]
pub(super) enum User {
    SecurityOfficer,
    Normal,
}

/// The two-call operations that take data and give data.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Sign,
    SignRecover,
    VerifyRecover,
    Encrypt,
    Decrypt,
}

impl Session {
    /// C_Login; without a PIN the token asks for it on its own path.
    pub fn login(&self, user: User, pin: Option<&str>) -> Result<(), Fault> {
        let user = match user {
            User::SecurityOfficer => CKU_SO,
            User::Normal => CKU_USER,
        };
        let (pointer, length) =
            pin.map_or((null_mut(), 0), |pin| (pin.as_ptr().cast_mut(), length(pin.as_bytes())));
        call!(self.module, C_Login(self.handle, user, pointer, length))
    }

    /// C_Logout.
    pub fn logout(&self) -> Result<(), Fault> {
        call!(self.module, C_Logout(self.handle))
    }

    /// C_InitPIN.
    pub fn init_pin(&self, pin: &str) -> Result<(), Fault> {
        let pin = pin.as_bytes();
        call!(self.module, C_InitPIN(self.handle, pin.as_ptr().cast_mut(), length(pin)))
    }

    /// C_GenerateKey.
    pub fn generate(&self, mechanism: &Mechanism, template: &Template) -> Result<Handle, Fault> {
        let (mut mechanism, mut template) = (RawMechanism::new(mechanism), RawTemplate::new(template));
        let mut key = 0;
        let (list, count) = template.parts();
        call!(self.module, C_GenerateKey(self.handle, mechanism.pointer(), list, count, &raw mut key))?;
        Ok(key)
    }

    /// C_GenerateKeyPair: public, then private handle.
    pub fn generate_pair(
        &self,
        mechanism: &Mechanism,
        public: &Template,
        private: &Template,
    ) -> Result<(Handle, Handle), Fault> {
        let mut mechanism = RawMechanism::new(mechanism);
        let (mut public, mut private) = (RawTemplate::new(public), RawTemplate::new(private));
        let ((public, publics), (private, privates)) = (public.parts(), private.parts());
        let (mut public_key, mut private_key) = (0, 0);
        call!(
            self.module,
            C_GenerateKeyPair(
                self.handle,
                mechanism.pointer(),
                public,
                publics,
                private,
                privates,
                &raw mut public_key,
                &raw mut private_key,
            )
        )?;
        Ok((public_key, private_key))
    }

    /// C_CreateObject.
    pub fn create(&self, template: &Template) -> Result<Handle, Fault> {
        let mut template = RawTemplate::new(template);
        let (list, count) = template.parts();
        let mut object = 0;
        call!(self.module, C_CreateObject(self.handle, list, count, &raw mut object))?;
        Ok(object)
    }

    /// C_WrapKey in one call: some tokens answer the length query wrongly.
    pub fn wrap(&self, mechanism: &Mechanism, wrapping: Handle, key: Handle) -> Result<Vec<u8>, Fault> {
        let mut mechanism = RawMechanism::new(mechanism);
        let mut out = vec![0; crate::limits::WRAPPED_KEY_MAX_BYTES];
        let mut count = length(&out);
        call!(
            self.module,
            C_WrapKey(self.handle, mechanism.pointer(), wrapping, key, out.as_mut_ptr(), &raw mut count)
        )?;
        out.truncate(to_usize(count));
        out.shrink_to_fit();
        Ok(out)
    }

    /// C_UnwrapKey.
    pub fn unwrap(
        &self,
        mechanism: &Mechanism,
        unwrapping: Handle,
        wrapped: &[u8],
        template: &Template,
    ) -> Result<Handle, Fault> {
        let (mut mechanism, mut template) = (RawMechanism::new(mechanism), RawTemplate::new(template));
        let (list, count) = template.parts();
        let mut key = 0;
        call!(
            self.module,
            C_UnwrapKey(
                self.handle,
                mechanism.pointer(),
                unwrapping,
                wrapped.as_ptr().cast_mut(),
                length(wrapped),
                list,
                count,
                &raw mut key,
            )
        )?;
        Ok(key)
    }

    /// C_DeriveKey.
    pub fn derive(&self, mechanism: &Mechanism, base: Handle, template: &Template) -> Result<Handle, Fault> {
        let (mut mechanism, mut template) = (RawMechanism::new(mechanism), RawTemplate::new(template));
        let (list, count) = template.parts();
        let mut key = 0;
        call!(self.module, C_DeriveKey(self.handle, mechanism.pointer(), base, list, count, &raw mut key))?;
        Ok(key)
    }

    /// C_GenerateRandom.
    pub fn random(&self, bytes: usize) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let mut out = Zeroizing::new(vec![0; bytes]);
        let count = length(&out);
        call!(self.module, C_GenerateRandom(self.handle, out.as_mut_ptr(), count))?;
        Ok(out)
    }

    /// C_DigestInit, C_DigestKey, C_DigestFinal. After an error the session must be dropped.
    pub fn digest_key(&self, mechanism: &Mechanism, key: Handle) -> Result<Vec<u8>, Fault> {
        let mut mechanism = RawMechanism::new(mechanism);
        call!(self.module, C_DigestInit(self.handle, mechanism.pointer()))?;
        call!(self.module, C_DigestKey(self.handle, key))?;
        let mut out = vec![0; DIGEST_ROOM_BYTES];
        let mut count = length(&out);
        call!(self.module, C_DigestFinal(self.handle, out.as_mut_ptr(), &raw mut count))?;
        out.truncate(to_usize(count));
        Ok(out)
    }

    /// C_DestroyObject.
    pub fn destroy(&self, object: Handle) -> Result<(), Fault> {
        call!(self.module, C_DestroyObject(self.handle, object))
    }

    /// One attribute. Asked for one at a time, since one that a token cannot answer spoils a whole list.
    pub fn read(&self, object: Handle, attribute: AttributeType) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let mut value = Zeroizing::new(vec![0; ATTRIBUTE_ROOM_BYTES]);
        let mut raw = CK_ATTRIBUTE {
            type_: attribute.0,
            pValue: value.as_mut_ptr().cast(),
            ulValueLen: length(&value),
        };
        call!(self.module, C_GetAttributeValue(self.handle, object, &raw mut raw, 1))?;
        value.truncate(to_usize(raw.ulValueLen));
        Ok(value)
    }

    /// A CK_ULONG attribute; None if the token does not answer it.
    pub fn read_number(&self, object: Handle, attribute: AttributeType) -> Option<u64> {
        let value = self.read(object, attribute).ok()?;
        Some(u64::from_ne_bytes(value.as_slice().try_into().ok()?))
    }

    /// A CK_BBOOL attribute; None if the token does not answer it.
    pub fn read_flag(&self, object: Handle, attribute: AttributeType) -> Option<bool> {
        match self.read(object, attribute).ok()?.as_slice() {
            [byte] => Some(*byte != 0),
            _ => None,
        }
    }

    /// C_SetAttributeValue of one flag.
    pub fn set_flag(&self, object: Handle, attribute: AttributeType, value: bool) -> Result<(), Fault> {
        let template = Template::default().flag(attribute, value);
        let mut template = RawTemplate::new(&template);
        let (list, count) = template.parts();
        call!(self.module, C_SetAttributeValue(self.handle, object, list, count))
    }

    /// Every object that fits the template; all objects if it is empty.
    pub fn find(&self, template: &Template) -> Result<Vec<Handle>, Fault> {
        let mut template = RawTemplate::new(template);
        let (list, count) = template.parts();
        call!(self.module, C_FindObjectsInit(self.handle, list, count))?;
        let mut all = Vec::new();
        let found = loop {
            let mut batch = [0; FIND_BATCH];
            let mut found = 0;
            let room = FIND_BATCH as CK_ULONG;
            let step =
                call!(self.module, C_FindObjects(self.handle, batch.as_mut_ptr(), room, &raw mut found));
            match step {
                Ok(()) if found == 0 => break Ok(()),
                Ok(()) => all.extend_from_slice(&batch[..to_usize(found).min(FIND_BATCH)]),
                Err(fault) => break Err(fault),
            }
        };
        let closed = call!(self.module, C_FindObjectsFinal(self.handle));
        found.and(closed).map(|()| all)
    }

    /// C_SignInit and C_Sign, or their like. After an error the session must be dropped.
    pub fn run(
        &self,
        operation: Operation,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let mut mechanism = RawMechanism::new(mechanism);
        let mechanism = mechanism.pointer();
        // A caller's own short buffer never reaches a token: kryoptic ends the operation over it.
        let mut out = Zeroizing::new(vec![0; data.len() + OUTPUT_ROOM_BYTES]);
        let mut count = length(&out);
        let (input, input_length) = (data.as_ptr().cast_mut(), length(data));
        let (output, room) = (out.as_mut_ptr(), &raw mut count);
        match operation {
            Operation::Sign => {
                call!(self.module, C_SignInit(self.handle, mechanism, key))?;
                call!(self.module, C_Sign(self.handle, input, input_length, output, room))?;
            }
            Operation::SignRecover => {
                call!(self.module, C_SignRecoverInit(self.handle, mechanism, key))?;
                call!(self.module, C_SignRecover(self.handle, input, input_length, output, room))?;
            }
            Operation::VerifyRecover => {
                call!(self.module, C_VerifyRecoverInit(self.handle, mechanism, key))?;
                call!(self.module, C_VerifyRecover(self.handle, input, input_length, output, room))?;
            }
            Operation::Encrypt => {
                call!(self.module, C_EncryptInit(self.handle, mechanism, key))?;
                call!(self.module, C_Encrypt(self.handle, input, input_length, output, room))?;
            }
            Operation::Decrypt => {
                call!(self.module, C_DecryptInit(self.handle, mechanism, key))?;
                call!(self.module, C_Decrypt(self.handle, input, input_length, output, room))?;
            }
        }
        out.truncate(to_usize(count));
        Ok(out)
    }

    /// C_VerifyInit and C_Verify.
    pub fn verify(
        &self,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let mut mechanism = RawMechanism::new(mechanism);
        call!(self.module, C_VerifyInit(self.handle, mechanism.pointer(), key))?;
        call!(
            self.module,
            C_Verify(
                self.handle,
                data.as_ptr().cast_mut(),
                length(data),
                signature.as_ptr().cast_mut(),
                length(signature),
            )
        )
    }
}

fn to_usize(count: CK_ULONG) -> usize {
    usize::try_from(count).unwrap_or(0)
}
