//! Asks a member, and asks again with the same request id as a failure's remedy says, until the deadline.

use crate::exit::{Exit, Problem};
use aws_lc_rs::rand;
use futures::future::BoxFuture;
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{ClientId, LogIndex, RequestId};
use keyraft_engine::wire::{Answer, ClientRequest, Failure, GroupStatus, Remedy};
use std::time::Duration;

/// Somebody who answers: a member behind its socket.
pub trait Ask: Send + Sync {
    /// One attempt. A connection that is lost is made anew by the next attempt.
    fn ask(&self, request: ClientRequest, limit: Duration) -> BoxFuture<'_, Result<Answer, Failure>>;
}

/// The first pause between two attempts; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Repeats what `make` makes until it is answered, may not be repeated, or `limit` has passed.
pub async fn repeat(
    ask: &dyn Ask,
    limit: Duration,
    make: impl Fn() -> ClientRequest,
) -> Result<Answer, Failure> {
    let clock = Clock;
    let end = clock.now() + limit;
    let mut pause = PAUSE_MIN;
    loop {
        let left = end.saturating_duration_since(clock.now());
        let failure = match ask.ask(make(), left).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        // A member carries requests to others itself, so another member means the same one a little later.
        let again = matches!(failure.remedy(), Remedy::TryAgain | Remedy::TryAnotherMember);
        if !again || clock.now() + pause >= end {
            return Err(failure);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// One run of a client program: its identity and its numbering.
pub struct Caller<'a> {
    ask: &'a dyn Ask,
    limit: Duration,
    client: ClientId,
    sequence: u64,
}

impl<'a> Caller<'a> {
    /// Makes contact: the group's status gives the client its birth.
    pub async fn begin(ask: &'a dyn Ask, limit: Duration) -> Result<Self, Problem> {
        let status = status(ask, limit).await?;
        Self::born(ask, limit, status.applied)
    }

    /// A client whose birth is known.
    pub fn born(ask: &'a dyn Ask, limit: Duration, born: LogIndex) -> Result<Self, Problem> {
        let mut nonce = [0; 8];
        rand::fill(&mut nonce)
            .map_err(|_| Problem::new(Exit::Unexpected, "the machine gives no random bytes", "try again"))?;
        let client = ClientId { born, nonce: u64::from_be_bytes(nonce) };
        Ok(Self { ask, limit, client, sequence: 0 })
    }

    /// A number that no other client has.
    pub fn nonce(&self) -> u64 {
        self.client.nonce
    }

    /// Asks for one change: `make` gets the request id and the watermark. However often it is repeated, it
    /// happens once.
    pub async fn change(
        &mut self,
        make: impl Fn(RequestId, u64) -> ClientRequest,
    ) -> Result<Answer, Failure> {
        self.sequence += 1;
        let request = RequestId { client: self.client, sequence: self.sequence };
        let watermark = self.sequence;
        repeat(self.ask, self.limit, || make(request, watermark)).await
    }

    /// Asks for what changes no object.
    pub async fn read(&self, make: impl Fn() -> ClientRequest) -> Result<Answer, Failure> {
        repeat(self.ask, self.limit, make).await
    }
}

/// The group as the member sees it.
pub async fn status(ask: &dyn Ask, limit: Duration) -> Result<GroupStatus, Problem> {
    match repeat(ask, limit, || ClientRequest::Status).await? {
        Answer::Status(status) => Ok(*status),
        other => Err(unexpected(&other)),
    }
}

/// An answer that does not fit its question.
pub fn unexpected(answer: &Answer) -> Problem {
    let kind = match answer {
        Answer::Done => "done",
        Answer::Status(_) => "a status",
        Answer::Created(_) => "a creation",
        Answer::Objects { .. } => "objects",
        Answer::Used { .. } => "a use",
        Answer::Coverage { .. } => "coverage",
        Answer::Invitation(_) => "an invitation",
        Answer::Findings(_) => "findings",
        Answer::Slot(_) => "slot",
        Answer::Certified { .. } => "a certificate",
        Answer::Clients(_) => "clients",
        Answer::Synchronized { .. } => "a comparison",
        Answer::Pulses(_) => "pulses",
        Answer::Operations { .. } => "operations",
        Answer::ComparedAndSet(_) => "a compare-and-set",
    };
    let message = format!("the member answered with {kind}, which was not asked");
    Problem::new(Exit::Unexpected, message, "use the keyraft version that the member runs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::ObjectId;
    use keyraft_engine::wire::{Deletion, FailureKind};
    use parking_lot::Mutex;

    /// Fails so many times with a kind, then answers; notes the request ids.
    struct Scripted {
        failures: Mutex<Vec<FailureKind>>,
        seen: Mutex<Vec<RequestId>>,
    }

    impl Ask for Scripted {
        fn ask(&self, request: ClientRequest, _: Duration) -> BoxFuture<'_, Result<Answer, Failure>> {
            if let ClientRequest::Delete(deletion) = &request {
                self.seen.lock().push(deletion.request);
            }
            let next = self.failures.lock().pop();
            Box::pin(async move { next.map_or(Ok(Answer::Done), |kind| Err(Failure::new(kind, "no"))) })
        }
    }

    fn scripted(failures: &[FailureKind]) -> Scripted {
        Scripted { failures: Mutex::new(failures.to_vec()), seen: Mutex::default() }
    }

    async fn delete(ask: &Scripted, limit: Duration) -> Result<Answer, Failure> {
        let mut caller = Caller::born(ask, limit, LogIndex(5)).expect("has random bytes");
        let answer = caller
            .change(|request, watermark| {
                ClientRequest::Delete(Deletion { request, watermark, objects: vec![ObjectId(1)] })
            })
            .await?;
        caller
            .change(|request, watermark| {
                ClientRequest::Delete(Deletion { request, watermark, objects: vec![ObjectId(2)] })
            })
            .await?;
        Ok(answer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_repeated_under_its_id() {
        let ask = scripted(&[FailureKind::NoQuorum, FailureKind::Deadline, FailureKind::TokenFailed]);
        assert!(delete(&ask, Duration::from_secs(5)).await.is_ok());
        let seen = ask.seen.lock();
        let sequences: Vec<u64> = seen.iter().map(|id| id.sequence).collect();
        assert_eq!(sequences, [1, 1, 1, 1, 2]);
        assert!(seen.iter().all(|id| id.client == seen[0].client && id.client.born == LogIndex(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_would_fail_again_is_not_repeated() {
        let ask = scripted(&[FailureKind::Refused]);
        let failure = delete(&ask, Duration::from_secs(5)).await.expect_err("is refused");
        assert_eq!(failure.kind, FailureKind::Refused);
        assert_eq!(ask.seen.lock().len(), 1);
    }

    #[tokio::test]
    async fn the_deadline_ends_it() {
        let ask = scripted(&vec![FailureKind::NoQuorum; 10_000]);
        let failure = delete(&ask, Duration::from_millis(100)).await.expect_err("gives up");
        assert_eq!(failure.kind, FailureKind::NoQuorum);
        assert!(ask.seen.lock().len() < 10);
    }
}
