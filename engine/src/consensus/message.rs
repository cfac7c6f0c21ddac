//! What travels between members for Raft. Order of variants and fields is the wire format: add at the end.

use super::types::{LogId, Vote};
use crate::codec::{self, CodecError};
use crate::domain::{ContentKey, Envelope, MemberId};
use crate::limits::FRAME_MAX_BYTES;
use openraft::raft::{AppendEntriesResponse, VoteRequest, VoteResponse};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::types::{Entry, TypeConfig};

/// Encodes a message.
pub(super) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, CodecError> {
    codec::encode(message)
}

/// Decodes a message of at most a frame.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    codec::decode(bytes, FRAME_MAX_BYTES)
}

/// One entry, encoded by itself so that its length is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blob(#[serde(with = "crate::codec::bytes")] pub(super) Vec<u8>);

/// AppendEntries; a heartbeat has no entries.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Append {
    pub(super) vote: Vote,
    pub(super) previous: Option<LogId>,
    pub(super) committed: Option<LogId>,
    pub(super) entries: Vec<Blob>,
}

impl Append {
    /// The entries, which must follow `previous` without a gap.
    pub(super) fn decode_entries(&self) -> Result<Vec<Entry>, CodecError> {
        let first = self.previous.map_or(0, |previous| previous.index + 1);
        let mut entries = Vec::with_capacity(self.entries.len());
        for (index, Blob(bytes)) in (first..).zip(&self.entries) {
            let entry: Entry = decode(bytes)?;
            if entry.log_id.index != index {
                let found = entry.log_id.index;
                return Err(CodecError::Decode(format!("entry {found} stands where {index} belongs")));
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// The answer to [`Append`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AppendAnswer {
    Success,
    PartialSuccess(Option<LogId>),
    Conflict,
    HigherVote(Vote),
}

impl From<AppendEntriesResponse<TypeConfig>> for AppendAnswer {
    fn from(response: AppendEntriesResponse<TypeConfig>) -> Self {
        match response {
            AppendEntriesResponse::Success => Self::Success,
            AppendEntriesResponse::PartialSuccess(last) => Self::PartialSuccess(last),
            AppendEntriesResponse::Conflict => Self::Conflict,
            AppendEntriesResponse::HigherVote(vote) => Self::HigherVote(vote),
        }
    }
}

impl From<AppendAnswer> for AppendEntriesResponse<TypeConfig> {
    fn from(answer: AppendAnswer) -> Self {
        match answer {
            AppendAnswer::Success => Self::Success,
            AppendAnswer::PartialSuccess(last) => Self::PartialSuccess(last),
            AppendAnswer::Conflict => Self::Conflict,
            AppendAnswer::HigherVote(vote) => Self::HigherVote(vote),
        }
    }
}

/// A vote or a pre-vote.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ballot {
    pub(super) vote: Vote,
    pub(super) last: Option<LogId>,
    pub(super) transfer: bool,
}

impl From<VoteRequest<TypeConfig>> for Ballot {
    fn from(request: VoteRequest<TypeConfig>) -> Self {
        Self { vote: request.vote, last: request.last_log_id, transfer: request.leadership_transfer }
    }
}

impl From<Ballot> for VoteRequest<TypeConfig> {
    fn from(ballot: Ballot) -> Self {
        let mut request = Self::new(ballot.vote, ballot.last);
        request.leadership_transfer = ballot.transfer;
        request
    }
}

/// The answer to [`Ballot`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BallotAnswer {
    pub(super) vote: Vote,
    pub(super) granted: bool,
    pub(super) last: Option<LogId>,
}

impl From<VoteResponse<TypeConfig>> for BallotAnswer {
    fn from(response: VoteResponse<TypeConfig>) -> Self {
        Self { vote: response.vote, granted: response.vote_granted, last: response.last_log_id }
    }
}

impl From<BallotAnswer> for VoteResponse<TypeConfig> {
    fn from(answer: BallotAnswer) -> Self {
        Self::new(answer.vote, answer.last, answer.granted)
    }
}

/// The leader hands over to `to`, who needs everything up to `last`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Transfer {
    pub(super) from: Vote,
    pub(super) to: MemberId,
    pub(super) last: Option<LogId>,
}

/// The answer to [`Transfer`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TransferAnswer {
    Accepted,
    VoteChanged { actual: Vote },
    LogNotFlushed { actual: Option<LogId> },
}

/// One piece of a snapshot: first the state, then the contents that it names, then the end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Chunk {
    /// Names this transfer among those of its sender.
    pub(super) transfer: u64,
    /// The leader's vote.
    pub(super) vote: Vote,
    pub(super) part: Part,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Part {
    /// Bytes of the encoded checkpoint at an offset; `total` are to come. Offset 0 begins a new transfer.
    State { total: u64, offset: u64, bytes: Blob },
    /// Contents; `offset` came before these.
    Contents { offset: u64, contents: Vec<(ContentKey, Envelope)> },
    /// All has been sent: so many contents.
    End { contents: u64 },
}

/// The answer to [`Chunk`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ChunkAnswer {
    /// The next one, please.
    Taken,
    /// The snapshot is installed, or was not needed; the receiver's vote.
    Ended(Vote),
    /// Begin again, later.
    Refused(String),
}

/// True if the bytes are one of the messages above, read as the side that gets them does.
#[cfg(feature = "test-hooks")]
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let append = decode::<Append>(bytes).is_ok_and(|append| append.decode_entries().is_ok());
    let asked = append
        | decode::<Ballot>(bytes).is_ok()
        | decode::<Transfer>(bytes).is_ok()
        | decode::<Chunk>(bytes).is_ok();
    let answered = decode::<AppendAnswer>(bytes).is_ok()
        | decode::<BallotAnswer>(bytes).is_ok()
        | decode::<TransferAnswer>(bytes).is_ok()
        | decode::<ChunkAnswer>(bytes).is_ok();
    asked | answered
}
