//! What a member's refusal says about it, and what becomes of the call.

use super::Outcome;
use crate::wire::{Failure, FailureKind, Remedy};

/// What becomes of a call that a member refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// The refusal is the answer: every member would give it.
    End,
    /// Another member is asked, at no cost.
    Another,
    /// Another member is asked, if the budget for second attempts allows: this one has worked on it.
    Second,
}

/// What a refusal says about the member that gave it, and what becomes of the call.
pub fn refused(failure: &Failure) -> (Outcome, Onward) {
    if failure.kind == FailureKind::Forbidden {
        // It does not let this application in. Another member may have heard of a change before it, and its quick
        // refusals are no answers that recommend it.
        return (Outcome::NotServing, Onward::Another);
    }
    let outcome = match failure.kind {
        FailureKind::Internal | FailureKind::Busy => Outcome::Failed,
        // That is the primary's doing.
        FailureKind::NotPrimary { .. } => Outcome::Answered,
        _ if failure.remedy() == Remedy::TryAnotherMember => Outcome::NotServing,
        _ => Outcome::Answered,
    };
    let onward = match failure.remedy() {
        Remedy::GiveUp => Onward::End,
        // It has worked on it, and so would the next one.
        Remedy::TryAnotherMember
            if matches!(failure.kind, FailureKind::TokenFailed | FailureKind::Internal) =>
        {
            Onward::Second
        }
        Remedy::TryAnotherMember => Onward::Another,
        Remedy::TryAgain => Onward::Second,
    };
    (outcome, onward)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_a_failure() {
        let of = |kind| refused(&Failure::new(kind, "why"));
        assert_eq!(of(FailureKind::BadRequest), (Outcome::Answered, Onward::End));
        assert_eq!(of(FailureKind::Forbidden), (Outcome::NotServing, Onward::Another));
        assert_eq!(of(FailureKind::TokenFailed), (Outcome::NotServing, Onward::Second));
        assert_eq!(of(FailureKind::Internal).0, Outcome::Failed);
        assert_eq!(of(FailureKind::Busy).0, Outcome::Failed);
        assert_eq!(of(FailureKind::NotPrimary { primary: None }).0, Outcome::Answered);
    }
}
