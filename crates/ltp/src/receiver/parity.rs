//! Parity that comes: it is held until a block has as many packets and parity packets as it has packets, then the block
//! is restored.
//!
//! Restored bytes are verified as any others. A block that does not match its digest is requested again from the source,
//! its packets themselves; after [`MOST_WRONG`] such blocks no parity is taken in this session.

use super::{Phase, Receiver};
use crate::config::Assist;
use crate::error::Error;
use crate::event::Failure;
use crate::pacing::FRAME_OVERHEAD;
use crate::parity::{NotRestored, Packets, Put, Shelf, shard_len};
use crate::store::{Store, StoreError};
use crate::wire::parity;
use crate::wire::parity::PARITY_HEADER_LEN;
use crate::{Geometry, Meta, Path};

/// Restored blocks that do not match their digests before no more parity is taken.
const MOST_WRONG: u64 = 8;

/// Parity of a receiver.
#[derive(Debug)]
pub(super) struct Restoring {
    shelf: Shelf,
    /// Blocks of this session that were restored and did not match their digest.
    wrong: u64,
    /// The source sends parity in advance.
    comes_in_advance: bool,
}

impl Restoring {
    pub(super) fn new(most: usize) -> Self {
        Restoring {
            shelf: Shelf::new(most),
            wrong: 0,
            comes_in_advance: false,
        }
    }

    /// Begins a session.
    pub(super) fn begin(&mut self, geometry: &Geometry) {
        self.shelf.begin(geometry);
        self.wrong = 0;
        self.comes_in_advance = false;
    }

    /// Whether no parity is held.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.shelf.is_empty()
    }

    fn is_usable(&self) -> bool {
        self.shelf.is_usable() && self.wrong < MOST_WRONG
    }
}

/// The packets of a block in the store.
struct BlockPackets<'s, S> {
    store: &'s mut S,
    geometry: Geometry,
    block: u64,
    length: Option<u64>,
}

impl<S: Store> Packets for BlockPackets<'_, S> {
    fn read(&mut self, index: u32, payload: &mut [u8]) -> Result<(), StoreError> {
        let (offset, len) = self.geometry.span(self.block, index, self.length);
        let (content, padding) = payload.split_at_mut(len);
        padding.fill(0);
        self.store.read(offset, content)
    }

    fn write(&mut self, index: u32, payload: &[u8]) -> Result<(), StoreError> {
        let (offset, len) = self.geometry.span(self.block, index, self.length);
        self.store.write(offset, &payload[..len])
    }
}

impl<S: Store> Receiver<'_, S> {
    /// Whether requests ask for parity.
    pub(super) fn takes_parity(&self) -> bool {
        self.restoring.is_usable() && self.session_is(super::Session::has_parity)
    }

    /// Whether gaps of the newest block wait until it was sent whole, so that parity can repair them. A relay repairs
    /// with packets: below one, only parity in advance is worth it.
    pub(super) fn waits_for_block(&self) -> bool {
        let helps = self.restoring.comes_in_advance || self.config.assist != Assist::Dyram;
        self.takes_parity() && helps
    }

    /// Returns the packets of a block that have not come.
    fn missing_of(&self, block: u64) -> u64 {
        let mask = self.session.as_ref().map_or(0, |one| one.mask(block));
        mask & !self.window.received(block)
    }

    /// Returns how many more packets of a block, of those that were not requested, have to be.
    pub(super) fn unrequested(&self, block: u64) -> u32 {
        let held = self.restoring.shelf.count(block as u32);
        let requested = self.gaps.requested(block).count_ones();
        let lacking = self.missing_of(block).count_ones();
        lacking.saturating_sub(held + requested)
    }

    #[cold]
    pub(super) fn on_parity(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        let (repr, shard) = parity::Repr::parse(packet)?;
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        let geometry = session.geometry();
        if repr.session != session.id() {
            return Err(Error::OtherSession);
        }
        if !session.is_from(&meta.source) {
            return Err(Error::OtherSource);
        }
        if shard.len() != shard_len(geometry.payload_len()) {
            return Err(Error::PayloadLength);
        }
        let block = u64::from(repr.block);
        let packets = u32::from(repr.packets);
        let is_cut_so = session.mask(block).count_ones() == packets;
        if self.congestion.is_used()
            && let Some(transmission) = repr.number
        {
            let frame = PARITY_HEADER_LEN + shard.len() + FRAME_OVERHEAD;
            self.congestion.receive(self.now, transmission, frame);
        }
        if !is_cut_so {
            return Err(Error::BeyondEnd);
        }
        // Requests from below are for what is lacking beside the parity that was sent in advance.
        let is_answer = repr.tag != 0;
        if is_answer && (meta.path == Path::Group || !self.recovery.is_lms()) {
            self.window.note_parity(block, self.now);
        }
        if matches!(self.phase, Phase::Failed | Phase::Ended) {
            return Err(Error::Ended);
        }
        if block < self.window.frontier() {
            self.stats.unneeded_parity += 1;
            return Ok(());
        }
        if !self.takes_parity() {
            self.stats.parity_lost += 1;
            return Ok(());
        }
        // The source sends parity of whole blocks only.
        let end = geometry.first_packet(block) + u64::from(packets);
        self.sent_up_to(end);
        if block >= self.window.end() {
            return Err(Error::BeyondWindow);
        }
        if self.missing_of(block) == 0 {
            self.stats.unneeded_parity += 1;
            return Ok(());
        }
        self.hold(block, &repr, shard);
        Ok(())
    }

    /// Holds a parity packet of a block that lacks something.
    fn hold(&mut self, block: u64, repr: &parity::Repr, shard: &[u8]) {
        if self.window.was_rejected(block) {
            self.stats.parity_lost += 1;
            return;
        }
        match self.restoring.shelf.put(repr.block, repr.index, shard) {
            Put::Held => {}
            Put::Instead(other) => {
                self.stats.parity_lost += 1;
                self.scan_again(u64::from(other));
            }
            Put::Duplicate => {
                self.stats.unneeded_parity += 1;
                return;
            }
            Put::Full => {
                self.stats.parity_lost += 1;
                return;
            }
        }
        self.stats.parity += 1;
        self.restoring.comes_in_advance |= repr.tag == 0;
        self.liveness.data_came(self.now);
        self.count_parity_after(block, Some(repr.tag));
    }

    /// A packet of a block came of which parity may be held.
    #[cold]
    pub(super) fn count_parity(&mut self, block: u64) {
        self.count_parity_after(block, None);
    }

    /// Something of a block came. With the parity that is held of it fewer packets are requested, or it is restored.
    fn count_parity_after(&mut self, block: u64, tag: Option<u16>) {
        let held = self.restoring.shelf.count(block as u32);
        if held == 0 {
            return;
        }
        let missing = self.missing_of(block).count_ones();
        let arrival = self.gaps.limit(block, missing.saturating_sub(held), tag);
        if let Some(arrival) = arrival {
            self.recovery.arrived(&arrival, self.now);
            if self.gaps.is_unscanned() && !self.gaps.is_waiting() {
                // There was no room for more requests.
                self.look_for_gaps();
            }
        }
        if missing == 0 {
            self.restoring.shelf.remove(block as u32);
        } else if held >= missing {
            self.restore(block);
        }
        self.schedule_request();
    }

    /// Restores a block from parity.
    fn restore(&mut self, block: u64) {
        let Some(session) = &self.session else { return };
        let (geometry, length) = (session.geometry(), session.length());
        let mask = session.mask(block);
        let received = self.window.received(block) & mask;
        let mut packets = BlockPackets {
            store: &mut self.store,
            geometry,
            block,
            length,
        };
        let held = (mask.count_ones(), received);
        let shelf = &mut self.restoring.shelf;
        match shelf.restore(block as u32, held, &mut packets) {
            Ok(()) => {
                self.stats.restored_packets += u64::from((mask & !received).count_ones());
                self.window.restored(block, mask);
                self.gaps.limit(block, 0, None);
                self.block_came(block);
            }
            Err(NotRestored::Store(StoreError::Failed)) => self.fail(Failure::Store),
            Err(NotRestored::Store(StoreError::NotStored) | NotRestored::Code) => {
                self.stats.restored_wrongly += 1;
                self.restoring.wrong += 1;
                self.scan_again(block);
            }
        }
    }

    /// A block that does not match its digest is requested anew.
    pub(super) fn forget_parity(&mut self, block: u64, was_restored: bool) {
        self.restoring.shelf.remove(block as u32);
        self.replies.forget_parity();
        if was_restored {
            self.stats.restored_wrongly += 1;
            self.restoring.wrong += 1;
        }
    }

    /// Looks again for the packets that a block lacks.
    fn scan_again(&mut self, block: u64) {
        let Some(session) = &self.session else { return };
        let first = session.geometry().first_packet(block);
        self.gaps.rescan(first);
        self.look_for_gaps();
    }
}
