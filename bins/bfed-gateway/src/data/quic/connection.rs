//! One connection: its streams, its datagrams, and what happens on it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bfed::data::{EdgeId, HEADER_LEN, PathId};
use bfed::{ConnId, Instant, KeyDigest};
use bytes::Bytes;
use control_stream::links;
use quinn_proto::{
    Connection as Inner, ConnectionError, Dir, Event as ProtoEvent, ReadError, SendDatagramError,
    StreamEvent, StreamId, VarInt, WriteError,
};
use rustls_pki_types::CertificateDer;

use super::{Event, MAX_EARLY, Quic};
use crate::data::Node;
use crate::data::streams::READ_BYTES;

/// Code of a connection that is not wanted, and of a stream that is no longer needed.
const REFUSED: VarInt = VarInt::from_u32(1);
const UNUSED: VarInt = VarInt::from_u32(0);

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    conn: ConnId,
    /// The start of an incomplete packet.
    pub(super) rest: Vec<u8>,
    /// Bytes that the connection has not taken, at most one reading.
    waiting: VecDeque<u8>,
    /// The edge that is blocked meanwhile.
    edge: Option<EdgeId>,
    pub(super) paused: bool,
}

/// The result of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    All,
    /// It is kept; nothing more is taken.
    Blocked,
    Dropped,
}

/// The stream has ended.
#[derive(Debug)]
pub(super) struct StreamOver;

/// A connection.
pub(crate) struct Connection {
    pub(super) inner: Inner,
    pub(super) remote: SocketAddr,
    /// The certificate that an outgoing connection must find.
    expected: Option<KeyDigest>,
    /// The certificate that the other end proved.
    key: Option<KeyDigest>,
    /// Its path, as of the last look.
    pub(super) path: Option<PathId>,
    /// When its handshake is overdue.
    overdue: Instant,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// Edges that need a stream.
    pub(super) dials: VecDeque<EdgeId>,
    /// Datagrams until it is established.
    early: VecDeque<Bytes>,
    /// Datagrams that had no room: one for each blocked edge.
    held: VecDeque<(EdgeId, Bytes)>,
    max_datagram: usize,
    /// The round-trip time that was reported.
    rtt: std::time::Duration,
    /// When its timer expires.
    pub(super) due: Option<Instant>,
}

impl Connection {
    pub(super) fn new(
        inner: Inner,
        remote: SocketAddr,
        expected: Option<KeyDigest>,
        overdue: Instant,
    ) -> Self {
        Connection {
            inner,
            remote,
            expected,
            key: None,
            path: None,
            overdue,
            streams: BTreeMap::new(),
            dials: VecDeque::new(),
            early: VecDeque::new(),
            held: VecDeque::new(),
            max_datagram: 0,
            rtt: std::time::Duration::ZERO,
            due: None,
        }
    }

    /// Returns whether it is an incoming connection whose certificate was not proved.
    pub(super) fn is_unproved(&self) -> bool {
        self.expected.is_none() && self.key.is_none()
    }

    /// Returns whether it is an outgoing connection that is not established.
    pub(super) fn is_dialling(&self) -> bool {
        self.expected.is_some() && self.overdue_at().is_some()
    }

    /// Returns when it is given up unless it is established.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        (self.key.is_none() && !self.inner.is_closed()).then_some(self.overdue)
    }

    /// Sends a datagram. One without payload takes the place of older ones.
    pub(super) fn send(&mut self, edge: EdgeId, packet: Bytes) -> Written {
        if self.key.is_none() {
            if self.early.len() >= MAX_EARLY {
                return Written::Dropped;
            }
            self.early.push_back(packet);
            return Written::All;
        }
        let replaces = packet.len() == HEADER_LEN;
        match self.inner.datagrams().send(packet, replaces) {
            Ok(()) => Written::All,
            Err(SendDatagramError::Blocked(packet)) => {
                self.held.push_back((edge, packet));
                Written::Blocked
            }
            Err(_) => Written::Dropped,
        }
    }

    /// Writes to a stream. Returns the number of bytes that it took, and whether the rest waits.
    pub(super) fn write(
        &mut self,
        id: StreamId,
        edge: EdgeId,
        packet: &[u8],
    ) -> Result<(usize, bool), StreamOver> {
        let stream = self.streams.get_mut(&id).ok_or(StreamOver)?;
        let mut written = 0;
        if stream.waiting.is_empty() {
            written = write(&mut self.inner, id, packet)?;
        }
        stream.waiting.extend(&packet[written..]);
        let blocked = written < packet.len();
        stream.edge = blocked.then_some(edge);
        Ok((written, blocked))
    }

    /// Reads into the buffer after the rest of the last packet. Returns the number of bytes read, the end of the bytes in
    /// the buffer, and whether there may be more.
    pub(super) fn read(
        &mut self,
        id: StreamId,
        buffer: &mut [u8],
    ) -> Result<(usize, usize, bool), StreamOver> {
        let stream = self.streams.get_mut(&id).ok_or(StreamOver)?;
        if stream.paused {
            return Ok((0, 0, false));
        }
        let mut filled = stream.rest.len();
        let kept = filled;
        buffer[..kept].copy_from_slice(&stream.rest);
        let mut receive = self.inner.recv_stream(id);
        let mut chunks = receive.read(true).map_err(|_| StreamOver)?;
        let result = loop {
            if filled == READ_BYTES {
                break Ok(true);
            }
            match chunks.next(READ_BYTES - filled) {
                Ok(Some(chunk)) => {
                    let end = filled + chunk.bytes.len();
                    buffer[filled..end].copy_from_slice(&chunk.bytes);
                    filled = end;
                }
                Err(ReadError::Blocked) => break Ok(false),
                // What was read before the end is forwarded; the next reading finds the end again.
                Ok(None) | Err(ReadError::Reset(_)) if filled > kept => break Ok(true),
                Ok(None) | Err(ReadError::Reset(_)) => break Err(StreamOver),
            }
        };
        let _ = chunks.finalize();
        let more = result?;
        if filled > kept {
            stream.rest.clear();
        }
        Ok((filled - kept, filled, more))
    }

    /// Ends both directions of a stream.
    pub(super) fn close_stream(&mut self, id: StreamId) {
        if self.streams.remove(&id).is_some() {
            let _ = self.inner.send_stream(id).reset(UNUSED);
            let _ = self.inner.recv_stream(id).stop(UNUSED);
        }
    }

    /// Returns the certificate that the other end showed.
    fn shown(&self) -> Option<KeyDigest> {
        let identity = self.inner.crypto_session().peer_identity()?;
        let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        chain.first().map(|first| KeyDigest(links::digest(first)))
    }
}

/// Writes as much as a stream takes; it reports later when it takes more.
fn write(inner: &mut Inner, id: StreamId, bytes: &[u8]) -> Result<usize, StreamOver> {
    let mut written = 0;
    while written < bytes.len() {
        match inner.send_stream(id).write(&bytes[written..]) {
            Ok(count) => written += count,
            Err(WriteError::Blocked) => break,
            Err(_) => return Err(StreamOver),
        }
    }
    Ok(written)
}

impl Quic {
    /// Handles the events of a connection.
    pub(super) fn process(&mut self, now: Instant, index: usize, node: &mut Node) {
        self.exchange(index);
        if let Some(connection) = self.connections.get_mut(&index) {
            let remote = connection.remote;
            let key = connection.key;
            let path = key.and_then(|key| node.plane().path(remote, key));
            if std::mem::replace(&mut connection.path, path) != path {
                // A new path knows neither.
                connection.max_datagram = 0;
                connection.rtt = std::time::Duration::ZERO;
            }
        }
        while let Some(event) = self
            .connections
            .get_mut(&index)
            .and_then(|one| one.inner.poll())
        {
            match event {
                ProtoEvent::Connected => self.connected(now, index, node),
                ProtoEvent::ConnectionLost { reason } => self.lost(index, &reason),
                ProtoEvent::Stream(event) => self.stream_event(index, event),
                ProtoEvent::DatagramReceived => self.take_datagrams(index),
                ProtoEvent::DatagramsUnblocked => self.unblocked(index),
                ProtoEvent::HandshakeDataReady => {}
            }
            self.exchange(index);
        }
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        if connection.overdue_at().is_some_and(|at| at <= now) {
            self.refuse(now, index, "the handshake took too long");
            return;
        }
        self.open_streams(index);
        self.check_datagrams(index);
    }

    /// Passes events between a connection and the endpoint.
    fn exchange(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        while let Some(event) = connection.inner.poll_endpoint_events() {
            let handle = quinn_proto::ConnectionHandle(index);
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                connection.inner.handle_event(event);
            }
        }
    }

    /// Compares the certificate with the one that the peer's control node named.
    fn connected(&mut self, now: Instant, index: usize, node: &mut Node) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        let remote = connection.remote;
        let shown = connection.shown();
        let expected = connection.expected;
        let named = shown
            .filter(|shown| expected.is_none_or(|expected| expected == *shown))
            .and_then(|shown| Some((shown, node.plane().path(remote, shown)?)));
        let Some((key, path)) = named else {
            self.refuse(now, index, "not the certificate that the peer named");
            return;
        };
        (connection.key, connection.path) = (Some(key), Some(path));
        let streams = u32::try_from(self.max_streams).unwrap_or(u32::MAX);
        let streams = VarInt::from_u32(streams);
        connection
            .inner
            .set_max_concurrent_streams(Dir::Bi, streams);
        let early = std::mem::take(&mut connection.early);
        for packet in early {
            let _ = connection.inner.datagrams().send(packet, true);
        }
        self.counts.connected += 1;
        // The newest is preferred: the other end may have been restarted.
        self.preferred.insert((remote, key), index);
    }

    /// Closes a connection that is not wanted.
    fn refuse(&mut self, now: Instant, index: usize, why: &'static str) {
        let Some(connection) = self.connections.get(&index) else {
            return;
        };
        let peer = connection.remote;
        tracing::warn!(event = "quic_refused", %peer, reason = why, "QUIC connection refused");
        self.counts.refused += 1;
        self.abandon(now, index, why.as_bytes());
    }

    /// Closes a connection, with a reason for the other end.
    pub(super) fn abandon(&mut self, now: Instant, index: usize, why: &'static [u8]) {
        let at = self.std(now);
        if let Some(connection) = self.connections.get_mut(&index) {
            connection.inner.close(at, REFUSED, Bytes::from_static(why));
            self.dirty.insert(index);
        }
        self.over(index);
    }

    fn lost(&mut self, index: usize, reason: &ConnectionError) {
        if let Some(connection) = self.connections.get(&index) {
            let peer = connection.remote;
            tracing::debug!(event = "quic_lost", %peer, %reason, "QUIC connection lost");
        }
        self.counts.lost += 1;
        self.over(index);
    }

    /// Reports the ends of a connection's streams, and lets its edges try another connection.
    fn over(&mut self, index: usize) {
        self.preferred.retain(|_, at| *at != index);
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        for (_, stream) in std::mem::take(&mut connection.streams) {
            self.streams.remove(&stream.conn);
            self.events.push_back(Event::Ended(stream.conn));
        }
        let failed = connection.dials.drain(..);
        let failed = failed.map(|edge| Event::DialFailed(edge, connection.remote));
        self.events.extend(failed);
        let held = connection.held.drain(..);
        self.counts.datagrams_dropped += (held.len() + connection.early.len()) as u64;
        self.events
            .extend(held.map(|(edge, _)| Event::Drained(edge)));
        connection.early.clear();
    }

    fn stream_event(&mut self, index: usize, event: StreamEvent) {
        match event {
            StreamEvent::Opened { .. } => self.accept_streams(index),
            StreamEvent::Readable { id } => {
                let conn = self.stream_of(index, id);
                self.readable.extend(conn);
            }
            StreamEvent::Writable { id } => self.flush(index, id),
            StreamEvent::Stopped { id, .. } => {
                if let Some(conn) = self.stream_of(index, id) {
                    self.events.push_back(Event::Ended(conn));
                }
            }
            StreamEvent::Finished { .. } | StreamEvent::Available { .. } => {}
        }
    }

    fn stream_of(&self, index: usize, id: StreamId) -> Option<ConnId> {
        Some(self.connections.get(&index)?.streams.get(&id)?.conn)
    }

    /// Returns the number for a stream, if there is a place for it.
    fn add_stream(&mut self, index: usize, id: StreamId) -> Option<ConnId> {
        let connection = self.connections.get_mut(&index)?;
        let known = connection.path.is_some() && self.streams.len() < self.max_streams;
        if !known {
            let _ = connection.inner.send_stream(id).reset(REFUSED);
            let _ = connection.inner.recv_stream(id).stop(REFUSED);
            return None;
        }
        let conn = ConnId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(conn, (index, id));
        let stream = Stream {
            conn,
            rest: Vec::new(),
            waiting: VecDeque::new(),
            edge: None,
            paused: false,
        };
        connection.streams.insert(id, stream);
        self.counts.streams_opened += 1;
        Some(conn)
    }

    fn accept_streams(&mut self, index: usize) {
        while let Some(id) = self
            .connections
            .get_mut(&index)
            .and_then(|one| one.inner.streams().accept(Dir::Bi))
        {
            let conn = self.add_stream(index, id);
            self.readable.extend(conn);
        }
    }

    /// Opens the streams that edges wait for, as many as the other end allows.
    fn open_streams(&mut self, index: usize) {
        while let Some(connection) = self.connections.get_mut(&index)
            && connection.path.is_some()
            && let Some(&edge) = connection.dials.front()
            && let Some(id) = connection.inner.streams().open(Dir::Bi)
        {
            connection.dials.pop_front();
            let remote = connection.remote;
            let event = match self.add_stream(index, id) {
                Some(conn) => Event::Dialled(edge, conn),
                None => Event::DialFailed(edge, remote),
            };
            self.events.push_back(event);
        }
    }

    /// Writes what waits for a stream.
    fn flush(&mut self, index: usize, id: StreamId) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        let Some(stream) = connection.streams.get_mut(&id) else {
            return;
        };
        let before = stream.waiting.len();
        while !stream.waiting.is_empty() {
            let (front, _) = stream.waiting.as_slices();
            match write(&mut connection.inner, id, front) {
                Ok(0) => break,
                Ok(written) => drop(stream.waiting.drain(..written)),
                Err(StreamOver) => {
                    self.events.push_back(Event::Ended(stream.conn));
                    return;
                }
            }
        }
        let written = before - stream.waiting.len();
        self.counts.stream_bytes_sent += written as u64;
        if !stream.waiting.is_empty() {
            let took = stream.edge.filter(|_| written > 0);
            self.events.extend(took.map(Event::Took));
            return;
        }
        stream.waiting = VecDeque::new();
        self.events.extend(stream.edge.take().map(Event::Drained));
    }

    /// Takes received datagrams while the other end is one that a control node named.
    fn take_datagrams(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        while let Some(packet) = connection.inner.datagrams().recv() {
            if let Some(path) = connection.path {
                self.counts.datagrams_received += 1;
                self.received.push_back((path, packet));
            }
        }
    }

    /// Sends the datagrams that had no room.
    fn unblocked(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        while let Some((edge, packet)) = connection.held.pop_front() {
            match connection.inner.datagrams().send(packet, false) {
                Err(SendDatagramError::Blocked(packet)) => {
                    connection.held.push_front((edge, packet));
                    return;
                }
                Ok(()) => self.counts.datagrams_sent += 1,
                Err(_) => self.counts.datagrams_dropped += 1,
            }
            self.events.push_back(Event::Drained(edge));
        }
    }

    /// Reports changes of the longest datagram and of the round-trip time.
    fn check_datagrams(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(&index) else {
            return;
        };
        let Some(key) = connection.key.filter(|_| connection.path.is_some()) else {
            return;
        };
        let max = connection.inner.datagrams().max_size().unwrap_or(0);
        if std::mem::replace(&mut connection.max_datagram, max) != max {
            let end = (connection.remote, key);
            self.events.push_back(Event::MaxDatagram(end, max));
        }
        let rtt = connection.inner.rtt();
        if rtt.abs_diff(connection.rtt) * 8 >= rtt {
            connection.rtt = rtt;
            let end = (connection.remote, key);
            let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
            self.events
                .push_back(Event::Rtt(end, bfed::Duration::from_micros(micros)));
        }
    }
}
