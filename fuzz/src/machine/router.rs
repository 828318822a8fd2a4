//! The LMS router: packets to forward, LMS-HIER and IGMP, routes and repliers that come and go.
//!
//! Asserted: a dropped packet is untouched; one that is forwarded has one hop less and a right
//! checksum, is no longer than it came, and goes out of an interface that there is; what has turned
//! never goes up again; a dmcast leaves as (S, G) of an entry. Nothing is allocated after the start.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use igmp::datagram::{UDP_AT, finish_membership, finish_udp, membership_at};
use igmp::wire::{RecordType, ReportWriter};
use lms_proto::hier::{Capacity, Cost};
use lms_proto::router::{Config, Policy, Rate, Storage, Verdict};
use lms_proto::table::{EntryId, Neighbour, Replier};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::hier::{Entry, Header, Kind as HierKind, Writer};
use lms_proto::wire::ipv4::{self, Layout};
use lms_proto::wire::option::Body;
use lms_proto::{
    Duration, Form, Iface, Instant, InterfaceConfig, Key, Kind, LinkAddr, LmsOption, Meta, Router,
    TurningPoint,
};

use super::igmp::Addresses;
use super::{ip_packet, mend, pass};
use crate::memory::Meter;
use crate::script::{Lines, Script};

const IFACES: u16 = 5;

struct Bench {
    router: Router<'static>,
    meter: Meter,
    now: Instant,
    /// Turning points that the router wrote, the latest ones, and for which source and group.
    points: VecDeque<(Key, Body<Ipv4Addr>, u64)>,
    /// Entries that turned a request since they were installed.
    turned: BTreeSet<Key>,
}

fn address(iface: u16, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, iface as u8, host)
}

fn key(script: &mut Script<'_>) -> Key {
    let group = Ipv4Addr::new(232, 1, 2, script.u8() % 4);
    match script.u8() % 4 {
        0 => Key::any_source(group),
        n => Key::new(Ipv4Addr::new(10, 1, 1, n), group),
    }
}

fn iface(script: &mut Script<'_>) -> Iface {
    Iface(u16::from(script.u8()) % (IFACES + 2))
}

fn policy(script: &mut Script<'_>) -> Policy {
    match script.pick(4) {
        0 => Policy::Hierarchy,
        1 => Policy::Static,
        2 => Policy::Random {
            redraw: Duration::from_secs(script.u8().into()),
        },
        _ => Policy::SearchParty {
            copies: script.u8(),
            up: script.u8(),
        },
    }
}

fn config(script: &mut Script<'_>) -> Config {
    let rate = Rate {
        per_second: 10,
        burst: 50,
    };
    Config {
        policy: policy(script),
        request_rate: rate,
        dmcast_rate: rate,
        // What it forwards here is told from the rest by its option.
        udp_port: None,
        ..Config::default()
    }
}

fn option(script: &mut Script<'_>, kind: Kind, key: Key) -> LmsOption {
    let turned = script.flag() || kind == Kind::Dmcast;
    LmsOption {
        kind,
        turning_point: turned.then(|| TurningPoint {
            router: address(u16::from(script.u8() % 6), 1).into(),
            iface: iface(script),
            cookie: 0,
        }),
        source: key.source.into(),
        group: key.group.into(),
    }
}

fn form(script: &mut Script<'_>) -> Form {
    script.of(&[Form::Classic, Form::Own])
}

fn request(script: &mut Script<'_>) -> Vec<u8> {
    let key = key(script);
    let option = option(script, Kind::Request, key);
    let form = form(script);
    let mut bytes = [0; 28];
    let len = option.emit(form, &mut bytes).unwrap_or(0);
    let ttl = script.of(&[64, 1, 2, 0, 255]);
    let source = address(u16::from(script.u8() % 6), script.u8()).octets();
    ip_packet(
        source,
        key.group.octets(),
        17,
        ttl,
        &bytes[..len],
        &[0xab; 20],
    )
}

fn dmcast(script: &mut Script<'_>) -> Vec<u8> {
    let key = key(script);
    let ttl = script.of(&[64, 1, 2]);
    let inner = ip_packet(
        key.source.octets(),
        key.group.octets(),
        17,
        ttl,
        &[],
        script.bytes(),
    );
    let repr = DmcastRepr {
        replier: address(2, 9),
        router: address(u16::from(script.u8() % 6), 1),
        iface: iface(script),
        cookie: 0,
        form: form(script),
        placement: script.of(&[Placement::Outer, Placement::Inner]),
        ttl: 64,
        identification: 1,
    };
    let mut packet = vec![0; repr.buffer_len(inner.len())];
    match repr.emit(&inner, &mut packet) {
        Ok(len) => packet.truncate(len),
        Err(_) => packet.clear(),
    }
    packet
}

fn hier_message(script: &mut Script<'_>) -> Vec<u8> {
    let from = address(u16::from(script.u8() % 6), script.u8());
    let header = Header {
        kind: script.of(&[HierKind::Update, HierKind::Elected]),
        boot: script.u8().into(),
        sequence: script.u32(),
        hold_time_ms: script.u16(),
    };
    let mut packet = vec![0; 1500];
    let Some(mut writer) = Writer::new(&mut packet[UDP_AT..]) else {
        return packet;
    };
    for _ in 0..script.pick(6) {
        let neighbour = script.flag().then(|| address(2, script.u8()));
        let cost = if header.kind == HierKind::Elected && neighbour.is_none() {
            Cost::WITHDRAWN
        } else {
            Cost(script.u16())
        };
        let neighbour = neighbour.filter(|_| header.kind == HierKind::Elected);
        let key = key(script);
        writer.push(&Entry {
            key,
            neighbour,
            cost,
        });
    }
    let len = writer.finish(&header);
    let len = finish_udp(
        &mut packet,
        from,
        hier_group(),
        lms_proto::wire::hier::PORT,
        len,
    );
    packet.truncate(len.unwrap_or(0));
    packet
}

fn hier_group() -> Ipv4Addr {
    lms_proto::wire::hier::GROUP
}

/// A report with costs, as hosts send it.
pub(super) fn report<A: Addresses>(script: &mut Script<'_>, from: A) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let Some(mut writer) = ReportWriter::new(&mut packet[membership_at::<A>()..]) else {
        return packet;
    };
    for _ in 0..script.pick(6) {
        let kind = RecordType::from(script.u8() % 8);
        let group = A::group(script.u8() % 4);
        let sources = (0..script.u8() % 5).map(A::source);
        let cost = script.flag().then(|| Cost(script.u16()));
        writer.push(kind, group, sources, cost);
    }
    let len = writer.finish();
    let len = finish_membership(&mut packet, from, A::REPORT_DESTINATION, len);
    packet.truncate(len.unwrap_or(0));
    packet
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let capacity = Capacity {
            entries: 8,
            neighbours: 8,
            peers: 4,
            branches: 8,
            interfaces: 8,
        };
        let storage = Storage::with_capacity(4, 8).with_hierarchy(capacity);
        let now = Instant::from_secs(100);
        let router = Router::new(config(script), storage, [1; 32], now);
        let mut bench = Bench {
            router,
            meter: Meter::default(),
            now,
            points: VecDeque::new(),
            turned: BTreeSet::new(),
        };
        for iface in 1..=IFACES {
            bench.interface(Iface(iface));
        }
        let down: Vec<Iface> = (2..=IFACES - 1).map(Iface).collect();
        let key = Key::new(Ipv4Addr::new(10, 1, 1, 1), Ipv4Addr::new(232, 1, 2, 0));
        bench
            .router
            .install(now, key, Iface(1), &down)
            .expect("there is room");
        bench
    }

    fn interface(&mut self, iface: Iface) {
        let config = InterfaceConfig::ipv4(address(iface.0, 1), 24);
        let (router, now) = (&mut self.router, self.now);
        let _ = self.meter.run(|| router.set_interface(now, iface, config));
    }

    fn forward(&mut self, iface: Iface, packet: &[u8]) {
        let mut bytes = packet.to_vec();
        let meta = Meta {
            iface,
            link_source: Some(LinkAddr([2, 0, 0, 0, 0, 9])),
        };
        let (router, now) = (&mut self.router, self.now);
        let found = Layout::check(packet)
            .ok()
            .and_then(|layout| ipv4::find_lms(&packet[..layout.header_len]).ok()?);
        let verdict = self.meter.run(|| router.forward(now, &meta, &mut bytes));
        match verdict {
            Verdict::Pass => assert_eq!(bytes, packet, "passed on as it came"),
            Verdict::Drop(_) => assert_eq!(bytes, packet, "dropped as it came"),
            Verdict::Forward {
                output,
                packet: range,
                second,
            } => {
                let found = found.expect("only requests are forwarded");
                let entry = self
                    .entry(found.body.source, found.body.group)
                    .expect("of an entry");
                let parent = self.router.table().get(entry).expect("there").parent();
                if found.body.turning_iface.is_set() && iface != parent {
                    panic!("what has turned came up again");
                }
                assert!(range.len() <= packet.len());
                self.is_good(&bytes[range.clone()], packet);
                self.note_turn(entry, &bytes[range.clone()], packet);
                let mut outputs = vec![output];
                if let Some(copy) = second {
                    let (router, meter) = (&self.router, &mut self.meter);
                    let output = meter.run(|| router.second_copy(copy, &mut bytes[range.clone()]));
                    self.is_good(&bytes[range.clone()], packet);
                    self.note_turn(entry, &bytes[range], packet);
                    outputs.push(output);
                }
                for output in outputs {
                    let table = self.router.table();
                    let below = table.is_downstream(entry, output.iface);
                    assert!(below || output.iface == parent, "out of the tree");
                }
            }
            Verdict::Multicast {
                iface: out,
                packet: range,
            } => {
                assert!(range.len() < packet.len());
                let inner = &bytes[range];
                let layout = Layout::check(inner).expect("a packet");
                assert!(ipv4::checksum_ok(&inner[..layout.header_len]));
                let (source, group) = (ipv4::source(inner), ipv4::destination(inner));
                let entry = self.entry(source, group).expect("of an entry");
                assert!(self.router.table().is_downstream(entry, out));
                let key = self.router.table().get(entry).expect("there").key();
                assert!(self.turned.contains(&key), "nobody asked for that");
                assert_eq!((layout.header_len, ipv4::protocol(inner)), (20, 17));
                assert!(!ipv4::is_fragment(inner), "a fragment");
                assert!(!source.is_loopback() && !source.is_unspecified());
            }
        }
    }

    /// Notes the turning point that the router wrote into a request, if it did.
    fn note_turn(&mut self, entry: EntryId, bytes: &[u8], before: &[u8]) {
        let found = |packet: &[u8]| {
            let layout = Layout::check(packet).expect("a packet");
            let found = ipv4::find_lms(&packet[..layout.header_len]);
            found.expect("good options").expect("a request")
        };
        let (was, is) = (found(before), found(bytes));
        if was.body.turning_iface.is_set() || !is.body.turning_iface.is_set() {
            return;
        }
        let key = Key::new(is.body.source, is.body.group);
        self.points
            .push_back((key, is.body, is.cookie.unwrap_or(0)));
        if self.points.len() > 8 {
            self.points.pop_front();
        }
        let entry = self.router.table().get(entry).expect("there");
        self.turned.insert(entry.key());
    }

    /// A repair for one of the latest requests.
    fn answer(&self, script: &mut Script<'_>) -> Vec<u8> {
        let at = usize::from(script.u8()) % self.points.len().max(1);
        let Some(&(key, body, cookie)) = self.points.get(at) else {
            return dmcast(script);
        };
        let inner = ip_packet(
            key.source.octets(),
            key.group.octets(),
            17,
            64,
            &[],
            script.bytes(),
        );
        let repr = DmcastRepr {
            replier: script.of(&[address(2, 9), Ipv4Addr::new(198, 51, 100, 9)]),
            router: body.turning_router,
            iface: body.turning_iface,
            cookie,
            form: form(script),
            placement: script.of(&[Placement::Outer, Placement::Inner]),
            ttl: 64,
            identification: 1,
        };
        let mut packet = vec![0; repr.buffer_len(inner.len())];
        match repr.emit(&inner, &mut packet) {
            Ok(len) => packet.truncate(len),
            Err(_) => packet.clear(),
        }
        packet
    }

    /// A source of a shared tree was seen.
    fn seen(&mut self, iface: Iface, key: Key) {
        let (router, now) = (&mut self.router, self.now);
        self.meter.run(|| router.source_seen(now, iface, key));
    }

    fn entry(&self, source: Ipv4Addr, group: Ipv4Addr) -> Option<lms_proto::table::EntryId> {
        self.router.table().lookup(Key::new(source, group))
    }

    fn is_good(&self, bytes: &[u8], before: &[u8]) {
        let layout = Layout::check(bytes).expect("a packet");
        assert!(ipv4::checksum_ok(&bytes[..layout.header_len]));
        assert_eq!(ipv4::ttl(bytes) + 1, ipv4::ttl(before), "one hop less");
    }

    fn hear(&mut self, iface: Iface, packet: &[u8]) {
        let meta = Meta {
            iface,
            link_source: None,
        };
        let (router, now) = (&mut self.router, self.now);
        let _ = self.meter.run(|| router.handle_packet(now, &meta, packet));
    }

    fn drain(&mut self) {
        let mut buffer = [0; 1500];
        let mut sent = 0;
        while let Some(transmit) = self.router.poll_transmit(self.now, &mut buffer) {
            assert!(transmit.len <= 1500);
            sent += 1;
            assert!(sent < 200, "more than there are peers and links");
        }
        while self.router.poll_event().is_some() {}
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let key = key(script);
        let now = self.now;
        let router = &mut self.router;
        match script.pick(5) {
            0 => {
                let parent = iface(script);
                let down: Vec<Iface> = (0..script.pick(6)).map(|_| iface(script)).collect();
                let _ = self.meter.run(|| router.install(now, key, parent, &down));
            }
            1 => {
                self.meter.run(|| router.remove(now, key));
                self.turned.remove(&key);
            }
            2 => {
                let neighbour = script.flag().then(|| Neighbour {
                    addr: address(2, script.u8()),
                    link: None,
                });
                let replier = script.flag().then(|| Replier {
                    iface: iface(script),
                    cost: script.u16(),
                    neighbour,
                });
                let _ = self.meter.run(|| router.set_replier(now, key, replier));
            }
            3 => {
                let iface = iface(script);
                if script.flag() {
                    self.meter.run(|| router.remove_interface(now, iface));
                } else {
                    self.interface(iface);
                }
            }
            _ => {
                let config = config(script);
                self.meter.run(|| router.set_config(now, config));
            }
        }
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    while script.more() {
        let op = script.pick(9);
        let iface = iface(&mut script);
        match op {
            0 => bench.forward(iface, script.bytes()),
            1 => bench.forward(iface, &request(&mut script)),
            2 => {
                let packet = match script.pick(4) {
                    0 => dmcast(&mut script),
                    _ => bench.answer(&mut script),
                };
                bench.forward(iface, &packet);
            }
            3 => {
                let mut packet = if script.flag() {
                    request(&mut script)
                } else {
                    dmcast(&mut script)
                };
                script.damage(&mut packet);
                if script.flag() {
                    mend(&mut packet);
                }
                bench.forward(iface, &packet);
            }
            4 if script.flag() => {
                let key = key(&mut script);
                bench.seen(iface, key);
            }
            4 => bench.hear(iface, script.bytes()),
            5 => bench.hear(iface, &hier_message(&mut script)),
            6 => {
                let packet = report(&mut script, address(iface.0, 7));
                bench.hear(iface, &packet);
            }
            7 => {
                let us = script.pause_us();
                let Bench {
                    router, meter, now, ..
                } = &mut bench;
                let mut buffer = [0; 1500];
                pass(router, now, us, Router::poll_timeout, |router, now| {
                    meter.run(|| router.handle_timeout(now));
                    while router.poll_transmit(now, &mut buffer).is_some() {}
                });
            }
            _ => bench.command(&mut script),
        }
        bench.drain();
        bench.meter.check(0);
    }
}

/// Packets with each golden option.
pub(crate) fn packets() -> Vec<Vec<u8>> {
    let mut goldens = crate::goldens::of("crates/lms-proto/tests/golden_option.rs");
    goldens.retain(|golden| golden.len() % 4 == 0 && golden.len() <= 40);
    let request =
        |golden: &Vec<u8>| ip_packet([10, 1, 3, 7], [232, 1, 2, 3], 17, 64, golden, &[1; 8]);
    let dmcast = |golden: &Vec<u8>| {
        let inner = ip_packet([10, 1, 0, 2], [232, 1, 2, 3], 17, 64, &[], &[2; 8]);
        ip_packet([10, 1, 2, 9], [192, 0, 2, 7], 4, 64, golden, &inner)
    };
    goldens
        .iter()
        .flat_map(|golden| [request(golden), dmcast(golden)])
        .collect()
}

/// Each golden as a packet to forward and as one to hear, in every policy.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, packet) in packets().iter().enumerate() {
        let mut lines = Lines::default();
        lines.u8(number as u8 % 4);
        for iface in 1..4 {
            lines.u8(0).u8(iface).bytes(packet);
        }
        seeds.push(lines.0);
    }
    for golden in crate::goldens::link_local() {
        let mut packet = vec![0; UDP_AT];
        packet.extend_from_slice(&golden);
        let port = lms_proto::wire::hier::PORT;
        finish_udp(&mut packet, address(2, 9), hier_group(), port, golden.len());
        let mut lines = Lines::default();
        lines
            .u8(0)
            .u8(4)
            .u8(2)
            .bytes(&packet)
            .u8(4)
            .u8(2)
            .bytes(&golden);
        seeds.push(lines.0);
    }
    // Steps of every kind, with parameters that mean something.
    for policy in 0..4 {
        for op in 1..9 {
            let mut lines = Lines::default();
            lines.u8(policy).u8(1).u8(1);
            for parameter in 0..60 {
                lines.u8(op).u8(parameter % 6).u8(parameter % 4).u8(1);
            }
            seeds.push(lines.0);
        }
    }
    seeds
}
