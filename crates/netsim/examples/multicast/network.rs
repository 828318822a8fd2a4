//! A source that multicasts to a random tree of routers and receivers.

use netsim::tree::{Role, Shape, Tree};
use netsim::{Duration, Instant, Io, LinkConfig, Loss, Node, Port, Rng, Sim};

/// A node of the tree.
pub(crate) enum Peer {
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

    fn handle_timeout(&mut self, _now: Instant, io: &mut Io<'_>) {
        if let Self::Source { left, next } = self {
            *left -= 1;
            *next += Duration::from_millis(1);
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

/// A random tree with this number of receivers.
pub(crate) fn tree(receivers: u32) -> Tree {
    let shape = Shape {
        receivers,
        max_fan_out: 8,
        delay: (Duration::from_millis(1), Duration::from_millis(20)),
    };
    Tree::random(&shape, &mut Rng::new([1; 32]))
}

/// Sends this number of packets down the tree. Returns the simulation at its end.
pub(crate) fn run(tree: &Tree, packets: u32) -> Sim<Peer> {
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
    let link = LinkConfig::new().loss(Loss::Bernoulli(0.001));
    tree.build(&mut sim, node, |_| link);
    sim.run_to_rest();
    sim
}
