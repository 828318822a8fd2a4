//! The network of one run: a random tree, its loss, and the clock of the source.

use netsim::tree::{Role, Shape, Tree};
use netsim::{
    Disposition, Duration, Instant, LinkConfig, Loss, Node, Record, Rng, Sim, derive_seed,
};

/// Seed domains of this scenario.
const DOMAIN_TREE: u64 = 1;
const DOMAIN_NODE: u64 = 2;
const DOMAIN_LOSS: u64 = 3;

/// What every protocol of the comparison is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) receivers: u32,
    pub(super) packets: u32,
    /// Share of the packets that a receiver loses, on average over all receivers.
    pub(super) loss: f64,
    pub(super) seed: u64,
}

/// Time between two data packets.
pub(super) const GAP: Duration = Duration::from_millis(1);

/// When the first data packet leaves. Hosts and routers are there from 0 on: LMS-HIER has had time
/// for one refresh (every 10 s), which mends what its own lost messages broke.
pub(super) const BEGIN: Instant = Instant::from_micros(12_000_000);

/// Time to repair everything after the last packet.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// A tree with loss on every link.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) tree: Tree,
    /// Loss probability of each link, each way, for every kind of packet.
    pub(super) link_loss: f64,
    /// Data packets that at least one receiver loses, and (receiver, packet) pairs lost.
    pub(super) packets_lost: u32,
    pub(super) lost_pairs: u64,
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
        let mut world = Self {
            plan,
            tree,
            link_loss,
            packets_lost: 0,
            lost_pairs: 0,
            seed,
        };
        world.count_losses();
        world
    }

    /// Follows each data packet down the tree.
    fn count_losses(&mut self) {
        let (tree, losses) = (&self.tree, self.losses());
        let receivers: Vec<bool> = tree
            .nodes()
            .map(|node| tree.role(node) == Role::Receiver)
            .collect();
        for sequence in 0..self.plan.packets {
            let mut lost = 0;
            let mut node = 1;
            while node < tree.len() {
                if losses.lose(node - 1, sequence) {
                    let below = tree.below(node);
                    node = below.end;
                    let all = &receivers[below.start as usize..below.end as usize];
                    lost += all.iter().filter(|is| **is).count() as u64;
                } else {
                    node += 1;
                }
            }
            self.lost_pairs += lost;
            self.packets_lost += u32::from(lost > 0);
        }
    }

    /// The seed of the machine in a node.
    pub(super) fn node_seed(&self, node: u32) -> [u8; 32] {
        derive_seed(&self.seed, DOMAIN_NODE, u64::from(node))
    }

    /// A simulation of this tree. Whether a data packet is lost on a link depends on the link, the
    /// packet's sequence (as `data_sequence` reads it) and the loss seed, and on nothing else: every
    /// protocol loses the same. All other packets are lost by chance, with the same probability.
    pub(super) fn simulate<N: Node>(
        &self,
        data_sequence: impl Fn(&Record<'_>) -> Option<u32> + 'static,
        node: impl FnMut(u32) -> N,
    ) -> Sim<N> {
        let mut sim = Sim::new(self.seed);
        let link = LinkConfig::new().loss(Loss::Bernoulli(self.link_loss));
        self.tree.build(&mut sim, node, |_| link);
        let losses = self.losses();
        sim.script(move |record| match data_sequence(record) {
            Some(sequence) if losses.lose(record.link, sequence) => Disposition::Lose,
            Some(_) => Disposition::Pass,
            None => Disposition::Chance,
        });
        sim
    }

    /// The losses of data packets.
    pub(super) fn losses(&self) -> Losses {
        let mut rng = Rng::new(derive_seed(&self.seed, DOMAIN_LOSS, 0));
        Losses {
            key: [rng.next_u64(), rng.next_u64()],
            below: (self.link_loss * 2f64.powi(64)) as u64,
        }
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

/// Which data packet is lost on which link: a keyed hash of both, below a threshold.
#[derive(Clone, Copy)]
pub(super) struct Losses {
    key: [u64; 2],
    below: u64,
}

impl Losses {
    /// Is this packet lost on this link?
    #[inline]
    pub(super) fn lose(self, link: u32, sequence: u32) -> bool {
        // The finalizer of SplitMix64, twice, with a key before each.
        let mix = |x: u64| {
            let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        let place = u64::from(link) << 32 | u64::from(sequence);
        mix(mix(place ^ self.key[0]) ^ self.key[1]) < self.below
    }
}

/// The loss of one link, so that a receiver loses `loss` on average.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn world(seed: u64) -> World {
        World::new(Plan {
            receivers: 200,
            packets: 1000,
            loss: 0.05,
            seed,
        })
    }

    /// Losses have their rate, and neither links nor packets depend on one another.
    #[test]
    fn losses_are_independent_and_have_their_rate() {
        let world = world(1);
        let (losses, p) = (world.losses(), world.link_loss);
        let links = world.tree.len() - 1;
        let packets = 20_000;
        let (mut lost, mut next, mut beside) = (0.0, 0.0, 0.0);
        for link in 0..links {
            for sequence in 0..packets {
                if losses.lose(link, sequence) {
                    lost += 1.0;
                    next += f64::from(u8::from(losses.lose(link, sequence + 1)));
                    beside += f64::from(u8::from(losses.lose(link + 1, sequence)));
                }
            }
        }
        // Five standard deviations of a binomial count.
        let near = |count: f64, of: f64| (count - of * p).abs() < 5.0 * (of * p * (1.0 - p)).sqrt();
        assert!(near(lost, f64::from(links * packets)), "{lost} losses");
        assert!(near(next, lost), "{next} of {lost} in a row");
        assert!(
            near(beside, lost),
            "{beside} of {lost} on the next link too"
        );
    }

    #[test]
    fn another_seed_is_another_tree_with_other_losses() {
        let (a, b) = (world(1), world(2));
        let of = |world: &World| -> Vec<bool> {
            let losses = world.losses();
            (0..1000).map(|sequence| losses.lose(1, sequence)).collect()
        };
        assert_ne!(of(&a), of(&b));
        assert_ne!(a.tree.len(), b.tree.len());
    }
}
