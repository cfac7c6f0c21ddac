//! The joiner's side.

use super::delivery::{Binding, Secrets, open};
use super::message::{JoinerFacts, MemberFacts, Message, Nonce, Purpose, Transcript};
use super::{DomainKey, HandshakeError};
use crate::domain::{GroupId, MemberId};
use hmac::Mac;

/// Opens a handshake.
pub struct JoinerHello;

impl JoinerHello {
    /// Says hello. `domain` must be stretched for the group of `facts`; `nonce` is 32 fresh random bytes.
    pub fn begin(
        domain: DomainKey,
        facts: JoinerFacts,
        nonce: Nonce,
    ) -> Result<(ExpectChallenge, Vec<u8>), HandshakeError> {
        if domain.group != facts.group {
            return Err(HandshakeError::OtherGroup);
        }
        let message = Message::Hello { domain: domain.name.clone(), facts: facts.clone(), nonce };
        let hello = message.encode()?;
        let mut transcript = Transcript::new();
        transcript.add(&hello);
        Ok((ExpectChallenge { domain, facts, nonce, transcript }, hello))
    }
}

/// The joiner has said hello and waits to be challenged.
pub struct ExpectChallenge {
    domain: DomainKey,
    facts: JoinerFacts,
    nonce: Nonce,
    transcript: Transcript,
}

impl ExpectChallenge {
    /// Answers the member's challenge with the proof of the domain.
    pub fn receive(mut self, challenge: &[u8]) -> Result<(ExpectDelivery, Vec<u8>), HandshakeError> {
        let Message::Challenge { facts: member, nonce } = Message::decode(challenge)? else {
            return Err(HandshakeError::OutOfOrder);
        };
        if member.group != self.facts.group {
            return Err(HandshakeError::OtherGroup);
        }
        if nonce == self.nonce || member.transport_key == self.facts.transport_key {
            return Err(HandshakeError::Reflected);
        }
        self.transcript.add(challenge);
        let proof = self.transcript.proof(&self.domain, Purpose::JoinerProof).finalize().into_bytes();
        let proof = Message::Proof(proof.into()).encode()?;
        self.transcript.add(&proof);
        let next = ExpectDelivery {
            domain: self.domain,
            joiner: self.facts,
            joiner_nonce: self.nonce,
            member,
            member_nonce: nonce,
            transcript: self.transcript,
        };
        Ok((next, proof))
    }
}

/// The joiner has proved the domain and waits for the secrets.
pub struct ExpectDelivery {
    domain: DomainKey,
    joiner: JoinerFacts,
    joiner_nonce: Nonce,
    member: MemberFacts,
    member_nonce: Nonce,
    transcript: Transcript,
}

impl ExpectDelivery {
    /// The member that challenged us, as it says; proved once [`ExpectDelivery::open`] succeeds.
    pub fn member(&self) -> MemberId {
        self.member.member
    }

    /// Opens the delivery, which proves that the member knows the domain too. `group` and `joiner` are what the
    /// admission says beside it: they must be those that the member sealed it for.
    pub fn open(self, sealed: &[u8], group: GroupId, joiner: MemberId) -> Result<Secrets, HandshakeError> {
        if group != self.joiner.group {
            return Err(HandshakeError::OtherGroup);
        }
        let binding = Binding {
            joiner: &self.joiner,
            joiner_id: joiner,
            joiner_nonce: self.joiner_nonce,
            member: &self.member,
            member_nonce: self.member_nonce,
        };
        open(&self.domain, &self.transcript, &binding, sealed)
    }
}
