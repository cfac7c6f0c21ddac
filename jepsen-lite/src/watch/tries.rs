//! Which keys are tried at a member: each that was just answered, and now and then one that was answered lately, for a member
//! that has come back must have what was answered before; and each that was just deleted. Pure.

use crate::history::{Event, Function, Kind};
use std::collections::VecDeque;

/// One of so many keys that were answered lately is tried with each new one.
const LATELY: usize = 8;

/// What becomes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its creation was answered.
    Made(i64),
    /// Its deletion was answered.
    Gone(i64),
}

impl News {
    /// What an event of a client's tells.
    pub fn of(event: &Event) -> Option<Self> {
        match (&event.function, event.kind, event.value.int()) {
            (Function::Create, Kind::Ok, Some(id)) => Some(Self::Made(id)),
            (Function::Delete, Kind::Ok, Some(id)) => Some(Self::Gone(id)),
            _ => None,
        }
    }
}

/// What one member is asked for.
#[derive(Clone, Debug, Default)]
pub struct Tries {
    /// Keys that were answered lately, the one that waits longest first.
    lately: VecDeque<i64>,
}

impl Tries {
    /// The keys to try next, and as what. Of much news, which comes while a member hangs, the last is tried.
    pub fn next(&mut self, news: impl Iterator<Item = News>) -> Vec<(Function, i64)> {
        let (mut made, mut gone) = (None, None);
        for one in news {
            match one {
                News::Made(id) => {
                    self.lately.extend(made.replace(id));
                    self.lately.drain(..self.lately.len().saturating_sub(LATELY));
                }
                News::Gone(id) => {
                    self.lately.retain(|other| *other != id);
                    made = made.filter(|made| *made != id);
                    gone = Some(id);
                }
            }
        }
        let there: Vec<i64> = self.lately.pop_front().into_iter().chain(made).collect();
        self.lately.extend(&there);
        let there = there.into_iter().map(|id| (Function::Probe, id));
        there.chain(gone.map(|id| (Function::Ghost, id))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(tries: &mut Tries, news: &[News]) -> Vec<(Function, i64)> {
        tries.next(news.iter().copied())
    }

    #[test]
    fn what_was_answered_lately_is_tried_until_it_is_gone() {
        let mut tries = Tries::default();
        assert_eq!(next(&mut tries, &[]), []);
        assert_eq!(next(&mut tries, &[News::Made(1)]), [(Function::Probe, 1)]);
        assert_eq!(next(&mut tries, &[News::Made(2)]), [(Function::Probe, 1), (Function::Probe, 2)]);
        assert_eq!(next(&mut tries, &[]), [(Function::Probe, 1)]);
        assert_eq!(next(&mut tries, &[]), [(Function::Probe, 2)]);
        assert_eq!(next(&mut tries, &[News::Gone(1)]), [(Function::Probe, 2), (Function::Ghost, 1)]);
        assert_eq!(next(&mut tries, &[News::Made(3), News::Gone(3), News::Gone(2)]), [(Function::Ghost, 2)]);
        assert_eq!(next(&mut tries, &[]), []);
    }

    #[test]
    fn few_are_kept() {
        let mut tries = Tries::default();
        let many: Vec<News> = (0..100).map(News::Made).collect();
        assert_eq!(next(&mut tries, &many), [(Function::Probe, 91), (Function::Probe, 99)]);
        assert!(tries.lately.len() <= LATELY + 1);
    }

    #[test]
    fn answered_creations_and_deletions_are_news() {
        let event = |function, kind| Event { kind, ..Event::nemesis(function, crate::edn::Value::Int(7)) };
        assert_eq!(News::of(&event(Function::Create, Kind::Ok)), Some(News::Made(7)));
        assert_eq!(News::of(&event(Function::Delete, Kind::Ok)), Some(News::Gone(7)));
        assert_eq!(News::of(&event(Function::Delete, Kind::Info)), None);
        assert_eq!(News::of(&event(Function::Use, Kind::Ok)), None);
    }
}
