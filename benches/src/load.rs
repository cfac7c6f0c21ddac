//! Callers that ask one thing after another, and what they saw.

use futures::future::try_join_all;
use keyraft_engine::clock::Clock;
use keyraft_node::exit::Problem;
use std::time::{Duration, Instant};

/// What a round of load gave.
#[derive(Clone, Debug, Default)]
pub struct Round {
    latencies: Vec<Duration>,
    took: Duration,
}

impl Round {
    /// Of each caller's latencies.
    pub fn new(latencies: Vec<Vec<Duration>>, took: Duration) -> Self {
        let mut latencies = latencies.concat();
        latencies.sort_unstable();
        Self { latencies, took }
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }

    /// The latency that this share of the answers did not pass.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }

    /// How long it took in all.
    pub fn took(&self) -> Duration {
        self.took
    }
}

/// Every operation repeats itself until the time is over.
pub async fn for_time(
    time: Duration,
    operations: Vec<impl AsyncFnMut() -> Result<(), Problem>>,
) -> Result<Round, Problem> {
    let start = Clock.now();
    let workers = operations.into_iter().map(|operation| worker(operation, start + time, usize::MAX));
    let latencies = try_join_all(workers).await?;
    Ok(Round::new(latencies, Clock.now() - start))
}

/// Every operation repeats itself so many times.
pub async fn for_count(
    count: usize,
    operations: Vec<impl AsyncFnMut() -> Result<(), Problem>>,
) -> Result<Round, Problem> {
    let start = Clock.now();
    let end = start + Duration::from_secs(24 * 3600);
    let callers = operations.len();
    let share = |index: usize| count / callers + usize::from(index < count % callers);
    let workers = operations.into_iter().enumerate().map(|(index, o)| worker(o, end, share(index)));
    let latencies = try_join_all(workers).await?;
    Ok(Round::new(latencies, Clock.now() - start))
}

async fn worker(
    mut operation: impl AsyncFnMut() -> Result<(), Problem>,
    end: Instant,
    count: usize,
) -> Result<Vec<Duration>, Problem> {
    let mut latencies = Vec::new();
    let mut before = Clock.now();
    while before < end && latencies.len() < count {
        operation().await?;
        let now = Clock.now();
        latencies.push(now - before);
        before = now;
    }
    Ok(latencies)
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => 0.0,
        all if all.len() % 2 == 1 => all[middle],
        all => (all[middle - 1] + all[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[tokio::test]
    async fn counts_are_shared_out() {
        let round = for_count(10, vec![async || Ok(()); 3]).await.expect("runs");
        assert_eq!(round.latencies.len(), 10);
    }
}
