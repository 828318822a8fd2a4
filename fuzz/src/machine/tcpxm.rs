//! A TCP-XM sender with a group of two receivers, and a connection of its own to a third host, on a
//! wire that a forger shares.
//!
//! Asserted: with a key every byte that a receiver reads is the sender's, at its place; a segment of
//! nobody's connection draws one short segment at most, and to its sender alone; what an endpoint
//! holds stays within its documented bound, and so does the number of its connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tcpxm::store::{NullStore, Ring};
use tcpxm::wire::{Feedback, Flags, GroupOption, Options, Segment, SegmentKey};
use tcpxm::{
    Carrier, Config, ConnId, Endpoint, Event, GroupChoice, GroupConfig, GroupId, GroupMode,
    Instant, Meta, Received, SegmentBatch, Seq,
};

use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const PORT: u16 = 7000;
const HOSTS: usize = 3;
const WIRE: usize = 128;
const LENGTH: u64 = 20_000;
const BUFFER: usize = 4096;
const CONNECTIONS: usize = 6;
/// A connection takes 5 KiB beside its two buffers, which double as they grow; an endpoint with its
/// listener, tables and queues 24 KiB.
const BOUND: usize = CONNECTIONS * (5 * 1024 + 2 * 2 * BUFFER) + 24 * 1024;

fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8).into()
}

fn group() -> IpAddr {
    Ipv4Addr::new(239, 192, 3, 4).into()
}

struct Host {
    endpoint: Endpoint<Ring>,
    meter: Meter,
    joined: BTreeSet<IpAddr>,
    /// Connections and how much was read from each.
    read: BTreeMap<ConnId, u64>,
}

impl Host {
    /// Bytes of a connection that its reader has got are the sender's.
    fn check(read: &mut u64, bytes: &[u8], keyed: bool) {
        if keyed {
            for (byte, at) in bytes.iter().zip(*read..) {
                assert_eq!(*byte, NullStore::byte(at), "at {at}");
            }
        }
        *read += bytes.len() as u64;
        assert!(!keyed || *read <= LENGTH, "more than was sent");
    }
}

/// Segments of one length in a row, the last perhaps shorter.
struct Flight {
    from: SocketAddr,
    to: IpAddr,
    bytes: Vec<u8>,
    stride: usize,
}

struct Bench {
    now: Instant,
    hosts: Vec<Host>,
    group: Option<GroupId>,
    wire: VecDeque<Flight>,
    written: u64,
    keyed: bool,
    carrier: Carrier,
    /// Packets leave and arrive several at once, and readers wait for them.
    batches: bool,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let keyed = script.flag();
        let mut config = Config::default();
        config.carrier = script.of(&[Carrier::Udp, Carrier::Ip]);
        config.mtu = 576;
        config.timestamps = script.flag();
        config.sack = script.flag();
        config.window_scaling = script.flag();
        config.pacing = script.flag();
        config.receive_buffer = BUFFER;
        config.send_buffer = BUFFER;
        config.max_connections = CONNECTIONS;
        config.max_half_open = 3;
        config.accept_backlog = 2;
        config.keep_alive = script.flag().then(|| tcpxm::Duration::from_secs(5));
        let now = Instant::from_secs(1);
        let key = keyed.then_some(SegmentKey([8; 16]));
        let host = |number: usize| {
            let mut endpoint = Endpoint::new(config.clone(), [number as u8; 32], now);
            let mut meter = Meter::default();
            let listening = meter.run(|| match key {
                Some(key) => endpoint.listen_keyed(now, PORT, key),
                None => endpoint.listen(now, PORT),
            });
            listening.expect("a free port");
            Host {
                endpoint,
                meter,
                joined: BTreeSet::new(),
                read: BTreeMap::new(),
            }
        };
        let mut bench = Bench {
            now,
            hosts: (0..HOSTS).map(host).collect(),
            group: None,
            wire: VecDeque::new(),
            written: 0,
            keyed,
            carrier: config.carrier,
            batches: script.flag(),
        };
        let receivers = (1..HOSTS).map(address).collect();
        let mut group_config = GroupConfig::new(SocketAddr::new(address(0), 5000), receivers, PORT);
        group_config.group = GroupChoice::Given(group());
        group_config.mode = script.of(&[GroupMode::Auto, GroupMode::Unicast, GroupMode::Multicast]);
        group_config.key = key;
        group_config.min_rate_bps = script.flag().then_some(1_000_000);
        let sender = &mut bench.hosts[0];
        let opened = sender.meter.run(|| {
            let store = Ring::new(BUFFER);
            sender.endpoint.open_group(now, &group_config, store)
        });
        bench.group = opened.ok();
        bench
    }

    fn post(&mut self, flight: Flight) {
        if self.wire.len() < WIRE {
            self.wire.push_back(flight);
        }
    }

    /// The next packets, put together.
    fn poll(&mut self, number: usize) -> Option<(SegmentBatch, Vec<u8>)> {
        let (now, host) = (self.now, &mut self.hosts[number]);
        let mut buffer = [0; 4000];
        let batch = if self.batches {
            host.meter
                .run(|| host.endpoint.poll_transmit_batch(now, &mut buffer, 5))?
        } else {
            let transmit = host
                .meter
                .run(|| host.endpoint.poll_transmit(now, &mut buffer))?;
            transmit.into()
        };
        Some((batch, buffer[..batch.len].to_vec()))
    }

    fn drain(&mut self, number: usize) -> Vec<(IpAddr, usize)> {
        let mut sent = Vec::new();
        loop {
            self.application(number);
            let Some((batch, bytes)) = self.poll(number) else {
                break;
            };
            let (to, stride) = (batch.destination.ip(), batch.segment_size);
            assert!(stride <= 576);
            let mut from = SocketAddr::new(address(number), 0);
            for packet in bytes.chunks(stride) {
                let segment = Segment::parse(packet).expect("what is sent is a segment");
                from.set_port(segment.source_port);
                sent.push((to, packet.len()));
            }
            self.post(Flight {
                from,
                to,
                bytes,
                stride,
            });
            assert!(sent.len() < 500, "more than its windows hold");
        }
        self.hosts[number].meter.check(BOUND);
        assert!(self.hosts[number].endpoint.connections() <= CONNECTIONS);
        sent
    }

    fn application(&mut self, number: usize) {
        let now = self.now;
        let host = &mut self.hosts[number];
        while let Some(event) = host.meter.run(|| host.endpoint.poll_event()) {
            match event {
                Event::Incoming { port } => {
                    while let Some(id) = host.meter.run(|| host.endpoint.accept(now, port)) {
                        host.read.insert(id, 0);
                    }
                }
                Event::Join { group, .. } => {
                    host.joined.insert(group);
                }
                Event::Leave { group, .. } => {
                    host.joined.remove(&group);
                }
                _ => {}
            }
        }
        let mut buffer = [0; 1024];
        for (id, read) in &mut host.read {
            while let Ok(Received::Data(len)) =
                host.meter.run(|| host.endpoint.recv(now, *id, &mut buffer))
            {
                Host::check(read, &buffer[..len], self.keyed);
            }
        }
        if number == 0 {
            self.write();
        }
    }

    fn write(&mut self) {
        let Some(group) = self.group else { return };
        let (host, now) = (&mut self.hosts[0], self.now);
        while self.written < LENGTH {
            let len = (LENGTH - self.written).min(512);
            let chunk: Vec<u8> = (self.written..self.written + len)
                .map(NullStore::byte)
                .collect();
            match host.meter.run(|| host.endpoint.send(now, group, &chunk)) {
                Ok(0) | Err(_) => return,
                Ok(taken) => self.written += taken as u64,
            }
        }
        let _ = host.meter.run(|| host.endpoint.shutdown(now, group));
    }

    /// Hands packets in.
    fn hear(&mut self, number: usize, meta: &Meta, bytes: &[u8], stride: usize) {
        let (host, now) = (&mut self.hosts[number], self.now);
        if !self.batches {
            for packet in bytes.chunks(stride.max(1)) {
                let _ = host
                    .meter
                    .run(|| host.endpoint.handle_packet(now, meta, packet));
            }
            return;
        }
        let more = !self.wire.is_empty();
        host.meter.run(|| {
            host.endpoint.handle_packets(now, meta, bytes, stride);
            if more {
                host.endpoint.defer_acks(now);
            }
        });
    }

    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let Some(flight) = self.wire.pop_front() else {
                return;
            };
            let meta = Meta {
                source: flight.from,
                destination: flight.to,
            };
            for number in 0..HOSTS {
                let here =
                    flight.to == address(number) || self.hosts[number].joined.contains(&flight.to);
                if here && flight.from.ip() != address(number) {
                    self.hear(number, &meta, &flight.bytes, flight.stride);
                    self.drain(number);
                }
            }
        }
    }

    fn wait(&mut self, us: u64) {
        let mut at = self.now;
        pass(self, &mut at, us, Bench::due, Bench::fire);
        self.now = at;
    }

    fn due(&self) -> Option<Instant> {
        self.hosts
            .iter()
            .filter_map(|host| host.endpoint.poll_timeout())
            .min()
    }

    fn fire(&mut self, now: Instant) {
        self.now = now;
        for number in 0..HOSTS {
            let host = &mut self.hosts[number];
            host.meter.run(|| host.endpoint.handle_timeout(now));
            self.drain(number);
        }
    }

    /// A forged segment with ports and sequence numbers from the wire.
    fn forged(&self, script: &mut Script<'_>) -> Vec<u8> {
        let seen = self.wire.get(script.pick(self.wire.len().max(1)));
        let near = seen.and_then(|flight| Segment::parse(&flight.bytes).ok());
        let (seq, ack) = near
            .as_ref()
            .map_or((Seq(script.u32()), Seq(script.u32())), |near| {
                (near.seq, near.ack)
            });
        let flags = script.u8();
        let segment = Segment {
            source_port: near.as_ref().map_or(5000, |near| near.source_port),
            destination_port: near.as_ref().map_or(PORT, |near| near.destination_port),
            seq: seq.plus(script.u8().into()),
            ack: ack.plus(script.u8().into()),
            flags: Flags {
                syn: flags & 1 != 0,
                fin: flags & 2 != 0,
                rst: flags & 4 != 0,
                psh: flags & 8 != 0,
                ack: flags & 16 != 0,
                urg: flags & 32 != 0,
            },
            window: script.u16(),
            options: Options {
                mss: script.flag().then(|| script.u16()),
                window_scale: script.flag().then(|| script.u8()),
                sack_permitted: script.flag(),
                timestamps: near.as_ref().and_then(|near| near.options.timestamps),
                group: script.flag().then(|| GroupOption::Named(group())),
                feedback: script.flag().then(|| Feedback {
                    percent: script.u8() % 101,
                }),
                tag: near.as_ref().and_then(|near| near.options.tag),
                ..Options::default()
            },
            payload: script.bytes(),
        };
        if segment.options.buffer_len() > 40 {
            return Vec::new();
        }
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        bytes
    }

    fn attack(&mut self, script: &mut Script<'_>) {
        let mut bytes = match script.pick(3) {
            0 => script.bytes().to_vec(),
            1 => self.forged(script),
            _ if self.wire.is_empty() => return,
            _ => {
                let at = script.pick(self.wire.len());
                self.wire[at].bytes.clone()
            }
        };
        if script.flag() {
            script.damage(&mut bytes);
        }
        let number = script.pick(HOSTS);
        let from = match script.pick(HOSTS + 2) {
            host if host < HOSTS => address(host),
            _ => Ipv4Addr::new(10, 9, 9, script.u8() % 8).into(),
        };
        let to = if script.flag() {
            group()
        } else {
            address(number)
        };
        let port = bytes
            .first_chunk::<2>()
            .map_or(9, |port| u16::from_be_bytes(*port));
        if self.carrier == Carrier::Ip && script.flag() && bytes.len() >= 20 {
            Segment::fill_checksum(&mut bytes, from, to);
        }
        let meta = Meta {
            source: SocketAddr::new(from, port),
            destination: to,
        };
        self.drain(number);
        self.hear(number, &meta, &bytes, bytes.len());
        let stranger = !(0..HOSTS).any(|host| address(host) == from);
        let answers = self.drain(number);
        let to_him: Vec<usize> = answers
            .iter()
            .filter(|(to, _)| *to == from)
            .map(|(_, len)| *len)
            .collect();
        if stranger {
            assert!(
                to_him.len() <= 1 && to_him.iter().all(|len| *len <= 60),
                "{to_him:?} for one segment"
            );
        }
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let now = self.now;
        let number = script.pick(HOSTS);
        let host = &mut self.hosts[number];
        let some = host.read.keys().nth(script.pick(8)).copied();
        match (script.pick(8), some) {
            (0, _) => {
                let (local, remote) = (
                    SocketAddr::new(address(number), 0),
                    SocketAddr::new(address((number + 1) % HOSTS), PORT),
                );
                // Between hosts with a key, nothing is heard that has no tag.
                if !self.keyed
                    && let Ok(id) = host.meter.run(|| host.endpoint.connect(now, local, remote))
                {
                    host.read.insert(id, 0);
                }
            }
            (1, Some(id)) => {
                let _ = host.meter.run(|| host.endpoint.close(now, id));
            }
            (2, Some(id)) => {
                let _ = host.meter.run(|| host.endpoint.abort(now, id));
            }
            (3, Some(id)) => {
                let _ = host.meter.run(|| host.endpoint.send(now, id, &[1; 700]));
            }
            (4, _) => {
                let mtu = script.u16();
                host.meter
                    .run(|| host.endpoint.set_path_mtu(now, address(1), mtu));
            }
            (5, Some(id)) => {
                let _ = host.meter.run(|| host.endpoint.shutdown(now, id));
            }
            _ => {}
        }
        self.drain(number);
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    bench.drain(0);
    let mut steps = 0;
    while script.more() && steps < 300 {
        steps += 1;
        match script.pick(8) {
            0 | 1 => bench.arrive(WIRE),
            2 => bench.arrive(script.pick(WIRE)),
            3 => bench.wire.truncate(script.pick(WIRE)),
            4 => {
                let at = script.pick(bench.wire.len().max(1));
                if let Some(flight) = bench.wire.remove(at) {
                    bench.wire.push_back(flight);
                }
            }
            5 => bench.wait(script.pause_us()),
            6 => bench.attack(&mut script),
            _ => bench.command(&mut script),
        }
    }
}

/// Each golden segment to each host, alone and beside a session that runs.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for golden in crate::goldens::of("crates/tcpxm/tests/golden_wire.rs") {
        for (keyed, trains) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let mut lines = Lines(vec![keyed, keyed, 1, 1, 1, 0, 0, trains, 0, 0]);
            lines.u8(0).u8(5).u8(120).u8(0);
            for host in 0..3 {
                lines
                    .u8(6)
                    .u8(0)
                    .bytes(&golden)
                    .u8(0)
                    .u8(host)
                    .u8(3)
                    .u8(host)
                    .u8(host & 1)
                    .u8(1);
            }
            seeds.push(lines.0);
        }
    }
    for flags in 0..64 {
        let mut lines = Lines(vec![
            flags & 1,
            flags >> 1 & 1,
            1,
            1,
            1,
            0,
            0,
            flags >> 2 & 1,
            flags % 3,
            flags & 1,
        ]);
        for step in 0..40u8 {
            lines
                .u8(2)
                .u8(step)
                .u8(5)
                .u8(90 + step)
                .u8(6)
                .u8(1)
                .u8(step)
                .u8(flags);
            lines
                .u8(step)
                .u8(step % 3)
                .u8(255)
                .u8(255)
                .u8(0)
                .u8(0)
                .u8(0)
                .u8(0)
                .u8(0)
                .bytes(b"forged")
                .u8(0)
                .u8(step)
                .u8(step)
                .u8(step);
        }
        seeds.push(lines.0);
    }
    seeds
}
