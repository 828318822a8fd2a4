//! When the bytes of a stream were sent for the first time.
//!
//! Transmissions that are close together share an entry, with the times of the first and the last. Round trips
//! are measured from the first; comparisons such as "sent later than" use the last.
//!
//! One log serves all receivers of a synchronised group: it is the part of their state that they
//! share. Offsets and times both grow along it, so that "everything sent before then" is one search.

use alloc::collections::VecDeque;

use proto_core::time::{Duration, Instant};

/// Entries of a log; beyond it neighbours are merged: they span a twenty-fourth of the log's time.
pub(crate) const MAX_ENTRIES: usize = 48;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// End of this entry; it begins where the previous one ends.
    end: u64,
    /// First and last sending.
    first: Instant,
    last: Instant,
}

/// First transmissions, oldest first; 24 bytes an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentLog {
    entries: VecDeque<Entry>,
}

impl SentLog {
    /// Bytes up to `end` were sent now. Sendings within `quantum` of each other share an entry.
    pub(crate) fn push(&mut self, end: u64, now: Instant, quantum: Duration) {
        if let Some(last) = self.entries.back_mut()
            && now <= last.first + quantum
        {
            (last.end, last.last) = (end, now);
            return;
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.compact();
        }
        self.entries.push_back(Entry {
            end,
            first: now,
            last: now,
        });
    }

    /// Two and two entries become one.
    fn compact(&mut self) {
        for pair in 0..self.entries.len() / 2 {
            self.entries[pair] = Entry {
                first: self.entries[2 * pair].first,
                ..self.entries[2 * pair + 1]
            };
        }
        self.entries.truncate(self.entries.len() / 2);
    }

    /// Bytes before `offset` will not be asked for again.
    pub(crate) fn release(&mut self, offset: u64) {
        while self
            .entries
            .front()
            .is_some_and(|entry| entry.end <= offset)
        {
            self.entries.pop_front();
        }
    }

    /// The time at which the byte at `offset` was sent first, at the earliest and at the latest;
    /// `None` when it was not sent, or is forgotten.
    pub(crate) fn times_of(&self, offset: u64) -> Option<(Instant, Instant)> {
        let at = self.entries.partition_point(|entry| entry.end <= offset);
        self.entries.get(at).map(|entry| (entry.first, entry.last))
    }

    /// Behind the last byte whose first sending was certainly at this time or earlier.
    pub(crate) fn sent_by(&self, time: Instant) -> u64 {
        let at = self.entries.partition_point(|entry| entry.last <= time);
        at.checked_sub(1).map_or(0, |at| self.entries[at].end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTUM: Duration = Duration::from_millis(2);

    fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn sendings_close_together_share_an_entry() {
        let mut log = SentLog::default();
        for (end, millis) in [(10, 0), (20, 1), (30, 2), (40, 3), (50, 9)] {
            log.push(end, at(millis), QUANTUM);
        }
        assert_eq!(log.times_of(0), Some((at(0), at(2))));
        assert_eq!(log.times_of(29), Some((at(0), at(2))));
        assert_eq!(log.times_of(30), Some((at(3), at(3))));
        assert_eq!(log.times_of(50), None);
        assert_eq!(log.sent_by(at(1)), 0, "not all of the first entry");
        assert_eq!(log.sent_by(at(2)), 30);
        assert_eq!(log.sent_by(at(100)), 50);
        log.release(35);
        assert_eq!(
            log.times_of(0),
            Some((at(3), at(3))),
            "nothing is known of what was released"
        );
        log.release(50);
        assert_eq!(log.sent_by(at(100)), 0);
        assert!(log.entries.is_empty());
    }

    #[test]
    fn beyond_the_limit_two_and_two_entries_become_one() {
        let mut log = SentLog::default();
        let entries = MAX_ENTRIES as u64;
        for number in 0..entries {
            log.push(10 * (number + 1), at(10 * number as i64), QUANTUM);
        }
        assert_eq!(log.entries.len(), MAX_ENTRIES);
        log.push(10 * (entries + 1), at(10 * entries as i64), QUANTUM);
        assert_eq!(log.entries.len(), MAX_ENTRIES / 2 + 1);
        for number in 0..entries {
            let first = 10 * (number as i64 & !1);
            assert_eq!(log.times_of(10 * number), Some((at(first), at(first + 10))));
        }
        assert_eq!(log.times_of(10 * entries), Some((at(480), at(480))));
    }
}
