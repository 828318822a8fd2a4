//! TCP-XM: a group whose sender is the source and whose receivers listen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use anyhow::Result;
use netsim::ip::Datagram;
use netsim::tree::Role;
use netsim::{Duration, Instant, Io, Node, NodeId, Port, Rng, Sim};
use tcpxm::store::Whole;
use tcpxm::wire::SegmentKey;
use tcpxm::{
    Config, CongestionControl, ConnId, Endpoint, Event, GroupChoice, GroupConfig, GroupMode,
    GroupPolicy, Meta, Received,
};

use super::checked::Checked;
use super::outcome::{End, Outcome, run as run_until};
use super::transports::Watch;
use super::weather::{Weather, What};
use crate::simulated::{GROUP, Help, Plan, RouterNode};

/// Virtual time after which a session that has not ended hangs.
const LIMIT: Instant = Instant::from_micros(20_000_000_000);
/// Who does not answer for so long is given up: beyond what 30 % loss and an outage do to the
/// backed-off timers.
const PATIENCE: Duration = Duration::from_secs(3000);
/// Probes begin after a group has waited for who is dead: nine of them are lost by chance once in three
/// thousand times over the worst paths.
const KEEP_ALIVE: Duration = Duration::from_secs(4000);
const PORT: u16 = 7000;

type Content = Rc<[u8]>;

/// What each side is told.
struct Choices {
    content: Content,
    /// By node.
    configs: Vec<Config>,
    group: GroupConfig,
}

impl Choices {
    fn draw(weather: &Weather) -> Self {
        let rng = &mut weather.choices();
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
        let nodes = weather.tree().nodes();
        let configs: Vec<Config> = nodes
            .map(|_| config(mode, weather.is_calm(), rng))
            .collect();
        let addresses = weather.tree().receivers();
        let addresses = addresses.map(|node| IpAddr::V4(weather.tree().address(node)));
        let local = SocketAddr::new(weather.tree().address(0).into(), 0);
        let mut group = GroupConfig::new(local, addresses.collect(), PORT);
        group.group = GroupChoice::Given((*GROUP.ip()).into());
        group.mode = mode;
        group.max_alternatives = 1;
        group.max_wait = Duration::from_secs(300);
        group.receiver_timeout = PATIENCE;
        group.min_rate_bps = rng.chance(0.25).then(|| rng.between(10_000, 1_000_000));
        group.max_rate_bps = rng.chance(0.25).then(|| rng.between(200_000, 20_000_000));
        group.key = rng.chance(0.3).then_some(SegmentKey([7; 16]));
        Self {
            content: weather.content(len).into(),
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
    // A receiver learns from probes alone that a source has died in silence.
    let keep_alive = (!is_calm).then_some(KEEP_ALIVE);
    let policy = match rng.below(6) {
        _ if mode == GroupMode::Multicast => GroupPolicy::Accept,
        0 => GroupPolicy::Refuse,
        // A group that no router carries.
        1 => GroupPolicy::Propose(Ipv4Addr::new(239, 194, 1, 9).into()),
        _ => GroupPolicy::Accept,
    };
    Config {
        sack: !rng.chance(0.2),
        timestamps: !rng.chance(0.2),
        window_scaling: !rng.chance(0.2),
        receive_buffer: 4096 << rng.below(8),
        send_buffer: 4096 << rng.below(8),
        mtu: rng.between(576, 1500) as u16,
        pacing: rng.chance(0.3),
        congestion_control: if rng.chance(0.5) {
            CongestionControl::Cubic
        } else {
            CongestionControl::NewReno
        },
        connect_timeout: Duration::from_secs(300),
        user_timeout: PATIENCE,
        keep_alive,
        groups: policy,
        ..Config::default()
    }
}

/// A host: its endpoint and its application.
struct Host {
    endpoint: Endpoint<Whole<Content>>,
    content: Content,
    node: u32,
    plan: Rc<Plan>,
    joined: BTreeSet<IpAddr>,
    /// Bytes read from each connection that is open.
    open: BTreeMap<ConnId, usize>,
    /// What came was what was sent, so far.
    right: bool,
    /// The end of the stream came after this many bytes.
    end: Option<usize>,
    /// How each connection ended: peer, and why if not in good order.
    ends: Vec<(IpAddr, Option<tcpxm::Failure>)>,
    /// The group is opened, and has ended.
    group: Option<bool>,
}

impl Host {
    fn new(weather: &Weather, choices: &Choices, node: u32, now: Instant) -> Self {
        let seed = weather.node_seed(node, now);
        let config = choices.configs[node as usize].clone();
        let mut endpoint = Endpoint::new(config, seed, now);
        let mut group = None;
        if node == 0 {
            // A source that comes back knows nothing of the session: what comes is reset.
            if now == Instant::ZERO {
                let store = Whole::new(Rc::clone(&choices.content));
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
            plan: Rc::clone(&weather.plan),
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

/// A host or a router that forwards, and no more.
enum Peer {
    Host(Box<Host>),
    Router(simulated_router::Router),
}

/// [`RouterNode`] takes part in a simulation only inside of another enumeration.
mod simulated_router {
    use super::RouterNode;
    use crate::simulated::{Application, Peer, Watcher};
    use ltp::store::HeapRing;

    pub(super) struct Nothing;
    impl Application<HeapRing> for Nothing {}
    impl Watcher for Nothing {}

    pub(super) type Router = Peer<HeapRing, Nothing, Nothing>;

    pub(super) fn new(router: RouterNode) -> Router {
        Peer::Router(router)
    }
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

/// The group has ended, and nobody has a connection that is not at its end.
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
    let weather = Rc::new(Weather::new(seed, false));
    let choices = Rc::new(Choices::draw(&weather));
    let (for_make, in_make) = (Rc::clone(&weather), Rc::clone(&choices));
    let mut sim = weather.build(move |node, now| {
        let (plan, seed) = (&for_make.plan, for_make.node_seed(node, now));
        match plan.tree.role(node) {
            Role::Router => {
                let router = RouterNode::new(plan, node, Help::None, seed);
                Checked::router(Peer::Router(simulated_router::new(router)))
            }
            Role::Source | Role::Receiver => {
                let host = Host::new(&for_make, &in_make, node, now);
                Checked::host(Peer::Host(Box::new(host)))
            }
        }
    });
    watch.begin(&mut sim, &weather, &choices.describe())?;
    let done = run_until(&mut sim, &weather, LIMIT, is_done);
    watch.end(&mut sim)?;
    Ok(judge(&sim, &weather, &choices, done, watch))
}

fn judge(
    sim: &Sim<Place>,
    weather: &Weather,
    choices: &Choices,
    done: bool,
    watch: &Watch,
) -> Outcome {
    let mut outcome = Outcome::of(sim);
    if !done {
        outcome.fault(format!("not done at {}", sim.now()));
    }
    let host = |number: u32| match sim.node(NodeId(number)).map(|place| &place.node) {
        Some(Peer::Host(host)) => Some(host),
        _ => None,
    };
    for number in weather.tree().receivers() {
        let end = host(number).map_or(End::Dead, |host| {
            watch.say(|| {
                format!(
                    "receiver {number}: {:?} {:?}",
                    host.ends,
                    host.endpoint.stats()
                )
            });
            how_it_ended(host, choices)
        });
        watch.say(|| format!("receiver {number}: {end:?}"));
        // A connection does not outlive the end that forgets it.
        let may_fail = weather.is_cut_off(number) || weather.fails(number) || weather.fails(0);
        outcome.receiver(number, may_fail, &end);
    }
    if let Some(source) = host(0) {
        watch.say(|| format!("source: {:?} {:?}", source.ends, source.endpoint.stats()));
        judge_source(source, weather, &mut outcome);
    }
    outcome
}

/// What the source says of each receiver is what happened.
fn judge_source(source: &Host, weather: &Weather, outcome: &mut Outcome) {
    for number in weather.tree().receivers() {
        let address = IpAddr::V4(weather.tree().address(number));
        let failed = source
            .ends
            .iter()
            .any(|(remote, why)| *remote == address && why.is_some());
        let touched = weather.is_cut_off(number) || weather.fails(number);
        if failed && !touched {
            outcome.fault(format!(
                "the source gave receiver {number} up, which was there"
            ));
        }
    }
    let accidents = weather.accidents.iter();
    let source_died = accidents
        .clone()
        .any(|accident| accident.what == What::Node(0));
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
        // Nobody has called, or nothing is left of the call: the sender's word counts.
        None if host.open.is_empty() => End::Named("no connection".to_owned()),
        None => End::Open,
    }
}
