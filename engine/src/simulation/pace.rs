//! How long something takes in a simulation, and whether it comes to its end at all.

use std::time::Duration;
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default)]
struct Now {
    time: Duration,
    hung: bool,
}

/// The time that a model's work takes; changed from outside at any moment.
#[derive(Debug, Default)]
pub struct Pace(watch::Sender<Now>);

impl Pace {
    /// What begins from now on takes so long, in virtual time. At first it takes none.
    pub fn set_time(&self, time: Duration) {
        self.0.send_modify(|now| now.time = time);
    }

    /// While it is hung nothing comes to its end; afterwards everything does that had begun.
    pub fn set_hung(&self, hung: bool) {
        self.0.send_modify(|now| now.hung = hung);
    }

    /// True between the two calls of [`Pace::set_hung`].
    pub fn is_hung(&self) -> bool {
        self.0.borrow().hung
    }

    /// Lets the time pass that the work takes.
    pub async fn pass(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let Ok(now) = changes.wait_for(|now| !now.hung).await.map(|now| *now) else { return };
            if !now.time.is_zero() {
                tokio::time::sleep(now.time).await;
            }
            if !self.is_hung() {
                return;
            }
        }
    }
}
