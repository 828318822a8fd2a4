//! QUIC between data nodes (RFC 9000, RFC 9221), over the data node's UDP socket.
//!
//! All flows between two data nodes share one connection. A flow of a bulk session is a stream, which the receiver opens
//! with an ATTACH, as it opens a TCP channel; packets of real-time sessions are datagrams. QUIC packets are told from
//! others by their second bit, which is the version in the first byte of the others ([`is_quic`]).
//!
//! # Who may connect
//!
//! The plane knows the address and the certificate of each data node that a peer's control node named. Packets from other
//! addresses get no answer at all. Each incoming connection must show that it receives at its address (RETRY, RFC 9000
//! §8.1.2) before anything is kept for it, and then the certificate, before a packet of it is forwarded.
//!
//! # Bounds
//!
//! | of | bound |
//! | --- | --- |
//! | connections | [`MAX_CONNECTIONS`]; one more is refused |
//! | handshakes of outgoing connections | [`MAX_DIALS`]; the oldest is given up for one more, so that addresses that do not answer keep no other waiting |
//! | handshakes of incoming connections from one address | [`MAX_HANDSHAKES`], for [`TIMEOUT`] |
//! | streams | `limits.streams-per-node`, shared with TCP |
//! | received bytes of a stream that were not read | [`STREAM_WINDOW`](settings::STREAM_WINDOW) |
//! | sent bytes of a connection that were not acknowledged | [`SEND_WINDOW`](settings::SEND_WINDOW) |
//! | datagrams of a connection that were not sent | [`DATAGRAM_BUFFER`](settings::DATAGRAM_BUFFER), and one for each edge; more wait in the plane, which drops late frames |
//! | datagrams before a connection is established | [`MAX_EARLY`] |

mod connection;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use bfed::data::{EdgeId, PathId};
use bfed::{ConnId, Duration, Instant, KeyDigest};
use bytes::{Bytes, BytesMut};
use control_stream::links::LinkCredentials;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, Incoming, StreamId, Transmit,
};

use super::Node;
use super::streams::Reading;
use super::udp::Datagrams;
use connection::{Connection, Written};
pub(crate) use settings::Congestion;

/// Most connections of a data node, incoming and outgoing.
pub(crate) const MAX_CONNECTIONS: usize = 1024;
/// Most handshakes of incoming connections from one address at the same time.
pub(crate) const MAX_HANDSHAKES: usize = 4;
/// Most handshakes of outgoing connections at the same time. A peer may name addresses within its prefixes that do not
/// answer: each gets the first packets of a handshake, about ten kilobytes in ten seconds.
pub(crate) const MAX_DIALS: usize = 256;
/// Most datagrams that wait until a connection is established.
const MAX_EARLY: usize = 64;
/// Time for a handshake.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Datagrams that a connection sends in a row before others get their turn, in pieces of up to [`SEGMENTS`].
const PIECES: usize = 16;
const SEGMENTS: usize = 40;
/// Streams of QUIC have numbers from here on: TCP channels of one data node never reach them.
const FIRST_STREAM: u64 = 1 << 63;

/// Returns whether a datagram is a QUIC packet: RFC 9000 fixes the second bit (§17.2, §17.3), and data packets have their
/// version there ([`bfed::wire::data`]).
pub(crate) fn is_quic(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0x40 != 0)
}

/// Returns whether a channel is a stream of QUIC.
pub(crate) fn is_stream(conn: ConnId) -> bool {
    conn.0 >= FIRST_STREAM
}

/// The other end of connections: an address, and the certificate that is proved there.
type End = (SocketAddr, KeyDigest);

/// Counters of QUIC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Packets from addresses that no control node named.
    pub(crate) unnamed: u64,
    /// RETRY packets sent.
    pub(crate) retries: u64,
    /// Connections refused at a bound, or because of their certificate.
    pub(crate) refused: u64,
    /// Connections established.
    pub(crate) connected: u64,
    /// Connections that failed or timed out.
    pub(crate) lost: u64,
    pub(crate) datagrams_sent: u64,
    pub(crate) datagrams_received: u64,
    /// Datagrams without a connection, or longer than the path takes.
    pub(crate) datagrams_dropped: u64,
    /// Streams opened, by either end.
    pub(crate) streams_opened: u64,
    pub(crate) stream_bytes_received: u64,
    pub(crate) stream_bytes_sent: u64,
}

/// What the worker has to do.
#[derive(Debug)]
pub(crate) enum Event {
    /// A stream is open for the edge that wanted it.
    Dialled(EdgeId, ConnId),
    /// It cannot be opened.
    DialFailed(EdgeId, SocketAddr),
    /// A stream has ended.
    Ended(ConnId),
    /// A stream can be read.
    Readable(ConnId),
    /// An edge takes more again.
    Drained(EdgeId),
    /// A part of what waits for an edge was sent.
    Took(EdgeId),
    /// The longest datagram of a connection has changed.
    MaxDatagram(End, usize),
}

/// A stream's connection and its number there.
type Place = (usize, StreamId);

/// All connections of a data node.
pub(crate) struct Quic {
    endpoint: Endpoint,
    client: ClientConfig,
    /// One moment in both clocks.
    epoch: (Instant, StdInstant),
    connections: BTreeMap<usize, Connection>,
    /// The connection on which packets are sent to each end: the newest that proved it, or one that is being established.
    preferred: BTreeMap<End, usize>,
    streams: BTreeMap<ConnId, Place>,
    next_stream: u64,
    max_streams: usize,
    /// Connections with something to do.
    dirty: BTreeSet<usize>,
    timers: BTreeSet<(Instant, usize)>,
    events: VecDeque<Event>,
    /// Streams that can be read.
    readable: BTreeSet<ConnId>,
    /// Received datagrams.
    received: VecDeque<(PathId, Bytes)>,
    /// Responses without a connection.
    responses: VecDeque<(SocketAddr, Vec<u8>)>,
    buffer: Vec<u8>,
    pub(crate) counts: Counts,
}

impl std::fmt::Debug for Quic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quic")
            .field("connections", &self.connections.len())
            .field("streams", &self.streams.len())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// Responses that wait to be sent; further ones are dropped.
const MAX_RESPONSES: usize = 256;

impl Quic {
    /// Creates an endpoint. `mtu` is the longest IP packet that it tries to send.
    ///
    /// # Errors
    /// The TLS configuration lacks the cipher suite of QUIC's first packets.
    pub(crate) fn new(
        credentials: LinkCredentials,
        mtu: usize,
        congestion: Congestion,
        max_streams: usize,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, String> {
        let made = settings::Settings::new(credentials, mtu, congestion)?;
        Ok(Quic {
            endpoint: Endpoint::new(
                Arc::new(made.endpoint),
                Some(Arc::new(made.server)),
                true,
                Some(seed),
            ),
            client: made.client,
            epoch: (now, StdInstant::now()),
            connections: BTreeMap::new(),
            preferred: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_stream: FIRST_STREAM,
            max_streams,
            dirty: BTreeSet::new(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            readable: BTreeSet::new(),
            received: VecDeque::new(),
            responses: VecDeque::new(),
            buffer: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    fn std(&self, now: Instant) -> StdInstant {
        self.epoch.1 + std::time::Duration::from(now - self.epoch.0)
    }

    fn instant(&self, at: StdInstant) -> Instant {
        let after = at.saturating_duration_since(self.epoch.1);
        // Up to the next microsecond: a timer that is called early would be due again at once.
        let micros = u64::try_from(after.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        self.epoch.0 + Duration::from_micros(micros)
    }

    /// Handles a QUIC packet.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        node: &mut Node,
        from: SocketAddr,
        packet: &[u8],
    ) {
        if !node.plane().has_path_to(from) {
            self.counts.unnamed += 1;
            return;
        }
        let at = self.std(now);
        self.buffer.clear();
        let data = BytesMut::from(packet);
        match self
            .endpoint
            .handle(at, from, None, None, data, &mut self.buffer)
        {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle.0) {
                    connection.inner.handle_event(event);
                    self.dirty.insert(handle.0);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(now, incoming),
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit),
            None => {}
        }
    }

    fn respond(&mut self, transmit: &Transmit) {
        if self.responses.len() < MAX_RESPONSES {
            let bytes = self.buffer[..transmit.size].to_vec();
            self.responses.push_back((transmit.destination, bytes));
        }
    }

    /// Answers the first packet of a connection: with RETRY until the address is proved.
    fn admit(&mut self, now: Instant, incoming: Incoming) {
        self.buffer.clear();
        if !incoming.remote_address_validated() {
            self.counts.retries += 1;
            if let Ok(transmit) = self.endpoint.retry(incoming, &mut self.buffer) {
                self.respond(&transmit);
            }
            return;
        }
        let from = incoming.remote_address();
        let unproved = |one: &&Connection| one.is_unproved() && one.remote == from;
        let handshakes = self.connections.values().filter(unproved).count();
        if handshakes >= MAX_HANDSHAKES || self.connections.len() >= MAX_CONNECTIONS {
            self.counts.refused += 1;
            self.endpoint.ignore(incoming);
            return;
        }
        let at = self.std(now);
        match self.endpoint.accept(incoming, at, &mut self.buffer, None) {
            Ok((handle, inner)) => {
                self.insert(handle, Connection::new(inner, from, None, now + TIMEOUT));
            }
            Err(error) => {
                if let Some(transmit) = &error.response {
                    self.respond(transmit);
                }
            }
        }
    }

    fn insert(&mut self, handle: ConnectionHandle, connection: Connection) {
        self.connections.insert(handle.0, connection);
        self.dirty.insert(handle.0);
    }

    /// Returns the connection to an end, which is opened if there is none.
    fn connection_to(&mut self, now: Instant, end: End) -> Option<usize> {
        if let Some(&known) = self.preferred.get(&end) {
            return Some(known);
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            self.counts.refused += 1;
            return None;
        }
        self.make_room(now);
        let at = self.std(now);
        let config = self.client.clone();
        // The name is not checked: the certificate is known.
        let made = self.endpoint.connect(at, config, end.0, "polycast");
        let (handle, inner) = made.ok()?;
        let connection = Connection::new(inner, end.0, Some(end.1), now + TIMEOUT);
        self.insert(handle, connection);
        self.preferred.insert(end, handle.0);
        Some(handle.0)
    }

    /// Gives up the oldest outgoing handshake if there are too many.
    fn make_room(&mut self, now: Instant) {
        let pending = || {
            let all = self.connections.iter();
            all.filter(|(_, one)| one.is_dialling())
        };
        if pending().count() < MAX_DIALS {
            return;
        }
        let oldest = pending().min_by_key(|(_, one)| one.overdue_at());
        if let Some(index) = oldest.map(|(&index, _)| index) {
            self.counts.lost += 1;
            self.abandon(now, index, b"");
        }
    }

    /// Opens a stream for an edge; an event tells the result.
    pub(crate) fn dial(&mut self, now: Instant, edge: EdgeId, end: End) {
        match self.connection_to(now, end) {
            Some(at) => {
                if let Some(connection) = self.connections.get_mut(&at) {
                    connection.dials.push_back(edge);
                    self.dirty.insert(at);
                }
            }
            None => self.events.push_back(Event::DialFailed(edge, end.0)),
        }
    }

    /// Sends a datagram; returns whether the edge is blocked now. A packet without payload is never kept: it replaces
    /// the oldest one.
    pub(crate) fn send(&mut self, now: Instant, edge: EdgeId, end: End, packet: &[u8]) -> bool {
        let Some(at) = self.connection_to(now, end) else {
            self.counts.datagrams_dropped += 1;
            return false;
        };
        let Some(connection) = self.connections.get_mut(&at) else {
            return false;
        };
        self.dirty.insert(at);
        match connection.send(edge, Bytes::copy_from_slice(packet)) {
            Written::All => {
                self.counts.datagrams_sent += 1;
                false
            }
            Written::Blocked => true,
            Written::Dropped => {
                self.counts.datagrams_dropped += 1;
                false
            }
        }
    }

    /// Writes a packet to a stream; returns whether the edge is blocked now.
    pub(crate) fn write(&mut self, conn: ConnId, edge: EdgeId, packet: &[u8]) -> bool {
        let Some((at, id)) = self.streams.get(&conn).copied() else {
            return false;
        };
        let Some(connection) = self.connections.get_mut(&at) else {
            return false;
        };
        self.dirty.insert(at);
        match connection.write(id, edge, packet) {
            Ok((written, blocked)) => {
                self.counts.stream_bytes_sent += written as u64;
                blocked
            }
            Err(_) => {
                self.events.push_back(Event::Ended(conn));
                false
            }
        }
    }

    /// Reads after the rest of the last packet. Returns `None` if nothing was read or the stream has ended.
    pub(crate) fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Option<(PathId, Reading)> {
        let (at, id) = self.streams.get(&conn).copied()?;
        let connection = self.connections.get_mut(&at)?;
        let path = connection.path?;
        self.dirty.insert(at);
        match connection.read(id, buffer) {
            Ok((read, filled, more)) => {
                self.counts.stream_bytes_received += read as u64;
                let from = connection.remote.ip();
                (read > 0).then_some((path, Reading { filled, from, more }))
            }
            Err(_) => {
                self.events.push_back(Event::Ended(conn));
                None
            }
        }
    }

    /// Keeps the start of a packet for the next reading.
    pub(crate) fn keep(&mut self, conn: ConnId, rest: &[u8]) {
        if let Some(stream) = self.stream_mut(conn) {
            stream.rest = rest.to_vec();
        }
    }

    fn stream_mut(&mut self, conn: ConnId) -> Option<&mut connection::Stream> {
        let (at, id) = self.streams.get(&conn)?;
        self.connections.get_mut(at)?.streams.get_mut(id)
    }

    /// Pauses or resumes reading of a stream.
    pub(crate) fn set_paused(&mut self, conn: ConnId, paused: bool) {
        if let Some(stream) = self.stream_mut(conn) {
            stream.paused = paused;
            if !paused {
                self.readable.insert(conn);
            }
        }
    }

    /// Closes a stream.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.readable.remove(&conn);
        let Some((at, id)) = self.streams.remove(&conn) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(&at) {
            connection.close_stream(id);
            self.dirty.insert(at);
        }
    }

    /// Handles timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let at = self.std(now);
        while let Some(&(due, index)) = self.timers.first().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, index));
            let Some(connection) = self.connections.get_mut(&index) else {
                continue;
            };
            connection.due = None;
            connection.inner.handle_timeout(at);
            self.dirty.insert(index);
        }
    }

    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let waits = !self.events.is_empty() || !self.received.is_empty();
        match waits || !self.dirty.is_empty() || !self.readable.is_empty() {
            true => Some(now),
            false => self.timers.first().map(|(due, _)| *due),
        }
    }

    /// Returns the next datagram that arrived on a path.
    pub(crate) fn poll_received(&mut self) -> Option<(PathId, Bytes)> {
        self.received.pop_front()
    }

    /// Returns what the worker has to do; drain until `None`.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        event.or_else(|| self.readable.pop_first().map(Event::Readable))
    }

    /// Notes that there is more to read from a stream.
    pub(crate) fn read_again(&mut self, conn: ConnId) {
        self.readable.insert(conn);
    }

    /// Handles what happened on connections, and sends their packets.
    pub(crate) fn drive(&mut self, now: Instant, node: &mut Node, output: &mut Datagrams) {
        while let Some((to, packet)) = self.responses.pop_front() {
            output.push(to, &packet);
        }
        let at = self.std(now);
        for index in std::mem::take(&mut self.dirty) {
            self.process(now, index, node);
            self.transmit(at, index, output);
            self.finish(now, index);
        }
    }

    /// Sends packets of a connection.
    fn transmit(&mut self, at: StdInstant, index: usize, output: &mut Datagrams) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        for _ in 0..PIECES {
            self.buffer.clear();
            let sent = connection
                .inner
                .poll_transmit(at, SEGMENTS, &mut self.buffer);
            let Some(transmit) = sent else {
                return;
            };
            let bytes = &self.buffer[..transmit.size];
            let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
            for datagram in bytes.chunks(segment) {
                output.push(transmit.destination, datagram);
            }
        }
        self.dirty.insert(index);
    }

    /// Sets the timer of a connection, or forgets one that has ended.
    fn finish(&mut self, now: Instant, index: usize) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        let due = connection.inner.poll_timeout();
        let overdue = connection.overdue_at();
        let is_drained = connection.inner.is_drained();
        let before = connection.due;
        let due = due.map(|due| self.instant(due).max(now));
        let due = [due, overdue].into_iter().flatten().min();
        if let Some(before) = before {
            self.timers.remove(&(before, index));
        }
        if is_drained {
            self.connections.remove(&index);
            self.dirty.remove(&index);
            return;
        }
        if let Some(due) = due {
            self.timers.insert((due, index));
        }
        if let Some(connection) = self.connections.get_mut(&index) {
            connection.due = due;
        }
    }
}
