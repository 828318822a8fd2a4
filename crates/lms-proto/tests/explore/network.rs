//! The network, its machines, and what holds in each state and at the end.
//!
//! ```text
//! source -- upper router --+-- dear host (5)
//!                          |
//!                          +-- lower router -- link of the cheap host (3) and the middle host (4)
//! ```

use core::net::Ipv4Addr;
use std::fmt;

use igmp::datagram;
use igmp::wire::{Message, PROTOCOL};
use lms_proto::endpoint::{self, Election, Endpoint};
use lms_proto::hier::{self, Capacity, Cost};
use lms_proto::router::{self, Router};
use lms_proto::wire::hier::{PORT, View};
use lms_proto::wire::ipv4;
use lms_proto::{Iface, Instant, InterfaceConfig, Key, LinkAddr, Meta, NextHop, table};
use netsim::explore::{Faults, Fingerprint, Nodes, Outbox, START};

use crate::{HOLD, REFRESH};

/// The nodes, by number.
pub(crate) const UPPER: usize = 0;
pub(crate) const LOWER: usize = 1;
pub(crate) const DEAR: usize = 2;
pub(crate) const CHEAP: usize = 3;
pub(crate) const MIDDLE: usize = 4;
const COUNT: usize = 5;
pub(crate) const HOSTS: [usize; 3] = [DEAR, CHEAP, MIDDLE];
const COSTS: [u16; 3] = [5, 3, 4];

/// Interfaces of a router: towards the source, to the lower router or its hosts, and of the upper router to the dear host.
pub(crate) const UP: Iface = Iface(0);
pub(crate) const DOWN: Iface = Iface(1);
pub(crate) const SIDE: Iface = Iface(2);
/// The interface of a host.
const LAN: Iface = Iface(7);

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
pub(crate) const KEY: Key = Key::new(SOURCE, Ipv4Addr::new(232, 1, 1, 1));

/// The router above a node, and its interface there.
pub(crate) fn above(node: usize) -> (usize, Iface) {
    match node {
        LOWER => (UPPER, DOWN),
        DEAR => (UPPER, SIDE),
        _ => (LOWER, DOWN),
    }
}

/// The address of a node towards the source.
pub(crate) fn address(node: usize) -> Ipv4Addr {
    match node {
        UPPER => Ipv4Addr::new(10, 0, 0, 1),
        _ => Ipv4Addr::new(
            10,
            above(node).0 as u8 + 1,
            above(node).1.0 as u8,
            node as u8 + 1,
        ),
    }
}

/// The address of a router on a link below it.
fn address_below(router: usize, iface: Iface) -> Ipv4Addr {
    Ipv4Addr::new(10, router as u8 + 1, iface.0 as u8, 1)
}

/// The interfaces of a router below it.
fn downstream(router: usize) -> &'static [Iface] {
    if router == UPPER {
        &[DOWN, SIDE]
    } else {
        &[DOWN]
    }
}

/// What a driver knows of a packet from a node.
pub(crate) fn meta(iface: Iface, from: usize) -> Meta {
    Meta {
        iface,
        link_source: Some(LinkAddr([2, 0, 0, 0, 0, from as u8])),
    }
}

fn interface(address: Ipv4Addr) -> InterfaceConfig {
    InterfaceConfig::ipv4(address, 24)
}

fn new_router(node: usize, seed: u8, now: Instant) -> Router<'static> {
    let config = router::Config {
        hierarchy: hier::Config {
            refresh: REFRESH,
            ..hier::Config::default()
        },
        ..router::Config::default()
    };
    let capacity = Capacity {
        entries: 1,
        neighbours: 3,
        peers: 3,
        branches: 2,
        interfaces: 3,
    };
    let storage = router::Storage {
        table: table::Storage::with_capacity(1, 3),
        interfaces: vec![router::Interface::default(); 3].into(),
        addresses: vec![table::Slot::default(); 4].into(),
        subnets: vec![table::Slot::default(); 4].into(),
        sources: vec![].into(),
        hierarchy: hier::Storage::owned(capacity),
    };
    let mut router = Router::new(config, storage, [seed; 32], now);
    let mut set = |iface, address| {
        let set = router.set_interface(now, iface, interface(address));
        set.expect("room for the interface");
    };
    set(UP, address(node));
    for &iface in downstream(node) {
        set(iface, address_below(node, iface));
    }
    let installed = router.install(now, KEY, UP, downstream(node));
    installed.expect("room for the entry");
    router
}

fn new_host(node: usize, seed: u8, now: Instant) -> Endpoint<'static> {
    let config = endpoint::Config {
        refresh: REFRESH,
        ..endpoint::Config::new(LAN, interface(address(node)))
    };
    let storage = endpoint::Storage::owned(1);
    let mut endpoint = Endpoint::new(config, storage, [seed; 32], now);
    let joined = endpoint.join(now, KEY, cost_of(node));
    joined.expect("room for the session");
    endpoint
}

pub(crate) fn cost_of(host: usize) -> Cost {
    Cost(COSTS[host - DEAR])
}

/// What may happen to nodes, each once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    /// Nodes of which one may die.
    pub(crate) deaths: &'static [usize],
    /// Hosts of which one may leave.
    pub(crate) leaves: &'static [usize],
    /// Nodes of which one may start again without its state.
    pub(crate) restarts: &'static [usize],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Death(usize),
    Leave(usize),
    Restart(usize),
}

/// A packet of a node, all bytes of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    from: usize,
    bytes: Vec<u8>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}, ", self.from)?;
        let Some(ip) = datagram::parse::<Ipv4Addr>(&self.bytes, ipv4::PROTOCOL_UDP) else {
            return self.describe_report(f);
        };
        let message = datagram::udp_payload(&ip, PORT).expect("LMS-HIER");
        let view = View::<Ipv4Addr>::new_checked(message).expect("what is sent can be read");
        let entry = view.entries().next().expect("an entry");
        let header = view.header();
        let (kind, number) = (header.kind, header.sequence);
        write!(
            f,
            "{kind:?} {number}: {:?} {:?}",
            entry.neighbour, entry.cost
        )
    }
}

impl Packet {
    fn describe_report(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = datagram::parse::<Ipv4Addr>(&self.bytes, PROTOCOL).expect("IGMP");
        let Ok(Message::V3Report(records)) = Message::parse(ip.payload) else {
            return f.write_str("not a report");
        };
        let record = records.iter().next().expect("a record");
        write!(f, "{:?} {:?}", record.kind, record.cost())
    }
}

pub(crate) struct Site {
    pub(crate) routers: [Router<'static>; 2],
    pub(crate) hosts: [Endpoint<'static>; 3],
    changes: Changes,
    faults: Faults,
    /// The node that died, and when.
    died: Option<(usize, Instant)>,
    left: Option<usize>,
    restarted: Option<usize>,
}

impl Site {
    pub(crate) fn new(changes: Changes, faults: Faults) -> Self {
        Site {
            routers: [UPPER, LOWER].map(|node| new_router(node, 10 + node as u8, START)),
            hosts: HOSTS.map(|node| new_host(node, 10 + node as u8, START)),
            changes,
            faults,
            died: None,
            left: None,
            restarted: None,
        }
    }

    pub(crate) fn host(&self, node: usize) -> &Endpoint<'static> {
        &self.hosts[node - DEAR]
    }

    /// Whether a host offers to be a replier.
    fn is_candidate(&self, host: usize) -> bool {
        self.is_alive(host) && self.left != Some(host)
    }

    /// The elected neighbour of a router and its cost.
    fn elected(&self, router: usize) -> Option<(Ipv4Addr, Cost)> {
        let hierarchy = self.routers[router].hierarchy();
        let elected = hierarchy.elected(hierarchy.find(KEY)?)?;
        match hierarchy.next_hop(elected.peer) {
            NextHop::Neighbour { addr, .. } => Some((addr, elected.cost)),
            NextHop::Group | NextHop::Routed => None,
        }
    }

    /// Sends what a node has to send.
    fn drain(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        let mut buffer = [0; 1500];
        loop {
            let transmit = match node {
                UPPER | LOWER => self.routers[node].poll_transmit(now, &mut buffer),
                host => self.hosts[host - DEAR].poll_transmit(now, &mut buffer),
            };
            let Some(transmit) = transmit else { break };
            let packet = Packet {
                from: node,
                bytes: buffer[..transmit.len].to_vec(),
            };
            // Those who ignore a message do not get it: routers ELECTED messages, hosts UPDATE messages and reports.
            let receivers: &[usize] = match (node, transmit.iface) {
                (UPPER, SIDE) => &[DEAR],
                (UPPER, _) => &[],
                (LOWER, DOWN) => &[CHEAP, MIDDLE],
                (LOWER | DEAR, _) => &[UPPER],
                _ => &[LOWER],
            };
            for &to in receivers {
                out.send(to, packet.clone());
            }
        }
        match node {
            UPPER | LOWER => while self.routers[node].poll_event().is_some() {},
            host => while self.hosts[host - DEAR].poll_event().is_some() {},
        }
    }

    /// The election is that of the cheapest candidate below each router, and all hosts know it.
    fn check_elections(&self) -> Result<(), String> {
        let best = |hosts: &[usize]| {
            let candidates = hosts.iter().filter(|&&host| self.is_candidate(host));
            candidates.map(|&host| cost_of(host)).min()
        };
        let below = best(&[CHEAP, MIDDLE]).filter(|_| self.is_alive(LOWER));
        let through = below.map(|cost| Cost(cost.0 + 1));
        let all = best(&[DEAR]).into_iter().chain(through).min();
        for (router, best) in [(UPPER, all), (LOWER, below)] {
            let elected = self.elected(router).filter(|_| self.is_alive(router));
            let cost = elected.map(|(_, cost)| cost);
            if cost != best {
                return Err(format!("router {router} elected {elected:?}, not {best:?}"));
            }
        }
        for host in HOSTS.into_iter().filter(|&host| self.is_candidate(host)) {
            let (router, iface) = above(host);
            let expected = match self.elected(router) {
                _ if !self.is_alive(router) => Election::NoRouter,
                Some((elected, _)) if elected == address(host) => Election::Me,
                Some((elected, _)) if iface == DOWN && router == LOWER => Election::Other(elected),
                _ => Election::Elsewhere,
            };
            let election = self.host(host).election(KEY);
            if election != expected {
                return Err(format!("host {host} knows {election:?}, not {expected:?}"));
            }
        }
        Ok(())
    }
}

impl Nodes for Site {
    type Packet = Packet;
    type Command = Change;

    fn count(&self) -> usize {
        COUNT
    }

    fn is_alive(&self, node: usize) -> bool {
        self.died.is_none_or(|(dead, _)| dead != node)
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        node: usize,
        packet: &Packet,
        out: &mut Outbox<Packet>,
    ) {
        // What is refused is counted: `check` reads the counters.
        let _ = match node {
            UPPER | LOWER => {
                let meta = meta(above(packet.from).1, packet.from);
                let result = self.routers[node].handle_packet(now, &meta, &packet.bytes);
                result.map_err(|_| ())
            }
            host => {
                let meta = meta(LAN, packet.from);
                let result = self.hosts[host - DEAR].handle_packet(now, &meta, &packet.bytes);
                result.map_err(|_| ())
            }
        };
        self.drain(now, node, out);
    }

    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        match node {
            UPPER | LOWER => self.routers[node].handle_timeout(now),
            host => self.hosts[host - DEAR].handle_timeout(now),
        }
        self.drain(now, node, out);
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        match node {
            UPPER | LOWER => self.routers[node].poll_timeout(),
            host => self.host(host).poll_timeout(),
        }
    }

    fn commands(&self, commands: &mut Vec<Change>) {
        if self.died.is_none() {
            commands.extend(self.changes.deaths.iter().map(|&node| Change::Death(node)));
        }
        if self.left.is_none() {
            let alive = self
                .changes
                .leaves
                .iter()
                .filter(|&&host| self.is_alive(host));
            commands.extend(alive.map(|&host| Change::Leave(host)));
        }
        if self.restarted.is_none() {
            let running = |&&node: &&usize| self.is_alive(node) && self.left != Some(node);
            let running = self.changes.restarts.iter().filter(running);
            commands.extend(running.map(|&node| Change::Restart(node)));
        }
    }

    fn command(&mut self, now: Instant, change: &Change, out: &mut Outbox<Packet>) {
        match *change {
            Change::Death(node) => self.died = Some((node, now)),
            Change::Leave(host) => {
                self.left = Some(host);
                self.hosts[host - DEAR].leave(now, KEY);
                self.drain(now, host, out);
            }
            Change::Restart(node) => {
                self.restarted = Some(node);
                match node {
                    UPPER | LOWER => self.routers[node] = new_router(node, 20 + node as u8, now),
                    host => self.hosts[host - DEAR] = new_host(host, 20 + host as u8, now),
                }
                self.drain(now, node, out);
            }
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.hash(&(self.died, self.left, self.restarted));
        for node in (0..COUNT).filter(|&node| self.is_alive(node)) {
            match node {
                UPPER | LOWER => fingerprint.debug(&self.routers[node]),
                host => fingerprint.debug(self.host(host)),
            }
        }
    }

    fn check(&self, now: Instant) -> Result<(), String> {
        let neighbours = |router| match router {
            UPPER => [address(LOWER), address(DEAR)],
            _ => [address(CHEAP), address(MIDDLE)],
        };
        for router in [UPPER, LOWER] {
            let hierarchy = self.routers[router].hierarchy();
            let drops = &hierarchy.stats().drops;
            if drops.total() > drops.get(hier::DropReason::Replay) {
                return Err(format!("router {router} refused {drops:?}"));
            }
            let Some((elected, _)) = self.elected(router) else {
                continue;
            };
            if !neighbours(router).contains(&elected) {
                return Err(format!("router {router} elected {elected}"));
            }
            let dead = self.died.filter(|&(dead, _)| address(dead) == elected);
            if let Some((dead, at)) = dead
                && now > at + self.faults.max_delay + HOLD + self.faults.max_lateness
                && self.is_alive(router)
            {
                return Err(format!(
                    "router {router} still elects {dead}, dead since {at}"
                ));
            }
        }
        for host in HOSTS {
            let drops = &self.host(host).stats().drops;
            if drops.total() > drops.get(endpoint::DropReason::Replay) {
                return Err(format!("host {host} refused {drops:?}"));
            }
        }
        Ok(())
    }

    fn check_end(&mut self, now: Instant) -> Result<(), String> {
        self.check_elections()?;
        let hosts = HOSTS.into_iter().filter(|&host| self.is_candidate(host));
        let with_router = hosts.filter(|&host| self.is_alive(above(host).0));
        for host in with_router.collect::<Vec<_>>() {
            self.request(now, host)?;
        }
        Ok(())
    }
}
