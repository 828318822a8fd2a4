//! The plan of a network: nodes, links, addresses and shortest paths; no kernel involved.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A node of a plan: its place in the order in which nodes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// A link of a plan: its place in the order in which links were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub usize);

/// The effect of a link on packets, equal in both directions. The default is a plain wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// One-way delay.
    pub delay: Duration,
    /// Added to each frame's delay: a random time up to this, without overtaking. Frames of senders whose
    /// packets are all spaced by the same bottleneck otherwise meet its queue in a fixed order, and a full
    /// queue drops those of one of them alone (`docs/decisions/0014-phases.md`).
    pub jitter: Duration,
    /// Bits a second, Ethernet frames counted whole; 0 for no limit.
    pub rate_bps: u64,
    /// Bytes that wait for the link before more are dropped; 0 for 256 KiB.
    pub queue_bytes: usize,
    /// Probability that a frame is lost (ARP and IPv6's neighbour discovery are exempt: their one-second retry would
    /// dominate what is measured).
    pub loss: f64,
    /// Mean number of frames that are lost one after the other (the model of Gilbert: a link is good or bad, and loses
    /// everything while it is bad); up to 1, each frame is lost independently. `loss` stays the mean.
    pub loss_burst: f64,
    /// Probability that a frame is held back long enough for others to overtake it.
    pub reorder: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Frames are lost, held back and doubled only on their way to the first node of the link (of a
    /// shared link's port: to its node), not from it.
    pub inbound_only: bool,
}

impl Shape {
    /// What happens to frames on their way from the first node, when it differs.
    pub(crate) fn outbound(self) -> Shape {
        if !self.inbound_only {
            return self;
        }
        Shape {
            loss: 0.0,
            loss_burst: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            ..self
        }
    }
}

impl Shape {
    /// A link that loses frames.
    pub fn lossy(loss: f64) -> Shape {
        Shape {
            loss,
            ..Shape::default()
        }
    }

    /// The same with this one-way delay.
    #[must_use]
    pub fn delayed(self, delay: Duration) -> Shape {
        Shape { delay, ..self }
    }

    /// Whether the link needs the emulator.
    pub fn is_wire(&self) -> bool {
        *self == Shape::default()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) router: bool,
    /// Links in the order they were added: interface `eth{n}` is on link `links[n]`.
    pub(crate) links: Vec<LinkId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Two nodes, or more on a shared link (a bridge).
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) bridged: bool,
    /// Of the link, or of each port of a shared link.
    pub(crate) shapes: Vec<Shape>,
}

impl Link {
    /// Whether the emulator sees the link's frames.
    pub(crate) fn is_emulated(&self) -> bool {
        self.shapes.iter().any(|shape| !shape.is_wire())
    }
}

/// A plan of a network.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
    pub(crate) ipv6: bool,
}

/// The IPv6 address or network that stands for one of IPv4: fd00:0:0:y::z for 10.0.y.z.
pub fn ipv6(address: Ipv4Addr) -> Ipv6Addr {
    let [_, high, low, host] = address.octets();
    let link = u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfd00, 0, 0, link, 0, 0, 0, u16::from(host))
}

impl Plan {
    /// Gives every interface an IPv6 address beside its IPv4 one ([`ipv6`], of a /64 each link), routes between them,
    /// and link-local addresses that are used at once.
    #[must_use]
    pub fn with_ipv6(mut self) -> Plan {
        self.ipv6 = true;
        self
    }

    /// Adds a host.
    pub fn host(&mut self, name: &str) -> NodeId {
        self.node(name, false)
    }

    /// Adds a router: it forwards unicast, and multicast once a program owns its routes.
    pub fn router(&mut self, name: &str) -> NodeId {
        self.node(name, true)
    }

    fn node(&mut self, name: &str, router: bool) -> NodeId {
        self.nodes.push(Node {
            name: name.to_owned(),
            router,
            links: Vec::new(),
        });
        NodeId(self.nodes.len() - 1)
    }

    /// Whether a link is a shared one.
    pub fn is_shared(&self, link: LinkId) -> bool {
        self.links[link.0].bridged
    }

    /// Joins two nodes. The new interface of each is `eth` followed by the number of its earlier links.
    pub fn link(&mut self, a: NodeId, b: NodeId, shape: Shape) -> LinkId {
        self.cable(vec![a, b], false, vec![shape])
    }

    /// Joins several nodes by one shared link (a bridge); each node's own port has a shape.
    pub fn shared(&mut self, ports: &[(NodeId, Shape)]) -> LinkId {
        let (nodes, shapes) = ports.iter().copied().unzip();
        self.cable(nodes, true, shapes)
    }

    fn cable(&mut self, nodes: Vec<NodeId>, bridged: bool, shapes: Vec<Shape>) -> LinkId {
        let id = LinkId(self.links.len());
        for node in &nodes {
            self.nodes[node.0].links.push(id);
        }
        self.links.push(Link {
            nodes,
            bridged,
            shapes,
        });
        id
    }

    /// Adds a source, a binary tree of routers below it, and hosts below each leaf router, with all links of one
    /// shape: the source, the routers, the hosts.
    pub fn binary_tree(
        &mut self,
        routers: usize,
        hosts_of_each: usize,
        shape: Shape,
    ) -> (NodeId, Vec<NodeId>, Vec<NodeId>) {
        let source = self.host("source");
        let routers: Vec<NodeId> = (1..=routers)
            .map(|number| self.router(&format!("r{number}")))
            .collect();
        for (at, router) in routers.iter().enumerate() {
            let parent = if at == 0 {
                source
            } else {
                routers[(at - 1) / 2]
            };
            self.link(parent, *router, shape);
        }
        let last = &routers[routers.len() / 2..];
        let hosts = (0..last.len() * hosts_of_each).map(|number| {
            let host = self.host(&format!("h{}", number + 1));
            self.link(last[number / hosts_of_each], host, shape);
            host
        });
        let hosts = hosts.collect();
        (source, routers, hosts)
    }

    /// The name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.0].name
    }

    /// All nodes, in the order they were added.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// All links, in the order they were added.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len()).map(LinkId)
    }

    /// Whether the node routes.
    pub fn is_router(&self, node: NodeId) -> bool {
        self.nodes[node.0].router
    }

    /// The network of a link: 10.x.y.0/24.
    pub fn subnet(&self, link: LinkId) -> (Ipv4Addr, u8) {
        let [high, low] = u16::try_from(link.0).unwrap_or(u16::MAX).to_be_bytes();
        (Ipv4Addr::new(10, high, low, 0), 24)
    }

    /// The address of a node on a link: its place on the link, counted from one.
    pub fn address_on(&self, node: NodeId, link: LinkId) -> Option<Ipv4Addr> {
        let place = self.links[link.0]
            .nodes
            .iter()
            .position(|other| *other == node)?;
        let [a, b, c, _] = self.subnet(link).0.octets();
        Some(Ipv4Addr::new(a, b, c, u8::try_from(place + 1).ok()?))
    }

    /// The address of a node on its first link.
    pub fn address(&self, node: NodeId) -> Ipv4Addr {
        let first = self.nodes[node.0].links.first();
        first
            .and_then(|link| self.address_on(node, *link))
            .unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// The IPv6 address of a node on its first link, where the plan has [them](Plan::with_ipv6).
    pub fn ipv6_address(&self, node: NodeId) -> Ipv6Addr {
        ipv6(self.address(node))
    }

    /// The interface of a node on a link: `eth0` and so on.
    pub fn interface_on(&self, node: NodeId, link: LinkId) -> Option<String> {
        let place = self.nodes[node.0]
            .links
            .iter()
            .position(|other| *other == link)?;
        Some(format!("eth{place}"))
    }

    /// The neighbours of a node: (link, neighbour). Paths lead through routers only.
    fn neighbours(&self, node: NodeId) -> impl Iterator<Item = (LinkId, NodeId)> + '_ {
        self.nodes[node.0].links.iter().flat_map(move |link| {
            let others = self.links[link.0]
                .nodes
                .iter()
                .filter(move |other| **other != node);
            others.map(move |other| (*link, *other))
        })
    }

    /// For each node the first hop on the shortest path to `target`: (link, neighbour). `None` for the
    /// target itself and for nodes that cannot reach it.
    pub fn toward(&self, target: NodeId) -> Vec<Option<(LinkId, NodeId)>> {
        let mut hop = vec![None; self.nodes.len()];
        let mut queue = VecDeque::from([target]);
        while let Some(node) = queue.pop_front() {
            if node != target && !self.is_router(node) {
                continue;
            }
            for (link, other) in self.neighbours(node) {
                if other != target && hop[other.0].is_none() {
                    hop[other.0] = Some((link, node));
                    queue.push_back(other);
                }
            }
        }
        hop
    }

    /// The multicast tree from a source to receivers: for each router on it the link toward the source
    /// and the links away from it.
    pub fn tree(&self, source: NodeId, receivers: &[NodeId]) -> Vec<Branch> {
        let hop = self.toward(source);
        let mut branches: Vec<Branch> = Vec::new();
        for &receiver in receivers {
            let mut node = receiver;
            while let Some((link, next)) = hop[node.0] {
                if self.is_router(next)
                    && let Some((up, _)) = hop[next.0]
                {
                    let found = branches.iter().position(|branch| branch.router == next);
                    let at = found.unwrap_or_else(|| {
                        branches.push(Branch {
                            router: next,
                            up,
                            down: Vec::new(),
                        });
                        branches.len() - 1
                    });
                    if !branches[at].down.contains(&link) {
                        branches[at].down.push(link);
                    }
                }
                node = next;
            }
        }
        branches.sort_by_key(|branch| branch.router);
        for branch in &mut branches {
            branch.down.sort();
        }
        branches
    }

    /// The routes of a node to networks of other links: (network, first hop's address, link).
    pub(crate) fn routes(&self, node: NodeId) -> Vec<((Ipv4Addr, u8), Ipv4Addr, LinkId)> {
        // Shortest paths from this node, outward.
        let mut reached: Vec<Option<(LinkId, NodeId)>> = vec![None; self.nodes.len()];
        let mut queue = VecDeque::new();
        for (link, other) in self.neighbours(node) {
            if reached[other.0].is_none() {
                reached[other.0] = Some((link, other));
                queue.push_back(other);
            }
        }
        let mut known: Vec<LinkId> = self.nodes[node.0].links.clone();
        let mut routes = Vec::new();
        while let Some(at) = queue.pop_front() {
            let Some((out, first)) = reached[at.0] else {
                continue;
            };
            if !self.is_router(at) {
                continue;
            }
            let Some(via) = self.address_on(first, out) else {
                continue;
            };
            for (link, other) in self.neighbours(at) {
                if !known.contains(&link) {
                    known.push(link);
                    routes.push((self.subnet(link), via, out));
                }
                if other != node && reached[other.0].is_none() {
                    reached[other.0] = Some((out, first));
                    queue.push_back(other);
                }
            }
        }
        routes
    }
}

/// One router's part of a multicast tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The router.
    pub router: NodeId,
    /// The link toward the source.
    pub up: LinkId,
    /// The links that lead to receivers.
    pub down: Vec<LinkId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_routes_both_ways() {
        let mut plan = Plan::default();
        let (a, r, q, b) = (
            plan.host("a"),
            plan.router("r"),
            plan.router("q"),
            plan.host("b"),
        );
        let first = plan.link(a, r, Shape::default());
        let middle = plan.link(r, q, Shape::default());
        let last = plan.link(q, b, Shape::default());
        assert_eq!(plan.address(b), Ipv4Addr::new(10, 0, 2, 2));
        let via = Ipv4Addr::new(10, 0, 0, 2);
        assert_eq!(
            plan.routes(a),
            [
                (plan.subnet(middle), via, first),
                (plan.subnet(last), via, first)
            ]
        );
        assert_eq!(
            plan.tree(a, &[b]),
            [
                Branch {
                    router: r,
                    up: first,
                    down: vec![middle]
                },
                Branch {
                    router: q,
                    up: middle,
                    down: vec![last]
                }
            ]
        );
    }

    #[test]
    fn ipv6_addresses_stand_beside_those_of_ipv4() {
        let mut plan = Plan::default().with_ipv6();
        let (a, b) = (plan.host("a"), plan.host("b"));
        plan.link(a, b, Shape::default());
        assert_eq!(plan.ipv6_address(b).to_string(), "fd00::2");
        let far = ipv6(Ipv4Addr::new(10, 1, 2, 7));
        assert_eq!(far.to_string(), "fd00:0:0:102::7");
    }

    #[test]
    fn hosts_do_not_forward() {
        let mut plan = Plan::default();
        let (a, h, b) = (plan.host("a"), plan.host("h"), plan.host("b"));
        plan.link(a, h, Shape::default());
        plan.link(h, b, Shape::default());
        assert!(plan.routes(a).is_empty());
        assert!(plan.tree(a, &[b]).is_empty());
    }
}
