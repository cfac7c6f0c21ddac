//! How members are, and what they did lately, for people.

use super::member::TokenHealth;
use crate::clock::UnixMillis;
use crate::domain::{LogIndex, MemberId, ObjectId};
use serde::{Deserialize, Serialize};

/// How a member is at this moment, as it says itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pulse {
    /// Why it does not serve keys now; None if it does.
    pub refuses: Option<String>,
    /// Its token.
    pub token: TokenHealth,
    /// What its reconciler has reached.
    pub reached: LogIndex,
    /// Objects that it could not import or drop.
    pub troubles: u64,
    /// Operations a second, over the last seconds.
    pub rate: f64,
    /// Operations under way.
    pub pending: u64,
    /// When its process started.
    pub started: UnixMillis,
    /// At the primary: how many milliseconds ago each member was last heard of.
    pub heard: Vec<(MemberId, u64)>,
}

/// A member's row of the answer to Pulses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberPulse {
    /// The member.
    pub member: MemberId,
    /// What it says; None if it did not answer in time.
    pub pulse: Option<Pulse>,
    /// Since when it has been in sync, or not, as the asked member has seen it: at the earliest since that one's start.
    pub since: UnixMillis,
}

/// One operation of a client, as the member that was asked noted it. Never a secret, never data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// When it was asked for.
    pub at: UnixMillis,
    /// Who asked: `client:NAME` or `uid:N`.
    pub client: String,
    /// What, in a word.
    pub kind: String,
    /// How (CKM_), where a mechanism is named.
    pub mechanism: Option<u64>,
    /// The object, where one is named.
    pub object: Option<ObjectId>,
    /// The member that was asked.
    pub asked: MemberId,
    /// The member that carried it out, or said no.
    pub by: MemberId,
    /// Which try of the same call it was.
    pub tries: u8,
    /// How long it took at the asked member, microseconds.
    pub micros: u64,
    /// The CKR_ number that the application sees; 0 is CKR_OK.
    pub code: u64,
    /// Why it failed; empty if it did not.
    pub reason: String,
}
