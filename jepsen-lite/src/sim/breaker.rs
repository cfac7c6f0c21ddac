//! Breaks and mends the simulated world, and writes down both: a fault's beginning before it is done, its end after it is
//! mended.

use super::looks::{self, Look};
use super::machine::{Order, PANICKED, SYNC};
use super::network::Bad;
use super::recorder::Recorder;
use super::storm;
use super::world::{Unanswered, World};
use crate::dice::Dice;
use crate::limits;
use crate::nemesis::{Fault, Hit, Strike, events, hit};
use crate::watch;
use keyraft_engine::consensus::model_disk::DiskFault;
use keyraft_engine::domain::MemberId;
use keyraft_engine::token::TokenFault;
use keyraft_engine::wire::{Answer, ClientRequest, FailureKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// Clocks run so much faster or slower at most, microseconds a second: two of them differ by less than a tenth, which is
/// what leases count with.
const RATE_OFF_MAX: u64 = 45_000;
/// Wall clocks are set wrong by so much at most, milliseconds.
const WALL_OFF_MAX_MS: u64 = 600_000;
/// A slow token's call, and a slow disk's sync, take at least and at most so long, milliseconds.
const SLOW_MS: (u64, u64) = (20, 400);
/// How long one request of an operator's may take, and how often it is made.
const OPERATOR: Duration = Duration::from_secs(3);
const OPERATOR_TRIES: u32 = 20;
const OPERATOR_PAUSE: Duration = Duration::from_millis(500);
/// Between two looks whether all is whole.
const WHOLE_PAUSE: Duration = Duration::from_millis(50);
/// An invitation's life, seconds.
const INVITATION_SECONDS: u64 = 600;

/// Whoever breaks.
pub struct Breaker<'a> {
    /// What is broken.
    pub world: &'a mut World,
    look: &'a Look,
    recorder: &'a Recorder,
    faults: &'a [Fault],
    dice: Dice,
    active: Vec<(Strike, Hit)>,
    /// Members that were removed, and have not joined anew.
    removed: BTreeSet<usize>,
    /// Faults since all was whole, and whom they hit.
    lately: BTreeSet<(Fault, usize)>,
}

impl<'a> Breaker<'a> {
    /// One that has broken nothing yet.
    pub fn new(
        world: &'a mut World,
        look: &'a Look,
        recorder: &'a Recorder,
        faults: &'a [Fault],
        dice: Dice,
    ) -> Self {
        let (active, removed, lately) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        Self { world, look, recorder, faults, dice, active, removed, lately }
    }

    /// Round after round until the time is over. False if the group did not become whole in time.
    ///
    /// # Errors
    /// The simulation itself fails.
    pub fn work(&mut self, until: Duration) -> Result<bool, String> {
        while self.world.now() < until && !self.faults.is_empty() {
            let strikes = storm::round(self.faults, &mut self.dice);
            if !self.round(&strikes)? {
                return Ok(false);
            }
        }
        self.rest(until.saturating_sub(self.world.now()))?;
        Ok(true)
    }

    fn round(&mut self, strikes: &[Strike]) -> Result<bool, String> {
        let began = self.world.now();
        let mut times: Vec<(u64, bool, Strike)> =
            strikes.iter().flat_map(|s| [(s.begins, true, *s), (s.ends, false, *s)]).collect();
        times.sort_by_key(|(at, begins, _)| (*at, *begins));
        for (at, begins, strike) in times {
            let at = began + Duration::from_millis(at);
            self.rest(at.saturating_sub(self.world.now()))?;
            if begins {
                self.begin(strike)?;
            } else {
                self.end(strike)?;
            }
        }
        self.whole()
    }

    fn rest(&mut self, time: Duration) -> Result<(), String> {
        self.world.rest(time)?;
        self.note_ends();
        Ok(())
    }

    /// A process that ends by itself without its own disk or token to blame is a fault of the member's.
    fn note_ends(&mut self) {
        while let Some((member, why)) = self.world.ended.pop_front() {
            let leaves_no_choice = |(fault, hit): &(Fault, usize)| *hit == member && fault.ends_processes();
            let excused = !why.starts_with(PANICKED) && self.lately.iter().any(leaves_no_choice);
            self.recorder.take(watch::ended(member, why, excused));
        }
    }

    fn begin(&mut self, strike: Strike) -> Result<(), String> {
        let count = self.world.machines.len();
        let hit = hit(strike, count, self.look.primary(), &mut self.dice);
        if strike.fault == Fault::Membership && !self.removed.is_empty() {
            // One at a time: a group of two may lose nobody.
            return Ok(());
        }
        self.lately.extend(hit.members.iter().map(|member| (strike.fault, *member)));
        self.active.push((strike, hit.clone()));
        let hits: Vec<Hit> = self.active.iter().map(|(_, hit)| hit.clone()).collect();
        self.recorder.take(events::begins(strike, &hit, &hits, count));
        for member in hit.members.iter().copied() {
            self.strike(strike.fault, member)?;
        }
        self.links();
        Ok(())
    }

    /// What active faults do to links.
    fn links(&self) {
        let all = |fault: Fault| {
            let hits = self.active.iter().filter(move |(_, hit)| hit.fault == fault);
            hits.flat_map(|(_, hit)| hit.members.iter().copied()).collect::<BTreeSet<usize>>()
        };
        let network = &self.world.network;
        network.cut(&self.active.iter().flat_map(|(_, hit)| hit.cut.iter().copied()).collect());
        for (bad, fault) in
            [(Bad::Loses, Fault::Loss), (Bad::Doubles, Fault::Duplicate), (Bad::Delays, Fault::Delay)]
        {
            network.spoil(bad, all(fault));
        }
    }

    fn between(&mut self, (least, most): (u64, u64)) -> Duration {
        Duration::from_millis(least + self.dice.below(most - least + 1))
    }

    fn strike(&mut self, fault: Fault, member: usize) -> Result<(), String> {
        let slow = self.between(SLOW_MS);
        let (rate, wall) = (self.dice.below(2 * RATE_OFF_MAX + 1), self.dice.below(2 * WALL_OFF_MAX_MS + 1));
        let Some(machine) = self.world.machines.get_mut(member) else { return Ok(()) };
        match fault {
            Fault::Kill => machine.kill(),
            Fault::Power => {
                let unsynced = machine.disk.unsynced() as u64;
                machine.kill();
                // Some of what was not synced may have reached the disk, in its order.
                let kept = self.dice.below(unsynced + 1);
                machine.disk.cut_power_keeping(usize::try_from(kept).unwrap_or(0));
            }
            Fault::Pause => machine.pause(true),
            Fault::Clock => {
                machine.skew.set_rate(1_000_000 - RATE_OFF_MAX + rate);
                machine
                    .skew
                    .set_wall(i64::try_from(wall).unwrap_or(0) - i64::try_from(WALL_OFF_MAX_MS).unwrap_or(0));
            }
            Fault::DiskFull => machine.disk.set_fault(Some(DiskFault::Full)),
            Fault::ErringDisk => machine.disk.set_fault(Some(DiskFault::Fails)),
            Fault::HungDisk => machine.disk.set_hung(true),
            Fault::SlowDisk => machine.disk.set_sync_time(slow),
            Fault::TokenLost => machine.token.set_fault(Some(TokenFault::Lost)),
            Fault::TokenLying => machine.token.set_fault(Some(TokenFault::Lies)),
            Fault::TokenSlow => machine.token.set_pause(slow),
            Fault::TokenHung => machine.token.set_hung(true),
            Fault::Snapshot => machine.order(Order::Snapshot),
            Fault::Membership => self.remove(member)?,
            Fault::Partition | Fault::Loss | Fault::Duplicate | Fault::Delay => {}
        }
        Ok(())
    }

    /// True if an active fault of this kind has hit the member.
    fn suffers(&self, member: usize, fault: Fault) -> bool {
        self.active.iter().any(|(_, hit)| hit.fault == fault && hit.members.contains(&member))
    }

    fn end(&mut self, strike: Strike) -> Result<(), String> {
        let Some(at) = self.active.iter().position(|(active, _)| *active == strike) else { return Ok(()) };
        let (_, hit) = self.active.remove(at);
        for member in hit.members.iter().copied() {
            if !self.suffers(member, hit.fault) {
                self.mend(hit.fault, member)?;
            }
        }
        self.links();
        self.recorder.take(events::ends(strike));
        Ok(())
    }

    fn mend(&mut self, fault: Fault, member: usize) -> Result<(), String> {
        let killed = self.suffers(member, Fault::Kill)
            || self.suffers(member, Fault::Power)
            || self.removed.contains(&member);
        let now = self.world.now();
        // Two faults of one kind may lie on each other: what remains is done again.
        let disk = [(Fault::DiskFull, DiskFault::Full), (Fault::ErringDisk, DiskFault::Fails)];
        let disk = disk.into_iter().find(|(fault, _)| self.suffers(member, *fault)).map(|(_, fault)| fault);
        let token = [(Fault::TokenLost, TokenFault::Lost), (Fault::TokenLying, TokenFault::Lies)];
        let token = token.into_iter().find(|(fault, _)| self.suffers(member, *fault)).map(|(_, fault)| fault);
        let Some(machine) = self.world.machines.get_mut(member) else { return Ok(()) };
        match fault {
            Fault::Kill | Fault::Power if !killed => machine.start(now)?,
            Fault::Pause => machine.pause(false),
            Fault::Clock => {
                machine.skew.set_rate(1_000_000);
                machine.skew.set_wall(0);
            }
            Fault::DiskFull | Fault::ErringDisk => machine.disk.set_fault(disk),
            Fault::HungDisk => machine.disk.set_hung(false),
            Fault::SlowDisk => machine.disk.set_sync_time(SYNC),
            Fault::TokenLost | Fault::TokenLying => machine.token.set_fault(token),
            Fault::TokenSlow => machine.token.set_pause(Duration::ZERO),
            Fault::TokenHung => machine.token.set_hung(false),
            // A removed member joins again once all else is mended.
            _ => {}
        }
        if fault.is_of_disks() || fault.is_of_tokens() {
            machine.hurry(now);
        }
        Ok(())
    }

    /// Removes a member for good. Whether that was done when nobody says so shows when it is to join again.
    fn remove(&mut self, member: usize) -> Result<(), String> {
        let Some(id) = self.world.network.member_at(member) else { return Ok(()) };
        self.removed.insert(member);
        // A primary is not removed: it hands over first, if it is one. Whoever is none says so.
        let handed = self.world.ask(member, ClientRequest::StepDown { to: None }, OPERATOR)?;
        if handed.is_ok() {
            self.rest(OPERATOR_PAUSE)?;
        }
        let _ = self.removal(member, id)?;
        if let Some(machine) = self.world.machines.get_mut(member) {
            machine.kill();
        }
        Ok(())
    }

    /// True if the group says that the member is removed.
    fn removal(&mut self, member: usize, id: MemberId) -> Result<bool, String> {
        let others = (0..self.world.machines.len()).filter(|other| *other != member);
        let others = self.dice.mixed(others.collect());
        for other in others {
            let asked = self.world.ask(other, ClientRequest::RemoveMember(id), OPERATOR)?;
            match asked {
                Ok(Answer::Done) => return Ok(true),
                Err(Unanswered::Failed(failure)) if failure.kind == FailureKind::NotFound => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Members that were removed join anew.
    fn rejoin(&mut self) -> Result<Result<(), String>, String> {
        let count = self.world.machines.len();
        while let Some(member) = self.removed.first().copied() {
            let mut why = String::new();
            let mut done = false;
            for _ in 0..OPERATOR_TRIES {
                match self.join_anew(member, count)? {
                    Ok(()) => {
                        done = true;
                        break;
                    }
                    Err(not) => why = not,
                }
                self.rest(OPERATOR_PAUSE)?;
            }
            if !done {
                return Ok(Err(format!("member {member} cannot join again: {why}")));
            }
            self.removed.remove(&member);
        }
        Ok(Ok(()))
    }

    /// Removes what an earlier try to join left in the roster, as an operator would.
    fn remove_remains(&mut self, member: usize) -> Result<(), String> {
        let name = format!("m{member}");
        for other in (0..self.world.machines.len()).filter(|other| *other != member) {
            let asked = self.world.ask(other, ClientRequest::Status, OPERATOR)?;
            let Ok(Answer::Status(status)) = asked else { continue };
            let remains = status.members.iter().find(|row| row.name == name).map(|row| row.member);
            if let Some(id) = remains {
                // Whether that was done shows when it joins.
                let _ = self.removal(member, id)?;
            }
            return Ok(());
        }
        Ok(())
    }

    fn join_anew(&mut self, member: usize, count: usize) -> Result<Result<(), String>, String> {
        if let Some(id) = self.world.network.member_at(member)
            && !self.removal(member, id)?
        {
            return Ok(Err("the group does not say that it is removed".into()));
        }
        self.remove_remains(member)?;
        for other in (0..count).filter(|other| *other != member) {
            let invite = ClientRequest::Invite { life_seconds: INVITATION_SECONDS };
            let asked = self.world.ask(other, invite, OPERATOR)?;
            let Ok(Answer::Invitation(invitation)) = asked else { continue };
            let Some(machine) = self.world.machines.get_mut(member) else { continue };
            machine.renew(count)?;
            let joining = machine.joining(invitation);
            match self.world.wait_at(member, joining, limits::COMMAND)? {
                Some(Ok(())) => {
                    let now = self.world.now();
                    if let Some(machine) = self.world.machines.get_mut(member) {
                        machine.start(now)?;
                    }
                    return Ok(Ok(()));
                }
                Some(Err(why)) => return Ok(Err(why)),
                None => return Ok(Err("joining takes too long".into())),
            }
        }
        Ok(Err("nobody invites".into()))
    }

    /// Waits until every member says that all are in sync; false if that was not in time.
    ///
    /// # Errors
    /// The simulation itself fails.
    pub fn whole(&mut self) -> Result<bool, String> {
        let began = self.world.now();
        let joined = self.rejoin()?;
        let mut why = joined.err();
        let mut in_time = false;
        while why.is_none() || self.world.now() < began + limits::WHOLE {
            if self.removed.is_empty() {
                match looks::whole(self.world)? {
                    Ok(_) => {
                        in_time = self.world.now() <= began + limits::WHOLE;
                        why.get_or_insert_with(|| "it took too long".into());
                        break;
                    }
                    Err(not) => why = Some(not),
                }
            }
            self.rest(WHOLE_PAUSE)?;
        }
        let took = self.world.now().saturating_sub(began);
        self.recorder.take(events::whole(took, (!in_time).then(|| why.unwrap_or_default())));
        self.lately.clear();
        Ok(in_time)
    }
}
