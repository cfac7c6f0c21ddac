//! How fit this member is to lead: its uptime, its disk, its monitored interfaces, and what an operator said of it.

use super::Core;
use crate::aside::{self, Aside};
use crate::limits;
use crate::telemetry::Event;
use crate::wire::{Fitness, TokenHealth};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::warn;

/// What this member looks at to know how fit it is.
pub struct Vitals {
    /// Its data folder.
    pub folder: PathBuf,
    /// The network interfaces that it monitors.
    pub interfaces: Vec<String>,
    known: Mutex<Known>,
}

struct Known {
    up_since: Instant,
    /// At the last look, once there was one.
    last: Option<(Seen, bool)>,
    stepped_down: Option<u64>,
    chosen: Option<u64>,
}

/// What one look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    disk_healthy: bool,
    ports: u32,
}

impl Vitals {
    /// Of a member that starts now.
    pub fn new(folder: PathBuf, interfaces: Vec<String>, started: Instant) -> Self {
        let known = Known { up_since: started, last: None, stepped_down: None, chosen: None };
        Self { folder, interfaces, known: Mutex::new(known) }
    }

    /// An operator made this member step down, in this term; None takes the word back. Gives what held before.
    pub(super) fn note_stepped_down(&self, term: Option<u64>) -> Option<u64> {
        std::mem::replace(&mut self.known.lock().stepped_down, term)
    }

    /// An operator chose this member as primary, in this term.
    pub(super) fn note_chosen(&self, term: u64) {
        self.known.lock().chosen = Some(term);
    }

    /// Uptime begins anew when the token fails or an interface changes its state.
    fn note(&self, seen: Seen, token_works: bool, now: Instant) {
        let mut known = self.known.lock();
        let changed =
            known.last.is_some_and(|(before, worked)| before.ports != seen.ports || worked != token_works);
        if changed {
            known.up_since = now;
        }
        known.last = Some((seen, token_works));
    }

    /// How fit this member is now.
    pub(super) fn fitness(&self, now: Instant) -> Fitness {
        let known = self.known.lock();
        let uptime = now.saturating_duration_since(known.up_since);
        Fitness {
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            disk_healthy: known.last.is_none_or(|(seen, _)| seen.disk_healthy),
            ports: known.last.map_or(0, |(seen, _)| seen.ports),
            stepped_down: known.stepped_down,
            chosen: known.chosen,
        }
    }
}

/// Looks at the machine. Blocks for as long as its disk does.
fn look(folder: &Path, interfaces: &[String]) -> Seen {
    let up = |name: &&String| {
        let state = std::fs::read_to_string(Path::new("/sys/class/net").join(name).join("operstate"));
        // A loopback or a tunnel does not know its state and passes what it is given.
        state.is_ok_and(|state| matches!(state.trim(), "up" | "unknown"))
    };
    let room = |seen: rustix::fs::StatVfs| {
        seen.f_bavail.saturating_mul(seen.f_frsize) >= limits::DISK_FREE_MIN_BYTES
            && !seen.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)
    };
    Seen {
        disk_healthy: rustix::fs::statvfs(folder).is_ok_and(room),
        ports: u32::try_from(interfaces.iter().filter(up).count()).unwrap_or(u32::MAX),
    }
}

/// Knows a disk that hangs on writes: entries that a quorum holds are not applied. What is only read may well be there.
#[derive(Debug, Default)]
struct Stall {
    /// What was applied at the last look, and since when.
    trails: Option<(u64, Instant)>,
    looked: Option<Instant>,
}

impl Stall {
    /// `trails` is what this member has applied, while its quorum holds more. True if that has lasted.
    fn lasts(&mut self, trails: Option<u64>, now: Instant) -> bool {
        // Who stood still itself has seen nothing of the time between.
        let watched = self.looked.is_some_and(|at| now.saturating_duration_since(at) < limits::ATTEMPT * 2);
        self.looked = Some(now);
        let began = match (self.trails, trails) {
            (Some((applied, began)), Some(still)) if applied == still && watched => began,
            _ => now,
        };
        self.trails = trails.map(|applied| (applied, began));
        now.saturating_duration_since(began) >= limits::ATTEMPT
    }
}

/// Keeps this member's fitness up to date, until `stop`.
pub(super) async fn vitals_loop(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(limits::MEMBER_HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut was_healthy, mut stall) = (true, Stall::default());
    let mut looking: Option<Aside<Seen>> = None;
    while !*stop.borrow() {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        // A look that hangs keeps its thread: there is one at a time.
        let looked = looking.get_or_insert_with(|| {
            let (folder, interfaces) = (core.vitals.folder.clone(), core.vitals.interfaces.clone());
            aside::start(move || look(&folder, &interfaces))
        });
        let ended = tokio::time::timeout(limits::ATTEMPT, looked).await;
        if ended.is_ok() {
            looking = None;
        }
        let hangs = stall.lasts(core.consensus.trails_at(), core.clock.now());
        let seen = match ended {
            Ok(Ok(seen)) => Seen { disk_healthy: seen.disk_healthy && !hangs, ..seen },
            // The disk hangs.
            Ok(Err(_)) | Err(_) => Seen { disk_healthy: false, ports: 0 },
        };
        if was_healthy && !seen.disk_healthy {
            let folder = core.vitals.folder.display();
            warn!(code = Event::DiskUnfit.code(), %folder, "the data folder has no room, is read-only or hangs: another member had better lead");
        }
        was_healthy = seen.disk_healthy;
        let token_works = core.progress.token() == TokenHealth::Healthy;
        core.vitals.note(seen, token_works, core.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::time::Duration;

    #[test]
    fn uptime_begins_anew_when_an_interface_or_the_token_changes() {
        let start = Clock.now();
        let vitals = Vitals::new(PathBuf::from("/"), Vec::new(), start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = |ports| Seen { disk_healthy: true, ports };
        let looks = [
            (seen(2), true, 5, 5000),
            (seen(1), true, 6, 0),
            (seen(1), true, 8, 2000),
            (seen(1), false, 9, 0),
            (Seen { disk_healthy: false, ports: 1 }, false, 10, 1000),
        ];
        for (seen, works, second, uptime_ms) in looks {
            vitals.note(seen, works, at(second));
            let fitness = vitals.fitness(at(second));
            assert_eq!((fitness.uptime_ms, fitness.disk_healthy), (uptime_ms, seen.disk_healthy));
        }
    }

    #[test]
    fn a_disk_hangs_while_what_a_quorum_holds_is_not_applied() {
        let (start, mut stall) = (Clock.now(), Stall::default());
        let mut lasts = |trails, millis| stall.lasts(trails, start + Duration::from_millis(millis));
        assert!(!lasts(Some(7), 0) && !lasts(Some(7), 1_900));
        assert!(lasts(Some(7), 2_000));
        // It goes on, though it is behind.
        assert!(!lasts(Some(8), 2_300) && !lasts(Some(9), 4_600));
        assert!(!lasts(None, 9_000) && !lasts(Some(9), 9_300));
    }

    #[test]
    fn a_look_counts_interfaces_that_are_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = look(folder.path(), &["lo".into(), "no-such-interface".into()]);
        assert_eq!(seen, Seen { disk_healthy: true, ports: 1 });
        assert!(!look(Path::new("/no/such/folder"), &[]).disk_healthy);
    }
}
