//! How fit each member is, as somebody who calls it finds out: by the outcome of every call, and by nothing else. Pure:
//! times are handed in. `member` is one member's state, `watch` all of them, with the floor under what may be put
//! out at once; `slow` says which answers are slow, `pace` how long a call is waited for, `refusal` what a refusal says.

mod member;
mod pace;
mod refusal;
mod slow;
mod watch;

pub use pace::Pace;
pub use refusal::{Onward, refused};
pub use watch::Watch;

use crate::limits;
use std::time::{Duration, Instant};

/// What a call asks of a token. Waiting calls and times are kept apart by it, so that calls that take long fill no
/// member's queue, and are compared with their like alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Symmetric work on little data, random bytes, verification.
    Quick,
    /// A use of a private key.
    Signing,
    /// What takes long by its nature: keys of RSA-4096, much data, every change.
    Long,
    /// Searches and reads of the agreed objects, which never reach a token.
    Search,
}

impl Class {
    /// So many there are.
    pub const COUNT: usize = 4;

    /// Its place in a table of [`Class::COUNT`].
    pub fn index(self) -> usize {
        match self {
            Self::Quick => 0,
            Self::Signing => 1,
            Self::Long => 2,
            Self::Search => 3,
        }
    }

    /// True where the same is asked over and over, so that a slow answer says something about the member.
    fn is_even(self) -> bool {
        matches!(self, Self::Quick | Self::Signing)
    }
}

/// A call under way at a member.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The member's place in the caller's configuration.
    pub member: usize,
    /// What is asked.
    pub class: Class,
    /// Since when.
    pub begun: Instant,
    /// Calls under way there when it began, with itself.
    among: u32,
}

/// How a call ended, as far as it says something about the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It answered, be it by a refusal that any member would give.
    Answered,
    /// It lives and does not serve now: not in sync, stopping, without its token.
    NotServing,
    /// It lives and failed.
    Failed,
    /// It lives and took too long.
    Late,
    /// The connection broke, or nobody answers at its place.
    Lost,
    /// Not a byte came for [`dead_after`]: the process is stopped, or the way is cut.
    Silent,
    /// The caller had too little time left to tell.
    Unknown,
}

/// What may be asked of a member now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    /// It serves, with this share (0 to 1) of what the others get: less than 1 for a while after its return.
    Fit(f64),
    /// It owes answers and is quiet: others are asked first.
    Suspected,
    /// It said that it does not serve: others are asked first.
    Resting,
    /// It is out for its errors or its slowness, but it answers: the last to ask.
    Judged,
    /// It is out, and somebody may try now whether it is back: see [`Watch::try_again`].
    Due,
    /// It is out.
    Out,
}

/// How to find out whether a member is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// By a greeting, which may take so long.
    Greet(Duration),
    /// By a call: it was out for how it answers.
    Call,
}

/// Silence after which a member is dead, with the group's own times.
pub const DEAD_AFTER: Duration = dead_after(limits::MEMBER_HEARTBEAT, limits::HEARTBEATS_LOST);

/// Silence after which a member is dead.
pub const fn dead_after(heartbeat: Duration, lost_threshold: u32) -> Duration {
    heartbeat.saturating_mul(lost_threshold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_failure_detection() {
        let text = include_str!("../../../tests/vectors/failure_detection.json");
        let vectors: serde_json::Value = serde_json::from_str(text).expect("is JSON");
        let cases = vectors["cases"].as_array().expect("has cases");
        assert!(!cases.is_empty());
        for case in cases {
            let number = |key: &str| case[key].as_u64().expect("is a number");
            let threshold = u32::try_from(number("lost_threshold")).expect("is small");
            let dead = dead_after(Duration::from_millis(number("interval_ms")), threshold);
            assert_eq!(dead, Duration::from_millis(number("dead_after_ms")), "{case}");
        }
        assert_eq!(DEAD_AFTER, limits::MEMBER_DEAD);
    }
}
