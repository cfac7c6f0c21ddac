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
}

impl Mechanism {
    /// A mechanism without parameters.
    pub fn plain(number: u64) -> Self {
        Self { number, parameters: Parameters::None }
    }
}
