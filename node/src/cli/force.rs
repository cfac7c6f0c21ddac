//! What the command line says of a history begun by force.

use clap::Args;

/// Options of `force-quorum`.
#[derive(Debug, Args)]
pub struct ForceQuorum {
    /// Do not ask for the group's id: the other members, and what only they had, are given up
    #[arg(long)]
    pub yes_this_loses_the_others: bool,
}
