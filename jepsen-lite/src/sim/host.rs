//! Simulated machines: each has a runtime of its own with tokio's paused clock, and is stepped by a tick at a time. Within a
//! tick its timers fire in their exact order; between machines nothing is faster than a tick.

use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The step of all clocks. tokio's timers are no finer.
pub const TICK: Duration = Duration::from_millis(1);

/// One machine, or one process on it: what runs on it ends with its runtime.
#[derive(Debug, Default)]
pub struct Host {
    runtime: Option<Runtime>,
    paused: bool,
    /// Ticks that went by while it was paused.
    missed: u32,
}

impl Host {
    /// Starts a process with this task.
    ///
    /// # Errors
    /// The system gives no runtime.
    pub fn start(&mut self, main: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| format!("a runtime: {error}"))?;
        runtime.spawn(main);
        self.missed = 0;
        self.runtime = Some(runtime);
        Ok(())
    }

    /// Adds a task to the process; nothing happens where there is none.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// kill -9: every task is gone.
    pub fn kill(&mut self) {
        self.runtime = None;
        self.missed = 0;
    }

    /// SIGSTOP and SIGCONT: time goes on without it, and it finds out afterwards.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Lives through a tick.
    pub fn step(&mut self) {
        let Some(runtime) = &self.runtime else { return };
        if self.paused {
            self.missed += 1;
            return;
        }
        let missed = std::mem::take(&mut self.missed);
        runtime.block_on(async {
            if missed > 0 {
                tokio::time::advance(TICK * missed).await;
            }
            tokio::time::sleep(TICK).await;
        });
    }
}
