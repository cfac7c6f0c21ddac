//! How each fault is done to members, and undone.

use super::cluster::Cluster;
use super::looks::Look;
use super::switch::Bad;
use crate::dice::Dice;
use crate::limits;
use crate::nemesis::{Fault, Hit};
use keyraft_engine::clock::Clock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What this rung has.
pub const FAULTS: &[Fault] = &[
    Fault::Kill,
    Fault::Pause,
    Fault::Partition,
    Fault::Loss,
    Fault::Duplicate,
    Fault::Delay,
    Fault::Clock,
    Fault::DiskFull,
    Fault::SlowDisk,
    Fault::HungDisk,
    Fault::ErringDisk,
    Fault::Power,
    Fault::TokenLost,
    Fault::TokenSlow,
    Fault::TokenHung,
    Fault::TokenLying,
    Fault::Membership,
    Fault::Snapshot,
];

/// CKR_DEVICE_REMOVED.
const REMOVED: &str = "* fail 0x32\n";
/// Calls that change what a token holds: one that lies about them leaves something behind, or takes it away.
const CHANGES: [&str; 4] = ["C_GenerateKey", "C_UnwrapKey", "C_WrapKey", "C_DestroyObject"];
/// How wrong a clock goes, at most, seconds.
const CLOCK_SECONDS: u64 = 120;

/// True if the power of a member's disk is gone.
fn is_dark(member: usize, hits: &[Hit]) -> bool {
    hits.iter().any(|hit| hit.fault == Fault::Power && hit.members.contains(&member))
}

fn failed(done: &str, hit: &Hit, member: usize, why: &str) -> String {
    format!("the fault '{}' could not be {done} at member {member}: {why}", hit.fault.name())
}

/// Does and undoes.
pub struct Deeds<'a> {
    /// To whom.
    pub cluster: &'a mut Cluster,
    /// What the members say.
    pub look: &'a Look,
    /// Ends everything early.
    pub stop: &'a AtomicBool,
}

impl Deeds<'_> {
    /// Does what a fault does. `hits` are all that last from now on, this one too.
    ///
    /// # Errors
    /// It could not be done: what a run then shows is not what it says.
    pub fn begin(&mut self, hit: &Hit, hits: &[Hit], dice: &mut Dice) -> Result<(), String> {
        self.cluster.cut(hits.iter().flat_map(|hit| hit.cut.iter().copied()).collect());
        if hit.fault == Fault::Snapshot {
            self.isolated_service("serve");
            self.isolated_service("fence");
        }
        for member in hit.members.iter().copied() {
            let dark = is_dark(member, hits);
            self.begin_one(hit.fault, member, dark, dice).map_err(|why| failed("made", hit, member, &why))?;
        }
        Ok(())
    }

    fn begin_one(&mut self, fault: Fault, member: usize, dark: bool, dice: &mut Dice) -> Result<(), String> {
        let cluster = &mut *self.cluster;
        let spoil = |change: &dyn Fn(&mut Bad)| cluster.spoil(member, change);
        match fault {
            Fault::Kill => cluster.kill(member),
            Fault::Pause => cluster.pause(member, true)?,
            Fault::Partition | Fault::Snapshot => {}
            Fault::Loss => {
                let loss = 5 + dice.below(20);
                spoil(&|bad| bad.loss = loss);
            }
            Fault::Duplicate => {
                let twice = 20 + dice.below(60);
                spoil(&|bad| bad.twice = twice);
            }
            Fault::Delay => {
                let late = 20 + dice.below(130);
                spoil(&|bad| bad.late_ms = late);
            }
            Fault::Clock => {
                let seconds = i64::try_from(1 + dice.below(CLOCK_SECONDS)).unwrap_or(1);
                cluster.set_clock(member, if dice.below(2) == 0 { seconds } else { -seconds })?;
            }
            Fault::DiskFull => {
                // Without power, which another fault has taken, there is nothing to fill.
                if !dark {
                    cluster.disk(member)?.fill()?;
                }
            }
            Fault::SlowDisk => cluster.disk(member)?.slow_down(),
            Fault::HungDisk => cluster.disk(member)?.freeze()?,
            Fault::ErringDisk => cluster.disk(member)?.cut()?,
            Fault::Power => {
                cluster.pause(member, true)?;
                cluster.disk(member)?.cut()?;
                cluster.kill(member);
            }
            Fault::TokenLost => cluster.play(member, REMOVED)?,
            Fault::TokenSlow => cluster.play(member, &format!("* delay {}\n", 5 + dice.below(26)))?,
            Fault::TokenHung => cluster.play(member, "* hang\n")?,
            Fault::TokenLying => {
                let which = dice.one_of(&CHANGES).copied().unwrap_or_default();
                cluster.play(member, &format!("{which} lie 0x30\n"))?;
            }
            Fault::Membership => self.remove(member)?,
        }
        Ok(())
    }

    /// Changes the group's option, of which every member writes down a snapshot before it counts. Under other faults nobody
    /// may answer; then it stays as it was, and the next time brings the snapshot.
    fn isolated_service(&mut self, what: &str) {
        let words = ["--deadline", "2", "option", "set", "isolated_service", what];
        let done = |member: usize| self.cluster.keyraft(member, &words, self.stop).is_ok();
        (0..self.cluster.count()).any(done);
    }

    /// Another member removes it for good; then all that it had is destroyed.
    fn remove(&mut self, member: usize) -> Result<(), String> {
        let id = self.look.id(member).ok_or_else(|| format!("member {member} has no id"))?.to_string();
        let other = (member + 1) % self.cluster.count();
        let end = Clock.now() + limits::COMMAND;
        while let Err(why) = self.cluster.keyraft(other, &["member", "remove", &id], self.stop) {
            if Clock.now() > end || self.stop.load(Ordering::Relaxed) {
                return Err(why);
            }
            // A primary is not removed: it hands over first, if it is one.
            let _ = self.cluster.keyraft(member, &["step-down"], self.stop);
        }
        self.cluster.forget(member)
    }

    /// Undoes it. `others` are the faults that last.
    pub fn end(&mut self, hit: &Hit, others: &[Hit]) -> Result<(), String> {
        self.cluster.cut(others.iter().flat_map(|other| other.cut.clone()).collect());
        if hit.fault == Fault::Snapshot {
            self.isolated_service("serve");
        }
        for member in hit.members.iter().copied() {
            let lasts = |faults: &[Fault]| {
                others.iter().any(|other| faults.contains(&other.fault) && other.members.contains(&member))
            };
            let mended = self.end_one(hit.fault, member, is_dark(member, others));
            mended.map_err(|why| failed("mended", hit, member, &why))?;
            let down = lasts(&[Fault::Kill, Fault::Power, Fault::ErringDisk]);
            if hit.fault.stops_processes() && !down {
                self.cluster.revive(member)?;
                if lasts(&[Fault::Pause]) {
                    self.cluster.pause(member, true)?;
                }
            }
        }
        Ok(())
    }

    fn end_one(&mut self, fault: Fault, member: usize, dark: bool) -> Result<(), String> {
        let cluster = &mut *self.cluster;
        let mend = |change: &dyn Fn(&mut Bad)| cluster.spoil(member, change);
        match fault {
            Fault::Kill | Fault::Partition | Fault::Snapshot => {}
            Fault::Pause => cluster.pause(member, false)?,
            Fault::Loss => mend(&|bad| bad.loss = 0),
            Fault::Duplicate => mend(&|bad| bad.twice = 0),
            Fault::Delay => mend(&|bad| bad.late_ms = 0),
            Fault::Clock => cluster.set_clock(member, 0)?,
            Fault::DiskFull => {
                if !dark {
                    cluster.disk(member)?.empty()?;
                }
                // A member that cannot write ends; somebody starts it once there is room.
                cluster.kill(member);
            }
            Fault::SlowDisk => cluster.disk(member)?.speed_up(),
            Fault::HungDisk => cluster.disk(member)?.thaw()?,
            Fault::Power | Fault::ErringDisk => {
                cluster.kill(member);
                cluster.disk(member)?.restore()?;
                cluster.disk(member)?.empty()?;
            }
            Fault::TokenLost | Fault::TokenSlow | Fault::TokenHung | Fault::TokenLying => {
                cluster.play(member, "")?;
            }
            Fault::Membership => {
                let other = (member + 1) % cluster.count();
                cluster.join(member, other, self.stop)?;
                self.look.learn(cluster, member)?;
            }
        }
        Ok(())
    }
}
