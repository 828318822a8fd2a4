//! A network drawn from a seed: its tree, its links and their failures.

use std::rc::Rc;

use netsim::tree::{Shape, Tree};
use netsim::{
    Disposition, Duration, Instant, LinkConfig, LinkId, Loss, Node, NodeId, Rng, Sim, derive_seed,
};

use super::bursts::{Burst, State};
use crate::simulated::Plan;

const DOMAIN_PROFILE: u64 = 1;
const DOMAIN_NODE: u64 = 2;
const DOMAIN_CHOICES: u64 = 3;
const DOMAIN_CONTENT: u64 = 4;

/// A component that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    /// The link from this node to the one above it.
    Link(u32),
    /// This node, with all its state.
    Node(u32),
    /// The daemon that helps with recovery on this router; packets are forwarded all the same.
    Daemon(u32),
}

/// A failure, temporary or permanent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) what: Component,
    pub(super) at: Instant,
    pub(super) until: Option<Instant>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    config: LinkConfig,
    /// Losses beside those of the configuration.
    burst: Option<Burst>,
}

/// A network and its failures.
pub(super) struct NetworkProfile {
    pub(super) plan: Rc<Plan>,
    pub(super) outages: Vec<Outage>,
    /// Both directions of the link above each node: down, up.
    links: Vec<[Way; 2]>,
    key: [u8; 32],
}

/// Longest time after which a thing that fails for a time is back.
const LONGEST_OUTAGE_MS: u64 = 5_000;

impl NetworkProfile {
    /// The network of a seed; `daemons`: whether routers have one that may fail.
    pub(super) fn new(seed: u64, daemons: bool) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = &mut Rng::new(derive_seed(&key, DOMAIN_PROFILE, 0));
        let tree = tree(rng);
        let links = links(&tree, rng);
        let outages = outages(&tree, daemons, rng);
        Self {
            plan: Rc::new(Plan::new(tree)),
            outages,
            links,
            key,
        }
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.plan.tree
    }

    /// For what else is drawn: configurations, sizes.
    pub(super) fn choices(&self) -> Rng {
        Rng::new(derive_seed(&self.key, DOMAIN_CHOICES, 0))
    }

    /// The seed of the machine in a node that was started at this time.
    pub(super) fn node_seed(&self, node: u32, started: Instant) -> [u8; 32] {
        let seed = derive_seed(&self.key, DOMAIN_NODE, u64::from(node));
        derive_seed(&seed, started.total_micros() as u64 & 0xffff_ffff, 0)
    }

    /// What is transferred.
    pub(super) fn content(&self, len: usize) -> Vec<u8> {
        let mut rng = Rng::new(derive_seed(&self.key, DOMAIN_CONTENT, 0));
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// The slowest link, where any has a rate.
    pub(super) fn rate_bps(&self) -> Option<u64> {
        self.links[1..]
            .iter()
            .filter_map(|ways| ways[0].config.rate_bps)
            .min()
    }

    /// The network, with nodes made by `make`, at the start and after each failure.
    pub(super) fn build<N: Node>(&self, make: impl Fn(u32, Instant) -> N + 'static) -> Sim<N> {
        let make = Rc::new(make);
        let mut sim = Sim::new(self.key);
        for id in self.tree().nodes() {
            let make = Rc::clone(&make);
            sim.add_node_with(move |now| make(id, now));
        }
        for id in 1..self.tree().len() {
            let [down, up] = self.links[id as usize];
            let above = NodeId(self.tree().parent(id));
            sim.add_asymmetric_link(above, NodeId(id), down.config, up.config);
        }
        self.script(&mut sim);
        for outage in &self.outages {
            match outage.what {
                Component::Link(below) => {
                    let link = LinkId(below - 1);
                    sim.fail_link(outage.at, link);
                    outage.until.inspect(|at| sim.restore_link(*at, link));
                }
                Component::Node(node) => {
                    sim.fail_node(outage.at, NodeId(node));
                    let back = |at: &Instant| sim.restore_node(*at, NodeId(node));
                    outage.until.inspect(back);
                }
                Component::Daemon(_) => {}
            }
        }
        sim
    }

    /// Bursts of losses.
    fn script<N: Node>(&self, sim: &mut Sim<N>) {
        let mut states: Vec<[Option<State>; 2]> = Vec::new();
        for (ways, link) in self.links[1..].iter().zip(0..) {
            let state = |way: usize| {
                let burst = ways[way].burst?;
                Some(State::new(burst, &self.key, link, way as u64))
            };
            states.push([state(0), state(1)]);
        }
        if states.iter().flatten().all(Option::is_none) {
            return;
        }
        sim.script(move |record| {
            // The node below link i is i + 1: its packets go up.
            let way = usize::from(record.from == record.link + 1);
            let state = states[record.link as usize][way].as_mut();
            if state.is_some_and(|state| state.lose(record.time_ns)) {
                Disposition::Lose
            } else {
                Disposition::Chance
            }
        });
    }

    /// When the daemon of this router does not run.
    pub(super) fn daemon_outages(&self, node: u32) -> Vec<(Instant, Option<Instant>)> {
        let here = self.outages.iter();
        here.filter(|outage| outage.what == Component::Daemon(node))
            .map(|outage| (outage.at, outage.until))
            .collect()
    }

    /// The outages on the way from the source to this receiver, both ends included. Daemons do
    /// not count: no transfer depends on them.
    fn on_path(&self, receiver: u32) -> impl Iterator<Item = &Outage> {
        self.outages.iter().filter(move |outage| {
            let above = |node: u32| self.tree().below(node).contains(&receiver);
            match outage.what {
                Component::Link(node) | Component::Node(node) => node == 0 || above(node),
                Component::Daemon(_) => false,
            }
        })
    }

    /// Whether something that this receiver needs failed permanently.
    pub(super) fn is_cut_off(&self, receiver: u32) -> bool {
        self.on_path(receiver).any(|outage| outage.until.is_none())
    }

    /// Whether the source's first hop failed permanently: the link, the router or its daemon.
    pub(super) fn first_hop_is_lost(&self) -> bool {
        let lost = |outage: &Outage| {
            let first = [Component::Link(1), Component::Node(1), Component::Daemon(1)];
            outage.until.is_none() && first.contains(&outage.what)
        };
        self.outages.iter().any(lost)
    }

    /// Whether this node failed, temporarily or permanently.
    pub(super) fn fails(&self, node: u32) -> bool {
        let all = self.outages.iter();
        all.clone()
            .any(|outage| outage.what == Component::Node(node))
    }

    /// Whether nothing failed.
    pub(super) fn is_calm(&self) -> bool {
        self.outages.is_empty()
    }

    /// A description of the network, for replaying a seed.
    pub(super) fn describe(&self) -> String {
        let mut lines = Vec::new();
        for node in 1..self.tree().len() {
            let [down, up] = &self.links[node as usize];
            let role = format!("{:?}", self.tree().role(node)).to_lowercase();
            lines.push(format!(
                "{role} {node} ({}) below {}: {}; back {}",
                self.tree().address(node),
                self.tree().parent(node),
                link_words(down),
                link_words(up)
            ));
        }
        for outage in &self.outages {
            let until = outage
                .until
                .map_or("for good".to_owned(), |at| format!("until {at}"));
            lines.push(format!("{:?} fails at {} {until}", outage.what, outage.at));
        }
        lines.join("\n")
    }
}

fn link_words(way: &Way) -> String {
    let link = &way.config;
    let mut words = vec![format!("{} ms", link.delay.total_micros() as f64 / 1e3)];
    if let Loss::Bernoulli(loss) = link.loss {
        words.push(format!("loss {loss:.3}"));
    }
    if let Some(burst) = way.burst {
        let ms = burst.length.total_micros() as f64 / 1e3;
        words.push(format!("loss {:.3} in bursts of {ms:.1} ms", burst.loss));
    }
    if let Some(rate) = link.rate_bps {
        words.push(format!("{:.1} Mbit/s", rate as f64 / 1e6));
    }
    if let Some(reorder) = link.reorder {
        words.push(format!("late {:.2}", reorder.probability));
    }
    if link.duplicate > 0.0 {
        words.push(format!("twice {:.3}", link.duplicate));
    }
    if link.corrupt > 0.0 {
        words.push(format!("corrupt {:.3}", link.corrupt));
    }
    words.join(", ")
}

/// Uniform on a logarithmic scale.
fn log_uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.unit())
}

/// One to eight receivers; the round trip to the farthest one is 1 to 250 ms.
fn tree(rng: &mut Rng) -> Tree {
    let shape = Shape {
        receivers: rng.between(1, 8) as u32,
        max_fan_out: rng.between(2, 4) as u32,
        delay: (Duration::ZERO, Duration::ZERO),
    };
    let drawn = Tree::random(&shape, rng);
    let parents: Vec<u32> = drawn.nodes().map(|node| drawn.parent(node)).collect();
    let weights: Vec<f64> = parents.iter().map(|_| 0.1 + rng.unit()).collect();
    let mut from_source = vec![0.0; weights.len()];
    for node in 1..weights.len() {
        from_source[node] = from_source[parents[node] as usize] + weights[node];
    }
    let farthest = from_source.iter().copied().fold(0.0, f64::max);
    let one_way_us = log_uniform(rng, 1_000.0, 250_000.0) / 2.0;
    let delay = |weight: &f64| Duration::from_micros((weight / farthest * one_way_us) as u64);
    let delays: Vec<Duration> = weights.iter().map(delay).collect();
    Tree::from_parents(&parents, &delays)
}

/// What all links of a network have in common.
struct Conditions {
    /// Loss of one link: the longest path loses at most 30 %.
    loss: f64,
    /// How long bursts of losses last.
    burst_ms: Option<f64>,
    rate_bps: Option<f64>,
    reorder: f64,
    duplicate: f64,
    corrupt: f64,
    /// All of the loss is in one link of each path: that of the receiver.
    last_mile: bool,
}

impl Conditions {
    fn draw(depth: u16, rng: &mut Rng) -> Self {
        let path_loss = match rng.below(10) {
            0 | 1 => 0.0,
            2 => 0.3,
            _ => log_uniform(rng, 0.001, 0.3),
        };
        let last_mile = rng.chance(0.2);
        let links = if last_mile { 1 } else { i32::from(depth) };
        let sometimes = |rng: &mut Rng, most: f64| {
            let value = rng.unit() * most;
            if rng.chance(0.4) { value } else { 0.0 }
        };
        Self {
            loss: 1.0 - (1.0f64 - path_loss).powf(1.0 / f64::from(links)),
            burst_ms: rng.chance(0.3).then(|| log_uniform(rng, 2.0, 500.0)),
            rate_bps: rng.chance(0.5).then(|| log_uniform(rng, 1e6, 1e8)),
            reorder: sometimes(rng, 0.2),
            duplicate: sometimes(rng, 0.1),
            corrupt: sometimes(rng, 0.02),
            last_mile,
        }
    }

    fn way(&self, delay: Duration, last: bool, rng: &mut Rng) -> Way {
        let mut link = LinkConfig::new().delay(delay);
        let loss = if last || !self.last_mile {
            self.loss
        } else {
            0.0
        };
        let burst = self.burst_ms.filter(|_| loss > 0.0).map(|ms| Burst {
            loss,
            length: Duration::from_micros((ms * 1e3) as u64),
        });
        if loss > 0.0 && burst.is_none() {
            link = link.loss(Loss::Bernoulli(loss));
        }
        if let Some(rate) = self.rate_bps {
            let queue = rng.between(20, 300) as u32;
            link = link
                .rate_bps((rate * (1.0 + rng.unit())) as u64)
                .queue_packets(queue);
        }
        if self.reorder > 0.0 && rng.chance(0.6) {
            let extra = 1 + rng.below(2 * delay.total_micros() + 5_000);
            link = link.reorder(self.reorder, Duration::from_micros(extra));
        }
        if rng.chance(0.6) {
            // One flipped bit a packet at most: two, on two links, may cancel each other out in the
            // checksum of the Internet, which real links do not rely on.
            let corrupt = if last { self.corrupt } else { 0.0 };
            link = link.duplicate(self.duplicate).corrupt(corrupt);
        }
        Way {
            config: link,
            burst,
        }
    }
}

fn links(tree: &Tree, rng: &mut Rng) -> Vec<[Way; 2]> {
    let depth = tree.receivers().map(|node| tree.depth(node)).max();
    let conditions = Conditions::draw(depth.unwrap_or(1), rng);
    let mut all = vec![[Way::default(); 2]];
    for node in 1..tree.len() {
        let last = tree.children(node).is_empty();
        let delay = tree.link_delay(node);
        all.push([0; 2].map(|_| conditions.way(delay, last, rng)));
    }
    all
}

/// None in most networks, else up to three.
fn outages(tree: &Tree, daemons: bool, rng: &mut Rng) -> Vec<Outage> {
    if rng.chance(0.55) {
        return Vec::new();
    }
    let count = rng.between(1, 3);
    let mut all: Vec<Outage> = Vec::new();
    for _ in 0..count {
        let below = rng.between(1, u64::from(tree.len()) - 1) as u32;
        let what = match rng.below(10) {
            0..=3 => Component::Link(below),
            4 if rng.chance(0.5) => Component::Node(0),
            5..=6 if daemons && !tree.children(below).is_empty() => Component::Daemon(below),
            _ => Component::Node(below),
        };
        if all.iter().any(|other| other.what == what) {
            continue; // one fate for each thing
        }
        let at = Instant::from_micros(log_uniform(rng, 1e3, 2e7) as i64);
        let for_good = match what {
            Component::Daemon(_) => rng.chance(0.5),
            Component::Link(_) | Component::Node(_) => rng.chance(0.3),
        };
        let outage = Duration::from_millis(1 + rng.below(LONGEST_OUTAGE_MS));
        all.push(Outage {
            what,
            at,
            until: (!for_good).then(|| at + outage),
        });
    }
    all
}
