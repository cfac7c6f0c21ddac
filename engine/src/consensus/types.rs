//! openraft's types for this project.

use crate::domain::MemberId;
use crate::state::{Command, Outcome};

openraft::declare_raft_types!(
    /// Raft over the group's commands. Addresses live in the roster, not in Raft's membership.
    pub TypeConfig:
        D = Command,
        R = Outcome,
        NodeId = u64,
        Node = openraft::EmptyNode,
);

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A log id of this group.
pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
/// A log entry of this group.
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
/// A vote of this group.
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
/// Raft's membership as it is stored.
pub type Membership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;

/// A leader, as log ids name it.
pub type LeaderId = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;

/// The leader of a term.
pub(super) fn leader_id(term: u64, leader: MemberId) -> LeaderId {
    LeaderId { term, node_id: leader.0 }
}
