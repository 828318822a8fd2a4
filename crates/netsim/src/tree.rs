//! Distribution trees: one source, routers below it, receivers at the leaves.
//!
//! Nodes are numbered in depth-first order: the source is 0, its router 1, and the nodes below any node have
//! consecutive numbers. So a node's address is a base plus its number, and a router finds the port for any address
//! by comparing numbers.

use std::net::Ipv4Addr;

use proto_core::time::Duration;

use crate::link::LinkConfig;
use crate::node::{Node, NodeId, Port};
use crate::rng::Rng;
use crate::sim::Sim;

/// Role of a node in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Node 0; its only link (port 0) leads to node 1.
    Source,
    /// Has children.
    Router,
    /// Has none.
    Receiver,
}

/// Parameters of a random tree.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Receivers, at least 1.
    pub receivers: u32,
    /// Children of a router: from 2 to this, at random.
    pub max_fan_out: u32,
    /// Delay of each link, at random between these two.
    pub delay: (Duration, Duration),
}

/// A tree. Port 0 of each node leads up (down for the source), ports 1, 2 ... to its children.
#[derive(Clone, Debug)]
pub struct Tree {
    parent: Vec<u32>,
    /// One past the last node below this one.
    end: Vec<u32>,
    delay_us: Vec<u32>,
    depth: Vec<u16>,
    /// Children of node i: `children[first_child[i]..first_child[i + 1]]`.
    first_child: Vec<u32>,
    children: Vec<u32>,
    /// Port of the parent that leads to this node.
    parent_port: Vec<u16>,
}

/// Address of node 0.
const BASE: u32 = u32::from_be_bytes([10, 0, 0, 1]);

impl Tree {
    /// Creates a random tree: a router with n receivers below it has a random number of children and splits n among
    /// them at random; a child with one receiver is that receiver.
    ///
    /// # Panics
    ///
    /// No receivers, or more than 2^23.
    #[must_use]
    pub fn random(shape: &Shape, rng: &mut Rng) -> Self {
        assert!(
            (1..=1 << 23).contains(&shape.receivers),
            "1 to 2^23 receivers"
        );
        let mut parent = vec![0, 0];
        // (receivers to place, parent), the next in depth-first order last.
        let mut stack = vec![];
        split(shape.receivers, 1, shape.max_fan_out, rng, &mut stack);
        while let Some((receivers, above)) = stack.pop() {
            let id = parent.len() as u32;
            parent.push(above);
            if receivers > 1 {
                split(receivers, id, shape.max_fan_out, rng, &mut stack);
            }
        }
        let (low, high) = (shape.delay.0.total_micros(), shape.delay.1.total_micros());
        let delays = (0..parent.len()).map(|_| Duration::from_micros(rng.between(low, high)));
        let delays: Vec<_> = delays.collect();
        Self::from_parents(&parent, &delays)
    }

    /// Creates the tree in which node `i` is linked to `parent[i]` with a delay of `delay[i]`. Entry 0 (the source)
    /// is ignored.
    ///
    /// # Panics
    ///
    /// Unless nodes are in depth-first order and node 1 is the source's only child.
    #[must_use]
    pub fn from_parents(parent: &[u32], delay: &[Duration]) -> Self {
        let len = parent.len();
        assert!(
            len >= 2 && delay.len() == len,
            "a source, a node below it, a delay for each"
        );
        assert!(
            parent[2..].iter().all(|above| *above > 0),
            "only node 1 is below the source"
        );
        let mut end: Vec<u32> = (1..=len as u32).collect();
        for node in (1..len).rev() {
            let above = parent[node] as usize;
            assert!(above < node, "parents come before their children");
            end[above] = end[above].max(end[node]);
        }
        let mut depth = vec![0u16; len];
        let mut path = vec![0]; // from the source to the node before
        for node in 1..len as u32 {
            let above = parent[node as usize];
            while path.pop_if(|last| *last != above).is_some() {}
            assert!(
                !path.is_empty(),
                "depth-first order: node {node} is not below the one before"
            );
            path.push(node);
            depth[node as usize] = (path.len() - 1) as u16;
        }
        let (first_child, children, parent_port) = children_of(parent);
        let delay_us = delay
            .iter()
            .map(|delay| delay.total_micros() as u32)
            .collect();
        Self {
            parent: parent.to_vec(),
            end,
            delay_us,
            depth,
            first_child,
            children,
            parent_port,
        }
    }

    /// Returns the number of nodes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a tree is never empty")]
    pub fn len(&self) -> u32 {
        self.parent.len() as u32
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.len()
    }

    /// Returns the role of this node.
    #[must_use]
    pub fn role(&self, node: u32) -> Role {
        match node {
            0 => Role::Source,
            _ if self.end[node as usize] > node + 1 => Role::Router,
            _ => Role::Receiver,
        }
    }

    /// Returns the receivers.
    pub fn receivers(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes()
            .filter(|node| self.role(*node) == Role::Receiver)
    }

    /// Returns the parent; the source is its own.
    #[must_use]
    pub fn parent(&self, node: u32) -> u32 {
        self.parent[node as usize]
    }

    /// Returns the children, at the ports 1, 2 ... (for the source: at its port 0).
    #[must_use]
    pub fn children(&self, node: u32) -> &[u32] {
        let first = self.first_child[node as usize] as usize;
        &self.children[first..self.first_child[node as usize + 1] as usize]
    }

    /// Returns the ports to children.
    pub fn child_ports(&self, node: u32) -> impl Iterator<Item = Port> + use<> {
        let first = u16::from(node != 0);
        (first..first + self.children(node).len() as u16).map(Port)
    }

    /// Returns the node and all below it.
    #[must_use]
    pub fn below(&self, node: u32) -> std::ops::Range<u32> {
        node..self.end[node as usize]
    }

    /// Returns the number of links between the source and this node.
    #[must_use]
    pub fn depth(&self, node: u32) -> u16 {
        self.depth[node as usize]
    }

    /// Returns the delay of the link to the parent.
    #[must_use]
    pub fn link_delay(&self, node: u32) -> Duration {
        Duration::from_micros(u64::from(self.delay_us[node as usize]))
    }

    /// Returns the delay of the path between two nodes.
    #[must_use]
    pub fn delay(&self, mut a: u32, mut b: u32) -> Duration {
        let mut sum_us = 0;
        while a != b {
            let lower = if self.depth[a as usize] >= self.depth[b as usize] {
                &mut a
            } else {
                &mut b
            };
            sum_us += u64::from(self.delay_us[*lower as usize]);
            *lower = self.parent[*lower as usize];
        }
        Duration::from_micros(sum_us)
    }

    /// Returns the address of a node: 10.0.0.1 for the source, and so on.
    #[must_use]
    pub fn address(&self, node: u32) -> Ipv4Addr {
        Ipv4Addr::from(BASE + node)
    }

    /// Returns the node with this address.
    #[must_use]
    pub fn node_at(&self, address: Ipv4Addr) -> Option<u32> {
        u32::from(address)
            .checked_sub(BASE)
            .filter(|node| *node < self.len())
    }

    /// Returns the port of `at` on the path to `to`; `None` at the destination.
    #[must_use]
    pub fn port_towards(&self, at: u32, to: u32) -> Option<Port> {
        if at == to {
            return None;
        }
        if at == 0 || !self.below(at).contains(&to) {
            return Some(Port(0));
        }
        let below = self.children(at).partition_point(|child| *child <= to);
        Some(Port(below as u16))
    }

    /// Returns the port of the parent that leads to this node.
    #[must_use]
    pub fn parent_port(&self, node: u32) -> Port {
        Port(self.parent_port[node as usize])
    }

    /// Adds all nodes and links to an empty simulation, so that the tree's numbers are the
    /// simulation's, and the link of node i to its parent has number i - 1 and its first end above.
    ///
    /// # Panics
    ///
    /// The simulation is not empty.
    pub fn build<N: Node>(
        &self,
        sim: &mut Sim<N>,
        mut node: impl FnMut(u32) -> N,
        mut link: impl FnMut(u32) -> LinkConfig,
    ) {
        sim.reserve(self.parent.len(), self.parent.len() - 1);
        for id in self.nodes() {
            assert_eq!(
                sim.add_node(node(id)),
                NodeId(id),
                "the simulation was empty"
            );
        }
        for id in 1..self.len() {
            let parent = NodeId(self.parent(id));
            sim.add_link(parent, NodeId(id), link(id).delay(self.link_delay(id)));
        }
    }
}

/// Splits `receivers` among a random number of children of `above`, pushed last child first.
fn split(receivers: u32, above: u32, max_fan_out: u32, rng: &mut Rng, stack: &mut Vec<(u32, u32)>) {
    let max = u64::from(max_fan_out.max(2).min(receivers));
    let fan_out = rng.between(2.min(max), max) as usize;
    // Each child gets one receiver; the rest is split by random weights.
    let weights: Vec<f64> = (0..fan_out).map(|_| 0.05 + rng.unit()).collect();
    let total: f64 = weights.iter().sum();
    let rest = receivers - fan_out as u32;
    let mut left = rest;
    for (index, weight) in weights.iter().enumerate() {
        let share = (f64::from(rest) * weight / total) as u32;
        let share = if index + 1 == fan_out {
            left
        } else {
            share.min(left)
        };
        left -= share;
        stack.push((1 + share, above));
    }
}

fn children_of(parent: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u16>) {
    let len = parent.len();
    let mut first_child = vec![0u32; len + 1];
    for above in &parent[1..] {
        first_child[*above as usize + 1] += 1;
    }
    for node in 0..len {
        first_child[node + 1] += first_child[node];
    }
    let mut fill = first_child.clone();
    let mut children = vec![0; len - 1];
    let mut parent_port = vec![0u16; len];
    for node in 1..len {
        let above = parent[node] as usize;
        let place = fill[above];
        children[place as usize] = node as u32;
        let index = (place - first_child[above]) as u16;
        parent_port[node] = index + u16::from(above != 0);
        fill[above] += 1;
    }
    (first_child, children, parent_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(receivers: u32, seed: u8) -> Tree {
        let delay = (Duration::from_millis(1), Duration::from_millis(20));
        Tree::random(
            &Shape {
                receivers,
                max_fan_out: 8,
                delay,
            },
            &mut Rng::new([seed; 32]),
        )
    }

    #[test]
    fn every_tree_has_its_receivers_and_a_way_between_any_two_nodes() {
        for seed in 0..20 {
            for receivers in [1, 2, 3, 10, 100] {
                let tree = random(receivers, seed);
                assert_eq!(tree.receivers().count(), receivers as usize);
                for a in tree.nodes() {
                    assert_eq!(tree.node_at(tree.address(a)), Some(a));
                    for b in tree.nodes() {
                        assert_eq!(walk(&tree, a, b), tree.delay(a, b));
                    }
                }
            }
        }
    }

    /// Follows the ports from `a` to `b`.
    fn walk(tree: &Tree, mut a: u32, b: u32) -> Duration {
        let mut sum = Duration::ZERO;
        while let Some(port) = tree.port_towards(a, b) {
            let first = usize::from(a != 0);
            let down = tree
                .children(a)
                .get(usize::from(port.0).wrapping_sub(first));
            let next = down.copied().unwrap_or_else(|| tree.parent(a));
            if next > a {
                assert_eq!(tree.parent_port(next), port);
            }
            sum += tree.link_delay(next.max(a));
            a = next;
        }
        sum
    }

    #[test]
    fn delays_are_within_bounds_and_depth_is_moderate() {
        let tree = random(10_000, 1);
        for node in 1..tree.len() {
            let delay = tree.link_delay(node).total_micros();
            assert!((1_000..=20_000).contains(&delay));
        }
        let deepest = tree.nodes().map(|node| tree.depth(node)).max().unwrap();
        assert!((6..40).contains(&deepest), "{deepest}");
    }

    #[test]
    #[should_panic(expected = "depth-first order")]
    fn other_orders_are_refused() {
        let _ = Tree::from_parents(&[0, 0, 1, 1, 2], &[Duration::ZERO; 5]);
    }
}
