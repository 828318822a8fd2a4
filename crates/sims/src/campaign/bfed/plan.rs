//! A federation drawn from a seed: gateways, peerings, sessions, clients, and what fails.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result, anyhow};
use bfed::routing::{Action, Changes, Damping, Match, Policy, Rule};
use bfed::wire::sroute::{GatewayCost, Outcome};
use bfed::{
    BnNum, Config, Content, Cost, Costs, Duration, GatewayId, Instant, Metric, PeerConfig, Prefix,
    SessionName, Sroutes, Table, Tables,
};
use netsim::{LinkConfig, Loss, Rng, derive_seed};

/// After everything.
const NEVER: Instant = Instant::from_secs(1 << 30);
/// Nothing fails before.
pub(super) const CALM: Duration = Duration::from_secs(20);
/// What fails within a minute returns within this time.
const LONGEST_OUTAGE_MS: u64 = 40_000;
/// Costs are the same in all tables: this one is shown.
const TABLE: Table = Table::new(Metric::Hops, Content::Bulk, false);
/// Sources publish for this long once everything has settled.
pub(super) const WINDOW: Duration = Duration::from_secs(8);

/// A gateway.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    pub(super) id: GatewayId,
    pub(super) config: Config,
    /// Data nodes.
    pub(super) nodes: usize,
}

/// A peering, and the link that carries it.
#[derive(Clone, Debug)]
pub(super) struct Peering {
    /// The gateways at its ends, and what each of them has configured for the other.
    pub(super) ends: [(usize, PeerConfig); 2],
    /// One way.
    pub(super) delay: Duration,
    /// For datagrams between data nodes, one way and the other.
    pub(super) link: [LinkConfig; 2],
}

/// A session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) name: SessionName,
    pub(super) owner: BnNum,
    /// The owner knows it.
    pub(super) exists: bool,
    /// What gateways of the owner say of their costs.
    pub(super) sroutes: Sroutes,
}

/// A client of one network, and the times at which it wants a session.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// The gateway whose mediator it knows.
    pub(super) home: usize,
    pub(super) session: usize,
    /// From, until, and whether it leaves without a word.
    pub(super) stays: Vec<(Instant, Option<Instant>, bool)>,
    /// It publishes, where many may.
    pub(super) publishes: bool,
}

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    /// A peering's link. Streams over it wait, or break.
    Link(usize, bool),
    /// A control node dies.
    Control(usize),
    /// A data node dies: the gateway, and its number there.
    Node(usize, usize),
    /// A whole gateway dies.
    Gateway(usize),
    /// A whole gateway stands still.
    Freeze(usize),
    /// A control node stands still.
    FreezeControl(usize),
    /// A data node stands still.
    FreezeNode(usize, usize),
    /// The stream between a control node and a data node breaks.
    Cluster(usize, usize),
}

/// A failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) what: Component,
    pub(super) at: Instant,
    pub(super) until: Option<Instant>,
}

/// What a seed draws.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) key: [u8; 32],
    pub(super) gateways: Vec<Gateway>,
    pub(super) peerings: Vec<Peering>,
    pub(super) sessions: Vec<Session>,
    pub(super) clients: Vec<Client>,
    pub(super) faults: Vec<Fault>,
    /// Networks where all gateways receive a client's request.
    pub(super) heard: Vec<BnNum>,
    /// From then on nothing fails.
    pub(super) calm_at: Instant,
    /// How long it takes at most until everything has settled.
    pub(super) settle: Duration,
    /// How long soft state lives.
    pub(super) lifetime: Duration,
}

/// What all gateways of a federation have in common.
struct Times {
    refresh: Duration,
    lifetime: Duration,
    restart_s: u16,
    heartbeat: Duration,
    refusal: Duration,
    damping: Option<Damping>,
    tables: Tables,
}

impl Times {
    fn draw(rng: &mut Rng) -> Self {
        let refresh = Duration::from_secs(rng.between(2, 10));
        let half_life = Duration::from_secs(rng.between(5, 20));
        let damping = Damping {
            suppress: rng.between(1500, 6000) as u32,
            half_life,
            max_suppress: half_life * rng.between(1, 4) as u32,
            ..Damping::default()
        };
        Self {
            refresh,
            lifetime: refresh * 3 + Duration::from_secs(rng.between(1, 10)),
            restart_s: [0, rng.between(3, 40) as u16][usize::from(rng.chance(0.6))],
            heartbeat: Duration::from_millis(rng.between(250, 1500)),
            refusal: Duration::from_secs(rng.between(1, 5)),
            damping: rng.chance(0.4).then_some(damping),
            tables: Tables::ALL,
        }
    }

    fn config(&self, id: GatewayId, rng: &mut Rng) -> Config {
        let mut config = Config::new(id);
        config.refresh_interval = self.refresh;
        config.soft_state_lifetime = self.lifetime;
        config.restart_time_s = self.restart_s;
        config.heartbeat_interval = self.heartbeat;
        config.refusal_time = self.refusal;
        config.damping = self.damping;
        config.hold_time_s = rng.between(3, 20) as u16;
        config.tables = self.tables;
        if rng.chance(0.1) {
            let of = |table: &Table| table.content() == Content::RealTime;
            config.tables = Table::all()
                .filter(|table| !of(table))
                .fold(Tables::NONE, Tables::with);
        }
        config.transit = Costs::uniform(Cost(rng.below(4) as u32));
        config
    }
}

impl Plan {
    /// Draws a federation.
    ///
    /// # Errors
    /// Never: every drawn number is a valid one.
    pub(super) fn new(seed: u64) -> Result<Self> {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = &mut Rng::new(derive_seed(&key, 8, 0));
        let times = Times::draw(rng);
        let gateways = gateways(&times, rng)?;
        let peerings = peerings(&gateways, rng)?;
        let networks: Vec<BnNum> = networks(&gateways);
        let sessions = sessions(&networks, &gateways, rng)?;
        let faults = faults(&gateways, &peerings, rng);
        let calm_at = Instant::ZERO + CALM + Duration::from_secs(60);
        let clients = clients(&gateways, &sessions, calm_at, rng);
        let ends = faults.iter().filter_map(|fault| fault.until);
        let calm_at = ends.fold(calm_at, Instant::max);
        let damped = times.damping.map_or(0, |damping| {
            // A route that is used again may flap once more on the way.
            2 * damping.max_suppress.secs()
        });
        // Longest silence until an end notices, restart, two dials a minute apart, exclusions, soft state.
        let settle = 30
            + u64::from(times.restart_s) * 2
            + 130
            + 32 * times.refusal.secs() as u64
            + 2 * times.lifetime.secs() as u64
            + damped as u64;
        let heard = networks.iter().filter(|_| rng.chance(0.4)).copied();
        let heard = heard.collect();
        Ok(Self {
            key,
            gateways,
            peerings,
            sessions,
            clients,
            faults,
            heard,
            calm_at,
            settle: Duration::from_secs(settle),
            lifetime: times.lifetime,
        })
    }

    /// A generator for one purpose.
    pub(super) fn rng(&self, domain: u64, index: u64) -> Rng {
        Rng::new(self.seed(domain, index))
    }

    /// The seed of a machine.
    pub(super) fn seed(&self, domain: u64, index: u64) -> [u8; 32] {
        derive_seed(&self.key, domain, index)
    }

    /// The gateways of a network.
    pub(super) fn of(&self, network: BnNum) -> impl Iterator<Item = usize> + '_ {
        let all = self.gateways.iter().enumerate();
        all.filter(move |(_, gateway)| gateway.id.network == network)
            .map(|(at, _)| at)
    }

    /// What a seed draws, for people.
    pub(super) fn describe(&self) -> String {
        let mut lines = Vec::new();
        for (at, gateway) in self.gateways.iter().enumerate() {
            let heard = self.heard.contains(&gateway.id.network);
            lines.push(format!(
                "gateway {at} = {}, {} data nodes, all hear requests: {heard}, hold {} s, restart {} s, refresh {}, \
                 lifetime {}, damping {:?}, transit {:?}, origin {:?}, tables {:x}",
                gateway.id,
                gateway.nodes,
                gateway.config.hold_time_s,
                gateway.config.restart_time_s,
                gateway.config.refresh_interval,
                gateway.config.soft_state_lifetime,
                gateway.config.damping.map(|one| (one.suppress, one.half_life)),
                gateway.config.transit.get(TABLE),
                gateway.config.origin.get(TABLE),
                gateway.config.tables.bits()
            ));
        }
        for (at, peering) in self.peerings.iter().enumerate() {
            let [(a, of_a), (b, of_b)] = &peering.ends;
            lines.push(format!(
                "peering {at}: {a} and {b}, {}, loss {:?}, cost {:?} and {:?}, rules {:?} and {:?}",
                peering.delay,
                peering.link[0].loss,
                of_a.link.get(TABLE),
                of_b.link.get(TABLE),
                of_a.export.rules,
                of_b.export.rules
            ));
        }
        for (at, session) in self.sessions.iter().enumerate() {
            lines.push(format!(
                "session {at}: {}, exists: {}, costs {:?}",
                session.name, session.exists, session.sroutes
            ));
        }
        for (at, client) in self.clients.iter().enumerate() {
            lines.push(format!("client {at}: {client:?}"));
        }
        for fault in &self.faults {
            let until = fault
                .until
                .map_or("for good".to_owned(), |at| format!("until {at}"));
            lines.push(format!("{:?} fails at {} {until}", fault.what, fault.at));
        }
        lines.push(format!(
            "calm at {}, settled {} later",
            self.calm_at, self.settle
        ));
        lines.join("\n")
    }
}

fn networks(gateways: &[Gateway]) -> Vec<BnNum> {
    let mut networks: Vec<_> = gateways.iter().map(|gateway| gateway.id.network).collect();
    networks.dedup();
    networks
}

/// Two to six gateways of two to four networks, or of one.
fn gateways(times: &Times, rng: &mut Rng) -> Result<Vec<Gateway>> {
    let count = rng.between(2, 6);
    let least = if rng.chance(0.05) { 1 } else { 2 };
    let networks = rng.between(least, 4.min(count));
    let mut gateways = Vec::new();
    for network in 1..=networks {
        // The rest is spread over the networks that are left.
        let left = count - gateways.len() as u64;
        let after = networks - network;
        let own = if after == 0 {
            left
        } else {
            rng.between(1, left - after)
        };
        for number in 1..=own {
            let id = GatewayId::new(network as u32, number as u32).context("a network")?;
            let mut config = times.config(id, rng);
            // A network that carries no transit, a gateway that its sessions do not leave through.
            if rng.chance(0.15) {
                config.transit = Costs::uniform(Cost::INFINITE);
            }
            config.origin = Costs::uniform(match rng.chance(0.1) {
                true => Cost::INFINITE,
                false => Cost(rng.below(5) as u32),
            });
            gateways.push(Gateway {
                id,
                config,
                nodes: rng.between(1, 2) as usize,
            });
        }
    }
    Ok(gateways)
}

/// Full mesh within networks; a random tree of networks, and a few links more.
fn peerings(gateways: &[Gateway], rng: &mut Rng) -> Result<Vec<Peering>> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let network = |at: usize| gateways[at].id.network;
    for a in 0..gateways.len() {
        let inside = (0..a).filter(|&b| network(a) == network(b));
        pairs.extend(inside.map(|b| (b, a)));
    }
    let all = networks(gateways);
    let of = |network: BnNum, rng: &mut Rng| {
        let own = (0..gateways.len()).filter(|&at| gateways[at].id.network == network);
        let own: Vec<usize> = own.collect();
        own[rng.below(own.len() as u64) as usize]
    };
    for (at, &one) in all.iter().enumerate().skip(1) {
        // Some are islands.
        if rng.chance(0.95) {
            let other = all[rng.below(at as u64) as usize];
            pairs.push((of(other, rng), of(one, rng)));
        }
    }
    for _ in 0..rng.below(4) {
        let (a, b) = (
            rng.below(gateways.len() as u64) as usize,
            rng.below(gateways.len() as u64) as usize,
        );
        if network(a) != network(b) {
            pairs.push((a.min(b), a.max(b)));
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    let lossy = rng.chance(0.7);
    pairs
        .into_iter()
        .map(|(a, b)| peering(gateways, a, b, lossy, rng))
        .collect()
}

fn peering(
    gateways: &[Gateway],
    a: usize,
    b: usize,
    lossy: bool,
    rng: &mut Rng,
) -> Result<Peering> {
    let internal = gateways[a].id.network == gateways[b].id.network;
    let delay = Duration::from_micros(match internal {
        true => rng.between(200, 3_000),
        false => rng.between(500, 80_000),
    });
    let costs = |rng: &mut Rng| Costs::uniform(Cost(rng.between(1, 9) as u32));
    let one = costs(rng);
    // Costs of a link may differ by direction.
    let other = if rng.chance(0.2) { costs(rng) } else { one };
    let all = networks(gateways);
    let mut end = |own: usize, to: usize, link: Costs| -> Result<(usize, PeerConfig)> {
        let mut config = PeerConfig::new(gateways[to].id);
        config.link = link;
        config.mediator = format!("mediator {to}");
        let [low, high] = [to as u8, 0];
        let prefix = Prefix::new(IpAddr::from(Ipv4Addr::new(10, low, high, 0)), 16);
        config.data_prefixes = vec![prefix.context("a prefix")?];
        config.rate_bps = rng.chance(0.2).then(|| rng.between(200_000, 10_000_000));
        if !internal {
            config.dial = true;
            config.export = policy(&all, rng);
            config.import = policy(&all, rng);
        }
        Ok((own, config))
    };
    let mut ends = [end(a, b, one)?, end(b, a, other)?];
    // One side may leave the dialling to the other.
    if rng.chance(0.3) {
        ends[rng.below(2) as usize].1.dial = false;
    }
    let link = [way(delay, lossy, rng), way(delay, lossy, rng)];
    Ok(Peering { ends, delay, link })
}

/// Mostly everything; else costs, tags, or networks that are not announced.
fn policy(networks: &[BnNum], rng: &mut Rng) -> Policy {
    let mut policy = Policy::accept_all();
    if rng.chance(0.85) {
        return policy;
    }
    let network = networks[rng.below(networks.len() as u64) as usize];
    let changes = Changes {
        add_cost: Cost(rng.below(5) as u32),
        add_tag: Some(rng.below(10) as u32),
        ..Changes::default()
    };
    policy.rules.push(Rule {
        when: Match {
            network: Some(network),
            ..Match::default()
        },
        then: if rng.chance(0.5) {
            Action::Reject
        } else {
            Action::Accept(changes)
        },
    });
    policy
}

fn way(delay: Duration, lossy: bool, rng: &mut Rng) -> LinkConfig {
    let mut link = LinkConfig::new().delay(delay);
    if !lossy {
        return link;
    }
    link = match rng.below(4) {
        0 => link,
        1 => link.loss(Loss::GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.1,
            loss_good: 0.0,
            loss_bad: 0.8,
        }),
        _ => link.loss(Loss::Bernoulli(rng.unit() * 0.2)),
    };
    if rng.chance(0.4) {
        let extra = Duration::from_micros(1 + rng.below(30_000));
        link = link.reorder(rng.unit() * 0.2, extra);
    }
    if rng.chance(0.4) {
        link = link.duplicate(rng.unit() * 0.1).corrupt(rng.unit() * 0.02);
    }
    link
}

fn sessions(networks: &[BnNum], gateways: &[Gateway], rng: &mut Rng) -> Result<Vec<Session>> {
    let mut sessions = Vec::new();
    for number in 0..rng.between(1, 3) {
        // Some belong to a network that is not there.
        let owner = match rng.chance(0.05) {
            true => BnNum::new(77).context("a network")?,
            false => networks[rng.below(networks.len() as u64) as usize],
        };
        let flows = ["", "a/", "a/b/"][rng.below(3) as usize];
        let metric = ["hops", "latency", "bandwidth"][rng.below(3) as usize];
        let content = ["bulk-data", "real-time"][rng.below(2) as usize];
        let multi = rng.chance(0.4);
        let name = format!(
            "bfed://{}/s{number}/{flows}?metric={metric}&content={content}&multi-source={multi}",
            owner.get()
        );
        let name = SessionName::parse(&name).map_err(|error| anyhow!("{name}: {error}"))?;
        let own = gateways.iter().filter(|one| one.id.network == owner);
        let costs = own.map(|one| GatewayCost {
            gateway: one.id,
            cost: Cost(rng.below(8) as u32),
        });
        let sroutes = Sroutes {
            outcome: Outcome::Costs,
            costs: costs.collect(),
            got_all: rng.chance(0.7),
        };
        let exists = !rng.chance(0.1);
        let sroutes = match rng.chance(0.5) {
            _ if !exists && rng.chance(0.5) => Sroutes::none(Outcome::NoSession),
            true => sroutes,
            false => Sroutes::none(Outcome::Null),
        };
        sessions.push(Session {
            name,
            owner,
            exists,
            sroutes,
        });
    }
    Ok(sessions)
}

fn clients(
    gateways: &[Gateway],
    sessions: &[Session],
    calm_at: Instant,
    rng: &mut Rng,
) -> Vec<Client> {
    let draw = |_| {
        let mut stays = Vec::new();
        let mut at = Instant::from_millis(rng.between(1_000, 40_000) as i64);
        for _ in 0..rng.between(1, 4) {
            let until = at + Duration::from_millis(rng.between(500, 40_000));
            let is_last = until >= calm_at || rng.chance(0.3);
            let stays_on = is_last && rng.chance(0.8);
            stays.push((at, (!stays_on).then_some(until), rng.chance(0.3)));
            if is_last {
                break;
            }
            at = until + Duration::from_millis(rng.between(0, 20_000));
        }
        Client {
            home: rng.below(gateways.len() as u64) as usize,
            session: rng.below(sessions.len() as u64) as usize,
            stays,
            publishes: rng.chance(0.5),
        }
    };
    (0..3 + gateways.len()).map(draw).collect()
}

/// None in a fifth of the seeds, else up to eight.
fn faults(gateways: &[Gateway], peerings: &[Peering], rng: &mut Rng) -> Vec<Fault> {
    if rng.chance(0.2) {
        return Vec::new();
    }
    let mut faults: Vec<Fault> = Vec::new();
    let begin = (Instant::ZERO + CALM).total_millis() as u64;
    for _ in 0..rng.between(1, 8) {
        let gateway = rng.below(gateways.len() as u64) as usize;
        let node = rng.below(gateways[gateway].nodes as u64) as usize;
        let link = rng.below(peerings.len().max(1) as u64) as usize;
        let what = match rng.below(16) {
            0..=4 if !peerings.is_empty() => Component::Link(link, rng.chance(0.6)),
            5..=6 => Component::Control(gateway),
            7..=8 => Component::Node(gateway, node),
            9 => Component::Gateway(gateway),
            10..=11 => Component::Freeze(gateway),
            12 => Component::FreezeControl(gateway),
            13 => Component::FreezeNode(gateway, node),
            _ => Component::Cluster(gateway, node),
        };
        let at = Instant::from_millis((begin + rng.below(60_000)) as i64);
        let outage = Duration::from_millis(match rng.chance(0.4) {
            true => 1 + rng.below(1_500),
            false => 1 + rng.below(LONGEST_OUTAGE_MS),
        });
        let is_external = |link: usize| {
            let [(a, _), (b, _)] = &peerings[link].ends;
            gateways[*a].id.network != gateways[*b].id.network
        };
        let may_stay_down = match what {
            Component::Link(link, _) => is_external(link),
            Component::Gateway(_) => true,
            Component::Node(gateway, _) => gateways[gateway].nodes > 1 && faults.is_empty(),
            _ => false,
        };
        let until = (!(may_stay_down && rng.chance(0.3))).then(|| at + outage);
        let overlaps = |other: &Fault| {
            touches(other.what, what)
                && other.at <= until.unwrap_or(NEVER)
                && at <= other.until.unwrap_or(NEVER)
        };
        if !faults.iter().any(overlaps) {
            faults.push(Fault { what, at, until });
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Whether two failures concern the same thing, so that the end of one would undo the other.
fn touches(a: Component, b: Component) -> bool {
    let of = |what| match what {
        Component::Link(link, _) => (Some(link), None),
        Component::Control(at)
        | Component::Gateway(at)
        | Component::Freeze(at)
        | Component::FreezeControl(at)
        | Component::Node(at, _)
        | Component::FreezeNode(at, _)
        | Component::Cluster(at, _) => (None, Some(at)),
    };
    of(a) == of(b)
}
