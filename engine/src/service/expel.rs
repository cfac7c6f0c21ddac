//! Removes members whose disks went back in time: what they acknowledged is not there any more, so nothing may rest
//! on them. Such a member joins again as a new one. It runs on every member and acts only while this one leads.

use super::Core;
use crate::domain::MemberId;
use crate::limits;
use crate::state::Command;
use crate::telemetry::Event;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{debug, error};

/// Runs until `stop`.
pub async fn expel_returned(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut returned = core.consensus.returned();
    while !*stop.borrow() {
        let found: Vec<MemberId> = returned.borrow_and_update().iter().copied().collect();
        let mut left = false;
        for member in found {
            left |= !expel(&core, member).await;
        }
        tokio::select! {
            Ok(()) = returned.changed() => {}
            () = tokio::time::sleep(limits::MEMBER_HEARTBEAT), if left => {}
            _ = stop.changed() => {}
        }
    }
}

/// Says if the member is off the roster.
async fn expel(core: &Core, member: MemberId) -> bool {
    if core.agreed.read(|state| state.member(member).is_none()) {
        return true;
    }
    let named = core.named(member);
    let leadership = *core.consensus.leadership().borrow();
    if !leadership.is_me || !leadership.ready {
        return false;
    }
    match core.settle_simple(Command::RemoveMember { member }).await {
        Ok(_) => {
            error!(code = Event::MemberExpelled.code(),
                %member,
                "removed {named} from the group, since its disk went back in time. To have it back, \
                 empty its data folder and let it join anew: 'keyraft invite' here, 'keyraft join' there"
            );
            true
        }
        Err(failure) => {
            debug!(%member, %failure, "a member whose disk went back in time could not be removed now");
            false
        }
    }
}
