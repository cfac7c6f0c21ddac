//! A whole member: its data folder, how it begins (`init`, `join`), how it gets a new token its keys (`recover`),
//! how it runs ([`Engine`]), and how it is examined before it serves (`check`).

mod check;
mod engine;
mod force;
pub mod home;
mod init;
mod join;
mod monitor;

pub use check::{Findings, check};
pub use engine::{Engine, Fault, World};
pub use force::{Survey, Survivor};
pub use home::{HomeError, Identity};
pub use init::{InitGroup, InitReport, init};
pub use join::{JoinReport, join, join_through, recover};
pub use monitor::{Health, Monitor};

use crate::aside;
use crate::cloning::Domain;
use crate::consensus::{ConsensusError, Timings};
use crate::domain::{Generation, MemberCard, MemberId};
use crate::token::{MemberKeys, Token, TokenConfig, TokenError};
use crate::transport::pki;
use std::net::SocketAddr;
use std::path::PathBuf;

/// How a member is set up.
#[derive(Clone)]
pub struct MemberConfig {
    /// Its data folder.
    pub folder: PathBuf,
    /// Its name, for people.
    pub name: String,
    /// Where it listens for members.
    pub listen: SocketAddr,
    /// `host:port` that other members reach it at.
    pub advertise: String,
    /// Its Unix socket for local clients.
    pub socket: PathBuf,
    /// User ids besides its own and root that may use the socket.
    pub socket_users: Vec<u32>,
    /// Its token.
    pub token: TokenConfig,
    /// Its cloning domain.
    pub domain: Domain,
    /// Raft's times.
    pub timings: Timings,
    /// Network interfaces whose state counts when the group chooses its primary.
    pub monitored_interfaces: Vec<String>,
}

/// Why a member cannot begin or run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// What was changed on this member alone.
    #[error(
        "the list of what was changed on this member's own slot: {0}. Mend that, or move the file 'direct' out of the \
         data folder to go on without what it lists"
    )]
    Direct(#[from] crate::direct::DirectError),
    /// The token.
    #[error("the token: {0}")]
    Token(#[from] TokenError),
    /// The token holds no SMK of this group.
    #[error(
        "the token does not hold the SMK {generation} of group {group}: it is new, was emptied or was exchanged. \
         Nothing in it was touched. Run 'keyraft recover' to give it the group's keys, or mount the right token"
    )]
    SmkAbsent {
        /// The generation.
        generation: Generation,
        /// The group.
        group: crate::domain::GroupId,
    },
    /// The token holds another group's SMK.
    #[error(
        "the token holds an SMK {generation} that is not this group's: another group's token may be mounted here. \
         Nothing in it was touched. Mount the right token, or use an empty one and run 'keyraft recover'"
    )]
    SmkForeign {
        /// The generation.
        generation: Generation,
    },
    /// The envelope keys do not open.
    #[error(
        "the token does not open this data folder: {0}. Mount the token that belongs to the folder; if it was lost, \
         run 'keyraft recover' with a new one"
    )]
    Locked(TokenError),
    /// Consensus.
    #[error("consensus: {0}")]
    Consensus(#[from] ConsensusError),
    /// Certificates.
    #[error("certificates: {0}")]
    Pki(#[from] pki::PkiError),
    /// A listener.
    #[error("cannot listen on {address}: {source}. Choose another address or stop what uses it")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The group refused or did not answer.
    #[error("{0}")]
    Group(#[from] crate::wire::Failure),
    /// The handshake.
    #[error("the handshake failed: {0}")]
    Handshake(#[from] crate::cloning::HandshakeError),
    /// Nobody at the invitation's addresses could admit this member.
    #[error("no member could be reached: {0}")]
    NobodyThere(String),
    /// Randomness.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
    /// A PIN of the virtual token.
    #[error("a PIN of the group: {0}")]
    Pin(#[from] crate::virtual_slot::pin::PinError),
    /// A value cannot be sealed.
    #[error("sealing: {0}")]
    Envelope(#[from] crate::envelope::EnvelopeError),
    /// The data folder's two halves are of different histories.
    #[error(
        "this data folder says to be of the history {identity}, and its store is of {store}: a 'keyraft force-quorum' \
         was cut off, or a part of the folder is an old copy. Run 'keyraft force-quorum' again to finish it, or put \
         the other part back"
    )]
    Lineage {
        /// What the identity says.
        identity: crate::domain::Lineage,
        /// What the store says.
        store: crate::domain::Lineage,
    },
    /// There is nothing to begin a history with.
    #[error(
        "this member's store knows no group with it as a member: it cannot go on alone. Run 'keyraft force-quorum' on \
         a member that was in sync"
    )]
    NothingLeft,
    /// There is no majority to lose.
    #[error("{0} is the group's only voter: it needs nobody else. Start it with 'keyraft serve'")]
    AloneAlready(MemberId),
    /// The majority is there.
    #[error(
        "with {} a quorum answers: nothing is lost. Start this member with 'keyraft serve', and remove a member that \
         is gone for good with 'keyraft member remove'", .0.iter().map(MemberId::to_string).collect::<Vec<_>>().join(", ")
    )]
    QuorumLives(Vec<MemberId>),
}

fn random<const N: usize>() -> Result<[u8; N], StartError> {
    crate::transport::random_bytes().map_err(|error| StartError::Random(error.to_string()))
}

/// Opens the token off the async threads.
async fn open_token(config: TokenConfig) -> Result<Token, TokenError> {
    aside::start(move || Token::open(config)).await.expect("opening a token does not panic")
}

/// What this member says of itself.
fn card(
    config: &MemberConfig,
    tls: crate::domain::Fingerprint,
    keys: &MemberKeys,
    token: &Token,
) -> MemberCard {
    MemberCard {
        name: config.name.clone(),
        address: config.advertise.clone(),
        tls,
        transport_key: keys.transport_key.clone(),
        profile: token.profile().clone(),
    }
}

/// The first member's id.
pub const FIRST_MEMBER: MemberId = MemberId(1);
