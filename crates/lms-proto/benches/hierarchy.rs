//! What LMS-HIER costs: the elected replier of a request, offers taken, a change of election.

use core::hint::black_box;
use core::net::Ipv4Addr;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use igmp::datagram::{UDP_AT, finish_udp};
use lms_proto::hier::{Capacity, Config, Cost, EntryId, Hierarchy, Storage};
use lms_proto::wire::hier::{self, Entry, Header, Kind, Repr};
use lms_proto::{Iface, Instant, InterfaceConfig, Key, Meta};

const NOW: Instant = Instant::ZERO;

fn key(n: u32) -> Key {
    Key::new(
        Ipv4Addr::new(10, 99, 0, 1),
        Ipv4Addr::from_bits(0xe801_0000 + n),
    )
}

/// Entries with `neighbours` offers each, of as many routers on one link.
fn hierarchy(entries: u32, neighbours: u32) -> (Hierarchy<'static>, Vec<EntryId>) {
    let capacity = Capacity {
        entries: entries as usize,
        neighbours: (entries * neighbours.max(1)) as usize,
        peers: neighbours.max(1) as usize,
        branches: entries as usize,
        interfaces: 2,
    };
    let config = Config {
        neighbour_packets_per_s: 1_000_000,
        neighbour_burst: u32::MAX,
        ..Config::default()
    };
    let mut h = Hierarchy::new(config, Storage::owned(capacity), [1; 32], NOW);
    for iface in 0..2 {
        let config = InterfaceConfig::ipv4(Ipv4Addr::new(10, iface, 0, 1), 16);
        h.set_interface(NOW, Iface(iface.into()), config).unwrap();
    }
    let ids = (0..entries)
        .map(|n| h.install(NOW, key(n), Iface(0)).unwrap())
        .collect();
    for neighbour in 0..neighbours {
        for (sequence, chunk) in (0..entries).collect::<Vec<_>>().chunks(64).enumerate() {
            let packet = update(neighbour, sequence as u32, chunk, |_| 5);
            take(&mut h, &packet);
        }
    }
    while h.poll_event().is_some() {}
    (h, ids)
}

fn update(neighbour: u32, sequence: u32, groups: &[u32], cost: impl Fn(u32) -> u16) -> Vec<u8> {
    let entries: Vec<Entry> = groups
        .iter()
        .map(|&n| Entry {
            key: key(n),
            neighbour: None,
            cost: Cost(cost(n)),
        })
        .collect();
    let header = Header {
        kind: Kind::Update,
        boot: 1,
        sequence,
        hold_time_ms: 35_000,
    };
    let mut packet = vec![0; UDP_AT + hier::MAX_LEN];
    let len = Repr {
        header,
        entries: &entries,
    }
    .emit(&mut packet[UDP_AT..])
    .unwrap();
    let source = Ipv4Addr::from_bits(0x0a01_0002 + neighbour);
    let len = finish_udp(&mut packet, source, hier::GROUP, hier::PORT, len).unwrap();
    packet.truncate(len);
    packet
}

fn take(h: &mut Hierarchy<'_>, packet: &[u8]) {
    let meta = Meta {
        iface: Iface(1),
        link_source: None,
    };
    h.handle_packet(NOW, &meta, packet).unwrap();
}

fn elected(c: &mut Criterion) {
    let mut group = c.benchmark_group("hier/elected");
    for entries in [1, 100_000] {
        let (h, ids) = hierarchy(entries, 1);
        let mut at = 1u32;
        group.bench_function(format!("{entries} entries"), |b| {
            b.iter(|| {
                at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let id = ids[((u64::from(at) * ids.len() as u64) >> 32) as usize];
                black_box(h.elected(id).map(|elected| h.next_hop(elected.peer)))
            });
        });
    }
}

fn updates(c: &mut Criterion) {
    let mut group = c.benchmark_group("hier/update of 64 entries");
    group.throughput(Throughput::Elements(64));
    for entries in [64, 100_000u32] {
        let (mut h, _) = hierarchy(entries, 1);
        let mut sequence = 1_000_000;
        group.bench_function(format!("refresh, {entries} entries"), |b| {
            b.iter_batched(
                || {
                    sequence += 1;
                    let step = entries / 64;
                    let offset = sequence % step.max(1);
                    let groups: Vec<u32> = (0..64).map(|n| n * step + offset).collect();
                    update(0, sequence, &groups, |_| 5)
                },
                |packet| take(&mut h, &packet),
                BatchSize::SmallInput,
            );
        });
    }
    for neighbours in [2, 256u32] {
        let (mut h, _) = hierarchy(64, neighbours);
        let groups: Vec<u32> = (0..64).collect();
        let mut sequence = 1_000_000;
        group.bench_function(format!("new election, {neighbours} neighbours"), |b| {
            b.iter_batched(
                || {
                    sequence += 1;
                    update(sequence % neighbours, sequence, &groups, |n| {
                        // Now the best, now the worst.
                        if (sequence / neighbours + n) % 2 == 0 {
                            1
                        } else {
                            9
                        }
                    })
                },
                |packet| {
                    take(&mut h, &packet);
                    while h.poll_event().is_some() {}
                },
                BatchSize::SmallInput,
            );
        });
    }
}

/// The messages of a refresh of 100,000 entries, UPDATE and ELECTED in turn, in virtual time.
fn refresh(c: &mut Criterion) {
    let mut group = c.benchmark_group("hier/refresh");
    let (mut h, _) = hierarchy(100_000, 0);
    for n in 0..100_000 {
        // Configured offers, which need no refresh.
        let replier = Ipv4Addr::new(10, 1, 0, 2);
        h.set_replier(NOW, key(n), Iface(1), replier, None, Cost(3))
            .unwrap();
        h.poll_event();
    }
    let mut buffer = [0; 1500];
    let mut now = NOW;
    let mut send = |h: &mut Hierarchy<'_>| {
        loop {
            now = now.max(h.poll_timeout().unwrap());
            if let Some(transmit) = h.poll_transmit(now, &mut buffer) {
                return transmit;
            }
        }
    };
    for _ in 0..4_000 {
        send(&mut h);
    }
    group.throughput(Throughput::Elements(64));
    group.bench_function("message, 100,000 entries", |b| {
        b.iter(|| send(&mut h));
    });
}

criterion_group!(benches, elected, updates, refresh);
criterion_main!(benches);
