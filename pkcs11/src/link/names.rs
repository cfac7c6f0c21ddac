//! The addresses of one member's name. A look-up happens on an application's call and may take many seconds where the
//! resolver is dead, so the last addresses are used for as long as they are young, and names take a small share of all
//! time at most.

use keyraft_engine::clock::Clock;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A name is looked up no sooner again.
const PAUSE: Duration = Duration::from_secs(1);
/// And no sooner than so many times what the last look-up took, unless no member is fit: once in some milliseconds
/// where a resolver answers, hardly ever where it is dead.
const REST: u32 = 600;

/// What is known of a name.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last addresses.
    places: Vec<SocketAddr>,
    /// When the last look-up ended, and what it took.
    last: Option<(Instant, Duration)>,
}

impl Names {
    /// The addresses; `alone` says that no member is fit, so that waiting for a name keeps nobody from better.
    ///
    /// # Errors
    /// None was ever found, as `look_up` says now or said a moment ago.
    pub fn places(
        &self,
        alone: bool,
        look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>>,
    ) -> io::Result<Vec<SocketAddr>> {
        let begun = Clock.now();
        {
            let mut state = self.0.lock();
            let rests = |(ended, took): (Instant, Duration)| {
                let pause = if alone { PAUSE } else { PAUSE.max(took.saturating_mul(REST)) };
                begun.saturating_duration_since(ended) < pause
            };
            if state.last.is_some_and(rests) {
                return state.known();
            }
            // Whoever comes meanwhile need not wait too. Without any address there is nothing else to do.
            if !state.places.is_empty() {
                state.last = Some((begun, PAUSE));
            }
        }
        let found = look_up();
        let ended = Clock.now();
        let mut state = self.0.lock();
        state.last = Some((ended, ended.saturating_duration_since(begun)));
        match found {
            Ok(places) => state.places = places,
            Err(error) if state.places.is_empty() => return Err(error),
            Err(_) => {}
        }
        state.known()
    }
}

impl State {
    fn known(&self) -> io::Result<Vec<SocketAddr>> {
        if self.places.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "its name could not be looked up a moment ago",
            ));
        }
        Ok(self.places.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Vec<SocketAddr> {
        vec![([127, 0, 0, 1], port).into()]
    }

    fn fails() -> io::Result<Vec<SocketAddr>> {
        Err(io::Error::other("no resolver"))
    }

    fn never() -> io::Result<Vec<SocketAddr>> {
        panic!("looked up")
    }

    /// As if the last look-up had ended so long ago, and had taken so long.
    fn past(names: &Names, ago: Duration, took: Duration) {
        let ended = Clock.now().checked_sub(ago).expect("the machine runs for longer");
        names.0.lock().last = Some((ended, took));
    }

    #[test]
    fn a_dead_resolver_costs_nobody_a_wait_while_members_are_fit() {
        let names = Names::default();
        assert_eq!(names.places(false, || Ok(place(1))).expect("is known"), place(1));
        past(&names, Duration::from_secs(60), Duration::from_secs(5));
        assert_eq!(names.places(false, never).expect("is known"), place(1));
        assert_eq!(names.places(true, fails).expect("the last ones do"), place(1));
        assert_eq!(names.places(true, never).expect("just looked up"), place(1));
    }

    #[test]
    fn another_address_is_found() {
        let names = Names::default();
        names.places(false, || Ok(place(1))).expect("is known");
        past(&names, PAUSE, Duration::from_millis(1));
        assert_eq!(names.places(false, || Ok(place(2))).expect("is known"), place(2));
    }

    #[test]
    fn a_name_that_nobody_knows_is_asked_for_again() {
        let names = Names::default();
        names.places(true, fails).expect_err("nobody knows");
        names.places(true, never).expect_err("just asked");
        past(&names, PAUSE, Duration::from_secs(5));
        names.places(false, never).expect_err("others are fit");
        assert_eq!(names.places(true, || Ok(place(1))).expect("is known"), place(1));
    }
}
