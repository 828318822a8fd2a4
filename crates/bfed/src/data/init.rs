//! Initialisations of flows: what a decoder needs before the data of a flow whose container has it only at the front
//! (WebM, fragmented MP4).
//!
//! The native network of the source finds it, and it goes down the tree in packets of its own, because data nodes that
//! join later have missed the front. Each plane on the way keeps the newest one of each flow.
//!
//! | edge downstream | gets the initialisation |
//! | --- | --- |
//! | native | when it is added, and after each change |
//! | TCP or QUIC stream | after the ATTACH, before the first data, and after each change |
//! | datagrams | in pieces, as its receiver requests them, and after each change |
//!
//! A receiver over datagrams drops data until its first request is answered, for
//! [`PlaneConfig::init_wait`](super::PlaneConfig::init_wait) at most and only when the flow begins here, so that the
//! initialisation comes before the data. It requests it as soon as the sender's address is proved, then after 0.25 s, 0.5 s and so on
//! up to [`LONGEST_WAIT`], with the number of bytes that it has, and lost pieces are sent again. Receivers of releases that do not
//! know initialisations get none.
//!
//! # Bounds
//!
//! | of | bound |
//! | --- | --- |
//! | an initialisation | [`MAX_INIT_LEN`] |
//! | those from one peer, or from the native network, also incomplete ones | [`MAX_BYTES`]; another one is refused and counted |
//! | answers to a receiver's requests | one in [`ANSWER_INTERVAL`], within the edge's rate, and none while the last one is in its queue |

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};
use rand_core::Rng;

use super::edge::Edge;
use super::table::{Entry, Key};
use super::{DataError, Destination, EdgeId, HEADER_LEN, MIN_PATH_PAYLOAD, Meta, Plane, Transmit};
use crate::native::ChannelId;
use crate::types::PeerId;
use crate::wire::class::Priority;
use crate::wire::data::{Kind, Packet, Repr};
use crate::wire::init::{self, MAX_INIT_LEN, Request};

/// Most bytes of the initialisations from one peer, or from the native network.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// Bytes in one datagram: each path and link takes as many.
const PIECE: usize = MIN_PATH_PAYLOAD - init::LEN;
/// Time between the first two requests, and between the last ones.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Time between two answers to one receiver.
const ANSWER_INTERVAL: Duration = Duration::from_millis(200);

/// Generation and length of the answer to a request for an initialisation that is not known (yet).
const NONE: (u32, u16) = (0, 0);

/// The initialisation of a flow. An empty one says that the flow had one and has none any more.
#[derive(Clone, Debug)]
pub(super) struct Init {
    generation: u32,
    bytes: Arc<[u8]>,
    /// The peer that it came from; `None`: the native network.
    peer: Option<PeerId>,
}

/// Bytes of initialisations by the peer that they came from.
#[derive(Debug, Default)]
pub(super) struct InitBytes {
    peers: BTreeMap<Option<PeerId>, usize>,
}

impl InitBytes {
    fn reserve(&mut self, peer: Option<PeerId>, len: usize) -> bool {
        let bytes = self.peers.get(&peer).copied().unwrap_or(0) + len;
        let fits = bytes <= MAX_BYTES;
        if fits {
            self.peers.insert(peer, bytes);
        }
        fits
    }

    fn release(&mut self, peer: Option<PeerId>, len: usize) {
        if let Some(bytes) = self.peers.get_mut(&peer) {
            *bytes -= len;
            if *bytes == 0 {
                self.peers.remove(&peer);
            }
        }
    }

    /// Forgets the initialisation of a flow.
    pub(super) fn forget(&mut self, init: Option<Init>) {
        if let Some(init) = init {
            self.release(init.peer, init.bytes.len());
        }
    }

    /// Forgets the incomplete initialisation of an edge.
    pub(super) fn abandon(&mut self, peer: Option<PeerId>, exchange: &Exchange) {
        if let Some(incoming) = &exchange.incoming {
            self.release(peer, incoming.total);
        }
    }
}

/// The payloads of an initialisation from one offset on, which all receivers share.
#[derive(Debug, Default)]
struct Cut {
    /// For streams.
    whole: Option<Vec<Arc<[u8]>>>,
    /// For datagrams.
    small: Option<Vec<Arc<[u8]>>>,
}

/// An incomplete initialisation.
#[derive(Debug)]
struct Incoming {
    generation: u32,
    total: usize,
    bytes: Vec<u8>,
}

/// What an edge knows of its flow's initialisation.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Downstream: the receiver understands INIT.
    wanted: bool,
    /// It is to be told that there is none.
    says_none: bool,
    /// When a request was last answered.
    answered_at: Option<Instant>,
    /// Upstream: the generation that there was no room for; 0: none.
    refused: u32,
    /// What has come so far.
    incoming: Option<Box<Incoming>>,
    /// When the next request is due, and the time until the one after it.
    ask_at: Option<Instant>,
    wait: Duration,
}

impl Exchange {
    /// Requests at once, if this edge requests at all.
    pub(super) fn ask_now(&mut self, now: Instant) {
        if self.ask_at.is_some() {
            (self.ask_at, self.wait) = (Some(now), FIRST_WAIT);
        }
    }

    /// Returns whether something is to be said once the address is proved.
    pub(super) fn waits(&self) -> bool {
        self.says_none
    }

    /// Returns whether the receiver is of a release that knows initialisations and classes.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Returns whether this edge requests initialisations.
    pub(super) fn asks(&self) -> bool {
        self.ask_at.is_some()
    }

    /// Returns when the next request is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.ask_at
    }
}

/// Returns the payloads that carry an initialisation from an offset on.
fn pieces(init: &Init, offset: usize, most: usize) -> Vec<Arc<[u8]>> {
    let total = init.bytes.len();
    let piece = |at: usize| {
        let end = total.min(at + most);
        let mut payload = vec![0; init::LEN + end - at];
        init::Repr {
            generation: init.generation,
            total: total as u16,
            offset: at as u16,
        }
        .emit(&mut payload);
        payload[init::LEN..].copy_from_slice(&init.bytes[at..end]);
        payload.into()
    };
    // An empty one takes a packet, too.
    let end = total.max(offset + 1);
    (offset..end).step_by(most).map(piece).collect()
}

impl Plane {
    /// Sets the initialisation of the flow that the native network delivers on a channel; empty for none. It goes to
    /// all receivers before the data that follows.
    ///
    /// # Errors
    /// No flow comes from that channel, or several sources do; or it is longer than
    /// [`MAX_INIT_LEN`], or the native network's initialisations are too many. In the last two cases the flow has none
    /// from now on. Errors are counted.
    pub fn set_init(
        &mut self,
        now: Instant,
        channel: ChannelId,
        bytes: &[u8],
    ) -> Result<(), DataError> {
        self.now = now;
        let result = self.native_init(now, channel, bytes);
        if let Err(reason) = result {
            self.stats.drop(reason, 1);
        }
        result
    }

    fn native_init(
        &mut self,
        now: Instant,
        channel: ChannelId,
        bytes: &[u8],
    ) -> Result<(), DataError> {
        let from = self.table.entry(&Key::native(channel));
        let from = from.ok_or(DataError::UnknownChannel)?;
        let peer = self.init_source(from)?;
        let known = self.flows.get(from.flow);
        let known = known.and_then(|flow| flow.rest.init.as_ref());
        match known {
            Some(init) if *init.bytes == *bytes => return Ok(()),
            None if bytes.is_empty() => return Ok(()),
            _ => {}
        }
        let fits = bytes.len() <= MAX_INIT_LEN && self.inits.reserve(peer, bytes.len());
        let init = Init {
            generation: self.rng.next_u32().max(1),
            bytes: if fits { bytes.into() } else { Arc::default() },
            peer,
        };
        self.replace_init(now, from.flow, init);
        match fits {
            true => Ok(()),
            false => Err(DataError::InitRefused),
        }
    }

    /// Returns the peer at an edge that a flow's initialisation may come from.
    fn init_source(&self, from: Entry) -> Result<Option<PeerId>, DataError> {
        let flow = self.flows.get(from.flow).zip(self.edges.get(from.edge));
        let (flow, edge) = flow.ok_or(DataError::UnknownFlow)?;
        match flow.up {
            Some(up) if up.index == from.edge && !flow.multi => Ok(self.links.peer(edge.link)),
            _ => Err(DataError::WrongDirection),
        }
    }

    /// Handles an INIT from upstream.
    #[cold]
    pub(super) fn take_init(
        &mut self,
        now: Instant,
        from: Entry,
        payload: &[u8],
    ) -> Result<(), DataError> {
        let (repr, bytes) = init::Repr::parse(payload).map_err(|_| DataError::Malformed)?;
        let peer = self.init_source(from)?;
        let known = self.flows.get(from.flow);
        let known = known.and_then(|flow| flow.rest.init.as_ref());
        let is_known = known.is_some_and(|known| known.generation == repr.generation);
        if is_known || (repr.generation, repr.total) == NONE {
            self.open_gate(from.flow);
            return Ok(());
        }
        let edge = self.edges.get_mut(from.edge);
        let exchange = &mut edge.ok_or(DataError::UnknownFlow)?.rest.init;
        let total = usize::from(repr.total);
        let is_new =
            |incoming: &Incoming| (incoming.generation, incoming.total) != (repr.generation, total);
        if exchange.incoming.as_deref().is_none_or(is_new) {
            if repr.offset != 0 {
                if exchange.refused == repr.generation {
                    return Err(DataError::InitRefused);
                }
                // The pieces before it were lost. They are requested once for all pieces that follow.
                let soon = now + FIRST_WAIT;
                exchange.ask_at = exchange.ask_at.map(|at| at.min(soon));
                self.ready_edge(from.edge);
                return Ok(());
            }
            self.inits.abandon(peer, exchange);
            exchange.incoming = None;
            if !self.inits.reserve(peer, total) {
                exchange.refused = repr.generation;
                return Err(DataError::InitRefused);
            }
            exchange.incoming = Some(Box::new(Incoming {
                generation: repr.generation,
                total,
                bytes: Vec::new(),
            }));
        }
        let Some(incoming) = &mut exchange.incoming else {
            return Ok(());
        };
        // What follows a lost piece is requested again with it.
        if usize::from(repr.offset) == incoming.bytes.len() {
            incoming.bytes.extend_from_slice(bytes);
        }
        if incoming.bytes.len() < total {
            exchange.ask_at = exchange.ask_at.map(|_| now + FIRST_WAIT);
            self.ready_edge(from.edge);
            return Ok(());
        }
        let init = Init {
            generation: repr.generation,
            bytes: core::mem::take(&mut incoming.bytes).into(),
            peer,
        };
        exchange.incoming = None;
        self.replace_init(now, from.flow, init);
        Ok(())
    }

    /// Keeps an initialisation, whose bytes are reserved, and sends it downstream.
    fn replace_init(&mut self, now: Instant, at: u32, init: Init) {
        let Some(flow) = self.flows.get_mut(at) else {
            self.inits.forget(Some(init));
            return;
        };
        flow.awaits_init = false;
        let before = flow.rest.init.replace(init);
        let outs: Vec<EdgeId> = (0..flow.outs()).filter_map(|at| flow.out(at)).collect();
        self.inits.forget(before);
        let mut cut = Cut::default();
        for id in outs {
            self.offer_init(now, id, &mut cut);
        }
    }

    /// Starts the exchange of initialisations on a new edge.
    pub(super) fn begin_init(&mut self, now: Instant, id: EdgeId) {
        let Some((edge, flow)) = self
            .edge(id)
            .and_then(|edge| Some((edge, self.flows.get(edge.flow)?)))
        else {
            return;
        };
        let is_datagrams = matches!(
            edge.to,
            Some(Destination::Datagram(_) | Destination::Path(_))
        );
        let wait = self.config.init_wait;
        let requests = edge.up && is_datagrams && !flow.multi && edge.rest.label_in.is_some();
        if let Some(edge) = self.edge_mut(id).filter(|_| requests) {
            (edge.rest.init.ask_at, edge.rest.init.wait) = (Some(now), FIRST_WAIT);
            let at = edge.flow;
            self.ready.insert(id);
            if let Some(flow) = self.flows.get_mut(at) {
                // Where the parent changes, frames go on; what the new one says follows.
                flow.awaits_init = !core::mem::replace(&mut flow.rest.has_asked, true);
                flow.rest.gate = now + wait;
            }
        }
        self.offer_init(now, id, &mut Cut::default());
    }

    /// Notes that the receiver at the other end of an edge understands INIT, and sends it what there is.
    pub(super) fn want_init(&mut self, now: Instant, id: EdgeId) {
        if let Some(edge) = self.edge_mut(id) {
            edge.rest.init.wanted = true;
            self.offer_init(now, id, &mut Cut::default());
        }
        // Data may have waited until the channel was opened.
        if let Some(edge) = self.edge_mut(id) {
            edge.put_init_first();
        }
    }

    /// Queues the flow's initialisation for a receiver that understands it.
    fn offer_init(&mut self, now: Instant, id: EdgeId, cut: &mut Cut) {
        let init = self.edge(id).filter(|edge| !edge.up).and_then(|edge| {
            let flow = self.flows.get(edge.flow).filter(|flow| !flow.multi)?;
            flow.rest.init.clone()
        });
        if let Some(init) = init {
            self.queue_init(now, id, (&init, 0), cut);
        }
    }

    /// Queues an initialisation from an offset on for a receiver that understands it.
    fn queue_init(
        &mut self,
        now: Instant,
        id: EdgeId,
        (init, offset): (&Init, usize),
        cut: &mut Cut,
    ) {
        let Some(edge) = self.edge(id) else {
            return;
        };
        let (at, wanted) = (edge.flow, edge.rest.init.wanted);
        let payloads = match edge.to {
            Some(Destination::Native(_)) => vec![init.bytes.clone()],
            Some(Destination::Stream(_)) if wanted => {
                let whole = || pieces(init, offset, MAX_INIT_LEN);
                cut.whole.get_or_insert_with(whole).clone()
            }
            Some(Destination::Datagram(_) | Destination::Path(_)) if wanted => {
                let small = || pieces(init, offset, PIECE);
                cut.small.get_or_insert_with(small).clone()
            }
            _ => return,
        };
        // Packets that follow must wait for it.
        self.close_shortcut(at);
        for payload in payloads {
            let timing = self.timing_of(at, now, Priority::Key);
            self.enqueue(now, id, (Kind::Init, payload), timing);
        }
        self.ready.insert(id);
    }

    /// Handles an INIT_REQUEST: sends what the receiver lacks.
    #[cold]
    pub(super) fn init_requested(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DataError> {
        let request = Request::parse(packet.payload()).map_err(|_| DataError::Malformed)?;
        let id = self.labels.get(&packet.label()).copied();
        let id = id.ok_or(DataError::UnknownFlow)?;
        let edge = self.edge_mut(id).ok_or(DataError::UnknownFlow)?;
        let theirs = match *meta {
            Meta::Datagram(from) => edge.to == Some(Destination::Datagram(from)),
            Meta::Path(path) => edge.to == Some(Destination::Path(path)),
            _ => false,
        };
        if !theirs || edge.up {
            return Err(DataError::NotYours);
        }
        edge.rest.init.wanted = true;
        let (at, answered_at) = (edge.flow, edge.rest.init.answered_at);
        let flow = self.flows.get(at).filter(|flow| !flow.multi);
        let init = flow.ok_or(DataError::WrongDirection)?.rest.init.clone();
        self.begin_store(id);
        let Some(init) = init else {
            if let Some(edge) = self.edge_mut(id) {
                edge.rest.init.says_none = true;
                self.ready.insert(id);
            }
            return Ok(());
        };
        let offset = match request.generation == init.generation {
            true => usize::from(request.offset),
            false => 0,
        };
        if request.generation == init.generation && offset >= init.bytes.len() {
            return Ok(());
        }
        let is_soon = answered_at.is_some_and(|last| last + ANSWER_INTERVAL > now);
        if is_soon || self.edge(id).is_some_and(Edge::has_init) {
            return Err(DataError::InitRate);
        }
        if let Some(edge) = self.edge_mut(id) {
            edge.rest.init.answered_at = Some(now);
        }
        self.queue_init(now, id, (&init, offset), &mut Cut::default());
        Ok(())
    }

    /// Writes the INIT_REQUEST of an edge that is due.
    pub(super) fn ask_init(
        &mut self,
        now: Instant,
        id: EdgeId,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let edge = self.edge_mut(id)?;
        edge.rest.init.ask_at.filter(|at| *at <= now)?;
        let exchange = &mut edge.rest.init;
        exchange.ask_at = Some(now + exchange.wait);
        exchange.wait = (exchange.wait * 2).min(LONGEST_WAIT);
        let edge = self.edge(id)?;
        let (label, to) = (edge.rest.label_in?, edge.to?);
        // An address that is not proved may be forged: it gets no requests.
        let key = self.neighbour(edge)?;
        if !self.liveness.is_proved(&key) {
            return None;
        }
        let incoming = edge.rest.init.incoming.as_deref();
        let incoming = incoming.map(|some| (some.generation, some.bytes.len()));
        let whole = self.flows.get(edge.flow)?.rest.init.as_ref();
        let whole = whole.map(|init| (init.generation, init.bytes.len()));
        let (generation, len) = incoming.or(whole).unwrap_or_default();
        Repr {
            payload_len: init::LEN,
            ..Repr::new(Kind::InitRequest, label)
        }
        .emit(buffer);
        let request = Request {
            generation,
            offset: len as u16,
        };
        request.emit(&mut buffer[HEADER_LEN..]);
        Some(Transmit {
            edge: id,
            to,
            range: 0..HEADER_LEN + init::LEN,
        })
    }

    /// Writes the answer that there is no initialisation. It is not part of the flow's sequence.
    pub(super) fn say_none(&mut self, id: EdgeId, buffer: &mut [u8]) -> Option<Transmit> {
        let edge = self.edge_mut(id).filter(|edge| !edge.unproved)?;
        let (label, to) = (edge.label_out?, edge.to?);
        if !core::mem::take(&mut edge.rest.init.says_none) {
            return None;
        }
        Repr {
            payload_len: init::LEN,
            ..Repr::new(Kind::Init, label)
        }
        .emit(buffer);
        let none = init::Repr {
            generation: NONE.0,
            total: NONE.1,
            offset: 0,
        };
        none.emit(&mut buffer[HEADER_LEN..]);
        Some(Transmit {
            edge: id,
            to,
            range: 0..HEADER_LEN + init::LEN,
        })
    }

    /// Forwards data from now on.
    fn open_gate(&mut self, flow: u32) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.awaits_init = false;
        }
    }

    /// Lets `poll_transmit` look at an edge, and set its timer again.
    fn ready_edge(&mut self, index: u32) {
        if let Some(edge) = self.edges.get(index) {
            let generation = edge.rest.generation;
            self.ready.insert(EdgeId { index, generation });
        }
    }
}
