//! Which parameters each mechanism takes, and what the virtual slot says of mechanisms.

use crate::hash::{ECDSA_HASHED, Hash};
use cryptoki_sys::{
    CK_MECHANISM_TYPE, CKF_DIGEST, CKF_SIGN, CKF_VERIFY, CKK_AES, CKK_EC, CKK_EC_EDWARDS, CKK_RSA,
    CKM_AES_CBC_ENCRYPT_DATA, CKM_AES_CCM, CKM_AES_CMAC, CKM_AES_CMAC_GENERAL, CKM_AES_CTR, CKM_AES_ECB,
    CKM_AES_ECB_ENCRYPT_DATA, CKM_AES_GCM, CKM_AES_MAC_GENERAL, CKM_CONCATENATE_BASE_AND_DATA,
    CKM_CONCATENATE_DATA_AND_BASE, CKM_ECDH1_COFACTOR_DERIVE, CKM_ECDH1_DERIVE, CKM_ECDSA, CKM_ECDSA_SHA512,
    CKM_EDDSA, CKM_EXTRACT_KEY_FROM_KEY, CKM_HKDF_DATA, CKM_HKDF_DERIVE, CKM_RSA_AES_KEY_WRAP, CKM_RSA_PKCS,
    CKM_RSA_PKCS_OAEP, CKM_RSA_PKCS_PSS, CKM_SHA_1_HMAC_GENERAL, CKM_SHA1_RSA_PKCS_PSS,
    CKM_SHA3_224_RSA_PKCS_PSS, CKM_SHA3_256_RSA_PKCS_PSS, CKM_SHA3_384_RSA_PKCS_PSS,
    CKM_SHA3_512_RSA_PKCS_PSS, CKM_SHA224_HMAC_GENERAL, CKM_SHA224_RSA_PKCS_PSS, CKM_SHA256_HMAC_GENERAL,
    CKM_SHA256_RSA_PKCS, CKM_SHA256_RSA_PKCS_PSS, CKM_SHA384_HMAC_GENERAL, CKM_SHA384_RSA_PKCS_PSS,
    CKM_SHA512_HMAC_GENERAL, CKM_SHA512_RSA_PKCS_PSS, CKM_XOR_BASE_AND_DATA,
};
use keyraft_engine::domain::MechanismInfo;

/// The C structure behind a mechanism's pParameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterShape {
    /// Nothing, or bytes (an IV, a vendor's parameter): as they are.
    Bytes,
    /// CK_RSA_PKCS_PSS_PARAMS
    Pss,
    /// CK_RSA_PKCS_OAEP_PARAMS
    Oaep,
    /// CK_GCM_PARAMS
    Gcm,
    /// CK_CCM_PARAMS
    Ccm,
    /// CK_AES_CTR_PARAMS
    Ctr,
    /// CK_ECDH1_DERIVE_PARAMS
    Ecdh,
    /// CK_EDDSA_PARAMS, or nothing
    Eddsa,
    /// CK_HKDF_PARAMS
    Hkdf,
    /// CK_AES_CBC_ENCRYPT_DATA_PARAMS
    CbcEncryptData,
    /// CK_KEY_DERIVATION_STRING_DATA
    StringData,
    /// CK_ULONG
    Number,
    /// CK_RSA_AES_KEY_WRAP_PARAMS
    RsaAesWrap,
}

/// What a mechanism's parameter is.
pub(crate) fn parameter_shape(mechanism: CK_MECHANISM_TYPE) -> ParameterShape {
    match mechanism {
        CKM_RSA_PKCS_PSS
        | CKM_SHA1_RSA_PKCS_PSS
        | CKM_SHA224_RSA_PKCS_PSS
        | CKM_SHA256_RSA_PKCS_PSS
        | CKM_SHA384_RSA_PKCS_PSS
        | CKM_SHA512_RSA_PKCS_PSS
        | CKM_SHA3_224_RSA_PKCS_PSS
        | CKM_SHA3_256_RSA_PKCS_PSS
        | CKM_SHA3_384_RSA_PKCS_PSS
        | CKM_SHA3_512_RSA_PKCS_PSS => ParameterShape::Pss,
        CKM_RSA_PKCS_OAEP => ParameterShape::Oaep,
        CKM_AES_GCM => ParameterShape::Gcm,
        CKM_AES_CCM => ParameterShape::Ccm,
        CKM_AES_CTR => ParameterShape::Ctr,
        CKM_ECDH1_DERIVE | CKM_ECDH1_COFACTOR_DERIVE => ParameterShape::Ecdh,
        CKM_EDDSA => ParameterShape::Eddsa,
        CKM_HKDF_DERIVE | CKM_HKDF_DATA => ParameterShape::Hkdf,
        CKM_AES_CBC_ENCRYPT_DATA => ParameterShape::CbcEncryptData,
        CKM_AES_ECB_ENCRYPT_DATA
        | CKM_CONCATENATE_BASE_AND_DATA
        | CKM_CONCATENATE_DATA_AND_BASE
        | CKM_XOR_BASE_AND_DATA => ParameterShape::StringData,
        CKM_AES_MAC_GENERAL
        | CKM_AES_CMAC_GENERAL
        | CKM_SHA_1_HMAC_GENERAL
        | CKM_SHA224_HMAC_GENERAL
        | CKM_SHA256_HMAC_GENERAL
        | CKM_SHA384_HMAC_GENERAL
        | CKM_SHA512_HMAC_GENERAL
        | CKM_EXTRACT_KEY_FROM_KEY => ParameterShape::Number,
        CKM_RSA_AES_KEY_WRAP => ParameterShape::RsaAesWrap,
        _ => ParameterShape::Bytes,
    }
}

/// The CKK_ number of the keys that a mechanism takes, where there is but one.
pub(crate) fn key_type(mechanism: CK_MECHANISM_TYPE) -> Option<u64> {
    match mechanism {
        CKM_RSA_PKCS..=CKM_SHA1_RSA_PKCS_PSS | CKM_SHA256_RSA_PKCS..=CKM_SHA224_RSA_PKCS_PSS => Some(CKK_RSA),
        CKM_ECDSA..=CKM_ECDSA_SHA512 => Some(CKK_EC),
        CKM_EDDSA => Some(CKK_EC_EDWARDS),
        CKM_AES_ECB..=CKM_AES_CMAC => Some(CKK_AES),
        _ => None,
    }
}

/// True for CKM_ECDSA, with or without a hash.
pub(crate) fn is_ecdsa(mechanism: CK_MECHANISM_TYPE) -> bool {
    key_type(mechanism) == Some(CKK_EC)
}

/// The slot's mechanisms: what the members share, the hashes of the module, and ECDSA with a hash where the members
/// know ECDSA alone. By number.
pub(crate) fn offered(shared: &[MechanismInfo]) -> Vec<MechanismInfo> {
    let mut all = shared.to_vec();
    let known = |number: u64| shared.iter().any(|info| info.number == number);
    let digest =
        |hash: &Hash| MechanismInfo { number: hash.mechanism(), min_key: 0, max_key: 0, flags: CKF_DIGEST };
    all.extend(Hash::ALL.iter().map(digest).filter(|info| !known(info.number)));
    if let Some(ecdsa) = shared.iter().find(|info| info.number == CKM_ECDSA) {
        let flags = ecdsa.flags & (CKF_SIGN | CKF_VERIFY);
        let hashed = ECDSA_HASHED.iter().filter(|number| !known(**number));
        all.extend(hashed.map(|number| MechanismInfo { number: *number, flags, ..*ecdsa }));
    }
    // Digests are the module's own work alone.
    all.retain(|info| info.flags & CKF_DIGEST == 0 || Hash::of(info.number).is_some());
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecdsa_brings_its_hashes_along() {
        let ecdsa =
            MechanismInfo { number: CKM_ECDSA, min_key: 256, max_key: 521, flags: CKF_SIGN | CKF_VERIFY | 1 };
        let all = offered(&[ecdsa]);
        assert_eq!(all.len(), 1 + Hash::ALL.len() + ECDSA_HASHED.len());
        let hashed = all.iter().find(|info| info.number == ECDSA_HASHED[2]).expect("there");
        assert_eq!((hashed.flags, hashed.max_key), (CKF_SIGN | CKF_VERIFY, 521));
        assert_eq!(offered(&[]).len(), Hash::ALL.len());
    }
}
