//! Joining: an invitation's holder proves it and its cloning domain, is admitted, and gets its keys.
//! The handshake's messages are the cloning room's; here they are opaque bytes with a place in the order.

use crate::domain::{Fingerprint, GroupId, Lineage, MemberCard, MemberId};
use crate::state::InviteId;
use serde::{Deserialize, Serialize};

/// From a joiner. Order is the wire format. The steps of one join run on one connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum JoinRequest {
    /// "I hold this invitation": opens the handshake.
    Open {
        /// The invitation; None when a member asks again for the SMK (Readmit).
        invite: Option<InviteId>,
        /// HMAC-SHA256 under the invitation's secret over the hello; empty for Readmit.
        proof: Vec<u8>,
        /// What the joiner is.
        card: Box<MemberCard>,
        /// A certificate signing request for its TLS key, DER; empty for Readmit.
        signing_request: Vec<u8>,
        /// The cloning handshake's first message.
        hello: Vec<u8>,
    },
    /// The joiner's proof of the cloning domain, answering the challenge.
    Prove {
        /// The cloning handshake's third message.
        proof: Vec<u8>,
    },
}

/// To a joiner. Order is the wire format.
#[derive(Debug, Serialize, Deserialize)]
pub enum JoinAnswer {
    /// The member's challenge, with its own proof of the domain inside.
    Challenge {
        /// The cloning handshake's second message.
        challenge: Vec<u8>,
    },
    /// Admitted.
    Admitted(Box<Delivery>),
}

/// What an admitted member gets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Delivery {
    /// The group.
    pub group: GroupId,
    /// Its history.
    pub lineage: Lineage,
    /// The virtual token's label.
    pub label: String,
    /// Its id.
    pub member: MemberId,
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// The group's CA certificate, DER.
    pub authority: Vec<u8>,
    /// The roster, so that it can find others before it has the state.
    pub roster: Roster,
    /// Every live generation's SMK (wrapped to the joiner's transport key) and envelope key, sealed under the
    /// handshake's key.
    pub sealed: Vec<u8>,
}

/// Where members are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster(pub Vec<RosterRow>);

/// One member of a roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterRow {
    /// Its id.
    pub member: MemberId,
    /// Its address.
    pub address: String,
    /// Its TLS key.
    pub tls: Fingerprint,
}
