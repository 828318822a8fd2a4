//! Events a second: the queue and links with nodes that do nothing of their own.

#[path = "../examples/multicast/network.rs"]
mod network;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use network::Peer;

fn multicast(c: &mut Criterion) {
    let mut group = c.benchmark_group("multicast");
    for receivers in [100, 10_000] {
        let tree = network::tree(receivers);
        let packets = 1_000_000 / receivers;
        let sim = network::run(&tree, packets);
        let heard = |node: &Peer| matches!(node, Peer::Receiver { heard } if *heard > 0);
        assert!(sim.nodes().any(|(_, node)| heard(node)), "packets arrive");
        group.throughput(Throughput::Elements(sim.stats().events));
        group.sample_size(10);
        group.bench_function(format!("{receivers} receivers"), |b| {
            b.iter(|| network::run(&tree, packets).stats().events);
        });
    }
    group.finish();
}

criterion_group!(benches, multicast);
criterion_main!(benches);
