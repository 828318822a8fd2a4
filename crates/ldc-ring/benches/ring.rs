//! Throughput between two threads, each message copied in and out, compared with rings that cannot cancel messages. All
//! rings have the same capacity and the same driving loop, and the message size is a compile-time constant. Then the
//! cost of cancelling, modifying and holding back.
//!
//! The two threads spin, so the figures are meaningless on a busy machine or with one core.

use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ldc_ring::{Attributes, Shape, channel};

const SLOTS: usize = 1024;

/// Returns the time for `count` messages; `send` and `receive` return whether they transferred one.
fn race(
    count: u64,
    mut send: impl FnMut(u64) -> bool + Send,
    mut receive: impl FnMut() -> bool + Send,
) -> Duration {
    std::thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            let mut got = 0;
            while got < count {
                if receive() {
                    got += 1;
                } else {
                    spin_loop();
                }
            }
        });
        let start = Instant::now();
        let mut sent = 0;
        while sent < count {
            if send(sent) {
                sent += 1;
            } else {
                spin_loop();
            }
        }
        consumer.join().unwrap();
        start.elapsed()
    })
}

fn ldc<const N: usize>(count: u64) -> Duration {
    let (mut producer, mut consumer) = channel(Shape::new(SLOTS as u32, N as u32).unwrap());
    let from = [7u8; N];
    let mut to = [0u8; N];
    race(
        count,
        move |seq| {
            let bytes: &[u8; N] = black_box(&from);
            producer.send(seq, bytes, Attributes::default()).is_ok()
        },
        move || match consumer.claim(None).unwrap() {
            Some(message) => {
                consumer.read(&message, 0, &mut to);
                black_box(&to);
                consumer.complete(message);
                true
            }
            None => false,
        },
    )
}

fn rtrb<const N: usize>(count: u64) -> Duration {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<[u8; N]>::new(SLOTS);
    let from = [7u8; N];
    race(
        count,
        move |_| producer.push(*black_box(&from)).is_ok(),
        move || match consumer.pop() {
            Ok(message) => {
                black_box(&message);
                true
            }
            Err(_) => false,
        },
    )
}

fn crossbeam<const N: usize>(count: u64) -> Duration {
    let queue = crossbeam_queue::ArrayQueue::<[u8; N]>::new(SLOTS);
    let from = [7u8; N];
    race(
        count,
        |_| queue.push(*black_box(&from)).is_ok(),
        || match queue.pop() {
            Some(message) => {
                black_box(&message);
                true
            }
            None => false,
        },
    )
}

fn ringbuf<const N: usize>(count: u64) -> Duration {
    use ringbuf::HeapRb;
    use ringbuf::traits::{Consumer, Producer, Split};
    let (mut producer, mut consumer) = HeapRb::<[u8; N]>::new(SLOTS).split();
    let from = [7u8; N];
    race(
        count,
        move |_| producer.try_push(*black_box(&from)).is_ok(),
        move || match consumer.try_pop() {
            Some(message) => {
                black_box(&message);
                true
            }
            None => false,
        },
    )
}

fn two_threads(c: &mut Criterion) {
    fn size<const N: usize>(c: &mut Criterion) {
        let mut group = c.benchmark_group("two_threads");
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("ldc", N), |b| b.iter_custom(ldc::<N>));
        group.bench_function(BenchmarkId::new("rtrb", N), |b| b.iter_custom(rtrb::<N>));
        group.bench_function(BenchmarkId::new("crossbeam", N), |b| {
            b.iter_custom(crossbeam::<N>);
        });
        group.bench_function(BenchmarkId::new("ringbuf", N), |b| {
            b.iter_custom(ringbuf::<N>);
        });
        group.finish();
    }
    size::<64>(c);
    size::<256>(c);
    size::<1460>(c);
}

/// Changes of mind in a ring full of messages.
fn change(c: &mut Criterion) {
    let mut group = c.benchmark_group("change");
    let full = || {
        let (mut producer, consumer) = channel(Shape::new(SLOTS as u32, 1460).unwrap());
        for seq in 0..SLOTS as u64 {
            producer
                .send(seq, &[7; 1460], Attributes::default())
                .unwrap();
        }
        (producer, consumer)
    };
    group.bench_function("drop", |b| {
        b.iter_custom(|iters| {
            let mut spent = Duration::ZERO;
            let mut left = iters;
            while left > 0 {
                let (mut producer, _consumer) = full();
                let round = left.min(SLOTS as u64);
                let start = Instant::now();
                for seq in 0..round {
                    // Here and there in the ring: no order to rely on.
                    let seq = (seq * 613) % SLOTS as u64;
                    black_box(producer.cancel(black_box(seq)));
                }
                spent += start.elapsed();
                left -= round;
            }
            spent
        });
    });
    group.bench_function("modify", |b| {
        let (mut producer, _consumer) = full();
        let mut seq = 0;
        b.iter(|| {
            seq = (seq + 613) % SLOTS as u64;
            producer
                .modify(black_box(seq), |payload| payload.write(0, &[1; 8]))
                .unwrap();
        });
    });
    group.bench_function("hold_back_and_release", |b| {
        let (mut producer, _consumer) = full();
        b.iter(|| {
            black_box(producer.hold_back(black_box(1000)));
            producer.release();
        });
    });
    group.finish();
}

criterion_group!(benches, two_threads, change);
criterion_main!(benches);
