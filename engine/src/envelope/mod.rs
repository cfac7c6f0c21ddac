//! How a key travels: AES-256-GCM over the attribute record and the wrapped key, with the object's whole name as
//! associated data. An envelope that was moved to another object, version, generation or group does not open.

mod key;
mod seal;

pub use key::{EnvelopeKey, EnvelopeKeys};
pub use seal::{open, open_bytes, seal, seal_bytes};

use crate::codec::CodecError;

/// Why an envelope could not be sealed or opened. Nothing here is worth a second try.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EnvelopeError {
    /// The content or the envelope is over a limit.
    #[error("{what} has {len} bytes or entries; the limit is {limit}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// A template attribute holds another template.
    #[error("a template attribute holds another template; templates nest one level deep")]
    TooDeep,
    /// Another key, another name, or damaged bytes. Which of them cannot be told.
    #[error(
        "the envelope does not open: it was sealed under another envelope key or another name, or is damaged"
    )]
    DoesNotOpen,
    /// The envelope opened, and what is inside cannot be read or written.
    #[error("the envelope's content is unreadable: {0}")]
    Content(#[from] CodecError),
}
