//! Cost of scanning a stream for units in a container, which every byte of an HTTP session goes through.
//!
//! Pieces of 1,316 bytes are datagrams of MPEG-TS, 16 KiB what a source of HTTP writes. The baseline looks at each byte
//! for a start code and does nothing else.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use media::Reader;

const SAMPLES: [(&str, &[u8]); 3] = [
    ("ts", include_bytes!("../tests/samples/h264.ts")),
    ("mp4", include_bytes!("../tests/samples/h264.mp4")),
    ("webm", include_bytes!("../tests/samples/vp8.webm")),
];

/// Scans a stream and returns the number of its units.
fn units(stream: &[u8], piece: usize) -> usize {
    let (mut reader, mut count) = (Reader::new(), 0);
    for piece in stream.chunks(piece) {
        reader.push(piece);
        while let Some(event) = reader.poll_event() {
            black_box(&event);
            count += 1;
        }
    }
    count
}

fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("scan");
    for (name, stream) in SAMPLES {
        assert!(units(stream, 1316) > 10, "{name}");
        group.throughput(Throughput::Bytes(stream.len() as u64));
        for piece in [1316, 16_384] {
            group.bench_function(BenchmarkId::new(name, piece), |b| {
                b.iter(|| units(black_box(stream), piece));
            });
        }
    }
    let stream = SAMPLES[0].1;
    group.throughput(Throughput::Bytes(stream.len() as u64));
    group.bench_function("baseline", |b| {
        let is_start = |three: &&[u8]| **three == [0, 0, 1];
        b.iter(|| black_box(stream).windows(3).filter(is_start).count());
    });
    group.finish();
}

criterion_group!(benches, scan);
criterion_main!(benches);
