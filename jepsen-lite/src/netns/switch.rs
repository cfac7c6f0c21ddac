//! The switch between the members: every packet goes through this process, which drops, doubles, and delays it as the nemesis
//! wants, and listens for keys in clear in what members say to each other.

use super::leaks::{Ear, FLOW_BYTES};
use crate::dice::Dice;
use crate::limits;
use keyraft_engine::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the links of one member do to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bad {
    /// Of a hundred packets so many are lost.
    pub loss: u64,
    /// Of a hundred packets so many come twice.
    pub twice: u64,
    /// Each comes late by up to so many milliseconds, and so not in order.
    pub late_ms: u64,
}

/// What the nemesis wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weather {
    /// Nothing from the first reaches the second.
    cut: BTreeSet<(usize, usize)>,
    bad: Vec<Bad>,
}

impl Weather {
    /// Both ends' links count.
    fn between(&self, from: usize, to: usize) -> Bad {
        let of = |member: usize| self.bad.get(member).copied().unwrap_or_default();
        let (one, other) = (of(from), of(to));
        Bad {
            loss: one.loss.max(other.loss),
            twice: one.twice.max(other.twice),
            late_ms: one.late_ms.max(other.late_ms),
        }
    }

    /// How much later each copy of a packet comes, milliseconds; none for one that is lost.
    fn fate(&self, from: usize, to: usize, dice: &mut Dice) -> Vec<u64> {
        let bad = self.between(from, to);
        if self.cut.contains(&(from, to)) || dice.below(100) < bad.loss {
            return Vec::new();
        }
        let copies = if dice.below(100) < bad.twice { 2 } else { 1 };
        (0..copies).map(|_| if bad.late_ms == 0 { 0 } else { dice.below(bad.late_ms + 1) }).collect()
    }
}

/// The switch. It goes with its value.
#[derive(Debug)]
pub struct Switch {
    weather: Arc<Mutex<Weather>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Ear>>,
}

impl Switch {
    /// Switches between these devices, by their place; the ear hears all of it.
    pub fn new(ports: Vec<OwnedFd>, seed: u64, ear: Ear) -> Self {
        let weather =
            Arc::new(Mutex::new(Weather { bad: vec![Bad::default(); ports.len()], ..Weather::default() }));
        let end = Arc::new(AtomicBool::new(false));
        let dice = Dice::new(seed);
        let worker =
            Worker { ports, weather: Arc::clone(&weather), dice, late: BinaryHeap::new(), number: 0, ear };
        let stop = Arc::clone(&end);
        let thread = std::thread::spawn(move || worker.work(&stop));
        Self { weather, end, thread: Some(thread) }
    }

    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on exactly these links are cut: nothing from the first reaches the second, and nobody is told.
    pub fn cut(&self, cut: BTreeSet<(usize, usize)>) {
        self.weather().cut = cut;
    }

    /// From now on a member's links do this.
    pub fn spoil(&self, member: usize, change: impl Fn(&mut Bad)) {
        self.weather().bad.get_mut(member).into_iter().for_each(change);
    }

    /// Ends it; gives what was heard. None if it was ended before.
    pub fn end(&mut self) -> Option<Ear> {
        self.end.store(true, Ordering::Relaxed);
        // A thread that panicked has said so, and heard nothing.
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sorted by when it is due, then by when it came.
type Late = Reverse<(Instant, u64, usize, Vec<u8>)>;

struct Worker {
    ports: Vec<OwnedFd>,
    weather: Arc<Mutex<Weather>>,
    dice: Dice,
    late: BinaryHeap<Late>,
    number: u64,
    ear: Ear,
}

/// How often the thread looks whether it shall end.
const LOOK: Duration = Duration::from_millis(100);

impl Worker {
    fn work(mut self, end: &AtomicBool) -> Ear {
        let mut packet = vec![0; usize::from(u16::MAX)];
        while !end.load(Ordering::Relaxed) {
            self.wait();
            for from in 0..self.ports.len() {
                while let Some(Ok(count)) =
                    self.ports.get(from).map(|port| rustix::io::read(port, &mut packet))
                {
                    self.take(from, packet.get(..count).unwrap_or_default());
                }
            }
            self.deliver();
        }
        self.ear
    }

    /// Until a packet comes or is due.
    fn wait(&self) {
        let next = self.late.peek().map(|Reverse((due, ..))| due.saturating_duration_since(Clock.now()));
        let wait = next.unwrap_or(LOOK).min(LOOK);
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let mut all: Vec<PollFd<'_>> =
            self.ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
        // A signal ends the wait early, which harms nobody.
        let _ = poll(&mut all, Some(&wait));
    }

    fn take(&mut self, from: usize, packet: &[u8]) {
        // Addresses are 10.77.0.1 and so on; whatever else a machine sends is for nobody.
        let [10, 77, 0, last] = packet.get(16..20).unwrap_or_default() else { return };
        let to = usize::from(*last).wrapping_sub(1);
        if to >= self.ports.len() || to == from {
            return;
        }
        if let Some((flow, said)) = parsed(packet) {
            self.ear.hear(flow, said);
        }
        let weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        let fate = weather.fate(from, to, &mut self.dice);
        drop(weather);
        for late in fate {
            if late == 0 {
                self.send(to, packet);
            } else if self.late.len() < limits::LATE_PACKETS_MAX {
                self.number += 1;
                let due = Clock.now() + Duration::from_millis(late);
                self.late.push(Reverse((due, self.number, to, packet.to_vec())));
            }
        }
    }

    fn send(&self, to: usize, packet: &[u8]) {
        if let Some(port) = self.ports.get(to) {
            // A full queue loses packets, as a switch's does.
            let _ = rustix::io::write(port, packet);
        }
    }

    fn deliver(&mut self) {
        let now = Clock.now();
        while self.late.peek().is_some_and(|Reverse((due, ..))| *due <= now) {
            if let Some(Reverse((_, _, to, packet))) = self.late.pop() {
                self.send(to, &packet);
            }
        }
    }
}

/// What a packet of TCP says, and in which direction of which connection.
fn parsed(packet: &[u8]) -> Option<([u8; FLOW_BYTES], &[u8])> {
    let begin = usize::from(packet.first()? & 0x0f) * 4;
    let tcp = packet.get(begin..).filter(|_| packet.get(9) == Some(&6))?;
    let said = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
    let mut flow = [0; FLOW_BYTES];
    flow[..8].copy_from_slice(packet.get(12..20)?);
    flow[8..].copy_from_slice(tcp.get(..4)?);
    Some((flow, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_links_do_what_they_shall_about_as_often() {
        let mut weather = Weather { bad: vec![Bad::default(); 3], ..Weather::default() };
        weather.bad[1] = Bad { loss: 20, twice: 50, late_ms: 9 };
        let mut dice = Dice::new(4);
        let fates: Vec<Vec<u64>> = (0..1000).map(|_| weather.fate(0, 1, &mut dice)).collect();
        let with = |copies: usize| fates.iter().filter(|fate| fate.len() == copies).count();
        assert!((150..250).contains(&with(0)), "{}", with(0));
        assert!((300..500).contains(&with(2)), "{}", with(2));
        assert!(
            fates.iter().flatten().all(|late| *late <= 9) && fates.iter().flatten().any(|late| *late > 5)
        );
        assert_eq!(weather.fate(0, 2, &mut dice), [0], "other links are good");
        weather.cut.insert((2, 0));
        assert_eq!(weather.fate(2, 0, &mut dice), [0; 0]);
        assert_eq!(weather.fate(0, 2, &mut dice), [0], "the other way is open");
    }

    #[test]
    fn what_a_packet_says_is_found_behind_its_heads() {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
        packet.extend([1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(b"hello");
        let (flow, said) = parsed(&packet).expect("is TCP");
        assert_eq!(said, b"hello");
        assert_eq!(flow, [10, 77, 0, 1, 10, 77, 0, 2, 1, 2, 3, 4]);
        packet[9] = 17;
        assert_eq!(parsed(&packet), None, "is no TCP");
        assert_eq!(parsed(&[0x45]), None);
    }
}
