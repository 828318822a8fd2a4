//! Receive in order, receive with a gap, send, answer as replier.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lms_proto::{Iface, Kind, LmsOption, TurningPoint};
use ltp::store::{HeapRing, NullStore, Store};
use ltp::wire::{Seq, data, request};
use ltp::{
    Assist, Duration, Instant, Meta, Parity, Receiver, ReceiverConfig, Sender, SenderConfig,
    SessionId,
};

const SESSION: SessionId = SessionId(7);

fn group() -> SocketAddr {
    "239.1.2.3:5000".parse().expect("address")
}

fn source() -> SocketAddr {
    "10.0.0.1:4000".parse().expect("address")
}

fn sender<S: Store>(
    store: S,
    length: u64,
    integrity: bool,
    segments: usize,
    parity: Option<Parity>,
) -> Sender<'static, S> {
    let mut config = SenderConfig::new(group());
    config.length = Some(length);
    config.session = ltp::SessionChoice::Fixed(SESSION);
    config.integrity = integrity;
    config.max_segments = segments;
    config.parity = parity;
    Sender::new(config, store, [1; 32], Instant::ZERO).expect("configuration")
}

fn started<S: Store>(
    store: S,
    length: u64,
    integrity: bool,
    segments: usize,
    parity: Option<Parity>,
) -> Sender<'static, S> {
    let mut sender = sender(store, length, integrity, segments, parity);
    let mut buffer = [0; 2048];
    while sender.poll_transmit(Instant::ZERO, &mut buffer).is_some() {}
    sender.handle_timeout(Instant::from_millis(100));
    sender
}

/// A receiver that has opened the session of a content of that length.
fn receiver<S: Store>(store: S, length: u64, integrity: bool) -> Receiver<'static, S> {
    let mut config = ReceiverConfig::new(group());
    config.require_integrity = integrity;
    config.assist = Assist::Lms;
    config.replier.rate_bps = 1_000_000_000_000;
    config.replier.turning_point_rate_bps = 1_000_000_000_000;
    config.replier.hold_down = Duration::ZERO;
    let mut receiver = Receiver::new(config, store, [2; 32], Instant::ZERO);
    let mut sender = sender(NullStore, length, integrity, 1, None);
    let mut buffer = [0; 2048];
    let sync = sender
        .poll_transmit(Instant::ZERO, &mut buffer)
        .expect("a heartbeat");
    let meta = Meta::group(source());
    receiver
        .handle_packet(Instant::ZERO, &meta, &buffer[..sync.len])
        .expect("heartbeat");
    receiver
}

fn packet(number: u64, payload_len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; data::DATA_HEADER_LEN + payload_len];
    let repr = data::Repr {
        repair: None,
        session: SESSION,
        sequence: Seq(number as u32),
        number: None,
    };
    repr.emit(&mut packet);
    packet
}

fn in_order<S: Store>(
    criterion: &mut Criterion,
    name: &str,
    integrity: bool,
    make: impl Fn() -> S,
) {
    let mut bench = criterion.benchmark_group("receive_in_order");
    let blocks = 64;
    let length = 1u64 << 40;
    let probe = receiver(make(), length, integrity);
    let geometry = probe.geometry().expect("open");
    let packets: Vec<Vec<u8>> = (0..blocks * u64::from(geometry.packets_per_block()))
        .map(|number| packet(number, usize::from(geometry.payload_len())))
        .collect();
    let meta = Meta::group(source());
    bench.throughput(Throughput::Elements(packets.len() as u64));
    bench.bench_function(BenchmarkId::from_parameter(name), |bencher| {
        bencher.iter_batched_ref(
            || receiver(make(), length, integrity),
            |receiver| {
                for packet in &packets {
                    let _ = receiver.handle_packet(Instant::ZERO, &meta, black_box(packet));
                }
            },
            BatchSize::LargeInput,
        );
    });
    bench.finish();
}

fn receive(criterion: &mut Criterion) {
    in_order(criterion, "no_bytes", false, || NullStore);
    in_order(criterion, "copied", false, || HeapRing::new(1 << 21));
    in_order(criterion, "copied_and_hashed", true, || {
        HeapRing::new(1 << 23)
    });
}

fn receive_with_gap(criterion: &mut Criterion) {
    let length = 1u64 << 40;
    let meta = Meta::group(source());
    let probe = receiver(NullStore, length, false);
    let payload_len = usize::from(probe.geometry().expect("open").payload_len());
    let packets: Vec<Vec<u8>> = (0..1000)
        .filter(|n| n % 10 != 3)
        .map(|n| packet(n, payload_len))
        .collect();
    let mut bench = criterion.benchmark_group("receive_with_gap");
    bench.throughput(Throughput::Elements(packets.len() as u64));
    bench.bench_function("one_in_ten_lost", |bencher| {
        bencher.iter_batched_ref(
            || (receiver(NullStore, length, false), [0u8; 2048]),
            |(receiver, buffer)| {
                let mut now = Instant::ZERO;
                for packet in &packets {
                    now += Duration::from_micros(100);
                    let _ = receiver.handle_packet(now, &meta, black_box(packet));
                    receiver.handle_timeout(now);
                    while receiver.poll_transmit(now, buffer).is_some() {}
                }
            },
            BatchSize::LargeInput,
        );
    });
    bench.finish();
}

/// Packets of a session with parity, as they leave the source; each tenth DATA is lost.
fn lossy_session(length: u64) -> Vec<Vec<u8>> {
    let mut config = SenderConfig::new(group());
    config.length = Some(length);
    config.session = ltp::SessionChoice::Fixed(SESSION);
    config.parity = Some(Parity::Percent(11));
    let store = HeapRing::whole(vec![7; length as usize]);
    let mut sender = Sender::new(config, store, [1; 32], Instant::ZERO).expect("configuration");
    let (mut packets, mut buffer) = (Vec::new(), [0; 2048]);
    let mut data = 0;
    for now in [0, 100].map(Instant::from_millis) {
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            let is_data = buffer[0] & 0xf == 1;
            data += u32::from(is_data);
            if !is_data || data % 10 != 3 {
                packets.push(buffer[..transmit.len].to_vec());
            }
        }
    }
    packets
}

/// One packet in ten is lost and restored from parity.
fn restore(criterion: &mut Criterion) {
    let length = 4 << 20;
    let meta = Meta::group(source());
    let packets = lossy_session(length);
    let mut bench = criterion.benchmark_group("restore");
    bench.throughput(Throughput::Bytes(length));
    bench.bench_function("one_in_ten_lost", |bencher| {
        let receiver = || {
            let config = ReceiverConfig::new(group());
            let store = HeapRing::new(length as usize);
            Receiver::new(config, store, [2; 32], Instant::ZERO)
        };
        bencher.iter_batched_ref(
            receiver,
            |receiver| {
                for packet in &packets {
                    let _ = receiver.handle_packet(Instant::ZERO, &meta, black_box(packet));
                }
                assert_eq!(receiver.progress().0, length, "restored without a request");
            },
            BatchSize::LargeInput,
        );
    });
    bench.finish();
}

fn send(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("send");
    let length = 4 << 20;
    bench.throughput(Throughput::Bytes(length));
    for (name, integrity, segments, parity) in [
        ("single", false, 1, None),
        ("batched", false, 46, None),
        ("batched_and_hashed", true, 46, None),
        (
            "with_a_tenth_of_parity",
            true,
            46,
            Some(Parity::Percent(10)),
        ),
    ] {
        let content = vec![7; length as usize];
        bench.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || {
                    started(
                        HeapRing::whole(content.clone()),
                        length,
                        integrity,
                        segments,
                        parity,
                    )
                },
                |sender| {
                    let mut buffer = [0; 65_536];
                    let now = Instant::from_millis(100);
                    while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
                        black_box(transmit.len);
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
    bench.finish();
}

fn replier(criterion: &mut Criterion) {
    let meta = Meta::group(source());
    let mut machine = receiver(HeapRing::new(1 << 22), 1 << 40, false);
    let payload_len = usize::from(machine.geometry().expect("open").payload_len());
    for number in 0..1000 {
        let packet = packet(number, payload_len);
        machine
            .handle_packet(Instant::ZERO, &meta, &packet)
            .expect("data");
    }
    let router = "10.0.0.254".parse().expect("address");
    let mut asked = Meta::group("10.0.0.9:4000".parse().expect("address"));
    asked.elected = true;
    asked.option = Some(LmsOption {
        kind: Kind::Request,
        turning_point: Some(TurningPoint {
            router,
            iface: Iface(3),
            cookie: 0,
        }),
        source: source().ip(),
        group: group().ip(),
    });
    let mut number = 0;
    let mut now = Instant::ZERO;
    let mut buffer = [0; 2048];
    criterion.bench_function("replier_answers", |bencher| {
        bencher.iter(|| {
            number = (number + 1) % 1000;
            now += Duration::from_micros(100);
            let mut repr = request::Repr {
                kind: request::Kind::Data,
                tag: 1,
                session: SESSION,
                number: 1,
                round_trip_us: 0,
                token: 0,
                nonce: 0,
                ranges: Default::default(),
            };
            let _ = repr.ranges.push(request::Range {
                lo: number,
                hi: number,
            });
            let mut packet = [0; request::REQUEST_LEN];
            repr.emit(&mut packet);
            machine
                .handle_packet(now, &asked, &packet)
                .expect("request");
            black_box(machine.poll_transmit(now, &mut buffer)).expect("repair");
        });
    });
}

criterion_group!(benches, receive, receive_with_gap, restore, send, replier);
criterion_main!(benches);
