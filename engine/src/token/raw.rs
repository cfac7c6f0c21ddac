//! Templates and mechanisms in C's shape, with everything that they point to.

use super::template::Template;
use crate::domain::{AttributeType, AttributeValue, Mechanism, Parameters};
use cryptoki_sys::{
    CK_AES_CBC_ENCRYPT_DATA_PARAMS, CK_AES_CTR_PARAMS, CK_ATTRIBUTE, CK_BBOOL, CK_CCM_PARAMS,
    CK_ECDH1_DERIVE_PARAMS, CK_EDDSA_PARAMS, CK_GCM_PARAMS, CK_HKDF_PARAMS, CK_KEY_DERIVATION_STRING_DATA,
    CK_MECHANISM, CK_RSA_AES_KEY_WRAP_PARAMS, CK_RSA_PKCS_OAEP_PARAMS, CK_RSA_PKCS_PSS_PARAMS, CK_ULONG,
    CKF_HKDF_SALT_DATA, CKF_HKDF_SALT_NULL, CKZ_DATA_SPECIFIED,
};
use std::ffi::c_void;
use std::ptr::null_mut;
use zeroize::{Zeroize, Zeroizing};

/// A length as C has it.
pub(super) fn length(bytes: &[u8]) -> CK_ULONG {
    bytes.len() as CK_ULONG
}

/// A value that a CK_ATTRIBUTE points to. Boxed, so that its address is aligned and stays.
enum RawValue {
    Flag(Box<CK_BBOOL>),
    Number(Box<CK_ULONG>),
    Bytes(Zeroizing<Vec<u8>>),
    Nested(RawTemplate),
}

/// A template in C's shape: the list and the values that it points to.
pub(super) struct RawTemplate {
    list: Vec<CK_ATTRIBUTE>,
    _values: Vec<RawValue>,
}

impl RawTemplate {
    pub fn new(template: &Template) -> Self {
        Self::of(&mut template.attributes().iter().map(|(attribute, value)| (*attribute, value)))
    }

    fn of(attributes: &mut dyn Iterator<Item = (AttributeType, &AttributeValue)>) -> Self {
        let mut list = Vec::new();
        let mut values = Vec::new();
        for (attribute, value) in attributes {
            let mut value = match value {
                AttributeValue::Bool(flag) => RawValue::Flag(Box::new(CK_BBOOL::from(*flag))),
                AttributeValue::Number(number) => RawValue::Number(Box::new(*number)),
                AttributeValue::Bytes(bytes) => RawValue::Bytes(Zeroizing::new(bytes.clone())),
                AttributeValue::Template(map) => {
                    RawValue::Nested(Self::of(&mut map.iter().map(|(a, v)| (*a, v))))
                }
            };
            let (pointer, size): (*mut c_void, usize) = match &mut value {
                RawValue::Flag(flag) => ((&raw mut **flag).cast(), size_of::<CK_BBOOL>()),
                RawValue::Number(number) => ((&raw mut **number).cast(), size_of::<CK_ULONG>()),
                RawValue::Bytes(bytes) => (bytes.as_mut_ptr().cast(), bytes.len()),
                RawValue::Nested(nested) => {
                    (nested.list.as_mut_ptr().cast(), nested.list.len() * size_of::<CK_ATTRIBUTE>())
                }
            };
            list.push(CK_ATTRIBUTE { type_: attribute.0, pValue: pointer, ulValueLen: size as CK_ULONG });
            values.push(value);
        }
        Self { list, _values: values }
    }

    pub fn parts(&mut self) -> (*mut CK_ATTRIBUTE, CK_ULONG) {
        (self.list.as_mut_ptr(), self.list.len() as CK_ULONG)
    }
}

/// A mechanism in C's shape, with the parameters that it points to.
pub(super) struct RawMechanism {
    raw: CK_MECHANISM,
    bytes: Vec<Vec<u8>>,
    /// Keeps what `raw` points to where it is.
    _parameters: RawParameters,
}

#[expect(dead_code, reason = "the boxes are only kept; C reads them")]
enum RawParameters {
    Plain,
    Pss(Box<CK_RSA_PKCS_PSS_PARAMS>),
    Oaep(Box<CK_RSA_PKCS_OAEP_PARAMS>),
    Gcm(Box<CK_GCM_PARAMS>),
    Ccm(Box<CK_CCM_PARAMS>),
    Ctr(Box<CK_AES_CTR_PARAMS>),
    Ecdh(Box<CK_ECDH1_DERIVE_PARAMS>),
    Eddsa(Box<CK_EDDSA_PARAMS>),
    Hkdf(Box<CK_HKDF_PARAMS>),
    CbcEncryptData(Box<CK_AES_CBC_ENCRYPT_DATA_PARAMS>),
    StringData(Box<CK_KEY_DERIVATION_STRING_DATA>),
    Number(Box<CK_ULONG>),
    RsaAesWrap(Box<CK_RSA_AES_KEY_WRAP_PARAMS>, Box<CK_RSA_PKCS_OAEP_PARAMS>),
}

impl RawMechanism {
    pub fn new(mechanism: &Mechanism) -> Self {
        let mut bytes = Vec::new();
        let (parameters, pointer, size) = raw_parameters(&mechanism.parameters, &mut bytes);
        let raw = CK_MECHANISM {
            mechanism: mechanism.number,
            pParameter: pointer,
            ulParameterLen: size as CK_ULONG,
        };
        Self { raw, bytes, _parameters: parameters }
    }

    pub fn pointer(&mut self) -> *mut CK_MECHANISM {
        &raw mut self.raw
    }
}

impl Drop for RawMechanism {
    fn drop(&mut self) {
        self.bytes.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// Copies bytes to where they stay: a moved Vec keeps its heap block, so the address holds while `kept` lives.
fn keep(kept: &mut Vec<Vec<u8>>, value: &[u8]) -> *mut u8 {
    kept.push(value.to_vec());
    kept.last_mut().filter(|kept| !kept.is_empty()).map_or(null_mut(), |kept| kept.as_mut_ptr())
}

/// A boxed structure with its address and size.
macro_rules! boxed {
    ($kind:ident, $value:expr) => {{
        let mut value = Box::new($value);
        let (pointer, size) = ((&raw mut *value).cast(), size_of_val(&*value));
        (RawParameters::$kind(value), pointer, size)
    }};
}

fn raw_parameters(parameters: &Parameters, kept: &mut Vec<Vec<u8>>) -> (RawParameters, *mut c_void, usize) {
    match parameters {
        Parameters::None => (RawParameters::Plain, null_mut(), 0),
        Parameters::Bytes(value) => (RawParameters::Plain, keep(kept, value).cast(), value.len()),
        Parameters::Number(number) => boxed!(Number, *number),
        Parameters::Pss { hash, mgf, salt_bytes } => {
            boxed!(Pss, CK_RSA_PKCS_PSS_PARAMS { hashAlg: *hash, mgf: *mgf, sLen: *salt_bytes })
        }
        Parameters::Oaep { hash, mgf, label } => boxed!(Oaep, raw_oaep(*hash, *mgf, label, kept)),
        Parameters::Gcm { .. } | Parameters::Ccm { .. } | Parameters::Ctr { .. } => {
            raw_modes(parameters, kept)
        }
        Parameters::Eddsa { prehash, context } => boxed!(
            Eddsa,
            CK_EDDSA_PARAMS {
                phFlag: CK_BBOOL::from(*prehash),
                ulContextDataLen: length(context),
                pContextData: keep(kept, context),
            }
        ),
        Parameters::RsaAesWrap { aes_bits, hash, mgf, label } => {
            let mut oaep = Box::new(raw_oaep(*hash, *mgf, label, kept));
            let pointer = &raw mut *oaep;
            let mut wrap =
                Box::new(CK_RSA_AES_KEY_WRAP_PARAMS { ulAESKeyBits: *aes_bits, pOAEPParams: pointer });
            let pointer = (&raw mut *wrap).cast();
            (RawParameters::RsaAesWrap(wrap, oaep), pointer, size_of::<CK_RSA_AES_KEY_WRAP_PARAMS>())
        }
        Parameters::Ecdh { .. }
        | Parameters::Hkdf { .. }
        | Parameters::CbcEncryptData { .. }
        | Parameters::StringData(_) => raw_derivation(parameters, kept),
    }
}

fn raw_oaep(hash: u64, mgf: u64, label: &[u8], kept: &mut Vec<Vec<u8>>) -> CK_RSA_PKCS_OAEP_PARAMS {
    CK_RSA_PKCS_OAEP_PARAMS {
        hashAlg: hash,
        mgf,
        source: CKZ_DATA_SPECIFIED,
        pSourceData: keep(kept, label).cast(),
        ulSourceDataLen: length(label),
    }
}

/// Parameters of AES's modes.
fn raw_modes(parameters: &Parameters, kept: &mut Vec<Vec<u8>>) -> (RawParameters, *mut c_void, usize) {
    match parameters {
        Parameters::Gcm { iv, aad, tag_bits } => boxed!(
            Gcm,
            CK_GCM_PARAMS {
                pIv: keep(kept, iv),
                ulIvLen: length(iv),
                ulIvBits: length(iv) * 8,
                pAAD: keep(kept, aad),
                ulAADLen: length(aad),
                ulTagBits: *tag_bits,
            }
        ),
        Parameters::Ccm { data_bytes, nonce, aad, mac_bytes } => boxed!(
            Ccm,
            CK_CCM_PARAMS {
                ulDataLen: *data_bytes,
                pNonce: keep(kept, nonce),
                ulNonceLen: length(nonce),
                pAAD: keep(kept, aad),
                ulAADLen: length(aad),
                ulMACLen: *mac_bytes,
            }
        ),
        Parameters::Ctr { counter_bits, block } => {
            boxed!(Ctr, CK_AES_CTR_PARAMS { ulCounterBits: *counter_bits, cb: *block })
        }
        _ => (RawParameters::Plain, null_mut(), 0),
    }
}

/// Parameters of key derivations.
fn raw_derivation(parameters: &Parameters, kept: &mut Vec<Vec<u8>>) -> (RawParameters, *mut c_void, usize) {
    match parameters {
        Parameters::Ecdh { kdf, shared, public } => boxed!(
            Ecdh,
            CK_ECDH1_DERIVE_PARAMS {
                kdf: *kdf,
                ulSharedDataLen: length(shared),
                pSharedData: keep(kept, shared),
                ulPublicDataLen: length(public),
                pPublicData: keep(kept, public),
            }
        ),
        Parameters::Hkdf { extract, expand, hash, salt, info } => boxed!(
            Hkdf,
            CK_HKDF_PARAMS {
                bExtract: CK_BBOOL::from(*extract),
                bExpand: CK_BBOOL::from(*expand),
                prfHashMechanism: *hash,
                ulSaltType: if salt.is_some() { CKF_HKDF_SALT_DATA } else { CKF_HKDF_SALT_NULL },
                pSalt: keep(kept, salt.as_deref().unwrap_or_default()),
                ulSaltLen: length(salt.as_deref().unwrap_or_default()),
                hSaltKey: 0,
                pInfo: keep(kept, info),
                ulInfoLen: length(info),
            }
        ),
        Parameters::CbcEncryptData { iv, data } => boxed!(
            CbcEncryptData,
            CK_AES_CBC_ENCRYPT_DATA_PARAMS { iv: *iv, pData: keep(kept, data), length: length(data) }
        ),
        Parameters::StringData(data) => {
            boxed!(StringData, CK_KEY_DERIVATION_STRING_DATA { pData: keep(kept, data), ulLen: length(data) })
        }
        _ => (RawParameters::Plain, null_mut(), 0),
    }
}
