//! What members say to each other.

use super::client::ClientRequest;
use super::join::JoinRequest;
use crate::domain::{LogIndex, MemberCard, MemberId, ObjectId, Version};
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
    /// A standby asks whether this member serves as an active one.
    ServesActive,
    /// Asks to compare agreed with held now, with a state that has reached this index.
    Compare(LogIndex),
    /// An operator has chosen the receiver as primary, in this term.
    Chosen(u64),
    /// Asks the primary for a lease on the use of keys; answered by Noted.
    Lease {
        /// What the sender has applied.
        applied: LogIndex,
        /// The entry since which the group fences, once the sender's disk holds it.
        kept: Option<LogIndex>,
    },
    /// Undoes or adopts what was changed on this member's own slot, as the group's option says.
    EndDirect,
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
    /// How fit it is to lead.
    pub fitness: Fitness,
    /// Something could not be brought into its token or out of it, and is tried again; not what the token refused.
    pub stuck: bool,
}

/// How fit a member is to lead, as it sees itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fitness {
    /// Since its start, its token's failure or the last change of a monitored interface, milliseconds.
    pub uptime_ms: u64,
    /// Its data folder can be written and has room.
    pub disk_healthy: bool,
    /// Monitored interfaces that are up.
    pub ports: u32,
    /// The term in which an operator last made it step down, since its start.
    pub stepped_down: Option<u64>,
    /// The term in which an operator last chose it as primary, since its start.
    pub chosen: Option<u64>,
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

/// What one member's comparison of everything came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// All of it, counted.
    pub totals: ComparisonTotals,
    /// What was not done first, then what was.
    pub rows: Vec<(ObjectId, Compared)>,
    /// True if there was no room for all rows.
    pub more: bool,
}

/// A comparison in numbers of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparisonTotals {
    /// Brought into the token now.
    pub imported: u64,
    /// Removed from it now.
    pub dropped: u64,
    /// As they should be.
    pub kept: u64,
    /// Not as they should be.
    pub cannot: u64,
}

impl ComparisonTotals {
    /// Counts one object.
    pub fn count(&mut self, what: &Compared) {
        *match what {
            Compared::Imported => &mut self.imported,
            Compared::Dropped => &mut self.dropped,
            Compared::Kept => &mut self.kept,
            Compared::Cannot { .. } => &mut self.cannot,
        } += 1;
    }
}

/// What a comparison did with one object. Order is the wire format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compared {
    /// It was missing, or had an older version.
    Imported,
    /// It was removed by the group.
    Dropped,
    /// Agreed and held are equal.
    Kept,
    /// They are not, and the member cannot make them so.
    Cannot {
        /// Why, for people.
        why: String,
    },
}

impl Compared {
    /// What is to be read first has the lowest.
    pub fn urgency(&self) -> u8 {
        match self {
            Self::Cannot { .. } => 0,
            Self::Imported => 1,
            Self::Dropped => 2,
            Self::Kept => 3,
        }
    }

    /// About as many bytes as it takes in an answer.
    pub fn bytes(&self) -> usize {
        const ROW: usize = 32;
        match self {
            Self::Cannot { why } => ROW + why.len(),
            Self::Imported | Self::Dropped | Self::Kept => ROW,
        }
    }
}

/// Answers between members.
#[derive(Debug, Serialize, Deserialize)]
pub enum MemberAnswer {
    /// To Raft, encoded by the consensus room.
    Raft(#[serde(with = "crate::codec::bytes")] Vec<u8>),
    /// To Announce and Chosen.
    Noted,
    /// To ReadIndex.
    ReadIndex(LogIndex),
    /// To Forward.
    Forwarded(Box<super::client::Answer>),
    /// To Readmit.
    Readmit(Box<super::join::JoinAnswer>),
    /// To Failures: object, reason, tries.
    Failures(Vec<(ObjectId, String, u32)>),
    /// To ServesActive: true if it is active, in sync, its token works, and it may use keys now.
    ServesActive(bool),
    /// To Compare.
    Compared(Comparison),
    /// To Report: who stands for election in which order when the primary is lost.
    Ranked(Vec<MemberId>),
    /// To EndDirect: what could not be ended, for people.
    DirectEnded(Vec<String>),
    /// To Pulse.
    Pulse(Box<super::telemetry::Pulse>),
    /// To Operations, oldest first.
    Operations(Vec<super::telemetry::Operation>),
}
