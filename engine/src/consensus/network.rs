//! What this member asks of others for Raft.

use super::machine::Snapshot;
use super::message::{
    Append, AppendAnswer, Ballot, BallotAnswer, Blob, Chunk, ChunkAnswer, Part, Transfer, TransferAnswer,
    decode, encode,
};
use super::recall::{Owed, Recall};
use super::types::{LogId, TypeConfig, Vote};
use crate::aside;
use crate::codec::CodecError;
use crate::domain::{ContentKey, Envelope, MemberId};
use crate::limits::{APPEND, APPEND_MAX_BYTES, SNAPSHOT_CHUNK, SNAPSHOT_CHUNK_MAX_BYTES};
use crate::mutant::{self, Mutant};
use crate::wire::{Lane, RaftCall};
use futures::future::BoxFuture;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{EmptyNode, OptionalSend, RPCTypes, RaftNetworkFactory, RaftNetworkV2, StorageError};
use serde::{Serialize, de::DeserializeOwned};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The way to other members. A call ends within its deadline, whatever becomes of the other side.
pub trait RaftLinks: Send + Sync + 'static {
    /// Sends a call and returns its answer. An answer that is a failure of the other side is `Unreachable`.
    fn call(
        &self,
        to: MemberId,
        lane: Lane,
        call: RaftCall,
        body: Vec<u8>,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Vec<u8>, LinkFailure>>;
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFailure {
    /// There is no way to it now: pause before the next call.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The time was over.
    #[error("no answer in time")]
    Deadline,
}

/// Makes a [`Network`] for each member and purpose.
pub(super) struct Networks {
    me: MemberId,
    links: Arc<dyn RaftLinks>,
    recall: Arc<Recall>,
    transfers: Arc<AtomicU64>,
}

impl Networks {
    pub(super) fn new(me: MemberId, links: Arc<dyn RaftLinks>, recall: Arc<Recall>) -> Self {
        Self { me, links, recall, transfers: Arc::default() }
    }

    fn network(&self, target: u64, append: Lane) -> Network {
        Network {
            me: self.me,
            target: MemberId(target),
            append,
            links: self.links.clone(),
            recall: self.recall.clone(),
            transfers: self.transfers.clone(),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Networks {
    type Network = Network;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> Network {
        self.network(target, Lane::Bulk)
    }

    async fn new_heartbeat_client(&mut self, target: u64, _node: &EmptyNode) -> Network {
        self.network(target, Lane::Heartbeat)
    }
}

/// The way to one member.
pub(super) struct Network {
    me: MemberId,
    target: MemberId,
    append: Lane,
    links: Arc<dyn RaftLinks>,
    recall: Arc<Recall>,
    transfers: Arc<AtomicU64>,
}

type Rpc<T> = Result<T, RPCError<TypeConfig>>;

fn unusable(error: &CodecError) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::new(error))
}

impl Network {
    /// What a member answers whose disk went back in time counts as no answer.
    fn returned(&self) -> RPCError<TypeConfig> {
        let why = format!("the disk of {} went back in time", self.target);
        RPCError::Unreachable(Unreachable::from_string(why))
    }

    async fn call<A: DeserializeOwned>(
        &self,
        lane: Lane,
        call: RaftCall,
        body: &(impl Serialize + Sync),
        deadline: Duration,
    ) -> Rpc<A> {
        if self.recall.is_returned(self.target) {
            return Err(self.returned());
        }
        let body = encode(body).map_err(|e| unusable(&e))?;
        let sent = self.links.call(self.target, lane, call, body, deadline);
        // The links keep the deadline themselves; a link that does not must not hold Raft up.
        let answer = tokio::time::timeout(deadline, sent).await.unwrap_or(Err(LinkFailure::Deadline));
        match answer {
            Ok(bytes) => decode(&bytes).map_err(|e| unusable(&e)),
            Err(error @ LinkFailure::Unreachable(_)) => Err(RPCError::Unreachable(Unreachable::new(&error))),
            Err(LinkFailure::Deadline) => Err(RPCError::Timeout(Timeout {
                action: match call {
                    RaftCall::Append => RPCTypes::AppendEntries,
                    RaftCall::Vote | RaftCall::PreVote => RPCTypes::Vote,
                    RaftCall::Transfer => RPCTypes::TransferLeader,
                    RaftCall::Snapshot => RPCTypes::InstallSnapshot,
                },
                id: self.me.0,
                target: self.target.0,
                timeout: deadline,
            })),
        }
    }

    /// Sends entries in as many calls as their bytes need.
    async fn append_in_parts(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        deadline: Duration,
    ) -> Rpc<AppendEntriesResponse<TypeConfig>> {
        let AppendEntriesRequest { vote, mut prev_log_id, entries, leader_commit } = request;
        let mut entries = entries.into_iter().peekable();
        let mut sent_some = false;
        loop {
            let (blobs, last) = part(&mut entries).map_err(|e| unusable(&e))?;
            let append = Append { vote, previous: prev_log_id, committed: leader_commit, entries: blobs };
            let owed = self.recall.owed(self.target, &vote);
            let answer = self.call::<AppendAnswer>(self.append, RaftCall::Append, &append, deadline).await;
            if let Ok(answer) = &answer
                && !self.judge(answer, owed, &append, last)
            {
                return Err(self.returned());
            }
            match answer {
                Ok(AppendAnswer::Success) if entries.peek().is_some() => {
                    prev_log_id = last;
                    sent_some = true;
                }
                Ok(answer) if !sent_some || matches!(answer, AppendAnswer::Success) => {
                    return Ok(answer.into());
                }
                Err(error) if !sent_some => return Err(error),
                // The next request finds out what is the matter; what was taken counts.
                Ok(_) | Err(_) => return Ok(AppendEntriesResponse::PartialSuccess(prev_log_id)),
            }
        }
    }

    /// Notes what an answer acknowledges. False if the member's disk went back in time.
    fn judge(&self, answer: &AppendAnswer, owed: Owed, append: &Append, last: Option<LogId>) -> bool {
        let has = match answer {
            AppendAnswer::Success => last.or(append.previous),
            AppendAnswer::PartialSuccess(has) => *has,
            AppendAnswer::Conflict => {
                let lacks = append.previous.map(|previous| previous.index);
                return lacks.is_none_or(|index| self.recall.may_lack(self.target, owed, index));
            }
            AppendAnswer::HigherVote(_) => return true,
        };
        self.recall.acknowledged(self.target, append.vote, has, append.committed);
        true
    }

    async fn ballot(
        &self,
        call: RaftCall,
        request: VoteRequest<TypeConfig>,
        option: &RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        let ballot = Ballot::from(request);
        let owed = self.recall.owed(self.target, &ballot.vote);
        let answer: BallotAnswer = self.call(Lane::Heartbeat, call, &ballot, option.soft_ttl()).await?;
        if !self.recall.may_show(self.target, owed, &answer.vote)
            || !self.recall.may_end_at(self.target, owed, answer.last)
        {
            return Err(self.returned());
        }
        // Only a vote that was given is known to be kept; others may be on their way to the disk.
        if answer.granted && matches!(call, RaftCall::Vote) {
            self.recall.voted(self.target, ballot.vote);
        }
        Ok(answer.into())
    }
}

/// Takes as many entries as fit one call, at least one if there are any; with the last one's id.
fn part(
    entries: &mut std::iter::Peekable<std::vec::IntoIter<super::types::Entry>>,
) -> Result<(Vec<Blob>, Option<LogId>), CodecError> {
    let mut blobs = Vec::new();
    let mut last = None;
    let mut bytes = 0;
    while let Some(entry) = entries.peek() {
        let blob = encode(entry)?;
        if !blobs.is_empty() && bytes + blob.len() > APPEND_MAX_BYTES {
            break;
        }
        bytes += blob.len();
        last = Some(entry.log_id);
        blobs.push(Blob(blob));
        entries.next();
    }
    Ok((blobs, last))
}

impl RaftNetworkV2<TypeConfig> for Network {
    type SnapshotData = Snapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<TypeConfig>> {
        // openraft gives one heartbeat interval, which a disk under load does not keep. Liveness is the heartbeats'
        // business, so entries may take longer.
        let deadline = match self.append {
            Lane::Heartbeat => option.soft_ttl(),
            Lane::Bulk | Lane::Calls | Lane::Slot => option.soft_ttl().max(APPEND),
        };
        self.append_in_parts(request, deadline).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        self.ballot(RaftCall::Vote, request, &option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        if mutant::is_on(Mutant::PreVoteGrants) {
            return Ok(VoteResponse::new(request.vote, request.last_log_id, true));
        }
        self.ballot(RaftCall::PreVote, request, &option).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<TransferLeaderResponse<TypeConfig>> {
        let transfer = Transfer {
            from: *request.from_leader(),
            to: MemberId(*request.to_node_id()),
            last: request.last_log_id().copied(),
        };
        let answer = self.call(Lane::Heartbeat, RaftCall::Transfer, &transfer, option.soft_ttl()).await?;
        Ok(match answer {
            TransferAnswer::Accepted => Ok(()),
            TransferAnswer::VoteChanged { actual } => {
                Err(TransferLeaderError::VoteChanged { expected: transfer.from, actual })
            }
            TransferAnswer::LogNotFlushed { actual } => {
                Err(TransferLeaderError::LogNotFlushed { expected: transfer.last, actual })
            }
        })
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<TypeConfig>,
        snapshot: SnapshotOf<TypeConfig, Snapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let sender = Sender {
            network: self,
            transfer: self.transfers.fetch_add(1, Ordering::Relaxed),
            vote,
            install: option.soft_ttl(),
        };
        tokio::select! {
            sent = sender.send(snapshot.snapshot) => sent,
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }
}

type Sent<T> = Result<T, StreamingError<TypeConfig>>;

/// One snapshot on its way to one member.
struct Sender<'a> {
    network: &'a Network,
    transfer: u64,
    vote: Vote,
    install: Duration,
}

/// Bytes that a content takes in a chunk besides its sealed bytes, generously.
const CONTENT_OVERHEAD_BYTES: usize = 64;

impl Sender<'_> {
    async fn send(&self, snapshot: Snapshot) -> Sent<SnapshotResponse<TypeConfig>> {
        if let Some(ended) = self.state(&snapshot).await? {
            return Ok(ended);
        }
        let mut sent = 0;
        let mut contents = Vec::new();
        let mut bytes = 0;
        for key in snapshot.checkpoint.state.contents() {
            let envelope = self.content(&snapshot, key)?;
            let more = envelope.sealed.len() + CONTENT_OVERHEAD_BYTES;
            if !contents.is_empty() && bytes + more > SNAPSHOT_CHUNK_MAX_BYTES {
                let part = std::mem::take(&mut contents);
                bytes = 0;
                if let Some(ended) = self.contents(&mut sent, part).await? {
                    return Ok(ended);
                }
            }
            bytes += more;
            contents.push((key, envelope));
        }
        if !contents.is_empty()
            && let Some(ended) = self.contents(&mut sent, contents).await?
        {
            return Ok(ended);
        }
        match self.part(Part::End { contents: sent }, self.install).await? {
            Some(ended) => Ok(ended),
            None => Err(refused("the receiver did not end the snapshot")),
        }
    }

    async fn state(&self, snapshot: &Snapshot) -> Sent<Option<SnapshotResponse<TypeConfig>>> {
        let checkpoint = snapshot.checkpoint.clone();
        let encoded = aside::start(move || encode(&*checkpoint)).await;
        let state = match encoded {
            Ok(Ok(state)) => state,
            Ok(Err(error)) => return Err(StreamingError::Unreachable(Unreachable::new(&error))),
            Err(error) => return Err(StreamingError::Unreachable(Unreachable::new(&error))),
        };
        let total = state.len() as u64;
        let mut offset = 0;
        for bytes in state.chunks(SNAPSHOT_CHUNK_MAX_BYTES) {
            let part = Part::State { total, offset, bytes: Blob(bytes.to_vec()) };
            if let Some(ended) = self.part(part, SNAPSHOT_CHUNK).await? {
                return Ok(Some(ended));
            }
            offset += bytes.len() as u64;
        }
        Ok(None)
    }

    async fn contents(
        &self,
        sent: &mut u64,
        contents: Vec<(ContentKey, Envelope)>,
    ) -> Sent<Option<SnapshotResponse<TypeConfig>>> {
        let offset = *sent;
        *sent += contents.len() as u64;
        self.part(Part::Contents { offset, contents }, SNAPSHOT_CHUNK).await
    }

    /// A member that lost an agreed content must not lead: this stops it, and another one is elected.
    fn content(&self, snapshot: &Snapshot, key: ContentKey) -> Sent<Envelope> {
        let why = match snapshot.content(key) {
            Ok(Some(envelope)) => return Ok(envelope),
            Ok(None) => format!("the content of object {key} is missing in the store"),
            Err(error) => format!("the content of object {key} cannot be read: {error}"),
        };
        Err(StreamingError::StorageError(StorageError::read_snapshot(None, TypeConfig::err_from_string(why))))
    }

    async fn part(&self, part: Part, deadline: Duration) -> Sent<Option<SnapshotResponse<TypeConfig>>> {
        let chunk = Chunk { transfer: self.transfer, vote: self.vote, part };
        match self.network.call(Lane::Bulk, RaftCall::Snapshot, &chunk, deadline).await? {
            ChunkAnswer::Taken => Ok(None),
            ChunkAnswer::Ended(vote) => Ok(Some(SnapshotResponse::new(vote))),
            ChunkAnswer::Refused(why) => Err(refused(&why)),
        }
    }
}

fn refused(why: &str) -> StreamingError<TypeConfig> {
    StreamingError::Unreachable(Unreachable::from_string(why))
}
