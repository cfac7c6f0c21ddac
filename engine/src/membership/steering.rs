//! When the primary hands over to a better candidate: at once after its election and when it is unfit itself, else
//! only to one that has been better for a while, and not again soon.

use crate::domain::MemberId;
use crate::limits;
use std::time::Instant;

/// What a primary remembers of the candidates. Made anew when it is elected.
#[derive(Clone, Debug)]
pub struct Steering {
    elected: Instant,
    /// Who has been better than this primary, and since when.
    rival: Option<(MemberId, Instant)>,
    tried: Option<Instant>,
    /// False until the first look with everyone's word in.
    settled: bool,
}

/// What the primary sees at one look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The primary itself.
    pub me: MemberId,
    /// False if its token failed: anyone else is better.
    pub fit: bool,
    /// The best candidate.
    pub best: Option<MemberId>,
    /// True if every voter whose process runs has been heard since the election.
    pub whole: bool,
}

impl Steering {
    /// A primary that was elected at this moment.
    pub fn new(elected: Instant) -> Self {
        Self { elected, rival: None, tried: None, settled: false }
    }

    /// To whom to hand over now, if to anyone.
    pub fn decide(&mut self, look: Look, now: Instant) -> Option<MemberId> {
        let since = |then: Instant| now.saturating_duration_since(then);
        let whole = look.whole || since(self.elected) >= limits::MEMBER_DEAD;
        let Some(best) = look.best.filter(|best| *best != look.me) else {
            self.settled |= whole;
            self.rival = None;
            return None;
        };
        let began = match self.rival {
            Some((rival, began)) if rival == best => began,
            _ => now,
        };
        self.rival = Some((best, began));
        let pause = if look.fit { limits::STEER_PAUSE } else { limits::CANARY_EVERY };
        if self.tried.is_some_and(|tried| since(tried) < pause) {
            return None;
        }
        let due = !look.fit || (!self.settled && whole) || since(began) >= limits::STEER_STEADY;
        if !due {
            return None;
        }
        self.settled = true;
        self.tried = Some(now);
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ME: MemberId = MemberId(1);
    const OTHER: MemberId = MemberId(2);

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "a test's beginning of time")]
        let now = Instant::now();
        now
    }

    fn look(best: MemberId) -> Look {
        Look { me: ME, fit: true, best: Some(best), whole: true }
    }

    #[test]
    fn a_new_primary_hands_over_at_once_when_it_has_heard_everyone() {
        let now = start();
        let mut steering = Steering::new(now);
        assert_eq!(steering.decide(Look { whole: false, ..look(OTHER) }, now), None);
        assert_eq!(steering.decide(look(OTHER), now), Some(OTHER));
        // Or when whoever is silent is dead.
        let mut steering = Steering::new(now);
        let later = now + limits::MEMBER_DEAD;
        assert_eq!(steering.decide(Look { whole: false, ..look(OTHER) }, later), Some(OTHER));
    }

    #[test]
    fn a_settled_primary_hands_over_to_a_steady_rival_alone() {
        let mut now = start();
        let mut steering = Steering::new(now);
        assert_eq!(steering.decide(look(ME), now), None);
        // One that comes and goes is no rival.
        for best in [OTHER, ME, OTHER, MemberId(3), OTHER] {
            now += limits::STEER_STEADY - Duration::from_millis(1);
            assert_eq!(steering.decide(look(best), now), None);
        }
        now += limits::STEER_STEADY;
        assert_eq!(steering.decide(look(OTHER), now), Some(OTHER));
        // It failed: not again at once.
        assert_eq!(steering.decide(look(OTHER), now + limits::STEER_STEADY), None);
        assert_eq!(steering.decide(look(OTHER), now + limits::STEER_PAUSE), Some(OTHER));
    }

    #[test]
    fn an_unfit_primary_waits_for_nothing() {
        let now = start();
        let mut steering = Steering::new(now);
        assert_eq!(steering.decide(look(ME), now), None);
        let unfit = Look { fit: false, ..look(OTHER) };
        assert_eq!(steering.decide(unfit, now), Some(OTHER));
        assert_eq!(steering.decide(unfit, now), None);
        assert_eq!(steering.decide(unfit, now + limits::CANARY_EVERY), Some(OTHER));
        // There is nobody else.
        assert_eq!(steering.decide(Look { best: None, ..unfit }, now + limits::STEER_PAUSE), None);
    }
}
