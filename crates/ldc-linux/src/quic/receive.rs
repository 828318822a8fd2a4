//! The receiving end: one sender at a time, its messages in the order in which they become whole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use linux_net::inet::{self, UdpSocket};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, Dir, Endpoint, EndpointConfig, Incoming, ReadError, ServerConfig, StreamEvent,
    StreamId, VarInt,
};

use super::frame::{FrameError, Reader};
use super::link::Link;
use super::{ALPN, Error, code};
use crate::error::InitError;

/// Connections, handshakes included.
const MAX_CONNECTIONS: usize = 16;
/// Datagrams that have arrived and were not read, bytes.
const DATAGRAM_BUFFER: usize = 1 << 20;
/// Bytes of a connection that arrive before it is accepted, which is in the same step.
const INCOMING_BUFFER: u64 = 64 << 10;
/// Bytes taken from a stream at a time.
const READ: usize = 64 << 10;

/// What a receiver accepts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest message, bytes. A longer one ends the connection.
    pub message: usize,
    /// Streams open at once. The sender waits, and its messages in the ring.
    pub streams: u32,
    /// Bytes that have arrived and not been read, at least one message; and, counted apart, bytes of incomplete
    /// messages: beyond these a stream is stopped.
    pub buffer: usize,
    /// A connection ends when nothing arrives for this time.
    pub idle_timeout: Duration,
    /// Time allowed for the handshake, and then for the first message.
    pub setup_timeout: Duration,
}

impl Default for Limits {
    /// Messages of 1 MiB, 1,024 streams, 16 MiB, 30 s; 10 s to begin.
    fn default() -> Limits {
        Limits {
            message: 1 << 20,
            streams: 1_024,
            buffer: 16 << 20,
            idle_timeout: Duration::from_secs(30),
            setup_timeout: Duration::from_secs(10),
        }
    }
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Messages that arrived in streams.
    pub messages: u64,
    /// Messages that arrived as datagrams.
    pub datagrams: u64,
    /// Streams that the sender reset: their remaining messages were abandoned.
    pub reset: u64,
    /// Streams stopped because too many bytes of incomplete messages were held.
    pub overflow: u64,
    /// Connections refused because all were in use, or another sender was served.
    pub busy: u64,
    /// Connections that ended before their first message: not authenticated, or silent.
    pub failed: u64,
}

/// What happened on the connection of the sender.
#[derive(Debug)]
pub enum Event {
    /// A sender has proved who it is. Others are refused from now on.
    Connected(SocketAddr),
    /// A message arrived whole.
    Message(Vec<u8>),
    /// The sender has sent everything and closed the connection; another one may come.
    Done,
    /// The connection failed; another sender may come.
    Failed(Error),
}

/// The sender that is served.
struct Peer {
    handle: usize,
    /// Streams with an incomplete message, or none yet.
    streams: BTreeMap<StreamId, Reader>,
    /// Streams from which bytes can be read.
    readable: BTreeSet<StreamId>,
    /// Bytes in the readers.
    held: usize,
    /// No message has arrived yet: close the connection then.
    silent_until: Option<Instant>,
}

/// Receives the messages of one sender at a time.
pub struct Receiver {
    link: Link,
    limits: Limits,
    /// Handshakes, and when they must be done.
    pending: BTreeMap<usize, Instant>,
    peer: Option<Peer>,
    events: VecDeque<Event>,
    stats: ReceiverStats,
}

impl Receiver {
    /// Listens on an address; port 0 selects a free port.
    ///
    /// # Errors
    /// The socket cannot be opened, or the TLS configuration is not for TLS 1.3.
    pub fn bind(
        address: SocketAddr,
        tls: Arc<rustls::ServerConfig>,
        limits: Limits,
    ) -> Result<Receiver, InitError> {
        let mut config = inet::Config::new(address);
        config.exclusive = true;
        let socket = UdpSocket::open(&config).map_err(|error| InitError::Io {
            what: "cannot open the UDP socket",
            source: std::io::Error::other(error),
        })?;
        let server = Some(Arc::new(server_config(tls, &limits)?));
        let config = Arc::new(EndpointConfig::default());
        let endpoint = Endpoint::new(config, server, true, None);
        Ok(Receiver {
            link: Link::new(socket, endpoint),
            limits,
            pending: BTreeMap::new(),
            peer: None,
            events: VecDeque::new(),
            stats: ReceiverStats::default(),
        })
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.link.local_address()
    }

    /// Returns the socket, for event loops. When it is readable, and at least once a second even if it is not, because
    /// timers run only there, call [`Receiver::wait`] with a timeout of zero until it returns `None`.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }

    /// Returns the counters.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Waits for the next event, at most `timeout`. Unread messages stay in QUIC's receive buffer; flow control then pauses
    /// the sender.
    ///
    /// # Errors
    /// A system call failed, or this host refuses to send. What a peer does is an [`Event`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, Error> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(event) = self.step()? {
                return Ok(Some(event));
            }
            let now = Instant::now();
            let left = end.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(None);
            }
            // At most a second, for the limits of this receiver.
            let left = left.min(Duration::from_secs(1));
            let timer = self.link.timeout(now);
            self.link
                .wait(None, Some(timer.map_or(left, |timer| timer.min(left))))?;
        }
    }

    /// Closes the connection of the sender that is served, with a reason that it sees. Another one may come.
    pub fn refuse(&mut self, reason: &str) {
        if let Some(peer) = self.peer.take() {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            self.close_connection(peer.handle, code::REFUSED, reason);
            self.stats.failed += 1;
            // If it cannot be sent now, the next call of `wait` tries again.
            let _ = self.link.transmit(Instant::now());
        }
    }

    /// Closes the connection of the sender that is served: its drain ends with [`Error::Closed`] and [`code::DONE`]. The same
    /// happens when the receiver is dropped.
    pub fn close(self) {}

    /// Takes in what has arrived, and returns the next event.
    fn step(&mut self) -> Result<Option<Event>, Error> {
        let now = Instant::now();
        if self.events.is_empty() {
            self.read();
        }
        if self.events.is_empty() {
            let (link, mut arrived) = (&mut self.link, Vec::new());
            link.receive(now, |_, incoming| arrived.push(incoming))?;
            for incoming in arrived {
                self.answer(incoming, now)?;
            }
            self.poll(now);
            self.read();
            self.expire(now);
        }
        self.link.transmit(now)?;
        Ok(self.events.pop_front())
    }

    /// Decides on a new connection.
    fn answer(&mut self, incoming: Incoming, now: Instant) -> Result<(), Error> {
        let is_full = self.peer.is_some() || self.link.connections() >= MAX_CONNECTIONS;
        let validated = incoming.remote_address_validated();
        self.stats.busy += u64::from(validated && is_full);
        let response = self.link.with_buffer(|endpoint, buffer| {
            if !validated {
                // The address must answer before it costs anything.
                return endpoint.retry(incoming, buffer).map(Err).ok();
            }
            if is_full {
                return Some(Err(endpoint.refuse(incoming, buffer)));
            }
            match endpoint.accept(incoming, now, buffer, None) {
                Ok(accepted) => Some(Ok(accepted)),
                Err(error) => error.response.map(Err),
            }
        });
        match response {
            Some(Ok((handle, connection))) => {
                self.pending
                    .insert(handle.0, now + self.limits.setup_timeout);
                self.link.add(handle, connection);
            }
            Some(Err(transmit)) => self.link.respond(&transmit)?,
            None => {}
        }
        Ok(())
    }

    /// Takes in the events of all connections.
    fn poll(&mut self, now: Instant) {
        for handle in self.link.handles() {
            while let Some(event) = self.link.connection(handle).and_then(Connection::poll) {
                self.event(handle, event, now);
            }
        }
    }

    fn event(&mut self, handle: usize, event: quinn_proto::Event, now: Instant) {
        use quinn_proto::Event as Quic;
        match event {
            Quic::Connected => self.connected(handle, now),
            Quic::ConnectionLost { reason } => {
                self.stats.failed += u64::from(self.pending.remove(&handle).is_some());
                if let Some(peer) = self.peer.take_if(|peer| peer.handle == handle) {
                    // Whole messages that have arrived come first.
                    self.read_all(peer);
                    let ended = match Error::from(reason) {
                        Error::Closed { code: 0, .. } => Event::Done,
                        error => Event::Failed(error),
                    };
                    self.events.push_back(ended);
                }
            }
            Quic::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                let Some(connection) = self.link.connection(handle) else {
                    return;
                };
                while let Some(id) = connection.streams().accept(Dir::Uni) {
                    if let Some(peer) = self.peer.as_mut().filter(|peer| peer.handle == handle) {
                        peer.readable.insert(id);
                    }
                }
            }
            Quic::Stream(StreamEvent::Readable { id }) => {
                if let Some(peer) = self.peer.as_mut().filter(|peer| peer.handle == handle) {
                    peer.readable.insert(id);
                }
            }
            _ => {}
        }
    }

    /// The handshake is done: both ends have proved who they are.
    fn connected(&mut self, handle: usize, now: Instant) {
        self.pending.remove(&handle);
        if self.peer.is_some() {
            self.stats.busy += 1;
            return self.close_connection(handle, code::BUSY, Bytes::new());
        }
        let Some(connection) = self.link.connection(handle) else {
            return;
        };
        let address = connection.remote_address();
        self.peer = Some(Peer {
            handle,
            streams: BTreeMap::new(),
            readable: BTreeSet::new(),
            held: 0,
            silent_until: Some(now + self.limits.setup_timeout),
        });
        self.events.push_back(Event::Connected(address));
    }

    /// Reads the streams and datagrams of the sender until a message is whole.
    fn read(&mut self) {
        let Some(mut peer) = self.peer.take() else {
            return;
        };
        if let Err(error) = self.read_from(&mut peer, false) {
            self.malformed(&peer, error);
            return;
        }
        self.peer = Some(peer);
    }

    /// Reads all that has arrived from a sender whose connection has ended.
    fn read_all(&mut self, mut peer: Peer) {
        // The end of the connection is what matters.
        let _ = self.read_from(&mut peer, true);
    }

    fn read_from(&mut self, peer: &mut Peer, all: bool) -> Result<(), FrameError> {
        let Some(connection) = self.link.connection(peer.handle) else {
            return Ok(());
        };
        let known = self.events.len();
        while let Some(bytes) = connection.datagrams().recv() {
            if bytes.len() <= self.limits.message {
                self.stats.datagrams += 1;
                self.events.push_back(Event::Message(bytes.into()));
                if !all {
                    break;
                }
            }
        }
        while (all || self.events.is_empty())
            && let Some(id) = peer.readable.pop_first()
        {
            let mut reader = peer
                .streams
                .remove(&id)
                .unwrap_or_else(|| Reader::new(self.limits.message));
            peer.held -= reader.held();
            let before = self.events.len();
            let read = read_stream(connection, id, &mut reader, |message| {
                self.events.push_back(Event::Message(message));
                all
            })?;
            self.stats.messages += (self.events.len() - before) as u64;
            match read {
                Read::Ended => continue,
                Read::Reset => {
                    self.stats.reset += 1;
                    continue;
                }
                Read::More => {
                    peer.readable.insert(id);
                }
                Read::Blocked => {}
            }
            if peer.held + reader.held() > self.limits.buffer {
                self.stats.overflow += 1;
                peer.readable.remove(&id);
                let _ = connection
                    .recv_stream(id)
                    .stop(VarInt::from_u32(code::OVERFLOW));
                continue;
            }
            peer.held += reader.held();
            peer.streams.insert(id, reader);
        }
        if self.events.len() > known {
            peer.silent_until = None;
        }
        Ok(())
    }

    /// The sender breaks the format of streams.
    fn malformed(&mut self, peer: &Peer, error: FrameError) {
        let reason = Bytes::from(error.to_string());
        self.close_connection(peer.handle, code::MALFORMED, reason);
        self.events
            .push_back(Event::Failed(Error::Protocol(error.to_string())));
    }

    /// Ends handshakes that take too long, and a sender that sends nothing.
    fn expire(&mut self, now: Instant) {
        let late: Vec<usize> = self
            .pending
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(handle, _)| *handle)
            .collect();
        for handle in late {
            self.pending.remove(&handle);
            self.stats.failed += 1;
            self.close_connection(handle, code::SILENT, Bytes::new());
        }
        let is_silent = |peer: &mut Peer| peer.silent_until.is_some_and(|until| until <= now);
        if let Some(peer) = self.peer.take_if(is_silent) {
            self.stats.failed += 1;
            self.close_connection(peer.handle, code::SILENT, Bytes::new());
            self.events.push_back(Event::Failed(Error::TimedOut));
        }
    }

    fn close_connection(&mut self, handle: usize, code: u32, reason: Bytes) {
        if let Some(connection) = self.link.connection(handle) {
            connection.close(Instant::now(), VarInt::from_u32(code), reason);
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(peer) = self.peer.take() {
            self.close_connection(peer.handle, code::DONE, Bytes::new());
            // If it cannot be sent, the sender's idle timeout ends the connection.
            let _ = self.link.transmit(Instant::now());
        }
    }
}

/// How reading from a stream stopped.
enum Read {
    /// Nothing more has arrived.
    Blocked,
    /// More may have arrived.
    More,
    /// The stream has ended.
    Ended,
    /// The sender has reset it.
    Reset,
}

/// Reads from a stream until `message`, which takes each whole message, returns `false`.
fn read_stream(
    connection: &mut Connection,
    id: StreamId,
    reader: &mut Reader,
    mut message: impl FnMut(Vec<u8>) -> bool,
) -> Result<Read, FrameError> {
    let mut stream = connection.recv_stream(id);
    // Stopped by this end, or read to its end.
    let Ok(mut chunks) = stream.read(true) else {
        return Ok(Read::Ended);
    };
    let mut go_on = true;
    let read = loop {
        match chunks.next(READ) {
            Ok(Some(chunk)) => {
                let mut bytes = &chunk.bytes[..];
                while let Some(whole) = reader.next(&mut bytes)? {
                    go_on &= message(whole);
                }
                if !go_on {
                    break Read::More;
                }
            }
            Ok(None) => {
                reader.end()?;
                break Read::Ended;
            }
            Err(ReadError::Blocked) => break Read::Blocked,
            Err(ReadError::Reset(_)) => break Read::Reset,
        }
    };
    // The caller transmits in any case.
    let _ = chunks.finalize();
    Ok(read)
}

/// Returns the configuration of the receiving end.
fn server_config(
    tls: Arc<rustls::ServerConfig>,
    limits: &Limits,
) -> Result<ServerConfig, InitError> {
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicServerConfig::try_from(tls).map_err(|error| InitError::Tls(error.to_string()))?;
    let mut transport = super::transport(limits.idle_timeout);
    let window = u32::try_from(limits.buffer)
        .unwrap_or(u32::MAX)
        .max(READ as u32);
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(limits.streams))
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER));
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server
        .transport_config(Arc::new(transport))
        .max_incoming(MAX_CONNECTIONS)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFER * MAX_CONNECTIONS as u64)
        .migration(false);
    Ok(server)
}
