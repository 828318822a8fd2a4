//! The real machines as nodes of the simulator, on a distribution tree.
//!
//! Interfaces of the machines are ports of the nodes, by number. Every link joins two nodes, and each host is
//! alone on its link. Unicast packets follow the tree.

mod host;
mod packets;
mod relay;
mod router;

use std::net::{Ipv4Addr, SocketAddrV4};

use lms_proto::hier::Cost;
use lms_proto::{Form, Key, LinkAddr};
use netsim::Port;
use netsim::tree::Tree;

pub(crate) use host::{Application, Host, Peer, Receiving, RelayedPeer, Sending, Source, Watcher};
pub(crate) use relay::{RelayNode, relays_above};
pub(crate) use router::RouterNode;

/// The group of the simulated sessions.
pub(crate) const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 1), 4139);

/// Hop limit of everything the hosts send: trees are less deep.
const TTL: u8 = 255;

/// All nodes are on one subnet: links of two nodes are unnumbered.
const SUBNET_BITS: u8 = 8;

/// First byte of an IPv4 header without options.
const PLAIN: u8 = 0x45;

/// What the routers do for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    /// They forward packets and no more.
    None,
    /// LMS, with repliers set beforehand, by the delay to the nearest receiver.
    Static,
    /// LMS, with repliers that LMS-HIER elects while the network runs.
    Live,
}

/// What all nodes of one tree know.
pub(crate) struct Plan {
    /// The tree: addresses and routes.
    pub(crate) tree: Tree,
    /// The form of LMS's option in requests and directed multicasts.
    form: Form,
    /// For each node the cost of its best replier, in microseconds of delay, and for routers the
    /// port that leads there.
    repliers: Vec<(u32, Port)>,
}

impl Plan {
    /// Chooses the repliers of [`Help::Static`]: by the delay of the way to the nearest receiver. The option
    /// has the classic form.
    pub(crate) fn new(tree: Tree) -> Self {
        let mut repliers = vec![(0, Port(0)); tree.len() as usize];
        for node in (1..tree.len()).rev() {
            let through = |child: &u32| {
                let (cost, _) = repliers[*child as usize];
                (
                    cost + tree.link_delay(*child).total_micros() as u32,
                    tree.parent_port(*child),
                )
            };
            if let Some(best) = tree.children(node).iter().map(through).min() {
                repliers[node as usize] = best;
            }
        }
        Self {
            tree,
            form: Form::Classic,
            repliers,
        }
    }

    /// The same with the option in this form.
    pub(crate) fn with_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// The source's address and port.
    pub(crate) fn source(&self) -> SocketAddrV4 {
        self.host(0)
    }

    /// The multicast forwarding entry of all routers.
    pub(crate) fn key(&self) -> Key {
        Key::new(*self.source().ip(), *GROUP.ip())
    }

    /// What the link to the parent adds to a replier's cost under LMS-HIER: its delay in
    /// milliseconds, at least 1. So that near repliers are preferred.
    pub(crate) fn link_cost(&self, node: u32) -> Cost {
        let delay_ms = (self.tree.link_delay(node).total_micros() + 500) / 1000;
        Cost(delay_ms.clamp(1, 1000) as u16)
    }

    /// The link address of the neighbour behind a port: routers distinguish neighbours by it, since all of them are on
    /// one subnet.
    pub(crate) fn link_address(&self, node: u32, port: Port) -> LinkAddr {
        let neighbour = match port {
            Port(0) => self.tree.parent(node),
            Port(child) => {
                let children = self.tree.children(node);
                children
                    .get(usize::from(child) - 1)
                    .copied()
                    .unwrap_or(node)
            }
        };
        let [a, b, c, d] = neighbour.to_be_bytes();
        LinkAddr([2, 0, a, b, c, d])
    }

    /// The port of a router that leads to the replier of [`Help::Static`].
    pub(crate) fn replier_port(&self, node: u32) -> Port {
        self.repliers[node as usize].1
    }

    /// A host's address and port.
    pub(crate) fn host(&self, node: u32) -> SocketAddrV4 {
        SocketAddrV4::new(self.tree.address(node), GROUP.port())
    }
}

fn destination(packet: &[u8]) -> Option<(Ipv4Addr, bool)> {
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Some((address.into(), packet[0] == PLAIN))
}

/// To the routers or hosts of one link, and no further.
fn is_link_local(destination: Ipv4Addr) -> bool {
    matches!(destination.octets(), [224, 0, 0, _])
}
