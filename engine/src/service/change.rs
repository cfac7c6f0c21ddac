//! What all changes share: waiting until the group has settled a request, and deleting.

use super::{Core, consensus_failure, pause};
use crate::domain::RequestId;
use crate::limits;
use crate::mutant::{self, Mutant};
use crate::state::{Command, Outcome, Rejection, RequestContext, RequestState};
use crate::wire::{Answer, Deletion, Failure, FailureKind};

impl Core {
    /// Waits until a request is neither creating nor removing.
    pub(super) async fn wait_settled(
        &self,
        id: RequestId,
        mut state: RequestState,
    ) -> Result<RequestState, Failure> {
        self.nudge.notify_one();
        if let RequestState::Creating(ids) = &state
            && mutant::is_on(Mutant::AnswerBeforeSettle)
        {
            return Ok(RequestState::Created(ids.clone()));
        }
        let mut applied = self.agreed.applied();
        let waited = tokio::time::timeout(limits::OVERALL, async {
            while matches!(state, RequestState::Creating(_) | RequestState::Removing(_)) {
                // Marked before the look: what is applied after it wakes this again.
                applied.borrow_and_update();
                if let Some(now) = self.agreed.read(|s| s.request(id)) {
                    state = now;
                }
                let open = matches!(state, RequestState::Creating(_) | RequestState::Removing(_));
                if open && applied.changed().await.is_err() {
                    break;
                }
            }
            state
        });
        waited.await.map_err(|_| {
            let text = "the members did not settle the change in time; it may still happen: repeat it";
            Failure::new(FailureKind::Deadline, text)
        })
    }

    /// Where a repeated request stands; a refusal if its id was used for something else.
    pub(super) fn repeated(&self, request: &RequestContext) -> Result<Option<RequestState>, Failure> {
        self.agreed.read(|s| s.repeated(request)).map_err(|rejection| rejection_failure(&rejection))
    }

    /// Deletes objects. Runs at the primary.
    pub(super) async fn delete(&self, deletion: Deletion) -> Result<Answer, Failure> {
        if deletion.objects.is_empty() || deletion.objects.len() > limits::OBJECTS_PER_REQUEST_MAX {
            let text = format!("a deletion names 1 to {} objects", limits::OBJECTS_PER_REQUEST_MAX);
            return Err(Failure::new(FailureKind::BadRequest, text));
        }
        let request = self.context(deletion.request, deletion.watermark, &deletion.objects)?;
        let remove = Command::Remove { request, objects: deletion.objects };
        pause::point("delete.checked").await;
        let state = match self.repeated(&request)? {
            Some(state) => state,
            None => match self.consensus.propose(remove).await.map_err(|e| consensus_failure(&e))?.1 {
                Outcome::Request(state) => state,
                Outcome::Rejected(rejection) => return Err(rejection_failure(&rejection)),
                other => return Err(unexpected(&other)),
            },
        };
        pause::point("delete.removed").await;
        let state = self.wait_settled(request.id, state).await?;
        pause::point("delete.settled").await;
        match state {
            RequestState::Removed(_) => Ok(Answer::Done),
            RequestState::Rejected(rejection) => Err(rejection_failure(&rejection)),
            _ => Err(Failure::new(FailureKind::Expired, "the request id was used for a creation")),
        }
    }

    /// Proposes a command whose outcome is only yes or no.
    pub(super) async fn settle_simple(&self, command: Command) -> Result<Answer, Failure> {
        match self.consensus.propose(command).await.map_err(|e| consensus_failure(&e))?.1 {
            Outcome::Applied => Ok(Answer::Done),
            Outcome::Rejected(rejection) => Err(rejection_failure(&rejection)),
            other => Err(unexpected(&other)),
        }
    }
}

/// CKR_
const PIN_LOCKED: u64 = 0xA4;
/// CKR_
const USER_PIN_NOT_INITIALIZED: u64 = 0x102;

/// A rejection as callers see it.
pub(super) fn rejection_failure(rejection: &Rejection) -> Failure {
    let kind = match rejection {
        Rejection::NoSuchObject(_) | Rejection::NoSuchMember(_) | Rejection::NoSuchClient(_) => {
            FailureKind::NotFound
        }
        Rejection::Expired | Rejection::ParametersDiffer => FailureKind::Expired,
        Rejection::TooManyRequests | Rejection::PinChanged(_) => FailureKind::Busy,
        Rejection::PinLocked => FailureKind::TokenRefused { code: PIN_LOCKED },
        Rejection::PinNotSet(_) => FailureKind::TokenRefused { code: USER_PIN_NOT_INITIALIZED },
        _ => FailureKind::Refused,
    };
    Failure::new(kind, rejection)
}

/// An outcome that this command cannot have.
pub(super) fn unexpected(outcome: &Outcome) -> Failure {
    Failure::new(FailureKind::Internal, format!("the log answered {outcome:?} to another command"))
}
