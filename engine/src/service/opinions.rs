//! A request that failed here is tried at other members: what stands in the end. Pure.

use crate::wire::{Answer, Failure, Remedy};

/// This member's own failure, until somebody knows better.
pub(super) struct Opinions {
    failure: Failure,
    /// It is the token's, and may be its fault or the request's: nobody overrules it but by an opinion of their own.
    doubtful: bool,
    /// It says why this member serves nobody, which its caller must know.
    stands: bool,
}

impl Opinions {
    /// Begins with a failure here. It `stands` against other members' failures if its caller must know of it.
    pub fn begin(failure: Failure, stands: bool) -> Self {
        Self { doubtful: failure.is_doubtful(), failure, stands }
    }

    /// Takes in what one member made of it; the outcome, if that is the end.
    pub fn hear(&mut self, said: Result<Answer, Failure>) -> Option<Result<Answer, Failure>> {
        match said {
            Err(next) if next.remedy() != Remedy::GiveUp => {
                if !self.doubtful && !self.stands {
                    self.failure = next;
                }
                None
            }
            done => Some(done),
        }
    }

    /// True if another member's success speaks against this member's token.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Nobody knew better.
    pub fn end(self) -> Failure {
        self.failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FailureKind;

    fn failed(kind: FailureKind) -> Failure {
        Failure::new(kind, "it failed")
    }

    /// What is left after another member failed as well.
    fn after(own: FailureKind, stands: bool, other: FailureKind) -> FailureKind {
        let mut opinions = Opinions::begin(failed(own), stands);
        assert!(opinions.hear(Err(failed(other))).is_none(), "it goes on");
        opinions.end().kind
    }

    #[test]
    fn the_last_failure_counts_unless_the_own_one_stands() {
        let doubt = FailureKind::TokenRefused { code: 0x30 };
        assert_eq!(after(FailureKind::NotInSync, false, FailureKind::Busy), FailureKind::Busy);
        assert_eq!(after(FailureKind::NotInSync, true, FailureKind::Busy), FailureKind::NotInSync);
        assert_eq!(after(doubt.clone(), false, FailureKind::Busy), doubt);
    }

    #[test]
    fn an_answer_and_a_refusal_end_it() {
        let mut opinions = Opinions::begin(failed(FailureKind::Standby), true);
        assert!(matches!(opinions.hear(Ok(Answer::Done)), Some(Ok(Answer::Done))));
        let refused = opinions.hear(Err(failed(FailureKind::NotFound)));
        assert!(matches!(refused, Some(Err(Failure { kind: FailureKind::NotFound, .. }))));
    }
}
