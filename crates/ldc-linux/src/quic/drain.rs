//! The drain of one connection as a machine: a step, then what to wait for.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ldc_ring::AckQueueFull;
use linux_net::inet::{self, UdpSocket};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, ConnectionError, Dir, Endpoint, EndpointConfig, Event, StreamEvent, StreamId,
    VarInt, WriteError,
};

use super::flight::{Factory, Flight};
use super::frame::{self, MAX_PREFIX};
use super::link::Link;
use super::{ALPN, Config, Error, Stats, Streams, code};
use crate::error::InitError;
use crate::rings::{Freed, Rings, Taken};
use crate::sys::BATCH;
use crate::{Wake, now};

/// Bytes of datagrams that have not left. One message at a time is handed over.
const DATAGRAM_BUFFER: usize = 64 << 10;
/// Interval at which messages in flight are checked for whether they are still wanted.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Longest wait while the connection lets nothing go, so that abandoned messages and closed rings are noticed.
const BLOCKED_WAIT: Duration = Duration::from_millis(50);

/// What the caller of [`Drain::step`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Drain::step`] again.
    Again,
    /// Wait until the socket is readable (and, with `writable`, or writable), at most `timeout`. With `idle` also until
    /// [`Drain::wake_fd`] is readable; then call [`Drain::clear_wakeup`].
    Wait {
        /// Datagrams wait for room in the socket.
        writable: bool,
        /// No message can be claimed.
        idle: bool,
        /// The next timer of the connection.
        timeout: Option<Duration>,
    },
    /// The peer has acknowledged all messages, and the ring is closed.
    Finished,
}

/// Why no more messages were claimed.
enum Stop {
    /// The connection lets nothing go.
    Blocked,
    /// No ring has a message.
    Empty,
    /// [`BATCH`] messages were claimed.
    Batch,
}

/// The stream that takes the next messages with the same sequence number.
struct Open {
    stream: StreamId,
    class: usize,
    user_seq: u64,
}

/// A message that the peer's flow control did not let in completely: length and bytes.
struct Unwritten {
    stream: StreamId,
    parts: [Bytes; 2],
}

/// Moves messages from a ring, or from one ring per class, into a QUIC connection.
pub struct Drain {
    rings: Rings,
    link: Link,
    handle: usize,
    config: Config,
    flight: Arc<Flight>,
    is_connected: bool,
    /// Opened and not used yet, so that a message is claimed only when there is a stream for it.
    next: Option<StreamId>,
    open: Option<Open>,
    unwritten: Option<Unwritten>,
    /// Messages of each stream that the peer has not acknowledged.
    in_flight: BTreeMap<StreamId, Vec<Taken>>,
    /// Bytes handed to QUIC that have not left: an upper bound, 0 when all have.
    backlog: u64,
    /// The connection did not let all of it go.
    is_held_up: bool,
    /// When messages in flight were last checked.
    checked: Instant,
    /// A sender died: end when the rings are empty.
    gone: bool,
    /// All was acknowledged, and the connection was closed.
    is_closing: bool,
    /// When the drain gives up, after all senders have closed their rings or one has died.
    ends: Option<Instant>,
    stats: Stats,
}

impl Drain {
    /// Returns a drain of this ring, or of these rings, into a new connection to `remote`, whose certificate must be for
    /// `name`. Sends nothing yet.
    ///
    /// # Errors
    /// The socket cannot be opened, or the TLS configuration is not for TLS 1.3.
    pub fn connect(
        rings: impl Into<Rings>,
        remote: SocketAddr,
        name: &str,
        tls: Arc<rustls::ClientConfig>,
        config: Config,
    ) -> Result<Drain, InitError> {
        let any: IpAddr = match remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::open(&inet::Config::new((any, 0).into()));
        let socket = socket.map_err(|error| InitError::Io {
            what: "cannot open a UDP socket",
            source: std::io::Error::other(error),
        })?;
        let flight = Arc::new(Flight::default());
        let client = client_config(tls, &config, Arc::clone(&flight))?;
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let started = Instant::now();
        let (handle, connection) = endpoint
            .connect(started, client, remote, name)
            .map_err(|error| InitError::Tls(error.to_string()))?;
        let mut link = Link::new(socket, endpoint);
        link.add(handle, connection);
        Ok(Drain {
            rings: rings.into(),
            link,
            handle: handle.0,
            config,
            flight,
            is_connected: false,
            next: None,
            open: None,
            unwritten: None,
            in_flight: BTreeMap::new(),
            backlog: 0,
            is_held_up: false,
            checked: started,
            gone: false,
            is_closing: false,
            ends: None,
            stats: Stats::default(),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the socket, to wait for after [`Next::Wait`].
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }

    /// Returns the descriptor that becomes readable when a sender wakes the drain.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }

    /// Takes in what has arrived, and sends what congestion control lets go; never blocks.
    ///
    /// # Errors
    /// The connection has failed, or a ring is corrupt. Do not call it again.
    pub fn step(&mut self) -> Result<Next, Error> {
        let time = Instant::now();
        // A client has no server configuration, so no connection comes in.
        self.link.receive(time, |_, _| ())?;
        self.events()?;
        if self.is_closing {
            return self.close(time);
        }
        self.give_up(time);
        self.check_end(time)?;
        let stop = self.fill(time)?;
        let stats = self.rings.stats();
        (self.stats.cancelled, self.stats.expired) = (stats.cancelled, stats.expired);
        match stop {
            Stop::Batch => return Ok(Next::Again),
            Stop::Empty if self.is_done() => return self.close(time),
            _ => {}
        }
        let is_empty = matches!(stop, Stop::Empty) && self.watches_senders();
        if is_empty && !self.rings.enter_idle() {
            return Ok(Next::Again);
        }
        self.stats.idles += u64::from(is_empty);
        let timer = self.link.timeout(time);
        Ok(Next::Wait {
            writable: self.link.is_blocked(),
            idle: is_empty,
            timeout: if is_empty {
                timer
            } else {
                Some(timer.map_or(BLOCKED_WAIT, |timer| timer.min(BLOCKED_WAIT)))
            },
        })
    }

    /// Gives up when the peer takes too long to acknowledge the last messages.
    fn check_end(&mut self, time: Instant) -> Result<(), Error> {
        if self.ends.is_none() && (self.gone || self.rings.is_closed()) {
            self.ends = time.checked_add(self.config.linger);
        }
        if self.ends.is_none_or(|ends| time < ends) {
            return Ok(());
        }
        if let Some(connection) = self.link.connection(self.handle) {
            connection.close(time, VarInt::from_u32(code::GAVE_UP), Bytes::new());
            self.link.transmit(time)?;
        }
        Err(Error::TimedOut)
    }

    /// Waits until the peer has accepted the connection, at most `timeout`; returns `false` if it has not yet. Meant for
    /// programs that want to know before they start [`super::start`]; [`Drain::step`] needs no such wait.
    ///
    /// # Errors
    /// The peer is not accepted or does not accept this end, or does not answer.
    pub fn wait_connected(&mut self, timeout: Duration) -> Result<bool, Error> {
        let end = Instant::now() + timeout;
        loop {
            let time = Instant::now();
            self.link.receive(time, |_, _| ())?;
            self.events()?;
            self.link.transmit(time)?;
            let left = end.saturating_duration_since(time);
            if self.is_connected || left.is_zero() {
                return Ok(self.is_connected);
            }
            let timer = self.link.timeout(time);
            let wait = timer.map_or(left, |timer| timer.min(left));
            self.link.wait(None, Some(wait))?;
        }
    }

    /// Discards pending wake-ups, after [`Next::Wait`] with `idle`.
    pub fn clear_wakeup(&mut self) {
        self.gone |= self.rings.clear_wakeup() == Wake::Gone;
        // A message may have been abandoned.
        self.checked = self
            .checked
            .checked_sub(CHECK_INTERVAL)
            .unwrap_or(self.checked);
    }

    /// Runs until the peer has acknowledged all messages and the ring is closed.
    ///
    /// # Errors
    /// The connection has failed, the sender died, or the ring is corrupt.
    pub fn run(mut self) -> Result<Stats, Error> {
        loop {
            match self.step()? {
                Next::Again => {}
                Next::Wait { idle, timeout, .. } => {
                    let other = idle.then(|| self.rings.as_fd());
                    if self.link.wait(other, timeout)? {
                        self.clear_wakeup();
                    }
                }
                Next::Finished if self.gone => return Err(Error::ProducerDied),
                Next::Finished => return Ok(self.stats),
            }
        }
    }

    /// Returns whether wake-ups matter: after the senders have closed their rings or died, none follow.
    fn watches_senders(&self) -> bool {
        !self.gone && !self.rings.is_ended()
    }

    /// Returns whether all messages were acknowledged and none follow.
    fn is_done(&self) -> bool {
        !self.watches_senders()
            && self.unwritten.is_none()
            && self.in_flight.is_empty()
            && self.backlog == 0
    }

    /// Closes the connection, and keeps answering the peer until it must have noticed.
    fn close(&mut self, time: Instant) -> Result<Next, Error> {
        let Some(connection) = self.link.connection(self.handle) else {
            return Ok(Next::Finished);
        };
        if !self.is_closing {
            self.is_closing = true;
            self.stats.lost_packets = connection.stats().path.lost_packets;
            connection.close(time, VarInt::from_u32(code::DONE), Bytes::new());
        }
        self.link.transmit(time)?;
        if self.link.connection(self.handle).is_none() {
            return Ok(Next::Finished);
        }
        Ok(Next::Wait {
            writable: self.link.is_blocked(),
            idle: false,
            timeout: self.link.timeout(time),
        })
    }

    /// Takes in the events of the connection.
    fn events(&mut self) -> Result<(), Error> {
        while let Some(connection) = self.link.connection(self.handle) {
            let Some(event) = connection.poll() else {
                break;
            };
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { .. } if self.is_closing => {}
                Event::ConnectionLost { reason } => return Err(reason.into()),
                Event::Stream(StreamEvent::Finished { id }) => self.acknowledged(id),
                Event::Stream(StreamEvent::Stopped { id, .. }) => {
                    self.stats.refused += self.reset(id);
                }
                _ => {}
            }
        }
        match self.link.connection(self.handle) {
            Some(_) => Ok(()),
            None if self.is_closing => Ok(()),
            None => Err(ConnectionError::Reset.into()),
        }
    }

    /// Completes the messages of a stream that the peer has acknowledged.
    fn acknowledged(&mut self, stream: StreamId) {
        let mut freed = Freed::default();
        for taken in self.in_flight.remove(&stream).unwrap_or_default() {
            self.stats.acked += 1;
            if self.config.acks {
                let ticket = taken.message.ticket();
                if self.rings.ack(taken.class, ticket) == Err(AckQueueFull) {
                    self.stats.acks_lost += 1;
                }
            }
            self.rings.complete(taken, &mut freed);
        }
        self.rings.wake_senders(freed);
    }

    /// Resets the streams whose messages are all abandoned or expired.
    fn give_up(&mut self, time: Instant) {
        if time.saturating_duration_since(self.checked) < CHECK_INTERVAL {
            return;
        }
        self.checked = time;
        let (rings, now) = (&self.rings, now());
        let is_stale = |taken: &Taken| {
            rings.consumer(taken).is_abandoned(&taken.message)
                || taken
                    .message
                    .deadline()
                    .is_some_and(|deadline| deadline < now)
        };
        let streams = self.in_flight.iter();
        let stale: Vec<StreamId> = streams
            .filter(|(_, messages)| messages.iter().all(is_stale))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in stale {
            self.stats.abandoned += self.reset(stream);
        }
    }

    /// Resets a stream, and completes its messages. Returns how many.
    fn reset(&mut self, stream: StreamId) -> u64 {
        if let Some(connection) = self.link.connection(self.handle) {
            // The peer has it, if the stream is closed.
            let _ = connection
                .send_stream(stream)
                .reset(VarInt::from_u32(code::ABANDONED));
        }
        self.open.take_if(|open| open.stream == stream);
        self.unwritten.take_if(|rest| rest.stream == stream);
        // What had not left of it never will. If bytes of another stream have not left either, one message is claimed
        // early.
        self.backlog = 0;
        let messages = self.in_flight.remove(&stream).unwrap_or_default();
        let count = messages.len() as u64;
        let mut freed = Freed::default();
        for taken in messages {
            self.rings.complete(taken, &mut freed);
        }
        self.rings.wake_senders(freed);
        count
    }

    /// Claims and sends messages while the connection lets them go. Short ones share a packet.
    fn fill(&mut self, time: Instant) -> Result<Stop, Error> {
        self.flush(time)?;
        for _ in 0..BATCH {
            if !self.can_claim() {
                self.flush(time)?;
                self.rings.skip_cancelled().map_err(|_| Error::Corrupt)?;
                return Ok(Stop::Blocked);
            }
            let Some(taken) = self.rings.claim(now()).map_err(|_| Error::Corrupt)? else {
                self.flight.set_has_room(true);
                self.finish_open();
                self.flush(time)?;
                return Ok(Stop::Empty);
            };
            self.send(taken);
            if self.backlog >= self.packet() {
                self.flush(time)?;
            }
        }
        self.flush(time)?;
        Ok(Stop::Batch)
    }

    /// Sends what was handed to QUIC, as far as it may leave.
    fn flush(&mut self, time: Instant) -> Result<(), Error> {
        let sent = self.link.transmit(time)?;
        self.backlog = self.backlog.saturating_sub(sent);
        self.is_held_up = self.backlog > 0;
        Ok(())
    }

    /// Returns the bytes of a full packet.
    fn packet(&mut self) -> u64 {
        let connection = self.link.connection(self.handle);
        connection.map_or(0, |connection| connection.current_mtu().into())
    }

    /// Returns whether a message would leave at once.
    fn can_claim(&mut self) -> bool {
        if !self.is_connected || self.is_held_up || self.link.is_blocked() {
            return false;
        }
        self.write_rest();
        let Some(connection) = self.link.connection(self.handle) else {
            return false;
        };
        // As quinn-proto decides whether a packet may leave.
        let more = self.backlog + u64::from(connection.current_mtu());
        self.stats.window = connection.congestion_state().window();
        let has_room = self.flight.bytes() + more < self.stats.window;
        if !has_room {
            self.flight.set_has_room(false);
        }
        if self.unwritten.is_some() || !has_room {
            return false;
        }
        if self.next.is_none() {
            self.next = connection.streams().open(Dir::Uni);
        }
        self.next.is_some()
    }

    /// Hands a message to QUIC.
    fn send(&mut self, taken: Taken) {
        let mut bytes = vec![0; taken.message.len()];
        self.rings
            .consumer(&taken)
            .read(&taken.message, 0, &mut bytes);
        let mut bytes = Bytes::from(bytes);
        self.stats.bytes += bytes.len() as u64;
        if taken.message.priority() < self.config.datagrams_below {
            match self.send_datagram(bytes) {
                None => {
                    let mut freed = Freed::default();
                    self.rings.complete(taken, &mut freed);
                    self.rings.wake_senders(freed);
                    return;
                }
                Some(rest) => bytes = rest,
            }
        }
        let Some(stream) = self.stream_for(&taken) else {
            return;
        };
        // Lengths of messages are below 2^31.
        let (prefix, used) = frame::prefix(taken.message.len() as u32);
        let prefix = Bytes::copy_from_slice(&prefix[..used]);
        self.in_flight.entry(stream).or_default().push(taken);
        self.backlog += (MAX_PREFIX.min(used) + bytes.len()) as u64;
        self.unwritten = Some(Unwritten {
            stream,
            parts: [prefix, bytes],
        });
        self.write_rest();
    }

    /// Sends a message as a datagram. Returns it if it is too long for one.
    fn send_datagram(&mut self, bytes: Bytes) -> Option<Bytes> {
        let connection = self.link.connection(self.handle)?;
        let mut datagrams = connection.datagrams();
        let len = bytes.len();
        if datagrams
            .max_size()
            .is_none_or(|max| len > max.min(DATAGRAM_BUFFER))
        {
            return Some(bytes);
        }
        // It fits, and no other waits.
        if datagrams.send(bytes.clone(), false).is_err() {
            return Some(bytes);
        }
        self.stats.datagrams += 1;
        self.backlog += len as u64;
        None
    }

    /// Returns the stream for a message: the open one, if it takes messages with this sequence number.
    fn stream_for(&mut self, taken: &Taken) -> Option<StreamId> {
        let (class, user_seq) = (taken.class, taken.message.user_seq());
        if let Some(open) = &self.open
            && (open.class, open.user_seq) == (class, user_seq)
        {
            return Some(open.stream);
        }
        self.finish_open();
        // `can_claim` has opened it.
        let stream = self.next.take()?;
        if let Some(connection) = self.link.connection(self.handle) {
            // What was lost of more important messages is sent again first. The stream was just opened.
            let priority = i32::try_from(taken.message.priority()).unwrap_or(i32::MAX);
            let _ = connection.send_stream(stream).set_priority(priority);
        }
        self.open = Some(Open {
            stream,
            class,
            user_seq,
        });
        Some(stream)
    }

    /// Writes what the peer's flow control did not let in before.
    fn write_rest(&mut self) {
        let Some(rest) = &mut self.unwritten else {
            return;
        };
        let Some(connection) = self.link.connection(self.handle) else {
            return;
        };
        match connection
            .send_stream(rest.stream)
            .write_chunks(&mut rest.parts)
        {
            Ok(_) if rest.parts.iter().any(|part| !part.is_empty()) => return,
            Ok(_) => {}
            Err(WriteError::Blocked) => return,
            // An event says so as well, and completes the messages.
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {}
        }
        self.unwritten = None;
        if self.config.streams == Streams::PerMessage {
            self.finish_open();
        }
    }

    /// Ends the open stream: no more messages follow in it.
    fn finish_open(&mut self) {
        if let Some(open) = self.open.take()
            && let Some(connection) = self.link.connection(self.handle)
        {
            // Fails if the peer has stopped the stream, of which an event tells.
            let _ = connection.send_stream(open.stream).finish();
        }
    }
}

/// Returns the configuration of the sending end.
fn client_config(
    tls: Arc<rustls::ClientConfig>,
    config: &Config,
    flight: Arc<Flight>,
) -> Result<ClientConfig, InitError> {
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicClientConfig::try_from(tls).map_err(|error| InitError::Tls(error.to_string()))?;
    let mut transport = super::transport(config.idle_timeout);
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        // Sending datagrams needs a size to be set for received ones. A datagram from the receiver exceeds it, which
        // ends the connection.
        .datagram_receive_buffer_size(Some(1))
        .datagram_send_buffer_size(DATAGRAM_BUFFER)
        // One message after the other.
        .send_fairness(false)
        .congestion_controller_factory(Arc::new(Factory {
            congestion: config.congestion,
            flight,
        }));
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(Arc::new(transport));
    Ok(client)
}
