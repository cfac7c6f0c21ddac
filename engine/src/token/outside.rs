//! RSA outside the token: what is encrypted to a member's key, or to the offline recovery key.

use super::TokenError;
#[cfg(feature = "test-hooks")]
use super::der::PublicKey;
use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPublicEncryptingKey, PublicEncryptingKey};

/// Encrypts to an RSA public key (SubjectPublicKeyInfo; RSA-OAEP with SHA-1).
pub(super) fn encrypt(recipient: &[u8], clear: &[u8]) -> Result<Vec<u8>, TokenError> {
    /// What RSA-2048 with OAEP takes, less a margin for a longer hash.
    const CLEAR_MAX_BYTES: usize = 190;
    const WRONG: TokenError = TokenError::BadInput("no RSA public key (SubjectPublicKeyInfo, DER)");
    if clear.len() > CLEAR_MAX_BYTES {
        return Err(TokenError::TooLong(clear.len()));
    }
    #[cfg(feature = "test-hooks")]
    if crate::simulation::is_on() {
        let Some(PublicKey::Rsa(modulus, exponent)) = PublicKey::parse(recipient) else { return Err(WRONG) };
        return super::model::encrypt_rsa(&modulus, &exponent, clear).ok_or(WRONG);
    }
    let key = PublicEncryptingKey::from_der(recipient).map_err(|_| WRONG)?;
    let key = OaepPublicEncryptingKey::new(key).map_err(|_| WRONG)?;
    let mut out = vec![0; key.ciphertext_size()];
    let length = key.encrypt(&OAEP_SHA1_MGF1SHA1, clear, &mut out, None).map_err(|_| WRONG)?.len();
    out.truncate(length);
    Ok(out)
}
