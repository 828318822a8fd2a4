//! Repair of lost packets of real-time sessions, within their deadlines.
//!
//! A link of datagrams is repaired by its two data nodes alone. The one upstream numbers its packets and keeps them for a while;
//! the one downstream asks for numbers that are missing, as long as an answer can come in time, and sends later packets on
//! when those before them have arrived or are given up. So packets leave each data node in the order of the source, as
//! readers of a stream of bytes need them, and each link repairs what it lost.
//!
//! | event | downstream | upstream |
//! | --- | --- | --- |
//! | a packet with a later number than the next one | the packets between are missing; it waits | |
//! | 2 ms later | asks for them (REPAIR_REQUEST) | sends them again, unless they would come too late |
//! | 1.25 round trips and 5 ms later | asks again, five times at most | sends them again |
//! | no answer can come in time | gives them up, and sends on what waits | |
//! | 25 ms after a packet without another | | sends the number of that packet (TAIL), so that its loss is noticed |
//!
//! Where there is no time for an answer, [parity] restores what is lost.
//!
//! A node that sends the session on to other data nodes uses at most half of the time that is left, so that their links can
//! be repaired as well.
//!
//! Only packets with a class are repaired: their deadlines are known, and their receiver is of a release that has classes.
//!
//! # Bounds
//!
//! | of | bound |
//! | --- | --- |
//! | packets kept to be sent again | their lifetime; 256 KiB for each edge, [`MAX_BYTES`] for all, with those that wait |
//! | packets that wait for missing ones | until the missing ones are given up; 256 KiB for each edge |
//! | missing packets | 256 for each edge; the oldest ones are given up |
//! | answers and parity | a quarter of the bytes sent on the edge, and 64 KiB; answers for one packet 8, and one in three quarters of a round trip |
//! | packets and parity that are kept to restore others | 96 packets, 8 blocks and 192 KiB for each edge, for 2 s after the last parity |
//! | requests | five for each missing packet |
//!
//! A receiver that asks for everything gets a quarter more than others, at its own address. A sender that lies about numbers
//! delays its own sessions, by no more than their frames' lifetimes.

mod gaps;
mod parity;
mod store;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use self::gaps::{How, Outcome};
use self::parity::{Blocks, Made};
use self::store::Refused;
use super::paths::max_payload;
use super::queue::{Payload, Timing};
use super::table::{Entry, Key};
use super::{DataError, Destination, EdgeId, HEADER_LEN, Meta, Plane, Transmit};
use crate::types::PeerId;
use crate::wire::data::{Kind, Packet, Repr};
use crate::wire::parity as wire_parity;
use crate::wire::repair::{self, Request};

pub(super) use self::gaps::{Gaps, Held};
pub(super) use self::store::Store;

/// Most bytes of packets that are kept, or wait, on all edges.
pub const MAX_BYTES: usize = 64 << 20;
/// The round-trip time of a path until it is measured.
const DEFAULT_RTT: Duration = Duration::from_millis(100);

/// The bytes that all edges share.
#[derive(Debug, Default)]
pub(super) struct Pool {
    bytes: usize,
}

impl Pool {
    fn fits(&self, len: usize) -> bool {
        self.bytes + len <= MAX_BYTES
    }

    fn add(&mut self, len: usize) {
        self.bytes += len;
    }

    pub(super) fn remove(&mut self, len: usize) {
        self.bytes -= len;
    }
}

/// Lost packets of real-time sessions on the link to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repairs {
    /// Packets from the peer that came when they were sent again.
    pub repaired: u64,
    /// Packets from the peer that parity restored.
    pub restored: u64,
    /// Packets from the peer that did not come in time.
    pub late: u64,
    /// Packets that were asked of the peer, each time they were.
    pub asked: u64,
    /// Packets that were sent to the peer again.
    pub answered: u64,
    /// Parity packets that were queued for the peer.
    pub parity: u64,
}

impl Repairs {
    /// Returns how many packets from the peer were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.repaired + self.restored + self.late
    }

    fn count(&mut self, outcome: Outcome) {
        self.repaired += outcome.repaired;
        self.restored += outcome.restored;
        self.late += outcome.late;
    }
}

impl core::ops::AddAssign for Repairs {
    fn add_assign(&mut self, other: Repairs) {
        self.repaired += other.repaired;
        self.restored += other.restored;
        self.parity += other.parity;
        self.late += other.late;
        self.asked += other.asked;
        self.answered += other.answered;
    }
}

impl Plane {
    /// Returns the repairs on the links to all peers that have had any.
    pub fn repairs(&self) -> impl Iterator<Item = (PeerId, Repairs)> {
        self.repairs.iter().map(|(peer, repairs)| (*peer, *repairs))
    }

    /// Returns the bytes of packets that are kept, or wait, on all edges.
    #[must_use]
    pub fn repair_bytes(&self) -> usize {
        self.pool.bytes
    }

    /// Switches repairs on or off for what arrives and is sent from now on.
    pub fn set_repairs(&mut self, repairs: bool) {
        self.config.repairs = repairs;
    }

    fn count(&mut self, link: u32, count: impl FnOnce(&mut Repairs)) {
        if let Some(peer) = self.links.peer(link) {
            count(self.repairs.entry(peer).or_default());
        }
    }

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
    fn patience(&self, now: Instant, from: Entry, timing: &Timing) -> Instant {
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
    pub(super) fn order(
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
        let until = self.patience(now, from, &timing);
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
    pub(super) fn skip(&mut self, now: Instant, from: Entry, sequence: u32) {
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
    pub(super) fn give_up(&mut self, now: Instant, id: EdgeId) {
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

    /// Keeps a packet that has just been sent on an edge to a data node that may ask for it again.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        id: EdgeId,
        packet: (Kind, Arc<[u8]>),
        timing: Timing,
    ) {
        let Some(edge) = self.edges.get_mut(id.index) else {
            return;
        };
        let Some(store) = &mut edge.rest.store else {
            return;
        };
        let parity = store.protect(now, packet.clone(), timing);
        let is_first = store.keep(now, packet, timing, &mut self.pool);
        if let Some(parity) = parity {
            self.queue_parity(now, id, parity);
        }
        if is_first {
            self.schedule(id);
        }
    }

    /// Queues the parity of a block, if packets on the link can be that long.
    fn queue_parity(&mut self, now: Instant, id: EdgeId, made: Made) {
        let Some(edge) = self.edge(id) else {
            return;
        };
        let (link, max) = (edge.link, max_payload(&self.config, &self.paths, edge.to));
        let fits = |payload: &Arc<[u8]>| max.is_some_and(|(max, _)| payload.len() <= max);
        for bytes in made.payloads.into_iter().filter(fits) {
            self.count(link, |repairs| repairs.parity += 1);
            let payload = Payload {
                kind: Kind::Parity,
                bytes,
                number: Some(made.first),
            };
            self.enqueue(now, id, payload, made.timing);
        }
        self.ready.insert(id);
    }

    /// Lets an edge keep what it sends, where its receiver may ask for it.
    pub(super) fn begin_store(&mut self, id: EdgeId) {
        let repairs = self.config.repairs;
        if let Some(edge) = self.edge_mut(id).filter(|_| repairs) {
            edge.rest.store.get_or_insert_default();
        }
    }

    /// Forgets what an edge that is removed keeps.
    pub(super) fn forget_repairs(&mut self, rest: &super::edge::Rest) {
        let stored = rest.store.as_ref().map_or(0, |store| store.bytes());
        let held = rest.gaps.as_ref().map_or(0, |gaps| gaps.bytes());
        self.pool.remove(stored + held);
    }

    /// Handles a REPAIR_REQUEST.
    #[cold]
    pub(super) fn repair_requested(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DataError> {
        let request = Request::parse(packet.payload()).map_err(|_| DataError::Malformed)?;
        let id = self.labels.get(&packet.label()).copied();
        let id = id.ok_or(DataError::UnknownFlow)?;
        let rtt = self.transit(id) * 2;
        let edge = self.edge_mut(id).ok_or(DataError::UnknownFlow)?;
        let theirs = match *meta {
            Meta::Datagram(from) => edge.to == Some(Destination::Datagram(from)),
            Meta::Path(path) => edge.to == Some(Destination::Path(path)),
            _ => false,
        };
        if !theirs || edge.up || edge.unproved {
            return Err(DataError::NotYours);
        }
        let link = edge.link;
        let store = edge.rest.store.as_mut().ok_or(DataError::NotYours)?;
        let (mut again, mut gone, mut refused) = (Vec::new(), 0, 0);
        for sequence in request.packets() {
            match store.again(now, sequence, rtt) {
                Ok(packet) => again.push((sequence, packet)),
                Err(Refused::Gone) => gone += 1,
                Err(Refused::Rate) => refused += 1,
            }
        }
        if gone > 0 {
            store.raise_parity();
        }
        let answered = again.len() as u64;
        self.count(link, |repairs| repairs.answered += answered);
        self.stats.drop(DataError::RepairGone, gone);
        self.stats.drop(DataError::RepairRate, refused);
        for (sequence, (kind, bytes, timing)) in again {
            let payload = Payload {
                number: Some(sequence),
                ..Payload::from((kind, bytes))
            };
            self.enqueue(now, id, payload, timing);
        }
        self.ready.insert(id);
        Ok(())
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
    pub(super) fn parity(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
        timing: Timing,
    ) -> Result<(), DataError> {
        let from = self.upstream(meta, packet, &timing)?;
        let parity = wire_parity::Repr::parse(packet.payload());
        let (front, shard) = parity.map_err(|_| DataError::Malformed)?;
        let until = self.patience(now, from, &timing);
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
    pub(super) fn tail(
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
        let until = self.patience(now, from, &timing);
        let edge = self.edges.get_mut(from.edge);
        let gaps = edge.and_then(|edge| edge.rest.gaps.as_mut());
        if let Some(gaps) = gaps {
            gaps.sent_up_to(now, packet.sequence(), until);
            self.release(now, from);
        }
        Ok(())
    }

    /// Writes the REPAIR_REQUEST of an edge that is due.
    pub(super) fn ask_repair(
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

    /// Writes the TAIL of an edge that is due.
    pub(super) fn say_tail(
        &mut self,
        now: Instant,
        id: EdgeId,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let transit = self.transit(id);
        let edge = self.edge_mut(id)?;
        let store = edge.rest.store.as_mut()?;
        let timing = store.poll_tail(now)?;
        let (sequence, parity) = (store.sequence(), store.end_block());
        if let Some(parity) = parity {
            self.queue_parity(now, id, parity);
        }
        let edge = self.edge(id)?;
        // Where packets wait, the last one was not the last.
        if edge.waits() || edge.unproved {
            return None;
        }
        let (label, to) = (edge.label_out?, edge.to?);
        Repr {
            sequence,
            class: timing.class,
            age_ms: timing.age_ms(now, transit),
            ..Repr::new(Kind::Tail, label)
        }
        .emit(buffer);
        Some(Transmit {
            edge: id,
            to,
            range: 0..HEADER_LEN,
        })
    }
}
