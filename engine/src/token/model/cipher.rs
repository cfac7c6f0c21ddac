//! What the model does with the values of secret keys. Errors are CKR_ numbers.

use super::super::door::Operation;
use crate::domain::{Mechanism, Parameters};
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::key_wrap::{self, AesKek, KeyWrapPadded};
use cryptoki_sys::{
    CK_RV, CKM_AES_CBC, CKM_AES_CBC_PAD, CKM_AES_ECB, CKM_AES_GCM, CKM_SHA_1_HMAC, CKM_SHA256_HMAC,
    CKM_SHA384_HMAC, CKM_SHA512_HMAC, CKR_DATA_LEN_RANGE, CKR_ENCRYPTED_DATA_INVALID,
    CKR_ENCRYPTED_DATA_LEN_RANGE, CKR_KEY_SIZE_RANGE, CKR_MECHANISM_INVALID, CKR_MECHANISM_PARAM_INVALID,
    CKR_WRAPPED_KEY_INVALID, CKR_WRAPPING_KEY_SIZE_RANGE,
};
use zeroize::Zeroizing;

const BLOCK_BYTES: usize = 16;
/// More than RFC 5649 adds.
const WRAP_ROOM_BYTES: usize = 16;

fn kek(key: &[u8]) -> Result<AesKek, CK_RV> {
    let cipher = match key.len() {
        16 => &key_wrap::AES_128,
        32 => &key_wrap::AES_256,
        _ => return Err(CKR_WRAPPING_KEY_SIZE_RANGE),
    };
    AesKek::new(cipher, key).map_err(|_| CKR_WRAPPING_KEY_SIZE_RANGE)
}

/// RFC 5649.
pub(super) fn wrap(key: &[u8], clear: &[u8]) -> Result<Vec<u8>, CK_RV> {
    let mut out = vec![0; clear.len() + WRAP_ROOM_BYTES];
    let wrapped = kek(key)?.wrap_with_padding(clear, &mut out);
    let length = wrapped.map_err(|_| CKR_KEY_SIZE_RANGE)?.len();
    out.truncate(length);
    Ok(out)
}

/// RFC 5649. Only the right key opens it.
pub(super) fn unwrap(key: &[u8], wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, CK_RV> {
    let mut out = Zeroizing::new(vec![0; wrapped.len()]);
    let clear = kek(key)?.unwrap_with_padding(wrapped, &mut out);
    let length = clear.map_err(|_| CKR_WRAPPED_KEY_INVALID)?.len();
    out.truncate(length);
    Ok(out)
}

/// HMAC with one of the hashes that the model knows.
pub(super) fn mac(mechanism: &Mechanism, key: &[u8], data: &[u8]) -> Result<Vec<u8>, CK_RV> {
    let hash = match mechanism.number {
        CKM_SHA_1_HMAC => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        CKM_SHA256_HMAC => hmac::HMAC_SHA256,
        CKM_SHA384_HMAC => hmac::HMAC_SHA384,
        CKM_SHA512_HMAC => hmac::HMAC_SHA512,
        _ => return Err(CKR_MECHANISM_INVALID),
    };
    Ok(hmac::sign(&hmac::Key::new(hash, key), data).as_ref().to_vec())
}

/// C_Encrypt and C_Decrypt with an AES key.
pub(super) fn aes(
    operation: Operation,
    mechanism: &Mechanism,
    key: &[u8],
    data: &[u8],
) -> Result<Zeroizing<Vec<u8>>, CK_RV> {
    let encrypts = matches!(operation, Operation::Encrypt);
    let mut text = Zeroizing::new(data.to_vec());
    match mechanism.number {
        CKM_AES_ECB | CKM_AES_CBC if !data.len().is_multiple_of(BLOCK_BYTES) => {
            return Err(if encrypts { CKR_DATA_LEN_RANGE } else { CKR_ENCRYPTED_DATA_LEN_RANGE });
        }
        CKM_AES_ECB if encrypts => {
            let key = EncryptingKey::ecb(unbound(key)?).map_err(|_| CKR_KEY_SIZE_RANGE)?;
            let done = key.less_safe_encrypt(&mut text, EncryptionContext::None);
            done.map_err(|_| CKR_DATA_LEN_RANGE)?;
        }
        CKM_AES_ECB => {
            let key = DecryptingKey::ecb(unbound(key)?).map_err(|_| CKR_KEY_SIZE_RANGE)?;
            key.decrypt(&mut text, DecryptionContext::None).map_err(|_| CKR_ENCRYPTED_DATA_INVALID)?;
        }
        CKM_AES_CBC if encrypts => {
            let key = EncryptingKey::cbc(unbound(key)?).map_err(|_| CKR_KEY_SIZE_RANGE)?;
            let context = EncryptionContext::Iv128(iv(mechanism)?);
            key.less_safe_encrypt(&mut text, context).map_err(|_| CKR_DATA_LEN_RANGE)?;
        }
        CKM_AES_CBC => {
            let key = DecryptingKey::cbc(unbound(key)?).map_err(|_| CKR_KEY_SIZE_RANGE)?;
            let context = DecryptionContext::Iv128(iv(mechanism)?);
            key.decrypt(&mut text, context).map_err(|_| CKR_ENCRYPTED_DATA_INVALID)?;
        }
        CKM_AES_CBC_PAD if encrypts => {
            let key = PaddedBlockEncryptingKey::cbc_pkcs7(unbound(key)?).map_err(|_| CKR_KEY_SIZE_RANGE)?;
            let context = EncryptionContext::Iv128(iv(mechanism)?);
            key.less_safe_encrypt(&mut *text, context).map_err(|_| CKR_DATA_LEN_RANGE)?;
        }
        CKM_AES_CBC_PAD => {
            let key = PaddedBlockDecryptingKey::cbc_pkcs7(unbound(key)?).map_err(|_| CKR_KEY_SIZE_RANGE)?;
            let context = DecryptionContext::Iv128(iv(mechanism)?);
            let clear = key.decrypt(&mut text, context).map_err(|_| CKR_ENCRYPTED_DATA_INVALID)?.len();
            text.truncate(clear);
        }
        CKM_AES_GCM => return gcm(encrypts, &mechanism.parameters, key, text),
        _ => return Err(CKR_MECHANISM_INVALID),
    }
    Ok(text)
}

fn gcm(
    encrypts: bool,
    parameters: &Parameters,
    key: &[u8],
    mut text: Zeroizing<Vec<u8>>,
) -> Result<Zeroizing<Vec<u8>>, CK_RV> {
    let Parameters::Gcm { iv, aad, tag_bits: 128 } = parameters else {
        return Err(CKR_MECHANISM_PARAM_INVALID);
    };
    let cipher = match key.len() {
        16 => &aead::AES_128_GCM,
        24 => &aead::AES_192_GCM,
        _ => &aead::AES_256_GCM,
    };
    let key = LessSafeKey::new(UnboundKey::new(cipher, key).map_err(|_| CKR_KEY_SIZE_RANGE)?);
    let nonce = Nonce::try_assume_unique_for_key(iv).map_err(|_| CKR_MECHANISM_PARAM_INVALID)?;
    let aad = Aad::from(aad.as_slice());
    if encrypts {
        key.seal_in_place_append_tag(nonce, aad, &mut *text).map_err(|_| CKR_DATA_LEN_RANGE)?;
    } else {
        let clear = key.open_in_place(nonce, aad, &mut text);
        let length = clear.map_err(|_| CKR_ENCRYPTED_DATA_INVALID)?.len();
        text.truncate(length);
    }
    Ok(text)
}

fn unbound(key: &[u8]) -> Result<UnboundCipherKey, CK_RV> {
    let cipher = match key.len() {
        16 => &AES_128,
        24 => &AES_192,
        _ => &AES_256,
    };
    UnboundCipherKey::new(cipher, key).map_err(|_| CKR_KEY_SIZE_RANGE)
}

fn iv(mechanism: &Mechanism) -> Result<FixedLength<16>, CK_RV> {
    let Parameters::Bytes(iv) = &mechanism.parameters else { return Err(CKR_MECHANISM_PARAM_INVALID) };
    let iv: [u8; BLOCK_BYTES] = iv.as_slice().try_into().map_err(|_| CKR_MECHANISM_PARAM_INVALID)?;
    Ok(FixedLength::from(iv))
}
