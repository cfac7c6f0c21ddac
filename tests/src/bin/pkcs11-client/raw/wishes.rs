//! Calls with templates of any attributes, operations in parts, and functions found by their names.

use super::{Answer, Module, Refused, len, plain, text};
use cryptoki_sys::*;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A value in a template.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// CK_BBOOL
    Flag(bool),
    /// CK_ULONG
    Number(CK_ULONG),
    /// Anything else.
    Bytes(&'a [u8]),
    /// CK_ATTRIBUTE[]
    Template(&'a [Wish<'a>]),
}

/// An attribute with its value.
pub type Wish<'a> = (CK_ATTRIBUTE_TYPE, Value<'a>);

/// A list of attributes, and what they point to.
struct Template {
    list: Vec<CK_ATTRIBUTE>,
    _values: Vec<Vec<u8>>,
    _inner: Vec<Template>,
}

impl Template {
    fn of(wishes: &[Wish<'_>]) -> Self {
        let mut template = Self { list: Vec::new(), _values: Vec::new(), _inner: Vec::new() };
        for (kind, value) in wishes {
            let bytes = match value {
                Value::Flag(flag) => vec![u8::from(*flag)],
                Value::Number(number) => number.to_ne_bytes().to_vec(),
                Value::Bytes(bytes) => bytes.to_vec(),
                Value::Template(wishes) => {
                    let mut inner = Self::of(wishes);
                    template.list.push(CK_ATTRIBUTE {
                        type_: *kind,
                        pValue: inner.list.as_mut_ptr().cast(),
                        ulValueLen: (inner.list.len() * size_of::<CK_ATTRIBUTE>()) as CK_ULONG,
                    });
                    template._inner.push(inner);
                    continue;
                }
            };
            // The bytes stay where they are when the vector that holds them is moved.
            template.list.push(text(*kind, &bytes));
            template._values.push(bytes);
        }
        template
    }

    fn count(&self) -> CK_ULONG {
        self.list.len() as CK_ULONG
    }
}

/// What PKCS#11 wants done where no list of functions is asked: a function found by its name.
macro_rules! named {
    ($module:expr, $name:ident ( $($argument:expr => $kind:ty),* )) => {{
        let missing = Refused { code: CKR_FUNCTION_NOT_SUPPORTED, by: stringify!($name) };
        // SAFETY: PKCS#11 gives the function this type; every pointer among the arguments is to a live local.
        let code = unsafe {
            let function: libloading::Symbol<'_, unsafe extern "C" fn($($kind),*) -> CK_RV> = $module
                .library
                .get(concat!(stringify!($name), "\0").as_bytes())
                .map_err(|_| missing)?;
            function($($argument),*)
        };
        if code == CKR_OK { Ok(()) } else { Err(Refused { code, by: stringify!($name) }) }
    }};
}

/// What goes by C_EncryptMessageBegin and its kin.
type Place = *mut c_void;

impl Module {
    /// C_GenerateKey without a parameter.
    pub fn generate(
        &self,
        session: CK_SESSION_HANDLE,
        mechanism: CK_MECHANISM_TYPE,
        wishes: &[Wish<'_>],
    ) -> Answer<CK_OBJECT_HANDLE> {
        let (mut mechanism, mut template, mut key) = (plain(mechanism), Template::of(wishes), 0);
        let count = template.count();
        call!(
            self,
            C_GenerateKey(session, &raw mut mechanism, template.list.as_mut_ptr(), count, &raw mut key)
        )?;
        Ok(key)
    }

    /// C_GenerateKeyPair of P-256, as session objects: the public key, and the private one with these wishes.
    pub fn pair(
        &self,
        session: CK_SESSION_HANDLE,
        wishes: &[Wish<'_>],
    ) -> Answer<(CK_OBJECT_HANDLE, CK_OBJECT_HANDLE)> {
        const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        let mut public = Template::of(&[(CKA_EC_PARAMS, Value::Bytes(P256))]);
        let mut private = Template::of(wishes);
        let (mut mechanism, mut one, mut two) = (plain(CKM_EC_KEY_PAIR_GEN), 0, 0);
        let counts = (public.count(), private.count());
        call!(
            self,
            C_GenerateKeyPair(
                session,
                &raw mut mechanism,
                public.list.as_mut_ptr(),
                counts.0,
                private.list.as_mut_ptr(),
                counts.1,
                &raw mut one,
                &raw mut two
            )
        )?;
        Ok((one, two))
    }

    /// C_CopyObject.
    pub fn copy(
        &self,
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        wishes: &[Wish<'_>],
    ) -> Answer<CK_OBJECT_HANDLE> {
        let (mut template, mut copy) = (Template::of(wishes), 0);
        let count = template.count();
        call!(self, C_CopyObject(session, object, template.list.as_mut_ptr(), count, &raw mut copy))?;
        Ok(copy)
    }

    /// C_SetAttributeValue.
    pub fn set(
        &self,
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        wishes: &[Wish<'_>],
    ) -> Answer<()> {
        let mut template = Template::of(wishes);
        let count = template.count();
        call!(self, C_SetAttributeValue(session, object, template.list.as_mut_ptr(), count))
    }

    /// C_WrapKey: AES-KEY-WRAP.
    pub fn wrap(
        &self,
        session: CK_SESSION_HANDLE,
        wrapping: CK_OBJECT_HANDLE,
        key: CK_OBJECT_HANDLE,
    ) -> Answer<Vec<u8>> {
        let (mut mechanism, mut blob) = (plain(CKM_AES_KEY_WRAP), vec![0; 256]);
        let mut length = len(&blob);
        call!(
            self,
            C_WrapKey(session, &raw mut mechanism, wrapping, key, blob.as_mut_ptr(), &raw mut length)
        )?;
        blob.truncate(length as usize);
        Ok(blob)
    }

    /// C_UnwrapKey: AES-KEY-WRAP.
    pub fn unwrap(
        &self,
        session: CK_SESSION_HANDLE,
        unwrapping: CK_OBJECT_HANDLE,
        blob: &[u8],
        wishes: &[Wish<'_>],
    ) -> Answer<CK_OBJECT_HANDLE> {
        let (mut mechanism, mut template) = (plain(CKM_AES_KEY_WRAP), Template::of(wishes));
        let (mut blob, mut key, count) = (blob.to_vec(), 0, template.count());
        call!(
            self,
            C_UnwrapKey(
                session,
                &raw mut mechanism,
                unwrapping,
                blob.as_mut_ptr(),
                len(&blob),
                template.list.as_mut_ptr(),
                count,
                &raw mut key
            )
        )?;
        Ok(key)
    }

    /// C_DeriveKey: ECDH with another's public point.
    pub fn derive(
        &self,
        session: CK_SESSION_HANDLE,
        base: CK_OBJECT_HANDLE,
        point: &[u8],
        wishes: &[Wish<'_>],
    ) -> Answer<CK_OBJECT_HANDLE> {
        let mut point = point.to_vec();
        let mut parameter = CK_ECDH1_DERIVE_PARAMS {
            kdf: CKD_NULL,
            ulSharedDataLen: 0,
            pSharedData: null_mut(),
            ulPublicDataLen: len(&point),
            pPublicData: point.as_mut_ptr(),
        };
        let mut mechanism = CK_MECHANISM {
            mechanism: CKM_ECDH1_DERIVE,
            pParameter: (&raw mut parameter).cast(),
            ulParameterLen: size_of::<CK_ECDH1_DERIVE_PARAMS>() as CK_ULONG,
        };
        let (mut template, mut key) = (Template::of(wishes), 0);
        let count = template.count();
        call!(
            self,
            C_DeriveKey(session, &raw mut mechanism, base, template.list.as_mut_ptr(), count, &raw mut key)
        )?;
        Ok(key)
    }

    /// C_SignInit: CKM_ECDSA_SHA256.
    pub fn sign_hashed_init(&self, session: CK_SESSION_HANDLE, key: CK_OBJECT_HANDLE) -> Answer<()> {
        let mut mechanism = plain(CKM_ECDSA_SHA256);
        call!(self, C_SignInit(session, &raw mut mechanism, key))
    }

    /// C_SignUpdate.
    pub fn sign_update(&self, session: CK_SESSION_HANDLE, part: &[u8]) -> Answer<()> {
        call!(self, C_SignUpdate(session, part.as_ptr().cast_mut(), len(part)))
    }

    /// C_SignFinal into a buffer, or into none; gives the length too.
    pub fn sign_final_into(
        &self,
        session: CK_SESSION_HANDLE,
        buffer: Option<&mut [u8]>,
    ) -> (CK_RV, CK_ULONG) {
        let (place, mut length) = buffer.map_or((null_mut(), 0), |buffer| (buffer.as_mut_ptr(), len(buffer)));
        let code = call!(self, C_SignFinal(session, place, &raw mut length));
        (code.err().map_or(CKR_OK, |refused| refused.code), length)
    }

    /// C_DigestUpdate.
    pub fn digest_update(&self, session: CK_SESSION_HANDLE, part: &[u8]) -> Answer<()> {
        call!(self, C_DigestUpdate(session, part.as_ptr().cast_mut(), len(part)))
    }

    /// C_DigestFinal into a buffer, or into none; gives the length too.
    pub fn digest_final_into(
        &self,
        session: CK_SESSION_HANDLE,
        buffer: Option<&mut [u8]>,
    ) -> (CK_RV, CK_ULONG) {
        let (place, mut length) = buffer.map_or((null_mut(), 0), |buffer| (buffer.as_mut_ptr(), len(buffer)));
        let code = call!(self, C_DigestFinal(session, place, &raw mut length));
        (code.err().map_or(CKR_OK, |refused| refused.code), length)
    }

    /// C_GetOperationState, its length asked first.
    pub fn save_state(&self, session: CK_SESSION_HANDLE) -> Answer<Vec<u8>> {
        let mut length = 0;
        call!(self, C_GetOperationState(session, null_mut(), &raw mut length))?;
        let mut state = vec![0; length as usize];
        call!(self, C_GetOperationState(session, state.as_mut_ptr(), &raw mut length))?;
        Ok(state)
    }

    /// C_SetOperationState without keys.
    pub fn restore_state(&self, session: CK_SESSION_HANDLE, state: &[u8]) -> Answer<()> {
        call!(self, C_SetOperationState(session, state.as_ptr().cast_mut(), len(state), 0, 0))
    }

    /// C_MessageEncryptInit, or its kin for decrypting: AES-GCM.
    pub fn message_init(
        &self,
        session: CK_SESSION_HANDLE,
        encrypts: bool,
        key: CK_OBJECT_HANDLE,
    ) -> Answer<()> {
        let mut mechanism = plain(CKM_AES_GCM);
        let mechanism = &raw mut mechanism;
        if encrypts {
            named!(self, C_MessageEncryptInit(
                session => CK_SESSION_HANDLE, mechanism => *mut CK_MECHANISM, key => CK_OBJECT_HANDLE))
        } else {
            named!(self, C_MessageDecryptInit(
                session => CK_SESSION_HANDLE, mechanism => *mut CK_MECHANISM, key => CK_OBJECT_HANDLE))
        }
    }

    /// A message in parts, the last one of them marked: what they gave together. IV and tag are read or written.
    pub fn message_parts(
        &self,
        session: CK_SESSION_HANDLE,
        encrypts: bool,
        (iv, tag): (&mut [u8; 12], &mut [u8; 16]),
        parts: &[&[u8]],
    ) -> Answer<Vec<u8>> {
        let mut parameter = CK_GCM_MESSAGE_PARAMS {
            pIv: iv.as_mut_ptr(),
            ulIvLen: 12,
            ulIvFixedBits: 0,
            ivGenerator: if encrypts { CKG_GENERATE_RANDOM } else { CKG_NO_GENERATE },
            pTag: tag.as_mut_ptr(),
            ulTagBits: 128,
        };
        let parameter: Place = (&raw mut parameter).cast();
        let size = size_of::<CK_GCM_MESSAGE_PARAMS>() as CK_ULONG;
        let mut aad = *b"aad";
        if encrypts {
            named!(self, C_EncryptMessageBegin(session => CK_SESSION_HANDLE, parameter => Place,
                size => CK_ULONG, aad.as_mut_ptr() => *mut CK_BYTE, 3 => CK_ULONG))?;
        } else {
            named!(self, C_DecryptMessageBegin(session => CK_SESSION_HANDLE, parameter => Place,
                size => CK_ULONG, aad.as_mut_ptr() => *mut CK_BYTE, 3 => CK_ULONG))?;
        }
        let mut all = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let flags = if index + 1 == parts.len() { CKF_END_OF_MESSAGE } else { 0 };
            let (part, mut out) = (part.to_vec(), vec![0_u8; 256]);
            let (data, length, place) = (part.as_ptr().cast_mut(), len(&part), out.as_mut_ptr());
            let mut room = len(&out);
            let told = &raw mut room;
            if encrypts {
                named!(self, C_EncryptMessageNext(session => CK_SESSION_HANDLE, parameter => Place,
                    size => CK_ULONG, data => *mut CK_BYTE, length => CK_ULONG, place => *mut CK_BYTE,
                    told => *mut CK_ULONG, flags => CK_FLAGS))?;
            } else {
                named!(self, C_DecryptMessageNext(session => CK_SESSION_HANDLE, parameter => Place,
                    size => CK_ULONG, data => *mut CK_BYTE, length => CK_ULONG, place => *mut CK_BYTE,
                    told => *mut CK_ULONG, flags => CK_FLAGS))?;
            }
            all.extend_from_slice(&out[..room as usize]);
        }
        Ok(all)
    }
}
