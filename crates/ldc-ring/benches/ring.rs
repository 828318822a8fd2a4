//! Throughput between two threads, each message copied in and out, compared with rings that cannot cancel messages: message
//! by message, and in batches (`ldc_batch`, `rtrb_chunk`). All rings have the same capacity and the same driving loop,
//! and the message size is a compile-time constant. Then the same within one thread, without what passes between the cores,
//! and the cost of cancelling, modifying and holding back.
//!
//! The two threads spin, so their figures are meaningless on a busy machine or with one core.

use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ldc_ring::{Attributes, Shape, channel};

const SLOTS: usize = 1024;
/// Messages in a batch.
const BATCH: usize = 32;

/// Threads that send and receive.
#[derive(Clone, Copy)]
enum Threads {
    /// One sends and receives in turns, a batch at a time.
    One,
    Two,
}

/// Returns the time for `count` messages. `send` gets the number of messages sent and how many more it may send; both
/// return how many they transferred.
fn race(
    threads: Threads,
    count: u64,
    mut send: impl FnMut(u64, usize) -> usize + Send,
    mut receive: impl FnMut() -> usize + Send,
) -> Duration {
    if let Threads::One = threads {
        let start = Instant::now();
        let (mut sent, mut got) = (0, 0);
        while got < count {
            let until = count.min(got + BATCH as u64);
            while sent < until {
                sent += send(sent, (until - sent) as usize) as u64;
            }
            while got < until {
                got += receive() as u64;
            }
        }
        return start.elapsed();
    }
    std::thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            let mut got = 0;
            while got < count {
                match receive() {
                    0 => spin_loop(),
                    some => got += some as u64,
                }
            }
        });
        let start = Instant::now();
        let mut sent = 0;
        while sent < count {
            match send(sent, (count - sent).min(BATCH as u64) as usize) {
                0 => spin_loop(),
                some => sent += some as u64,
            }
        }
        consumer.join().unwrap();
        start.elapsed()
    })
}

fn ldc<const N: usize>(threads: Threads, count: u64) -> Duration {
    let (mut producer, mut consumer) = channel(Shape::new(SLOTS as u32, N as u32).unwrap());
    let from = [7u8; N];
    let mut to = [0u8; N];
    race(
        threads,
        count,
        move |seq, _| {
            let bytes: &[u8; N] = black_box(&from);
            let sent = producer.send(seq, bytes, Attributes::default());
            usize::from(sent.is_ok())
        },
        move || match consumer.claim(None).unwrap() {
            Some(message) => {
                consumer.read(&message, 0, &mut to);
                black_box(&to);
                consumer.complete(message);
                1
            }
            None => 0,
        },
    )
}

fn ldc_batch<const N: usize>(threads: Threads, count: u64) -> Duration {
    let (mut producer, mut consumer) = channel(Shape::new(SLOTS as u32, N as u32).unwrap());
    let from = [7u8; N];
    let mut to = [0u8; N];
    let mut claimed = Vec::with_capacity(BATCH);
    race(
        threads,
        count,
        move |seq, room| {
            let mut batch = producer.batch();
            let mut sent = 0;
            while sent < room {
                let (seq, bytes) = (seq + sent as u64, black_box(&from));
                if batch.send(seq, bytes, Attributes::default()).is_err() {
                    break;
                }
                sent += 1;
            }
            sent
        },
        move || {
            claimed.extend(consumer.claims(None).take(BATCH).map(Result::unwrap));
            for message in &claimed {
                consumer.read(message, 0, &mut to);
                black_box(&to);
            }
            let count = claimed.len();
            consumer.complete_all(claimed.drain(..));
            count
        },
    )
}

fn rtrb<const N: usize>(threads: Threads, count: u64) -> Duration {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<[u8; N]>::new(SLOTS);
    let from = [7u8; N];
    race(
        threads,
        count,
        move |_, _| usize::from(producer.push(*black_box(&from)).is_ok()),
        move || match consumer.pop() {
            Ok(message) => {
                black_box(&message);
                1
            }
            Err(_) => 0,
        },
    )
}

fn rtrb_chunk<const N: usize>(threads: Threads, count: u64) -> Duration {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<[u8; N]>::new(SLOTS);
    let from = [7u8; N];
    race(
        threads,
        count,
        move |_, room| {
            let room = room.min(producer.slots());
            let chunk = producer.write_chunk_uninit(room).unwrap();
            chunk.fill_from_iter(std::iter::repeat_with(|| *black_box(&from)))
        },
        move || {
            let count = consumer.slots().min(BATCH);
            for message in consumer.read_chunk(count).unwrap() {
                black_box(&message);
            }
            count
        },
    )
}

fn crossbeam<const N: usize>(threads: Threads, count: u64) -> Duration {
    let queue = crossbeam_queue::ArrayQueue::<[u8; N]>::new(SLOTS);
    let from = [7u8; N];
    race(
        threads,
        count,
        |_, _| usize::from(queue.push(*black_box(&from)).is_ok()),
        || match queue.pop() {
            Some(message) => {
                black_box(&message);
                1
            }
            None => 0,
        },
    )
}

fn ringbuf<const N: usize>(threads: Threads, count: u64) -> Duration {
    use ringbuf::HeapRb;
    use ringbuf::traits::{Consumer, Producer, Split};
    let (mut producer, mut consumer) = HeapRb::<[u8; N]>::new(SLOTS).split();
    let from = [7u8; N];
    race(
        threads,
        count,
        move |_, _| usize::from(producer.try_push(*black_box(&from)).is_ok()),
        move || match consumer.try_pop() {
            Some(message) => {
                black_box(&message);
                1
            }
            None => 0,
        },
    )
}

type Ring = fn(Threads, u64) -> Duration;

fn rings<const N: usize>() -> [(&'static str, Ring); 6] {
    [
        ("ldc", ldc::<N>),
        ("rtrb", rtrb::<N>),
        ("ldc_batch", ldc_batch::<N>),
        ("rtrb_chunk", rtrb_chunk::<N>),
        ("crossbeam", crossbeam::<N>),
        ("ringbuf", ringbuf::<N>),
    ]
}

fn throughput(c: &mut Criterion) {
    let sizes = [
        (64, rings::<64>()),
        (256, rings::<256>()),
        (1460, rings::<1460>()),
    ];
    for (name, threads) in [("two_threads", Threads::Two), ("one_thread", Threads::One)] {
        for (size, rings) in &sizes {
            let mut group = c.benchmark_group(name);
            group.throughput(Throughput::Elements(1));
            for (ring, run) in rings {
                group.bench_function(BenchmarkId::new(*ring, size), |b| {
                    b.iter_custom(|count| run(threads, count));
                });
            }
            group.finish();
        }
    }
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

criterion_group!(benches, throughput, change);
criterion_main!(benches);
