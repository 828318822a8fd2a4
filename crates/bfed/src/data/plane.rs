//! Forwarding (§5.3.3).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use smoltcp::time::{Duration, Instant};

use super::edge::{Carrier, Edge};
use super::node::DataEvent;
use super::table::{Entry, Key, Table};
use super::tfrc::{Receiver, Sender};
use super::{Copy, DataError, Destination, EdgeId, HEADER_LEN, PlaneConfig};
use crate::native::ChannelId;
use crate::types::{ConnId, Content, FlowLabel, PeerId};
use crate::wire::data::{Kind, Repr};

/// Counters of a plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlaneStats {
    /// Packets handed in.
    pub packets: u64,
    /// Payload of those that went on, in bytes.
    pub bytes: u64,
    /// Copies handed out.
    pub copies: u64,
    /// Payload of copies, in bytes.
    pub copied_bytes: u64,
    /// Copies that had to wait.
    pub queued: u64,
    /// Reports sent.
    pub reports: u64,
    /// Times a bulk session's source was paused.
    pub pauses: u64,
    drops: [u64; DataError::ALL.len()],
}

impl PlaneStats {
    /// Packets and copies dropped for that reason.
    #[must_use]
    pub fn drops(&self, reason: DataError) -> u64 {
        self.drops[reason as usize]
    }

    pub(super) fn drop(&mut self, reason: DataError, count: u64) {
        self.drops[reason as usize] += count;
    }
}

/// What one flow did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlowCounts {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) copies: u64,
    pub(crate) dropped: u64,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) multi: bool,
    pub(super) content: Content,
    /// All edges that packets may go out on; the upward one too if it is of many sources.
    pub(super) out: Vec<EdgeId>,
    /// All edges.
    pub(super) edges: Vec<EdgeId>,
    pub(super) paused: bool,
    /// Edges that are full.
    pub(super) full: usize,
    pub(super) counts: FlowCounts,
}

/// The bound on what a link carries (§3.1).
#[derive(Debug)]
pub(super) struct Link {
    rate_bps: u64,
    /// When all that was sent has passed at that rate.
    pub(super) busy_until: Instant,
    edges: usize,
}

impl Link {
    /// A tenth of a second may be sent at once.
    const BURST: Duration = Duration::from_millis(100);

    pub(super) fn send(&mut self, now: Instant, len: usize) -> bool {
        if self.busy_until > now + Self::BURST {
            return false;
        }
        let micros = (len as u64 * 8).saturating_mul(1_000_000) / self.rate_bps.max(1);
        self.busy_until = self.busy_until.max(now) + Duration::from_micros(micros);
        true
    }

    pub(super) fn next_send(&self) -> Instant {
        self.busy_until - Self::BURST
    }
}

/// Walks the edges that a packet goes out on.
#[derive(Debug)]
pub struct Cursor {
    pub(super) flow: u32,
    pub(super) from: EdgeId,
    pub(super) next: usize,
    /// End of the payload in the frame.
    pub(super) end: usize,
    /// The payload, once an edge has to queue it.
    pub(super) shared: Option<Arc<[u8]>>,
}

/// The forwarding plane of a data node.
#[derive(Debug)]
pub struct Plane {
    pub(super) config: PlaneConfig,
    rng: ChaCha12Rng,
    pub(super) edges: Vec<(u32, Option<Edge>)>,
    free_edges: Vec<u32>,
    edge_count: usize,
    pub(super) flows: Vec<Option<Flow>>,
    free_flows: Vec<u32>,
    pub(super) table: Table,
    pub(super) channels: BTreeMap<ChannelId, EdgeId>,
    /// By the labels that this node gave.
    pub(super) labels: BTreeMap<FlowLabel, EdgeId>,
    pub(super) streams: BTreeMap<ConnId, EdgeId>,
    pub(super) links: BTreeMap<PeerId, Link>,
    pub(super) timers: BTreeSet<(Instant, EdgeId)>,
    /// Edges whose queue may move.
    pub(super) ready: BTreeSet<EdgeId>,
    /// Edges that owe an ATTACH.
    pub(super) attach: VecDeque<EdgeId>,
    pub(super) events: VecDeque<DataEvent>,
    pub(super) stats: PlaneStats,
    pub(super) now: Instant,
}

impl Plane {
    pub(super) fn new(config: PlaneConfig, seed: [u8; 32], now: Instant) -> Self {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let secret = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        Plane {
            config,
            rng,
            edges: Vec::new(),
            free_edges: Vec::new(),
            edge_count: 0,
            flows: Vec::new(),
            free_flows: Vec::new(),
            table: Table::new(secret),
            channels: BTreeMap::new(),
            labels: BTreeMap::new(),
            streams: BTreeMap::new(),
            links: BTreeMap::new(),
            timers: BTreeSet::new(),
            ready: BTreeSet::new(),
            attach: VecDeque::new(),
            events: VecDeque::new(),
            stats: PlaneStats::default(),
            now,
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &PlaneStats {
        &self.stats
    }

    /// How many edges there are.
    #[must_use]
    pub fn edge_count(&self) -> usize {
        self.edge_count
    }

    pub(super) fn edge(&self, id: EdgeId) -> Option<&Edge> {
        let (generation, edge) = self.edges.get(id.index as usize)?;
        edge.as_ref().filter(|_| *generation == id.generation)
    }

    pub(super) fn edge_mut(&mut self, id: EdgeId) -> Option<&mut Edge> {
        let (generation, edge) = self.edges.get_mut(id.index as usize)?;
        edge.as_mut().filter(|_| *generation == id.generation)
    }

    pub(super) fn flow_mut(&mut self, flow: u32) -> Option<&mut Flow> {
        self.flows.get_mut(flow as usize)?.as_mut()
    }

    pub(super) fn counts(&self, flow: u32) -> FlowCounts {
        let flow = self.flows.get(flow as usize).and_then(Option::as_ref);
        flow.map_or_else(FlowCounts::default, |flow| flow.counts)
    }

    pub(super) fn add_flow(&mut self, content: Content, multi: bool) -> u32 {
        let flow = Flow {
            multi,
            content,
            out: Vec::new(),
            edges: Vec::new(),
            paused: false,
            full: 0,
            counts: FlowCounts::default(),
        };
        match self.free_flows.pop() {
            Some(free) => {
                self.flows[free as usize] = Some(flow);
                free
            }
            None => {
                self.flows.push(Some(flow));
                self.flows.len() as u32 - 1
            }
        }
    }

    pub(super) fn remove_flow(&mut self, flow: u32) {
        let edges = self
            .flow_mut(flow)
            .map_or_else(Vec::new, |flow| flow.edges.clone());
        for edge in edges {
            self.remove_edge(edge);
        }
        if self
            .flows
            .get_mut(flow as usize)
            .and_then(Option::take)
            .is_some()
        {
            self.free_flows.push(flow);
        }
    }

    /// Adds an edge; none at the limit.
    pub(super) fn add_edge(
        &mut self,
        now: Instant,
        edge: Edge,
        link: Option<(PeerId, u64)>,
    ) -> Option<EdgeId> {
        if self.edge_count >= self.config.max_edges {
            return None;
        }
        let mut edge = edge;
        let flow = edge.flow;
        let goes_out = !edge.up || self.flow_mut(flow).is_some_and(|flow| flow.multi);
        if let Carrier::Datagram(_) = edge.carrier {
            let sends = edge.label_out.is_some();
            edge.sender = sends.then(|| Box::new(Sender::new(now, 1200)));
            edge.receiver = edge.label_in.map(|_| Box::new(Receiver::new(now)));
        }
        if let Some((peer, rate_bps)) = link.filter(|(_, rate)| *rate > 0) {
            let fresh = Link {
                rate_bps,
                busy_until: now,
                edges: 0,
            };
            let link = self.links.entry(peer).or_insert(fresh);
            link.rate_bps = rate_bps;
            link.edges += 1;
            edge.link = Some(peer);
        }
        let index = self.free_edges.pop().unwrap_or_else(|| {
            self.edges.push((0, None));
            self.edges.len() as u32 - 1
        });
        let id = EdgeId {
            index,
            generation: self.edges[index as usize].0,
        };
        self.index_edge(id, &edge);
        self.edges[index as usize].1 = Some(edge);
        self.edge_count += 1;
        if let Some(flow) = self.flow_mut(flow) {
            flow.edges.push(id);
            if goes_out {
                flow.out.push(id);
            }
        }
        Some(id)
    }

    fn index_edge(&mut self, id: EdgeId, edge: &Edge) {
        if let Some(label) = edge.label_out {
            self.labels.insert(label, id);
        }
        if let Some(key) = key_of(edge) {
            self.table.insert(key, entry(id, edge));
        }
        match edge.carrier {
            Carrier::Native(channel) => {
                self.channels.insert(channel, id);
            }
            Carrier::Stream(_, Some(conn)) => {
                self.streams.insert(conn, id);
            }
            _ => {}
        }
    }

    pub(super) fn remove_edge(&mut self, id: EdgeId) {
        if self.edge(id).is_none() {
            return;
        }
        let (generation, slot) = &mut self.edges[id.index as usize];
        *generation = generation.wrapping_add(1);
        let Some(edge) = slot.take() else {
            return;
        };
        self.free_edges.push(id.index);
        self.edge_count -= 1;
        if let Some(label) = edge.label_out {
            self.labels.remove(&label);
        }
        if let Some(key) = key_of(&edge) {
            self.table.remove(&key, id);
        }
        match edge.carrier {
            Carrier::Native(channel) => {
                self.channels.remove(&channel);
            }
            Carrier::Stream(_, Some(conn)) => {
                self.streams.remove(&conn);
                self.events.push_back(DataEvent::Close(conn));
            }
            _ => {}
        }
        if let Some(link) = edge.link.and_then(|peer| self.links.get_mut(&peer)) {
            link.edges -= 1;
        }
        self.links.retain(|_, link| link.edges > 0);
        if let Some(due) = edge.due {
            self.timers.remove(&(due, id));
        }
        self.ready.remove(&id);
        if let Some(flow) = self.flow_mut(edge.flow) {
            flow.edges.retain(|other| *other != id);
            flow.out.retain(|other| *other != id);
            flow.full -= usize::from(edge.full_since.is_some());
        }
        self.resume(edge.flow);
    }

    /// A label that no edge of this node has: random (§5.3.2, "locally unique").
    pub(super) fn new_label(&mut self) -> FlowLabel {
        loop {
            let label = FlowLabel::new(self.rng.next_u32());
            if let Some(label) = label.filter(|label| !self.labels.contains_key(label)) {
                return label;
            }
        }
    }

    /// The stream of an edge is there.
    pub(super) fn set_stream(&mut self, id: EdgeId, conn: ConnId) -> bool {
        let Some(edge) = self.edge_mut(id) else {
            return false;
        };
        let Carrier::Stream(address, old) = edge.carrier else {
            return false;
        };
        edge.carrier = Carrier::Stream(address, Some(conn));
        edge.blocked = false;
        let label = edge.label_in;
        let entry = entry(id, edge);
        if let Some(old) = old.filter(|old| *old != conn) {
            self.streams.remove(&old);
            self.events.push_back(DataEvent::Close(old));
            if let Some(label) = label {
                self.table.remove(&Key::stream(old, label), id);
            }
        }
        if let Some(label) = label {
            self.table.insert(Key::stream(conn, label), entry);
        }
        self.streams.insert(conn, id);
        self.ready.insert(id);
        true
    }

    /// A TCP channel has ended. The edge stays: its other side may open another.
    pub fn stream_ended(&mut self, conn: ConnId) -> Option<EdgeId> {
        let id = self.streams.remove(&conn)?;
        let edge = self.edge_mut(id)?;
        let Carrier::Stream(address, _) = edge.carrier else {
            return None;
        };
        edge.carrier = Carrier::Stream(address, None);
        edge.blocked = false;
        let label = edge.label_in;
        if let Some(label) = label {
            self.table.remove(&Key::stream(conn, label), id);
        }
        self.clear_queue(id, DataError::NotAttached);
        Some(id)
    }

    /// The next copy of the packet in `frame` that can be sent now, its header written for whom it
    /// goes to; those that have to wait are queued. Drain until `None`.
    pub fn next_copy(
        &mut self,
        now: Instant,
        cursor: &mut Cursor,
        frame: &mut [u8],
    ) -> Option<Copy> {
        loop {
            let flow = self.flows.get(cursor.flow as usize)?.as_ref()?;
            let id = *flow.out.get(cursor.next)?;
            cursor.next += 1;
            if id == cursor.from {
                continue;
            }
            let payload = HEADER_LEN..cursor.end;
            if self.may_send(now, id, payload.len()) {
                if let Some(header) = self.stamp(now, id, payload.len()) {
                    header.emit(frame);
                    return self.copy(id, 0..cursor.end);
                }
                return self.copy(id, payload);
            }
            if self
                .edge(id)
                .is_some_and(|edge| edge.destination().is_none())
            {
                self.lose(id, DataError::NotAttached, 1);
                continue;
            }
            let shared = cursor
                .shared
                .get_or_insert_with(|| frame[payload].into())
                .clone();
            self.enqueue(now, id, shared);
        }
    }

    /// Whether the edge can be sent on at once; if so that is counted.
    pub(super) fn may_send(&mut self, now: Instant, id: EdgeId, len: usize) -> bool {
        let Some(edge) = self.edge(id) else {
            return false;
        };
        if edge.blocked || !edge.queue.is_empty() || edge.destination().is_none() {
            return false;
        }
        self.allowed(now, id, len)
    }

    /// Whether rates allow it.
    pub(super) fn allowed(&mut self, now: Instant, id: EdgeId, len: usize) -> bool {
        let Some((_, Some(edge))) = self.edges.get_mut(id.index as usize) else {
            return false;
        };
        let len = HEADER_LEN + len;
        if let Some(link) = edge.link.and_then(|peer| self.links.get_mut(&peer)) {
            if link.next_send() > now {
                return false;
            }
            if edge
                .sender
                .as_mut()
                .is_none_or(|sender| sender.send(now, len))
            {
                return link.send(now, len);
            }
            return false;
        }
        edge.sender
            .as_mut()
            .is_none_or(|sender| sender.send(now, len))
    }

    /// The header of the next packet on an edge; none on native ones.
    pub(super) fn stamp(&mut self, now: Instant, id: EdgeId, payload_len: usize) -> Option<Repr> {
        let edge = self.edge_mut(id)?;
        let label = edge.label_out?;
        let (mut sequence, mut timestamp_us, mut rtt_us) = (0, 0, 0);
        if let Some(sender) = &edge.sender {
            edge.sequence = edge.sequence.wrapping_add(1);
            sequence = edge.sequence;
            timestamp_us = now.total_micros() as u32;
            rtt_us = sender.rtt_us();
        }
        Some(Repr {
            kind: Kind::Data,
            label,
            sequence,
            timestamp_us,
            rtt_us,
            payload_len,
        })
    }

    pub(super) fn copy(&mut self, id: EdgeId, range: core::ops::Range<usize>) -> Option<Copy> {
        let edge = self.edge(id)?;
        let (to, flow) = (edge.destination()?, edge.flow);
        let header = if matches!(to, Destination::Native(_)) {
            0
        } else {
            HEADER_LEN
        };
        self.stats.copies += 1;
        self.stats.copied_bytes += (range.len() - header) as u64;
        if let Some(flow) = self.flow_mut(flow) {
            flow.counts.copies += 1;
        }
        Some(Copy {
            edge: id,
            to,
            range,
        })
    }
}

/// What packets that come on the edge are led by.
pub(super) fn entry(id: EdgeId, edge: &Edge) -> Entry {
    Entry {
        edge: id,
        flow: edge.flow,
        up: edge.up,
        counts: edge.receiver.is_some(),
    }
}

/// What leads to the edge.
fn key_of(edge: &Edge) -> Option<Key> {
    let label = edge.label_in?;
    match edge.carrier {
        Carrier::Datagram(from) => Some(Key::datagram(from, label)),
        Carrier::Stream(_, Some(conn)) => Some(Key::stream(conn, label)),
        Carrier::Stream(_, None) | Carrier::Native(_) => None,
    }
}
