//! The state that nodes act on: the clock, the queue, the links and the packets in flight.

use proto_core::time::Instant;

use crate::link::{Cold, Hot, LinkStats, Mode};
use crate::node::Port;
use crate::packet::{PacketId, Store};
use crate::queue::{Event, Kind, Queue};
use crate::script::{Disposition, Script};
use crate::sim::SimStats;
use crate::trace::{Direction, Record, Traces};

pub(crate) struct Core {
    pub(crate) now_ns: u64,
    pub(crate) queue: Queue,
    pub(crate) hot: Vec<Hot>,
    pub(crate) cold: Vec<Cold>,
    origins: Vec<Origin>,
    pub(crate) store: Store,
    /// Index of each node's first outgoing direction, once settled.
    pub(crate) ports: Vec<Ports>,
    /// Index in `hot`, `cold` and `origins` of each direction (`link * 2 + way`).
    places: Vec<u32>,
    /// Whether no link was added since [`Core::settle`].
    pub(crate) settled: bool,
    pub(crate) traces: Traces,
    /// Decides which packets are lost, before the links do.
    pub(crate) script: Option<Script>,
    pub(crate) stats: SimStats,
    pub(crate) stop: bool,
}

/// The ports of one node.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ports {
    first: u32,
    pub(crate) count: u16,
}

/// Start of a direction, for traces and scripts.
#[derive(Clone, Copy)]
struct Origin {
    /// `link * 2 + way`.
    direction: u32,
    from: u32,
    from_port: u16,
}

impl Core {
    pub(crate) fn new() -> Self {
        Self {
            now_ns: 0,
            queue: Queue::new(),
            hot: Vec::new(),
            cold: Vec::new(),
            origins: Vec::new(),
            store: Store::default(),
            ports: Vec::new(),
            places: Vec::new(),
            settled: true,
            traces: Traces::default(),
            script: None,
            stats: SimStats::default(),
            stop: false,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_micros(i64::try_from(self.now_ns / 1000).unwrap_or(i64::MAX))
    }

    /// Puts a packet on the link of a port. Its reference goes to the event, or is released.
    #[inline]
    pub(crate) fn transmit(&mut self, node: u32, port: Port, packet: PacketId, bytes: &[u8]) {
        let Ports { first, count } = self.ports[node as usize];
        if port.0 >= count {
            self.stats.no_such_port += 1;
            self.store.release(packet);
            return;
        }
        let place = first as usize + usize::from(port.0);
        if !self.traces.is_empty() {
            self.trace(Direction::Sent, place, bytes);
        }
        let fate = self.fate(place, bytes);
        let hot = &mut self.hot[place];
        let len_bytes = self.store.len_bytes(packet);
        hot.sent += 1;
        hot.sent_bytes += u64::from(len_bytes);
        if hot.mode != Mode::Plain {
            self.transmit_slowly(place, packet, len_bytes, fate);
        } else if hot.loses(&mut self.cold, place, fate) {
            self.store.release(packet);
        } else {
            self.queue.push(Event {
                time_ns: hot.arrival_ns(self.now_ns),
                target: hot.to,
                packet,
                place: place as u32,
                port: hot.port,
                kind: Kind::Deliver,
            });
        }
    }

    fn transmit_slowly(
        &mut self,
        place: usize,
        packet: PacketId,
        len_bytes: u32,
        fate: Disposition,
    ) {
        let (hot, cold) = (&mut self.hot[place], &mut self.cold[place]);
        if hot.mode == Mode::Down {
            cold.link_down += 1;
            self.store.release(packet);
            return;
        }
        let Some(arrival) = cold.accept(hot, self.now_ns, len_bytes, fate) else {
            self.store.release(packet);
            return;
        };
        let event = Event {
            time_ns: arrival.time_ns,
            target: hot.to,
            packet,
            place: place as u32,
            port: hot.port,
            kind: if arrival.corrupt {
                Kind::DeliverCorrupt
            } else {
                Kind::Deliver
            },
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

    /// Replaces `packet` by a copy with one bit flipped; an empty packet stays as it is.
    pub(crate) fn corrupt(&mut self, place: usize, packet: PacketId) -> PacketId {
        let bits = u64::from(self.store.len_bytes(packet)) * 8;
        if bits == 0 {
            return packet;
        }
        let bit = self.cold[place].rng.below(bits);
        let mut bytes = self.store.bytes(packet).to_vec();
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        self.store.release(packet);
        self.store.insert(&bytes)
    }

    pub(crate) fn set_up(&mut self, direction: u32, up: bool) {
        let place = self.place(direction);
        let (hot, cold) = (&mut self.hot[place], &mut self.cold[place]);
        if hot.mode != Mode::Down && !up {
            cold.clear(self.now_ns);
            self.queue.lose(place as u32);
        }
        hot.mode = if up { cold.mode() } else { Mode::Down };
    }

    pub(crate) fn link_stats(&self, direction: u32) -> LinkStats {
        let place = self.place(direction);
        self.cold[place].stats(&self.hot[place])
    }

    pub(crate) fn trace(&mut self, which: Direction, place: usize, bytes: &[u8]) {
        let record = self.record(which, place, bytes);
        self.traces.record(&record);
    }

    fn record<'b>(&self, which: Direction, place: usize, bytes: &'b [u8]) -> Record<'b> {
        let (hot, origin) = (&self.hot[place], &self.origins[place]);
        Record {
            time_ns: self.now_ns,
            which,
            link: origin.direction / 2,
            from: origin.from,
            from_port: origin.from_port,
            to: hot.to,
            to_port: hot.port,
            bytes,
        }
    }

    #[inline]
    fn fate(&mut self, place: usize, bytes: &[u8]) -> Disposition {
        if self.script.is_none() {
            return Disposition::Chance;
        }
        let record = self.record(Direction::Sent, place, bytes);
        let script = self.script.as_mut();
        script.map_or(Disposition::Chance, |script| script(&record))
    }

    /// Reads the first of a node's outgoing directions.
    #[inline]
    pub(crate) fn first_sent(&self, node: u32) -> u64 {
        match self.ports.get(node as usize) {
            Some(ports) if ports.count > 1 => self.hot[ports.first as usize].sent,
            _ => 0,
        }
    }

    /// Reserves memory for this many directions.
    pub(crate) fn reserve_directions(&mut self, directions: usize) {
        self.hot.reserve_exact(directions);
        self.cold.reserve_exact(directions);
        self.origins.reserve_exact(directions);
        self.places.reserve_exact(directions);
    }

    /// Adds the direction with the next number.
    pub(crate) fn add_direction(&mut self, from: u32, hot: Hot, cold: Cold) {
        let count = &mut self.ports[from as usize].count;
        self.origins.push(Origin {
            direction: self.places.len() as u32,
            from,
            from_port: *count,
        });
        *count = count
            .checked_add(1)
            .expect("fewer than 2^16 ports on a node");
        self.places.push(self.hot.len() as u32);
        self.hot.push(hot);
        self.cold.push(cold);
        self.settled = false;
    }

    /// Returns the index of the state of a direction.
    pub(crate) fn place(&self, direction: u32) -> usize {
        self.places[direction as usize] as usize
    }

    /// Sorts the directions by node and port, so that those of a node are adjacent.
    #[cold]
    pub(crate) fn settle(&mut self) {
        let mut first = 0;
        for ports in &mut self.ports {
            ports.first = first;
            first += u32::from(ports.count);
        }
        let new_place =
            |origin: &Origin| self.ports[origin.from as usize].first + u32::from(origin.from_port);
        let moved: Vec<u32> = self.origins.iter().map(new_place).collect();
        for place in &mut self.places {
            *place = moved[*place as usize];
        }
        self.queue.move_places(&moved);
        let mut hot = self.hot.clone();
        for (hot_now, place) in self.hot.iter().zip(&moved) {
            hot[*place as usize] = *hot_now;
        }
        self.hot = hot;
        let cold = std::mem::take(&mut self.cold);
        let mut numbered: Vec<(u32, Cold)> = moved.into_iter().zip(cold).collect();
        numbered.sort_unstable_by_key(|(place, _)| *place);
        self.cold = numbered.into_iter().map(|(_, cold)| cold).collect();
        self.origins
            .sort_unstable_by_key(|origin| (origin.from, origin.from_port));
        self.settled = true;
    }
}
