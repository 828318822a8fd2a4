//! TCP channels between data nodes.
//!
//! What is written to a stream is gathered while packets that were read together are forwarded, and
//! goes out with one `writev` for each receiver: headers from aside, payloads from where they lie. What
//! the kernel has no room for is kept (at most what was read at once, 192 KiB)
//! and the stream's edge is blocked until it is gone.

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
use socket2::{Domain, Protocol, Socket, Type};

/// Streams that are looked at in one round.
const EVENTS: usize = 256;
/// How long a call may take, and how long a caller may take to say what it has come for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Callers that have not said yet what they have come for; more are turned away.
const MAX_STRANGERS: usize = 1024;
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
    /// Has not said what it has come for.
    Stranger,
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
    /// Calls and strangers, and until when they are waited for.
    waits: VecDeque<(Instant, ConnId)>,
    strangers: usize,
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
            strangers: 0,
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
        self.waits.front().map(|(at, _)| *at)
    }

    fn insert(
        &mut self,
        now: Instant,
        socket: TcpStream,
        from: IpAddr,
        state: State,
    ) -> io::Result<()> {
        self.next += 1;
        let conn = ConnId(self.next);
        let dialling = matches!(state, State::Dialling { .. });
        let flags = if dialling {
            EpollFlags::EPOLLOUT
        } else {
            EpollFlags::EPOLLIN
        };
        self.epoll.add(&socket, EpollEvent::new(flags, conn.0))?;
        self.waits.push_back((now + PATIENCE, conn));
        self.strangers += usize::from(state == State::Stranger);
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
        if self.streams.len() >= self.max {
            self.counts.refused += 1;
            return Err(io::Error::other("limits.streams-per-node"));
        }
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(own) = self.own.filter(|own| own.is_ipv4() == to.is_ipv4()) {
            socket.bind(&SocketAddr::new(own.ip(), 0).into())?;
        }
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        self.insert(now, socket.into(), to.ip(), State::Dialling { edge, to })
    }

    /// Takes callers in.
    pub(crate) fn accept(&mut self, now: Instant, listener: &TcpListener) {
        for _ in 0..CALLERS {
            let (socket, from) = match listener.accept() {
                Ok(caller) => caller,
                Err(_) => return,
            };
            if self.streams.len() >= self.max || self.strangers >= MAX_STRANGERS {
                self.counts.refused += 1;
                continue;
            }
            let ready = socket
                .set_nonblocking(true)
                .and_then(|()| socket.set_nodelay(true));
            let taken = ready.and_then(|()| self.insert(now, socket, from.ip(), State::Stranger));
            if taken.is_err() {
                self.counts.refused += 1;
            }
        }
    }

    /// Calls and strangers that took too long.
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
            && stream.state == State::Stranger
        {
            stream.state = State::Open;
            self.strangers -= 1;
            self.counts.opened += 1;
        }
    }

    /// Keeps the front of a packet for the next reading; the last whole packet was so long. A caller that
    /// has said anything but what it has come for is one too many.
    pub(crate) fn keep(&mut self, conn: ConnId, rest: &[u8], said: usize, last: Option<usize>) {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return;
        };
        if stream.state == State::Stranger && said >= HEADER_LEN {
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
        self.strangers -= usize::from(stream.state == State::Stranger);
        // The kernel takes a closed descriptor out of the set by itself.
        Some(match stream.state {
            State::Dialling { edge, to } => Ended::Dialling { edge, to },
            State::Stranger | State::Open => Ended::Open,
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
