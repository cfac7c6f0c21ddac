//! Why a request failed, and what may be done about it. Failover reads the remedy and nothing else.

use crate::domain::MemberId;
use serde::{Deserialize, Serialize};
use std::fmt;

// PKCS#11 v3.1, 5.1
const CKR_GENERAL_ERROR: u64 = 0x05;
const CKR_FUNCTION_FAILED: u64 = 0x06;
const CKR_ARGUMENTS_BAD: u64 = 0x07;
const CKR_DEVICE_ERROR: u64 = 0x30;
const CKR_DEVICE_MEMORY: u64 = 0x31;
const CKR_KEY_HANDLE_INVALID: u64 = 0x60;
const CKR_OBJECT_HANDLE_INVALID: u64 = 0x82;
const CKR_UNWRAPPING_KEY_HANDLE_INVALID: u64 = 0xF0;
const CKR_WRAPPING_KEY_HANDLE_INVALID: u64 = 0x113;
const CKR_FUNCTION_REJECTED: u64 = 0x200;

/// True for the numbers that vendors return for a bad cryptogram and for a broken device alike.
pub fn is_doubtful(code: u64) -> bool {
    matches!(code, CKR_GENERAL_ERROR | CKR_FUNCTION_FAILED | CKR_DEVICE_ERROR | CKR_DEVICE_MEMORY)
}

/// What a caller may do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// It would fail again, anywhere.
    GiveUp,
    /// The same request, with the same request id, after a pause.
    TryAgain,
    /// The same request at another member.
    TryAnotherMember,
}

/// The kinds of failure. Order is the wire format: add at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The request is malformed or over a limit.
    BadRequest,
    /// The caller may not ask this.
    Forbidden,
    /// Nothing bears this name. Answered only behind a read barrier.
    NotFound,
    /// The group or a member's token refuses it; nothing is left behind.
    Refused,
    /// The token says no to this use (wrong mechanism, bad signature length, data out of range).
    TokenRefused {
        /// CKR_ number.
        code: u64,
    },
    /// The request id is too old or was used otherwise.
    Expired,
    /// This member is not the primary.
    NotPrimary {
        /// The primary, if known.
        primary: Option<MemberId>,
    },
    /// No quorum answers: changes must wait.
    NoQuorum,
    /// The deadline passed; a change may still happen: repeat it under its request id.
    Deadline,
    /// This member's token is failed or not ready.
    TokenFailed,
    /// This member is not in sync.
    NotInSync,
    /// A queue is full.
    Busy,
    /// The member is stopping.
    Stopping,
    /// A fault of ours; the member's log says more.
    Internal,
    /// This member is a standby, and active ones serve.
    Standby,
}

/// What an attempt without an answer leaves undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// Nothing that a later refusal could contradict: it changes nothing that others see.
    Nothing,
    /// Whether something is made or set.
    Making,
    /// Whether an object is changed or destroyed. Whoever repeats that under its request is told what came of it, so that
    /// the object's absence stands.
    Changing,
}

/// A failure as it travels. The message says what, why and what to do; never a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// For people.
    pub message: String,
}

impl Failure {
    /// A failure of a kind, with its message.
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// A failure with the CKR_ number that applications shall see.
    pub fn pkcs11(code: u64, message: impl fmt::Display) -> Self {
        Self::new(FailureKind::TokenRefused { code }, message)
    }

    /// True if the token's number says nothing of whose fault it is ([`is_doubtful`]). Another member's token gives a
    /// second opinion.
    pub fn is_doubtful(&self) -> bool {
        matches!(self.kind, FailureKind::TokenRefused { code } if is_doubtful(code))
    }

    /// True if it says that an object does not exist.
    pub fn tells_absence(&self) -> bool {
        matches!(
            self.ckr(),
            CKR_KEY_HANDLE_INVALID
                | CKR_OBJECT_HANDLE_INVALID
                | CKR_UNWRAPPING_KEY_HANDLE_INVALID
                | CKR_WRAPPING_KEY_HANDLE_INVALID
        )
    }

    /// What is known of a request whose earlier attempt got no answer, if this is said of a later one. The earlier one may
    /// yet be carried out.
    #[must_use]
    pub fn after_a_loss(self, of: Undecided) -> Self {
        let stands = match of {
            Undecided::Nothing => true,
            Undecided::Changing if self.tells_absence() => true,
            // Every attempt fails like this.
            Undecided::Making | Undecided::Changing => {
                matches!(self.kind, FailureKind::BadRequest | FailureKind::Deadline)
            }
        };
        if stands {
            return self;
        }
        let text =
            format!("an earlier attempt got no answer and may yet be carried out; the last one: {self}");
        Self::new(FailureKind::Deadline, text)
    }

    /// The CKR_ number that an application sees.
    pub fn ckr(&self) -> u64 {
        match &self.kind {
            FailureKind::TokenRefused { code } => *code,
            FailureKind::NotFound => CKR_OBJECT_HANDLE_INVALID,
            FailureKind::BadRequest => CKR_ARGUMENTS_BAD,
            FailureKind::Forbidden | FailureKind::Refused => CKR_FUNCTION_REJECTED,
            FailureKind::Expired => CKR_FUNCTION_FAILED,
            FailureKind::NotPrimary { .. }
            | FailureKind::NoQuorum
            | FailureKind::Deadline
            | FailureKind::TokenFailed
            | FailureKind::NotInSync
            | FailureKind::Busy
            | FailureKind::Stopping
            | FailureKind::Standby => CKR_DEVICE_ERROR,
            FailureKind::Internal => CKR_GENERAL_ERROR,
        }
    }

    /// What the caller may do. Adding a kind forces this choice.
    pub fn remedy(&self) -> Remedy {
        match self.kind {
            FailureKind::BadRequest
            | FailureKind::Forbidden
            | FailureKind::NotFound
            | FailureKind::Refused
            | FailureKind::TokenRefused { .. }
            | FailureKind::Expired => Remedy::GiveUp,
            FailureKind::NoQuorum | FailureKind::Deadline | FailureKind::Busy => Remedy::TryAgain,
            FailureKind::NotPrimary { .. }
            | FailureKind::TokenFailed
            | FailureKind::NotInSync
            | FailureKind::Stopping
            | FailureKind::Internal
            | FailureKind::Standby => Remedy::TryAnotherMember,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_a_repeat_says_nothing_of_the_first_attempt() {
        let after = |of, kind| Failure::new(kind, "why").after_a_loss(of);
        let doubted = [
            FailureKind::Refused,
            FailureKind::Forbidden,
            FailureKind::TokenRefused { code: 6 },
            FailureKind::Expired,
        ];
        for (of, kind) in [Undecided::Making, Undecided::Changing]
            .into_iter()
            .flat_map(|of| doubted.clone().map(|kind| (of, kind)))
            .chain([(Undecided::Making, FailureKind::NotFound)])
        {
            let doubted = after(of, kind);
            assert_eq!((&doubted.kind, doubted.remedy()), (&FailureKind::Deadline, Remedy::TryAgain));
            assert!(doubted.message.ends_with("the last one: why"), "{doubted}");
        }
        let absent = FailureKind::TokenRefused { code: CKR_KEY_HANDLE_INVALID };
        for kind in [FailureKind::BadRequest, FailureKind::NotFound, absent] {
            assert_eq!(after(Undecided::Changing, kind.clone()), Failure::new(kind, "why"));
        }
        let wrong_pin = FailureKind::TokenRefused { code: 0xA0 };
        assert_eq!(after(Undecided::Nothing, wrong_pin.clone()), Failure::new(wrong_pin, "why"));
    }
}
