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
//! random too. `random access alone` is what the memory takes for this by itself: a walk that does
//! nothing but go from one random cache line to the next.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use criterion::{Criterion, criterion_group, criterion_main};
use lms_proto::router::{Config, Rate, Router, Storage, Verdict};
use lms_proto::table::{Entry, Neighbour, Replier, Slot};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{
    Duration, Form, Iface, Instant, InterfaceConfig, Key, Kind, LinkAddr, LmsOption, Meta,
};

const GROUPS: usize = 100_000;
const PARENT: Iface = Iface(0);
/// Packets in the ring: what a driver takes at once.
const BATCH: usize = 64;
const FRAME: usize = 96;

fn key(group: u32) -> Key {
    Key::new(
        Ipv4Addr::from_bits(0x0a00_0001 + group),
        Ipv4Addr::from_bits(0xe801_0000 + group),
    )
}

fn address(iface: Iface) -> Ipv4Addr {
    Ipv4Addr::new(172, 16 + (iface.0 >> 8) as u8, iface.0 as u8, 1)
}

/// A router with `interfaces` downstream interfaces in each entry, the replier behind the last.
fn router(groups: usize, interfaces: u16) -> Router<'static> {
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
    let mut router = Router::new(config, storage, [7; 32], now);
    let downstream: Vec<Iface> = (1..=interfaces).map(Iface).collect();
    for iface in (0..=interfaces).map(Iface) {
        let config = InterfaceConfig::ipv4(address(iface), 24);
        router.set_interface(now, iface, config).unwrap();
    }
    let neighbour = Neighbour {
        addr: Ipv4Addr::new(172, 16, 200, 9),
        link: Some(LinkAddr([2, 0, 0, 0, 0, 9])),
    };
    let replier = Replier {
        iface: Iface(interfaces),
        cost: 1,
        neighbour: Some(neighbour),
    };
    for key in (0..groups as u32).map(key) {
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
struct Case {
    key: Key,
    lost_below: Iface,
    replier: Iface,
}

fn request(case: &Case, form: Form, frame: &mut Frame) {
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: case.key.source.into(),
        group: case.key.group.into(),
    };
    let option_len = option.emit(form, &mut frame.bytes[20..]).unwrap();
    frame.arrival = case.lost_below;
    frame.len = 20 + option_len + 24;
    let from = Ipv4Addr::new(172, 16, 1, 77);
    write_header(
        &mut frame.bytes[..frame.len],
        from,
        case.key.group,
        option_len,
    );
}

/// Has the router turn a request, so that it takes the repair: the interface's number.
fn ask(router: &mut Router<'_>, now: Instant, case: &Case, frame: &mut Frame) -> Iface {
    request(case, Form::Classic, frame);
    let (meta, bytes) = packet(frame);
    is_sent(router.forward(now, &meta, bytes));
    let (_, option) = LmsOption::parse::<Ipv4Addr>(&frame.bytes[20..36]).unwrap();
    option
        .turning_point
        .map_or(Iface::UNSET, |point| point.iface)
}

/// A repair of `case`; the interface `number` is the router's.
fn dmcast(case: &Case, number: Iface, placement: Placement, frame: &mut Frame) {
    let mut inner = [0; 60];
    write_header(&mut inner, case.key.source, case.key.group, 0);
    let repr = DmcastRepr {
        replier: Ipv4Addr::new(198, 51, 100, 9),
        router: address(case.replier),
        iface: number,
        cookie: 0,
        form: Form::Classic,
        placement,
        ttl: 64,
        identification: 0,
    };
    frame.arrival = case.replier;
    frame.len = repr.emit(&inner, &mut frame.bytes).unwrap();
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
struct Source {
    random: Xorshift,
    order: Vec<u32>,
    at: usize,
    interfaces: u16,
    make: Make,
}

type Make = fn(&mut Router<'_>, Instant, &Case, &mut Frame);

impl Source {
    fn fill(&mut self, router: &mut Router<'_>, now: Instant, ring: &mut [Frame]) {
        for frame in ring {
            let below = 1 + self.random.below(usize::from(self.interfaces) - 1) as u16;
            let case = Case {
                key: key(self.order[self.at]),
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

fn is_sent(verdict: Verdict) {
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

fn forward_all(router: &mut Router<'_>, now: &mut Instant, ring: &mut [Frame]) {
    for frame in ring {
        let (meta, packet) = packet(frame);
        is_sent(router.forward(tick(now), &meta, packet));
    }
}

/// What the forwarding of `count` packets takes.
fn measure(
    count: u64,
    source: &mut Source,
    router: &mut Router<'_>,
    now: &mut Instant,
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
        forward_all(router, now, &mut ring[..batch]);
        taken += start.elapsed();
        left -= batch as u64;
    }
    taken
}

fn forward(c: &mut Criterion) {
    let kinds: [(&str, Make); 4] = [
        ("request", |_, _, case, frame| {
            request(case, Form::Classic, frame);
        }),
        ("request-single", |_, _, case, frame| {
            request(case, Form::Own, frame);
        }),
        ("dmcast", |router, now, case, frame| {
            let number = ask(router, now, case, frame);
            dmcast(case, number, Placement::Outer, frame);
        }),
        ("dmcast-inner", |router, now, case, frame| {
            let number = ask(router, now, case, frame);
            dmcast(case, number, Placement::Inner, frame);
        }),
    ];
    for (groups, interfaces) in [(1, 2), (1, 1_000), (GROUPS, 2), (GROUPS, 1_000)] {
        let mut router = router(groups, interfaces);
        let mut now = Instant::from_secs(2);
        for (kind, make) in kinds {
            let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
            let mut source = Source {
                order: random.permutation(groups),
                random,
                at: 0,
                interfaces,
                make,
            };
            let id = format!("{kind}/{groups} groups, {interfaces} interfaces");
            c.bench_function(&id, |b| {
                b.iter_custom(|count| measure(count, &mut source, &mut router, &mut now));
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

criterion_group!(name = benches; config = config(); targets = forward, random_access);
criterion_main!(benches);
