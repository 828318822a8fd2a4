//! Federations at random, with failures: they settle on the routes and trees of an oracle that only
//! knows shortest paths.

use std::collections::{BTreeMap, BTreeSet};

use bfed::*;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::world::{World, gateway, sroutes};

const SECOND: Duration = Duration::from_secs(1);

struct Federation {
    world: World,
    /// Links with their costs.
    links: BTreeMap<(usize, usize), u32>,
    seed: u64,
    rng: ChaCha12Rng,
}

fn below(rng: &mut ChaCha12Rng, bound: usize) -> usize {
    (rng.next_u64() % bound as u64) as usize
}

impl Federation {
    /// Networks of one to three gateways, in full mesh inside; a random tree of networks, and as many
    /// links more as there are networks.
    fn new(networks: u32, seed: u64) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut world = World::new();
        world.beat = SECOND * 20;
        let mut of = Vec::new();
        let mut links = BTreeMap::new();
        for network in 1..=networks {
            let size = 1 + below(&mut rng, 3) as u32;
            let members: Vec<usize> = (1..=size)
                .map(|number| {
                    let mut config = Config::new(gateway(network, number));
                    config.damping = None;
                    config.heartbeat_interval = SECOND * 20;
                    world.add(config)
                })
                .collect();
            for (at, &one) in members.iter().enumerate() {
                for &other in &members[at + 1..] {
                    links.insert((one, other), 1);
                }
            }
            of.push(members);
        }
        for network in 1..2 * networks as usize {
            let (a, b) = if network < of.len() {
                (network, below(&mut rng, network))
            } else {
                (below(&mut rng, of.len()), below(&mut rng, of.len()))
            };
            if a == b {
                continue;
            }
            let one = of[a][below(&mut rng, of[a].len())];
            let other = of[b][below(&mut rng, of[b].len())];
            let cost = 1 + below(&mut rng, 5) as u32;
            links.insert((one.min(other), one.max(other)), cost);
        }
        for (&(one, other), &cost) in &links {
            world.peer_with(one, other, |_, peer| peer.link = Costs::uniform(Cost(cost)));
        }
        Federation {
            world,
            links,
            seed,
            rng,
        }
    }

    /// What it costs each gateway to reach the nearest of those that have an extra cost. Gateways of
    /// `owner` are ends, never on the way.
    fn distances(&self, owner: BnNum, extra: &dyn Fn(usize) -> Option<u32>) -> Vec<Option<u32>> {
        let count = self.world.gws.len();
        let ends: Vec<bool> = self
            .world
            .gws
            .iter()
            .map(|gw| gw.id.network == owner)
            .collect();
        let mut best: Vec<Option<u32>> = (0..count).map(extra).collect();
        for _ in 0..count {
            let before = best.clone();
            for (&(a, b), &cost) in &self.links {
                for (one, other) in [(a, b), (b, a)] {
                    if let Some(far) = best[other].filter(|_| !ends[one]) {
                        best[one] = Some(best[one].map_or(far + cost, |now| now.min(far + cost)));
                    }
                }
            }
            if best == before {
                break;
            }
        }
        best
    }

    /// Whether all members can reach the owner.
    fn is_connected(&self, owner: u32, members: &BTreeSet<usize>) -> bool {
        let network = gateway(owner, 1).network;
        let own = |at: usize| (self.world.gws[at].id.network == network).then_some(0);
        let far = self.distances(network, &own);
        members.iter().all(|&member| far[member].is_some())
    }

    fn check_routes(&self) {
        let table = crate::world::session("bfed://1/m").table();
        let count = self.world.gws.len();
        for to in 0..count {
            let destination = self.world.gws[to].id;
            let want = self.distances(destination.network, &|at| (at == to).then_some(0));
            let elsewhere = |&from: &usize| self.world.gws[from].id.network != destination.network;
            for from in (0..count).filter(elsewhere) {
                let mut routes = self.world.gws[from].control.routes();
                let best = routes
                    .find(|r| r.best && r.table == table && r.destination == destination)
                    .map(|r| r.route.cost.0);
                assert_eq!(best, want[from], "seed {}: {from} to {to}", self.seed);
            }
        }
    }

    /// Every member's tree has the cost of the oracle, and data reaches it once.
    fn check_tree(&self, name: &str, owner: u32, extra: &[(u32, u32)], members: &BTreeSet<usize>) {
        let own = |at: usize| {
            let id = self.world.gws[at].id;
            let of = extra.iter().find(|(number, _)| *number == id.number);
            (id.network.get() == owner).then(|| of.map(|(_, cost)| *cost))?
        };
        let want = self.distances(gateway(owner, 1).network, &own);
        let reached = self.world.reached(name);
        for &member in members {
            let path = self.world.path(member, name);
            let path = path.unwrap_or_else(|| panic!("seed {}: {member} has none", self.seed));
            assert!(
                reached.contains(&self.world.gws[member].id),
                "seed {}",
                self.seed
            );
            let index: BTreeMap<_, _> = self
                .world
                .gws
                .iter()
                .enumerate()
                .map(|(at, gw)| (gw.id, at))
                .collect();
            let (mut at, mut cost) = (member, 0);
            for on in &path {
                let next = index[on];
                cost += self.links[&(at.min(next), at.max(next))];
                at = next;
            }
            cost += own(at).expect("ends at the owner");
            let by_route: Vec<_> = path.iter().map(ToString::to_string).collect();
            assert_eq!(
                Some(cost),
                want[member],
                "seed {}: {member} by {by_route:?}",
                self.seed
            );
        }
    }

    /// Clients join, following redirects.
    fn join(&mut self, name: &str, member: usize) -> Option<usize> {
        let mut at = member;
        for redirects in 0..4 {
            let client = ClientId(1000 + redirects);
            let now = self.world.now;
            self.world.gws[at].answers.clear();
            let session = crate::world::session(name);
            self.world.gws[at]
                .control
                .join(now, client, session, redirects as u8, Scope::Chosen);
            self.world.run(SECOND * 4);
            match self.world.answer(at, client.0) {
                Some(wire::client::Answer::Translation(_)) => return Some(at),
                Some(wire::client::Answer::Redirect { gateway, .. }) => {
                    let to = *gateway;
                    at = self.world.gws.iter().position(|gw| gw.id == to).unwrap();
                }
                _ => return None,
            }
        }
        None
    }
}

fn settle_and_check(networks: u32, seed: u64, failures: usize) {
    let mut federation = Federation::new(networks, seed);
    federation.world.run(SECOND * 20);
    federation.check_routes();
    let (name, owner) = ("bfed://1/m", 1);
    let count = federation.world.gws.len();
    let extra: Vec<(u32, u32)> = (1..=3)
        .map(|number| (number, below(&mut federation.rng, 6) as u32))
        .collect();
    for gw in federation
        .world
        .gws
        .iter_mut()
        .filter(|gw| gw.id.network.get() == owner)
    {
        gw.sroutes = Some(sroutes(owner, &extra, true));
    }
    let mut members = BTreeSet::new();
    for _ in 0..8 {
        let member = below(&mut federation.rng, count);
        if federation.world.gws[member].id.network.get() != owner
            && let Some(at) = federation.join(name, member)
        {
            members.insert(at);
        }
    }
    assert!(!members.is_empty(), "seed {seed}");
    federation.check_tree(name, owner, &extra, &members);
    for _ in 0..failures {
        // A link between networks goes down; all gateways stay connected without it.
        let all: Vec<_> = federation.links.clone().into_iter().collect();
        let (link, cost) = all[below(&mut federation.rng, all.len())];
        let network = |at: usize| federation.world.gws[at].id.network;
        if network(link.0) == network(link.1) {
            continue;
        }
        federation.links.remove(&link);
        if !federation.is_connected(owner, &members) {
            federation.links.insert(link, cost);
            continue;
        }
        federation.world.set_link(link.0, link.1, false);
        // Routes are kept for the restart time, then they go.
        federation.world.run(SECOND * 125);
        for &member in &members {
            let now = federation.world.now;
            let (client, session) = (ClientId(1), crate::world::session(name));
            // Clients that stay ask again.
            federation.world.gws[member]
                .control
                .join(now, client, session, 2, Scope::Chosen);
        }
        federation.world.run(SECOND * 60);
        federation.check_routes();
        federation.check_tree(name, owner, &extra, &members);
    }
}

#[test]
fn ten_networks_settle_on_shortest_paths() {
    for seed in 0..6 {
        settle_and_check(10, seed, 0);
    }
}

#[test]
fn trees_follow_routes_when_links_die() {
    for seed in 100..103 {
        settle_and_check(8, seed, 3);
    }
}

#[test]
fn fifty_networks_of_a_hundred_gateways() {
    settle_and_check(50, 7, 1);
}
