//! Mechanisms with their parameters, in the shape PKCS#11 gives them. Parameters travel whole.

use serde::{Deserialize, Serialize};

/// A CKM_ number with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism {
    /// CKM_
    pub number: u64,
    /// What goes with it.
    pub parameters: Parameters,
}

/// The parameter structures of PKCS#11 v3.1. Order is the wire format: add at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parameters {
    /// None.
    None,
    /// A plain byte string: an IV, a vendor's parameter.
    Bytes(Vec<u8>),
    /// CK_RSA_PKCS_PSS_PARAMS
    Pss {
        /// hashAlg (CKM_)
        hash: u64,
        /// mgf (CKG_)
        mgf: u64,
        /// sLen, bytes
        salt_bytes: u64,
    },
    /// CK_RSA_PKCS_OAEP_PARAMS
    Oaep {
        /// hashAlg (CKM_)
        hash: u64,
        /// mgf (CKG_)
        mgf: u64,
        /// pSourceData
        label: Vec<u8>,
    },
    /// CK_GCM_PARAMS
    Gcm {
        /// pIv
        iv: Vec<u8>,
        /// pAAD
        aad: Vec<u8>,
        /// ulTagBits
        tag_bits: u64,
    },
    /// CK_CCM_PARAMS
    Ccm {
        /// ulDataLen, bytes
        data_bytes: u64,
        /// pNonce
        nonce: Vec<u8>,
        /// pAAD
        aad: Vec<u8>,
        /// ulMACLen, bytes
        mac_bytes: u64,
    },
    /// CK_AES_CTR_PARAMS
    Ctr {
        /// ulCounterBits
        counter_bits: u64,
        /// cb
        block: [u8; 16],
    },
    /// CK_ECDH1_DERIVE_PARAMS
    Ecdh {
        /// kdf (CKD_)
        kdf: u64,
        /// pSharedData
        shared: Vec<u8>,
        /// pPublicData
        public: Vec<u8>,
    },
    /// CK_EDDSA_PARAMS
    Eddsa {
        /// phFlag
        prehash: bool,
        /// pContextData
        context: Vec<u8>,
    },
    /// CK_HKDF_PARAMS, with CKF_HKDF_SALT_NULL (`salt` None) or CKF_HKDF_SALT_DATA
    Hkdf {
        /// bExtract
        extract: bool,
        /// bExpand
        expand: bool,
        /// prfHashMechanism (CKM_)
        hash: u64,
        /// pSalt
        salt: Option<Vec<u8>>,
        /// pInfo
        info: Vec<u8>,
    },
    /// CK_AES_CBC_ENCRYPT_DATA_PARAMS
    CbcEncryptData {
        /// iv
        iv: [u8; 16],
        /// pData
        data: Vec<u8>,
    },
    /// CK_KEY_DERIVATION_STRING_DATA
    StringData(Vec<u8>),
    /// CK_ULONG: CK_MAC_GENERAL_PARAMS and their like
    Number(u64),
    /// CK_RSA_AES_KEY_WRAP_PARAMS
    RsaAesWrap {
        /// ulAESKeyBits
        aes_bits: u64,
        /// hashAlg (CKM_) of pOAEPParams
        hash: u64,
        /// mgf (CKG_) of pOAEPParams
        mgf: u64,
        /// pSourceData of pOAEPParams
        label: Vec<u8>,
    },
}

/// CK_MECHANISM_INFO of one mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MechanismInfo {
    /// CKM_
    pub number: u64,
    /// ulMinKeySize
    pub min_key: u64,
    /// ulMaxKeySize
    pub max_key: u64,
    /// CKF_
    pub flags: u64,
}

impl Mechanism {
    /// A mechanism without parameters.
    pub fn plain(number: u64) -> Self {
        Self { number, parameters: Parameters::None }
    }
}
