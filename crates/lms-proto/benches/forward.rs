//! The forwarding path: request (parse, verdict, rewrite, checksum) and dmcast (validate,
//! decapsulate), for 1 and 100,000 groups in random order, 2 and 1,000 interfaces.
//!
//! Packets lie in a ring of 64, as a driver finds them, and the clock runs while all of them are
//! forwarded. Writing them there is not measured: the receive path has done it, and has
//! left them in the cache. All else is: parsing, the entry and its downstream set, the token
//! bucket, the counters, edits and checksums, and that the caller looks at the verdict.
//!
//! No two packets in a row are of the same group, and each group comes once before any comes
//! again: with 100,000 groups nothing of an entry is still near the core. Arrival interfaces are
//! random too. Each case runs plainly and with look-ahead, which is measured as well. `random access alone` is what the memory takes for this by itself: a walk that does
//! nothing but go from one random cache line to the next.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use criterion::{Criterion, criterion_group, criterion_main};
use lms_proto::router::{Config, Rate, Router, Storage, Verdict};
use lms_proto::table::{Entry, Neighbour, Replier, Slot};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::udp::{Header, PORT, Ports};
use lms_proto::wire::{ipv4, ipv6};
use lms_proto::{
    Duration, Family, Form, Iface, Instant, InterfaceConfig, Key, Kind, LinkAddr, LmsOption, Meta,
    TurningPoint,
};

const GROUPS: usize = 100_000;
const PARENT: Iface = Iface(0);
/// Packets in the ring: what a driver takes at once.
const BATCH: usize = 64;
const FRAME: usize = 256;
/// Bytes of UDP behind a request's option, and of a repair.
const REQUEST_LEN: usize = 24;
const REPAIR_LEN: usize = 40;

/// A family with the addresses of the network.
trait Net: Family {
    const NAME: &'static str;

    fn key(group: u32) -> Key<Self>;
    fn interface(iface: Iface) -> InterfaceConfig<Self>;
    /// A host of the first link below, and one that is of none.
    fn hosts() -> [Self; 2];
    /// Writes a request with the option; returns its length.
    fn write_request(case: &Case<Self>, form: Form, out: &mut [u8]) -> usize;
}

impl Net for Ipv4Addr {
    const NAME: &'static str = "";

    fn key(group: u32) -> Key {
        Key::new(
            Ipv4Addr::from_bits(0x0a00_0001 + group),
            Ipv4Addr::from_bits(0xe801_0000 + group),
        )
    }

    fn interface(iface: Iface) -> InterfaceConfig {
        let address = Ipv4Addr::new(172, 16 + (iface.0 >> 8) as u8, iface.0 as u8, 1);
        InterfaceConfig::ipv4(address, 24)
    }

    fn hosts() -> [Self; 2] {
        [
            Ipv4Addr::new(172, 16, 1, 77),
            Ipv4Addr::new(198, 51, 100, 9),
        ]
    }

    fn write_request(case: &Case<Self>, form: Form, out: &mut [u8]) -> usize {
        let option = option(case, Kind::Request, None);
        let option_len = option.emit(form, &mut out[20..]).unwrap();
        let len = 20 + option_len + REQUEST_LEN;
        let from = Self::hosts()[0];
        write_header(&mut out[..len], from, case.key.group, option_len);
        len
    }
}

impl Net for Ipv6Addr {
    const NAME: &'static str = "-ipv6";

    fn key(group: u32) -> Key<Self> {
        Key::new(
            Ipv6Addr::from_bits((0x2001_0db8 << 96) | (0x0a00_0001 + u128::from(group))),
            Ipv6Addr::from_bits((0xff3e << 112) | (0x0001_0000 + u128::from(group))),
        )
    }

    fn interface(iface: Iface) -> InterfaceConfig<Self> {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 1, iface.0, 0, 0, 0, 1);
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, iface.0 + 1);
        InterfaceConfig::ipv6(address, 64, link_local)
    }

    fn hosts() -> [Self; 2] {
        let far = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 9);
        [Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 0, 0, 0, 77), far]
    }

    fn write_request(case: &Case<Self>, _form: Form, out: &mut [u8]) -> usize {
        let option = option(case, Kind::Request, None);
        let options = ipv6::emit_options(&option, 17, &mut out[40..]).unwrap();
        let (from, to) = (Self::hosts()[0], case.key.group);
        ipv6::emit_header(out, options + REQUEST_LEN, 0, 64, from, to).unwrap();
        40 + options + REQUEST_LEN
    }
}

/// A router with `interfaces` downstream interfaces in each entry, the replier behind the last.
fn router<A: Net>(groups: usize, interfaces: u16) -> Router<'static, A> {
    let rate = Rate {
        per_second: 1_000_000_000,
        burst: 1_000_000,
    };
    let config = Config {
        request_rate: rate,
        dmcast_rate: rate,
        ..Config::default()
    };
    let storage = Storage::with_capacity(groups, usize::from(interfaces) + 1);
    let now = Instant::from_secs(1);
    let mut router = Router::<A>::new(config, storage, [7; 32], now);
    let downstream: Vec<Iface> = (1..=interfaces).map(Iface).collect();
    for iface in (0..=interfaces).map(Iface) {
        router
            .set_interface(now, iface, A::interface(iface))
            .unwrap();
    }
    let neighbour = Neighbour {
        addr: A::hosts()[1],
        link: Some(LinkAddr([2, 0, 0, 0, 0, 9])),
    };
    let replier = Replier {
        iface: Iface(interfaces),
        cost: 1,
        neighbour: Some(neighbour),
    };
    for key in (0..groups as u32).map(A::key) {
        router.install(now, key, PARENT, &downstream).unwrap();
        router.set_replier(now, key, Some(replier)).unwrap();
    }
    router
}

/// One packet of the ring.
#[derive(Clone)]
struct Frame {
    arrival: Iface,
    len: usize,
    bytes: [u8; FRAME],
}

fn write_header(out: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr, option_len: usize) {
    let header_len = 20 + option_len;
    let total = out.len() as u16;
    out[0] = 0x40 | (header_len / 4) as u8;
    out[2..4].copy_from_slice(&total.to_be_bytes());
    out[8..12].copy_from_slice(&[64, 17, 0, 0]);
    out[12..16].copy_from_slice(&source.octets());
    out[16..20].copy_from_slice(&destination.octets());
    ipv4::fill_checksum(&mut out[..header_len]);
}

/// What a packet is made from: its entry, the interface below which the loss was, the replier's.
struct Case<A> {
    key: Key<A>,
    lost_below: Iface,
    replier: Iface,
}

fn option<A: Net>(case: &Case<A>, kind: Kind, turning_point: Option<TurningPoint>) -> LmsOption {
    LmsOption {
        kind,
        turning_point,
        source: case.key.source.into(),
        group: case.key.group.into(),
    }
}

fn request<A: Net>(case: &Case<A>, form: Form, frame: &mut Frame) {
    frame.arrival = case.lost_below;
    frame.len = A::write_request(case, form, &mut frame.bytes);
}

/// Writes a datagram of the UDP carrier.
fn datagram<A: Net>(frame: &mut Frame, ends: (A, A), option: &LmsOption, payload_len: usize) {
    let ports = Ports {
        source: 4000,
        group: 5000,
    };
    let header = Header::<A>::of(option, 16, ports).unwrap();
    let udp_len = 8 + Header::<A>::LEN + payload_len;
    let out = &mut frame.bytes;
    A::write_ip(out, udp_len, 17, 64, ends.0, ends.1).unwrap();
    let udp = &mut out[A::IP_HEADER_LEN..];
    udp[2..4].copy_from_slice(&PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
    // Any sum: routers change it and do not look whether it is right.
    udp[6..8].copy_from_slice(&[0x12, 0x34]);
    header.emit(&mut udp[8..]).unwrap();
    frame.len = A::IP_HEADER_LEN + udp_len;
}

fn request_datagram<A: Net>(case: &Case<A>, frame: &mut Frame) {
    frame.arrival = case.lost_below;
    let ends = (A::hosts()[0], case.key.source);
    datagram(
        frame,
        ends,
        &option(case, Kind::Request, None),
        REQUEST_LEN - 8,
    );
}

/// Has the router turn a request, so that it takes the repair: the turning point.
fn ask<A: Net>(
    router: &mut Router<'_, A>,
    now: Instant,
    case: &Case<A>,
    form: Form,
    frame: &mut Frame,
) -> TurningPoint {
    request(case, form, frame);
    let (meta, bytes) = packet(frame);
    is_sent(router.forward(now, &meta, bytes));
    let options = &frame.bytes[A::IP_HEADER_LEN..frame.len - REQUEST_LEN];
    let option = A::find_option(options).unwrap();
    option.turning_point.expect("turned")
}

/// A repair of `case` in IPv4 in IPv4.
fn dmcast(case: &Case<Ipv4Addr>, point: TurningPoint, placement: Placement, frame: &mut Frame) {
    let mut inner = [0; 20 + REPAIR_LEN];
    write_header(&mut inner, case.key.source, case.key.group, 0);
    let repr = DmcastRepr {
        replier: Ipv4Addr::hosts()[1],
        router: Ipv4Addr::interface(case.replier).address,
        iface: point.iface,
        cookie: point.cookie,
        form: match point.cookie {
            0 => Form::Classic,
            _ => Form::Own,
        },
        placement,
        ttl: 64,
        identification: 0,
    };
    frame.arrival = case.replier;
    frame.len = repr.emit(&inner, &mut frame.bytes).unwrap();
}

/// A repair of `case` in IPv6 in IPv6.
fn dmcast_ipv6(case: &Case<Ipv6Addr>, point: TurningPoint, frame: &mut Frame) {
    let outer = Ipv6Addr::outer_len(Form::Own);
    let option = option(case, Kind::Dmcast, Some(point));
    let ends = (
        Ipv6Addr::hosts()[1],
        Ipv6Addr::interface(case.replier).address,
    );
    let inner_len = 40 + REPAIR_LEN;
    Ipv6Addr::emit_outer(&mut frame.bytes, inner_len, 64, ends, &option, Form::Own).unwrap();
    let inner = &mut frame.bytes[outer..];
    Ipv6Addr::write_ip(inner, REPAIR_LEN, 17, 64, case.key.source, case.key.group).unwrap();
    frame.arrival = case.replier;
    frame.len = outer + inner_len;
}

fn dmcast_datagram<A: Net>(case: &Case<A>, point: TurningPoint, frame: &mut Frame) {
    let ends = (A::hosts()[1], A::interface(case.replier).address);
    datagram(
        frame,
        ends,
        &option(case, Kind::Dmcast, Some(point)),
        REPAIR_LEN - 8,
    );
    frame.arrival = case.replier;
}

/// Numbers that look random, the same in every run.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }

    fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

/// Fills the ring again and again, each group once before any comes again.
struct Source<A: 'static> {
    random: Xorshift,
    order: Vec<u32>,
    at: usize,
    interfaces: u16,
    make: Make<A>,
}

type Make<A> = fn(&mut Router<'_, A>, Instant, &Case<A>, &mut Frame);

impl<A: Net> Source<A> {
    fn fill(&mut self, router: &mut Router<'_, A>, now: Instant, ring: &mut [Frame]) {
        for frame in ring {
            let below = 1 + self.random.below(usize::from(self.interfaces) - 1) as u16;
            let case = Case {
                key: A::key(self.order[self.at]),
                lost_below: Iface(below),
                replier: Iface(self.interfaces),
            };
            self.at = (self.at + 1) % self.order.len();
            (self.make)(router, now, &case, frame);
        }
    }
}

/// The clock of the router: a microsecond a packet.
fn tick(now: &mut Instant) -> Instant {
    *now += Duration::from_micros(1);
    *now
}

fn is_sent<A: Net>(verdict: Verdict<A>) {
    let verdict = black_box(verdict);
    assert!(!matches!(verdict, Verdict::Drop(_) | Verdict::Pass));
}

fn packet(frame: &mut Frame) -> (Meta, &mut [u8]) {
    let meta = Meta {
        iface: frame.arrival,
        link_source: None,
    };
    (meta, &mut frame.bytes[..frame.len])
}

/// How the packets of the ring are forwarded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One after the other.
    Plain,
    /// After the router has looked ahead at all of them.
    Ahead,
}

fn forward_all<A: Net>(
    router: &mut Router<'_, A>,
    now: &mut Instant,
    ring: &mut [Frame],
    way: Way,
) {
    if way == Way::Ahead {
        let packets = ring.iter();
        router.look_ahead(packets.map(|frame| (frame.arrival, &frame.bytes[..frame.len])));
    }
    for frame in ring {
        let (meta, packet) = packet(frame);
        is_sent(router.forward(tick(now), &meta, packet));
    }
}

/// What the forwarding of `count` packets takes.
fn measure<A: Net>(
    count: u64,
    source: &mut Source<A>,
    router: &mut Router<'_, A>,
    now: &mut Instant,
    way: Way,
) -> StdDuration {
    let empty = Frame {
        arrival: PARENT,
        len: 0,
        bytes: [0; FRAME],
    };
    let mut ring = vec![empty; BATCH];
    let (mut left, mut taken) = (count, StdDuration::ZERO);
    while left > 0 {
        let batch = left.min(BATCH as u64) as usize;
        source.fill(router, *now, &mut ring);
        let start = StdInstant::now();
        forward_all(router, now, &mut ring[..batch], way);
        taken += start.elapsed();
        left -= batch as u64;
    }
    taken
}

fn forward(c: &mut Criterion) {
    let kinds: [(&str, Make<Ipv4Addr>); 7] = [
        ("request", |_, _, case, frame| {
            request(case, Form::Classic, frame);
        }),
        ("request-own", |_, _, case, frame| {
            request(case, Form::Own, frame);
        }),
        ("request-datagram", |_, _, case, frame| {
            request_datagram(case, frame);
        }),
        ("dmcast", |router, now, case, frame| {
            let point = ask(router, now, case, Form::Classic, frame);
            dmcast(case, point, Placement::Outer, frame);
        }),
        ("dmcast-inner", |router, now, case, frame| {
            let point = ask(router, now, case, Form::Classic, frame);
            dmcast(case, point, Placement::Inner, frame);
        }),
        ("dmcast-own", |router, now, case, frame| {
            let point = ask(router, now, case, Form::Own, frame);
            dmcast(case, point, Placement::Outer, frame);
        }),
        ("dmcast-datagram", |router, now, case, frame| {
            let point = ask(router, now, case, Form::Own, frame);
            dmcast_datagram(case, point, frame);
        }),
    ];
    forward_in(c, &kinds);
}

fn forward_ipv6(c: &mut Criterion) {
    let kinds: [(&str, Make<Ipv6Addr>); 4] = [
        ("request-own", |_, _, case, frame| {
            request(case, Form::Own, frame);
        }),
        ("request-datagram", |_, _, case, frame| {
            request_datagram(case, frame);
        }),
        ("dmcast-own", |router, now, case, frame| {
            let point = ask(router, now, case, Form::Own, frame);
            dmcast_ipv6(case, point, frame);
        }),
        ("dmcast-datagram", |router, now, case, frame| {
            let point = ask(router, now, case, Form::Own, frame);
            dmcast_datagram(case, point, frame);
        }),
    ];
    forward_in(c, &kinds);
}

fn forward_in<A: Net>(c: &mut Criterion, kinds: &[(&str, Make<A>)]) {
    for (groups, interfaces) in [(1, 2), (1, 1_000), (GROUPS, 2), (GROUPS, 1_000)] {
        let mut router = router::<A>(groups, interfaces);
        let mut now = Instant::from_secs(2);
        let ways = [("", Way::Plain), (", look-ahead", Way::Ahead)];
        let cases = kinds.iter().flat_map(|kind| ways.map(|way| (kind, way)));
        for ((kind, make), (way_name, way)) in cases {
            let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
            let mut source = Source {
                order: random.permutation(groups),
                random,
                at: 0,
                interfaces,
                make: *make,
            };
            let name = A::NAME;
            let id = format!("{kind}{name}/{groups} groups, {interfaces} interfaces{way_name}");
            c.bench_function(&id, |b| {
                b.iter_custom(|count| measure(count, &mut source, &mut router, &mut now, way));
            });
        }
    }
}

/// One step of a walk over as many bytes as a table has, in random order: each step starts when
/// the one before has ended.
fn random_access(c: &mut Criterion) {
    #[repr(align(64))]
    struct Line(u32);

    let index = size_of::<Slot>() * (GROUPS * 5 / 4).next_power_of_two();
    let entries = size_of::<Entry>() * GROUPS;
    for bytes in [index, entries, 4 * entries] {
        let order = Xorshift(1).permutation(bytes / size_of::<Line>());
        let mut lines: Vec<Line> = order.iter().map(|_| Line(0)).collect();
        for (i, &line) in order.iter().enumerate() {
            lines[line as usize].0 = order[(i + 1) % order.len()];
        }
        let mut at = 0;
        c.bench_function(&format!("random access alone/{} KiB", bytes / 1024), |b| {
            b.iter(|| {
                at = lines[at as usize].0;
                at
            });
        });
    }
}

fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(StdDuration::from_millis(300))
        .measurement_time(StdDuration::from_secs(1))
}

criterion_group!(name = benches; config = config(); targets = forward, forward_ipv6, random_access);
criterion_main!(benches);
