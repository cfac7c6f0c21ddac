//! openraft's types for this project.

use crate::state::{Command, Outcome};

openraft::declare_raft_types!(
    /// Raft over the group's commands. Addresses live in the roster, not in Raft's membership. A term has one leader,
    /// as in Raft's paper (section 5.2): openraft's own default lets a second one outbid the first in the same term,
    /// and whoever takes a term for a leadership, as the fence and the settling do, would be wrong.
    pub TypeConfig:
        D = Command,
        R = Outcome,
        NodeId = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
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
