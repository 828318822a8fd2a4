//! Cost of an announcement that arrives: its header and its description are parsed before its host is counted against a bound.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{Criterion, criterion_group, criterion_main};
use sap::{Description, Media, Origin, Packet};

fn announcement() -> Vec<u8> {
    let group: SocketAddr = "239.1.2.3:5004".parse().unwrap();
    let media = [("video", "33"), ("audio", "14")];
    let media = media.map(|(kind, format)| Media::new(kind, group, "RTP/AVP", format));
    let origin = Origin {
        session: "- 1".into(),
        address: "studio.example".into(),
        version: 1,
    };
    Packet {
        deletion: false,
        hash: 1,
        source: [192, 0, 2, 1].into(),
        payload: Description::new("Evening news", media.into())
            .emit(&origin)
            .as_bytes(),
    }
    .emit()
}

fn parse(c: &mut Criterion) {
    let bytes = announcement();
    let mut group = c.benchmark_group("parse");
    group.bench_function("packet", |b| {
        b.iter(|| Packet::parse(black_box(&bytes)).is_ok());
    });
    group.bench_function("packet and description", |b| {
        b.iter(|| {
            let packet = Packet::parse(black_box(&bytes)).unwrap();
            Description::parse(packet.payload).unwrap()
        });
    });
    // The time of a copy of all lines, which a parser that owns its text needs at least.
    group.bench_function("baseline", |b| {
        b.iter(|| {
            let text = String::from_utf8_lossy(black_box(&bytes));
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        });
    });
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
