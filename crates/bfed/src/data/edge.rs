//! Edges: one way in or out of a flow.

use alloc::boxed::Box;

use proto_core::time::{Duration, Instant};

use super::init::Exchange;
use super::link::Links;
use super::queue::{Lost, Queue, Timing, Waiting};
use super::repair::{Gaps, Store};
use super::table::Key;
use super::tfrc::{Receiver, Sender};
use super::{Destination, HEADER_LEN, PathId, PlaneConfig};
use crate::native::ChannelId;
use crate::types::{ConnId, Content, FlowLabel};
use crate::wire::class::Class;
use crate::wire::data::{Kind, Repr};

use core::net::SocketAddr;

/// Transport of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// UDP with the address.
    Datagram(SocketAddr),
    /// TCP with the address; the channel is opened later.
    Stream(SocketAddr),
    /// QUIC datagrams to the address.
    PathDatagram(SocketAddr, PathId),
    /// A QUIC stream to the address, which is opened later.
    PathStream(SocketAddr, PathId),
    /// The native network.
    Native(ChannelId),
}

/// One way in or out of a flow. It fits in one cache line, with all data needed for each packet sent.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Edge {
    /// Where packets are sent; `None` while its TCP channel is not open.
    pub(super) to: Option<Destination>,
    pub(super) sender: Option<Box<Sender>>,
    pub(super) rest: Box<Rest>,
    /// Label of packets sent; `None` if none are.
    pub(super) label_out: Option<FlowLabel>,
    pub(super) flow: u32,
    /// Index of its link.
    pub(super) link: u32,
    /// It leads towards the owner.
    pub(super) up: bool,
    pub(super) blocked: bool,
    /// Nothing may be sent: the address is not proved.
    pub(super) unproved: bool,
    /// Frames are queued.
    waits: bool,
}

const _: () = assert!(size_of::<Option<Edge>>() == 64);

/// State for queued, incoming and control packets.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) generation: u32,
    /// Label of packets received; `None` if none are.
    pub(super) label_in: Option<FlowLabel>,
    pub(super) receiver: Option<Box<Receiver>>,
    queue: Queue,
    /// The first flow of its session: the key by which sessions share a link.
    pub(super) session: u32,
    /// It is queued for its turn on the link.
    pub(super) is_waiting_for_turn: bool,
    /// TCP channels in a row that failed or ended soon, and when the last one was opened.
    pub(super) fails: u8,
    pub(super) dialled_at: Option<Instant>,
    /// Address of the other end of its TCP channel or QUIC path.
    pub(super) remote: Option<SocketAddr>,
    /// Its QUIC path.
    pub(super) path: Option<PathId>,
    /// Since when the edge has been full without progress.
    pub(super) full_since: Option<Instant>,
    /// Its TCP channel or QUIC stream has not been opened for the first time: data waits for it. Once it was open, or has
    /// been waited for in vain, data for a channel that is not there is dropped.
    pub(super) awaits_stream: bool,
    /// Its part in the distribution of the flow's initialisation.
    pub(super) init: Exchange,
    /// Downstream: what may be sent again.
    pub(super) store: Option<Box<Store>>,
    /// Upstream: what has not arrived.
    pub(super) gaps: Option<Box<Gaps>>,
    /// When the plane's timer for it expires.
    pub(super) due: Option<Instant>,
}

impl Edge {
    pub(super) fn new(flow: u32, up: bool, carrier: Carrier) -> Self {
        let (to, remote, path) = match carrier {
            Carrier::Datagram(to) => (Some(Destination::Datagram(to)), None, None),
            Carrier::Stream(remote) => (None, Some(remote), None),
            Carrier::PathDatagram(remote, path) => {
                (Some(Destination::Path(path)), Some(remote), Some(path))
            }
            Carrier::PathStream(remote, path) => (None, Some(remote), Some(path)),
            Carrier::Native(channel) => (Some(Destination::Native(channel)), None, None),
        };
        Edge {
            to,
            sender: None,
            rest: Box::new(Rest {
                remote,
                path,
                awaits_stream: matches!(carrier, Carrier::Stream(_) | Carrier::PathStream(..)),
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

    /// Returns whether its packets travel on a TCP channel or a QUIC stream.
    pub(super) fn wants_stream(&self) -> bool {
        self.rest.remote.is_some() && !matches!(self.to, Some(Destination::Path(_)))
    }

    /// Returns its TCP channel or QUIC stream.
    pub(super) fn stream(&self) -> Option<ConnId> {
        match self.to {
            Some(Destination::Stream(conn)) => Some(conn),
            _ => None,
        }
    }

    /// Returns the address of the data node at its other end, the same for datagrams and TCP channels.
    pub(super) fn neighbour(&self) -> Option<SocketAddr> {
        match self.to {
            Some(Destination::Datagram(to)) => Some(to),
            _ => self.rest.remote,
        }
    }

    /// Returns the key of packets that arrive on it.
    pub(super) fn key(&self) -> Option<Key> {
        match self.to? {
            Destination::Datagram(from) => Some(Key::datagram(from, self.rest.label_in?)),
            Destination::Stream(conn) => Some(Key::stream(conn, self.rest.label_in?)),
            Destination::Path(path) => Some(Key::path(path, self.rest.label_in?)),
            Destination::Native(channel) | Destination::NativeInit(channel) => {
                Some(Key::native(channel))
            }
        }
    }

    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Returns whether the rates allow a packet with a payload of this length; if so, counts it.
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

    /// Returns whether packets of this kind have classes on this edge.
    fn has_classes(&self, kind: Kind) -> bool {
        let is_datagrams = matches!(
            self.to,
            Some(Destination::Datagram(_) | Destination::Path(_))
        );
        let is_data = matches!(kind, Kind::Data | Kind::Fragment | Kind::Parity);
        is_datagrams && is_data && self.rest.init.is_wanted()
    }

    /// Writes the header of the next packet to the front of `frame`. Returns where the packet begins: native edges
    /// have no header.
    #[inline]
    pub(super) fn stamp(
        &mut self,
        now: Instant,
        (kind, number): (Kind, Option<u32>),
        (timing, transit): (Timing, Duration),
        frame: &mut [u8],
        payload_len: usize,
    ) -> usize {
        let Some(label) = self.label_out else {
            return HEADER_LEN;
        };
        let (mut sequence, mut timestamp_us, mut rtt_us) = (0, 0, 0);
        if let Some(sender) = &mut self.sender {
            sequence = number.unwrap_or_else(|| sender.next_sequence());
            timestamp_us = now.total_micros() as u32;
            rtt_us = sender.rtt_us();
        }
        let (mut class, mut age_ms) = (Class::NONE, 0);
        if timing.class.is_some() && self.has_classes(kind) {
            (class, age_ms) = (timing.class, timing.age_ms(now, transit));
            if let Some(store) = &mut self.rest.store {
                match (number, &self.sender) {
                    (Some(number), _) => sequence = number,
                    (None, Some(_)) => store.set_sequence(sequence),
                    (None, None) => sequence = store.next_sequence(),
                }
            }
        }
        let header = Repr {
            kind,
            label,
            sequence,
            timestamp_us,
            rtt_us,
            payload_len,
            class,
            age_ms,
            is_again: number.is_some() && kind != Kind::Parity,
        };
        header.emit(frame);
        0
    }

    /// Queues a packet. Returns the number of packets that were dropped for it.
    pub(super) fn push(
        &mut self,
        now: Instant,
        packet: Waiting,
        content: Content,
        config: &PlaneConfig,
    ) -> u64 {
        // Bulk sources are paused long before; what still arrives replaces the oldest frames.
        let dropped = self.rest.queue.push(packet, config.max_queue_bytes);
        self.waits = !self.rest.queue.is_empty();
        if content == Content::Bulk && self.is_full(config) {
            self.rest.full_since.get_or_insert(now);
        }
        dropped
    }

    /// Drops packets that would arrive too late if they left now, or that give way.
    pub(super) fn drop_late(&mut self, now: Instant, transit: Duration) -> Lost {
        let lost = self.rest.queue.drop_late(now, transit);
        self.waits = !self.rest.queue.is_empty();
        lost
    }

    /// Returns whether the edge itself lets its queue be sent.
    pub(super) fn is_open(&self) -> bool {
        self.waits && !self.blocked && !self.unproved && self.to.is_some()
    }

    /// Removes the oldest frame.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let frame = self.rest.queue.pop();
        self.waits = !self.rest.queue.is_empty();
        frame
    }

    /// Lets the initialisation leave before what waits.
    pub(super) fn put_init_first(&mut self) {
        self.rest.queue.put_init_first();
    }

    /// Returns whether a part of an initialisation is queued.
    pub(super) fn has_init(&self) -> bool {
        self.rest.queue.has_init()
    }

    /// Returns the length of the oldest frame in bytes.
    pub(super) fn front_len(&self) -> Option<usize> {
        self.rest
            .queue
            .front()
            .map(|frame| frame.payload.bytes.len())
    }

    /// Clears the queue. Returns the number of frames.
    pub(super) fn clear(&mut self) -> u64 {
        self.waits = false;
        core::mem::take(&mut self.rest.queue).len() as u64
    }

    /// Returns whether the queue is long enough to pause the source of a bulk session.
    pub(super) fn is_full(&self, config: &PlaneConfig) -> bool {
        self.rest.queue.bytes() > config.max_queue_bytes / 2
    }

    /// Returns when the edge counts as stalled.
    pub(super) fn stalls_at(&self, timeout: Duration) -> Option<Instant> {
        self.rest.full_since.map(|since| since + timeout)
    }
}

#[cfg(test)]
mod tests;
