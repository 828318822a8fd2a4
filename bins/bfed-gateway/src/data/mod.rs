//! A data node on a thread of its own: one loop over its sockets, the stream to the control node, the
//! main thread's commands and the machine's timers. Data nodes share nothing, so no packet waits for a lock; one node a
//! core uses all cores.

mod emit;
mod link;
mod opened;
mod peers;
mod quic;
mod reading;
mod secure;
mod splice;
mod streams;
mod udp;

use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration as StdDuration;

use bfed::data::{
    Ages, DataError, DataEvent, Destination, HEADER_LEN, Meta, PREFETCH_MAX, Repairs,
};
use bfed::native::Upcall;
use bfed::{DataNode, Instant, NodeId};
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;
use linux_net::wake::Waker;
use proto_core::clock::Clock;
use tokio::sync::oneshot;

use crate::limiter::LogLimiter;
use crate::native::{Network, PresentedFlow};
use crate::status::Counts;
use emit::Output;
use link::Link;
pub use opened::{NotOpened, Opener};
pub(crate) use opened::{Opened, not_opened};
pub(crate) use peers::LinkSnapshot;
pub(crate) use quic::Congestion;
use splice::Splicer;
use streams::Streams;
use udp::Datagrams;

/// Batches of datagrams, or reads of one stream, in a row before other sockets are read: warm caches make
/// longer runs faster.
const ROUNDS: usize = 8;
/// Native frames in a row.
const NATIVE_ROUNDS: usize = 256;
/// Bytes read at once.
const BUFFER_BYTES: usize = 2 * streams::READ_BYTES;
/// Room for the longest packet.
const PACKET_BYTES: usize = HEADER_LEN + (1 << 16);
/// The longest time to wait.
const LONGEST: StdDuration = StdDuration::from_secs(1);

/// The machine, with its native network.
pub(crate) type Node = DataNode<dyn Network>;

/// The main thread's handle of a data node.
pub(crate) type Controller = daemon_kit::Controller<Command>;

/// A command of the main thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Use this stream to the control node.
    Connect(UnixStream),
    /// Return all counters.
    Counters(oneshot::Sender<Snapshot>),
    /// Return the flows that members of the native network receive here.
    Presented(oneshot::Sender<Vec<PresentedFlow>>),
    /// Drain: take no new sessions; those present move to other data nodes.
    Drain,
    /// The control node of this process ends before this node: its silence is expected.
    Closing,
    /// End.
    Stop,
}

/// A data node's counters and gauges at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) node: u32,
    pub(crate) sessions: u64,
    pub(crate) edges: u64,
    pub(crate) streams: u64,
    pub(crate) connected: bool,
    pub(crate) plane: Counts,
    pub(crate) drops: Counts,
    /// Lost packets of real-time sessions.
    pub(crate) repairs: Counts,
    /// Bytes of packets that are kept for repairs.
    pub(crate) repair_bytes: u64,
    pub(crate) sockets: Counts,
    pub(crate) native: Counts,
    pub(crate) native_gauges: Counts,
    pub(crate) ages: Ages,
    pub(crate) links: Vec<LinkSnapshot>,
}

/// The thread's state.
pub(crate) struct Worker {
    number: NodeId,
    clock: Clock,
    waker: Waker,
    node: Node,
    output: Output,
    listener: TcpListener,
    link: Option<Link>,
    /// Why the control node refused this data node at the last attempt.
    refusal: Option<String>,
    batch: Batch,
    buffer: Box<[u8]>,
    /// Where the kernel can splice.
    splicer: Option<Splicer>,
    /// Native frames in the buffer: [`PREFETCH_MAX`] at most.
    frames: Vec<(Meta, Range<usize>)>,
    /// A socket has more to read.
    more: bool,
    closing: bool,
    /// Datagrams that could not be sent at the last check of the log, and the log's limit.
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
            node: Node::new(opened.config, opened.network, opened.seed, now),
            output: Output {
                datagrams: Datagrams::new(opened.udp),
                streams: Streams::new(opened.config.stream, opened.max_streams)?,
                quic: opened.quic,
                held: Default::default(),
                native_failed: 0,
                straight: false,
            },
            listener: opened.listener,
            link: None,
            refusal: None,
            batch: Batch::new(Batch::MAX),
            buffer: vec![0; BUFFER_BYTES].into(),
            splicer: Splicer::open(),
            frames: Vec::with_capacity(PREFETCH_MAX),
            more: false,
            closing: false,
            not_sent: 0,
            log: LogLimiter::default(),
        })
    }

    /// Runs until a command ends it.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) -> std::io::Result<()> {
        while self.turn(commands)? {}
        Ok(())
    }

    /// Waits once, and handles what is ready; returns false after a command that ends it.
    fn turn(&mut self, commands: &Receiver<Command>) -> std::io::Result<bool> {
        let now = self.clock.now();
        self.node.handle_timeout(now);
        self.events(now);
        self.transmit(now);
        self.quic(now);
        self.exchange_control();
        self.log_failures();
        self.node.native_mut().flush(now);
        let ready = self.wait(now)?;
        self.more = false;
        // Before the control node's stream ends it may announce the end.
        if ready.commands && !self.run_commands(commands) {
            return Ok(false);
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
        Ok(true)
    }

    /// Handles the machine's events.
    fn events(&mut self, now: Instant) {
        for conn in self.output.streams.overdue(now) {
            self.stream_over(now, conn);
        }
        while let Some(event) = self.node.poll_event() {
            match event {
                DataEvent::Dial { edge, to } => {
                    if let Err(error) = self.dial(now, edge, to) {
                        tracing::debug!(%to, %error, "data channel");
                        self.node.dial_failed(now, edge, to);
                    }
                }
                DataEvent::Close(conn) => self.output.close(conn),
                DataEvent::Pause(Destination::Stream(conn)) => {
                    self.output.set_paused(conn, true);
                }
                DataEvent::Resume(Destination::Stream(conn)) => {
                    self.output.set_paused(conn, false);
                }
                DataEvent::Pause(
                    Destination::Native(channel) | Destination::NativeInit(channel),
                ) => {
                    self.node.native_mut().set_paused(channel, true);
                }
                DataEvent::Resume(
                    Destination::Native(channel) | Destination::NativeInit(channel),
                ) => {
                    self.node.native_mut().set_paused(channel, false);
                }
                // Reports, and QUIC's acknowledgements, tell a sender of datagrams.
                DataEvent::Pause(Destination::Datagram(_) | Destination::Path(_))
                | DataEvent::Resume(Destination::Datagram(_) | Destination::Path(_)) => {}
                DataEvent::ControlLost => self.lose_control("no heartbeats"),
            }
        }
    }

    /// Sends queued packets whose time has come.
    fn transmit(&mut self, now: Instant) {
        while let Some(copy) = self.node.plane().poll_transmit(now, &mut self.buffer) {
            let bytes = &self.buffer[copy.range.clone()];
            self.output.send(now, &mut self.node, &copy, bytes);
        }
        self.output.datagrams.flush();
        self.remove_ended(now);
    }

    /// Reports streams that broke while they were written to.
    fn remove_ended(&mut self, now: Instant) {
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
    fn log_failures(&mut self) {
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

    /// Sends messages to the control node.
    fn exchange_control(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        if let Err(error) = link.write(&mut self.node, &mut self.buffer) {
            self.lose_control(&error.to_string());
        }
    }

    /// Receives messages of the control node.
    fn listen(&mut self) {
        let now = self.clock.now();
        let Some(link) = &mut self.link else {
            return;
        };
        if let Err(error) = link.read(now, &mut self.node, &mut self.buffer) {
            self.lose_control(&error.to_string());
        }
    }

    /// Closes the stream; the main thread opens another.
    fn lose_control(&mut self, why: &str) {
        self.node.disconnected();
        let Some(link) = self.link.take().filter(|_| !self.closing) else {
            return;
        };
        let node = self.number.0;
        if link.answered {
            tracing::warn!(
                event = "control_lost",
                node,
                error = link.end_reason.as_deref().unwrap_or(why),
                "control node lost; forwarding continues"
            );
            self.refusal = None;
        } else if link.end_reason.is_some() && link.end_reason != self.refusal {
            // Once for each reason, not for each attempt.
            tracing::warn!(
                event = "control_refused",
                node,
                reason = link.end_reason,
                "the control node refuses this data node; forwarding continues"
            );
            self.refusal = link.end_reason;
        }
    }

    /// Forwards data of the native network.
    fn native(&mut self) {
        let now = self.clock.now();
        let mut at = 0;
        for _ in 0..NATIVE_ROUNDS {
            match self
                .node
                .native_mut()
                .poll_upcall(now, &mut self.buffer[at..])
            {
                Some(Upcall::Data { channel, len }) => {
                    let end = at + HEADER_LEN + len;
                    self.frames.push((Meta::Native(channel), at..end));
                    at = end;
                }
                Some(Upcall::Frame {
                    channel,
                    len,
                    class,
                }) => {
                    let end = at + HEADER_LEN + len;
                    self.frames.push((Meta::Frame(channel, class), at..end));
                    at = end;
                }
                Some(Upcall::Init { channel, len }) => {
                    // The data before it goes first.
                    self.forward_native(now);
                    let init = &self.buffer[at + HEADER_LEN..at + HEADER_LEN + len];
                    // What is refused is counted.
                    let _ = self.node.plane().set_init(now, channel, init);
                    self.transmit(now);
                    at = 0;
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
        while let Some(channel) = self.node.native_mut().poll_writable() {
            self.output.native_writable(now, &mut self.node, channel);
        }
        self.remove_ended(now);
    }

    /// Forwards the native frames in the buffer.
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
            self.quic(now);
            self.output.datagrams.flush();
            self.remove_ended(now);
        }
        self.more = true;
    }

    /// Forwards the batch that was received.
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
                if let (Meta::Datagram(from), true) = (&meta, quic::is_quic(frame)) {
                    if let Some(quic) = &mut self.output.quic {
                        quic.receive(now, &mut self.node, *from, frame);
                    }
                    continue;
                }
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
            self.remove_ended(now);
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

    /// Waits for input or a timer; returns the sources of input that are ready.
    fn wait(&mut self, now: Instant) -> std::io::Result<Ready> {
        let due = [self.node.poll_timeout(), self.output.poll_timeout(now)];
        let timeout = match self.more {
            true => StdDuration::ZERO,
            false => Clock::until(now, due.into_iter().flatten().min(), LONGEST),
        };
        let accepts = self.output.streams.accepts(now);
        let mut watches = [
            Watch::readable(self.waker.as_fd()),
            Watch::readable(self.node.native().as_fd()),
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

    /// Handles commands of the main thread; returns false after `Stop`, or when it has ended.
    fn run_commands(&mut self, commands: &Receiver<Command>) -> bool {
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
                    Err(error) => {
                        tracing::error!(event = "control_stream_failed", %error, "cannot use the stream to the control node");
                    }
                },
                // The reply is lost if its receiver has gone.
                Ok(Command::Counters(reply)) => {
                    let _ = reply.send(self.snapshot());
                }
                Ok(Command::Presented(reply)) => {
                    let _ = reply.send(self.node.native().presented());
                }
                Ok(Command::Drain) => self.node.drain(now),
                Ok(Command::Closing) => self.closing = true,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let sessions = self.node.session_count() as u64;
        let network = self.node.native();
        let (native, native_gauges) = (network.counters(), network.gauges());
        let plane = self.node.plane();
        let stats = *plane.stats();
        let mut repairs = Repairs::default();
        plane.repairs().for_each(|(_, of_peer)| repairs += of_peer);
        let links = peers::links(plane);
        let drops = DataError::ALL.iter();
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        Snapshot {
            node: self.number.0,
            sessions,
            edges: plane.edge_count() as u64,
            streams: self.output.stream_count() as u64,
            connected: self.link.is_some(),
            plane: [
                ("packets", stats.packets),
                ("bytes", stats.bytes),
                ("copies", stats.copies),
                ("copied_bytes", stats.copied_bytes),
                ("queued", stats.queued),
                ("reports", stats.reports),
                ("pauses", stats.pauses),
                ("frames_timed", stats.ages.buckets.iter().sum()),
            ]
            .map(named)
            .into(),
            drops: drops
                .map(|reason| (reason.name().to_owned(), stats.drops.get(*reason)))
                .collect(),
            repair_bytes: plane.repair_bytes() as u64,
            repairs: [
                ("lost", repairs.lost()),
                ("repaired", repairs.repaired),
                ("restored", repairs.restored),
                ("late", repairs.late),
                ("asked", repairs.asked),
                ("answered", repairs.answered),
                ("parity", repairs.parity),
            ]
            .map(named)
            .into(),
            sockets: self.output.counters().map(named).into(),
            native: native.into_iter().map(named).collect(),
            native_gauges: native_gauges.into_iter().map(named).collect(),
            ages: stats.ages,
            links,
        }
    }
}

/// The sources that are ready to be read.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    commands: bool,
    network: bool,
    datagrams: bool,
    streams: bool,
    callers: bool,
    control: bool,
}
