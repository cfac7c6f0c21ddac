//! Exit codes, in one table, and the error that every command ends with: what, why, and what to do.

use keyraft_engine::wire::{Failure, FailureKind};
use std::fmt;

macro_rules! exits {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $meaning:literal;)*) => {
        /// How a command ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Exit { $($(#[$doc])* $name,)* }

        impl Exit {
            /// Every exit, in the order of its code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The number that the process ends with.
            pub fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* }
            }

            /// For people.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

exits! {
    /// Done.
    Done = 0, "done";
    /// A fault of keyraft's or of the machine's.
    Unexpected = 1, "unexpected: a fault of keyraft or of the machine";
    /// The command line is wrong.
    Usage = 2, "usage: the command line or its input is wrong";
    /// The configuration is wrong.
    Config = 3, "configuration: the file, a key in it, or a secret it names is wrong";
    /// The group, a token or the data folder refuses.
    Refused = 4, "refused by the group, by a token or by the data folder; nothing is left behind";
    /// Nothing bears that name.
    NotFound = 5, "not found";
    /// No quorum, or too busy.
    TryAgain = 6, "no quorum, or too busy: try again";
    /// No member answers.
    Unreachable = 7, "no member answers";
    /// A token is failed or missing.
    Token = 8, "a token is failed, missing or not ready";
    /// `check` found something, or a demo's check failed.
    CheckFailed = 9, "a check found something wrong";
    /// The signature is not good.
    BadSignature = 10, "the signature is not good";
    /// The member's process wants to be started again.
    Again = 75, "a member's token library hangs: its process is started again by its parent";
    /// Ended by a signal.
    Interrupted = 130, "interrupted";
}

impl Exit {
    /// The table as `--help` shows it.
    pub fn table() -> String {
        let rows: Vec<String> =
            Self::ALL.iter().map(|exit| format!("  {:>3}  {}", exit.code(), exit.meaning())).collect();
        format!("Exit codes:\n{}", rows.join("\n"))
    }
}

/// Why a command failed. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// How the process ends.
    pub exit: Exit,
    /// What went wrong, and why.
    pub what: String,
    /// What to do about it; empty if `what` says it.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\n  help: {}", self.remedy) }
    }
}

impl Problem {
    /// A problem with its remedy.
    pub fn new(exit: Exit, what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self { exit, what: what.to_string(), remedy: remedy.to_string() }
    }

    /// A wrong command line or input.
    pub fn usage(what: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, what, remedy)
    }

    /// A file or a system call that failed.
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(Exit::Unexpected, format!("{doing}: {error}"), "")
    }

    /// The problem as JSON, for `--json`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({"error": {
            "code": self.exit.code(),
            "meaning": self.exit.meaning(),
            "message": self.what,
            "help": self.remedy,
        }})
    }
}

const CKR_ARGUMENTS_BAD: u64 = 0x07;
const CKR_SIGNATURE_INVALID: u64 = 0xC0;
const CKR_SIGNATURE_LEN_RANGE: u64 = 0xC1;

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let (exit, remedy) = match failure.kind {
            FailureKind::BadRequest => (Exit::Usage, ""),
            FailureKind::Forbidden => (Exit::Refused, "ask as the user that the member runs as, or as root"),
            FailureKind::NotFound => (Exit::NotFound, "see what there is with 'keyraft key list'"),
            FailureKind::Refused => (Exit::Refused, ""),
            FailureKind::TokenRefused { code: CKR_SIGNATURE_INVALID | CKR_SIGNATURE_LEN_RANGE } => {
                (Exit::BadSignature, "")
            }
            FailureKind::TokenRefused { code: CKR_ARGUMENTS_BAD } => (Exit::Usage, ""),
            FailureKind::TokenRefused { .. } => (
                Exit::Refused,
                "see that key, mechanism and data fit together: 'keyraft key show' names the kind of key",
            ),
            FailureKind::Expired => {
                (Exit::Refused, "look for the key with 'keyraft key list' before you ask again")
            }
            FailureKind::NotPrimary { .. } | FailureKind::NoQuorum => {
                (Exit::TryAgain, "changes need a majority of the voters: see 'keyraft status'")
            }
            FailureKind::Deadline => (
                Exit::TryAgain,
                "a change may still happen: look with 'keyraft key list' before you ask again, or raise --deadline",
            ),
            FailureKind::TokenFailed => (Exit::Token, "see 'keyraft check', then 'keyraft recover'"),
            FailureKind::NotInSync => (Exit::TryAgain, "the member is catching up: see 'keyraft coverage'"),
            FailureKind::Busy => (Exit::TryAgain, "ask again in a moment"),
            FailureKind::Stopping => (Exit::Unreachable, "ask another member, or start this one again"),
            FailureKind::Standby => {
                (Exit::TryAgain, "ask an active member, or make this one active: 'keyraft member activate'")
            }
            FailureKind::Internal => (Exit::Unexpected, "the member's log says more"),
        };
        // Many messages say already what to do; saying it twice, differently, would only confuse.
        let remedy = if failure.message.contains("'keyraft ") { "" } else { remedy };
        Self::new(exit, failure.message, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_as_documented() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|e| e.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 75, 130]);
        for exit in Exit::ALL {
            assert!(Exit::table().contains(exit.meaning()), "{exit:?}");
        }
    }

    #[test]
    fn failures_keep_their_message_and_get_a_code() {
        let cases = [
            (FailureKind::BadRequest, Exit::Usage),
            (FailureKind::NotFound, Exit::NotFound),
            (FailureKind::Refused, Exit::Refused),
            (FailureKind::TokenRefused { code: 0x70 }, Exit::Refused),
            (FailureKind::TokenRefused { code: 0xC0 }, Exit::BadSignature),
            (FailureKind::TokenRefused { code: 0x07 }, Exit::Usage),
            (FailureKind::NoQuorum, Exit::TryAgain),
            (FailureKind::Deadline, Exit::TryAgain),
            (FailureKind::TokenFailed, Exit::Token),
            (FailureKind::Stopping, Exit::Unreachable),
            (FailureKind::Internal, Exit::Unexpected),
        ];
        for (kind, exit) in cases {
            let problem = Problem::from(Failure::new(kind, "because"));
            assert_eq!((problem.exit, problem.what.as_str()), (exit, "because"));
        }
    }
}
