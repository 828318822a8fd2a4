//! The LMS router as a node.

use std::rc::Rc;

use lms_proto::router::{Config, Interface, Policy, Storage, Verdict};
use lms_proto::table::{self, Replier};
use lms_proto::{Iface, InterfaceConfig, Meta, Router, hier};
use netsim::{Instant, Io, Node, Port};

use super::{GROUP, Help, Plan, SUBNET_BITS, destination, is_link_local};

/// A router: forwards multicast down and unicast along the tree, and helps with LMS or not.
pub(crate) struct RouterNode {
    plan: Rc<Plan>,
    node: u32,
    children: u16,
    lms: Option<Box<Router<'static>>>,
    /// When LMS-HIER has something to do.
    due: Option<Instant>,
}

impl RouterNode {
    /// The router of this node of the tree.
    pub(crate) fn new(plan: &Rc<Plan>, node: u32, help: Help, seed: [u8; 32]) -> Self {
        let children = plan.tree.children(node).len() as u16;
        let lms = match help {
            Help::None => None,
            Help::Static | Help::Live => Some(Box::new(lms_router(plan, node, help, seed))),
        };
        Self {
            plan: Rc::clone(plan),
            node,
            children,
            due: lms.as_ref().and_then(|lms| lms.poll_timeout()),
            lms,
        }
    }

    /// Its LMS machine, if it helps.
    pub(crate) fn lms(&self) -> Option<&Router<'static>> {
        self.lms.as_deref()
    }

    /// Sends what LMS-HIER has to say.
    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let Some(lms) = &mut self.lms else { return };
        let mut buffer = [0; 1100];
        while let Some(transmit) = lms.poll_transmit(now, &mut buffer) {
            io.send(Port(transmit.iface.0), &buffer[..transmit.len]);
        }
        while lms.poll_event().is_some() {}
        self.due = lms.poll_timeout();
    }
}

impl Node for RouterNode {
    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    #[inline]
    fn touch(&self) -> u64 {
        u64::from(self.children) ^ u64::from(self.due.is_some())
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        if let Some(lms) = &mut self.lms {
            lms.handle_timeout(now);
        }
        self.drain(now, io);
    }

    #[inline]
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        let Some((destination, plain)) = destination(packet) else {
            return;
        };
        if plain && destination == *GROUP.ip() {
            if port == Port(0) {
                io.forward_each((1..=self.children).map(Port));
            }
            return;
        }
        let to = self.plan.tree.node_at(destination);
        if let Some(port) = to.and_then(|to| self.plan.tree.port_towards(self.node, to)) {
            io.forward(port);
            return;
        }
        let Some(lms) = &mut self.lms else { return };
        let meta = Meta {
            iface: Iface(port.0),
            link_source: Some(self.plan.link_address(self.node, port)),
        };
        if is_link_local(destination) {
            let _ = lms.handle_packet(now, &meta, packet); // counted there
            self.drain(now, io);
            return;
        }
        let mut bytes = packet.to_vec();
        match lms.forward(now, &meta, &mut bytes) {
            Verdict::Forward { output, packet, .. } => {
                io.send(Port(output.iface.0), &bytes[packet]);
            }
            Verdict::Multicast { iface, packet } => io.send(Port(iface.0), &bytes[packet]),
            Verdict::Pass | Verdict::Drop(_) => {}
        }
    }
}

/// Room for one entry and no more: there are tens of thousands of routers.
fn storage(children: u16, help: Help) -> Storage<'static> {
    let ifaces = usize::from(children) + 1;
    let neighbours = match help {
        Help::Live => usize::from(children),
        Help::None | Help::Static => 1,
    };
    let hierarchy = hier::Capacity {
        entries: 1,
        neighbours,
        peers: neighbours,
        branches: neighbours,
        interfaces: ifaces,
    };
    Storage {
        table: table::Storage::with_capacity(1, ifaces),
        interfaces: vec![Interface::default(); ifaces].into(),
        addresses: vec![table::Slot::default(); (2 * ifaces).next_power_of_two()].into(),
        subnets: vec![table::Slot::default(); (2 * ifaces).next_power_of_two()].into(),
        sources: Vec::new().into(),
        hierarchy: hier::Storage::owned(hierarchy),
    }
}

fn lms_router(plan: &Plan, node: u32, help: Help, seed: [u8; 32]) -> Router<'static> {
    let children = plan.tree.children(node).len() as u16;
    let policy = match help {
        Help::Live => Policy::Hierarchy,
        Help::None | Help::Static => Policy::Static,
    };
    let config = Config {
        policy,
        hierarchy: hier::Config {
            own_cost: plan.link_cost(node).0,
            ..hier::Config::default()
        },
        ..Config::default()
    };
    let now = Instant::ZERO;
    let mut router = Router::new(config, storage(children, help), seed, now);
    let interface = InterfaceConfig::ipv4(plan.tree.address(node), SUBNET_BITS);
    for port in 0..=children {
        router
            .set_interface(now, Iface(port), interface)
            .expect("the storage has room");
    }
    let downstream: Vec<Iface> = (1..=children).map(Iface).collect();
    router
        .install(now, plan.key(), Iface(0), &downstream)
        .expect("the storage has room");
    if help == Help::Static {
        let replier = Replier {
            iface: Iface(plan.replier_port(node).0),
            cost: 1,
            neighbour: None,
        };
        router
            .set_replier(now, plan.key(), Some(replier))
            .expect("the replier is downstream");
    }
    router
}
