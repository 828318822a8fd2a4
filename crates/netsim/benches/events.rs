//! Events a second: the queue and links with nodes that do nothing of their own.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use netsim::tree::{Role, Shape, Tree};
use netsim::{Duration, Instant, Io, LinkConfig, Loss, Node, Port, Rng, Sim};

enum Peer {
    Source { left: u32, next: Instant },
    Router { children: u16 },
    Receiver { heard: u64 },
}

impl Node for Peer {
    fn handle_packet(&mut self, _now: Instant, _port: Port, _packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Source { .. } => {}
            Self::Router { children } => io.forward_each((1..=*children).map(Port)),
            Self::Receiver { heard } => *heard += 1,
        }
    }
    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        if let Self::Source { left, next } = self {
            *left -= 1;
            *next = now + Duration::from_millis(1);
            io.send(Port(0), &[0; 64]);
        }
    }
    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Source { left, next } => (*left > 0).then_some(*next),
            _ => None,
        }
    }
}

fn run(tree: &Tree, packets: u32) -> u64 {
    let mut sim = Sim::new([1; 32]);
    let node = |id| match tree.role(id) {
        Role::Source => Peer::Source {
            left: packets,
            next: Instant::ZERO,
        },
        Role::Router => Peer::Router {
            children: tree.children(id).len() as u16,
        },
        Role::Receiver => Peer::Receiver { heard: 0 },
    };
    tree.build(&mut sim, node, |_| {
        LinkConfig::new().loss(Loss::Bernoulli(0.001))
    });
    sim.run_to_rest();
    sim.stats().events
}

fn multicast(c: &mut Criterion) {
    let mut group = c.benchmark_group("multicast");
    for receivers in [100, 10_000] {
        let delay = (Duration::from_millis(1), Duration::from_millis(20));
        let shape = Shape {
            receivers,
            max_fan_out: 8,
            delay,
        };
        let tree = Tree::random(&shape, &mut Rng::new([2; 32]));
        let packets = 1_000_000 / receivers;
        group.throughput(Throughput::Elements(run(&tree, packets)));
        group.sample_size(10);
        group.bench_function(format!("{receivers} receivers"), |b| {
            b.iter(|| run(&tree, packets));
        });
    }
    group.finish();
}

criterion_group!(benches, multicast);
criterion_main!(benches);
