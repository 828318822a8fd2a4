//! When the bytes of a stream were sent for the first time.
//!
//! One log serves all receivers of a synchronised group: it is the part of their state that they
//! share. Offsets and times both grow along it, so that "everything sent before then" is one search.

use alloc::collections::VecDeque;

use smoltcp::time::{Duration, Instant};

/// Entries of a log; beyond it neighbours are merged: times lose precision, by a twenty-fourth of what
/// the log spans.
pub(crate) const MAX_ENTRIES: usize = 48;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Behind the last byte of this entry; it begins where the one before ends.
    end: u64,
    time: Instant,
}

/// First transmissions, oldest first; 16 bytes an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentLog {
    entries: VecDeque<Entry>,
}

impl SentLog {
    /// Bytes up to `end` were sent now. Sendings within `quantum` of each other share an entry, and
    /// the time of the first of them.
    pub(crate) fn push(&mut self, end: u64, now: Instant, quantum: Duration) {
        if let Some(last) = self.entries.back_mut()
            && now <= last.time + quantum
        {
            last.end = end;
            return;
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.compact();
        }
        self.entries.push_back(Entry { end, time: now });
    }

    /// Two and two entries become one, with the time of the earlier.
    fn compact(&mut self) {
        for pair in 0..self.entries.len() / 2 {
            self.entries[pair] = Entry {
                end: self.entries[2 * pair + 1].end,
                time: self.entries[2 * pair].time,
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

    /// When the byte at `offset` was sent first; `None` when it was not sent, or is forgotten.
    pub(crate) fn time_of(&self, offset: u64) -> Option<Instant> {
        let at = self.entries.partition_point(|entry| entry.end <= offset);
        self.entries.get(at).map(|entry| entry.time)
    }

    /// Behind the last byte whose first sending was at this time or earlier.
    pub(crate) fn sent_by(&self, time: Instant) -> u64 {
        let at = self.entries.partition_point(|entry| entry.time <= time);
        at.checked_sub(1).map_or(0, |at| self.entries[at].end)
    }
}
