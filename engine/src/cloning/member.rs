//! The admitting member's side.

use super::delivery::{Binding, Secrets, seal};
use super::message::{JoinerFacts, MemberFacts, Message, Nonce, Purpose, Transcript};
use super::{DomainKey, HandshakeError};
use crate::domain::MemberId;
use hmac::Mac;

/// The member waits for a joiner's hello.
pub struct ExpectHello {
    domain: DomainKey,
    facts: MemberFacts,
}

impl ExpectHello {
    /// A member that is ready. `domain` must be stretched for the group of `facts`.
    pub fn new(domain: DomainKey, facts: MemberFacts) -> Result<Self, HandshakeError> {
        if domain.group != facts.group {
            return Err(HandshakeError::OtherGroup);
        }
        Ok(Self { domain, facts })
    }

    /// Takes the hello of a joiner whose card says `card`, and challenges it. Nothing in the challenge depends on
    /// the domain's secret. `nonce` is 32 fresh random bytes.
    pub fn receive(
        self,
        hello: &[u8],
        card: &JoinerFacts,
        nonce: Nonce,
    ) -> Result<(ExpectProof, Vec<u8>), HandshakeError> {
        let Message::Hello { domain, facts, nonce: joiner_nonce } = Message::decode(hello)? else {
            return Err(HandshakeError::OutOfOrder);
        };
        if facts.group != self.facts.group {
            return Err(HandshakeError::OtherGroup);
        }
        if facts != *card {
            return Err(HandshakeError::NotTheCard);
        }
        if domain != self.domain.name {
            return Err(HandshakeError::OtherDomain { theirs: domain, ours: self.domain.name });
        }
        if joiner_nonce == nonce || facts.transport_key == self.facts.transport_key {
            return Err(HandshakeError::Reflected);
        }
        let challenge = Message::Challenge { facts: self.facts.clone(), nonce }.encode()?;
        let mut transcript = Transcript::new();
        transcript.add(hello);
        transcript.add(&challenge);
        let next = ExpectProof {
            domain: self.domain,
            joiner: facts,
            joiner_nonce,
            member: self.facts,
            member_nonce: nonce,
            transcript,
        };
        Ok((next, challenge))
    }
}

/// The member has challenged and waits for the joiner's proof.
pub struct ExpectProof {
    domain: DomainKey,
    joiner: JoinerFacts,
    joiner_nonce: Nonce,
    member: MemberFacts,
    member_nonce: Nonce,
    transcript: Transcript,
}

impl ExpectProof {
    /// Verifies the proof, in constant time.
    pub fn receive(mut self, proof: &[u8]) -> Result<Proven, HandshakeError> {
        let Message::Proof(tag) = Message::decode(proof)? else {
            return Err(HandshakeError::OutOfOrder);
        };
        self.transcript
            .proof(&self.domain, Purpose::JoinerProof)
            .verify_slice(&tag)
            .map_err(|_| HandshakeError::NotProved)?;
        self.transcript.add(proof);
        Ok(Proven(self))
    }
}

/// The joiner has proved the domain: the secrets may follow.
pub struct Proven(ExpectProof);

impl Proven {
    /// What the joiner proved to be: the SMK may be wrapped to this transport key and no other.
    pub fn joiner(&self) -> &JoinerFacts {
        &self.0.joiner
    }

    /// Seals the secrets for the joiner, which the group knows as `joiner`. `nonce` is 12 fresh random bytes.
    pub fn seal(
        self,
        secrets: &Secrets,
        joiner: MemberId,
        nonce: [u8; 12],
    ) -> Result<Vec<u8>, HandshakeError> {
        let binding = Binding {
            joiner: &self.0.joiner,
            joiner_id: joiner,
            joiner_nonce: self.0.joiner_nonce,
            member: &self.0.member,
            member_nonce: self.0.member_nonce,
        };
        seal(&self.0.domain, &self.0.transcript, &binding, secrets, nonce)
    }
}
