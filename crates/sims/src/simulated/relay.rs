//! The DyRAM relay in a router as a node.

use std::net::SocketAddr;
use std::rc::Rc;

use dyram::{Meta, Parents, Relay, Verdict};
use netsim::ip::Datagram;
use netsim::{Instant, Io, Node, Port};

use super::{Plan, TTL};

/// A router that forwards unicast along the tree, and its relay while that runs.
pub(crate) struct RelayNode {
    plan: Rc<Plan>,
    node: u32,
    relay: Option<Box<Relay<'static>>>,
    due: Option<Instant>,
}

/// The relays above a node, the nearest first.
pub(crate) fn relays_above(plan: &Plan, node: u32) -> Parents {
    let mut relays = Parents::new();
    let mut at = node;
    while at > 1 {
        at = plan.tree.parent(at);
        if relays.push(plan.host(at).into()).is_err() {
            break;
        }
    }
    relays
}

impl RelayNode {
    /// The router of this node of the tree; without a relay it drops what is addressed to it.
    pub(crate) fn new(plan: &Rc<Plan>, node: u32, relay: Option<Relay<'static>>) -> Self {
        Self {
            plan: Rc::clone(plan),
            node,
            due: relay.as_ref().and_then(|relay| relay.poll_timeout()),
            relay: relay.map(Box::new),
        }
    }

    fn send(&self, to: SocketAddr, payload: &[u8], io: &mut Io<'_>) {
        let SocketAddr::V4(destination) = to else {
            return;
        };
        let tree = &self.plan.tree;
        let there = tree.node_at(*destination.ip());
        if let Some(port) = there.and_then(|there| tree.port_towards(self.node, there)) {
            let datagram = Datagram {
                source: self.plan.host(self.node),
                destination,
                ttl: TTL,
                options: &[],
                payload,
            };
            io.send(port, &datagram.emit());
        }
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let Some(mut relay) = self.relay.take() else {
            return;
        };
        let mut buffer = [0; dyram::MAX_CONTROL_LEN];
        while let Some(transmit) = relay.poll_transmit(now, &mut buffer) {
            self.send(transmit.destination, &buffer[..transmit.len], io);
        }
        while relay.poll_event().is_some() {}
        self.due = relay.poll_timeout();
        self.relay = Some(relay);
    }
}

impl Node for RelayNode {
    fn handle_packet(&mut self, now: Instant, _port: Port, packet: &[u8], io: &mut Io<'_>) {
        // Only a datagram that is addressed to the router is parsed, and its checksum verified.
        let tree = &self.plan.tree;
        let to = super::destination(packet).map(|(to, _)| to);
        if to != Some(tree.address(self.node)) {
            let there = to.and_then(|to| tree.node_at(to));
            if let Some(port) = there.and_then(|there| tree.port_towards(self.node, there)) {
                io.forward(port);
            }
            return;
        }
        let (Some(datagram), Some(relay)) = (Datagram::parse(packet), &mut self.relay) else {
            return;
        };
        let mut bytes = datagram.payload.to_vec();
        let meta = Meta::unicast(datagram.source.into());
        if let Verdict::Send(fanout) = relay.forward(now, &meta, &mut bytes) {
            let targets: Vec<SocketAddr> = relay.targets(&fanout).collect();
            for target in targets {
                self.send(target, &bytes, io);
            }
        }
        self.drain(now, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        if let Some(relay) = &mut self.relay {
            relay.handle_timeout(now);
        }
        self.drain(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}
