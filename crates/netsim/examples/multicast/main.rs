//! Multicasts to a random tree and prints how many events a second that was.
//!
//! `cargo run --release -p netsim --example multicast -- [RECEIVERS [PACKETS]]`

use netsim::tree::{Role, Shape, Tree};
use netsim::{Duration, Instant, Io, LinkConfig, Loss, Node, NodeId, Port, Rng, Sim};

enum Peer {
    Source { left: u32, next: Instant },
    Router { children: u16 },
    Receiver { heard: u32 },
}

impl Node for Peer {
    fn handle_packet(&mut self, _now: Instant, _port: Port, _packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Source { .. } => {}
            Self::Router { children } => io.forward_each((1..=*children).map(Port)),
            Self::Receiver { heard } => *heard += 1,
        }
    }

    fn handle_timeout(&mut self, _now: Instant, io: &mut Io<'_>) {
        if let Self::Source { left, next } = self {
            *left -= 1;
            *next += Duration::from_millis(10);
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

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|arg| arg.parse().expect("a number"));
    let (receivers, packets) = (args.next().unwrap_or(10_000), args.next().unwrap_or(1_000));
    let delay = (Duration::from_millis(1), Duration::from_millis(20));
    let shape = Shape {
        receivers,
        max_fan_out: 8,
        delay,
    };
    let tree = Tree::random(&shape, &mut Rng::new([1; 32]));
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
    let started = std::time::Instant::now();
    sim.run_to_rest();
    let wall_s = started.elapsed().as_secs_f64();
    let heard: u64 = tree
        .receivers()
        .map(|id| match sim.node(NodeId(id)) {
            Some(Peer::Receiver { heard }) => u64::from(*heard),
            _ => 0,
        })
        .sum();
    let sent = u64::from(packets) * u64::from(receivers);
    println!(
        "{heard} of {sent} packets arrived, {:.2} % lost",
        100.0 - 100.0 * heard as f64 / sent as f64
    );
    let events = sim.stats().events;
    println!(
        "{events} events in {wall_s:.2} s: {:.1} ns each",
        wall_s * 1e9 / events as f64
    );
}
