//! What members and clients say to each other. Plain data; how it travels is the transport's, what it means is
//! the service's. Order of variants is the wire format: add at the end.

mod client;
mod failure;
mod join;
mod member;
mod slot;
mod telemetry;

pub use client::{
    Adoption, Answer, ClientRequest, CompareAndSet, ComparisonRow, CoverageCell, CoverageRow, CoverageState,
    CreateKey, Deletion, GroupStatus, ImportKey, KeyTemplate, MemberStatus, ObjectRow, SecretBytes, UseKind,
    UseRequest,
};
pub use failure::{Failure, FailureKind, Remedy, Undecided, is_doubtful};
pub use join::{Delivery, JoinAnswer, JoinRequest, Roster, RosterRow};
pub use member::{
    Compared, Comparison, ComparisonTotals, Fitness, MemberAnswer, MemberRequest, ObjectReport, ObjectStatus,
    RaftCall, Report, TokenHealth,
};
pub use slot::{
    Change, ClientName, Keep, KeyRef, Made, MakeBy, PinState, Role, Sealed, SessionName, SlotAnswer,
    SlotCall, SlotInfo, SlotReply, SlotRequest, Ticket,
};
pub use telemetry::{MemberPulse, Operation, Pulse};

use crate::domain::{GroupId, Lineage, MemberId};
use serde::{Deserialize, Serialize};

/// The first frame on every connection between members, both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Protocol version; others are refused.
    pub protocol: u16,
    /// The group; another is refused. None for a joiner and for local clients.
    pub group: Option<GroupId>,
    /// The group's history; an older one is refused.
    pub lineage: Lineage,
    /// Who speaks: must be the member of the certificate. None for a joiner and for local clients.
    pub member: Option<MemberId>,
    /// What the connection is for.
    pub lane: Lane,
}

impl Hello {
    /// The hello of somebody who is no member: a joiner or a client.
    pub fn anonymous() -> Self {
        Self { protocol: PROTOCOL, group: None, lineage: Lineage(0), member: None, lane: Lane::Calls }
    }

    /// The hello of an application that uses the virtual slot.
    pub fn application() -> Self {
        Self { lane: Lane::Slot, ..Self::anonymous() }
    }
}

/// Version of the protocol between processes.
pub const PROTOCOL: u16 = 3;

/// Connections are kept apart by purpose, so that bulk never delays a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lane {
    /// Raft heartbeats, votes, leader transfer.
    Heartbeat,
    /// Raft log and snapshots.
    Bulk,
    /// Everything else: reports, forwarded calls, clients, joins.
    Calls,
    /// An application's calls on the virtual slot, one at a time, answered on a thread of their own.
    Slot,
}

/// A request frame's body.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Between members.
    Member(MemberRequest),
    /// From a local client, or forwarded by a member.
    Client(ClientRequest),
    /// From somebody who is not a member yet.
    Join(JoinRequest),
}

/// A response frame's body.
#[derive(Debug, Serialize, Deserialize)]
pub enum Response {
    /// To [`Request::Member`].
    Member(MemberAnswer),
    /// To [`Request::Client`].
    Client(Answer),
    /// To [`Request::Join`].
    Join(JoinAnswer),
    /// The request was not carried out, or it is not known whether it was (see the kind).
    Failed(Failure),
}
