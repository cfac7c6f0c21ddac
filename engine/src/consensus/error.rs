use crate::codec::CodecError;
use crate::domain::MemberId;
use crate::limits::VOTERS_MAX;
use crate::wire::Remedy;
use std::io;

/// Why the group did not agree, or is not known to have.
#[derive(Debug, thiserror::Error)]
pub enum ConsensusError {
    /// Nothing was done: another member leads.
    #[error("this member does not lead{}: ask the leader", match .leader { Some(id) => format!(", {id} does"), None => String::new() })]
    NotLeader {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// Nothing was done: no quorum answers.
    #[error("no quorum of the voters answers: changes wait until enough members are back")]
    NoQuorum,
    /// It may have been done, or may still be: the leader changed under it. Repeat it under its request id.
    #[error("the leader changed before the outcome was known: ask again under the same request id")]
    Unknown,
    /// It may have been done: the time is over.
    #[error("{0} took too long: look at the group's state before asking again")]
    Deadline(&'static str),
    /// Nothing was done: the command is too long for one log entry.
    #[error("a command of {bytes} bytes is more than the {limit} of one log entry: ask for less at once")]
    TooLarge {
        /// Its length encoded, bytes.
        bytes: usize,
        /// The limit, bytes.
        limit: usize,
    },
    /// Nothing was done: the voters are being changed already.
    #[error("a change of the voters is under way: wait for it")]
    ChangeUnderWay,
    /// Nothing was done: it is not one of the members that take part in Raft.
    #[error("{0} takes no part in the group's log yet: admit it first")]
    NotAMember(MemberId),
    /// Nothing was done: it does not vote.
    #[error("{0} has no vote: promote it first")]
    NotAVoter(MemberId),
    /// Nothing was done: there are enough voters.
    #[error("the group has its {max} voters already: demote one first", max = VOTERS_MAX)]
    TooManyVoters,
    /// Nothing was done: it would leave nobody to vote.
    #[error("{0} is the only voter: promote another first")]
    LastVoter(MemberId),
    /// Nothing was done: it lacks entries.
    #[error("{member} is {entries} entries behind: wait until it has caught up")]
    Behind {
        /// The member.
        member: MemberId,
        /// Entries it lacks.
        entries: u64,
    },
    /// Nothing was done: the group exists, and it is another one.
    #[error("this member's log already holds a group: it cannot begin another")]
    OtherGroup,
    /// Another member sent what cannot be read, or speaks for somebody else.
    #[error("a message from {from} was refused: {why}")]
    BadMessage {
        /// Who sent it.
        from: MemberId,
        /// What is wrong with it.
        why: String,
    },
    /// A member shows less than it once acknowledged: it has no part in the group any more.
    #[error(
        "the disk of {0} went back in time: it lacks what it once acknowledged. Empty its data folder and let it join \
         anew with 'keyraft join'"
    )]
    Returned(MemberId),
    /// A value could not be encoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The timings contradict each other.
    #[error("the Raft timings do not fit each other: {0}")]
    Settings(String),
    /// The checkpoint could not be read.
    #[error("the store cannot be read: {0}")]
    Store(#[from] io::Error),
    /// Raft has ended on this member; it must be restarted.
    #[error("consensus has stopped on this member ({0}): restart it")]
    Stopped(String),
}

impl ConsensusError {
    /// What the caller may do. Adding an error forces this choice.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::NotLeader { .. } | Self::Stopped(_) | Self::Store(_) => Remedy::TryAnotherMember,
            Self::NoQuorum
            | Self::Unknown
            | Self::Deadline(_)
            | Self::ChangeUnderWay
            | Self::Behind { .. } => Remedy::TryAgain,
            Self::TooLarge { .. }
            | Self::NotAMember(_)
            | Self::NotAVoter(_)
            | Self::TooManyVoters
            | Self::LastVoter(_)
            | Self::OtherGroup
            | Self::BadMessage { .. }
            | Self::Returned(_)
            | Self::Codec(_)
            | Self::Settings(_) => Remedy::GiveUp,
        }
    }

    /// True if nothing was done and nothing of it will happen later.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::Unknown | Self::Deadline(_) | Self::Stopped(_))
    }
}
