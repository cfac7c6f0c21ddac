//! What an admitted member is given, and how it is sealed.

use super::message::{JoinerFacts, MemberFacts, Nonce, Purpose, Transcript};
use super::{DomainKey, HandshakeError};
use crate::codec;
use crate::domain::{Envelope, Generation, MemberId};
use crate::envelope::{EnvelopeKey, open_bytes, seal_bytes};
use crate::limits::{DELIVERY_MAX_BYTES, GENERATIONS_MAX, PUBLIC_KEY_MAX_BYTES};
use hmac::Mac;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// One live generation, as it is handed over.
#[derive(Clone)]
pub struct GenerationSecrets {
    /// Its number.
    pub generation: Generation,
    /// The SMK, wrapped by RSA-OAEP to the joiner's transport key.
    pub wrapped_smk: Vec<u8>,
    /// The envelope key.
    pub envelope_key: EnvelopeKey,
    /// The SMK wrapped by itself, by which the joiner's token proves that it got the right one.
    pub self_blob: Vec<u8>,
}

/// Every live generation, oldest first. Never printed.
#[derive(Clone)]
pub struct Secrets {
    /// The generations.
    pub generations: Vec<GenerationSecrets>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} generations)", self.generations.len())
    }
}

impl fmt::Debug for GenerationSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GenerationSecrets({}, ..)", self.generation)
    }
}

/// Who it is for and from: the associated data of the sealing.
pub(super) struct Binding<'a> {
    pub joiner: &'a JoinerFacts,
    pub joiner_id: MemberId,
    pub joiner_nonce: Nonce,
    pub member: &'a MemberFacts,
    pub member_nonce: Nonce,
}

impl Binding<'_> {
    /// A hash over the whole binding, each field behind its length.
    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(b"keyraft/binding/1");
        let fields: [&[u8]; 9] = [
            &self.joiner.group.0,
            &self.joiner_id.0.to_be_bytes(),
            &self.joiner.transport_key,
            &self.joiner.tls.0,
            &self.joiner_nonce.0,
            &self.member.group.0,
            &self.member.member.0.to_be_bytes(),
            &self.member.transport_key,
            &self.member_nonce.0,
        ];
        for field in fields {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
        hash.finalize().into()
    }
}

/// The clear side of a delivery.
#[derive(Serialize, Deserialize)]
struct Clear {
    proof: [u8; 32],
    generations: Vec<ClearGeneration>,
}

#[derive(Serialize, Deserialize)]
struct ClearGeneration {
    generation: Generation,
    wrapped_smk: Vec<u8>,
    envelope_key: Zeroizing<[u8; 32]>,
    self_blob: Vec<u8>,
}

pub(super) fn seal(
    domain: &DomainKey,
    transcript: &Transcript,
    binding: &Binding<'_>,
    secrets: &Secrets,
    nonce: [u8; 12],
) -> Result<Vec<u8>, HandshakeError> {
    check(&secrets.generations)?;
    let generations = secrets.generations.iter().map(|g| ClearGeneration {
        generation: g.generation,
        wrapped_smk: g.wrapped_smk.clone(),
        envelope_key: Zeroizing::new(*g.envelope_key.expose()),
        self_blob: g.self_blob.clone(),
    });
    let digest = binding.digest();
    let proof = member_proof(domain, transcript, &digest).finalize().into_bytes();
    let clear = Clear { proof: proof.into(), generations: generations.collect() };
    let clear = codec::encode_secret(&clear)?;
    let envelope = seal_bytes(&delivery_key(domain, transcript), &digest, &clear, nonce)
        .map_err(|_| HandshakeError::TooMuch(secrets.generations.len()))?;
    let sealed = codec::encode(&envelope)?;
    if sealed.len() > DELIVERY_MAX_BYTES {
        return Err(HandshakeError::TooMuch(secrets.generations.len()));
    }
    Ok(sealed)
}

pub(super) fn open(
    domain: &DomainKey,
    transcript: &Transcript,
    binding: &Binding<'_>,
    sealed: &[u8],
) -> Result<Secrets, HandshakeError> {
    let envelope: Envelope = codec::decode(sealed, DELIVERY_MAX_BYTES)?;
    let digest = binding.digest();
    let clear = open_bytes(&delivery_key(domain, transcript), &digest, &envelope)
        .map_err(|_| HandshakeError::NotForUs)?;
    let clear: Clear = codec::decode(&clear, DELIVERY_MAX_BYTES)?;
    member_proof(domain, transcript, &digest)
        .verify_slice(&clear.proof)
        .map_err(|_| HandshakeError::NotProved)?;
    let generations = clear.generations.into_iter().map(|g| GenerationSecrets {
        generation: g.generation,
        wrapped_smk: g.wrapped_smk,
        envelope_key: EnvelopeKey::from_bytes(*g.envelope_key),
        self_blob: g.self_blob,
    });
    let secrets = Secrets { generations: generations.collect() };
    check(&secrets.generations)?;
    Ok(secrets)
}

fn delivery_key(domain: &DomainKey, transcript: &Transcript) -> EnvelopeKey {
    EnvelopeKey::from_bytes(*transcript.key(domain, Purpose::Delivery))
}

/// The member's proof covers the binding too, so it names the joiner's id, which no earlier message knows.
fn member_proof(domain: &DomainKey, transcript: &Transcript, binding: &[u8; 32]) -> hmac::Hmac<Sha256> {
    let mut mac = transcript.proof(domain, Purpose::MemberProof);
    mac.update(binding);
    mac
}

fn check(generations: &[GenerationSecrets]) -> Result<(), HandshakeError> {
    if generations.is_empty() || generations.len() > GENERATIONS_MAX {
        return Err(HandshakeError::TooMuch(generations.len()));
    }
    if !generations.is_sorted_by(|a, b| a.generation < b.generation) {
        return Err(HandshakeError::FieldLength("a list of generations"));
    }
    for generation in generations {
        for blob in [&generation.wrapped_smk, &generation.self_blob] {
            if blob.is_empty() || blob.len() > PUBLIC_KEY_MAX_BYTES {
                return Err(HandshakeError::FieldLength("a wrapped SMK"));
            }
        }
    }
    Ok(())
}
