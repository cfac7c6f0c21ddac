//! A primary whose token failed hands over: changes need a primary that can make keys.

use super::Core;
use crate::limits;
use crate::telemetry::Event;
use crate::wire::TokenHealth;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{debug, info};

/// Runs until `stop`.
pub(super) async fn step_down_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::MEMBER_HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stop.borrow() {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        let leads = core.consensus.leadership().borrow().leader == Some(core.me);
        let TokenHealth::Failed(why) = core.progress.token() else { continue };
        if !leads {
            continue;
        }
        match core.step_down(None).await {
            Ok(_) => {
                info!(code = Event::HandedOver.code(), member = %core.me, why, "its token failed: this primary has handed over")
            }
            // The next round tries again; alone, there is nobody to hand over to.
            Err(failure) => debug!(%failure, "a primary with a failed token could not hand over"),
        }
    }
}
