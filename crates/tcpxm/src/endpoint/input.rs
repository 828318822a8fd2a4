//! Input of packets.

use proto_core::time::Instant;

use super::Endpoint;
use crate::config::Carrier;
use crate::error::Error;
use crate::event::Meta;
use crate::group::Mode;
use crate::pcb::{Key, State};
use crate::store::Store;
use crate::wire::{Run, Segment};

/// A control block that has accepted data and must still be synchronized: once, after the last of several
/// segments that arrived together.
type Pending = Option<(Key, u32)>;

impl<S: Store> Endpoint<S> {
    /// One segment arrived.
    ///
    /// # Errors
    ///
    /// The reason why it was dropped. It was counted, and an answer may be queued.
    pub fn handle_packet(&mut self, now: Instant, meta: &Meta, bytes: &[u8]) -> Result<(), Error> {
        let now = self.advance(now);
        let segment = self.check(meta, bytes)?;
        if !meta.destination.is_multicast() {
            return self.take_unicast(now, meta, &segment, bytes);
        }
        let mut pending = None;
        let result = self.take_multicast(now, meta, &segment, bytes, &mut pending);
        self.settle(pending);
        result
    }

    /// Handles segments that arrived together, from one source to one destination: `segment_size` bytes each,
    /// the last one perhaps fewer, as a kernel joins datagrams (`UDP_GRO`). The effect is that of
    /// [`Endpoint::handle_packet`] for each, in less time. Dropped segments are counted.
    pub fn handle_packets(&mut self, now: Instant, meta: &Meta, bytes: &[u8], segment_size: usize) {
        let now = self.advance(now);
        let segment_size = segment_size.clamp(1, bytes.len().max(1));
        if !meta.destination.is_multicast() {
            let empty = bytes.is_empty().then_some(bytes);
            for bytes in bytes.chunks(segment_size).chain(empty) {
                // Dropped segments are counted under their reason.
                let _ = self
                    .check(meta, bytes)
                    .and_then(|segment| self.take_unicast(now, meta, &segment, bytes));
            }
            return;
        }
        let mut pending = None;
        let mut last: Option<(&[u8], Segment<'_>)> = None;
        // Over IP each segment has a checksum of its own, which is verified.
        let udp = self.config.carrier == Carrier::Udp;
        // After a run that was not accepted as a whole, the other segments are handled one by one: searching
        // for runs repeatedly would take quadratic time.
        let mut runs = udp;
        let mut rest = bytes;
        loop {
            let bytes = &rest[..segment_size.min(rest.len())];
            let known = udp
                && last
                    .as_mut()
                    .is_some_and(|(head, segment)| segment.becomes(head, bytes));
            if known {
                self.stats.packets_received += 1;
            } else {
                last = self.check(meta, bytes).ok().map(|segment| {
                    let len = bytes.len() - segment.payload.len();
                    (&bytes[..len], segment)
                });
            }
            let mut taken = bytes.len();
            if let Some((_, segment)) = &last {
                let run = runs.then(|| Run::of(segment, rest, segment_size));
                let run = run.filter(|run| run.len > 1);
                if let Some(run) = &run
                    && self.take_run(now, meta, segment, run, &mut pending)
                {
                    taken = run.bytes.len();
                } else {
                    runs &= run.is_none();
                    let _ = self.take_multicast(now, meta, segment, bytes, &mut pending);
                }
            }
            rest = &rest[taken..];
            if rest.is_empty() {
                break;
            }
        }
        self.settle(pending);
    }

    /// Handles multicast segments at once that are exactly the next ones for their receiver; returns false if
    /// they must be handled one by one.
    fn take_run(
        &mut self,
        now: Instant,
        meta: &Meta,
        first: &Segment<'_>,
        run: &Run<'_>,
        pending: &mut Pending,
    ) -> bool {
        let key = self.key_of(meta, first);
        let known = pending.filter(|(last, _)| *last == key);
        let Some(index) =
            known.map_or_else(|| self.keys.get(&key).copied(), |(_, index)| Some(index))
        else {
            return false;
        };
        let Some(pcb) = self.pcbs.get_mut(index) else {
            return false;
        };
        let accepts = pcb.multicast.group == Some(meta.destination) && pcb.handshake.is_passive();
        if !accepts || !pcb.handle_run(now, first, run) {
            return false;
        }
        self.stats.packets_received += run.len as u64 - 1;
        self.stats.multicast_received += run.len as u64;
        if known.is_none() {
            self.settle(pending.replace((key, index)));
        }
        true
    }

    /// More packets have arrived than were handled, and are handled next: acknowledgements that are due for the number
    /// of segments alone wait for them. Each acknowledges 512 KiB at most, a quarter of the receive buffer, or the data
    /// of 5 ms. Call it between [`Endpoint::handle_packets`] and [`Endpoint::poll_transmit`]; without it each batch of
    /// packets is acknowledged.
    pub fn defer_acks(&mut self, now: Instant) {
        let now = self.advance(now);
        while let Some(index) = self.ready.front() {
            let deferred = self
                .parts(index)
                .is_some_and(|(pcb, flow, _)| pcb.defer_ack(now, flow));
            if !deferred {
                break;
            }
            self.ready.pop();
            self.sync_queues(index);
        }
    }

    fn settle(&mut self, pending: Pending) {
        if let Some((_, index)) = pending {
            self.sync(index);
        }
    }

    /// Parses a segment, and checks that it can be from its source to its destination.
    fn check<'a>(&mut self, meta: &Meta, bytes: &'a [u8]) -> Result<Segment<'a>, Error> {
        self.stats.packets_received += 1;
        let segment = match Segment::parse(bytes) {
            Ok(segment) => segment,
            Err(error) => return self.count(error.into()),
        };
        let source = meta.source.ip();
        if source.is_ipv4() != meta.destination.is_ipv4() {
            return self.count(Error::Checksum);
        }
        let ip = self.config.carrier == Carrier::Ip;
        if ip && !Segment::verify(bytes, source, meta.destination) {
            return self.count(Error::Checksum);
        }
        let broadcast = core::net::IpAddr::V4(core::net::Ipv4Addr::BROADCAST);
        if source.is_multicast() || source.is_unspecified() || source == broadcast {
            return self.count(Error::Source);
        }
        if meta.destination == broadcast {
            return self.count(Error::NoConnection);
        }
        Ok(segment)
    }

    fn take_unicast(
        &mut self,
        now: Instant,
        meta: &Meta,
        segment: &Segment<'_>,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let key = self.key_of(meta, segment);
        let mut found = self.keys.get(&key).copied();
        if let Some(index) = found
            && self.reopens(index, segment)
        {
            self.remove(index);
            found = None;
        }
        let Some(index) = found else {
            if self.listeners.contains_key(&key.local_port) {
                return self.in_listen(now, key, meta, segment);
            }
            if !segment.flags.rst {
                self.queue_reset(now, meta, segment);
            }
            return self.count(Error::NoConnection);
        };
        let Some((pcb, flow, _)) = self.parts(index) else {
            return self.count(Error::NoConnection);
        };
        if !pcb.is_authentic(segment, bytes, false) {
            return self.count(Error::Forged);
        }
        let result = pcb.handle(now, segment, flow);
        if pcb.state() != State::Closed && result.is_ok() {
            match segment.options.feedback {
                Some(feedback) => self.take_feedback(index, feedback.percent),
                None => self.has_left(index),
            }
        }
        self.sync(index);
        match result {
            Ok(()) => Ok(()),
            Err(dropped) => {
                if dropped.reset {
                    self.queue_reset(now, meta, segment);
                }
                self.count(dropped.error)
            }
        }
    }

    fn take_multicast(
        &mut self,
        now: Instant,
        meta: &Meta,
        segment: &Segment<'_>,
        bytes: &[u8],
        pending: &mut Pending,
    ) -> Result<(), Error> {
        self.stats.multicast_received += 1;
        let key = self.key_of(meta, segment);
        let index = match *pending {
            Some((last, index)) if last == key => index,
            _ => {
                self.settle(pending.take());
                let Some(&index) = self.keys.get(&key) else {
                    return self.count(Error::GroupUnknown);
                };
                index
            }
        };
        let Some(pcb) = self.pcbs.get_mut(index) else {
            return self.count(Error::GroupUnknown);
        };
        if pcb.multicast.group != Some(meta.destination) || !pcb.handshake.is_passive() {
            return self.count(Error::GroupUnknown);
        }
        if !pcb.is_authentic(segment, bytes, true) {
            return self.count(Error::Forged);
        }
        let result = pcb.handle_multicast(now, segment);
        *pending = Some((key, index));
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.count(error),
        }
    }

    /// Handles a receiver's report of its multicast reception (TCP-XM §2.3, §2.5).
    fn take_feedback(&mut self, index: u32, percent: u8) {
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        if pcb.multicast.group.is_none() || pcb.handshake.is_passive() {
            return;
        }
        let payload = u64::from(flow.payload);
        let una = pcb.send.board.una();
        let segments = pcb.multicast.reception.feedback(percent, una, payload);
        let mode = pcb.multicast.mode.after_feedback(percent, segments);
        if mode != pcb.multicast.mode && pcb.multicast.mode == Mode::UnicastGroup {
            pcb.multicast.reception.begin_multicast(flow.nxt);
            pcb.counters.fall_forwards += 1;
            self.set_mode(index, mode);
        }
    }
}
