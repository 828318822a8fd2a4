//! LTP over the tree, with the routers' help or with nobody's.

use std::rc::Rc;

use ltp::store::Lengths;
use ltp::wire::{data, request, sync};
use ltp::{Assist, Receiver, ReceiverConfig, ReceiverLimits, Sender, SenderConfig};
use netsim::tree::Role;
use netsim::{Duration, Instant, Io, Node, NodeId, Port, Sim};

use super::watch::{Outcome, Watch, processor_time};
use super::world::{GAP, World};
use crate::simulated::{GROUP, Plan, RouterNode, incoming, outgoing};

/// Heartbeats go out for so long before the first data packet: everybody knows the session then.
const WARM_UP: Duration = Duration::from_secs(1);

/// Bytes of a data packet: 64 to a block of 1 KiB. Lengths are all that is simulated.
const PAYLOAD_LEN: u16 = 16;
const BLOCK_PACKETS: u32 = 64;

/// The sender's rate is so many times that of the application, which writes block by block: repairs
/// by the source do not compete with its data.
const HEADROOM: u64 = 10;

/// The source and the application that feeds it.
struct Source {
    sender: Sender<'static, Lengths>,
    plan: Rc<Plan>,
    /// What the application has still to hand over, and when the next block of it is due.
    packets_left: u32,
    next: Instant,
    /// REQUEST packets that arrived.
    requests: u64,
}

impl Source {
    /// Hands the next block over when its time has come.
    fn feed(&mut self, now: Instant) {
        if self.packets_left == 0 || now < self.next {
            return;
        }
        let packets = self.packets_left.min(BLOCK_PACKETS);
        let block = vec![0; packets as usize * usize::from(PAYLOAD_LEN)];
        let taken = self.sender.send(now, &block);
        assert_eq!(taken.ok(), Some(block.len()), "a store of lengths has room");
        self.packets_left -= packets;
        self.next += GAP * packets;
        if self.packets_left == 0 {
            self.sender.finish(now);
        }
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 1500];
        while let Some(transmit) = self.sender.poll_transmit(now, &mut buffer) {
            outgoing(&self.plan, 0, &transmit, &buffer, |packet| {
                io.send(Port(0), packet);
            });
        }
        while self.sender.poll_event().is_some() {}
    }
}

/// A receiver and replier.
struct Host {
    receiver: Receiver<'static, Lengths>,
    plan: Rc<Plan>,
    node: u32,
    watch: Watch,
}

impl Host {
    /// Keeps the record of the comparison: what came, and what the source says it sent.
    #[inline]
    fn watch(&mut self, now: Instant, payload: &[u8]) {
        match payload.first().map(|first| first & 0xf) {
            Some(1 | 2) => {
                if let Ok(packet) = data::Packet::new_checked(payload) {
                    self.watch
                        .arrived(now, packet.sequence().0, packet.is_repair());
                }
            }
            Some(3) => {
                if let Ok(packet) = sync::Packet::new_checked(payload) {
                    self.watch.heard_of(now, packet.next() as u32);
                }
            }
            _ => {}
        }
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 512];
        while let Some(transmit) = self.receiver.poll_transmit(now, &mut buffer) {
            outgoing(&self.plan, self.node, &transmit, &buffer, |packet| {
                io.send(Port(0), packet);
            });
        }
        while self.receiver.poll_event().is_some() {}
    }
}

enum Peer {
    Source(Box<Source>),
    Router(Box<RouterNode>),
    Host(Box<Host>),
}

impl Node for Peer {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Router(router) => router.handle_packet(now, port, packet, io),
            Self::Host(host) => {
                let Some(incoming) = incoming(packet) else {
                    return;
                };
                host.watch(now, incoming.payload);
                let _ = host
                    .receiver
                    .handle_packet(now, &incoming.meta, incoming.payload);
                // Output that waits shows as a timeout that has come: most packets cause none.
                if host.receiver.poll_timeout().is_some_and(|at| at <= now) {
                    host.drain(now, io);
                }
            }
            Self::Source(source) => {
                let Some(incoming) = incoming(packet) else {
                    return;
                };
                let is_request = request::Packet::new_checked(incoming.payload).is_ok();
                source.requests += u64::from(is_request);
                let _ = source
                    .sender
                    .handle_packet(now, &incoming.meta, incoming.payload);
                source.drain(now, io);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        match self {
            Self::Router(_) => {}
            Self::Host(host) => {
                host.receiver.handle_timeout(now);
                host.drain(now, io);
            }
            Self::Source(source) => {
                source.feed(now);
                source.sender.handle_timeout(now);
                source.drain(now, io);
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Router(_) => None,
            Self::Host(host) => host.receiver.poll_timeout(),
            Self::Source(source) => {
                let feed = (source.packets_left > 0).then_some(source.next);
                feed.into_iter().chain(source.sender.poll_timeout()).min()
            }
        }
    }
}

fn source(world: &World, plan: &Rc<Plan>, packets: u32) -> Source {
    let packet_len = PAYLOAD_LEN + data::DATA_HEADER_LEN as u16;
    let frame_len = packet_len + ltp::pacing::FRAME_OVERHEAD as u16;
    let config = SenderConfig {
        integrity: false, // there are no bytes
        block_exponent: 10,
        max_packet_len: packet_len,
        rate_bps: Some(u64::from(frame_len) * 8 * HEADROOM * 1_000_000 / GAP.total_micros()),
        linger: Duration::from_secs(3600),
        ..SenderConfig::new(GROUP.into())
    };
    let sender = Sender::new(config, Lengths::new(), world.node_seed(0), Instant::ZERO);
    Source {
        sender: sender.expect("the configuration is sound"),
        plan: Rc::clone(plan),
        packets_left: packets,
        next: Instant::ZERO + WARM_UP,
        requests: 0,
    }
}

fn host(world: &World, plan: &Rc<Plan>, node: u32, assist: Assist) -> Host {
    let limits = ReceiverLimits {
        window_blocks: 32,
        asks: 16,
        repairs: 16,
        held: 64,
        targets: 8,
    };
    let config = ReceiverConfig {
        require_integrity: false,
        assist,
        limits,
        ..ReceiverConfig::new(GROUP.into())
    };
    let receiver = Receiver::new(config, Lengths::new(), world.node_seed(node), Instant::ZERO);
    Host {
        receiver,
        plan: Rc::clone(plan),
        node,
        watch: Watch::default(),
    }
}

fn is_done(sim: &Sim<Peer>, packets: u32) -> bool {
    sim.nodes().all(|(_, node)| match node {
        Peer::Host(host) => host.watch.has_all(packets),
        Peer::Source(_) | Peer::Router(_) => true,
    })
}

/// Runs LTP with that assistance over the world's plan.
pub(super) fn run(world: &World, assist: Assist, packets: u32) -> Outcome {
    let since = processor_time();
    let lms = assist == Assist::Lms;
    let plan = Rc::new(Plan::new(world.tree.clone()));
    let mut sim = world.simulate(|node| match world.tree.role(node) {
        Role::Source => Peer::Source(Box::new(source(world, &plan, packets))),
        Role::Router => {
            let seed = world.node_seed(node);
            Peer::Router(Box::new(RouterNode::new(&plan, node, lms, seed)))
        }
        Role::Receiver => Peer::Host(Box::new(host(world, &plan, node, assist))),
    });
    let last = Instant::ZERO + WARM_UP + GAP * packets;
    let limit = last + Duration::from_secs(120);
    sim.run_until(last);
    while !is_done(&sim, packets) && sim.now() < limit {
        let at = sim.now() + Duration::from_millis(250);
        sim.run_until(at);
    }
    let name = if lms {
        "LTP with LMS"
    } else {
        "LTP by unicast"
    };
    let watches = sim.nodes().filter_map(|(id, node)| match node {
        Peer::Host(host) => Some((id.0, &host.watch)),
        Peer::Source(_) | Peer::Router(_) => None,
    });
    let outcome = Outcome::gather(name, world, packets, watches);
    let requests = match sim.node(NodeId(0)) {
        Some(Peer::Source(source)) => source.requests,
        _ => 0,
    };
    outcome.source_requests(requests).costs(&sim, world, since)
}
