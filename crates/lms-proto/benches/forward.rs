//! The forwarding path: request (parse, verdict, rewrite, checksum) and dmcast (validate,
//! decapsulate), for 1 and 100,000 groups in random order, 2 and 1,000 interfaces.
//!
//! Packets are copied from a pool into one buffer, as from a ring; the copy is measured alone too.

use std::hint::black_box;
use std::net::Ipv4Addr;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lms_proto::router::{Config, Rate, Router, Storage, Verdict};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{
    Duration, Form, Iface, Instant, InterfaceConfig, Key, Kind, LinkAddr, LmsOption, Meta,
};

const PARENT: Iface = Iface(0);
const ARRIVAL: Iface = Iface(1);
const SLOT: usize = 96;

fn key(group: usize) -> Key {
    let g = group as u32;
    Key::new(
        Ipv4Addr::from_bits(0x0a00_0001 + g),
        Ipv4Addr::from_bits(0xe801_0000 + g),
    )
}

fn address(iface: Iface) -> Ipv4Addr {
    Ipv4Addr::new(172, 16 + (iface.0 >> 8) as u8, iface.0 as u8, 1)
}

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
        let config = InterfaceConfig {
            address: address(iface),
            prefix_len: 24,
        };
        router.set_interface(now, iface, config).unwrap();
    }
    let replier = Iface(interfaces);
    let neighbour = Neighbour {
        addr: Ipv4Addr::new(172, 16, 200, 9),
        link: Some(LinkAddr([2, 0, 0, 0, 0, 9])),
    };
    for group in 0..groups {
        router
            .install(now, key(group), PARENT, &downstream)
            .unwrap();
        let replier = Replier {
            iface: replier,
            cost: 1,
            neighbour: Some(neighbour),
        };
        router.set_replier(now, key(group), Some(replier)).unwrap();
    }
    router
}

fn header(source: Ipv4Addr, destination: Ipv4Addr, option: &[u8], payload: usize) -> Vec<u8> {
    let header_len = 20 + option.len();
    let mut packet = vec![0; header_len + payload];
    packet[0] = 0x40 | (header_len / 4) as u8;
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    packet[20..header_len].copy_from_slice(option);
    ipv4::fill_checksum(&mut packet[..header_len]);
    packet
}

fn request(key: Key, form: Form) -> Vec<u8> {
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: key.source.into(),
        group: key.group.into(),
    };
    let mut bytes = [0; 20];
    let len = option.emit(form, &mut bytes).unwrap();
    header(Ipv4Addr::new(172, 16, 1, 77), key.group, &bytes[..len], 24)
}

fn dmcast(key: Key, placement: Placement) -> Vec<u8> {
    let inner = header(key.source, key.group, &[], 40);
    let repr = DmcastRepr {
        replier: Ipv4Addr::new(172, 16, 200, 9),
        router: address(ARRIVAL),
        iface: ARRIVAL,
        form: Form::Classic,
        placement,
        ttl: 64,
        identification: 0,
    };
    let mut packet = vec![0; repr.buffer_len(inner.len())];
    repr.emit(&inner, &mut packet).unwrap();
    packet
}

/// One packet for each group, in random order, so that walking the pool jumps about the table.
fn pool(groups: usize, packet: impl Fn(Key) -> Vec<u8>) -> (Vec<u8>, usize) {
    let mut order: Vec<usize> = (0..groups).collect();
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for i in (1..groups).rev() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        order.swap(i, (x % (i as u64 + 1)) as usize);
    }
    let mut bytes = vec![0; groups * SLOT];
    let mut len = 0;
    for (slot, &group) in bytes.chunks_exact_mut(SLOT).zip(&order) {
        let packet = packet(key(group));
        len = packet.len();
        slot[..len].copy_from_slice(&packet);
    }
    (bytes, len)
}

fn bench(c: &mut Criterion) {
    type Make = fn(Key) -> Vec<u8>;
    let kinds: [(&str, Make); 4] = [
        ("request", |key| request(key, Form::Classic)),
        ("request-single", |key| request(key, Form::Single)),
        ("dmcast", |key| dmcast(key, Placement::Outer)),
        ("dmcast-inner", |key| dmcast(key, Placement::Inner)),
    ];
    for (name, make) in kinds {
        let mut group = c.benchmark_group(name);
        group.warm_up_time(std::time::Duration::from_millis(500));
        group.measurement_time(std::time::Duration::from_secs(2));
        for (groups, interfaces) in [(1, 2), (1, 1_000), (100_000, 2), (100_000, 1_000)] {
            let mut router = router(groups, interfaces);
            let (pool, len) = pool(groups, make);
            let mut now = Instant::from_secs(2);
            let mut at = 0;
            let mut buffer = [0; SLOT];
            let meta = Meta {
                iface: ARRIVAL,
                link_source: None,
            };
            let id = BenchmarkId::new(format!("{groups} groups"), format!("{interfaces} ifaces"));
            group.bench_function(id, |b| {
                b.iter(|| {
                    buffer.copy_from_slice(&pool[at..at + SLOT]);
                    at = if at + SLOT == pool.len() {
                        0
                    } else {
                        at + SLOT
                    };
                    now += Duration::from_micros(1);
                    let verdict = router.forward(now, meta, black_box(&mut buffer[..len]));
                    assert!(matches!(
                        verdict,
                        Verdict::Forward { .. } | Verdict::Multicast { .. }
                    ));
                    verdict
                });
            });
        }
        group.finish();
    }
    copy_alone(c);
}

/// What of the figures above is the copy out of the pool.
fn copy_alone(c: &mut Criterion) {
    let (pool, len) = pool(100_000, |key| request(key, Form::Classic));
    let mut at = 0;
    let mut buffer = [0; SLOT];
    c.bench_function("copy alone", |b| {
        b.iter(|| {
            buffer.copy_from_slice(&pool[at..at + SLOT]);
            at = if at + SLOT == pool.len() {
                0
            } else {
                at + SLOT
            };
            black_box(&mut buffer[..len])[0]
        });
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
