//! TCP-XM: a group whose sender is the source and whose receivers listen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use anyhow::Result;
use netsim::ip::Datagram;
use netsim::tree::Role;
use netsim::{Duration, Instant, Io, Node, NodeId, Port, Rng, Sim};
use tcpxm::store::SliceStore;
use tcpxm::wire::SegmentKey;
use tcpxm::{
    Config, CongestionControl, ConnId, Endpoint, Event, GroupChoice, GroupConfig, GroupMode,
    GroupPolicy, Meta, Received,
};

use super::checked::Checked;
use super::outcome::{End, Outcome, run as run_until};
use super::profile::{Component, NetworkProfile};
use super::transports::Watch;
use crate::simulated::{GROUP, Help, Plan, RouterNode};

/// Virtual time after which a session that has not ended hangs.
const LIMIT: Instant = Instant::from_micros(20_000_000_000);
/// A peer that does not answer for this long is given up: longer than 30 % loss and an outage delay the
/// backed-off timers.
const TIMEOUT: Duration = Duration::from_secs(3000);
/// Probes begin after a group has waited for a dead receiver: nine of them are lost by chance once in three
/// thousand times over the worst paths.
const KEEP_ALIVE: Duration = Duration::from_secs(4000);
/// Of the group. That of the receivers is longer, so that data can complete a handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(300);
const PORT: u16 = 7000;

type Content = Rc<[u8]>;

/// Configuration of each side.
struct Choices {
    content: Content,
    /// By node.
    configs: Vec<Config>,
    group: GroupConfig,
}

impl Choices {
    fn draw(profile: &NetworkProfile) -> Self {
        let rng = &mut profile.choices();
        let len = if rng.chance(0.05) {
            0
        } else {
            rng.below(150_000) as usize
        };
        let mode = match rng.below(6) {
            0 => GroupMode::Unicast,
            1 => GroupMode::Multicast,
            _ => GroupMode::Auto,
        };
        let nodes = profile.tree().nodes();
        let configs: Vec<Config> = nodes
            .map(|_| config(mode, profile.is_calm(), rng))
            .collect();
        let addresses = profile.tree().receivers();
        let addresses = addresses.map(|node| IpAddr::V4(profile.tree().address(node)));
        let local = SocketAddr::new(profile.tree().address(0).into(), 0);
        let mut group = GroupConfig::new(local, addresses.collect(), PORT);
        group.group = GroupChoice::Given((*GROUP.ip()).into());
        group.mode = mode;
        group.max_alternatives = 1;
        group.connect_timeout = CONNECT_TIMEOUT;
        group.receiver_timeout = TIMEOUT;
        group.min_rate_bps = rng.chance(0.25).then(|| rng.between(10_000, 1_000_000));
        group.max_rate_bps = rng.chance(0.25).then(|| rng.between(200_000, 20_000_000));
        group.key = rng.chance(0.3).then_some(SegmentKey([7; 16]));
        Self {
            content: profile.content(len).into(),
            configs,
            group,
        }
    }

    fn describe(&self) -> String {
        let mut words = format!("{} bytes, {:?}", self.content.len(), self.group);
        for (node, config) in self.configs.iter().enumerate() {
            words += &format!("\n{node}: {config:?}");
        }
        words
    }
}

fn config(mode: GroupMode, is_calm: bool, rng: &mut Rng) -> Config {
    // Only probes show a receiver that its source has failed silently.
    let keep_alive = (!is_calm).then_some(KEEP_ALIVE);
    let policy = match rng.below(6) {
        _ if mode == GroupMode::Multicast => GroupPolicy::Accept,
        0 => GroupPolicy::Refuse,
        // A group that no router carries.
        1 => GroupPolicy::Propose(Ipv4Addr::new(239, 194, 1, 9).into()),
        _ => GroupPolicy::Accept,
    };
    let mut config = Config::default();
    config.sack = !rng.chance(0.2);
    config.timestamps = !rng.chance(0.2);
    config.window_scaling = !rng.chance(0.2);
    config.receive_buffer = 4096 << rng.below(8);
    config.send_buffer = 4096 << rng.below(8);
    config.mtu = rng.between(576, 1500) as u16;
    config.pacing = rng.chance(0.3);
    config.congestion_control = match rng.below(3) {
        0 => CongestionControl::NewReno,
        1 => CongestionControl::Bbr,
        _ => CongestionControl::Cubic,
    };
    config.connect_timeout = CONNECT_TIMEOUT * 2;
    config.user_timeout = TIMEOUT;
    config.keep_alive = keep_alive;
    config.groups = policy;
    config
}

/// A host: its endpoint and its application.
struct Host {
    endpoint: Endpoint<SliceStore<Content>>,
    content: Content,
    node: u32,
    plan: Rc<Plan>,
    joined: BTreeSet<IpAddr>,
    /// Bytes read from each connection that is open.
    open: BTreeMap<ConnId, usize>,
    /// The received bytes equal the sent ones, so far.
    right: bool,
    /// The end of the stream came after this many bytes.
    end: Option<usize>,
    /// How each connection ended: peer, and why if not in good order.
    ends: Vec<(IpAddr, Option<tcpxm::Failure>)>,
    /// The group is opened, and has ended.
    group: Option<bool>,
}

impl Host {
    fn new(profile: &NetworkProfile, choices: &Choices, node: u32, now: Instant) -> Self {
        let seed = profile.node_seed(node, now);
        let config = choices.configs[node as usize].clone();
        let mut endpoint = Endpoint::new(config, seed, now);
        let mut group = None;
        if node == 0 {
            // A restarted source has no state of the session: it resets connections.
            if now == Instant::ZERO {
                let store = SliceStore::new(Rc::clone(&choices.content));
                let id = endpoint.open_group(now, &choices.group, store);
                let id = id.expect("the choices are sound");
                endpoint.shutdown(now, id).expect("it was just opened");
                group = Some(false);
            }
        } else {
            let listening = match choices.group.key {
                Some(key) => endpoint.listen_keyed(now, PORT, key),
                None => endpoint.listen(now, PORT),
            };
            listening.expect("the port is free");
        }
        Self {
            endpoint,
            content: Rc::clone(&choices.content),
            node,
            plan: Rc::clone(&profile.plan),
            joined: BTreeSet::new(),
            open: BTreeMap::new(),
            right: true,
            end: None,
            ends: Vec::new(),
            group,
        }
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Incoming { port } => {
                while let Some(id) = self.endpoint.accept(now, port) {
                    self.open.insert(id, 0);
                }
            }
            Event::Join { group, .. } => {
                self.joined.insert(group);
            }
            Event::Leave { group, .. } => {
                self.joined.remove(&group);
            }
            Event::GroupClosed { .. } => self.group = Some(true),
            Event::Closed {
                connection,
                remote,
                failure,
            } => {
                self.read(now);
                self.open.remove(&connection);
                self.ends.push((remote.ip(), failure));
            }
            _ => {}
        }
    }

    fn read(&mut self, now: Instant) {
        let mut buffer = [0; 8192];
        for (id, read) in &mut self.open {
            loop {
                match self.endpoint.recv(now, *id, &mut buffer) {
                    Ok(Received::Data(len)) => {
                        let wanted = self.content.get(*read..*read + len);
                        self.right &= wanted == Some(&buffer[..len]);
                        *read += len;
                    }
                    Ok(Received::End) => {
                        if self.end.replace(*read).is_none() {
                            // Nothing is sent back.
                            let _ = self.endpoint.shutdown(now, *id);
                        }
                        break;
                    }
                    Ok(Received::Nothing) | Err(_) => break,
                }
            }
        }
    }

    fn pump(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = vec![0; self.endpoint.max_segment_bytes()];
        loop {
            let mut busy = false;
            while let Some(event) = self.endpoint.poll_event() {
                self.on_event(now, event);
                busy = true;
            }
            self.read(now);
            while let Some(transmit) = self.endpoint.poll_transmit(now, &mut buffer) {
                busy = true;
                let payload = &buffer[..transmit.len];
                let SocketAddr::V4(destination) = transmit.destination else {
                    continue;
                };
                let port = u16::from_be_bytes([payload[0], payload[1]]);
                let packet = Datagram {
                    source: SocketAddrV4::new(self.plan.tree.address(self.node), port),
                    destination,
                    ttl: 64,
                    options: &[],
                    payload,
                };
                io.send(Port(0), &packet.emit());
            }
            if !busy {
                return;
            }
        }
    }
}

/// A host, or a router that only forwards.
enum Peer {
    Host(Box<Host>),
    Router(RouterNode),
}

impl Node for Peer {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Router(router) => router.handle_packet(now, port, packet, io),
            Self::Host(host) => {
                let Some(datagram) = Datagram::parse(packet) else {
                    return;
                };
                let to = IpAddr::V4(*datagram.destination.ip());
                if to == IpAddr::V4(host.plan.tree.address(host.node)) || host.joined.contains(&to)
                {
                    let meta = Meta {
                        source: datagram.source.into(),
                        destination: to,
                    };
                    // Counted there.
                    let _ = host.endpoint.handle_packet(now, &meta, datagram.payload);
                    host.pump(now, io);
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        match self {
            Self::Router(router) => router.handle_timeout(now, io),
            Self::Host(host) => {
                host.endpoint.handle_timeout(now);
                host.pump(now, io);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Router(router) => router.poll_timeout(),
            Self::Host(host) => host.endpoint.poll_timeout(),
        }
    }
}

type Place = Checked<Peer>;

/// The group has ended, and no connection is open.
fn is_done(sim: &Sim<Place>) -> bool {
    sim.nodes().all(|(_, place)| match &place.node {
        Peer::Host(host) => {
            host.group != Some(false) && (host.open.is_empty() || host.end.is_some())
        }
        Peer::Router(_) => true,
    })
}

/// Runs one seed.
///
/// # Errors
/// When the trace cannot be written.
pub(super) fn run(seed: u64, watch: &Watch) -> Result<Outcome> {
    let profile = Rc::new(NetworkProfile::new(seed, false));
    let choices = Rc::new(Choices::draw(&profile));
    let (for_make, in_make) = (Rc::clone(&profile), Rc::clone(&choices));
    let mut sim = profile.build(move |node, now| {
        let (plan, seed) = (&for_make.plan, for_make.node_seed(node, now));
        match plan.tree.role(node) {
            Role::Router => {
                let router = RouterNode::new(plan, node, Help::None, seed);
                Checked::router(Peer::Router(router))
            }
            Role::Source | Role::Receiver => {
                let host = Host::new(&for_make, &in_make, node, now);
                Checked::host(Peer::Host(Box::new(host)))
            }
        }
    });
    watch.begin(&mut sim, &profile, &choices.describe())?;
    let done = run_until(&mut sim, &profile, LIMIT, is_done);
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
    let mut outcome = Outcome::of(sim, done);
    let host = |number: u32| match sim.node(NodeId(number)).map(|place| &place.node) {
        Some(Peer::Host(host)) => Some(host),
        _ => None,
    };
    for number in profile.tree().receivers() {
        let end = host(number).map_or(End::Dead, |host| {
            watch.print(|| {
                format!(
                    "receiver {number}: {:?} {:?}",
                    host.ends,
                    host.endpoint.stats()
                )
            });
            how_it_ended(host, choices)
        });
        watch.print(|| format!("receiver {number}: {end:?}"));
        // A connection fails when either end loses its state.
        let may_fail = profile.is_cut_off(number) || profile.fails(number) || profile.fails(0);
        outcome.receiver(number, may_fail, &end);
    }
    if let Some(source) = host(0) {
        watch.print(|| format!("source: {:?} {:?}", source.ends, source.endpoint.stats()));
        judge_source(source, profile, &mut outcome);
    }
    outcome
}

/// Checks that the source's result for each receiver is right.
fn judge_source(source: &Host, profile: &NetworkProfile, outcome: &mut Outcome) {
    for number in profile.tree().receivers() {
        let address = IpAddr::V4(profile.tree().address(number));
        let failed = source
            .ends
            .iter()
            .any(|(remote, why)| *remote == address && why.is_some());
        let touched = profile.is_cut_off(number) || profile.fails(number);
        if failed && !touched {
            outcome.fault(format!(
                "the source gave receiver {number} up, which was there"
            ));
        }
    }
    let outages = profile.outages.iter();
    let source_died = outages
        .clone()
        .any(|outage| outage.what == Component::Node(0));
    if source.group == Some(false) && !source_died {
        outcome.fault("the group never ends");
    }
}

fn how_it_ended(host: &Host, choices: &Choices) -> End {
    if !host.right || host.end.is_some_and(|len| len != choices.content.len()) {
        return End::Wrong;
    }
    if host.end.is_some() {
        return End::Whole;
    }
    let failed = host.ends.iter().find_map(|(_, why)| *why);
    match failed {
        Some(why) => End::Named(why.to_string()),
        // No connection was made, or none is left: the sender's result counts.
        None if host.open.is_empty() => End::Named("no connection".to_owned()),
        None => End::Open,
    }
}
