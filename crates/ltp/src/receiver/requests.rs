//! Requests for packets that have not come: one entry for each block.

use managed::ManagedSlice;
use proto_core::time::Instant;

/// The missing packets of one block: an entry of the caller's storage.
#[derive(Clone, Copy, Debug)]
pub struct PendingRequest {
    /// 0: free.
    pub(crate) mask: u64,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    pub(crate) block: u32,
    pub(crate) tag: u16,
    /// Requests sent; the next one has this number plus 1.
    pub(crate) attempts: u8,
    /// The last request went to the source alone.
    pub(crate) by_source: bool,
}

impl Default for PendingRequest {
    fn default() -> Self {
        PendingRequest {
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

/// A packet that was requested and has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) sent: Instant,
    pub(crate) by_source: bool,
    /// It answers the latest request.
    pub(crate) answers: bool,
    /// Requests for it.
    pub(crate) attempts: u8,
}

/// A bounded table of requests.
#[derive(Debug)]
pub(crate) struct Requests<'a> {
    table: ManagedSlice<'a, PendingRequest>,
    outstanding: u32,
    used: usize,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(table: ManagedSlice<'a, PendingRequest>) -> Self {
        let mut requests = Requests {
            table,
            outstanding: 0,
            used: 0,
        };
        requests.clear();
        requests
    }

    pub(crate) fn clear(&mut self) {
        self.table.fill(PendingRequest::default());
        self.outstanding = 0;
        self.used = 0;
    }

    /// Returns how many requested packets have not come.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used == self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the packets of that block that are requested.
    pub(crate) fn mask_of(&self, block: u64) -> u64 {
        let of_block = self
            .table
            .iter()
            .filter(|request| request.block == block as u32);
        of_block.fold(0, |mask, request| mask | request.mask)
    }

    /// Adds a request. Returns false without room.
    pub(crate) fn add(&mut self, block: u64, mask: u64, attempts: u8, deadline: Instant) -> bool {
        let Some(free) = self.table.iter_mut().find(|request| request.mask == 0) else {
            return false;
        };
        let sent = deadline;
        *free = PendingRequest {
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

    /// Removes a packet that has come. Returns its request, if it was requested.
    pub(crate) fn arrived(&mut self, block: u64, bit: u64, tag: Option<u16>) -> Option<Arrival> {
        let request = self
            .table
            .iter_mut()
            .find(|request| request.mask & bit != 0 && request.block == block as u32)?;
        request.mask &= !bit;
        let answers = request.attempts > 0 && tag == Some(request.tag);
        let arrival = Arrival {
            sent: request.sent,
            by_source: request.by_source,
            answers,
            attempts: request.attempts,
        };
        if request.mask == 0 {
            self.used -= 1;
        }
        self.outstanding -= 1;
        Some(arrival)
    }

    /// Forgets packets from `index` of `block` on.
    pub(crate) fn clip(&mut self, block: u64, index: u32) {
        for request in self.table.iter_mut().filter(|request| request.mask != 0) {
            let keep = match u64::from(request.block).cmp(&block) {
                core::cmp::Ordering::Less => u64::MAX,
                core::cmp::Ordering::Equal => crate::geometry::low_bits(index),
                core::cmp::Ordering::Greater => 0,
            };
            self.outstanding -= (request.mask & !keep).count_ones();
            request.mask &= keep;
            if request.mask == 0 {
                self.used -= 1;
            }
        }
    }

    /// Returns a request that is due.
    pub(crate) fn due(&self, now: Instant) -> Option<&PendingRequest> {
        let mut used = self.table.iter().filter(|request| request.mask != 0);
        used.find(|request| request.deadline <= now)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PendingRequest> {
        self.table.iter_mut().filter(|request| request.mask != 0)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.table
            .iter()
            .filter(|request| request.mask != 0)
            .map(|request| request.deadline)
            .min()
    }
}
