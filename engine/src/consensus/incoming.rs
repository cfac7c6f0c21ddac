//! What other members ask of this one for Raft.

use super::ConsensusError;
use super::keeper::{Keeper, blocking};
use super::machine::{Machine, Snapshot};
use super::message::{
    Append, AppendAnswer, Ballot, BallotAnswer, Chunk, ChunkAnswer, Part, Transfer, TransferAnswer, decode,
    encode,
};
use super::recall::Recall;
use super::store::Checkpoint;
use super::types::{TypeConfig, Vote};
use crate::codec;
use crate::domain::{ContentKey, Envelope, MemberId};
use crate::limits::{ENVELOPE_MAX_BYTES, SNAPSHOT_IDLE, SNAPSHOT_STATE_MAX_BYTES};
use crate::wire::RaftCall;
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::{AppendEntriesRequest, TransferLeaderError, TransferLeaderRequest};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use tokio::time::Instant;

type MyRaft = Raft<TypeConfig, Machine>;

/// Takes calls. One snapshot at a time is received; a newer one replaces it.
pub(super) struct Incoming {
    raft: MyRaft,
    keeper: Arc<Keeper>,
    recall: Arc<Recall>,
    receiving: Arc<tokio::sync::Mutex<Option<Receiving>>>,
    heard: Mutex<Option<(MemberId, Instant)>>,
}

/// A snapshot that has not come whole yet.
struct Receiving {
    from: MemberId,
    transfer: u64,
    total: usize,
    state: Vec<u8>,
    checkpoint: Option<Arc<Checkpoint>>,
    contents: u64,
    touched: Instant,
}

fn bad(from: MemberId, why: impl ToString) -> ConsensusError {
    ConsensusError::BadMessage { from, why: why.to_string() }
}

fn speaks_for(from: MemberId, vote: &Vote) -> Result<(), ConsensusError> {
    let speaker = MemberId(vote.leader_id.voted_for);
    if speaker == from { Ok(()) } else { Err(bad(from, format!("it speaks for {speaker}"))) }
}

fn stopped(error: impl ToString) -> ConsensusError {
    ConsensusError::Stopped(error.to_string())
}

impl Incoming {
    pub(super) fn new(raft: MyRaft, keeper: Arc<Keeper>, recall: Arc<Recall>) -> Self {
        Self { raft, keeper, recall, receiving: Arc::default(), heard: Mutex::new(None) }
    }

    /// When the leader was last heard, and who it was.
    pub(super) fn heard(&self) -> Option<(MemberId, Instant)> {
        *self.heard.lock()
    }

    pub(super) async fn handle(
        &self,
        from: MemberId,
        call: RaftCall,
        body: &[u8],
    ) -> Result<Vec<u8>, ConsensusError> {
        if self.recall.is_returned(from) {
            return Err(ConsensusError::Returned(from));
        }
        let answer = match call {
            RaftCall::Append => encode(&self.append(from, body).await?),
            RaftCall::Vote | RaftCall::PreVote => encode(&self.ballot(from, call, body).await?),
            RaftCall::Transfer => encode(&self.transfer(from, body).await?),
            RaftCall::Snapshot => encode(&self.chunk(from, body).await?),
        };
        Ok(answer?)
    }

    async fn append(&self, from: MemberId, body: &[u8]) -> Result<AppendAnswer, ConsensusError> {
        let append: Append = decode(body).map_err(|e| bad(from, e))?;
        speaks_for(from, &append.vote)?;
        let entries = append.decode_entries().map_err(|e| bad(from, e))?;
        let request = AppendEntriesRequest {
            vote: append.vote,
            prev_log_id: append.previous,
            entries,
            leader_commit: append.committed,
        };
        let answer = AppendAnswer::from(self.raft.append_entries(request).await.map_err(stopped)?);
        if !matches!(answer, AppendAnswer::HigherVote(_)) {
            *self.heard.lock() = Some((from, Instant::now()));
        }
        Ok(answer)
    }

    async fn ballot(
        &self,
        from: MemberId,
        call: RaftCall,
        body: &[u8],
    ) -> Result<BallotAnswer, ConsensusError> {
        let ballot: Ballot = decode(body).map_err(|e| bad(from, e))?;
        speaks_for(from, &ballot.vote)?;
        // A pre-vote says nothing for good, and may be old.
        let sure = call == RaftCall::Vote;
        if sure && !self.recall.may_end_at(from, self.recall.owed_at_ballot(from, &ballot.vote), ballot.last)
        {
            return Err(ConsensusError::Returned(from));
        }
        let answer = match call {
            RaftCall::PreVote => self.raft.pre_vote(ballot.into()).await,
            _ => self.raft.vote(ballot.into()).await,
        };
        Ok(answer.map_err(stopped)?.into())
    }

    async fn transfer(&self, from: MemberId, body: &[u8]) -> Result<TransferAnswer, ConsensusError> {
        let transfer: Transfer = decode(body).map_err(|e| bad(from, e))?;
        speaks_for(from, &transfer.from)?;
        let request = TransferLeaderRequest::new(transfer.from, transfer.to.0, transfer.last);
        let answer = self.raft.handle_transfer_leader(request).await.map_err(stopped)?;
        Ok(match answer {
            Ok(()) => TransferAnswer::Accepted,
            Err(TransferLeaderError::VoteChanged { actual, .. }) => TransferAnswer::VoteChanged { actual },
            Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
                TransferAnswer::LogNotFlushed { actual }
            }
        })
    }

    async fn chunk(&self, from: MemberId, body: &[u8]) -> Result<ChunkAnswer, ConsensusError> {
        let chunk: Chunk = decode(body).map_err(|e| bad(from, e))?;
        speaks_for(from, &chunk.vote)?;
        let mine = self.raft.metrics().borrow_watched().vote;
        if mine > chunk.vote {
            return Ok(ChunkAnswer::Ended(mine));
        }
        let mut slot = self.receiving.lock().await;
        if let Part::State { total, offset: 0, .. } = &chunk.part {
            let total = usize::try_from(*total).unwrap_or(usize::MAX);
            if total > SNAPSHOT_STATE_MAX_BYTES {
                return Ok(ChunkAnswer::Refused(format!("a state of {total} bytes is over the limit")));
            }
            *slot = Some(Receiving::new(from, chunk.transfer, total));
            self.expire_when_idle();
        }
        let Some(receiving) = slot.as_mut().filter(|r| r.from == from && r.transfer == chunk.transfer) else {
            return Ok(ChunkAnswer::Refused("another snapshot has begun since".into()));
        };
        receiving.touched = Instant::now();
        let taken = match chunk.part {
            Part::State { offset, bytes, .. } => receiving.take_state(offset, bytes.0, &self.keeper).await,
            Part::Contents { offset, contents } => {
                receiving.take_contents(offset, contents, &self.keeper).await
            }
            Part::End { contents } => match receiving.whole(contents) {
                Ok(checkpoint) => {
                    // openraft installs it in its own time; the next transfer need not wait for the slot.
                    *slot = None;
                    drop(slot);
                    return self.install(from, chunk.vote, checkpoint).await;
                }
                Err(refusal) => Err(refusal),
            },
        };
        match taken {
            Ok(()) => Ok(ChunkAnswer::Taken),
            Err(Refusal::Sender(why)) => {
                *slot = None;
                Ok(ChunkAnswer::Refused(why))
            }
            Err(Refusal::Disk(error)) => {
                *slot = None;
                Err(error.into())
            }
        }
    }

    async fn install(
        &self,
        from: MemberId,
        vote: Vote,
        checkpoint: Arc<Checkpoint>,
    ) -> Result<ChunkAnswer, ConsensusError> {
        // openraft ends the process's part in the group on a snapshot from the future; a message must not do that.
        if checkpoint.last.is_some_and(|last| last.leader_id.term > vote.leader_id.term) {
            return Err(bad(from, "its snapshot is of a later term than itself"));
        }
        let snapshot = Snapshot::new(checkpoint, self.keeper.clone()).described();
        let response = self.raft.install_full_snapshot(vote, snapshot).await.map_err(stopped)?;
        Ok(ChunkAnswer::Ended(response.vote))
    }

    /// Frees what a sender left behind.
    fn expire_when_idle(&self) {
        let slot = Arc::downgrade(&self.receiving);
        tokio::spawn(async move {
            let mut wake = Instant::now() + SNAPSHOT_IDLE;
            loop {
                tokio::time::sleep_until(wake).await;
                let Some(slot) = slot.upgrade() else { return };
                let mut slot = slot.lock().await;
                match &*slot {
                    Some(receiving) if receiving.touched.elapsed() < SNAPSHOT_IDLE => {
                        wake = receiving.touched + SNAPSHOT_IDLE;
                    }
                    _ => {
                        *slot = None;
                        return;
                    }
                }
            }
        });
    }
}

/// Why a chunk is not taken.
enum Refusal {
    /// It does not fit: the sender begins again.
    Sender(String),
    /// It cannot be kept.
    Disk(io::Error),
}

fn misfit(why: impl Into<String>) -> Refusal {
    Refusal::Sender(why.into())
}

impl Receiving {
    fn new(from: MemberId, transfer: u64, total: usize) -> Self {
        Self {
            from,
            transfer,
            total,
            state: Vec::new(),
            checkpoint: None,
            contents: 0,
            touched: Instant::now(),
        }
    }

    async fn take_state(&mut self, offset: u64, bytes: Vec<u8>, keeper: &Keeper) -> Result<(), Refusal> {
        if self.checkpoint.is_some() || offset != self.state.len() as u64 {
            return Err(misfit(format!("state at {offset} where {} belongs", self.state.len())));
        }
        if bytes.len() > self.total - self.state.len() {
            return Err(misfit("more state than announced"));
        }
        self.state.extend(bytes);
        if self.state.len() < self.total {
            return Ok(());
        }
        let state = std::mem::take(&mut self.state);
        let decode =
            move || codec::decode::<Checkpoint>(&state, SNAPSHOT_STATE_MAX_BYTES).map_err(io::Error::other);
        let checkpoint =
            blocking(decode).await.map_err(|e| misfit(format!("the state cannot be read: {e}")))?;
        let checkpoint = Arc::new(checkpoint);
        // Before the first content comes, so that none of them is collected.
        keeper.use_snapshot(&checkpoint);
        self.checkpoint = Some(checkpoint);
        Ok(())
    }

    async fn take_contents(
        &mut self,
        offset: u64,
        contents: Vec<(ContentKey, Envelope)>,
        keeper: &Keeper,
    ) -> Result<(), Refusal> {
        let Some(checkpoint) = &self.checkpoint else { return Err(misfit("contents before the state")) };
        if offset != self.contents {
            return Err(misfit(format!("content {offset} where {} belongs", self.contents)));
        }
        for (key, envelope) in &contents {
            if !checkpoint.state.names_content(*key) {
                return Err(misfit(format!("the state does not name the content of object {key}")));
            }
            if envelope.sealed.len() > ENVELOPE_MAX_BYTES {
                return Err(misfit(format!("the content of object {key} is over the limit")));
            }
        }
        self.contents += contents.len() as u64;
        keeper.put(contents).await.map_err(Refusal::Disk)?;
        Ok(())
    }

    fn whole(&mut self, contents: u64) -> Result<Arc<Checkpoint>, Refusal> {
        let Some(checkpoint) = self.checkpoint.clone() else { return Err(misfit("an end before the state")) };
        let named = checkpoint.state.contents().count() as u64;
        if contents != self.contents || named != contents {
            return Err(misfit(format!("{named} contents are named and {} came", self.contents)));
        }
        Ok(checkpoint)
    }
}
