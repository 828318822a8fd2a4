//! How the last segments came: the receiver's side of multicast detection (TCP-XM §2.3, §3.3).

use alloc::boxed::Box;

use crate::seq::Seq;

/// Segments remembered (TCP-XM §2.3: "the value of n defaults to 128").
pub(crate) const SEGMENTS: usize = 128;

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    seq: Seq,
    len: u16,
    multicast: bool,
}

/// The paper's `msegrcv`: sequence number and path of the last 128 data segments.
#[derive(Debug)]
pub(crate) struct Record {
    entries: Box<[Entry; SEGMENTS]>,
    /// Where the next one goes (`msegrcvcnt`).
    at: usize,
    len: usize,
    multicast: usize,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            entries: Box::new([Entry::default(); SEGMENTS]),
            at: 0,
            len: 0,
            multicast: 0,
        }
    }

    /// A data segment arrived, new or not.
    pub(crate) fn push(&mut self, seq: Seq, len: usize, multicast: bool) {
        let entry = Entry {
            seq,
            len: u16::try_from(len).unwrap_or(u16::MAX),
            multicast,
        };
        let old = core::mem::replace(&mut self.entries[self.at], entry);
        if self.len == SEGMENTS {
            self.multicast -= usize::from(old.multicast);
        } else {
            self.len += 1;
        }
        self.multicast += usize::from(multicast);
        self.at = (self.at + 1) % SEGMENTS;
    }

    /// Whether a recorded segment that arrived by multicast contains this number.
    pub(crate) fn came_by_multicast(&self, seq: Seq) -> bool {
        self.entries[..self.len].iter().any(|entry| {
            let into = seq.since(entry.seq);
            entry.multicast && into >= 0 && into < i32::from(entry.len)
        })
    }

    /// Whether the last segment came by multicast.
    pub(crate) fn is_multicast_last(&self) -> bool {
        let last = (self.at + SEGMENTS - 1) % SEGMENTS;
        self.entries[last].multicast
    }

    /// Percentage that came by multicast, rounded to the nearest (`msegrcvper`).
    pub(crate) fn percent(&self) -> u8 {
        if self.len == 0 {
            return 0;
        }
        ((self.multicast * 200 + self.len) / (2 * self.len)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_128_count() {
        let mut record = Record::new();
        assert_eq!(record.percent(), 0);
        for n in 0..200u32 {
            record.push(Seq(n * 10), 10, n >= 100);
        }
        // 72..200 are remembered, of which 100..200 came by multicast.
        assert_eq!(record.percent(), 78);
        assert!(!record.came_by_multicast(Seq(995)));
        assert!(record.came_by_multicast(Seq(1009)));
        assert!(!record.came_by_multicast(Seq(2000)));
    }

    #[test]
    fn pairs_are_exactly_half() {
        let mut record = Record::new();
        for n in 0..300u32 {
            record.push(Seq(n), 1, true);
            record.push(Seq(n), 1, false);
            assert_eq!(record.percent(), 50);
        }
    }
    #[test]
    fn percentages_are_rounded_to_the_nearest() {
        let percent = |multicast: u32, all: u32| {
            let mut record = Record::new();
            for n in 0..all {
                record.push(Seq(n), 1, n < multicast);
            }
            record.percent()
        };
        assert_eq!(percent(1, 3), 33);
        assert_eq!(percent(2, 3), 67);
        assert_eq!(percent(1, 8), 13, "12.5");
        assert_eq!((percent(0, 5), percent(5, 5)), (0, 100));
    }

    #[test]
    fn segments_are_found_by_each_of_their_bytes() {
        let mut record = Record::new();
        record.push(Seq(100), 10, true);
        record.push(Seq(110), 10, false);
        let found = [99, 100, 109, 110, 119].map(|n| record.came_by_multicast(Seq(n)));
        assert_eq!(found, [false, true, true, false, false]);
    }

    #[test]
    fn the_last_segment_is_known_also_where_the_record_wraps() {
        let mut record = Record::new();
        assert!(!record.is_multicast_last());
        for n in 0..300u32 {
            record.push(Seq(n), 1, n % 2 == 0);
            assert_eq!(record.is_multicast_last(), n % 2 == 0, "{n}");
        }
    }
}
