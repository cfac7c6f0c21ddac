//! Takes the place of a leader whose process is gone without waiting for all of Raft's timers.
//!
//! A follower's lease of its leader stays what it was: nobody is elected before a quorum's leases are over, so what the
//! leader reads within its own lease is never stale, even if it is not gone after all. What is saved is the random
//! wait behind the lease, and the clash of two candidates.

use super::handle::Consensus;
use crate::domain::MemberId;
use crate::limits::{SUCCESSION_PAUSE, SUCCESSION_TRIES};
use tokio::time::{Instant, sleep_until, timeout};

impl Consensus {
    /// Stands for election once the lease of this leader is over and `patience` more has gone by, unless it is
    /// heard again or a new term begins meanwhile.
    pub async fn succeed(&self, lost: MemberId, patience: std::time::Duration) {
        let mut leadership = self.leadership();
        let began = *leadership.borrow_and_update();
        if began.is_me || began.leader != Some(lost) {
            return;
        }
        let lease_ends = || match self.inner.heard_leader() {
            Some((leader, heard)) if leader == lost => heard + self.inner.lease,
            _ => Instant::now(),
        };
        let lease = lease_ends();
        sleep_until(lease + patience).await;
        for _ in 0..SUCCESSION_TRIES {
            let now = *leadership.borrow_and_update();
            if now.term != began.term || now.leader != Some(lost) || lease_ends() > lease {
                return;
            }
            if self.inner.raft.trigger().elect(true).await.is_err() {
                return;
            }
            // A voter whose lease is a moment longer refuses: ask again.
            let news = timeout(SUCCESSION_PAUSE, leadership.changed()).await;
            if matches!(news, Ok(Err(_))) {
                return;
            }
        }
    }
}
