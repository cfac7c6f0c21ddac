//! Which parameters go with which mechanism. PKCS#11 passes them by address and knows them by their length alone: a
//! structure that is not the mechanism's own would make the token take a caller's number for an address.

use super::{TokenError, TokenVerdict};
use crate::domain::{Mechanism, Parameters};

/// CKM_VENDOR_DEFINED: what follows is the vendor's own.
const VENDOR_DEFINED: u64 = 0x8000_0000;

/// The derivations that put a key and data together as they are: CONCATENATE_, XOR_BASE_AND_DATA, EXTRACT_KEY_FROM_KEY.
pub(super) fn keeps_value(number: u64) -> bool {
    matches!(number, 0x362..=0x365)
}

/// Refuses parameters that are not the mechanism's own, as CKR_MECHANISM_PARAM_INVALID of the caller.
pub(super) fn check(call: &'static str, mechanism: &Mechanism) -> Result<(), TokenError> {
    const MECHANISM_PARAM_INVALID: u64 = 0x71;
    if fits(mechanism) {
        return Ok(());
    }
    let verdict = TokenVerdict::Caller(MECHANISM_PARAM_INVALID);
    Err(TokenError::Call { call, code: MECHANISM_PARAM_INVALID, verdict })
}

fn fits(mechanism: &Mechanism) -> bool {
    let number = mechanism.number;
    match &mechanism.parameters {
        Parameters::None => true,
        Parameters::Bytes(_) => number >= VENDOR_DEFINED || takes_bytes(number),
        Parameters::Number(_) => takes_number(number),
        // RSA_PKCS_PSS and the hashes with it, SHA-3's included.
        Parameters::Pss { .. } => {
            matches!(number, 0x0D | 0x0E | 0x43..=0x45 | 0x47 | 0x63..=0x65 | 0x67)
        }
        Parameters::Oaep { .. } => number == 0x09,
        Parameters::Gcm { .. } => number == 0x1087,
        Parameters::Ccm { .. } => number == 0x1088,
        Parameters::Ctr { .. } => number == 0x1086,
        Parameters::Ecdh { .. } => matches!(number, 0x1050 | 0x1051),
        Parameters::Eddsa { .. } => number == 0x1057,
        Parameters::Hkdf { .. } => matches!(number, 0x402A | 0x402B),
        Parameters::CbcEncryptData { .. } => number == 0x1105,
        // AES_ECB_ENCRYPT_DATA, CONCATENATE_BASE_AND_DATA, CONCATENATE_DATA_AND_BASE, XOR_BASE_AND_DATA.
        Parameters::StringData(_) => matches!(number, 0x1104 | 0x362..=0x364),
        Parameters::RsaAesWrap { .. } => number == 0x1054,
    }
}

/// Mechanisms whose parameter is an IV or nothing: DES3 and AES in CBC, OFB, CFB, CTS and XTS, the AES key wraps.
fn takes_bytes(number: u64) -> bool {
    matches!(number, 0x133 | 0x136 | 0x1071 | 0x1082 | 0x1085 | 0x1089 | 0x2104..=0x210C)
}

/// Mechanisms whose parameter is one number: MACs of a chosen length, EXTRACT_KEY_FROM_KEY. Not
/// CONCATENATE_BASE_AND_KEY, whose number would be a handle that nobody was asked about.
fn takes_number(number: u64) -> bool {
    let mac = matches!(
        number,
        0x135 | 0x137 | 0x212 | 0x222 | 0x252 | 0x257 | 0x262 | 0x272 | 0x2B2 | 0x2B7 | 0x2C2 | 0x2D2
    );
    mac || matches!(number, 0x4A | 0x4E | 0x52 | 0x1084 | 0x108B | 0x365)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_structure_stands_in_for_another() {
        let ccm = Parameters::Ccm { data_bytes: 0x4141, nonce: vec![1], aad: Vec::new(), mac_bytes: 16 };
        let bytes = Parameters::Bytes(vec![0x41; 48]);
        for (number, parameters, good) in [
            (0x1087, ccm.clone(), false),
            (0x1088, ccm, true),
            (0x1087, bytes.clone(), false),
            (0x1104, bytes.clone(), false),
            (0x1082, bytes.clone(), true),
            (0x8000_0001, bytes, true),
            (0x1104, Parameters::Number(7), false),
            (0x252, Parameters::Number(7), true),
            (0x360, Parameters::Number(7), false),
            (0x40, Parameters::None, true),
        ] {
            let mechanism = Mechanism { number, parameters };
            assert_eq!(check("C_Sign", &mechanism).is_ok(), good, "{mechanism:?}");
        }
    }
}
