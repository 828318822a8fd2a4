//! Packets on their way in.

use smoltcp::time::Instant;

use super::Endpoint;
use crate::config::Carrier;
use crate::error::Error;
use crate::event::Meta;
use crate::group::Mode;
use crate::pcb::{Key, State};
use crate::store::Store;
use crate::wire::Segment;

/// A block that has taken data, and what is still to be put in line with it: after the last of
/// several segments that came together, once.
type Pending = Option<(Key, u32)>;

impl<S: Store> Endpoint<S> {
    /// One segment arrived.
    ///
    /// # Errors
    ///
    /// Why it was dropped. It was counted; an answer may be on its way.
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

    /// Segments that arrived together, from one source to one destination: `stride` bytes each, the
    /// last one perhaps fewer, as a kernel joins datagrams (`UDP_GRO`). The same as
    /// [`Endpoint::handle_packet`] for one after the other, and quicker. What was dropped was counted.
    pub fn handle_packets(&mut self, now: Instant, meta: &Meta, bytes: &[u8], stride: usize) {
        let empty = bytes.is_empty().then_some(bytes);
        let segments = bytes.chunks(stride.max(1)).chain(empty);
        if !meta.destination.is_multicast() {
            for bytes in segments {
                // Counted under its reason.
                let _ = self.handle_packet(now, meta, bytes);
            }
            return;
        }
        let now = self.advance(now);
        let mut pending = None;
        let mut last: Option<(&[u8], Segment<'_>)> = None;
        for bytes in segments {
            // Over IP each segment has a checksum of its own, which is looked at.
            let known = self.config.carrier == Carrier::Udp
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
            if let Some((_, segment)) = &last {
                let _ = self.take_multicast(now, meta, segment, bytes, &mut pending);
            }
        }
        self.settle(pending);
    }

    fn settle(&mut self, pending: Pending) {
        if let Some((_, index)) = pending {
            self.sync(index);
        }
    }

    /// Reads a segment, and looks whether it can be one, from there to here.
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
        if pcb.state != State::Closed && result.is_ok() {
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
        if pcb.group != Some(meta.destination) || !pcb.passive {
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

    /// A receiver's word on its multicast reception (TCP-XM §2.3, §2.5).
    fn take_feedback(&mut self, index: u32, percent: u8) {
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        if pcb.group.is_none() || pcb.passive {
            return;
        }
        let payload = u64::from(flow.payload);
        let una = pcb.send.board.una();
        let segments = pcb.reception.feedback(percent, una, payload);
        let mode = pcb.mode.after_feedback(percent, segments);
        if mode != pcb.mode && pcb.mode == Mode::UnicastGroup {
            pcb.reception.begin_multicast(flow.nxt);
            pcb.counters.fall_forwards += 1;
            self.set_mode(index, mode);
        }
    }
}
