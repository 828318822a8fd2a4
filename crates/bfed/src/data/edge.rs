//! Edges: one way in or out of a flow.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use smoltcp::time::{Duration, Instant};

use super::tfrc::{Receiver, Sender};
use super::{Destination, PlaneConfig};
use crate::native::ChannelId;
use crate::types::{ConnId, Content, FlowLabel, PeerId};

use core::net::SocketAddr;

/// How an edge is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// UDP, to and from that address.
    Datagram(SocketAddr),
    /// TCP with that address; no stream until it is opened.
    Stream(SocketAddr, Option<ConnId>),
    /// The native network.
    Native(ChannelId),
}

/// Frames that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    frames: VecDeque<Arc<[u8]>>,
    pub(super) bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, frame: Arc<[u8]>) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    pub(super) fn pop(&mut self) -> Option<Arc<[u8]>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    pub(super) fn front_len(&self) -> Option<usize> {
        self.frames.front().map(|frame| frame.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }
}

/// One way in or out.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) flow: u32,
    /// It leads to the owner.
    pub(super) up: bool,
    pub(super) carrier: Carrier,
    /// The peer whose link it goes over, if its rate is bounded.
    pub(super) link: Option<PeerId>,
    /// What is put before packets that go out; none if none do.
    pub(super) label_out: Option<FlowLabel>,
    /// What packets bear that come in; none if none do.
    pub(super) label_in: Option<FlowLabel>,
    pub(super) sequence: u32,
    pub(super) sender: Option<Box<Sender>>,
    pub(super) receiver: Option<Box<Receiver>>,
    pub(super) queue: Queue,
    pub(super) blocked: bool,
    /// Full, and nothing was taken since.
    pub(super) full_since: Option<Instant>,
    /// When the plane's timer for it runs out.
    pub(super) due: Option<Instant>,
}

impl Edge {
    pub(super) fn new(flow: u32, up: bool, carrier: Carrier) -> Self {
        Edge {
            flow,
            up,
            carrier,
            link: None,
            label_out: None,
            label_in: None,
            sequence: 0,
            sender: None,
            receiver: None,
            queue: Queue::default(),
            blocked: false,
            full_since: None,
            due: None,
        }
    }

    pub(super) fn destination(&self) -> Option<Destination> {
        match self.carrier {
            Carrier::Datagram(to) => Some(Destination::Datagram(to)),
            Carrier::Stream(_, conn) => conn.map(Destination::Stream),
            Carrier::Native(channel) => Some(Destination::Native(channel)),
        }
    }

    /// Queues a frame; how many older ones had to go.
    pub(super) fn push(
        &mut self,
        now: Instant,
        frame: Arc<[u8]>,
        content: Content,
        config: &PlaneConfig,
    ) -> u64 {
        let mut dropped = 0;
        while self.queue.bytes + frame.len() > config.max_queue_bytes && !self.queue.is_empty() {
            // Bulk sources are paused long before; what still comes finds room, or the frame
            // that waited longest has to go.
            self.queue.pop();
            dropped += 1;
        }
        self.queue.push(frame);
        if content == Content::Bulk && self.is_full(config) {
            self.full_since.get_or_insert(now);
        }
        dropped
    }

    /// From here on the source of a bulk session is paused.
    pub(super) fn is_full(&self, config: &PlaneConfig) -> bool {
        self.queue.bytes > config.max_queue_bytes / 2
    }

    /// It holds up its session for too long.
    pub(super) fn stalls_at(&self, timeout: Duration) -> Option<Instant> {
        self.full_since.map(|since| since + timeout)
    }
}
