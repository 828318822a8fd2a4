//! Packets that arrive: the hot path of data, and the dispatch of control packets.

use super::{Phase, Receiver};
use crate::error::Error;
use crate::pacing::FRAME_OVERHEAD;
use crate::store::Store;
use crate::wire::pace::Pace;
use crate::wire::report::ReportAck;
use crate::wire::{Header, Type, data, digests, request, sync};
use crate::{Meta, Path};

impl<S: Store> Receiver<'_, S> {
    #[inline]
    pub(super) fn input(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        if let [first, ..] = packet
            && matches!(first & 0xf, 1 | 2)
        {
            return self.on_data(meta, packet);
        }
        self.on_control(meta, packet)
    }

    fn on_control(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        let header = Header::parse(packet)?;
        if matches!(header.kind, Type::Report | Type::Feedback) {
            return Err(Error::Unexpected);
        }
        if header.kind == Type::Parity {
            return self.on_parity(meta, packet);
        }
        let packet = self.hashing.open(packet).ok_or(Error::Authenticator)?;
        if self.phase == Phase::Ended {
            return Err(Error::Ended);
        }
        match header.kind {
            Type::Sync => self.on_sync(meta, &sync::Repr::parse(packet)?),
            Type::Digests => {
                let (repr, digests) = digests::Repr::parse(packet)?;
                self.on_digests(meta, &repr, digests)
            }
            // By reference: `?` would copy the request, which is long.
            Type::Request => match &request::Repr::parse(packet) {
                Ok(request) => self.on_request(meta, request),
                Err(error) => Err((*error).into()),
            },
            Type::ReportAck => self.on_ack(meta, &ReportAck::parse(packet)?),
            Type::Pace => self.on_pace(meta, &Pace::parse(packet)?),
            Type::Data | Type::Repair | Type::Parity | Type::Report | Type::Feedback => {
                Err(Error::Unexpected)
            }
        }
    }

    #[inline]
    fn on_data(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        let packet = data::Packet::new_checked(packet)?;
        let Some(session) = &self.session else {
            return Err(Error::BeforeSync);
        };
        let geometry = session.geometry();
        let length = session.length();
        if packet.session() != session.id() {
            return Err(Error::OtherSession);
        }
        if !session.is_from(&meta.source) {
            return Err(Error::OtherSource);
        }
        if packet.payload().len() != usize::from(geometry.payload_len()) {
            return Err(Error::PayloadLength);
        }
        let near = geometry.first_packet(self.window.frontier());
        let number = packet.sequence().number(geometry.first(), near);
        let number = number.ok_or(Error::Value)?;
        if number >= session.total().unwrap_or(u64::MAX) {
            return Err(Error::BeyondEnd);
        }
        if matches!(self.phase, Phase::Failed | Phase::Ended) {
            return Err(Error::Ended);
        }
        let (block, index) = self.window.locate(&geometry, number);
        let repair = packet.is_repair();
        if !repair {
            self.liveness.source_spoke(self.now);
        }
        if self.congestion.is_used()
            && let Some(transmission) = packet.number()
        {
            let frame = geometry.packet_len() + FRAME_OVERHEAD;
            self.congestion.receive(self.now, transmission, frame);
        }
        // Without LMS one socket may take both, so that the path of a packet means nothing.
        let alone = repair && meta.path == Path::Unicast && self.recovery.is_lms();
        if block < self.window.frontier() {
            self.duplicate(block, index, repair, alone);
            return Ok(());
        }
        if block >= self.window.end() {
            return self.beyond_window(number, repair);
        }
        let slot = self.window.claim(block);
        let bit = 1u64 << index;
        if slot.has(bit) {
            self.duplicate(block, index, repair, alone);
            return Ok(());
        }
        let (offset, len) = geometry.span(block, index, length);
        if self.store.write(offset, &packet.payload()[..len]).is_err() {
            self.fail(crate::Failure::Store);
            return Err(Error::Store);
        }
        let whole = slot.add(bit) == geometry.mask(block, length);
        self.liveness.data_came(self.now);
        if repair {
            // Receivers below have not received a repair that came to this host alone.
            if !alone {
                slot.note_repair(bit, self.now);
            }
            self.stats.repairs += 1;
        } else {
            self.stats.data_packets += 1;
        }
        let is_newer = self.window.touch(block);
        if !self.gaps.is_next(number) {
            self.out_of_order(number, block, bit, repair.then(|| packet.tag()));
        }
        if !self.restoring.is_empty() {
            self.count_parity(block);
        }
        if whole {
            self.block_came(block);
        } else if is_newer && self.is_end_open() {
            self.advance_frontier();
        }
        if is_newer && self.gaps.is_waiting() {
            self.look_for_gaps();
        }
        Ok(())
    }

    #[cold]
    fn duplicate(&mut self, block: u64, index: u32, repair: bool, alone: bool) {
        if !repair {
            self.stats.duplicate_data += 1;
        } else if alone || self.window.was_repaired(block, index) {
            self.stats.duplicate_repairs += 1;
        } else {
            self.stats.unneeded_repairs += 1;
        }
    }

    /// There is no room for the packet yet; it is requested later, since it is known to have been sent.
    #[cold]
    fn beyond_window(&mut self, number: u64, repair: bool) -> Result<(), Error> {
        if !repair && number >= self.gaps.highest() {
            self.sent_up_to(number + 1);
        }
        Err(Error::BeyondWindow)
    }

    /// A packet that is not the next one.
    #[cold]
    fn out_of_order(&mut self, number: u64, block: u64, bit: u64, tag: Option<u16>) {
        if number > self.gaps.highest() {
            self.skipped_to(number);
            return;
        }
        let Some(arrival) = self.gaps.arrived(block, bit, tag) else {
            return;
        };
        self.recovery.arrived(&arrival, self.now);
        if self.gaps.is_unscanned() {
            self.look_for_gaps();
        }
    }

    /// Checks that a unicast packet comes from the source.
    pub(super) fn check_from_source(&self, meta: &Meta) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if !session.is_from(&meta.source) {
            return Err(Error::OtherSource);
        }
        if meta.path == Path::Group {
            return Err(Error::Unexpected);
        }
        Ok(())
    }
}
