//! Forwarding (§5.3.3).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use proto_core::time::{Duration, Instant};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use super::cursor::Cursor;
use super::edge::Edge;
use super::flow::{Flow, FlowCounts};
use super::fragment::{Assembly, Joined};
use super::init::InitBytes;
use super::link::Links;
use super::liveness::{self, LivenessTable};
use super::node::DataEvent;
use super::paths::{Paths, max_payload, transit};
use super::queue::{Ages, Timing};
use super::repair::{Pool, Repairs};
use super::shortcut;
use super::table::{Entry, Key, Table};
use super::tfrc::{Receiver, Sender};
use super::{DataError, Destination, Drops, EdgeId, HEADER_LEN, PlaneConfig, Transmit};
use crate::slots::Slots;
use crate::types::{ConnId, Content, FlowLabel, PeerId};
use crate::wire::class::{Class, Priority};
use crate::wire::data::Kind;

/// Counters of a plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlaneStats {
    /// Packets received.
    pub packets: u64,
    /// Payload of forwarded packets, in bytes.
    pub bytes: u64,
    /// Copies sent.
    pub copies: u64,
    /// Payload of the copies, in bytes.
    pub copied_bytes: u64,
    /// Copies that were queued.
    pub queued: u64,
    /// Reports sent.
    pub reports: u64,
    /// Times a bulk session's source was paused.
    pub pauses: u64,
    /// Ages of the real-time frames that native networks got.
    pub ages: Ages,
    /// Packets and copies dropped, by reason.
    pub drops: Drops,
}

impl PlaneStats {
    pub(super) fn drop(&mut self, reason: DataError, count: u64) {
        self.drops.add(reason, count);
    }

    /// Counts a copy of a packet.
    #[inline]
    pub(super) fn copied(&mut self, flow: &mut Flow, payload_len: usize) {
        self.copies += 1;
        self.copied_bytes += payload_len as u64;
        flow.copies += 1;
    }
}

/// The forwarding plane of a data node.
#[derive(Debug)]
pub struct Plane {
    pub(super) config: PlaneConfig,
    pub(super) rng: ChaCha12Rng,
    pub(super) edges: Slots<Edge>,
    /// The generation of the next edge.
    generation: u32,
    pub(super) flows: Slots<Flow>,
    pub(super) table: Table,
    /// Edges by the labels that this node gave.
    pub(super) labels: BTreeMap<FlowLabel, EdgeId>,
    pub(super) streams: BTreeMap<ConnId, EdgeId>,
    pub(super) links: Links,
    pub(super) paths: Paths,
    pub(super) liveness: LivenessTable,
    pub(super) assembly: Assembly,
    pub(super) inits: InitBytes,
    /// Packets that may be sent again, or wait for others, on all edges.
    pub(super) pool: Pool,
    pub(super) repairs: BTreeMap<PeerId, Repairs>,
    pub(super) timers: BTreeSet<(Instant, EdgeId)>,
    /// Edges whose queue may be sent.
    pub(super) ready: BTreeSet<EdgeId>,
    /// Edges on which an ATTACH, or a first INIT_REQUEST, is to be sent before everything else.
    pub(super) attach: VecDeque<EdgeId>,
    pub(super) events: VecDeque<DataEvent>,
    /// Edges that need a TCP channel, and its address.
    pub(super) dials: VecDeque<(EdgeId, SocketAddr)>,
    pub(super) stats: PlaneStats,
    pub(super) now: Instant,
}

impl Plane {
    pub(super) fn new(config: PlaneConfig, seed: [u8; 32], now: Instant) -> Self {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let secret = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        let assembly = Assembly::new(rng.next_u32());
        Plane {
            config,
            assembly,
            rng,
            edges: Slots::default(),
            generation: 0,
            flows: Slots::default(),
            table: Table::new(secret),
            labels: BTreeMap::new(),
            streams: BTreeMap::new(),
            links: Links::new(),
            paths: Paths::default(),
            liveness: LivenessTable::new(now),
            inits: InitBytes::default(),
            pool: Pool::default(),
            repairs: BTreeMap::new(),
            timers: BTreeSet::new(),
            ready: BTreeSet::new(),
            attach: VecDeque::new(),
            events: VecDeque::new(),
            dials: VecDeque::new(),
            stats: PlaneStats::default(),
            now,
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &PlaneStats {
        &self.stats
    }

    /// Returns the number of edges.
    #[must_use]
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    pub(super) fn edge(&self, id: EdgeId) -> Option<&Edge> {
        let edge = self.edges.get(id.index)?;
        (edge.rest.generation == id.generation).then_some(edge)
    }

    pub(super) fn edge_mut(&mut self, id: EdgeId) -> Option<&mut Edge> {
        let edge = self.edges.get_mut(id.index)?;
        (edge.rest.generation == id.generation).then_some(edge)
    }

    /// Returns the sender of an edge over UDP.
    pub(super) fn sender_mut(&mut self, id: EdgeId) -> Option<&mut Sender> {
        self.edge_mut(id)?.sender.as_deref_mut()
    }

    #[inline]
    pub(super) fn flow_mut(&mut self, flow: u32) -> Option<&mut Flow> {
        self.flows.get_mut(flow)
    }

    pub(super) fn counts(&self, flow: u32) -> FlowCounts {
        let Some(flow) = self.flows.get(flow) else {
            return FlowCounts::default();
        };
        let (mut counts, up) = (flow.counts(), flow.up);
        if let Some((up, edge)) = up.and_then(|up| Some((up, self.edge(up)?))) {
            counts.add(&shortcut::counts(&self.table, up, edge));
        }
        counts
    }

    /// Adds a flow. `lifetime` is that of its frames, if the session's name says so.
    pub(super) fn add_flow(
        &mut self,
        content: Content,
        multi: bool,
        lifetime: Option<Duration>,
    ) -> u32 {
        let lifetime = lifetime.unwrap_or(self.config.real_time_delay);
        let class = match content {
            Content::RealTime => Class::new(Priority::Normal, lifetime),
            Content::Bulk => Class::NONE,
        };
        self.flows.insert_with(|_| Flow::new(content, multi, class))
    }

    /// Returns class and time of a frame of a flow that enters the federation here.
    pub(super) fn timing_of(&self, flow: u32, now: Instant, priority: Priority) -> Timing {
        let flow = self.flows.get(flow);
        let class = flow.map_or(Class::NONE, |flow| flow.rest.class);
        Timing {
            class: class.with_priority(priority),
            born: now,
        }
    }

    /// Removes a flow, whose edges are removed before.
    pub(super) fn remove_flow(&mut self, flow: u32) {
        let init = self.flows.remove(flow).and_then(|flow| flow.rest.init);
        self.inits.forget(init);
    }

    /// Adds an edge, over the link to a peer with its rate limit in bit/s (0 for none) or over the native network.
    /// Returns `None` at the limit.
    pub(super) fn add_edge(
        &mut self,
        now: Instant,
        mut edge: Edge,
        link: Option<(PeerId, u64)>,
    ) -> Option<EdgeId> {
        if self.edge_count() >= self.config.max_edges {
            if let Some(path) = edge.rest.path {
                self.paths.remove(path);
            }
            return None;
        }
        if let Some(Destination::Datagram(_)) = edge.to {
            let sends = edge.label_out.is_some();
            edge.sender = sends.then(|| Box::new(Sender::new(now, 1200)));
            edge.rest.receiver = edge.rest.label_in.map(|_| Box::new(Receiver::new(now)));
        }
        self.close_shortcut(edge.flow);
        self.set_bound(link);
        edge.link = link.map_or(0, |(peer, rate_bps)| self.links.add(now, peer, rate_bps));
        let generation = self.generation;
        self.generation = generation.wrapping_add(1);
        edge.rest.generation = generation;
        let (up, flow) = (edge.up, edge.flow);
        let index = self.edges.insert_with(|_| edge);
        let id = EdgeId { index, generation };
        let edge = self.edges.get_mut(index)?;
        if let Some((to, (peer, _))) = edge.neighbour().zip(link) {
            let rng = &mut self.rng;
            let random = || rng.next_u32();
            let proved = self.liveness.add(now, (to, peer), id, edge.up, random);
            let datagrams = edge.sender.is_some() || matches!(edge.to, Some(Destination::Path(_)));
            edge.unproved = datagrams && !proved;
        }
        if let Some(label) = edge.label_out {
            self.labels.insert(label, id);
        }
        if let Some(key) = edge.key() {
            let entry = Entry::new(id, edge);
            self.set_entry(key, entry);
        }
        if let Some(flow) = self.flow_mut(flow) {
            flow.add(id, up);
        }
        self.begin_init(now, id);
        Some(id)
    }

    /// Sets the rate limit of the link to a peer, in bit/s; 0 for none.
    pub(super) fn set_bound(&mut self, link: Option<(PeerId, u64)>) {
        if let Some((peer, rate_bps)) = link {
            self.close_shortcuts_over(peer, rate_bps);
            for id in self.links.set_rate(peer, rate_bps) {
                if let Some(edge) = self.edge_mut(id) {
                    edge.rest.is_waiting_for_turn = false;
                }
                self.ready.insert(id);
            }
        }
    }

    pub(super) fn remove_edge(&mut self, id: EdgeId) {
        let Some(flow) = self.edge(id).map(|edge| edge.flow) else {
            return;
        };
        self.close_shortcut(flow);
        let Some(edge) = self.edges.remove(id.index) else {
            return;
        };
        if let Some(label) = edge.label_out {
            self.labels.remove(&label);
        }
        if let Some(key) = edge.key() {
            self.table.remove(&key, id.index);
        }
        if let Some(conn) = edge.stream() {
            self.streams.remove(&conn);
            self.events.push_back(DataEvent::Close(conn));
        }
        if let Some(key) = edge.neighbour().zip(self.links.peer(edge.link)) {
            self.liveness.remove(key, id);
        }
        if let Some(path) = edge.rest.path {
            self.paths.remove(path);
        }
        self.assembly.forget(edge.link, id);
        self.inits
            .abandon(self.links.peer(edge.link), &edge.rest.init);
        self.forget_repairs(&edge.rest);
        if edge.rest.is_waiting_for_turn {
            self.links.leave(edge.link, edge.rest.session, id);
        }
        self.links.remove(edge.link);
        if let Some(due) = edge.rest.due {
            self.timers.remove(&(due, id));
        }
        self.ready.remove(&id);
        if let Some(flow) = self.flow_mut(edge.flow) {
            flow.remove(id);
            flow.rest.full -= usize::from(edge.rest.full_since.is_some());
        }
        self.resume(edge.flow);
    }

    /// Probes neighbours and updates their states.
    pub(super) fn probe_neighbours(&mut self, now: Instant, interval: Duration) {
        let (rng, edges, flows) = (&mut self.rng, &self.edges, &self.flows);
        let table = &self.table;
        let came = |id: &EdgeId| {
            let edge = edges.get(id.index)?;
            let flow = flows.get(edge.flow)?;
            // Packets of sessions with many sources may come from other senders.
            let short = shortcut::counts(table, *id, edge).packets;
            (!flow.multi).then_some(flow.packets + short)
        };
        let packets = |sources: &BTreeSet<EdgeId>| sources.iter().filter_map(came).sum();
        self.liveness
            .handle_timeout(now, interval, || rng.next_u32(), packets);
    }

    /// Returns the data node at the other end of an edge, as its peer named it.
    pub(super) fn neighbour(&self, edge: &Edge) -> Option<liveness::Key> {
        edge.neighbour().zip(self.links.peer(edge.link))
    }

    /// Unlocks edges whose address is proved.
    pub(super) fn unlock(&mut self, now: Instant, edges: BTreeSet<EdgeId>) {
        for id in edges {
            let Some(edge) = self.edge_mut(id) else {
                continue;
            };
            edge.unproved = false;
            edge.rest.init.ask_now(now);
            if let Some(sender) = &mut edge.sender {
                sender.ready(now);
            }
            let init = &edge.rest.init;
            let (waits, asks) = (edge.waits() || init.waits(), init.asks());
            if waits {
                self.ready.insert(id);
            }
            if asks {
                // Before the PROBE that lets the sender start, so that the initialisation precedes the data.
                self.attach.push_back(id);
            }
        }
    }

    /// Returns a random label that no edge of this node has (§5.3.2, "locally unique").
    pub(super) fn new_label(&mut self) -> FlowLabel {
        loop {
            let label = FlowLabel::new(self.rng.next_u32());
            if let Some(label) = label.filter(|label| !self.labels.contains_key(label)) {
                return label;
            }
        }
    }

    /// Sets the TCP channel of an edge.
    pub(super) fn set_stream(&mut self, id: EdgeId, conn: ConnId) -> bool {
        if !self.edge(id).is_some_and(Edge::wants_stream) {
            return false;
        }
        if let Some(old) = self.unset_stream(id).filter(|old| *old != conn) {
            self.events.push_back(DataEvent::Close(old));
        }
        let Some(edge) = self.edge_mut(id) else {
            return false;
        };
        edge.to = Some(Destination::Stream(conn));
        edge.rest.awaits_stream = false;
        let entry = Entry::new(id, edge);
        if let Some(key) = edge.key() {
            self.set_entry(key, entry);
        }
        self.streams.insert(conn, id);
        if self.edge(id).is_some_and(Edge::waits) {
            self.ready.insert(id);
        } else {
            self.eased(id);
        }
        true
    }

    /// Leads packets with this key to the edge.
    fn set_entry(&mut self, key: Key, entry: Entry) {
        if let Some(before) = self.table.entry(&key) {
            self.close_shortcut(before.flow);
        }
        self.table.insert(key, entry);
    }

    /// Removes the TCP channel of an edge and returns it.
    fn unset_stream(&mut self, id: EdgeId) -> Option<ConnId> {
        let flow = self.edge(id)?.flow;
        self.close_shortcut(flow);
        let edge = self.edge_mut(id)?;
        let conn = edge.stream()?;
        let key = edge.key();
        edge.to = None;
        edge.blocked = false;
        if let Some(key) = key {
            self.table.remove(&key, id.index);
        }
        self.streams.remove(&conn);
        Some(conn)
    }

    /// Reports that a TCP channel has ended. The edge remains: the other side may open another channel.
    pub fn stream_ended(&mut self, conn: ConnId) -> Option<EdgeId> {
        let id = *self.streams.get(&conn)?;
        self.unset_stream(id);
        self.clear_queue(id, DataError::NotAttached);
        Some(id)
    }

    /// Returns the next copy of the packet in `frame` that can be sent now, with its header written; copies that
    /// must wait are queued. Drain until `None`.
    // Without inlining, each copy would be returned through memory.
    #[inline(always)]
    pub fn next_transmit(
        &mut self,
        now: Instant,
        cursor: &mut Cursor,
        frame: &mut [u8],
    ) -> Option<Transmit> {
        if cursor.next == 0 && cursor.timing.class.is_some() {
            self.count_age(now, cursor);
        }
        loop {
            let from = cursor.from.entry;
            let flow = self.flows.get_mut(from.flow)?;
            let id = flow.out(cursor.next)?;
            cursor.next += 1;
            if id.index == from.edge {
                continue;
            }
            let edge = self.edges.get_mut(id.index)?;
            let len = cursor.end - HEADER_LEN;
            if let Some((max, piece)) = max_payload(&self.config, &self.paths, edge.to) {
                if len > max {
                    self.send_in_fragments(now, id, piece, cursor, frame);
                    continue;
                }
            } else if cursor.kind == Kind::Fragment {
                // The native network gets the frame once it is complete.
                continue;
            }
            let is_timed = cursor.timing.class.is_some();
            let transit = match is_timed {
                true => transit(&self.paths, edge),
                false => Duration::ZERO,
            };
            if is_timed && cursor.timing.expires().is_some_and(|at| at < now + transit) {
                self.lose(id, DataError::TooLate, 1);
                continue;
            }
            if let Some(to) = edge.to.filter(|_| !edge.blocked && !edge.waits())
                && !self.links.is_waited_for(edge.link)
                && edge.allowed(now, &mut self.links, len)
            {
                self.stats.copied(flow, len);
                let time = (cursor.timing, transit);
                if let Destination::Native(_) = to {
                    self.stats.ages.delivered(now, &cursor.timing);
                }
                let packet = (cursor.kind, None);
                let range = edge.stamp(now, packet, time, frame, len)..cursor.end;
                let is_kept = is_timed && edge.rest.store.is_some();
                let bound = edge.sender.is_some() || self.links.is_bounded(edge.link);
                // With many sources, the edge that it came from is another output.
                // Ages of frames with a class are compared and counted.
                if flow.outs() == 1 && !bound && !is_timed {
                    self.open_shortcut(cursor.from.place, from, id);
                }
                if is_kept {
                    let packet = (cursor.kind, cursor.share(frame));
                    self.keep(now, id, packet, cursor.timing);
                }
                return Some(Transmit {
                    edge: id,
                    to,
                    range,
                });
            }
            self.wait(now, id, cursor, frame);
        }
    }

    /// Queues a copy that cannot be sent now.
    #[cold]
    fn wait(&mut self, now: Instant, id: EdgeId, cursor: &mut Cursor, frame: &[u8]) {
        let keeps = |edge: &Edge| edge.to.is_some() || edge.rest.awaits_stream;
        if !self.edge(id).is_some_and(keeps) {
            self.lose(id, DataError::NotAttached, 1);
            return;
        }
        self.enqueue(now, id, (cursor.kind, cursor.share(frame)), cursor.timing);
    }

    /// Sends a frame that is longer than a datagram in fragments.
    #[cold]
    fn send_in_fragments(
        &mut self,
        now: Instant,
        id: EdgeId,
        max: usize,
        cursor: &Cursor,
        frame: &[u8],
    ) {
        // A fragment that is too long for the next link is not split again: its frame is, once it is complete.
        if cursor.kind == Kind::Data {
            let payload = &frame[HEADER_LEN..cursor.end];
            self.enqueue_fragments(now, id, max, payload, cursor.timing);
        }
    }

    /// Queues the fragments of a frame, each with a payload of at most `max` bytes.
    pub(super) fn enqueue_fragments(
        &mut self,
        now: Instant,
        id: EdgeId,
        max: usize,
        frame: &[u8],
        timing: Timing,
    ) {
        let Some(pieces) = self.assembly.cut(frame, max) else {
            self.lose(id, DataError::Incomplete, 1);
            return;
        };
        for piece in pieces {
            self.enqueue(now, id, (Kind::Fragment, piece), timing);
        }
        self.ready.insert(id);
    }

    /// Handles a fragment: if it completes its frame, the frame is sent to native networks, and in shorter fragments to
    /// links that do not take these.
    #[cold]
    pub(super) fn join(&mut self, now: Instant, from: Entry, payload: &[u8], timing: Timing) {
        let (flow, edge) = (self.flows.get(from.flow), self.edges.get(from.edge));
        let Some((flow, edge)) = flow.zip(edge) else {
            return;
        };
        // Fragments arrive in datagrams: the edge that this one arrived on is not native.
        let outs = (0..flow.outs()).filter_map(|at| flow.out(at));
        let whole = outs.filter_map(|out| {
            let to = self.edge(out).and_then(|edge| edge.to)?;
            match (to, max_payload(&self.config, &self.paths, Some(to))) {
                (Destination::Native(_), _) => Some((out, None)),
                (_, Some((max, piece))) if payload.len() > max && out.index != from.edge => {
                    Some((out, Some(piece)))
                }
                _ => None,
            }
        });
        let whole: Vec<_> = whole.collect();
        if whole.is_empty() {
            return;
        }
        let id = EdgeId {
            index: from.edge,
            generation: edge.rest.generation,
        };
        let time = (now, self.config.real_time_delay);
        let (joined, dropped) = self.assembly.join(time, edge.link, id, payload);
        self.stats.drop(DataError::Incomplete, dropped);
        if let Joined::Whole(frame) = joined {
            for (id, piece) in whole {
                match piece {
                    Some(max) => self.enqueue_fragments(now, id, max, &frame, timing),
                    None => self.enqueue(now, id, (Kind::Data, frame.clone()), timing),
                }
                self.ready.insert(id);
            }
        }
    }
}
