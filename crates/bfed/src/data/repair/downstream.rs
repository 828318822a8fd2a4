//! The data node downstream: puts packets in order, asks for those that are missing and restores them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use proto_core::time::{Duration, Instant};

use super::super::paths::max_payload;
use super::super::queue::Timing;
use super::super::table::{Entry, Key};
use super::super::{DataError, Destination, EdgeId, HEADER_LEN, Meta, Plane, Transmit};
use super::DEFAULT_RTT;
use super::gaps::{Gaps, Held, How, Outcome};
use super::parity::Blocks;
use crate::wire::data::{Kind, Packet, Repr};
use crate::wire::parity;
use crate::wire::repair;

impl Plane {
    /// Returns the round-trip time of an edge from upstream.
    fn rtt_from(&self, id: EdgeId) -> Duration {
        let edge = self.edge(id);
        let path = edge.and_then(|edge| edge.rest.path);
        let known = match path {
            Some(path) => Some(self.paths.rtt(path)),
            None => edge.and_then(|edge| Some(edge.rest.receiver.as_ref()?.rtt())),
        };
        let known = known.filter(|rtt| *rtt > Duration::ZERO);
        known.unwrap_or(DEFAULT_RTT)
    }

    /// Returns until when a lost packet is waited for at most, if the one with this timing shows that it was lost.
    fn waits_until(&self, now: Instant, from: Entry, timing: &Timing) -> Instant {
        let expires = timing.expires().unwrap_or(now);
        let left = expires - now;
        let outs = self.flows.get(from.flow).into_iter();
        let mut outs = outs.flat_map(|flow| (0..flow.outs()).filter_map(|at| flow.out(at)));
        let is_last = outs.all(|id| {
            let to = self.edge(id).and_then(|edge| edge.to);
            matches!(to, Some(Destination::Native(_)))
        });
        match is_last {
            true => expires,
            false => now + left / 2,
        }
    }

    /// Notes the number of a packet from upstream. Returns whether it is forwarded now: if not, it is kept until those before
    /// it have arrived.
    ///
    /// # Errors
    /// It has come before, or was given up.
    pub(in super::super) fn order(
        &mut self,
        now: Instant,
        meta: &Meta,
        from: Entry,
        frame: &[u8],
        timing: Timing,
    ) -> Result<bool, DataError> {
        if !matches!(meta, Meta::Datagram(_) | Meta::Path(_)) || !self.config.repairs {
            return Ok(true);
        }
        let packet = Packet::new_checked(frame)?;
        let sequence = packet.sequence();
        if !timing.class.is_some() {
            self.skip(now, from, sequence);
            return Ok(true);
        }
        if sequence == 0 {
            return Ok(true);
        }
        let edge = self.edges.get_mut(from.edge);
        let edge = edge.ok_or(DataError::UnknownFlow)?;
        let new = || Box::new(Gaps::new(sequence));
        let gaps = edge.rest.gaps.get_or_insert_with(new);
        let is_next = gaps.is_next(sequence);
        let shared = gaps.blocks.is_some().then(|| Arc::from(packet.payload()));
        if let Some(bytes) = &shared
            && is_next
        {
            let packet = (packet.kind(), Arc::clone(bytes));
            self.remember(now, from, sequence, packet, timing);
        }
        if is_next {
            return Ok(true);
        }
        let until = self.waits_until(now, from, &timing);
        let edge = self.edges.get_mut(from.edge);
        let gaps = edge.and_then(|edge| edge.rest.gaps.as_mut());
        let gaps = gaps.ok_or(DataError::UnknownFlow)?;
        let how = match packet.is_again() {
            true => How::Again,
            false => How::Sent,
        };
        if !gaps.arrive(now, sequence, how, until) {
            return Err(DataError::Duplicate);
        }
        let bytes = shared.unwrap_or_else(|| packet.payload().into());
        let held = Held {
            sequence,
            kind: packet.kind(),
            timing,
            bytes: Arc::clone(&bytes),
        };
        gaps.hold(held, &mut self.pool);
        self.remember(now, from, sequence, (packet.kind(), bytes), timing);
        self.restore(now, from, until);
        self.release(now, from);
        Ok(false)
    }

    /// Notes a number that takes no part in the order: the sender used it for something else.
    pub(in super::super) fn skip(&mut self, now: Instant, from: Entry, sequence: u32) {
        let until = now + self.config.real_time_delay / 2;
        let edge = self.edges.get_mut(from.edge);
        let gaps = edge.and_then(|edge| edge.rest.gaps.as_mut());
        if let Some(gaps) = gaps.filter(|_| sequence != 0)
            && !gaps.is_next(sequence)
        {
            gaps.arrive(now, sequence, How::Sent, until);
            self.release(now, from);
        }
    }

    /// Keeps a packet that has arrived, where parity may come for its block.
    fn remember(
        &mut self,
        now: Instant,
        from: Entry,
        sequence: u32,
        packet: (Kind, Arc<[u8]>),
        timing: Timing,
    ) {
        let edge = self.edges.get_mut(from.edge);
        let Some(gaps) = edge.and_then(|edge| edge.rest.gaps.as_mut()) else {
            return;
        };
        match &mut gaps.blocks {
            Some(blocks) if blocks.is_active(now) => {
                blocks.arrived(sequence, packet, timing, &mut self.pool);
            }
            blocks => {
                let before = blocks.take();
                self.pool.remove(before.map_or(0, |blocks| blocks.bytes()));
            }
        }
    }

    /// Restores what parity can restore; it waits for its turn like other packets.
    fn restore(&mut self, now: Instant, from: Entry, until: Instant) {
        let edge = self.edges.get_mut(from.edge);
        let Some(gaps) = edge.and_then(|edge| edge.rest.gaps.as_mut()) else {
            return;
        };
        let Some(blocks) = gaps.blocks.as_mut() else {
            return;
        };
        for restored in blocks.restore(&mut self.pool) {
            if gaps.arrive(now, restored.sequence, How::Restored, until) {
                let held = Held {
                    sequence: restored.sequence,
                    kind: restored.kind,
                    timing: restored.timing,
                    bytes: restored.bytes,
                };
                gaps.hold(held, &mut self.pool);
            }
        }
    }

    /// Forwards the packets that wait for nothing any more, and sets the timer for the others.
    fn release(&mut self, now: Instant, from: Entry) {
        loop {
            let edge = self.edges.get_mut(from.edge);
            let gaps = edge.and_then(|edge| edge.rest.gaps.as_mut());
            let Some(held) = gaps.and_then(|gaps| gaps.pop(&mut self.pool)) else {
                break;
            };
            self.forward_held(now, from, held);
        }
        let Some(edge) = self.edges.get_mut(from.edge) else {
            return;
        };
        let link = edge.link;
        let id = EdgeId {
            index: from.edge,
            generation: edge.rest.generation,
        };
        let outcome = edge.rest.gaps.as_mut().map(|gaps| gaps.take_outcome());
        if let Some(outcome) = outcome.filter(|outcome| *outcome != Outcome::default()) {
            self.count(link, |repairs| repairs.count(outcome));
        }
        self.schedule(id);
    }

    /// Queues a packet that has waited on all edges of its flow.
    fn forward_held(&mut self, now: Instant, from: Entry, held: Held) {
        let Held {
            kind,
            timing,
            bytes,
            ..
        } = held;
        if let Some(edge) = self.edges.get(from.edge) {
            self.links.arrived(now, edge.link, &timing);
        }
        if kind == Kind::Fragment {
            self.join(now, from, &bytes, timing);
        }
        let outs = self.flows.get(from.flow).map_or(0, |flow| flow.outs());
        for at in 0..outs {
            let out = self.flows.get(from.flow).and_then(|flow| flow.out(at));
            let Some(id) = out.filter(|id| id.index != from.edge) else {
                continue;
            };
            let to = self.edge(id).and_then(|edge| edge.to);
            let max = max_payload(&self.config, &self.paths, to);
            match (to, max) {
                (None, _) => self.lose(id, DataError::NotAttached, 1),
                (_, Some((max, piece))) if bytes.len() > max => {
                    // The frame of a fragment that is too long was cut anew when it was complete.
                    if kind == Kind::Data {
                        self.enqueue_fragments(now, id, piece, &bytes, timing);
                    }
                }
                (_, None) if kind == Kind::Fragment => {}
                _ => {
                    self.enqueue(now, id, (kind, bytes.clone()), timing);
                    self.ready.insert(id);
                }
            }
        }
    }

    /// Gives up packets of an edge that cannot come in time any more.
    pub(in super::super) fn give_up(&mut self, now: Instant, id: EdgeId) {
        let rtt = self.rtt_from(id);
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        let Some(gaps) = &mut edge.rest.gaps else {
            return;
        };
        gaps.handle_timeout(now, rtt);
        let entry = Entry::new(id, edge);
        self.release(now, entry);
    }

    /// Returns where a packet about the flow's packets came from: upstream, with the class of one of them.
    fn upstream(
        &self,
        meta: &Meta,
        packet: &Packet<&[u8]>,
        timing: &Timing,
    ) -> Result<Entry, DataError> {
        let key = match *meta {
            Meta::Datagram(from) => Key::datagram(from, packet.label()),
            Meta::Path(path) => Key::path(path, packet.label()),
            _ => return Err(DataError::NotYours),
        };
        let from = self.table.entry(&key).ok_or(DataError::UnknownFlow)?;
        if !timing.class.is_some() {
            return Err(DataError::Malformed);
        }
        let flow = self.flows.get(from.flow).ok_or(DataError::UnknownFlow)?;
        match flow.up {
            Some(up) if up.index == from.edge && !flow.multi => Ok(from),
            _ => Err(DataError::WrongDirection),
        }
    }

    /// Handles a PARITY.
    #[cold]
    pub(in super::super) fn parity(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
        timing: Timing,
    ) -> Result<(), DataError> {
        let from = self.upstream(meta, packet, &timing)?;
        let parity = parity::Repr::parse(packet.payload());
        let (front, shard) = parity.map_err(|_| DataError::Malformed)?;
        let until = self.waits_until(now, from, &timing);
        let edge = self.edges.get_mut(from.edge);
        let Some(gaps) = edge.and_then(|edge| edge.rest.gaps.as_mut()) else {
            return Ok(());
        };
        let first = packet.sequence();
        gaps.sent_up_to(now, first.wrapping_add(u32::from(front.count) - 1), until);
        let blocks = gaps
            .blocks
            .get_or_insert_with(|| Box::new(Blocks::new(now)));
        blocks.heard(now, first, (front, shard), timing, &mut self.pool);
        self.restore(now, from, until);
        self.release(now, from);
        Ok(())
    }

    /// Handles a TAIL.
    #[cold]
    pub(in super::super) fn tail(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
        timing: Timing,
    ) -> Result<(), DataError> {
        let from = self.upstream(meta, packet, &timing)?;
        if !packet.payload().is_empty() {
            return Err(DataError::Malformed);
        }
        let until = self.waits_until(now, from, &timing);
        let edge = self.edges.get_mut(from.edge);
        let gaps = edge.and_then(|edge| edge.rest.gaps.as_mut());
        if let Some(gaps) = gaps {
            gaps.sent_up_to(now, packet.sequence(), until);
            self.release(now, from);
        }
        Ok(())
    }

    /// Writes the REPAIR_REQUEST of an edge that is due.
    pub(in super::super) fn ask_repair(
        &mut self,
        now: Instant,
        id: EdgeId,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        self.edge(id)?.rest.gaps.as_ref()?;
        let rtt = self.rtt_from(id);
        let edge = self.edge_mut(id)?;
        let request = edge.rest.gaps.as_mut()?.poll_request(now, rtt)?;
        let (label, to, link) = (edge.rest.label_in?, edge.to?, edge.link);
        // An address that is not proved may be forged: it gets no requests.
        let key = self.neighbour(self.edge(id)?)?;
        if !self.liveness.is_proved(&key) {
            return None;
        }
        let asked = request.packets().count() as u64;
        self.count(link, |repairs| repairs.asked += asked);
        Repr {
            payload_len: repair::LEN,
            ..Repr::new(Kind::RepairRequest, label)
        }
        .emit(buffer);
        request.emit(&mut buffer[HEADER_LEN..]);
        Some(Transmit {
            edge: id,
            to,
            range: 0..HEADER_LEN + repair::LEN,
        })
    }
}
