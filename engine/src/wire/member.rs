//! What members say to each other.

use super::client::ClientRequest;
use super::join::JoinRequest;
use crate::domain::{LogIndex, MemberCard, ObjectId, Version};
use serde::{Deserialize, Serialize};

/// Between members. Order is the wire format.
#[derive(Debug, Serialize, Deserialize)]
pub enum MemberRequest {
    /// A Raft call, encoded by the consensus room.
    Raft {
        /// Which.
        call: RaftCall,
        /// Its body.
        #[serde(with = "crate::codec::bytes")]
        body: Vec<u8>,
    },
    /// A member's reconciler tells the primary what it holds.
    Report(Report),
    /// Asks the leader for a confirmed read index.
    ReadIndex,
    /// A client's request that this member may carry out and the sender may not.
    Forward(Box<ClientRequest>),
    /// "This is what I am now": the primary proposes it if it differs from the roster.
    Announce(Box<MemberCard>),
    /// A member whose token is new asks for the SMK: the join handshake, by an admitted member.
    Readmit(Box<JoinRequest>),
    /// Asks for what this member failed to import: object, reason, tries.
    Failures,
    /// Asks how this member is now.
    Pulse,
    /// Asks for the last operations of clients here.
    Operations {
        /// Only this client's.
        client: Option<String>,
        /// At most so many.
        last: u32,
    },
}

/// Raft's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaftCall {
    /// AppendEntries
    Append,
    /// RequestVote
    Vote,
    /// Pre-vote
    PreVote,
    /// Leader transfer
    Transfer,
    /// A chunk of a snapshot
    Snapshot,
}

/// What a member tells the primary after each round of its reconciler, and at least once a heartbeat interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// All objects up to this applied index are held, dropped or excluded.
    pub reached: LogIndex,
    /// Objects that are pending or removing, with what became of them here.
    pub objects: Vec<ObjectReport>,
    /// The token's health.
    pub token: TokenHealth,
}

/// One object in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectReport {
    /// The object.
    pub object: ObjectId,
    /// The version.
    pub version: Version,
    /// What became of it.
    pub status: ObjectStatus,
}

/// What became of an object on a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectStatus {
    /// Imported and verified.
    Held,
    /// Its copies are gone.
    Dropped,
    /// A healthy token refused it, with the reason.
    Refused(String),
    /// The import failed and will be tried again.
    Failing(String),
}

/// A token's health as its member sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenHealth {
    /// Its canary works.
    Healthy,
    /// It does not, and why.
    Failed(String),
}

/// Answers between members.
#[derive(Debug, Serialize, Deserialize)]
pub enum MemberAnswer {
    /// To Raft, encoded by the consensus room.
    Raft(#[serde(with = "crate::codec::bytes")] Vec<u8>),
    /// To Report and Announce.
    Noted,
    /// To ReadIndex.
    ReadIndex(LogIndex),
    /// To Forward.
    Forwarded(Box<super::client::Answer>),
    /// To Readmit.
    Readmit(Box<super::join::JoinAnswer>),
    /// To Failures: object, reason, tries.
    Failures(Vec<(ObjectId, String, u32)>),
    /// To Pulse.
    Pulse(Box<super::telemetry::Pulse>),
    /// To Operations, oldest first.
    Operations(Vec<super::telemetry::Operation>),
}
