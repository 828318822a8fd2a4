//! What nodes act upon: the clock, the queue, the links and the packets in flight.

use smoltcp::time::Instant;

use crate::link::{Cold, Hot, LinkStats};
use crate::packet::{PacketId, Store};
use crate::queue::{Event, Kind, Queue};
use crate::sim::SimStats;
use crate::trace::{Record, Traces, Which};

pub(crate) struct Core {
    pub(crate) now_ns: u64,
    pub(crate) queue: Queue,
    pub(crate) hot: Vec<Hot>,
    pub(crate) cold: Vec<Cold>,
    pub(crate) store: Store,
    /// For each node the outgoing direction of each of its ports.
    pub(crate) ports: Vec<Vec<u32>>,
    pub(crate) traces: Traces,
    pub(crate) stats: SimStats,
    pub(crate) stop: bool,
}

/// A packet handed to a link: one reference, and the bytes for who traces them.
pub(crate) struct Sending<'a> {
    pub(crate) packet: PacketId,
    pub(crate) bytes: &'a [u8],
}

impl Core {
    pub(crate) fn new() -> Self {
        Self {
            now_ns: 0,
            queue: Queue::new(),
            hot: Vec::new(),
            cold: Vec::new(),
            store: Store::default(),
            ports: Vec::new(),
            traces: Traces::default(),
            stats: SimStats::default(),
            stop: false,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_micros(i64::try_from(self.now_ns / 1000).unwrap_or(i64::MAX))
    }

    /// Puts a packet on a link; its reference goes to the event, or back.
    #[inline]
    pub(crate) fn transmit(&mut self, dir: u32, sending: Sending<'_>) {
        if !self.traces.is_empty() {
            self.trace(Which::Sent, dir, sending.bytes);
        }
        let hot = &mut self.hot[dir as usize];
        let len_bytes = self.store.len_bytes(sending.packet);
        hot.sent += 1;
        hot.sent_bytes += u64::from(len_bytes);
        if hot.up && hot.plain {
            if hot.loses(&mut self.cold, dir) {
                self.store.release(sending.packet);
                return;
            }
            self.queue.push(Event {
                time_ns: self.now_ns + hot.delay_ns,
                target: dir,
                packet: sending.packet,
                kind: Kind::Deliver,
                epoch: hot.epoch,
            });
        } else {
            self.transmit_slowly(dir, sending.packet, len_bytes);
        }
    }

    fn transmit_slowly(&mut self, dir: u32, packet: PacketId, len_bytes: u32) {
        let (hot, cold) = (&mut self.hot[dir as usize], &mut self.cold[dir as usize]);
        if !hot.up {
            cold.link_down += 1;
            self.store.release(packet);
            return;
        }
        let Some(arrival) = cold.accept(hot, self.now_ns, len_bytes) else {
            self.store.release(packet);
            return;
        };
        let kind = if arrival.corrupt {
            Kind::DeliverCorrupt
        } else {
            Kind::Deliver
        };
        let epoch = hot.epoch;
        let event = Event {
            time_ns: arrival.time_ns,
            target: dir,
            packet,
            kind,
            epoch,
        };
        self.queue.push(event);
        if let Some(time_ns) = arrival.again_ns {
            self.store.retain(packet);
            self.queue.push(Event {
                time_ns,
                kind: Kind::Deliver,
                ..event
            });
        }
    }

    /// A copy of `packet` with one bit flipped takes its place; an empty packet stays as it is.
    pub(crate) fn corrupt(&mut self, dir: u32, packet: PacketId) -> PacketId {
        let bits = u64::from(self.store.len_bytes(packet)) * 8;
        if bits == 0 {
            return packet;
        }
        let bit = self.cold[dir as usize].rng.below(bits);
        let mut bytes = self.store.bytes(packet).to_vec();
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        self.store.release(packet);
        self.store.insert(&bytes)
    }

    pub(crate) fn set_up(&mut self, dir: u32, up: bool) {
        let (hot, cold) = (&mut self.hot[dir as usize], &mut self.cold[dir as usize]);
        if hot.up && !up {
            hot.epoch = hot.epoch.wrapping_add(1);
            cold.clear(self.now_ns);
        }
        hot.up = up;
    }

    pub(crate) fn link_stats(&self, dir: u32) -> LinkStats {
        let hot = &self.hot[dir as usize];
        LinkStats {
            sent: hot.sent,
            sent_bytes: hot.sent_bytes,
            delivered: hot.delivered,
            ..self.cold[dir as usize].stats()
        }
    }

    pub(crate) fn trace(&mut self, which: Which, dir: u32, bytes: &[u8]) {
        let (hot, cold) = (&self.hot[dir as usize], &self.cold[dir as usize]);
        self.traces.record(&Record {
            time_ns: self.now_ns,
            which,
            link: dir / 2,
            from: cold.from,
            from_port: cold.from_port,
            to: hot.to,
            to_port: hot.port,
            bytes,
        });
    }
}
