//! What the source has announced.

#[cfg(test)]
mod tests;

use core::net::SocketAddr;

use proto_core::time::Duration;

use crate::config::Name;
use crate::digest::Digest;
use crate::wire::sync;
use crate::{Geometry, SessionId};

/// The longest time over which reports are spread.
const LONGEST_WINDOW: Duration = Duration::from_secs(60);

/// Whether what was announced is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trust {
    /// Until something contradicts it.
    Announced,
    /// Not until the source confirms it.
    Contradicted,
    /// The source has confirmed it.
    Confirmed,
}

/// What heartbeats announced; fields that data packets need stand first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Session {
    id: SessionId,
    geometry: Geometry,
    source: SocketAddr,
    length: Option<u64>,
    /// Packets of the content, once known.
    total: Option<u64>,
    /// Packets below were sent before the end was known: none of them is padded.
    unpadded: u64,
    integrity: bool,
    /// The source answers with parity.
    parity: bool,
    /// The source requests reports.
    reports: bool,
    closing: bool,
    trust: Trust,
    progress_blocks: u32,
    /// The time over which reports are spread.
    report_window: Duration,
    /// The longest silence of a live source.
    silence: Duration,
    /// Blocks of which digests were announced.
    digested: u64,
    /// The digest of the whole.
    digest: Option<Digest>,
    name: Name,
}

impl Session {
    pub(super) fn new(source: SocketAddr, repr: &sync::Repr<'_>) -> Self {
        Session {
            id: repr.session,
            geometry: repr.geometry,
            source,
            length: None,
            total: None,
            unpadded: 0,
            integrity: repr.digested.is_some(),
            parity: repr.parity,
            reports: false,
            closing: false,
            trust: Trust::Announced,
            progress_blocks: 0,
            report_window: Duration::ZERO,
            silence: Duration::ZERO,
            digested: 0,
            digest: None,
            name: Name::from_slice(repr.name).unwrap_or_default(),
        }
    }

    #[inline]
    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn source(&self) -> SocketAddr {
        self.source
    }

    /// Whether a packet with that source address is the source's.
    #[inline]
    pub(super) fn is_from(&self, source: &SocketAddr) -> bool {
        self.source == *source
    }

    #[inline]
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    #[inline]
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn has_digests(&self) -> bool {
        self.integrity
    }

    /// Whether the source answers with parity too.
    pub(super) fn has_parity(&self) -> bool {
        self.parity
    }

    pub(super) fn digested(&self) -> u64 {
        self.digested
    }

    pub(super) fn digest(&self) -> Option<Digest> {
        self.digest
    }

    pub(super) fn wants_reports(&self) -> bool {
        self.reports
    }

    pub(super) fn report_window(&self) -> Duration {
        self.report_window
    }

    /// Returns after how many blocks the source wants a report; `None` if at any time.
    pub(super) fn report_step(&self) -> Option<u64> {
        let step = u64::from(self.progress_blocks);
        (self.reports && step > 0).then_some(step)
    }

    /// Whether the source leaves.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns how long the source may be silent, where `timeout` is configured.
    pub(super) fn grace(&self, timeout: Duration) -> Duration {
        if self.closing {
            timeout / 5
        } else {
            timeout.max(self.silence * 3)
        }
    }

    /// Returns one bit for each packet of a block.
    #[inline]
    pub(super) fn mask(&self, block: u64) -> u64 {
        self.geometry.mask(block, self.length)
    }

    /// Returns offset and length of a block.
    #[inline]
    pub(super) fn place(&self, block: u64) -> (u64, usize) {
        let offset = self.geometry.block_offset(block);
        (offset, self.geometry.len_of(block, self.length))
    }

    /// Returns the number of blocks, once known.
    pub(super) fn blocks(&self) -> Option<u64> {
        self.length.map(|length| self.geometry.blocks(length))
    }

    /// Whether neither digests nor the length tell how much of a packet is padding.
    pub(super) fn is_end_open(&self) -> bool {
        !self.integrity && self.length.is_none()
    }

    /// Whether no packet of the block is padded, wherever the content ends.
    pub(super) fn is_unpadded(&self, block: u64) -> bool {
        self.unpadded >= self.geometry.first_packet(block + 1)
    }

    /// Whether the source has confirmed what was announced.
    pub(super) fn is_confirmed(&self) -> bool {
        self.trust == Trust::Confirmed
    }

    /// Whether the source must confirm what was announced, since something contradicted it.
    pub(super) fn is_contradicted(&self) -> bool {
        self.trust == Trust::Contradicted
    }

    /// Something contradicts what was announced.
    pub(super) fn contradict(&mut self) {
        self.trust = Trust::Contradicted;
    }

    /// Whether a heartbeat contradicts what was announced before.
    pub(super) fn differs(&self, repr: &sync::Repr<'_>) -> bool {
        fn differ<T: PartialEq>(known: Option<T>, told: Option<T>) -> bool {
            known.zip(told).is_some_and(|(known, told)| known != told)
        }
        self.id != repr.session
            || !self.is_cut_like(repr)
            || differ(self.length, repr.length)
            || differ(self.digest, repr.digest)
            || self.total.is_some_and(|total| repr.next > total)
    }

    /// Whether a heartbeat is of a session with the same blocks and packets.
    pub(super) fn is_cut_like(&self, repr: &sync::Repr<'_>) -> bool {
        self.geometry == repr.geometry && self.integrity == repr.digested.is_some()
    }

    /// Whether a heartbeat is of a session with the same content.
    pub(super) fn is_of_content(&self, repr: &sync::Repr<'_>) -> bool {
        self.digest.is_some()
            && self.digest == repr.digest
            && self.length == repr.length
            && self.geometry.first() == repr.geometry.first()
    }

    /// Learns from a heartbeat that contradicts nothing.
    pub(super) fn learn(&mut self, repr: &sync::Repr<'_>) {
        let ended = repr.length.is_some() && self.length.is_none();
        let named = repr.digest.is_some() && self.digest.is_none();
        if (ended || named) && self.is_confirmed() {
            // The source has not confirmed this yet.
            self.trust = Trust::Announced;
        }
        if repr.length.is_none() {
            self.unpadded = self.unpadded.max(repr.next);
        }
        self.set_length(self.length.or(repr.length));
        self.digest = self.digest.or(repr.digest);
        self.digested = self.digested.max(repr.digested.unwrap_or(0));
        self.silence = Duration::from_millis(u64::from(repr.silence_ms));
        self.progress_blocks = repr.progress_blocks;
        let window = Duration::from_micros(u64::from(repr.report_window_us));
        self.report_window = window.min(LONGEST_WINDOW);
        self.reports = repr.reports;
        self.closing = repr.closing;
        self.parity = repr.parity;
    }

    fn set_length(&mut self, length: Option<u64>) {
        self.length = length;
        self.total = length.and_then(|length| self.geometry.packets(length));
    }

    /// Believes what the source itself says, whatever was announced before. Returns whether the content differs.
    pub(super) fn believe(&mut self, repr: &sync::Repr<'_>) -> bool {
        let differs = self.length != repr.length || self.digest != repr.digest;
        self.trust = Trust::Confirmed;
        self.set_length(repr.length);
        self.digest = repr.digest;
        self.digested = repr.digested.unwrap_or(0);
        self.closing = repr.closing;
        differs
    }

    /// Follows the source, which has begun another session with the content.
    pub(super) fn follow(&mut self, id: SessionId, source: SocketAddr) {
        (self.id, self.source) = (id, source);
        self.closing = false;
        // It is told at once that this receiver takes part, and how far it is.
        self.reports = false;
    }
}
