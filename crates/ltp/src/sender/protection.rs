//! Parity of the source: what repairs a block, and how much is sent in advance.

#[cfg(all(test, feature = "alloc"))]
mod tests;

use super::Sender;
use crate::config::Parity;
use crate::pacing::FRAME_OVERHEAD;
use crate::parity::{Encoder, Owned, shard_len};
use crate::replier::{Repair, Target, Wanted, With};
use crate::store::{Store, StoreError};
use crate::wire::parity::{self, PARITY_HEADER_LEN};
use crate::wire::request::Kind;
use crate::{Destination, Geometry, Transmit, tfmcc};

/// Fractions of a packet in which the amount of parity in advance is adapted.
const UNIT: u32 = 64;
/// What a block adds to it of which receivers requested more, and takes from it if they did not: in balance, one block
/// of six is requested.
const MORE: u32 = 15;
const LESS: u32 = 3;
/// The most parity in advance when it is adapted, as a part of the block: receivers that request without need cost no
/// more than that.
const MOST_IN_ADVANCE: u32 = 5;
/// A request for more than this part of a block is not of random losses: the receiver joined late, or was cut off.
const RANDOM_LOSS: u32 = 4;

/// How much parity a block gets in advance.
#[derive(Debug)]
struct Advance {
    parity: Parity,
    /// In [`UNIT`]s of a packet.
    level: u32,
}

impl Advance {
    fn new(parity: Parity) -> Self {
        Advance { parity, level: 0 }
    }

    /// Returns how much parity a block of `packets` packets gets in advance, of which the last was just sent.
    fn next(&mut self, packets: u32) -> u32 {
        match self.parity {
            Parity::OnRequest => 0,
            Parity::Percent(share) => (packets * u32::from(share)).div_ceil(100).min(packets),
            Parity::Auto => {
                self.level = self.level.saturating_sub(LESS);
                (self.level + UNIT / 2) / UNIT
            }
        }
    }

    /// Receivers requested more of a block of `packets` packets.
    fn requested(&mut self, packets: u32) {
        let most = packets * UNIT / MOST_IN_ADVANCE;
        self.level = (self.level + MORE).min(most);
    }
}

/// Parity of a source.
#[derive(Debug)]
pub(super) struct Protection {
    encoder: Owned<Encoder>,
    advance: Advance,
    /// Losses of blocks before this one are those of slow start, which ends by them, and say nothing about the next.
    settled: u64,
}

impl Protection {
    pub(super) fn new(parity: Parity, geometry: &Geometry) -> Option<Self> {
        Some(Protection {
            encoder: Encoder::new(geometry, 0)?,
            advance: Advance::new(parity),
            settled: 0,
        })
    }
}

impl<S: Store> Sender<'_, S> {
    pub(super) fn has_parity(&self) -> bool {
        self.protection.is_some()
    }

    /// Returns the length of a frame of parity.
    fn parity_frame(&self) -> usize {
        let geometry = self.content.geometry();
        PARITY_HEADER_LEN + shard_len(geometry.payload_len()) + FRAME_OVERHEAD
    }

    /// Returns what repairs the requested packets of a block: parity, if the requester takes it and several receivers
    /// may lack something of the block, which must have been sent whole.
    pub(super) fn repaired_with(
        &mut self,
        (kind, tag, is_proven): (Kind, u16, bool),
        block: u64,
        mask: u64,
    ) -> Wanted {
        let packets = self.content.packets_of(block);
        let is_whole = block < self.content.blocks_sent();
        let serves_several = self.receivers.joined() != 1 && !self.has_relay_ack();
        let wanted = Wanted {
            block: block as u32,
            mask,
            with: With::Packets,
            tag,
        };
        match &mut self.protection {
            Some(protection) if kind == Kind::DataOrParity && is_whole && serves_several => {
                let count = mask.count_ones();
                let is_random = count * RANDOM_LOSS <= packets.max(RANDOM_LOSS);
                let is_settled = block >= protection.settled;
                if is_proven
                    && is_random
                    && is_settled
                    && protection.encoder.is_first_request(block as u32)
                {
                    protection.advance.requested(packets);
                }
                Wanted {
                    mask: crate::geometry::low_bits(count),
                    with: With::Parity,
                    ..wanted
                }
            }
            _ => wanted,
        }
    }

    /// A block was sent whole: queues its parity in advance.
    pub(super) fn protect(&mut self, block: u64) {
        let packets = self.content.packets_of(block);
        let congestion = self.congestion.as_ref();
        let in_slow_start = congestion.is_some_and(tfmcc::Sender::is_slow_start);
        let Some(protection) = &mut self.protection else {
            return;
        };
        if in_slow_start {
            protection.settled = block + 1;
        }
        let count = protection.advance.next(packets);
        if count == 0 {
            return;
        }
        let wanted = Wanted {
            block: block as u32,
            mask: crate::geometry::low_bits(count),
            with: With::Advance,
            tag: 0,
        };
        let group = self.repairs.target(self.now, Target::Group);
        // Without room, receivers request what they lack.
        if group.is_some_and(|group| self.repairs.queue(self.now, group, &wanted).is_ok()) {
            self.stats.parity_in_advance += u64::from(count);
        }
    }

    /// Writes the next parity packet of a block. `Ok(None)`: it cannot be made, and is no longer queued.
    pub(super) fn poll_parity(
        &mut self,
        (at, repair): (usize, Repair),
        buffer: &mut [u8],
    ) -> Result<Option<Transmit>, StoreError> {
        let frame = self.parity_frame();
        let block = u64::from(repair.block);
        let packets = self.content.packets_of(block);
        let is_stored = block >= self.content.oldest_block() && packets > 0;
        let room = buffer.get_mut(..frame - FRAME_OVERHEAD);
        let (Some(protection), Some(packet), true) = (&mut self.protection, room, is_stored) else {
            self.repairs.done(self.now, at, None);
            return Ok(None);
        };
        if !protection.encoder.holds(repair.block) {
            let (_, bytes) = self.content.block(block)?;
            protection.encoder.load(repair.block, packets, bytes);
        }
        let (header, shard) = packet.split_at_mut(PARITY_HEADER_LEN);
        let Some(index) = protection.encoder.next(repair.block, shard) else {
            self.repairs.done(self.now, at, None);
            return Ok(None);
        };
        let (destination, number) = match repair.target {
            Target::Unicast(address) => (Destination::Unicast(address), None),
            _ => (Destination::Group, self.number()),
        };
        parity::Repr {
            tag: repair.tag,
            session: self.session,
            block: repair.block,
            number,
            index,
            packets: packets as u8,
        }
        .emit(header);
        self.repairs.done(self.now, at, Some(frame));
        self.pacing.spend_credit(frame);
        match destination {
            Destination::Unicast(_) => self.stats.parity_unicast += 1,
            _ => self.stats.parity_group += 1,
        }
        Ok(Some(Transmit::packet(destination, frame - FRAME_OVERHEAD)))
    }
}
