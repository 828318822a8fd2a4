//! A data node on a thread of its own: one loop over its sockets, the stream to the control node, the
//! main thread's commands and the machine's timers. Nothing is shared with other data nodes, so no
//! packet ever waits for a lock, and a machine's cores are used by running as many nodes.

mod emit;
mod link;
mod opened;
mod streams;
mod udp;

use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration as StdDuration;

use bfed::data::{DataError, DataEvent, Destination, HEADER_LEN, Meta, PREFETCH_MAX};
use bfed::native::Upcall;
use bfed::{DataNode, Instant, NodeId};
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;
use linux_net::wake::Waker;
use proto_core::clock::Clock;
use tokio::sync::oneshot;

use crate::limiter::LogLimiter;
use crate::status::Counts;
use emit::Output;
use link::Link;
pub(crate) use opened::{Opened, Opener, not_opened};
use streams::Streams;
use udp::Datagrams;

/// Batches of datagrams, or reads of one stream, in a row before anything else gets a look: what was read
/// together finds the caches warm.
const ROUNDS: usize = 8;
/// Native frames in a row.
const NATIVE_ROUNDS: usize = 256;
/// Room for what is read at once.
const BUFFER_BYTES: usize = 2 * streams::READ_BYTES;
/// Room for the longest packet.
const PACKET_BYTES: usize = HEADER_LEN + (1 << 16);
/// The longest time to wait.
const LONGEST: StdDuration = StdDuration::from_secs(1);

/// The main thread's end.
pub(crate) type Controller = daemon_kit::Controller<Command>;

/// What the main thread wants of a data node.
#[derive(Debug)]
pub(crate) enum Command {
    /// This is the stream to the control node from now on.
    Connect(UnixStream),
    /// Everything that is counted.
    Counters(oneshot::Sender<Snapshot>),
    /// No new sessions, and the ones that are there move away.
    Drain,
    /// The control node of this process is about to end, and this node after it: that it says no more
    /// is no news.
    Closing,
    /// End.
    Stop,
}

/// Everything that a data node counts, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) node: u32,
    pub(crate) sessions: u64,
    pub(crate) edges: u64,
    pub(crate) streams: u64,
    pub(crate) connected: bool,
    pub(crate) plane: Counts,
    pub(crate) drops: Counts,
    pub(crate) sockets: Counts,
    pub(crate) native: Counts,
    pub(crate) native_gauges: Counts,
}

/// The thread's state.
pub(crate) struct Worker {
    number: NodeId,
    clock: Clock,
    waker: Waker,
    node: DataNode,
    output: Output,
    listener: TcpListener,
    link: Option<Link>,
    batch: Batch,
    buffer: Box<[u8]>,
    /// Native frames that lie in the buffer: [`PREFETCH_MAX`] at most.
    frames: Vec<(Meta, Range<usize>)>,
    /// Something was left in a socket.
    more: bool,
    closing: bool,
    /// Datagrams that could not be sent, when the log was last looked at; and its limit.
    not_sent: u64,
    log: LogLimiter,
}

impl Worker {
    pub(crate) fn new(opened: Opened) -> std::io::Result<Worker> {
        let now = opened.clock.now();
        Ok(Worker {
            number: opened.config.node,
            clock: opened.clock,
            waker: opened.waker,
            node: DataNode::new(opened.config, opened.seed, now),
            output: Output {
                network: opened.network,
                datagrams: Datagrams::new(opened.udp),
                streams: Streams::new(opened.config.stream, opened.max_streams)?,
                held: Default::default(),
                native_failed: 0,
            },
            listener: opened.listener,
            link: None,
            batch: Batch::new(Batch::MAX),
            buffer: vec![0; BUFFER_BYTES].into(),
            frames: Vec::with_capacity(PREFETCH_MAX),
            more: false,
            closing: false,
            not_sent: 0,
            log: LogLimiter::default(),
        })
    }

    /// Runs until it is told to end.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) -> std::io::Result<()> {
        loop {
            let now = self.clock.now();
            self.node.handle_timeout(now, &mut *self.output.network);
            self.output.network.handle_timeout(now);
            self.events(now);
            self.transmit(now);
            self.talk();
            self.complain();
            self.output.network.flush(now);
            let ready = self.wait(now)?;
            self.more = false;
            // Before its control node's stream ends it may say that this is no news.
            if ready.commands && !self.obey(commands) {
                return Ok(());
            }
            if ready.control {
                self.listen();
            }
            if ready.network {
                self.native();
            }
            if ready.datagrams {
                self.datagrams();
            }
            if ready.streams {
                self.streams()?;
            }
            if ready.callers {
                let now = self.clock.now();
                let node = &self.node;
                let named = |address| node.is_neighbour(address);
                self.output.streams.accept(now, &self.listener, named);
            }
        }
    }

    /// What the machine wants done.
    fn events(&mut self, now: Instant) {
        for conn in self.output.streams.overdue(now) {
            self.stream_over(now, conn);
        }
        while let Some(event) = self.node.poll_event() {
            match event {
                DataEvent::Dial { edge, to } => {
                    if let Err(error) = self.output.streams.dial(now, edge, to) {
                        tracing::debug!(%to, %error, "data channel");
                        self.node.dial_failed(now, edge, to);
                    }
                }
                DataEvent::Close(conn) => self.output.streams.close(conn),
                DataEvent::Pause(Destination::Stream(conn)) => {
                    self.output.streams.set_paused(conn, true);
                }
                DataEvent::Resume(Destination::Stream(conn)) => {
                    self.output.streams.set_paused(conn, false);
                }
                DataEvent::Pause(Destination::Native(channel)) => {
                    self.output.network.set_paused(channel, true);
                }
                DataEvent::Resume(Destination::Native(channel)) => {
                    self.output.network.set_paused(channel, false);
                }
                // A datagram's sender is told by reports.
                DataEvent::Pause(Destination::Datagram(_))
                | DataEvent::Resume(Destination::Datagram(_)) => {}
                DataEvent::ControlLost => self.lose_control("it says nothing"),
            }
        }
    }

    /// What waited and may go now.
    fn transmit(&mut self, now: Instant) {
        while let Some(copy) = self.node.plane().poll_transmit(now, &mut self.buffer) {
            let bytes = &self.buffer[copy.range.clone()];
            self.output.send(now, &mut self.node, &copy, bytes);
        }
        self.output.datagrams.flush();
        self.bury(now);
    }

    /// Streams that broke while they were written to.
    fn bury(&mut self, now: Instant) {
        while let Some(conn) = self.output.streams.broken() {
            self.stream_over(now, conn);
        }
    }

    fn stream_over(&mut self, now: Instant, conn: bfed::ConnId) {
        match self.output.streams.remove(conn) {
            Some(streams::Ended::Dialling { edge, to }) => self.node.dial_failed(now, edge, to),
            Some(streams::Ended::Open) => self.node.stream_ended(now, conn),
            None => {}
        }
    }

    /// Logs datagrams that could not be sent, within a limit.
    fn complain(&mut self) {
        let failed = self.output.datagrams.counts.send_failed;
        let count = failed - std::mem::replace(&mut self.not_sent, failed);
        let now = std::time::Instant::now();
        let node = self.number.0;
        if let Some(suppressed) = self.log.summary(now) {
            tracing::warn!(
                event = "datagrams_not_sent",
                node,
                suppressed,
                "similar lines were left out"
            );
        }
        if count > 0 && self.log.admit(now) {
            tracing::warn!(
                event = "datagrams_not_sent",
                node,
                count,
                "datagrams not sent: longer than the path takes (data.mtu), no route, or no room in the socket"
            );
        }
    }

    /// Messages to the control node.
    fn talk(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        if let Err(error) = link.write(&mut self.node, &mut self.buffer) {
            self.lose_control(&error.to_string());
        }
    }

    /// Messages of the control node.
    fn listen(&mut self) {
        let now = self.clock.now();
        let Some(link) = &mut self.link else {
            return;
        };
        let network = &mut *self.output.network;
        if let Err(error) = link.read(now, &mut self.node, network, &mut self.buffer) {
            self.lose_control(&error.to_string());
        }
    }

    /// Closing the stream has the main thread bring another.
    fn lose_control(&mut self, why: &str) {
        let heard = self.link.take().is_some_and(|link| link.heard);
        if heard && !self.closing {
            tracing::warn!(
                node = self.number.0,
                why,
                "control lost; forwarding goes on"
            );
        }
        self.node.disconnected();
    }

    /// Data of the native network.
    fn native(&mut self) {
        let now = self.clock.now();
        let mut at = 0;
        for _ in 0..NATIVE_ROUNDS {
            match self.output.network.poll_upcall(now, &mut self.buffer[at..]) {
                Some(Upcall::Data { channel, len }) => {
                    let end = at + HEADER_LEN + len;
                    self.frames.push((Meta::Native(channel), at..end));
                    at = end;
                }
                // Clients ask the mediator.
                Some(_) => {}
                None => break,
            }
            if self.frames.len() == PREFETCH_MAX || at >= streams::READ_BYTES - PACKET_BYTES {
                self.forward_native(now);
                at = 0;
            }
        }
        self.forward_native(now);
        while let Some(channel) = self.output.network.poll_writable() {
            self.output.native_writable(now, &mut self.node, channel);
        }
        self.bury(now);
    }

    /// Native frames that lie in the buffer.
    fn forward_native(&mut self, now: Instant) {
        let (node, buffer) = (&mut self.node, &mut self.buffer);
        let ahead = self.frames.iter();
        node.plane()
            .prefetch(ahead.map(|(meta, place)| (meta, &buffer[place.clone()])));
        for (meta, place) in self.frames.drain(..) {
            self.output.forward(now, node, &meta, buffer, place);
        }
        self.output.flush(node, buffer);
        self.events(now);
    }

    fn datagrams(&mut self) {
        for _ in 0..ROUNDS {
            match self.output.datagrams.receive(&mut self.batch) {
                true => {}
                false => return,
            }
            let now = self.clock.now();
            self.forward_datagrams(now);
            self.output.datagrams.flush();
            self.bury(now);
        }
        self.more = true;
    }

    /// The batch that was received.
    fn forward_datagrams(&mut self, now: Instant) {
        let received = self.batch.received_mut().fuse();
        let mut packets = received.map(|one| (Meta::Datagram(one.source), one.payload));
        loop {
            let mut some: [_; PREFETCH_MAX] = std::array::from_fn(|_| packets.next());
            let ahead = some.iter().flatten();
            let ahead = ahead.map(|(meta, frame)| (meta, &frame[..]));
            self.node.plane().prefetch(ahead);
            for (meta, frame) in some.iter_mut().flatten() {
                self.output.datagrams.count(frame.len());
                self.output.forward_alone(now, &mut self.node, meta, frame);
            }
            if some[PREFETCH_MAX - 1].is_none() {
                return;
            }
        }
    }

    fn streams(&mut self) -> std::io::Result<()> {
        for (conn, ready) in self.output.streams.ready()? {
            let now = self.clock.now();
            if ready.over {
                self.output.streams.is_over(conn);
            }
            if ready.writable {
                self.writable(now, conn);
            }
            if ready.readable {
                self.read_stream(now, conn);
            }
            self.bury(now);
        }
        Ok(())
    }

    fn writable(&mut self, now: Instant, conn: bfed::ConnId) {
        match self.output.streams.writable(conn) {
            streams::Writable::Dialled(edge) => {
                if !self.node.dialled(edge, conn) {
                    self.output.streams.close(conn);
                }
            }
            streams::Writable::Drained(edge) => self.node.plane().writable(now, edge),
            streams::Writable::Took(edge) => self.node.plane().takes(now, edge),
            streams::Writable::Nothing => {}
        }
    }

    fn read_stream(&mut self, now: Instant, conn: bfed::ConnId) {
        for _ in 0..ROUNDS {
            let read = self.output.streams.read(conn, &mut self.buffer);
            let Some(read) = read else {
                return;
            };
            let meta = Meta::Stream(conn, read.from);
            let (mut at, mut last, said) = (0, None, read.filled);
            while let Some(end) = streams::packet(&self.buffer[at..read.filled]) {
                let Ok(len) = end else {
                    // Not one of ours, or out of step: nothing more can be read from it.
                    self.output.streams.malformed(conn);
                    break;
                };
                let place = at..at + len;
                let node = &mut self.node;
                if self
                    .output
                    .forward(now, node, &meta, &mut self.buffer, place)
                {
                    self.output.streams.attached(conn);
                }
                at += len;
                last = Some(len);
            }
            self.output.flush(&mut self.node, &self.buffer);
            let rest = &self.buffer[at..said];
            self.output.streams.keep(conn, rest, said, last);
            self.events(now);
            if !read.more {
                return;
            }
        }
    }

    /// Waits for anything; what there is.
    fn wait(&mut self, now: Instant) -> std::io::Result<Ready> {
        let due = [self.node.poll_timeout(), self.output.poll_timeout()];
        let timeout = match self.more {
            true => StdDuration::ZERO,
            false => Clock::until(now, due.into_iter().flatten().min(), LONGEST),
        };
        let accepts = self.output.streams.accepts(now);
        let mut watches = [
            Watch::readable(self.waker.as_fd()),
            Watch::readable(self.output.network.as_fd()),
            Watch::readable(self.output.datagrams.as_fd()),
            Watch::readable(self.output.streams.as_fd()),
            Watch::readable(self.listener.as_fd()),
            Watch::failed(self.waker.as_fd()),
        ];
        if !accepts {
            watches[4] = Watch::failed(self.waker.as_fd());
        }
        if let Some(link) = &self.link {
            watches[5] = link.watch();
        }
        let count = if self.link.is_some() { 6 } else { 5 };
        poll::wait(&mut watches[..count], Some(timeout))?;
        Ok(Ready {
            commands: watches[0].is_readable(),
            network: watches[1].is_readable(),
            datagrams: self.more || watches[2].is_readable(),
            streams: watches[3].is_readable(),
            callers: accepts && watches[4].is_readable(),
            control: count == 6 && watches[5].is_readable(),
        })
    }

    /// Commands of the main thread; false once it said to stop (or is gone).
    fn obey(&mut self, commands: &Receiver<Command>) -> bool {
        self.waker.reset();
        let now = self.clock.now();
        loop {
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Ok(Command::Connect(stream)) => match Link::new(stream) {
                    Ok(link) => {
                        self.link = Some(link);
                        self.node.connected(now);
                    }
                    Err(error) => tracing::error!(%error, "stream to the control node"),
                },
                // Who asked may be gone: then nobody misses the answer.
                Ok(Command::Counters(reply)) => {
                    let _ = reply.send(self.snapshot());
                }
                Ok(Command::Drain) => self.node.drain(now),
                Ok(Command::Closing) => self.closing = true,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let sessions = self.node.session_count() as u64;
        let plane = self.node.plane();
        let stats = *plane.stats();
        let (drops, native) = (DataError::ALL.iter(), &self.output.network);
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        Snapshot {
            node: self.number.0,
            sessions,
            edges: plane.edge_count() as u64,
            streams: self.output.streams.len() as u64,
            connected: self.link.is_some(),
            plane: [
                ("packets", stats.packets),
                ("bytes", stats.bytes),
                ("copies", stats.copies),
                ("copied_bytes", stats.copied_bytes),
                ("queued", stats.queued),
                ("reports", stats.reports),
                ("pauses", stats.pauses),
            ]
            .map(named)
            .into(),
            drops: drops
                .map(|reason| (reason.name().to_owned(), stats.drops.get(*reason)))
                .collect(),
            sockets: self.output.counters().map(named).into(),
            native: native.counters().into_iter().map(named).collect(),
            native_gauges: native.gauges().into_iter().map(named).collect(),
        }
    }
}

/// What has something to read.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    commands: bool,
    network: bool,
    datagrams: bool,
    streams: bool,
    callers: bool,
    control: bool,
}
