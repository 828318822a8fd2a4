//! TCP channels between data nodes.
//!
//! What is written to a stream is gathered while packets that were read together are forwarded, and
//! goes out with one `writev` for each receiver: headers from aside, payloads from where they lie. What
//! the kernel has no room for is kept (at most what was read at once, 192 KiB)
//! and the stream's edge is blocked until it is gone.
//!
//! A caller is *unproved* until its ATTACH names a flow. Unproved callers have places of their own beside
//! `limits.streams-per-node`, and one too many closes the oldest (see [`limiter`](crate::limiter)):
//!
//! | caller | places |
//! | --- | --- |
//! | at an address that the control node announced: a session comes from it or goes to it | [`NAMED`] for each such address |
//! | any other | [`STRANGERS`] in all, some of them for one address |
//!
//! There are [`MOST_UNPROVED`] of both at most.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
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

/// Streams that are looked at in one round.
const EVENTS: usize = 256;
/// How long a call may take, and how long a caller may take to say what it has come for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Unproved callers at addresses that the control node did not announce.
const STRANGERS: Limits = Limits {
    total: 512,
    per_source: 64,
};
/// Unproved callers at each address that it did announce: as many channels as one data node opens while
/// its ATTACHes are on the way.
const NAMED: usize = 1024;
/// Unproved callers in all; from here on one at an announced address has no place of its own.
const MOST_UNPROVED: usize = 8192;
/// How long nobody is taken in after there was no descriptor left.
const REST: Duration = Duration::from_millis(100);
/// Callers accepted in one round.
const CALLERS: usize = 64;
/// Bytes read at once, packets that were not whole before included. A receiver's queue has room for
/// twice as much from where its source is paused on, so that nothing of a bulk session is lost.
pub(crate) const READ_BYTES: usize = 192 * 1024;
/// Pieces of one `writev`: the kernel's bound.
const PIECES: usize = 1024;

/// A listener that never waits.
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

/// The length of the packet that `bytes` begin with: none as long as it is not there whole.
pub(crate) fn packet(bytes: &[u8]) -> Option<Result<usize, ParseError>> {
    match Packet::<&[u8]>::check_header(bytes) {
        Ok(len) => (len <= bytes.len()).then_some(Ok(len)),
        Err(ParseError::Truncated) => None,
        Err(error) => Some(Err(error)),
    }
}

/// What became of streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opened: u64,
    pub(crate) refused: u64,
    /// Unproved callers that were closed for later ones.
    pub(crate) evicted: u64,
    pub(crate) malformed: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The kernel calls.
    Dialling {
        edge: EdgeId,
        to: SocketAddr,
    },
    /// Has not said what it has come for; `named`: the control node announced its address.
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
    /// The front of a packet that is not there whole.
    rest: Vec<u8>,
    /// Length of the last packet, 1 before the first: readings end where a packet does, as long as all are
    /// of one length, and nothing has to be kept.
    step: usize,
    /// What the kernel had no room for.
    waiting: VecDeque<u8>,
    /// Whose edge is blocked meanwhile.
    edge: Option<EdgeId>,
    paused: bool,
    /// For the next flush.
    noted: Notes,
}

/// What a stream was when it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// A call that came to nothing.
    Dialling {
        /// For which edge.
        edge: EdgeId,
        /// Where to.
        to: SocketAddr,
    },
    /// A channel.
    Open,
}

/// What a stream that can be written to brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writable {
    /// The call went through.
    Dialled(EdgeId),
    /// All that waited is written.
    Drained(EdgeId),
    /// Some of it is.
    Took(EdgeId),
    /// Nothing new.
    Nothing,
}

/// What can be done with a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Both directions are closed.
    pub(crate) over: bool,
}

/// What was read into the front of a buffer.
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
    /// The address that calls are made from: peers know the node by it.
    own: Option<SocketAddr>,
    max: usize,
    /// Calls and unproved callers, and until when they are waited for.
    waits: VecDeque<(Instant, ConnId)>,
    /// Unproved callers, and those at addresses that the control node announced.
    strangers: ConnectionLimiter<ConnId>,
    named: ConnectionLimiter<ConnId>,
    unproved: usize,
    /// No descriptor was left: until when nobody is taken in.
    rests_until: Option<Instant>,
    /// Streams with something noted.
    noted: Vec<ConnId>,
    /// Room for notes, lent to streams until they are flushed: at most as much as one reading needs.
    spare: Vec<Notes>,
    /// Streams that are over and that the machine does not know about yet.
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
            strangers: ConnectionLimiter::new(STRANGERS.for_process()),
            named: ConnectionLimiter::new(Limits {
                total: NAMED,
                per_source: NAMED,
            }),
            unproved: 0,
            rests_until: None,
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
        [waits, self.rests_until].into_iter().flatten().min()
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
        self.waits.push_back((now + PATIENCE, conn));
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
            noted: Vec::new(),
        };
        self.streams.insert(conn, stream);
        Ok(())
    }

    /// Calls another data node.
    pub(crate) fn dial(&mut self, now: Instant, edge: EdgeId, to: SocketAddr) -> io::Result<()> {
        if self.is_full() {
            self.counts.refused += 1;
            return Err(io::Error::other("limits.streams-per-node"));
        }
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(own) = self.own.filter(|own| own.is_ipv4() == to.is_ipv4()) {
            // The port is chosen by `connect`, which knows the other end: ports are shared by
            // channels to different nodes, and none is searched for among all that are in use.
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

    /// No place is left for calls, and for callers that have proved themselves.
    fn is_full(&self) -> bool {
        self.streams.len() - self.unproved >= self.max
    }

    /// Whether callers are taken in now.
    pub(crate) fn accepts(&mut self, now: Instant) -> bool {
        self.rests_until.take_if(|until| *until <= now);
        self.rests_until.is_none()
    }

    /// Takes callers in; `named` says whether the control node announced an address.
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
                // The caller has gone.
                Err(error) if error.raw_os_error() == Some(nix::libc::ECONNABORTED) => continue,
                Err(_) => {
                    self.counts.refused += 1;
                    self.rests_until = Some(now + REST);
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

    /// Gives a caller a place among those that have not proved themselves.
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
            false => &mut self.strangers,
        }
    }

    /// The caller gives up its place among the unproved.
    fn release(&mut self, state: State) {
        if let State::Unproved { ticket, named } = state {
            self.limiter(named).remove(ticket);
            self.unproved -= 1;
        }
    }

    /// Calls and unproved callers that took too long.
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

    /// Streams that can be read from or written to.
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

    /// Reads no more, or again.
    pub(crate) fn set_paused(&mut self, conn: ConnId, paused: bool) {
        if let Some(stream) = self.streams.get_mut(&conn)
            && stream.paused != paused
        {
            stream.paused = paused;
            self.watch(conn);
        }
    }

    /// The stream can be written to, or its call is decided.
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

    /// A stream that is over is found out also while it is not read from.
    pub(crate) fn is_over(&mut self, conn: ConnId) {
        if self.streams.get(&conn).is_some_and(|stream| stream.paused) {
            self.broken.push(conn);
        }
    }

    /// Reads what is there behind what is left of the last packet. None: nothing, or the stream is
    /// over.
    pub(crate) fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Option<Reading> {
        let stream = self.streams.get_mut(&conn)?;
        if stream.paused || matches!(stream.state, State::Dialling { .. }) {
            return None;
        }
        let kept = stream.rest.len();
        // What is kept is less than a packet, and there is room for two of any length.
        let buffer = &mut buffer[..READ_BYTES - READ_BYTES % stream.step];
        buffer[..kept].copy_from_slice(&stream.rest);
        match stream.socket.read(&mut buffer[kept..]) {
            Ok(0) => {
                self.broken.push(conn);
                None
            }
            Ok(read) => {
                stream.rest.clear();
                self.counts.received_bytes += read as u64;
                Some(Reading {
                    filled: kept + read,
                    from: stream.from,
                    more: kept + read == buffer.len(),
                })
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                None
            }
            Err(_) => {
                self.broken.push(conn);
                None
            }
        }
    }

    /// The machine knows whom the caller has come for.
    pub(crate) fn attached(&mut self, conn: ConnId) {
        if let Some(stream) = self.streams.get_mut(&conn)
            && matches!(stream.state, State::Unproved { .. })
        {
            let state = std::mem::replace(&mut stream.state, State::Open);
            self.release(state);
            self.counts.opened += 1;
        }
    }

    /// Keeps the front of a packet for the next reading; the last whole packet was so long. A caller that
    /// has said anything but what it has come for is one too many.
    pub(crate) fn keep(&mut self, conn: ConnId, rest: &[u8], said: usize, last: Option<usize>) {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return;
        };
        let unproved = matches!(stream.state, State::Unproved { .. });
        if unproved && said >= HEADER_LEN {
            self.malformed(conn);
        } else {
            stream.rest = rest.to_vec();
            stream.step = last.unwrap_or(stream.step);
        }
    }

    /// What came is no packet.
    pub(crate) fn malformed(&mut self, conn: ConnId) {
        self.counts.malformed += 1;
        self.broken.push(conn);
    }

    /// Notes a copy for [`Streams::flush_one`]: its header is written over for the next copy, its
    /// payload lies in the buffer, whose packet begins at `start`.
    pub(crate) fn note(&mut self, conn: ConnId, edge: EdgeId, packet: &[u8], start: usize) {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return;
        };
        let Some((header, payload)) = packet.split_first_chunk::<HEADER_LEN>() else {
            return;
        };
        if stream.noted.is_empty() {
            self.noted.push(conn);
            stream.noted = self.spare.pop().unwrap_or_default();
        }
        stream.edge = Some(edge);
        let at = start + HEADER_LEN;
        stream.noted.push((*header, at..at + payload.len()));
    }

    /// Writes what was noted for one stream: none when nothing is left; the edge, if it is blocked
    /// from now on.
    pub(crate) fn flush_one(&mut self, buffer: &[u8]) -> Option<Option<EdgeId>> {
        let conn = self.noted.pop()?;
        let Some(stream) = self.streams.get_mut(&conn) else {
            return Some(None);
        };
        let mut noted = std::mem::take(&mut stream.noted);
        let mut rest = &noted[..];
        let mut blocked = !stream.waiting.is_empty();
        while !rest.is_empty() && !blocked {
            let some = &rest[..rest.len().min(PIECES / 2)];
            let mut slices = Vec::with_capacity(2 * some.len());
            slices.extend(some.iter().flat_map(|(header, payload)| {
                [IoSlice::new(header), IoSlice::new(&buffer[payload.clone()])]
            }));
            let whole: usize = slices.iter().map(|slice| slice.len()).sum();
            let Ok(written) = write(&mut stream.socket, &slices) else {
                self.broken.push(conn);
                return Some(None);
            };
            self.counts.sent_bytes += written as u64;
            blocked = written < whole;
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, written);
            for slice in left {
                stream.waiting.extend(&slice[..]);
            }
            rest = &rest[some.len()..];
        }
        for (header, payload) in rest {
            stream.waiting.extend(header);
            stream.waiting.extend(&buffer[payload.clone()]);
        }
        noted.clear();
        self.spare.push(noted);
        if !blocked {
            stream.edge = None;
            return Some(None);
        }
        let edge = stream.edge;
        self.watch(conn);
        Some(edge)
    }

    /// Writes one packet; whether the edge is blocked from now on.
    pub(crate) fn write(&mut self, conn: ConnId, edge: EdgeId, packet: &[u8]) -> bool {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return false;
        };
        let mut written = 0;
        if stream.waiting.is_empty() {
            match write(&mut stream.socket, &[IoSlice::new(packet)]) {
                Ok(bytes) => written = bytes,
                Err(_) => {
                    self.broken.push(conn);
                    return false;
                }
            }
        }
        self.counts.sent_bytes += written as u64;
        if written == packet.len() {
            return false;
        }
        stream.waiting.extend(&packet[written..]);
        stream.edge = Some(edge);
        self.watch(conn);
        true
    }

    /// A stream that is over and that the machine does not know about.
    pub(crate) fn broken(&mut self) -> Option<ConnId> {
        self.broken.pop()
    }

    /// The machine has no more use for it.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.remove(conn);
    }

    /// Closes a stream; what it was.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Ended> {
        let stream = self.streams.remove(&conn)?;
        self.release(stream.state);
        // The kernel takes a closed descriptor out of the set by itself.
        Some(match stream.state {
            State::Dialling { edge, to } => Ended::Dialling { edge, to },
            State::Unproved { .. } | State::Open => Ended::Open,
        })
    }
}

/// Writes as much as there is room for.
fn write(socket: &mut TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match socket.write_vectored(slices) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
