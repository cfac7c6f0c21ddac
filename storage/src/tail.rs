use crate::limits::TAIL_MAX_BYTES;
use keyraft_engine::consensus::types::{Entry, LogId, Vote};
use std::collections::VecDeque;

/// The log as memory sees it: its bounds, and its newest entries. Appended entries are here before they are on
/// disk; entries leave from the front once they are durable and the budget is spent.
#[derive(Debug, Default)]
pub struct Tail {
    /// The last purged entry.
    pub purged: Option<LogId>,
    /// Index of the first entry.
    pub first: u64,
    /// The last entry; the purged one if there is none.
    pub last: Option<LogId>,
    /// The vote.
    pub vote: Option<Vote>,
    /// The last committed entry that openraft told of.
    pub committed: Option<LogId>,
    /// Rises with every truncation: who reads around one reads again.
    pub epoch: u64,
    end: u64,
    durable: u64,
    recent: VecDeque<(Entry, usize)>,
    recent_bytes: usize,
}

impl Tail {
    /// A log whose entries from `first` to below `end` are on disk.
    pub fn new(purged: Option<LogId>, first: u64, end: u64, last: Option<LogId>) -> Self {
        Self { purged, first, end, durable: end, last: last.or(purged), ..Self::default() }
    }

    /// One past the last entry.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Index of the oldest entry held here; older ones are on disk.
    pub fn recent_from(&self) -> u64 {
        self.end - self.recent.len() as u64
    }

    /// Where the next entry must go; None if anywhere.
    pub fn expects(&self) -> Option<u64> {
        (self.end > self.first || self.purged.is_some()).then_some(self.end)
    }

    /// Adds an entry that takes `bytes` on disk. The caller has compared its index with [`Tail::expects`].
    pub fn push(&mut self, entry: Entry, bytes: usize) {
        if self.expects().is_none() {
            self.first = entry.log_id.index;
            self.durable = self.first;
        }
        self.end = entry.log_id.index + 1;
        self.last = Some(entry.log_id);
        self.recent.push_back((entry, bytes));
        self.recent_bytes += bytes;
    }

    /// Notes that everything below `end` is on disk.
    pub fn durable(&mut self, end: u64) {
        self.durable = end;
        while self.recent_bytes > TAIL_MAX_BYTES && self.recent_from() < self.durable {
            self.drop_front();
        }
    }

    /// Cuts the log behind `last`.
    pub fn truncate(&mut self, last: Option<LogId>) {
        let end = last.map_or(self.first, |id| id.index + 1).clamp(self.first, self.end);
        while self.end > end {
            self.end -= 1;
            if let Some((_, bytes)) = self.recent.pop_back() {
                self.recent_bytes -= bytes;
            }
        }
        if last.is_none_or(|id| id.index < end) {
            self.last = if end == self.first { self.purged } else { last };
        }
        self.durable = self.durable.min(end);
        self.epoch += 1;
    }

    /// Drops entries up to and with `upto`. False if they are gone already.
    pub fn purge(&mut self, upto: LogId) -> bool {
        if self.purged.is_some_and(|purged| upto.index <= purged.index) {
            return false;
        }
        self.purged = Some(upto);
        self.first = self.first.max(upto.index + 1);
        while !self.recent.is_empty() && self.recent_from() < self.first {
            self.drop_front();
        }
        self.durable = self.durable.max(self.first);
        if self.end <= self.first {
            self.end = self.first;
            self.last = Some(upto);
        }
        true
    }

    /// Recent entries from `start` to below `end`, and their bytes.
    pub fn recent(&self, start: u64, end: u64) -> impl Iterator<Item = &(Entry, usize)> {
        let from = self.recent_from();
        let skip = usize::try_from(start.saturating_sub(from)).unwrap_or(usize::MAX);
        let take = usize::try_from(end.saturating_sub(start.max(from))).unwrap_or(usize::MAX);
        self.recent.iter().skip(skip).take(take)
    }

    fn drop_front(&mut self) {
        if let Some((_, bytes)) = self.recent.pop_front() {
            self.recent_bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::consensus::types::TypeConfig;
    use openraft::testing::common::{blank_ent, log_id};

    fn entry(index: u64) -> Entry {
        blank_ent::<TypeConfig>(1, 1, index)
    }

    fn indexes(tail: &Tail) -> Vec<u64> {
        tail.recent(0, u64::MAX).map(|(e, _)| e.log_id.index).collect()
    }

    #[test]
    fn only_durable_entries_leave_memory() {
        let mut tail = Tail::default();
        (0..5).for_each(|i| tail.push(entry(i), TAIL_MAX_BYTES / 2));
        assert_eq!(indexes(&tail), [0, 1, 2, 3, 4]);
        tail.durable(2);
        assert_eq!((indexes(&tail), tail.recent_from()), (vec![2, 3, 4], 2));
        tail.durable(5);
        assert_eq!(indexes(&tail), [3, 4]);
    }

    #[test]
    fn truncate_and_purge_keep_the_bounds() {
        let mut tail = Tail::default();
        (0..6).for_each(|i| tail.push(entry(i), 10));
        assert!(tail.purge(log_id::<TypeConfig>(1, 1, 1)));
        assert!(!tail.purge(log_id::<TypeConfig>(1, 1, 0)));
        assert_eq!((tail.first, tail.end(), indexes(&tail)), (2, 6, vec![2, 3, 4, 5]));
        tail.truncate(Some(log_id::<TypeConfig>(1, 1, 3)));
        assert_eq!((tail.end(), tail.last.map(|l| l.index), indexes(&tail)), (4, Some(3), vec![2, 3]));
        tail.truncate(None);
        assert_eq!((tail.end(), tail.last.map(|l| l.index), tail.expects()), (2, Some(1), Some(2)));
        assert!(tail.purge(log_id::<TypeConfig>(4, 1, 20)));
        assert_eq!((tail.first, tail.end(), tail.last.map(|l| l.index)), (21, 21, Some(20)));
    }
}
