//! Looks at the member's own numbers, and says when the primary changes.

use super::Core;
use crate::domain::MemberId;
use crate::limits;
use crate::telemetry::{Event, Rate};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

/// Looks without a primary until the log says so: an election takes less.
const SILENT_LOOKS: u32 = 3;

/// What this member has seen of primaries.
#[derive(Debug, Default)]
struct Primaries {
    last: Option<MemberId>,
    silent: u32,
}

/// What a look at the primary tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Nothing new.
    Same,
    /// The first since the start.
    First(MemberId),
    /// Another one than before.
    Changed(MemberId),
    /// There has been none for a while.
    None,
}

impl Primaries {
    /// Takes in who leads now; `look` is true once a look, false in between.
    fn see(&mut self, leader: Option<MemberId>, look: bool) -> Seen {
        let Some(leader) = leader else {
            self.silent += u32::from(look && self.silent < SILENT_LOOKS);
            return if look && self.silent == SILENT_LOOKS {
                self.silent += 1;
                Seen::None
            } else {
                Seen::Same
            };
        };
        self.silent = 0;
        match self.last.replace(leader) {
            Some(before) if before == leader => Seen::Same,
            Some(_) => Seen::Changed(leader),
            None => Seen::First(leader),
        }
    }
}

/// Runs until `stop`.
pub async fn run_watching(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leadership = core.consensus.leadership();
    let (mut primaries, mut rate) = (Primaries::default(), Rate::default());
    while !*stop.borrow() {
        let look = tokio::select! {
            _ = tick.tick() => true,
            Ok(()) = leadership.changed() => false,
            _ = stop.changed() => return,
        };
        if look {
            let done = core.telemetry.metrics.operations();
            *core.telemetry.rate.lock() = rate.look(core.clock.now(), done);
            core.note_standings();
        }
        let leader = leadership.borrow_and_update().leader;
        match primaries.see(leader, look) {
            Seen::Same => {}
            Seen::None => {
                let code = Event::PrimaryUnknown.code();
                warn!(
                    code,
                    "the group has no primary that this member knows: changes wait; keys are used on, unless isolated_service is fence"
                );
            }
            Seen::First(primary) => tell(&core, primary),
            Seen::Changed(primary) => {
                core.telemetry.metrics.failed_over();
                tell(&core, primary);
            }
        }
    }
}

/// The new primary itself says so when it begins its work.
fn tell(core: &Core, primary: MemberId) {
    if primary != core.me {
        info!(code = Event::PrimaryChanged.code(), %primary, "the primary is now {}", core.named(primary));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once_and_silence_after_a_while() {
        let (one, two) = (Some(MemberId(1)), Some(MemberId(2)));
        let mut primaries = Primaries::default();
        let looks = [(one, false), (one, true), (None, false), (None, true), (two, false), (two, true)];
        let told: Vec<Seen> = looks.map(|(leader, look)| primaries.see(leader, look)).into();
        let expected = [
            Seen::First(MemberId(1)),
            Seen::Same,
            Seen::Same,
            Seen::Same,
            Seen::Changed(MemberId(2)),
            Seen::Same,
        ];
        assert_eq!(told, expected);
        let silence: Vec<Seen> = (0..6).map(|_| primaries.see(None, true)).collect();
        assert_eq!(silence.iter().filter(|seen| **seen == Seen::None).count(), 1, "{silence:?}");
        assert_eq!(silence[2], Seen::None, "{silence:?}");
        assert_eq!(primaries.see(two, true), Seen::Same, "it is the same primary as before");
    }
}
