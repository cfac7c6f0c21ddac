//! How a member is admitted to the SMK: pure, no IO, random bytes passed in.
//!
//! Joiner and member share a cloning domain, a named secret. The handshake has four messages:
//!
//! ```text
//! joiner                                    member
//!   hello: group, domain's name, keys, nonce  ->
//!   <-  challenge: group, member id, key, nonce
//!   proof: HMAC over hello and challenge      ->
//!   <-  delivery: sealed; member's HMAC and the secrets inside
//! ```
//!
//! Nothing that depends on the domain's secret leaves the member before the joiner has proved it, so a stranger
//! gets nothing to try guesses on. Every message enters the transcript as the very bytes that travelled; the
//! keys of the proof and of the delivery come from the secret and the transcript. So a message that was altered,
//! replayed or reflected ends the handshake, and a delivery opens only for the one that it was made for.
//!
//! Each step consumes the one before it: a wrong order cannot be written.

mod delivery;
mod domain;
mod invitation;
mod joiner;
mod member;
mod message;

pub use delivery::{GenerationSecrets, Secrets};
pub use domain::{Domain, DomainKey};
pub use invitation::{Invitation, InvitationError, invite_proof, verify_invite_proof};
pub use joiner::{ExpectChallenge, ExpectDelivery, JoinerHello};
pub use member::{ExpectHello, ExpectProof, Proven};
pub use message::{JoinerFacts, MemberFacts, Nonce};

use crate::codec::CodecError;

/// Why a handshake ended. No secret was given away, and none may be taken from the peer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HandshakeError {
    /// The domain's secret is too short or too long.
    #[error("the cloning domain's secret has {len} bytes; it needs {min} to {max}: generate one at random",
        min = crate::limits::DOMAIN_SECRET_MIN_BYTES, max = crate::limits::DOMAIN_SECRET_MAX_BYTES)]
    SecretLength {
        /// Bytes given.
        len: usize,
    },
    /// The domain's name is empty or too long.
    #[error("the cloning domain's name needs 1 to {max} bytes", max = crate::limits::TEXT_MAX_BYTES)]
    DomainName,
    /// The bytes are no message of this handshake.
    #[error("a handshake message is unreadable: {0}")]
    Unreadable(#[from] CodecError),
    /// A message of another step.
    #[error("a handshake message came out of order")]
    OutOfOrder,
    /// A field is empty or over its limit.
    #[error("a handshake message holds {0} of a wrong length")]
    FieldLength(&'static str),
    /// Another group.
    #[error("the other side belongs to another group: check the invitation and the address")]
    OtherGroup,
    /// The sides are configured with differently named domains.
    #[error(
        "the joiner's cloning domain is named '{theirs}', ours '{ours}': give both members the same domain"
    )]
    OtherDomain {
        /// The joiner's.
        theirs: String,
        /// The member's.
        ours: String,
    },
    /// The hello's keys are not those of the joiner's card.
    #[error("the hello names other keys than the joiner's card")]
    NotTheCard,
    /// Our own nonce or key came back.
    #[error("our own message came back: two members may not share a token, nor a message be sent back")]
    Reflected,
    /// The other side does not know the domain's secret, or a message was altered on its way.
    #[error("the cloning domain is not proved: compare name and secret of the domain on both members")]
    NotProved,
    /// The delivery does not open for us.
    #[error(
        "the delivery does not open: it was altered, or made for another joiner or by one without the domain"
    )]
    NotForUs,
    /// The delivery is over a limit.
    #[error("the delivery has {0} generations or too many bytes")]
    TooMuch(usize),
}

#[cfg(test)]
mod tests;
