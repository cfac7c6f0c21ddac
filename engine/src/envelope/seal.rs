//! Sealing and opening. The nonce is the caller's: 12 random bytes, new for each sealing.

use super::{EnvelopeError, EnvelopeKey};
use crate::codec;
use crate::domain::{AttributeValue, Attributes, ContentKey, Envelope, EnvelopeContent, GroupId};
use crate::limits::{
    ATTRIBUTE_MAX_BYTES, ATTRIBUTES_MAX, ENVELOPE_MAX_BYTES, TEXT_MAX_BYTES, WRAPPED_KEY_MAX_BYTES,
};
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit};
use zeroize::Zeroizing;

/// Length of the GCM tag behind the ciphertext, bytes.
const TAG_BYTES: usize = 16;
/// First bytes of the associated data of an object's envelope. As long as [`SECRET_LABEL`], so that neither is a
/// prefix of the other.
const OBJECT_LABEL: &[u8; 16] = b"keyraft/object/1";
/// First bytes of the associated data of any other sealed secret.
const SECRET_LABEL: &[u8; 16] = b"keyraft/secret/1";

/// Seals an object's content under its name. `nonce` must be fresh and random.
pub fn seal(
    key: &EnvelopeKey,
    group: GroupId,
    name: ContentKey,
    content: &EnvelopeContent,
    nonce: [u8; 12],
) -> Result<Envelope, EnvelopeError> {
    check(content)?;
    let clear = codec::encode_secret(content)?;
    encrypt(key, &associated(group, name), &clear, nonce)
}

/// Opens an object's envelope. Fails unless key and whole name are those that sealed it.
pub fn open(
    key: &EnvelopeKey,
    group: GroupId,
    name: ContentKey,
    envelope: &Envelope,
) -> Result<EnvelopeContent, EnvelopeError> {
    let clear = decrypt(key, &associated(group, name), envelope)?;
    let content = codec::decode(&clear, ENVELOPE_MAX_BYTES)?;
    check(&content)?;
    Ok(content)
}

/// Seals a secret that is no object. `context` says what it is and whose, at most `limits::TEXT_MAX_BYTES`; it is
/// needed again to open it. `nonce` must be fresh and random.
pub fn seal_bytes(
    key: &EnvelopeKey,
    context: &[u8],
    clear: &[u8],
    nonce: [u8; 12],
) -> Result<Envelope, EnvelopeError> {
    encrypt(key, &secret_context(context)?, clear, nonce)
}

/// Opens what [`seal_bytes`] sealed in the same context.
pub fn open_bytes(
    key: &EnvelopeKey,
    context: &[u8],
    envelope: &Envelope,
) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
    decrypt(key, &secret_context(context)?, envelope)
}

/// Label, group, object, version, generation: 16 + 8 + 8 + 4 + 4 bytes, numbers big-endian.
fn associated(group: GroupId, name: ContentKey) -> [u8; 40] {
    let mut data = [0; 40];
    data[..16].copy_from_slice(OBJECT_LABEL);
    data[16..24].copy_from_slice(&group.0);
    data[24..32].copy_from_slice(&name.object.0.to_be_bytes());
    data[32..36].copy_from_slice(&name.version.0.to_be_bytes());
    data[36..].copy_from_slice(&name.generation.0.to_be_bytes());
    data
}

fn secret_context(context: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
    within("a secret's context", context.len(), TEXT_MAX_BYTES)?;
    Ok([SECRET_LABEL.as_slice(), context].concat())
}

fn encrypt(key: &EnvelopeKey, aad: &[u8], clear: &[u8], nonce: [u8; 12]) -> Result<Envelope, EnvelopeError> {
    within("a sealed content", clear.len().saturating_add(TAG_BYTES), ENVELOPE_MAX_BYTES)?;
    let sealed = cipher(key)
        .encrypt(&nonce.into(), Payload { msg: clear, aad })
        .expect("GCM takes 64 GiB; the content is far below");
    Ok(Envelope { nonce, sealed })
}

fn decrypt(key: &EnvelopeKey, aad: &[u8], envelope: &Envelope) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
    within("an envelope", envelope.sealed.len(), ENVELOPE_MAX_BYTES)?;
    cipher(key)
        .decrypt(&envelope.nonce.into(), Payload { msg: &envelope.sealed, aad })
        .map(Zeroizing::new)
        .map_err(|_| EnvelopeError::DoesNotOpen)
}

fn cipher(key: &EnvelopeKey) -> Aes256Gcm {
    Aes256Gcm::new(key.expose().into())
}

/// Bounds hold on both sides: a member must not trust that the one who sealed it kept them.
fn check(content: &EnvelopeContent) -> Result<(), EnvelopeError> {
    if let Some(wrapped) = &content.wrapped {
        within("a wrapped key", wrapped.bytes.len(), WRAPPED_KEY_MAX_BYTES)?;
    }
    check_attributes(&content.record.attributes, true)
}

fn check_attributes(attributes: &Attributes, templates: bool) -> Result<(), EnvelopeError> {
    within("an attribute list", attributes.len(), ATTRIBUTES_MAX)?;
    attributes.values().try_for_each(|value| match value {
        AttributeValue::Bytes(bytes) => within("an attribute", bytes.len(), ATTRIBUTE_MAX_BYTES),
        AttributeValue::Template(inner) if templates => check_attributes(inner, false),
        AttributeValue::Template(_) => Err(EnvelopeError::TooDeep),
        AttributeValue::Bool(_) | AttributeValue::Number(_) => Ok(()),
    })
}

fn within(what: &'static str, len: usize, limit: usize) -> Result<(), EnvelopeError> {
    if len > limit { Err(EnvelopeError::TooLong { what, len, limit }) } else { Ok(()) }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
