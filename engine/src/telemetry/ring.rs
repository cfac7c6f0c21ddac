//! The last things of a kind: a new one takes the place of the oldest.

use parking_lot::Mutex;
use std::collections::VecDeque;

/// Holds at most so many.
#[derive(Debug)]
pub struct Ring<T> {
    max: usize,
    kept: Mutex<VecDeque<T>>,
}

impl<T: Clone> Ring<T> {
    /// An empty ring for `max` things.
    pub fn new(max: usize) -> Self {
        Self { max, kept: Mutex::new(VecDeque::new()) }
    }

    /// Notes one.
    pub fn push(&self, thing: T) {
        let mut kept = self.kept.lock();
        let oldest = if kept.len() >= self.max { kept.pop_front() } else { None };
        kept.push_back(thing);
        drop(kept);
        // Freed outside the lock.
        drop(oldest);
    }

    /// The last `count` that `wanted` takes, oldest first.
    pub fn last(&self, count: usize, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let kept = self.kept.lock();
        let mut found: Vec<T> =
            kept.iter().rev().filter(|thing| wanted(thing)).take(count).cloned().collect();
        drop(kept);
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_last_ones() {
        let ring = Ring::new(3);
        (1..=5).for_each(|n| ring.push(n));
        assert_eq!(ring.last(9, |_| true), [3, 4, 5]);
        assert_eq!(ring.last(1, |n| n % 2 == 1), [5]);
    }
}
