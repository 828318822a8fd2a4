//! LTP through a tree of DyRAM relays, one beside each router.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use anyhow::Result;
use dyram::storage::{Limits, Storage};
use dyram::{Meta, Relay, RelayId, Verdict};
use ltp::relayed;
use ltp::store::HeapRing;
use ltp::{Assist, SenderEvent};
use netsim::ip::Datagram;
use netsim::tree::Role;
use netsim::{Instant, Io, Node, NodeId, Port, Sim};

use super::checked::Checked;
use super::choices::{Choices, LastWord};
use super::daemon::Daemon;
use super::outcome::{End, Outcome, run as run_until};
use super::profile::NetworkProfile;
use super::transports::Watch;
use crate::simulated::{GROUP, Plan};

/// Virtual time after which a session that has not ended hangs.
const LIMIT: Instant = Instant::from_micros(1_800_000_000);
const RELAY_PORT: u16 = 4143;
const TTL: u8 = 64;

/// A relay serves one session here.
const LIMITS: Limits = Limits {
    sessions: 2,
    children: 16,
    nack_states: 64,
    window: 1024,
};

/// What a node is.
enum Machine {
    Root {
        root: Box<relayed::Sender<'static, HeapRing>>,
        /// What the application has yet to hand over, of a stream.
        stream: Option<(Rc<[u8]>, usize)>,
        complete: bool,
    },
    Leaf {
        leaf: Box<relayed::Receiver<'static, HeapRing>>,
        last: LastWord,
    },
    /// A router, and its relay while that runs.
    Router(Option<Box<Relay<'static>>>),
}

struct Peer {
    machine: Machine,
    plan: Rc<Plan>,
    node: u32,
}

type Place = Daemon<Checked<Peer>>;

fn relay_at(address: Ipv4Addr) -> SocketAddr {
    SocketAddrV4::new(address, RELAY_PORT).into()
}

/// The relays above a node, the nearest first.
fn above(plan: &Plan, node: u32) -> dyram::Parents {
    let mut relays = dyram::Parents::new();
    let mut at = node;
    while at > 1 {
        at = plan.tree.parent(at);
        if relays.push(relay_at(plan.tree.address(at))).is_err() {
            break;
        }
    }
    relays
}

impl Peer {
    fn new(profile: &NetworkProfile, choices: &Choices, node: u32, now: Instant, up: bool) -> Self {
        let plan = &profile.plan;
        let seed = profile.node_seed(node, now);
        let group = (*GROUP.ip()).into();
        let machine = match plan.tree.role(node) {
            Role::Source => {
                let first = [relay_at(plan.tree.address(1))].into_iter().collect();
                let sender = choices.sender(seed, now);
                let root =
                    relayed::Sender::new(sender, plan.source().into(), group, first, seed, now);
                Machine::Root {
                    root: Box::new(root.expect("all is IPv4")),
                    stream: choices.stream.map(|_| (Rc::clone(&choices.content), 0)),
                    complete: false,
                }
            }
            Role::Router => Machine::Router(up.then(|| {
                let mut config = dyram::Config::new(RelayId(node));
                config.parents = above(plan, node);
                let storage = Storage::owned(LIMITS).expect("the limits are sound");
                let relay = Relay::new(config, storage, seed, now);
                Box::new(relay.expect("the configuration is sound"))
            })),
            Role::Receiver => {
                let mut config = choices.receiver.clone();
                config.source = Some((*plan.source().ip()).into());
                let receiver = choices.receiver(config, seed, now);
                let source = (*plan.source().ip()).into();
                let leaf =
                    relayed::Receiver::new(receiver, source, group, above(plan, node), seed, now);
                Machine::Leaf {
                    leaf: Box::new(leaf.expect("all is IPv4")),
                    last: LastWord::default(),
                }
            }
        };
        Self {
            machine,
            plan: Rc::clone(plan),
            node,
        }
    }

    fn address(&self) -> Ipv4Addr {
        self.plan.tree.address(self.node)
    }

    /// Sends a datagram on its way along the tree.
    fn send(&self, port: u16, to: SocketAddr, payload: &[u8], io: &mut Io<'_>) {
        let SocketAddr::V4(destination) = to else {
            return;
        };
        let packet = Datagram {
            source: SocketAddrV4::new(self.address(), port),
            destination,
            ttl: TTL,
            options: &[],
            payload,
        };
        let there = self.plan.tree.node_at(*destination.ip());
        let way = there.and_then(|there| self.plan.tree.port_towards(self.node, there));
        if let Some(way) = way {
            io.send(way, &packet.emit());
        }
    }

    fn handle_packet(&mut self, now: Instant, from: SocketAddr, payload: &[u8], io: &mut Io<'_>) {
        // What is malformed or unwanted is counted by the machines.
        match &mut self.machine {
            Machine::Root { root, .. } => {
                let _ = root.handle_packet(now, &ltp::Meta::unicast(from), payload);
            }
            Machine::Leaf { leaf, .. } => {
                let _ = leaf.handle_packet(now, &ltp::Meta::unicast(from), payload);
            }
            Machine::Router(Some(relay)) => {
                let mut bytes = payload.to_vec();
                let verdict = relay.forward(now, &Meta::unicast(from), &mut bytes);
                if let Verdict::Send(fanout) = verdict {
                    let targets: Vec<_> = relay.targets(&fanout).collect();
                    for to in targets {
                        self.send(RELAY_PORT, to, &bytes, io);
                    }
                }
            }
            Machine::Router(None) => {}
        }
    }

    fn next_transmit(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<(u16, SocketAddr, usize)> {
        let port = GROUP.port();
        match &mut self.machine {
            Machine::Root { root, .. } => {
                let transmit = root.poll_transmit(now, buffer)?;
                Some((port, transmit.destination.unicast()?, transmit.len))
            }
            Machine::Leaf { leaf, .. } => {
                let transmit = leaf.poll_transmit(now, buffer)?;
                Some((port, transmit.destination.unicast()?, transmit.len))
            }
            Machine::Router(relay) => {
                let transmit = relay.as_mut()?.poll_transmit(now, buffer)?;
                Some((RELAY_PORT, transmit.destination, transmit.len))
            }
        }
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        self.feed(now);
        let mut buffer = [0; 1500];
        while let Some((port, to, len)) = self.next_transmit(now, &mut buffer) {
            self.send(port, to, &buffer[..len], io);
        }
        match &mut self.machine {
            Machine::Root { root, complete, .. } => {
                while let Some(event) = root.poll_event() {
                    *complete |= event == relayed::SenderEvent::Sender(SenderEvent::Complete);
                }
            }
            Machine::Leaf { leaf, last } => {
                while let Some(event) = leaf.poll_event() {
                    if let relayed::ReceiverEvent::Receiver(event) = event {
                        last.handle_event(&event);
                    }
                }
            }
            Machine::Router(Some(relay)) => while relay.poll_event().is_some() {},
            Machine::Router(None) => {}
        }
    }

    /// Appends as much of the stream as its ring has room for.
    fn feed(&mut self, now: Instant) {
        let Machine::Root { root, stream, .. } = &mut self.machine else {
            return;
        };
        let Some((content, written)) = stream else {
            return;
        };
        let sender = root.sender_mut();
        *written += sender.send(now, &content[*written..]).unwrap_or(0);
        if *written == content.len() {
            sender.finish(now);
            *stream = None;
        }
    }
}

impl Node for Peer {
    fn handle_packet(&mut self, now: Instant, _port: Port, packet: &[u8], io: &mut Io<'_>) {
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        if to != self.address() {
            let there = self.plan.tree.node_at(to);
            let way = there.and_then(|there| self.plan.tree.port_towards(self.node, there));
            if let Some(way) = way {
                io.forward(way);
            }
            return;
        }
        // A router checks the checksum only of datagrams addressed to it.
        if let Some(datagram) = Datagram::parse(packet) {
            self.handle_packet(now, datagram.source.into(), datagram.payload, io);
            self.drain(now, io);
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        match &mut self.machine {
            Machine::Root { root, .. } => root.handle_timeout(now),
            Machine::Leaf { leaf, .. } => leaf.handle_timeout(now),
            Machine::Router(Some(relay)) => relay.handle_timeout(now),
            Machine::Router(None) => {}
        }
        self.drain(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.machine {
            Machine::Root { root, .. } => root.poll_timeout(),
            Machine::Leaf { leaf, .. } => leaf.poll_timeout(),
            Machine::Router(relay) => relay.as_ref()?.poll_timeout(),
        }
    }
}

fn is_done(sim: &Sim<Place>, source_waits: bool) -> bool {
    sim.nodes()
        .all(|(_, place)| match &place.node.node.machine {
            Machine::Leaf { last, .. } => last.get().is_some(),
            Machine::Root { root, .. } => source_waits || root.sender().is_ended(),
            Machine::Router(_) => true,
        })
}

/// Runs one seed.
///
/// # Errors
/// When the trace cannot be written.
pub(super) fn run(seed: u64, watch: &Watch) -> Result<Outcome> {
    let profile = Rc::new(NetworkProfile::new(seed, true));
    let mut choices = Choices::draw(&profile);
    choices.receiver.assist = Assist::Dyram;
    let choices = Rc::new(choices);
    let (for_make, in_make) = (Rc::clone(&profile), Rc::clone(&choices));
    let mut sim = profile.build(move |node, now| {
        let (profile, choices) = (Rc::clone(&for_make), Rc::clone(&in_make));
        let is_router = profile.tree().role(node) == Role::Router;
        Daemon::new(&for_make, node, now, move |now, up| {
            let peer = Peer::new(&profile, &choices, node, now, up);
            if is_router {
                Checked::router(peer)
            } else {
                Checked::host(peer)
            }
        })
    });
    watch.begin(&mut sim, &profile, &choices.describe())?;
    // A source waits for its relay for as long as it is let.
    let waits = profile.first_hop_is_lost();
    let done = run_until(&mut sim, &profile, LIMIT, |sim| is_done(sim, waits));
    watch.end(&mut sim)?;
    Ok(judge(&sim, &profile, &choices, done, watch))
}

fn judge(
    sim: &Sim<Place>,
    profile: &NetworkProfile,
    choices: &Choices,
    done: bool,
    watch: &Watch,
) -> Outcome {
    let mut outcome = Outcome::of(sim);
    if !done {
        outcome.fault(format!("not done at {}", sim.now()));
    }
    let machine = |number: u32| {
        sim.node(NodeId(number))
            .map(|place| &place.node.node.machine)
    };
    for number in profile.tree().receivers() {
        let end = match machine(number) {
            Some(Machine::Leaf { leaf, last }) => {
                watch.print(|| {
                    let receiver = leaf.receiver();
                    let (progress, stats) = (receiver.progress(), receiver.stats());
                    format!(
                        "receiver {number}: {progress:?} {:?} {stats:?}",
                        leaf.relay()
                    )
                });
                choices.end(leaf.receiver(), last.get())
            }
            _ => End::Dead,
        };
        watch.print(|| format!("receiver {number}: {end:?}"));
        let may_fail = profile.is_cut_off(number) || profile.first_hop_is_lost();
        outcome.receiver(number, may_fail, &end);
    }
    if let Some(Machine::Root { root, complete, .. }) = machine(0) {
        watch.print(|| format!("source: {:?}", root.sender().stats()));
        if !profile.first_hop_is_lost() && !root.sender().is_ended() {
            outcome.fault("the source never ends");
        }
        if choices.sender.receivers.is_some() && profile.is_calm() && !complete {
            outcome.fault("all have everything, and the source does not know");
        }
    }
    outcome
}
