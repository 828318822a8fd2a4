//! TCP channels between data nodes.
//!
//! Copies for a stream are recorded while packets that were read together are forwarded, and leave with one `writev`
//! for each receiver: headers from a list, payloads in place. What the kernel does not take is kept (at most one
//! reading, 192 KiB), and the stream's edge is blocked until it is written.
//!
//! An incoming connection is *unproved* until its ATTACH names a flow. Unproved connections do not count in
//! `limits.streams-per-node`; one too many closes the oldest (see [`limiter`](crate::limiter)):
//!
//! | connection from | places |
//! | --- | --- |
//! | an address that the control node announced: a session comes from it or goes to it | [`NAMED`] for each such address |
//! | any other address | [`UNKNOWN`] in all, some of them for one address |
//!
//! There are [`MOST_UNPROVED`] of both at most.

mod input;
mod output;
mod spliced;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use bfed::data::{EdgeId, HEADER_LEN};
use bfed::wire::ParseError;
use bfed::wire::data::Packet;
use bfed::{ConnId, Duration, Instant};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use socket2::{Domain, Protocol, Socket, Type};

use crate::limiter::{ConnectionLimiter, Limits, Ticket};
use output::write;
pub(crate) use spliced::{Filled, discard, read_all};

/// Streams handled in one round.
const EVENTS: usize = 256;
/// Time for an outgoing connection, and for the ATTACH of an incoming one.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Unproved connections from addresses that the control node did not announce.
const UNKNOWN: Limits = Limits {
    total: 512,
    per_source: 64,
};
/// Unproved connections from each address that it did announce: as many channels as one data node opens while its
/// ATTACHes are in flight.
const NAMED: usize = 1024;
/// Unproved connections in all; beyond them announced addresses have no reserved places.
const MOST_UNPROVED: usize = 8192;
/// Pause of accepting after the process ran out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections accepted in one round.
const CALLERS: usize = 64;
/// Bytes read at once, including the rest of the last reading. From where its source is paused on, a receiver's queue
/// has room for twice as much, so that nothing of a bulk session is lost.
pub(crate) const READ_BYTES: usize = 192 * 1024;

/// Opens a listener that does not block.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Returns the length of the packet at the start of `bytes`; `None` while it is incomplete.
pub(crate) fn packet(bytes: &[u8]) -> Option<Result<usize, ParseError>> {
    match Packet::<&[u8]>::check_header(bytes) {
        Ok(len) => (len <= bytes.len()).then_some(Ok(len)),
        Err(ParseError::Truncated) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Counters of streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opened: u64,
    pub(crate) refused: u64,
    /// Unproved connections closed for later ones.
    pub(crate) evicted: u64,
    pub(crate) malformed: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Of the sent bytes, those that were not copied.
    pub(crate) spliced_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The kernel connects.
    Dialling {
        edge: EdgeId,
        to: SocketAddr,
    },
    /// Has sent no ATTACH; `named`: the control node announced its address.
    Unproved {
        ticket: Ticket,
        named: bool,
    },
    Open,
}

/// Packets for one stream: headers, and payloads in the buffer.
type Notes = Vec<([u8; HEADER_LEN], Range<usize>)>;

#[derive(Debug)]
struct Stream {
    socket: TcpStream,
    from: IpAddr,
    state: State,
    /// The start of an incomplete packet.
    rest: Vec<u8>,
    /// Length of the last packet, 1 before the first: readings end where a packet does, as long as all are
    /// of one length, and nothing has to be kept.
    step: usize,
    /// Bytes that the kernel has not taken.
    waiting: VecDeque<u8>,
    /// The edge that is blocked meanwhile.
    edge: Option<EdgeId>,
    paused: bool,
    /// Its packets are spliced to another stream.
    spliced: bool,
    /// Copies for the next flush.
    noted: Notes,
}

/// The state of a stream that was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// A connection that failed.
    Dialling {
        /// Its edge.
        edge: EdgeId,
        /// Its target.
        to: SocketAddr,
    },
    /// A channel.
    Open,
}

/// The result of handling a writable stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writable {
    /// Connected.
    Dialled(EdgeId),
    /// Everything is written.
    Drained(EdgeId),
    /// A part is written.
    Took(EdgeId),
    /// Nothing new.
    Nothing,
}

/// The readiness of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Both directions are closed.
    pub(crate) over: bool,
}

/// The result of reading into the start of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) filled: usize,
    pub(crate) from: IpAddr,
    /// There may be more.
    pub(crate) more: bool,
}

/// All TCP channels of a data node.
#[derive(Debug)]
pub(crate) struct Streams {
    epoll: Epoll,
    streams: BTreeMap<ConnId, Stream>,
    next: u64,
    /// The local address of outgoing connections, by which peers know the node.
    own: Option<SocketAddr>,
    max: usize,
    /// Deadlines of outgoing and unproved connections.
    waits: VecDeque<(Instant, ConnId)>,
    /// Unproved connections from other and from announced addresses.
    unknown: ConnectionLimiter<ConnId>,
    named: ConnectionLimiter<ConnId>,
    unproved: usize,
    /// End of the pause of accepting.
    paused_until: Option<Instant>,
    /// Streams with recorded copies.
    noted: Vec<ConnId>,
    /// Buffers for recorded copies, lent to streams until they are flushed: as many as one reading needs.
    spare: Vec<Notes>,
    /// Streams that have ended and that the machine does not know of yet.
    broken: Vec<ConnId>,
    pub(crate) counts: Counts,
}

impl Streams {
    pub(crate) fn new(own: Option<SocketAddr>, max: usize) -> io::Result<Self> {
        Ok(Streams {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            streams: BTreeMap::new(),
            next: 0,
            own,
            max,
            waits: VecDeque::new(),
            unknown: ConnectionLimiter::new(UNKNOWN.for_process()),
            named: ConnectionLimiter::new(Limits {
                total: NAMED,
                per_source: NAMED,
            }),
            unproved: 0,
            paused_until: None,
            noted: Vec::new(),
            spare: Vec::new(),
            broken: Vec::new(),
            counts: Counts::default(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.waits.front().map(|(at, _)| *at);
        [waits, self.paused_until].into_iter().flatten().min()
    }

    fn insert(
        &mut self,
        now: Instant,
        socket: TcpStream,
        from: IpAddr,
        state: State,
        conn: ConnId,
    ) -> io::Result<()> {
        let dialling = matches!(state, State::Dialling { .. });
        let flags = if dialling {
            EpollFlags::EPOLLOUT
        } else {
            EpollFlags::EPOLLIN
        };
        self.epoll.add(&socket, EpollEvent::new(flags, conn.0))?;
        if self.waits.len() > 2 * self.streams.len() + EVENTS {
            let streams = &self.streams;
            self.waits.retain(|(_, conn)| streams.contains_key(conn));
        }
        self.waits.push_back((now + TIMEOUT, conn));
        self.unproved += usize::from(matches!(state, State::Unproved { .. }));
        let stream = Stream {
            socket,
            from,
            state,
            rest: Vec::new(),
            step: 1,
            waiting: VecDeque::new(),
            edge: None,
            paused: false,
            spliced: false,
            noted: Vec::new(),
        };
        self.streams.insert(conn, stream);
        Ok(())
    }

    /// Connects to another data node.
    pub(crate) fn dial(&mut self, now: Instant, edge: EdgeId, to: SocketAddr) -> io::Result<()> {
        if self.is_full() {
            self.counts.refused += 1;
            return Err(io::Error::other("limits.streams-per-node"));
        }
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(own) = self.own.filter(|own| own.is_ipv4() == to.is_ipv4()) {
            // `connect` chooses the port: channels to different nodes share ports, and the kernel does not search among
            // all ports in use.
            setsockopt(&socket, IpBindAddressNoPort, &true)?;
            socket.bind(&SocketAddr::new(own.ip(), 0).into())?;
        }
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let conn = self.next_conn();
        let state = State::Dialling { edge, to };
        self.insert(now, socket.into(), to.ip(), state, conn)
    }

    fn next_conn(&mut self) -> ConnId {
        self.next += 1;
        ConnId(self.next)
    }

    /// Returns whether no place is left for connections.
    fn is_full(&self) -> bool {
        self.streams.len() - self.unproved >= self.max
    }

    /// Returns whether connections are accepted now.
    pub(crate) fn accepts(&mut self, now: Instant) -> bool {
        self.paused_until.take_if(|until| *until <= now);
        self.paused_until.is_none()
    }

    /// Accepts connections; `named` returns whether the control node announced an address.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        listener: &TcpListener,
        named: impl Fn(IpAddr) -> bool,
    ) {
        for _ in 0..CALLERS {
            let (socket, from) = match listener.accept() {
                Ok(caller) => caller,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The connection has ended already.
                Err(error) if error.raw_os_error() == Some(nix::libc::ECONNABORTED) => continue,
                Err(_) => {
                    self.counts.refused += 1;
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            if self.is_full() {
                self.counts.refused += 1;
                continue;
            }
            let ready = socket
                .set_nonblocking(true)
                .and_then(|()| socket.set_nodelay(true));
            let named = self.unproved < MOST_UNPROVED && named(from.ip());
            let taken = ready.and_then(|()| self.admit(now, socket, from.ip(), named));
            if taken.is_err() {
                self.counts.refused += 1;
            }
        }
    }

    /// Counts an unproved connection.
    fn admit(
        &mut self,
        now: Instant,
        socket: TcpStream,
        from: IpAddr,
        named: bool,
    ) -> io::Result<()> {
        let conn = self.next_conn();
        let (ticket, evicted) = self.limiter(named).admit(from, named, |_| conn);
        if let Some(conn) = evicted {
            self.counts.evicted += 1;
            self.unproved -= usize::from(self.streams.remove(&conn).is_some());
        }
        let state = State::Unproved { ticket, named };
        let taken = self.insert(now, socket, from, state, conn);
        if taken.is_err() {
            self.limiter(named).remove(ticket);
        }
        taken
    }

    fn limiter(&mut self, named: bool) -> &mut ConnectionLimiter<ConnId> {
        match named {
            true => &mut self.named,
            false => &mut self.unknown,
        }
    }

    /// Removes a connection from the unproved ones.
    fn release(&mut self, state: State) {
        if let State::Unproved { ticket, named } = state {
            self.limiter(named).remove(ticket);
            self.unproved -= 1;
        }
    }

    /// Closes outgoing and unproved connections that took too long.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<ConnId> {
        let mut late = Vec::new();
        while self.waits.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, conn)) = self.waits.pop_front() else {
                break;
            };
            let waits = self
                .streams
                .get(&conn)
                .is_some_and(|stream| stream.state != State::Open);
            if waits {
                late.push(conn);
            }
        }
        late
    }

    /// Returns the streams that are ready.
    pub(crate) fn ready(&mut self) -> io::Result<Vec<(ConnId, Readiness)>> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let over = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        let ready = |event: &EpollEvent| {
            let flags = event.events();
            let readiness = Readiness {
                readable: flags.intersects(EpollFlags::EPOLLIN | over),
                writable: flags.intersects(EpollFlags::EPOLLOUT | over),
                over: flags.intersects(over),
            };
            (ConnId(event.data()), readiness)
        };
        Ok(events[..count].iter().map(ready).collect())
    }

    fn watch(&mut self, conn: ConnId) {
        let Some(stream) = self.streams.get(&conn) else {
            return;
        };
        let mut flags = EpollFlags::empty();
        if !stream.paused {
            flags |= EpollFlags::EPOLLIN;
        }
        if !stream.waiting.is_empty() {
            flags |= EpollFlags::EPOLLOUT;
        }
        let mut event = EpollEvent::new(flags, conn.0);
        if self.epoll.modify(&stream.socket, &mut event).is_err() {
            self.broken.push(conn);
        }
    }

    /// Pauses or resumes reading.
    pub(crate) fn set_paused(&mut self, conn: ConnId, paused: bool) {
        if let Some(stream) = self.streams.get_mut(&conn)
            && stream.paused != paused
        {
            stream.paused = paused;
            self.watch(conn);
        }
    }

    /// Handles a writable stream, or the result of connecting.
    pub(crate) fn writable(&mut self, conn: ConnId) -> Writable {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return Writable::Nothing;
        };
        if let State::Dialling { edge, .. } = stream.state {
            return match stream.socket.take_error() {
                Ok(None) => {
                    stream.state = State::Open;
                    self.counts.opened += 1;
                    self.watch(conn);
                    Writable::Dialled(edge)
                }
                _ => {
                    self.broken.push(conn);
                    Writable::Nothing
                }
            };
        }
        if stream.waiting.is_empty() {
            return Writable::Nothing;
        }
        let (front, back) = stream.waiting.as_slices();
        let slices = [IoSlice::new(front), IoSlice::new(back)];
        let Ok(written) = write(&mut stream.socket, &slices) else {
            self.broken.push(conn);
            return Writable::Nothing;
        };
        self.counts.sent_bytes += written as u64;
        stream.waiting.drain(..written);
        if !stream.waiting.is_empty() {
            let edge = stream.edge.filter(|_| written > 0);
            return edge.map_or(Writable::Nothing, Writable::Took);
        }
        stream.waiting = VecDeque::new();
        let edge = stream.edge.take();
        self.watch(conn);
        edge.map_or(Writable::Nothing, Writable::Drained)
    }

    /// Marks a stream as ended, even while it is paused.
    pub(crate) fn is_over(&mut self, conn: ConnId) {
        if self.streams.get(&conn).is_some_and(|stream| stream.paused) {
            self.broken.push(conn);
        }
    }

    /// The machine has accepted the ATTACH of a connection.
    pub(crate) fn attached(&mut self, conn: ConnId) {
        if let Some(stream) = self.streams.get_mut(&conn)
            && matches!(stream.state, State::Unproved { .. })
        {
            let state = std::mem::replace(&mut stream.state, State::Open);
            self.release(state);
            self.counts.opened += 1;
        }
    }

    /// Returns a stream that has ended and that the machine does not know of.
    pub(crate) fn broken(&mut self) -> Option<ConnId> {
        self.broken.pop()
    }

    /// Closes a stream for the machine.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.remove(conn);
    }

    /// Closes a stream; returns its state.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Ended> {
        let stream = self.streams.remove(&conn)?;
        self.release(stream.state);
        // The kernel removes a closed descriptor from the set.
        Some(match stream.state {
            State::Dialling { edge, to } => Ended::Dialling { edge, to },
            State::Unproved { .. } | State::Open => Ended::Open,
        })
    }
}

impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
