//! Whether this process is a simulation: one thread, virtual time, no sockets. One process simulates one world, so that
//! nothing of an earlier one is left in it. In a build for use it never is.

#[cfg(all(feature = "test-hooks", feature = "member"))]
pub mod pace; // how long a model takes

#[cfg(feature = "test-hooks")]
mod on {
    use std::sync::OnceLock;
    use std::time::Duration;

    static ELAPSED: OnceLock<fn() -> Duration> = OnceLock::new();

    /// Turns this process into a simulation, for the rest of its life: the monotonic clock is tokio's, which must be
    /// paused, boot clock and wall clock follow `elapsed` (the simulation's time since its begin, the same for all
    /// members), and what would block or need a thread of its own runs at once on the thread that asks.
    pub fn begin(elapsed: fn() -> Duration) {
        // Whoever begins first decides: there is one simulation a process.
        let _ = ELAPSED.set(elapsed);
    }

    /// True once [`begin`] was called.
    pub fn is_on() -> bool {
        ELAPSED.get().is_some()
    }

    /// The simulation's time since its begin; zero outside of one.
    pub fn elapsed() -> Duration {
        ELAPSED.get().map_or(Duration::ZERO, |elapsed| elapsed())
    }
}

#[cfg(feature = "test-hooks")]
pub use on::{begin, elapsed, is_on};

/// False: this build has no simulation.
#[cfg(not(feature = "test-hooks"))]
pub const fn is_on() -> bool {
    false
}
