//! Whole members and whole groups under test: real `keyraft serve` processes on 127.0.0.1, each with a token, a
//! folder and a socket of its own. Everything ends with the [`Group`] that started it.

pub mod clients;
pub mod disk;
pub mod group;
pub mod keys;
pub mod network;
mod root;
pub mod search;
pub mod told;
pub mod token;
pub mod wire;

pub use group::{Group, TokenKind};
pub use root::root;

use keyraft_engine::clock::Clock;
use std::future::Future;
use std::time::Duration;

/// How long one step may take on a busy machine: a start, an election, a return.
pub const STEP_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at something that is awaited.
pub const LOOK_EVERY: Duration = Duration::from_millis(25);

/// One group at a time: members that fight for the processor time out, and tests would tell of that alone.
pub async fn turn() -> tokio::sync::SemaphorePermit<'static> {
    static TURN: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(1);
    TURN.acquire().await.expect("the semaphore is never closed")
}

/// Looks until `look` is content; panics with its last complaint after [`STEP_LIMIT`].
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(mut look: impl FnMut() -> F) -> T {
    let end = Clock.now() + STEP_LIMIT;
    loop {
        match look().await {
            Ok(value) => return value,
            Err(complaint) => assert!(Clock.now() < end, "after {STEP_LIMIT:?}: {complaint}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A small seeded generator (splitmix64): a run is repeated by its seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
