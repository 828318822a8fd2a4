//! The network of one run: a random tree, its loss, and the clock of the source.

use netsim::tree::{Role, Shape, Tree};
use netsim::{Duration, LinkConfig, Loss, Node, Rng, Sim, derive_seed};

/// Seed domains of this scenario.
const DOMAIN_TREE: u64 = 1;
const DOMAIN_NODE: u64 = 2;

/// What every protocol of the comparison is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) receivers: u32,
    pub(super) packets: u32,
    /// Share of the packets that a receiver loses, in the mean over all receivers.
    pub(super) loss: f64,
    pub(super) seed: u64,
}

/// Time between two data packets.
pub(super) const GAP: Duration = Duration::from_millis(1);

/// A tree with loss on every link.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) tree: Tree,
    /// Loss probability of each link, each way, for every kind of packet.
    pub(super) link_loss: f64,
    seed: [u8; 32],
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
        seed[8..12].copy_from_slice(&plan.receivers.to_le_bytes());
        let delay = (Duration::from_millis(1), Duration::from_millis(20));
        let shape = Shape {
            receivers: plan.receivers,
            max_fan_out: 8,
            delay,
        };
        let tree = Tree::random(&shape, &mut Rng::new(derive_seed(&seed, DOMAIN_TREE, 0)));
        let link_loss = link_loss(&tree, plan.loss);
        Self {
            plan,
            tree,
            link_loss,
            seed,
        }
    }

    /// The seed of the machine in a node.
    pub(super) fn node_seed(&self, node: u32) -> [u8; 32] {
        derive_seed(&self.seed, DOMAIN_NODE, u64::from(node))
    }

    /// A simulation of this tree.
    pub(super) fn simulate<N: Node>(&self, node: impl FnMut(u32) -> N) -> Sim<N> {
        let mut sim = Sim::new(self.seed);
        let link = LinkConfig::new().loss(Loss::Bernoulli(self.link_loss));
        self.tree.build(&mut sim, node, |_| link);
        sim
    }

    /// Time to the source and back.
    pub(super) fn round_trip(&self, node: u32) -> Duration {
        self.tree.delay(node, 0) * 2
    }

    /// Deepest receiver, and number of routers.
    pub(super) fn figures(&self) -> (u16, u32) {
        let tree = &self.tree;
        let routers = tree
            .nodes()
            .filter(|node| tree.role(*node) == Role::Router)
            .count() as u32;
        let deepest = tree
            .receivers()
            .map(|node| tree.depth(node))
            .max()
            .unwrap_or(0);
        (deepest, routers)
    }
}

/// The loss of one link, so that a receiver loses `loss` in the mean.
fn link_loss(tree: &Tree, loss: f64) -> f64 {
    let receivers = f64::from(tree.receivers().count() as u32);
    let mut at_depth = Vec::new();
    for node in tree.receivers() {
        let depth = usize::from(tree.depth(node));
        at_depth.resize(at_depth.len().max(depth + 1), 0u32);
        at_depth[depth] += 1;
    }
    let mean = |link: f64| -> f64 {
        let lost = at_depth.iter().zip(0i32..);
        lost.map(|(count, depth)| f64::from(*count) * (1.0 - (1.0 - link).powi(depth)))
            .sum::<f64>()
            / receivers
    };
    let (mut low, mut high) = (0.0, loss);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if mean(middle) < loss {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}
