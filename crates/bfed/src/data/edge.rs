//! Edges: one way in or out of a flow.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use proto_core::time::{Duration, Instant};

use super::link::Links;
use super::table::Key;
use super::tfrc::{Receiver, Sender};
use super::{Destination, HEADER_LEN, PlaneConfig};
use crate::native::ChannelId;
use crate::types::{ConnId, Content, FlowLabel};
use crate::wire::data::{Kind, Repr};
use crate::wire::fragment::Repr as Fragment;

use core::net::SocketAddr;

/// How an edge is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// UDP, to and from that address.
    Datagram(SocketAddr),
    /// TCP with that address; there is no stream until one is opened.
    Stream(SocketAddr),
    /// The native network.
    Native(ChannelId),
}

/// A frame, or a fragment of one.
#[derive(Debug)]
pub(super) struct Waiting {
    came: Instant,
    pub(super) kind: Kind,
    pub(super) bytes: Arc<[u8]>,
}

impl Waiting {
    /// The number of the frame that it is a fragment of.
    fn frame(&self) -> Option<u32> {
        let repr = Fragment::parse(&self.bytes).ok();
        repr.filter(|_| self.kind == Kind::Fragment)
            .map(|repr| repr.frame)
    }
}

/// Frames that wait.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Waiting>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, came: Instant, kind: Kind, bytes: Arc<[u8]>) {
        self.bytes += bytes.len();
        self.frames.push_back(Waiting { came, kind, bytes });
    }

    fn pop(&mut self) -> Option<Waiting> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.bytes.len();
        Some(frame)
    }

    /// Drops the oldest frame, with all its fragments; how many packets.
    fn drop_oldest(&mut self) -> u64 {
        let Some(number) = self.pop().map(|first| first.frame()) else {
            return 0;
        };
        let mut dropped = 1;
        while number.is_some()
            && self
                .frames
                .front()
                .is_some_and(|next| next.frame() == number)
        {
            self.pop();
            dropped += 1;
        }
        dropped
    }
}

/// One way in or out: what each packet that goes out looks at, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Edge {
    /// Where packets go; none while its TCP channel is not open.
    pub(super) to: Option<Destination>,
    pub(super) sender: Option<Box<Sender>>,
    pub(super) rest: Box<Rest>,
    /// What is put before packets that go out; none if none do.
    pub(super) label_out: Option<FlowLabel>,
    pub(super) flow: u32,
    /// The place of its link.
    pub(super) link: u32,
    /// It leads to the owner.
    pub(super) up: bool,
    pub(super) blocked: bool,
    /// Nothing is sent yet: its address has not shown that it receives what is sent there.
    pub(super) unproved: bool,
    /// Frames wait for it.
    waits: bool,
}

const _: () = assert!(size_of::<Option<Edge>>() == 64);

/// What is looked at only where something waits, comes in, or changes.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) generation: u32,
    /// What packets bear that come in; none if none do.
    pub(super) label_in: Option<FlowLabel>,
    pub(super) receiver: Option<Box<Receiver>>,
    queue: Queue,
    /// The first flow of its session, by which sessions share a link.
    pub(super) session: u32,
    /// It waits for its link.
    pub(super) in_line: bool,
    /// TCP channels that failed, or ended soon, in a row; and when the last one was there.
    pub(super) fails: u8,
    pub(super) dialled_at: Option<Instant>,
    /// Where the other end of its TCP channel is, if it has one.
    pub(super) remote: Option<SocketAddr>,
    /// Full, and nothing was taken since.
    pub(super) full_since: Option<Instant>,
    /// When the plane's timer for it runs out.
    pub(super) due: Option<Instant>,
}

impl Edge {
    pub(super) fn new(flow: u32, up: bool, carrier: Carrier) -> Self {
        let (to, remote) = match carrier {
            Carrier::Datagram(to) => (Some(Destination::Datagram(to)), None),
            Carrier::Stream(remote) => (None, Some(remote)),
            Carrier::Native(channel) => (Some(Destination::Native(channel)), None),
        };
        Edge {
            to,
            sender: None,
            rest: Box::new(Rest {
                remote,
                ..Rest::default()
            }),
            label_out: None,
            flow,
            link: 0,
            up,
            blocked: false,
            unproved: false,
            waits: false,
        }
    }

    /// The TCP channel that it has.
    pub(super) fn stream(&self) -> Option<ConnId> {
        match self.to {
            Some(Destination::Stream(conn)) => Some(conn),
            _ => None,
        }
    }

    /// The data node at its other end: where it hears datagrams, which is where its TCP channels are too.
    pub(super) fn neighbour(&self) -> Option<SocketAddr> {
        match self.to {
            Some(Destination::Datagram(to)) => Some(to),
            _ => self.rest.remote,
        }
    }

    /// What leads packets to it.
    pub(super) fn key(&self) -> Option<Key> {
        match self.to? {
            Destination::Datagram(from) => Some(Key::datagram(from, self.rest.label_in?)),
            Destination::Stream(conn) => Some(Key::stream(conn, self.rest.label_in?)),
            Destination::Native(channel) => Some(Key::native(channel)),
        }
    }

    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether rates allow a packet with so much payload; if so it is counted.
    #[inline]
    pub(super) fn allowed(&mut self, now: Instant, links: &mut Links, payload_len: usize) -> bool {
        let len = HEADER_LEN + payload_len;
        if self.unproved || links.next_send(self.link).is_some_and(|at| at > now) {
            return false;
        }
        let allowed = self
            .sender
            .as_mut()
            .is_none_or(|sender| sender.send(now, len));
        if allowed {
            links.sent(now, self.link, len);
        }
        allowed
    }

    /// Writes the header of its next packet over the front of `frame`; where what is to be sent
    /// begins. There is none on native edges.
    #[inline]
    pub(super) fn stamp(
        &mut self,
        now: Instant,
        kind: Kind,
        payload_len: usize,
        frame: &mut [u8],
    ) -> usize {
        let Some(label) = self.label_out else {
            return HEADER_LEN;
        };
        let (mut sequence, mut timestamp_us, mut rtt_us) = (0, 0, 0);
        if let Some(sender) = &mut self.sender {
            sequence = sender.next_sequence();
            timestamp_us = now.total_micros() as u32;
            rtt_us = sender.rtt_us();
        }
        let header = Repr {
            kind,
            label,
            sequence,
            timestamp_us,
            rtt_us,
            payload_len,
        };
        header.emit(frame);
        0
    }

    /// Queues a frame; how many older ones had to go.
    pub(super) fn push(
        &mut self,
        now: Instant,
        (kind, frame): (Kind, Arc<[u8]>),
        content: Content,
        config: &PlaneConfig,
    ) -> u64 {
        let mut dropped = 0;
        // Bulk sources are paused long before; what still comes finds room, or the frame that waited
        // longest has to go.
        while self.rest.queue.bytes + frame.len() > config.max_queue_bytes
            && !self.rest.queue.frames.is_empty()
        {
            dropped += self.rest.queue.drop_oldest();
        }
        self.rest.queue.push(now, kind, frame);
        self.waits = true;
        if content == Content::Bulk && self.is_full(config) {
            self.rest.full_since.get_or_insert(now);
        }
        dropped
    }

    /// Drops frames that came before `since`; how many.
    pub(super) fn drop_older(&mut self, since: Instant) -> u64 {
        let mut dropped = 0;
        let queue = &mut self.rest.queue;
        while queue.frames.front().is_some_and(|frame| frame.came < since) {
            queue.pop();
            dropped += 1;
        }
        self.waits = !queue.frames.is_empty();
        dropped
    }

    /// Something may be sent on it, as far as the edge itself is concerned.
    pub(super) fn is_open(&self) -> bool {
        self.waits && !self.blocked && !self.unproved && self.to.is_some()
    }

    /// The frame that waited longest.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let frame = self.rest.queue.pop();
        self.waits = !self.rest.queue.frames.is_empty();
        frame
    }

    /// Length of that frame in bytes.
    pub(super) fn front_len(&self) -> Option<usize> {
        self.rest
            .queue
            .frames
            .front()
            .map(|frame| frame.bytes.len())
    }

    /// Forgets what waits; how many frames.
    pub(super) fn clear(&mut self) -> u64 {
        self.waits = false;
        core::mem::take(&mut self.rest.queue).frames.len() as u64
    }

    /// From here on the source of a bulk session is paused.
    pub(super) fn is_full(&self, config: &PlaneConfig) -> bool {
        self.rest.queue.bytes > config.max_queue_bytes / 2
    }

    /// It holds up its session for too long.
    pub(super) fn stalls_at(&self, timeout: Duration) -> Option<Instant> {
        self.rest.full_since.map(|since| since + timeout)
    }
}
