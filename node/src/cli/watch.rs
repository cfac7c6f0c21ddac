//! What the command line says of watching a group.

use clap::Args;
use keyraft_engine::limits;

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Only this client's: the name that 'keyraft client add' gave it, or uid:N for a user of this machine
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::EXPLAIN_ROWS_MAX)))]
    pub last: u32,
}

/// Options of `drill`.
#[derive(Debug, Args)]
pub struct Drill {
    /// How long the load runs; the primary is handed over after a third of it
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=600))]
    pub seconds: u64,
    /// Also in a group that is not whole
    #[arg(long)]
    pub force: bool,
}
