//! Words about what members are for, and how they come back.

use super::member_id;
use clap::{Args, ValueEnum};
use keyraft_engine::domain::MemberId;
use keyraft_engine::limits;

/// How long an invitation is good for.
#[derive(Debug, Args)]
pub struct InviteLife {
    /// Seconds that it is good for
    #[arg(long, value_name = "SECONDS", default_value_t = limits::INVITE_LIFE_SECONDS,
        value_parser = clap::value_parser!(u64).range(1..=2_592_000))]
    pub life: u64,
}

/// One member.
#[derive(Debug, Args)]
pub struct OneMember {
    /// Its id
    #[arg(value_parser = member_id)]
    pub member: MemberId,
}

/// Who takes a member back that has left the in-sync set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecoveryKind {
    /// The group, by itself
    Auto,
    /// An operator, by 'keyraft recover' or 'keyraft member recover'
    Manual,
}

/// Options of `recovery-mode`.
#[derive(Debug, Args)]
pub struct RecoveryMode {
    /// Who takes a member back
    #[arg(value_enum)]
    pub mode: RecoveryKind,
    /// Tries until an operator has to ask for it; -1 for no end
    #[arg(long, default_value_t = -1, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=i64::from(limits::AUTO_RECOVERY_RETRIES_MAX)))]
    pub retries: i32,
    /// Seconds between two tries
    #[arg(long, value_name = "SECONDS", default_value_t = limits::AUTO_RECOVERY_INTERVAL_SECONDS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::AUTO_RECOVERY_INTERVAL_MAX_SECONDS)))]
    pub interval: u32,
}
