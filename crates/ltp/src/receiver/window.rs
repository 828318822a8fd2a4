//! The window over blocks: which packets have come, which blocks are verified.

#[cfg(test)]
mod tests;

use managed::ManagedSlice;
use proto_core::time::{Duration, Instant};

use crate::Geometry;
use crate::digest::Digest;
use crate::wire::digests::MAX_DIGESTS;

/// Where the digest of a block is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// There is none.
    Unknown,
    /// It is that of the bytes that came; none was announced yet.
    Computed,
    /// It was announced, and may be forged.
    Announced,
    /// The source confirmed it: it came with this receiver's nonce, or under the key.
    Confirmed,
}

/// What is known of the bytes of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Packets, or the digest, are missing.
    Open,
    /// They do not match the announced digest, which may be forged.
    Disputed,
    /// They were verified, and are under audit: they are in the store.
    Audited,
    /// The audit has found them to be right.
    Upheld,
    /// They match the digest, or the session has no digests.
    Verified,
}

/// One block of the window: an entry of the caller's storage.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    received: u64,
    /// Packets that came as repairs.
    repaired: u64,
    /// When the last of them came.
    repaired_at: Instant,
    digest: Digest,
    block: u32,
    origin: Origin,
    state: State,
    /// How often its data and a confirmed digest disagreed.
    rejected: u8,
    /// Parity restored some of it.
    restored: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            received: 0,
            repaired: 0,
            repaired_at: Instant::ZERO,
            digest: [0; 32],
            block: u32::MAX,
            origin: Origin::Unknown,
            state: State::Open,
            rejected: 0,
            restored: false,
        }
    }
}

/// What a block is after its bytes and its digest were compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Its bytes are verified.
    Verified,
    /// It waits for packets, for a digest, or for the source to confirm the digest.
    Waits,
    /// The source has confirmed the digest, and the bytes are to be compared with it again.
    Unsettled,
    /// Its bytes disagree with a digest that the source has confirmed.
    Rejected,
}

impl Slot {
    /// Whether the packet of that bit has come.
    #[inline]
    pub(super) fn has(&self, bit: u64) -> bool {
        self.received & bit != 0
    }

    /// The packet of that bit came. Returns all that have come.
    #[inline]
    pub(super) fn add(&mut self, bit: u64) -> u64 {
        self.received |= bit;
        self.received
    }

    /// The packet of that bit came as a repair, to receivers below too.
    #[inline]
    pub(super) fn note_repair(&mut self, bit: u64, now: Instant) {
        self.repaired |= bit;
        self.repaired_at = now;
    }

    fn is_verified(&self) -> bool {
        matches!(self.state, State::Upheld | State::Verified)
    }

    /// Whether the block is whole and waits for a digest.
    fn lacks_digest(&self) -> bool {
        self.origin == Origin::Computed
    }

    /// Whether the block is whole and waits for a digest, or disputes it.
    fn waits(&self) -> bool {
        self.lacks_digest() || self.state == State::Disputed
    }

    fn compare(&mut self, value: Digest, is_keyed: bool) -> Outcome {
        match self.origin {
            Origin::Unknown | Origin::Computed => {
                self.digest = value;
                self.origin = Origin::Computed;
                Outcome::Waits
            }
            _ if self.digest == value => {
                self.state = State::Verified;
                Outcome::Verified
            }
            Origin::Announced if !is_keyed => {
                self.state = State::Disputed;
                Outcome::Waits
            }
            Origin::Announced | Origin::Confirmed => Outcome::Rejected,
        }
    }

    fn announce(&mut self, digest: Digest, is_confirmed: bool) -> Outcome {
        let is_settled = self.is_verified() || self.origin == Origin::Confirmed;
        // The first digest counts until the block has come and disagrees.
        if is_settled || self.origin == Origin::Announced && !is_confirmed {
            return Outcome::Waits;
        }
        let computed = (self.origin == Origin::Computed).then_some(self.digest);
        self.digest = digest;
        self.origin = if is_confirmed {
            Origin::Confirmed
        } else {
            Origin::Announced
        };
        match computed {
            Some(value) => self.compare(value, is_confirmed),
            None if self.state == State::Disputed => Outcome::Unsettled,
            None => Outcome::Waits,
        }
    }
}

/// Blocks that wait for digests.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) first: u64,
    pub(super) last: u64,
    /// They have no digest, and never had a wrong one: other receivers may know it.
    pub(super) may_ask_group: bool,
}

/// The blocks that may be received now, and the bounds of what is final.
#[derive(Debug)]
pub(super) struct Window<'a> {
    /// Block of the latest packet, and the number of its first.
    current: (u64, u64),
    /// First block that is not final; one past the newest block of which a packet came.
    frontier: u64,
    top: u64,
    /// Blocks the window spans: slots, or fewer if the store is smaller.
    span: u64,
    /// The application has taken the blocks below ([`Delivery::Read`](crate::Delivery)); else `u64::MAX`.
    taken: u64,
    /// A ring over blocks; a power of two of them are used.
    slots: ManagedSlice<'a, Slot>,
    mask: usize,
    /// First block of interest.
    start: u64,
    /// Bytes that the application has taken ([`Delivery::Read`](crate::Delivery)).
    consumed: u64,
    /// Blocks that are whole and wait for a digest, or dispute it.
    waiting: u32,
    /// How often data and digests disagreed since a block became final.
    disagreements: u8,
}

impl<'a> Window<'a> {
    pub(super) fn new(slots: ManagedSlice<'a, Slot>) -> Self {
        let bits = slots.len().checked_ilog2();
        let mut window = Window {
            current: (0, 0),
            frontier: 0,
            top: 0,
            span: 0,
            taken: u64::MAX,
            slots,
            mask: bits.map_or(0, |bits| (1 << bits) - 1),
            start: 0,
            consumed: 0,
            waiting: 0,
            disagreements: 0,
        };
        window.clear();
        window
    }

    /// Begins a session at block `start`. `is_read`: the application takes the bytes.
    pub(super) fn begin(&mut self, geometry: &Geometry, start: u64, span: u64, is_read: bool) {
        self.start = start;
        self.span = span;
        self.frontier = start;
        self.top = start;
        self.current = (start, geometry.first_packet(start));
        self.consumed = geometry.block_offset(start);
        self.taken = if is_read { start } else { u64::MAX };
        self.clear();
    }

    fn clear(&mut self) {
        self.slots.fill(Slot::default());
        (self.waiting, self.disagreements) = (0, 0);
    }

    /// Returns how many blocks there are slots for.
    pub(super) fn capacity(&self) -> u64 {
        self.mask as u64 + 1
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    #[inline]
    pub(super) fn frontier(&self) -> u64 {
        self.frontier
    }

    pub(super) fn top(&self) -> u64 {
        self.top
    }

    /// Returns the first block that must stay in the store.
    #[inline]
    pub(super) fn base(&self) -> u64 {
        self.frontier.min(self.taken)
    }

    /// Returns one past the last block that there is room for.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.base() + self.span
    }

    /// Returns one past the last block that a slot is used for.
    pub(super) fn slots_end(&self) -> u64 {
        self.frontier + self.span
    }

    /// Returns block and index of a packet; most packets are of the block of the packet before.
    #[inline]
    pub(super) fn locate(&mut self, geometry: &Geometry, number: u64) -> (u64, u32) {
        let (block, first) = self.current;
        let index = number.wrapping_sub(first);
        if index < u64::from(geometry.packets_per_block()) {
            return (block, index as u32);
        }
        let (block, index) = geometry.locate(number);
        self.current = (block, number - u64::from(index));
        (block, index)
    }

    /// A packet of that block came. Returns whether it is the first of a newer block.
    #[inline]
    pub(super) fn touch(&mut self, block: u64) -> bool {
        let is_newer = block >= self.top;
        self.top = self.top.max(block + 1);
        is_newer
    }

    /// The block at the frontier is final.
    pub(super) fn pass(&mut self) {
        self.frontier += 1;
        self.disagreements = 0;
    }

    /// Every block below `end` is final.
    pub(super) fn pass_all(&mut self, end: u64) {
        (self.frontier, self.top) = (end, end);
        self.clear();
    }

    /// No block is final; every block below `end` came.
    pub(super) fn rewind(&mut self, end: u64) {
        (self.frontier, self.top) = (self.start, end);
        self.clear();
    }

    /// The content has no more than that many blocks.
    pub(super) fn shorten(&mut self, blocks: u64) {
        self.top = self.top.min(blocks).max(self.frontier);
    }

    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The application has taken the bytes before `to`. Returns whether the window moved.
    pub(super) fn consume(&mut self, geometry: &Geometry, to: u64) -> bool {
        let base = self.base();
        self.consumed = to;
        if self.taken != u64::MAX {
            self.taken = to >> geometry.block_exponent();
        }
        self.base() != base
    }

    /// Returns the block's slot, if a packet of the block came and no later block took its slot.
    #[inline]
    fn get(&self, block: u64) -> Option<&Slot> {
        let slot = &self.slots[block as usize & self.mask];
        (slot.block == block as u32).then_some(slot)
    }

    fn is(&self, block: u64, holds: impl FnOnce(&Slot) -> bool) -> bool {
        self.get(block).is_some_and(holds)
    }

    /// Returns the block's slot; empties it if it was another block's.
    #[inline]
    pub(super) fn claim(&mut self, block: u64) -> &mut Slot {
        let slot = &mut self.slots[block as usize & self.mask];
        if slot.block != block as u32 {
            *slot = Slot {
                block: block as u32,
                ..Slot::default()
            };
        }
        slot
    }

    /// Changes the block's slot, and counts the blocks that wait.
    fn change<T>(&mut self, block: u64, change: impl FnOnce(&mut Slot) -> T) -> T {
        let slot = self.claim(block);
        let before = u32::from(slot.waits());
        let result = change(slot);
        let after = u32::from(slot.waits());
        self.waiting = self.waiting + after - before;
        result
    }

    /// Returns the packets of a block that have come.
    #[inline]
    pub(super) fn received(&self, block: u64) -> u64 {
        self.get(block).map_or(0, |slot| slot.received)
    }

    /// Returns the packets of a block that is not final which may be given to other receivers.
    pub(super) fn repairable(&self, block: u64) -> u64 {
        let slot = self.get(block).filter(|slot| slot.state != State::Audited);
        slot.map_or(0, |slot| slot.received)
    }

    /// Returns the packets of a block that came as repairs, to receivers below too, in the last `time`.
    pub(super) fn repaired(&self, block: u64, now: Instant, time: Duration) -> u64 {
        let slot = self.get(block).filter(|slot| now < slot.repaired_at + time);
        slot.map_or(0, |slot| slot.repaired)
    }

    /// Parity of a block that was requested came, to receivers below too: requests of theirs that are on their way are
    /// for one more than they lack.
    pub(super) fn note_parity(&mut self, block: u64, now: Instant) {
        let slot = &mut self.slots[block as usize & self.mask];
        if slot.block == block as u32 {
            slot.repaired |= slot.repaired.wrapping_add(1);
            slot.repaired_at = now;
        }
    }

    /// The packets of a block were restored from parity.
    pub(super) fn restored(&mut self, block: u64, mask: u64) {
        let slot = self.claim(block);
        slot.received |= mask;
        slot.restored = true;
        self.touch(block);
    }

    /// Whether data and a confirmed digest of a block disagreed.
    pub(super) fn was_rejected(&self, block: u64) -> bool {
        self.is(block, |slot| slot.rejected > 0)
    }

    /// Whether a block was restored from parity; from now on it was not.
    pub(super) fn take_restored(&mut self, block: u64) -> bool {
        core::mem::take(&mut self.claim(block).restored)
    }

    /// Whether that packet came as a repair, to receivers below too.
    pub(super) fn was_repaired(&self, block: u64, index: u32) -> bool {
        self.is(block, |slot| slot.repaired & 1 << index != 0)
    }

    /// Whether a packet is missing; a block whose packets (`mask`) are all here but not verified is missing whole.
    pub(super) fn lacks(&self, block: u64, index: u32, mask: u64) -> bool {
        !self.is(block, |slot| {
            slot.has(1 << index) && (slot.received != mask || slot.is_verified())
        })
    }

    /// Returns the digest of a block whose bytes are verified.
    pub(super) fn verified_digest(&self, block: u64) -> Option<&Digest> {
        let slot = self.get(block).filter(|slot| slot.is_verified())?;
        Some(&slot.digest)
    }

    /// Returns the digest of the block at the frontier if its bytes are verified, and whether an audit has found
    /// them in the store.
    #[inline]
    pub(super) fn next_verified(&self) -> Option<(Digest, bool)> {
        let slot = self.get(self.frontier).filter(|slot| slot.is_verified())?;
        Some((slot.digest, slot.state == State::Upheld))
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    pub(super) fn disagreements(&self) -> u8 {
        self.disagreements
    }

    /// Returns the first run of blocks that dispute their digests, else of those that have none and are below
    /// `published`.
    pub(super) fn waiting(&self, published: u64) -> Option<Waiting> {
        let end = self.top.min(self.slots_end());
        let disputes = |block: &u64| self.is(*block, |slot| slot.state == State::Disputed);
        let lacks = |block: &u64| *block < published && self.is(*block, Slot::lacks_digest);
        let disputed = (self.frontier..end).find(disputes);
        let is_disputed = disputed.is_some();
        let first = disputed.or_else(|| (self.frontier..end).find(lacks))?;
        let waits = |block: &u64| {
            if is_disputed {
                disputes(block)
            } else {
                lacks(block)
            }
        };
        let run = (first..end.min(first + MAX_DIGESTS as u64)).take_while(waits);
        Some(Waiting {
            first,
            last: run.last().unwrap_or(first),
            may_ask_group: !is_disputed && self.is(first, |slot| slot.rejected == 0),
        })
    }

    /// Returns the first of these blocks that waits for a digest, or for its verdict in the audit.
    pub(super) fn first_waiting(&self, first: u64, last: u64) -> Option<u64> {
        let open = |slot: &Slot| slot.waits() || slot.state == State::Audited;
        (first.max(self.frontier)..=last).find(|&block| self.is(block, open))
    }

    /// Whether the block at the frontier waits for what the digests of the blocks from `first` on do not bring.
    pub(super) fn is_passed_by(&self, first: u64) -> bool {
        self.is(self.frontier, |slot| {
            slot.state == State::Disputed || slot.lacks_digest() && self.frontier < first
        })
    }

    /// All packets of a block of a session without digests have come.
    #[inline]
    pub(super) fn accept(&mut self, block: u64) {
        self.claim(block).state = State::Verified;
    }

    /// Compares the digest of a block's bytes with the announced one. `is_keyed`: only a host with the key can
    /// have announced that.
    pub(super) fn compare(&mut self, block: u64, value: Digest, is_keyed: bool) -> Outcome {
        self.change(block, |slot| slot.compare(value, is_keyed))
    }

    /// A digest of a block came.
    pub(super) fn announce(&mut self, block: u64, digest: Digest, is_confirmed: bool) -> Outcome {
        self.change(block, |slot| slot.announce(digest, is_confirmed))
    }

    /// A block was rejected. Returns whether its digest is in doubt, in turn with its bytes.
    pub(super) fn reject(&mut self, block: u64) -> bool {
        self.disagreements = self.disagreements.saturating_add(1);
        let slot = self.claim(block);
        slot.rejected = slot.rejected.wrapping_add(1);
        slot.rejected.is_multiple_of(2)
    }

    /// The bytes of a block, which have the digest `value`, wait for another digest.
    pub(super) fn forget_digest(&mut self, block: u64, value: Digest) {
        self.change(block, |slot| {
            slot.digest = value;
            (slot.origin, slot.state) = (Origin::Computed, State::Open);
        });
    }

    /// Keeps only these packets of a block, which is then no longer whole. Returns the others that had come.
    pub(super) fn keep(&mut self, block: u64, real: u64) -> u64 {
        let others = self.received(block) & !real;
        if others != 0 {
            self.change(block, |slot| {
                slot.received &= real;
                slot.repaired &= real;
                if slot.origin == Origin::Computed {
                    slot.origin = Origin::Unknown;
                }
                slot.state = match slot.state {
                    State::Audited | State::Upheld => State::Audited,
                    _ => State::Open,
                };
            });
        }
        others
    }

    /// A block has only these packets. Returns whether it is whole by that.
    pub(super) fn complete(&mut self, block: u64, mask: u64) -> bool {
        let is_whole = self.is(block, |slot| {
            slot.received & mask == mask && !slot.waits() && !slot.is_verified()
        });
        if is_whole {
            self.claim(block).received = mask;
        }
        is_whole
    }

    /// Puts a block that has these packets under audit.
    pub(super) fn audit(&mut self, block: u64, received: u64) {
        self.change(block, |slot| {
            *slot = Slot {
                received,
                block: slot.block,
                state: State::Audited,
                ..Slot::default()
            };
        });
    }

    /// Whether the audit has found a block's bytes to be wrong.
    pub(super) fn has_failed_audit(&self, block: u64) -> bool {
        self.is(block, |slot| {
            !matches!(slot.state, State::Audited | State::Upheld)
        })
    }

    /// The audit has found whether a block's bytes match the source's own digest.
    pub(super) fn judge(&mut self, block: u64, digest: Digest, is_right: bool) {
        self.change(block, |slot| {
            slot.digest = digest;
            slot.origin = Origin::Confirmed;
            slot.state = if is_right { State::Upheld } else { State::Open };
        });
    }
}
