//! `explain`.

use crate::caller::{Ask, repeat, unexpected};
use crate::cli::Explain;
use crate::exit::Problem;
use crate::output::{self, View};
use keyraft_engine::wire::{Answer, ClientRequest};
use std::time::Duration;

pub(super) async fn run(ask: &dyn Ask, limit: Duration, options: &Explain) -> Result<View, Problem> {
    let make = || ClientRequest::Explain { client: options.client.clone(), last: options.last };
    match repeat(ask, limit, make).await? {
        Answer::Operations { rows, silent } => Ok(output::operations(&rows, &silent)),
        other => Err(unexpected(&other)),
    }
}
