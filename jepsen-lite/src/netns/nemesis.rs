//! Breaks and mends, and writes down both: a fault's beginning before it is done, its end after it is mended.

use super::cluster::Cluster;
use super::deeds::Deeds;
use super::ends;
use super::looks::Look;
use super::recorder::Recorder;
use crate::dice::Dice;
use crate::limits;
use crate::nemesis::{Fault, Hit, Strike, events, hit, lasts, round};
use crate::watch;
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::LogIndex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whoever breaks.
pub struct Nemesis<'a> {
    deeds: Deeds<'a>,
    /// Where it is written down.
    recorder: &'a Recorder,
    /// Which faults.
    faults: &'a [Fault],
    /// How many clients work.
    clients: usize,
    active: Vec<(Strike, Hit)>,
    /// Faults since all was whole, and whom they hit.
    lately: BTreeSet<(Fault, usize)>,
}

impl<'a> Nemesis<'a> {
    /// One that has broken nothing yet.
    pub fn new(
        cluster: &'a mut Cluster,
        look: &'a Look,
        recorder: &'a Recorder,
        stop: &'a AtomicBool,
        faults: &'a [Fault],
        clients: usize,
    ) -> Self {
        let deeds = Deeds { cluster, look, stop };
        Self { deeds, recorder, faults, clients, active: Vec::new(), lately: BTreeSet::new() }
    }

    /// Round after round until so much time is over. Ends with a group that is whole, or was not in time.
    pub fn work(&mut self, seed: u64, time: Duration, told: &mut dyn FnMut(&str)) -> Result<(), String> {
        let (mut dice, mut done) = (Dice::new(seed), Vec::new());
        let (until, lasts) = (Clock.now() + time, lasts(self.faults, time));
        // Each fault comes once, however short the time is.
        while self.faults.iter().any(|fault| !done.contains(fault))
            || (Clock.now() < until && !self.faults.is_empty())
        {
            let strikes = round(self.faults, &mut done, lasts, &mut dice);
            if !self.round(&strikes, &mut dice, told)? {
                return Ok(());
            }
        }
        self.rest(until.saturating_duration_since(Clock.now()))
    }

    /// False if the group did not become whole in time.
    fn round(
        &mut self,
        strikes: &[Strike],
        dice: &mut Dice,
        told: &mut dyn FnMut(&str),
    ) -> Result<bool, String> {
        let began = Clock.now();
        let mut times: Vec<(u64, bool, Strike)> =
            strikes.iter().flat_map(|s| [(s.begins, true, *s), (s.ends, false, *s)]).collect();
        times.sort_by_key(|(at, begins, _)| (*at, *begins));
        for (at, begins, strike) in times {
            let at = began + Duration::from_millis(at);
            self.rest(at.saturating_duration_since(Clock.now()))?;
            if begins {
                told(&strike.to_string());
                self.begin(strike, dice)?;
            } else {
                self.end(strike)?;
            }
        }
        told("healing");
        self.whole(self.clients)
    }

    fn rest(&mut self, time: Duration) -> Result<(), String> {
        let end = Clock.now() + time;
        while Clock.now() < end {
            self.note_ends();
            if self.deeds.stop.load(Ordering::Relaxed) {
                return Err("stopped".into());
            }
            std::thread::sleep(Duration::from_millis(10).min(time));
        }
        Ok(())
    }

    /// A process that ends by itself without its own disk or token to blame is a fault of the member's.
    fn note_ends(&mut self) {
        for (member, why) in self.deeds.cluster.ends() {
            let hits = self.lately.iter().filter(|(_, hit)| *hit == member);
            let excused = ends::excused(&why, &hits.map(|(fault, _)| *fault).collect());
            self.recorder.take(watch::ended(member, why, excused));
        }
    }

    fn begin(&mut self, strike: Strike, dice: &mut Dice) -> Result<(), String> {
        let count = self.deeds.cluster.count();
        let hit = hit(strike, count, self.deeds.look.primary(), dice);
        self.lately.extend(hit.members.iter().map(|member| (strike.fault, *member)));
        self.active.push((strike, hit.clone()));
        let hits: Vec<Hit> = self.active.iter().map(|(_, hit)| hit.clone()).collect();
        self.recorder.take(events::begins(strike, &hit, &hits, count));
        self.deeds.begin(&hit, &hits, dice)
    }

    fn end(&mut self, strike: Strike) -> Result<(), String> {
        let Some(at) = self.active.iter().position(|(active, _)| *active == strike) else { return Ok(()) };
        let (_, hit) = self.active.remove(at);
        let others: Vec<Hit> = self.active.iter().map(|(_, hit)| hit.clone()).collect();
        self.deeds.end(&hit, &others)?;
        self.recorder.take(events::ends(strike));
        Ok(())
    }

    /// Waits until every member says that all are in sync, while so many clients work; false if that was not in time.
    pub fn whole(&mut self, clients: usize) -> Result<bool, String> {
        let began = Clock.now();
        let mut why = String::new();
        let mut in_time = false;
        // What one has applied at the first look that finds all in sync, all must have at the next.
        let mut seen = None;
        while Clock.now() < began + limits::WHOLE {
            if let Some(member) =
                (0..self.deeds.cluster.count()).find(|member| self.deeds.cluster.ended(*member))
            {
                why = format!("the process of member {member} has ended by itself");
                break;
            }
            match self.deeds.look.whole(self.deeds.cluster, clients, seen.unwrap_or(LogIndex(0))) {
                Ok(_) if seen.is_some() => {
                    in_time = true;
                    break;
                }
                Ok(foremost) => {
                    why = format!("not all have applied up to {foremost} yet");
                    seen = Some(foremost);
                }
                Err(not) => why = not,
            }
            self.rest(Duration::from_millis(50))?;
        }
        let took = Clock.now().saturating_duration_since(began);
        self.note_ends();
        self.lately.clear();
        self.recorder.take(events::whole(took, (!in_time).then_some(why)));
        Ok(in_time)
    }
}
