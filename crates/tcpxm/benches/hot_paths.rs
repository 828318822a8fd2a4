//! Hot paths: a segment for a group, an acknowledgement, a segment that arrives in order.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration as Span, Instant as Clock};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tcpxm::store::{Store, StoreError};
use tcpxm::{Config, ConnId, Duration, Endpoint, GroupConfig, Instant, Meta};

const PORT: u16 = 7000;
const PAYLOAD: u64 = 1440;
type Machine = Endpoint<Endless>;

/// The same 64 KiB over and over: reading costs what copying costs.
struct Endless(Vec<u8>);

impl Store for Endless {
    fn write(&mut self, _bytes: &[u8]) -> usize {
        0
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let start = (offset % 65_536) as usize;
        out.copy_from_slice(&self.0[start..start + out.len()]);
        Ok(())
    }
    fn end(&self) -> u64 {
        1 << 50
    }
    fn room(&self) -> usize {
        0
    }
    fn release(&mut self, _before: u64) {}
}

fn host(number: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, (number >> 8) as u8, number as u8).into()
}

fn number_of(address: IpAddr) -> usize {
    let IpAddr::V4(address) = address else {
        return 0;
    };
    let [_, _, high, low] = address.octets();
    usize::from(high) << 8 | usize::from(low)
}

/// What a round of [`Group`] cost, and how often.
#[derive(Default)]
struct Cost {
    send: (Span, u64),
    receive: (Span, u64),
    acknowledge: (Span, u64),
}

fn timed<R>(cost: &mut (Span, u64), act: impl FnOnce() -> R) -> R {
    let start = Clock::now();
    let result = black_box(act());
    cost.0 += start.elapsed();
    cost.1 += 1;
    result
}

/// A sender, its receivers, and virtual time.
struct Group {
    sender: Machine,
    receivers: Vec<(Machine, Option<ConnId>)>,
    now: Instant,
}

impl Group {
    /// A group whose members all get everything by multicast.
    fn new(count: usize) -> Self {
        let now = Instant::ZERO;
        let mut config = Config::default();
        config.max_connections = 4096;
        config.receive_buffer = 1 << 20;
        let mut sender = Endpoint::new(config.clone(), [1; 32], now);
        let receivers = (1..=count)
            .map(|number| {
                let mut receiver = Endpoint::new(config.clone(), [number as u8; 32], now);
                receiver.listen(now, PORT).unwrap();
                (receiver, None)
            })
            .collect();
        let addresses = (1..=count).map(host).collect();
        let config = GroupConfig::new(SocketAddr::new(host(0), 5000), addresses, PORT);
        let id = sender
            .open_group(now, &config, Endless(vec![7; 65_536 + 1500]))
            .unwrap();
        sender.shutdown(now, id).unwrap();
        let mut group = Self {
            sender,
            receivers,
            now,
        };
        while group.sender.stats().fall_forwards < count as u64 {
            group.round(&mut Cost::default());
        }
        group
    }

    /// Up to 16 segments from the sender, what the receivers answer, and 200 microseconds.
    fn round(&mut self, cost: &mut Cost) {
        let now = self.now;
        let mut buffer = [0; 1500];
        for _ in 0..16 {
            let sender = &mut self.sender;
            let transmit = timed(&mut cost.send, || sender.poll_transmit(now, &mut buffer));
            let Some(transmit) = transmit else {
                cost.send.1 -= 1;
                break;
            };
            let meta = Meta {
                source: SocketAddr::new(host(0), 5000),
                destination: transmit.destination.ip(),
            };
            let bytes = &buffer[..transmit.len];
            let to = number_of(meta.destination);
            let all = transmit.is_multicast();
            for (number, (receiver, _)) in (1..).zip(&mut self.receivers) {
                if all || number == to {
                    // A copy that came twice is refused.
                    let _ = timed(&mut cost.receive, || {
                        receiver.handle_packet(now, &meta, bytes)
                    });
                }
            }
        }
        self.answer(cost);
        while self.sender.poll_event().is_some() {}
        self.now += Duration::from_micros(200);
        self.sender.handle_timeout(self.now);
    }

    fn answer(&mut self, cost: &mut Cost) {
        let now = self.now;
        let mut buffer = [0; 1500];
        for (number, (receiver, connection)) in (1..).zip(&mut self.receivers) {
            receiver.handle_timeout(now);
            while receiver.poll_event().is_some() {}
            *connection = connection.or_else(|| receiver.accept(now, PORT));
            if let Some(connection) = *connection {
                let len = receiver
                    .readable(connection)
                    .map_or(0, |(a, b)| a.len() + b.len());
                receiver.consume(now, connection, len).unwrap();
            }
            while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
                let meta = Meta {
                    source: SocketAddr::new(host(number), PORT),
                    destination: transmit.destination.ip(),
                };
                let bytes = &buffer[..transmit.len];
                let sender = &mut self.sender;
                let _ = timed(&mut cost.acknowledge, || {
                    sender.handle_packet(now, &meta, bytes)
                });
            }
        }
    }
}

/// Time of `rounds` operations, from as many rounds of the group as that takes.
fn measure(group: &mut Group, rounds: u64, part: impl Fn(&Cost) -> (Span, u64)) -> Span {
    let mut cost = Cost::default();
    while part(&cost).1 < rounds {
        group.round(&mut cost);
    }
    let (time, count) = part(&cost);
    time.mul_f64(rounds as f64 / count as f64)
}

fn benches(c: &mut Criterion) {
    for count in [1, 32, 1024] {
        let mut group = Group::new(count);
        let mut bench = c.benchmark_group(format!("{count}_receivers"));
        bench.bench_function("acknowledgement", |b| {
            b.iter_custom(|rounds| measure(&mut group, rounds, |cost| cost.acknowledge));
        });
        bench.throughput(Throughput::Bytes(PAYLOAD));
        bench.bench_function("send_segment", |b| {
            b.iter_custom(|rounds| measure(&mut group, rounds, |cost| cost.send));
        });
        if count == 1 {
            bench.bench_function("receive_in_order", |b| {
                b.iter_custom(|rounds| measure(&mut group, rounds, |cost| cost.receive));
            });
        }
        bench.finish();
    }
}

criterion_group!(hot_paths, benches);
criterion_main!(hot_paths);
