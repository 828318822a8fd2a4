//! Cost of each service at a relay: data in order, data after a gap, NACK, repair, election
//! (DyRAM §4.3, Figures 4 and 5; the paper measured 20, 250, 135 and 123 µs).
//!
//! The packets are in the cache, as after a receive. The time includes `forward` and listing the targets of a forwarded
//! packet, but not copying the payload, which is the driver's work. The time of a gap includes the NACK upward.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Join, Nack, Packet, Repr, Role};
use dyram::{Config, Duration, Instant, Meta, Relay, RelayId, Seq, SessionKey, Verdict};

const PAYLOAD: [u8; 1024] = [7; 1024];

fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 5000))
}

fn child(number: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0a01_0000 + u32::from(number)), 5000))
}

fn key() -> SessionKey {
    SessionKey::new(source().ip(), IpAddr::from([239, 1, 2, 3])).unwrap()
}

fn packet(child: u16, seq: u32, body: Body<'_>) -> Vec<u8> {
    let session = u32::from(!matches!(body, Body::Join(_)));
    let repr = Repr {
        key: key(),
        session,
        child,
        sequence: Seq(seq),
        body,
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

struct Bench {
    relay: Relay<'static>,
    now: Instant,
    next: u32,
    children: u16,
    /// Time of the last JOINs, which are repeated so that no child times out in virtual time.
    joined: Instant,
}

impl Bench {
    fn new(children: u16) -> Bench {
        let limits = Limits {
            sessions: 16,
            children: usize::from(children),
            nack_states: 64,
            window: 1024,
        };
        let mut config = Config::new(RelayId(9));
        config.parent_tries = 1;
        let now = Instant::from_secs(1);
        let storage = Storage::owned(limits).unwrap();
        let relay = Relay::new(config, storage, [3; 32], now).unwrap();
        let mut bench = Bench {
            relay,
            now,
            next: 1,
            children,
            joined: now,
        };
        bench.join_all();
        bench.data();
        bench
    }

    fn join(&mut self, from: SocketAddr, role: Role) {
        let mut join = Join {
            role,
            token: 0,
            stamp: 1,
            far_us: 0,
            round_trip_us: 0,
            receivers: 1,
            relay: RelayId(0),
        };
        let mut buffer = [0; 256];
        for _ in 0..2 {
            let mut bytes = packet(0xffff, 0, Body::Join(join));
            let _ = self
                .relay
                .forward(self.now, &Meta::unicast(from), &mut bytes);
            let transmit = self.relay.poll_transmit(self.now, &mut buffer).unwrap();
            let answer = Packet::new_checked(&buffer[..transmit.len]).unwrap();
            if let Body::Joined(joined) = Repr::parse(&answer).body {
                join.token = joined.token;
            }
        }
    }

    fn join_all(&mut self) {
        self.joined = self.now;
        self.join(source(), Role::Source);
        for number in 0..self.children {
            self.join(child(number), Role::Receiver);
        }
    }

    fn data(&mut self) {
        let mut bytes = packet(0xffff, self.next, Body::Data(&PAYLOAD));
        self.next += 1;
        let _ = self
            .relay
            .forward(self.now, &Meta::unicast(source()), &mut bytes);
    }

    /// Lets time pass, and discards what the relay itself sends.
    fn pass(&mut self, milliseconds: u64) {
        let mut buffer = [0; 256];
        self.now += Duration::from_millis(milliseconds);
        self.relay.handle_timeout(self.now);
        while self.relay.poll_transmit(self.now, &mut buffer).is_some() {}
        while self.relay.poll_event().is_some() {}
        if self.now - self.joined > Duration::from_secs(2) {
            self.join_all();
        }
    }

    /// Forwards the packets from one address, and lists their targets.
    fn forward_all(&mut self, from: SocketAddr, packets: &mut [Vec<u8>]) -> StdDuration {
        let meta = Meta::unicast(from);
        let start = StdInstant::now();
        for packet in packets {
            match self.relay.forward(self.now, &meta, packet) {
                Verdict::Send(fanout) => {
                    for target in self.relay.targets(&fanout) {
                        black_box(target);
                    }
                }
                Verdict::Done => {}
                Verdict::Drop(reason) => panic!("dropped: {}", reason.name()),
            }
        }
        start.elapsed()
    }
}

const BATCH: u32 = 32;

/// Runs batches until `iterations` packets were measured.
fn batches(iterations: u64, mut batch: impl FnMut() -> StdDuration) -> StdDuration {
    let rounds = iterations.div_ceil(u64::from(BATCH));
    let total: StdDuration = (0..rounds).map(|_| batch()).sum();
    total.mul_f64(iterations as f64 / (rounds * u64::from(BATCH)) as f64)
}

fn data(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("data");
    for (name, step) in [("in order", 1), ("after a gap", 2)] {
        let mut bench = Bench::new(2);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                batches(iterations, || {
                    let mut packets: Vec<_> = (0..BATCH)
                        .map(|index| bench.next + (index + 1) * step - 1)
                        .map(|seq| packet(0xffff, seq, Body::Data(&PAYLOAD)))
                        .collect();
                    bench.next += BATCH * step;
                    let took = bench.forward_all(source(), &mut packets);
                    if step > 1 {
                        bench.pass(20);
                        bench.pass(20);
                    }
                    took
                })
            });
        });
    }
    group.finish();
}

/// NACKs from the last child, each of which goes to the default replier.
fn nacks(bench: &mut Bench, children: u16) -> Vec<Vec<u8>> {
    let first = bench.next;
    for _ in 0..BATCH {
        bench.data();
    }
    let last = children - 1;
    (0..BATCH)
        .map(|index| packet(last, first + index, Body::Nack(Nack::default())))
        .collect()
}

fn nack_and_repair(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("recovery");
    let mut bench = Bench::new(8);
    group.bench_function("NACK", |bencher| {
        bencher.iter_custom(|iterations| {
            batches(iterations, || {
                let mut packets = nacks(&mut bench, 8);
                let took = bench.forward_all(child(7), &mut packets);
                for _ in 0..12 {
                    bench.pass(10);
                }
                took
            })
        });
    });
    let mut bench = Bench::new(8);
    group.bench_function("repair", |bencher| {
        bencher.iter_custom(|iterations| {
            batches(iterations, || {
                let first = bench.next;
                let mut packets = nacks(&mut bench, 8);
                bench.forward_all(child(7), &mut packets);
                bench.pass(2);
                let mut repairs: Vec<_> = (0..BATCH)
                    .map(|index| packet(0, first + index, Body::Repair(&PAYLOAD)))
                    .collect();
                let took = bench.forward_all(child(0), &mut repairs);
                bench.pass(20);
                took
            })
        });
    });
    group.finish();
}

/// Figure 5: the NACK of the default replier makes the next one the replier. The worst case: all but
/// the last lost the packet; the time is that of one NACK, the replier moves on at each.
fn election(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("election");
    for children in [5u16, 10, 25, 256, 4096] {
        let mut bench = Bench::new(children);
        group.bench_function(BenchmarkId::new("default moves on", children), |bencher| {
            bencher.iter_custom(|iterations| {
                batches(iterations, || {
                    let first = bench.next;
                    let mut packets = nacks(&mut bench, children);
                    bench.forward_all(child(children - 1), &mut packets);
                    let mut packets: Vec<_> = (0..BATCH)
                        .map(|index| packet(0, first + index, Body::Nack(Nack::default())))
                        .collect();
                    let took = bench.forward_all(child(0), &mut packets);
                    for _ in 0..12 {
                        bench.pass(10);
                    }
                    took
                })
            });
        });
    }
    for children in [5u16, 25, 4096] {
        let mut bench = Bench::new(children);
        let id = BenchmarkId::new("all but the last lost it, one NACK", children);
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|iterations| {
                let mut done = 0;
                let mut total = StdDuration::ZERO;
                while done < iterations {
                    let seq = bench.next;
                    bench.data();
                    for loser in 0..children - 1 {
                        let mut packets = [packet(loser, seq, Body::Nack(Nack::default()))];
                        total += bench.forward_all(child(loser), &mut packets);
                        done += 1;
                    }
                    for _ in 0..12 {
                        bench.pass(10);
                    }
                }
                total.mul_f64(iterations as f64 / done as f64)
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(StdDuration::from_millis(300))
        .measurement_time(StdDuration::from_secs(1))
        .sample_size(20);
    targets = data, nack_and_repair, election
}
criterion_main!(benches);
