//! A TCP-XM sender with a group of two: an honest receiver, and one that completes its handshake and then
//! says anything that is well-formed: arbitrary cumulative and selective acknowledgements, windows,
//! feedback, groups, data, the end of its stream.
//!
//! Asserted: data goes to the group that the sender offered and to its two receivers, to nothing else;
//! what the sender holds stays within its documented bound; each word of the liar draws a bounded number
//! of packets; and the honest receiver has every byte at its place, at the latest when the liar has been
//! silent for [`RECEIVER_TIMEOUT`](TIMEOUT_S) and the rest had time to arrive.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tcpxm::store::NullStore;
use tcpxm::wire::{Feedback, Flags, GroupOption, Options, Segment};
use tcpxm::{
    Config, CongestionControl, ConnId, Endpoint, Event, GroupChoice, GroupConfig, GroupId,
    GroupMode, Instant, Meta, Received, Seq, State,
};

use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const PORT: u16 = 7000;
const SENDER_PORT: u16 = 5000;
const LENGTH: u64 = 60_000;
const BUFFER: usize = 16 << 10;
const WIRE: usize = 1024;
/// Without an acknowledgement of anything new a receiver is dropped.
const TIMEOUT_S: u64 = 30;
/// Time for the rest, at the rates that are left when a liar has made the sender careful.
const REST_S: u64 = 60;
/// Two connections of 5 KiB, an endpoint with its tables and queues.
const BOUND: usize = 2 * 5 * 1024 + 2 * 2 * BUFFER + 24 * 1024;
/// Packets that one call may draw: the windows of both, and the liar's segments can be small.
const BURST: usize = 3000;

const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const LIAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 3, 4));

/// What the liar has heard.
#[derive(Default)]
struct Liar {
    /// The sender's initial sequence number.
    iss: Seq,
    synced: bool,
    /// Its own number.
    seq: u32,
    /// Behind the last byte heard, as an offset in the stream.
    heard: u32,
    /// The least that is acknowledged while the peer behaves plausibly.
    acked: u32,
    stamp: Option<u32>,
}

struct Bench {
    now: Instant,
    sender: Endpoint<NullStore>,
    honest: Endpoint<NullStore>,
    meter: Meter,
    group: GroupId,
    liar: Liar,
    connection: Option<ConnId>,
    joined: bool,
    read: u64,
    ended: bool,
    /// Packets on their way, and whether they go to the sender.
    wire: VecDeque<(bool, IpAddr, Vec<u8>)>,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let now = Instant::from_secs(1);
        let mut config = Config::default();
        config.mtu = 1500;
        config.timestamps = script.flag();
        config.sack = script.flag();
        config.congestion_control = script.of(&[
            CongestionControl::Cubic,
            CongestionControl::NewReno,
            CongestionControl::Bbr,
        ]);
        config.pacing = script.flag();
        config.receive_buffer = BUFFER;
        config.send_buffer = BUFFER;
        let mut honest = Endpoint::new(config.clone(), [2; 32], now);
        honest.listen(now, PORT).expect("a free port");
        let mut sender = Endpoint::new(config, [1; 32], now);
        let receivers = vec![HONEST, LIAR];
        let mut wanted = GroupConfig::new(SocketAddr::new(SENDER, SENDER_PORT), receivers, PORT);
        wanted.group = GroupChoice::Given(GROUP);
        wanted.mode = script.of(&[GroupMode::Auto, GroupMode::Multicast, GroupMode::Unicast]);
        wanted.receiver_timeout = tcpxm::Duration::from_secs(TIMEOUT_S);
        wanted.min_rate_bps = script.flag().then_some(1_000_000);
        let mut meter = Meter::default();
        let group = meter.run(|| {
            let group = sender.open_group(now, &wanted, NullStore::new(LENGTH));
            let group = group.expect("a group of two");
            sender.shutdown(now, group).expect("it is open");
            group
        });
        Bench {
            now,
            sender,
            honest,
            meter,
            group,
            liar: Liar::default(),
            connection: None,
            joined: false,
            read: 0,
            ended: false,
            wire: VecDeque::new(),
        }
    }

    fn drain_sender(&mut self) {
        let now = self.now;
        let mut buffer = [0; 1500];
        let mut count = 0;
        loop {
            while self.meter.run(|| self.sender.poll_event()).is_some() {}
            let sent = self
                .meter
                .run(|| self.sender.poll_transmit(now, &mut buffer));
            let Some(sent) = sent else { break };
            count += 1;
            assert!(count < BURST, "more than its windows hold");
            let to = sent.destination.ip();
            let known = [HONEST, LIAR, GROUP].contains(&to);
            assert!(known, "{to} was never offered");
            let bytes = buffer[..sent.len].to_vec();
            if to != HONEST {
                self.overhear(&bytes);
            }
            if to != LIAR && self.wire.len() < WIRE {
                self.wire.push_back((false, to, bytes));
            }
        }
        self.meter.check(BOUND);
        assert!(self.sender.connections() <= 2);
    }

    fn overhear(&mut self, bytes: &[u8]) {
        let segment = Segment::parse(bytes).expect("what is sent is a segment");
        if segment.flags.syn {
            self.liar.iss = segment.seq;
            self.liar.synced = true;
        }
        let end = segment.seq.plus(segment.payload.len() as u32);
        let heard = end.0.wrapping_sub(self.liar.iss.0).wrapping_sub(1);
        if heard < LENGTH as u32 + 2 {
            self.liar.heard = self.liar.heard.max(heard);
        }
        let stamp = segment.options.timestamps.map(|(value, _)| value);
        self.liar.stamp = stamp.or(self.liar.stamp);
    }

    fn drain_honest(&mut self) {
        let now = self.now;
        let mut buffer = [0; 1500];
        loop {
            while let Some(event) = self.honest.poll_event() {
                match event {
                    Event::Incoming { port } => self.connection = self.honest.accept(now, port),
                    Event::Join { .. } => self.joined = true,
                    Event::Leave { .. } => self.joined = false,
                    _ => {}
                }
            }
            self.read();
            let Some(sent) = self.honest.poll_transmit(now, &mut buffer) else {
                break;
            };
            self.wire
                .push_back((true, SENDER, buffer[..sent.len].to_vec()));
        }
    }

    fn read(&mut self) {
        let Some(id) = self.connection else { return };
        let mut buffer = [0; 4096];
        while let Ok(received) = self.honest.recv(self.now, id, &mut buffer) {
            match received {
                Received::Data(len) => {
                    for (byte, at) in buffer[..len].iter().zip(self.read..) {
                        assert_eq!(*byte, NullStore::byte(at), "at {at}");
                    }
                    self.read += len as u64;
                }
                Received::End => {
                    if !self.ended {
                        // Its own direction has nothing to say.
                        let _ = self.honest.shutdown(self.now, id);
                    }
                    self.ended = true;
                    break;
                }
                Received::Nothing => break,
            }
        }
    }

    fn to_sender(&mut self, from: IpAddr, bytes: &[u8]) {
        let source = SocketAddr::new(from, PORT);
        let meta = Meta {
            source,
            destination: SENDER,
        };
        let now = self.now;
        let _ = self
            .meter
            .run(|| self.sender.handle_packet(now, &meta, bytes));
        self.drain_sender();
    }

    /// So many packets between the sender and the honest receiver arrive.
    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let Some((back, to, bytes)) = self.wire.pop_front() else {
                return;
            };
            if back {
                self.to_sender(HONEST, &bytes);
            } else if to == HONEST || self.joined {
                let source = SocketAddr::new(SENDER, SENDER_PORT);
                let meta = Meta {
                    source,
                    destination: to,
                };
                let _ = self.honest.handle_packet(self.now, &meta, &bytes);
                self.drain_honest();
            }
        }
    }

    fn wait(&mut self, us: u64) {
        let mut at = self.now;
        let due = |bench: &Bench| {
            let all = [bench.sender.poll_timeout(), bench.honest.poll_timeout()];
            all.into_iter().flatten().min()
        };
        pass(self, &mut at, us, due, Bench::fire);
        self.now = at;
    }

    fn fire(&mut self, now: Instant) {
        self.now = now;
        self.meter.run(|| self.sender.handle_timeout(now));
        self.honest.handle_timeout(now);
        self.drain_sender();
        self.drain_honest();
    }

    /// The answer to the SYN, with options of the script's choice.
    fn greet(&mut self, script: &mut Script<'_>) {
        self.liar.seq = script.u32();
        let options = Options {
            mss: script.flag().then(|| script.u16()),
            window_scale: script.flag().then(|| script.u8()),
            sack_permitted: script.flag(),
            timestamps: self
                .liar
                .stamp
                .filter(|_| script.flag())
                .map(|stamp| (1, stamp)),
            group: group_option(script),
            ..Options::default()
        };
        let window = script.u16();
        let flags = Flags {
            syn: true,
            ack: true,
            ..Flags::default()
        };
        let seq = Seq(self.liar.seq);
        self.say(seq, 0, (flags, window, options), &[]);
        let members = self.sender.members(self.group).expect("a group");
        let states: Vec<_> = members
            .filter_map(|id| self.sender.conn_stats(id).ok())
            .map(|stats| stats.state)
            .collect();
        assert!(
            !states.contains(&State::SynSent),
            "it is let in: {states:?}"
        );
        self.liar.seq = self.liar.seq.wrapping_add(1);
    }

    /// Anything, most of it near what can be true.
    fn lie(&mut self, script: &mut Script<'_>) {
        let heard = self.liar.heard;
        let ack = match script.pick(6) {
            0 => script.u32(),
            1 => heard.wrapping_add(script.u8().into()),
            2 => heard,
            3 => self.liar.acked,
            _ => {
                let share = u64::from(heard - self.liar.acked.min(heard)) * u64::from(script.u8());
                self.liar.acked + (share / 255) as u32
            }
        };
        if ack <= heard {
            self.liar.acked = self.liar.acked.max(ack);
        }
        let flags = script.u8();
        let rare = script.u8();
        let flags = Flags {
            syn: rare == 1,
            fin: flags & 1 != 0,
            rst: rare == 2,
            psh: flags & 2 != 0,
            ack: rare != 3,
            urg: flags & 4 != 0,
        };
        let stamp = match script.pick(4) {
            0 => None,
            1 => Some((script.u32(), script.u32())),
            _ => self
                .liar
                .stamp
                .map(|stamp| (self.now.total_millis() as u32, stamp)),
        };
        let mut options = Options {
            timestamps: stamp,
            feedback: script.flag().then(|| Feedback {
                percent: script.u8() % 101,
            }),
            group: group_option(script),
            ..Options::default()
        };
        for _ in 0..script.pick(5) {
            let at = |script: &mut Script<'_>| match script.pick(4) {
                0 => script.u32(),
                _ => self.liar.acked.wrapping_add(script.u16().into()),
            };
            let (from, to) = (at(script), at(script));
            let number = |offset: u32| self.liar.iss.plus(1).plus(offset);
            options.sack.push((number(from), number(to)));
        }
        options.shrink_to_fit();
        let seq = match script.pick(4) {
            0 => script.u32(),
            1 => self.liar.seq.wrapping_add(script.u8().into()),
            _ => self.liar.seq,
        };
        let window = script.of(&[0, 1, 700, 8000, 60_000, u16::MAX]);
        let payload = if script.pick(4) == 0 {
            script.bytes()
        } else {
            &[]
        };
        self.say(Seq(seq), ack, (flags, window, options), payload);
    }

    fn say(
        &mut self,
        seq: Seq,
        ack: u32,
        (flags, window, options): (Flags, u16, Options),
        payload: &[u8],
    ) {
        if options.buffer_len() > 40 {
            return;
        }
        let segment = Segment {
            source_port: PORT,
            destination_port: SENDER_PORT,
            seq,
            ack: self.liar.iss.plus(1).plus(ack),
            flags,
            window,
            options,
            payload,
        };
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        self.to_sender(LIAR, &bytes);
    }

    /// The liar says nothing more: everything reaches the honest receiver.
    fn finish(&mut self) {
        let end = self.now + tcpxm::Duration::from_secs(TIMEOUT_S + REST_S);
        while self.now < end && !self.ended {
            self.arrive(WIRE);
            self.wait(20_000);
        }
        assert!(
            self.ended && self.read == LENGTH,
            "{} of {LENGTH} bytes, {:?}",
            self.read,
            self.sender.members(self.group).map(|members| members
                .map(|id| self.sender.conn_stats(id))
                .collect::<Vec<_>>())
        );
    }
}

fn group_option(script: &mut Script<'_>) -> Option<GroupOption> {
    match script.pick(5) {
        0 => Some(GroupOption::Leave),
        1 => Some(GroupOption::Named(Ipv4Addr::from(script.u32()).into())),
        2 => None,
        _ => Some(GroupOption::Named(GROUP)),
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    bench.drain_sender();
    assert!(bench.liar.synced, "a SYN for each receiver");
    bench.arrive(WIRE);
    bench.greet(&mut script);
    let mut steps = 0;
    while script.more() && steps < 300 {
        steps += 1;
        match script.pick(8) {
            0 => bench.arrive(WIRE),
            1 => bench.arrive(script.pick(64)),
            2 => {
                bench.wait(script.pause_us().min(2_000_000));
                // The honest receiver's path works: it is not the one that is dropped for silence.
                bench.arrive(WIRE);
            }
            _ => bench.lie(&mut script),
        }
    }
    bench.finish();
}

/// Handshakes of each kind, then words of every kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for first in 0..64u8 {
        let bit = |at: u8| first >> at & 1;
        let mut lines = Lines(vec![bit(0), 1, bit(1), bit(2), first % 3, bit(3)]);
        // Number, segment size, scale, SACK, timestamps, group, window.
        lines.u8(7).u8(7).u8(7).u8(7);
        lines
            .u8(1)
            .u8(0xb4)
            .u8(5)
            .u8(bit(4))
            .0
            .extend(vec![3; usize::from(bit(4))]);
        lines.u8(1).u8(1).u8(3).u8(0xff).u8(0xff);
        for step in 0..40u8 {
            // Packets arrive; then it lies.
            lines.u8(0).u8(3 + step % 5);
            lines
                .0
                .extend((0..24).map(|at| first.wrapping_mul(31) ^ step.wrapping_mul(at)));
            lines.u8(2).u8(step.wrapping_mul(7) | 0x40);
        }
        seeds.push(lines.0);
    }
    seeds
}
