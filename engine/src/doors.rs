//! Doors to decoders that nobody but a fuzz target may call from outside. Each says whether the bytes were accepted.

use crate::codec;
use crate::consensus;
use crate::direct::List;
use crate::frames::frame::{self, Ask, Reply};
use crate::limits;
use crate::token;
use crate::virtual_slot::pin;
use crate::wire::{Request, Response};

/// A frame's body, as the side that accepts a connection reads it.
pub fn ask(body: &[u8]) -> bool {
    frame::decode::<Ask<Request>>(body).is_ok()
}

/// A frame's body, as the side that connected reads it.
pub fn reply(body: &[u8]) -> bool {
    frame::decode::<Reply<Response>>(body).is_ok()
}

/// What members send each other for Raft.
pub fn raft(body: &[u8]) -> bool {
    consensus::accepts(body)
}

/// A private key's PKCS#8.
pub fn private_key(der: &[u8]) -> bool {
    token::der::pkcs8(der).is_some()
}

/// A SubjectPublicKeyInfo. What was read is written again and must be the same key.
pub fn public_key(der: &[u8]) -> bool {
    let Some(key) = token::der::PublicKey::parse(der) else { return false };
    assert_eq!(token::der::PublicKey::parse(&key.spki()), Some(key), "a key that changes when it is written");
    true
}

/// The CKA_ID of an object in a token.
pub fn tag(id: &[u8]) -> bool {
    token::Tag::parse(id).is_some()
}

/// A PIN's hash as the group keeps it: whether it would be computed at all.
pub fn pin_hash(text: &str) -> bool {
    pin::parse(text).is_some()
}

/// The list of what was changed on one member's own slot.
pub fn direct_list(bytes: &[u8]) -> bool {
    codec::decode::<List>(bytes, limits::DIRECT_LIST_MAX_BYTES).is_ok()
}
