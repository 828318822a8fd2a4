//! What was asked for and has not come: one entry a block.

use managed::ManagedSlice;
use proto_core::time::Instant;

/// One block's missing packets: an entry of the caller's storage.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// 0: free.
    pub(crate) mask: u64,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    pub(crate) block: u32,
    pub(crate) tag: u16,
    /// Requests sent; the next one has this number + 1.
    pub(crate) attempts: u8,
    /// The last request went to the source alone.
    pub(crate) by_source: bool,
}

impl Default for Ask {
    fn default() -> Self {
        Ask {
            mask: 0,
            sent: Instant::ZERO,
            deadline: Instant::ZERO,
            block: 0,
            tag: 0,
            attempts: 0,
            by_source: false,
        }
    }
}

/// A packet that was asked for has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) sent: Instant,
    pub(crate) by_source: bool,
    /// It answers the latest request.
    pub(crate) answers: bool,
    /// Requests for it.
    pub(crate) attempts: u8,
}

/// A bounded table of asks.
#[derive(Debug)]
pub(crate) struct Asks<'a> {
    table: ManagedSlice<'a, Ask>,
    outstanding: u32,
    used: usize,
}

impl<'a> Asks<'a> {
    pub(crate) fn new(table: ManagedSlice<'a, Ask>) -> Self {
        let mut asks = Asks {
            table,
            outstanding: 0,
            used: 0,
        };
        asks.clear();
        asks
    }

    pub(crate) fn clear(&mut self) {
        self.table.fill(Ask::default());
        self.outstanding = 0;
        self.used = 0;
    }

    /// Packets asked for that have not come.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used == self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Packets of that block that are being asked for.
    pub(crate) fn mask_of(&self, block: u64) -> u64 {
        let of_block = self.table.iter().filter(|ask| ask.block == block as u32);
        of_block.fold(0, |mask, ask| mask | ask.mask)
    }

    /// Whether there was room.
    pub(crate) fn add(&mut self, block: u64, mask: u64, attempts: u8, deadline: Instant) -> bool {
        let Some(free) = self.table.iter_mut().find(|ask| ask.mask == 0) else {
            return false;
        };
        let sent = deadline;
        *free = Ask {
            mask,
            sent,
            deadline,
            block: block as u32,
            tag: 0,
            attempts,
            by_source: false,
        };
        self.outstanding += mask.count_ones();
        self.used += 1;
        true
    }

    /// A packet has come; what was asked, if it was.
    pub(crate) fn arrived(&mut self, block: u64, bit: u64, tag: Option<u16>) -> Option<Arrival> {
        let ask = self
            .table
            .iter_mut()
            .find(|ask| ask.mask & bit != 0 && ask.block == block as u32)?;
        ask.mask &= !bit;
        let answers = ask.attempts > 0 && tag == Some(ask.tag);
        let arrival = Arrival {
            sent: ask.sent,
            by_source: ask.by_source,
            answers,
            attempts: ask.attempts,
        };
        if ask.mask == 0 {
            self.used -= 1;
        }
        self.outstanding -= 1;
        Some(arrival)
    }

    /// Forgets what lies at or past packet `index` of `block`.
    pub(crate) fn clip(&mut self, block: u64, index: u32) {
        for ask in self.table.iter_mut().filter(|ask| ask.mask != 0) {
            let keep = match u64::from(ask.block).cmp(&block) {
                core::cmp::Ordering::Less => u64::MAX,
                core::cmp::Ordering::Equal => crate::geometry::low_bits(index),
                core::cmp::Ordering::Greater => 0,
            };
            self.outstanding -= (ask.mask & !keep).count_ones();
            ask.mask &= keep;
            if ask.mask == 0 {
                self.used -= 1;
            }
        }
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Ask> {
        self.table.iter_mut().filter(|ask| ask.mask != 0)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.table
            .iter()
            .filter(|ask| ask.mask != 0)
            .map(|ask| ask.deadline)
            .min()
    }
}
