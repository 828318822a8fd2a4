//! What must hold once nothing fails any more and everything has settled.

use std::collections::{BTreeMap, BTreeSet};

use bfed::control::TreeStatus;
use bfed::routing::{Action, Policy};
use bfed::{Content, GatewayId, PeerConfig, SessionName, Table};
use netsim::NodeId as HostId;

use super::super::outcome::{End as Result, Outcome};
use super::super::transports::Watch;
use super::world::{End, World};

/// Of the frames of a real-time session, congestion control may drop some.
const LEAST_SHARE: f64 = 0.5;

impl World {
    /// The gateways that must have a route to the owner of a session, by routes alone: an announcement leads from
    /// gateway to gateway as the table of `bfed::routing` says. Policies and costs depend on the destination's network
    /// only, and the gateways of a network are in full mesh, so which of several routes is the best does not matter.
    fn with_route(&self, session: usize) -> BTreeSet<usize> {
        let session = &self.plan.sessions[session];
        let table = session.name.table();
        let mut all = BTreeSet::new();
        for owner in self.plan.of(session.owner) {
            let config = &self.plan.gateways[owner].config;
            let is_there = self.gateways[owner].control.is_some();
            if is_there && config.origin.get(table).is_finite() {
                all.extend(self.reached_from(owner, table));
            }
        }
        all
    }

    /// The gateways that a route to `owner` reaches.
    fn reached_from(&self, owner: usize, table: Table) -> BTreeSet<usize> {
        let destination = self.plan.gateways[owner].id;
        // A gateway, and whether its route comes from its own network.
        let mut found: BTreeSet<(usize, bool)> = BTreeSet::new();
        let mut todo = vec![(owner, false)];
        while let Some((at, is_internal)) = todo.pop() {
            if !found.insert((at, is_internal)) {
                continue;
            }
            for (peering, (up, _)) in self.plan.peerings.iter().zip(&self.links) {
                let Some((to, export, import)) = sides(&peering.ends, at).filter(|_| *up) else {
                    continue;
                };
                let inside = self.network(at) == self.network(to);
                let transit = self.plan.gateways[at].config.transit.get(table);
                let has = |at: usize| self.plan.gateways[at].config.tables.contains(table);
                let leads_on = at == owner
                    || (self.network(at) != destination.network
                        && !(inside && is_internal)
                        && (inside || transit.is_finite()));
                let is_accepted = [&export.export, &import.import]
                    .into_iter()
                    .all(|policy| accepts(policy, destination));
                let there = self.gateways[to].control.is_some();
                if leads_on && is_accepted && there && has(at) && has(to) {
                    todo.push((to, inside));
                }
            }
        }
        let of_owner = |at: &usize| self.network(*at) == destination.network;
        found
            .into_iter()
            .map(|(at, _)| at)
            .filter(|at| !of_owner(at))
            .collect()
    }

    /// Judges every client, every tree, and every data node.
    pub(super) fn judge(&mut self, outcome: &mut Outcome, watch: &Watch) {
        let sessions = 0..self.plan.sessions.len();
        let routes: Vec<BTreeSet<usize>> = sessions.map(|at| self.with_route(at)).collect();
        watch.print(|| format!("gateways with a route, by session: {routes:?}"));
        for client in 0..self.clients.len() {
            let state = &self.clients[client];
            if state.wants {
                self.judge_client(client, &routes, outcome, watch);
            }
        }
        self.judge_trees();
        self.judge_nodes();
    }

    fn judge_client(
        &mut self,
        client: usize,
        routes: &[BTreeSet<usize>],
        outcome: &mut Outcome,
        watch: &Watch,
    ) {
        let plan = &self.plan.clients[client];
        let (home, number) = (plan.home, plan.session);
        let session = &self.plan.sessions[number];
        let (exists, owner) = (session.exists, session.owner);
        let network = self.network(home);
        let mut asked: Vec<usize> = match self.plan.heard.contains(&network) {
            true => self.plan.of(network).collect(),
            false => vec![home],
        };
        // One that was redirected stays there when its own gateway dies.
        let may_ask = self.clients[client].at;
        asked.retain(|at| self.gateways[*at].control.is_some());
        let is_local = owner == network;
        let has_route = asked.iter().any(|at| routes[number].contains(at));
        let is_served = self.clients[client].is_served();
        let reason = self.clients[client].reason.clone();
        let must = !asked.is_empty() && (is_local || (has_route && exists));
        watch.print(|| {
            format!(
                "client {client} at {home}: must be served: {must}, is: {is_served} at {}, {reason:?}",
                self.clients[client].at
            )
        });
        let may = must || routes[number].contains(&may_ask);
        if is_served && !may {
            self.fault(format!(
                "client {client} is served, and no route leads there"
            ));
        } else if !is_served {
            let words = reason.unwrap_or_else(|| "no reason".to_owned());
            if has_route && !exists && words != "no_session" {
                self.fault(format!("client {client}: {words}, not no_session"));
            }
            if words == "no reason" || (words == "no answer" && !asked.is_empty()) {
                self.fault(format!(
                    "client {client} is neither served nor refused: {words}"
                ));
            }
            outcome.receiver(client as u32, !must, &Result::Named(words));
            return;
        }
        if exists {
            self.judge_frames(client);
            outcome.receiver(client as u32, true, &Result::Whole);
        }
    }

    /// Each frame of the window once; in a real-time session some may be missing.
    fn judge_frames(&mut self, client: usize) {
        let session = self.plan.clients[client].session;
        let is_bulk = self.plan.sessions[session].name.content() == Content::Bulk;
        let heard = &self.clients[client].heard;
        let own = client as u32 + 1;
        let mut counts: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let mut twice = Vec::new();
        for &(of, source, flow, number) in &self.published {
            if of != session || source == own {
                continue;
            }
            let times = heard.get(&(source, flow, number)).copied().unwrap_or(0);
            let (sent, came) = counts.entry(source).or_default();
            *sent += 1;
            *came += u32::from(times > 0);
            if times > 1 {
                twice.push((source, flow, number, times));
            }
        }
        if let Some(frame) = twice.first() {
            let words = format!(
                "client {client} receives {} frames twice: {frame:?}",
                twice.len()
            );
            self.fault(words);
        }
        for (source, (sent, came)) in counts {
            let least = if is_bulk { 1.0 } else { LEAST_SHARE };
            if f64::from(came) < f64::from(sent) * least {
                let words =
                    format!("client {client} receives {came} of {sent} frames of source {source}");
                self.fault(words);
            }
        }
    }

    fn trees(&self) -> BTreeMap<(usize, SessionName), TreeStatus> {
        let all = self.gateways.iter().enumerate();
        all.filter_map(|(at, gateway)| Some((at, gateway.control.as_ref()?)))
            .flat_map(|(at, control)| {
                let trees = control.trees();
                trees.map(move |tree| ((at, tree.session.clone()), tree))
            })
            .collect()
    }

    /// Every tree is wanted, and agrees with those above and below it.
    fn judge_trees(&mut self) {
        let trees = self.trees();
        let mut wrong = Vec::new();
        for ((at, session), tree) in &trees {
            let wants = |client: usize| {
                let plan = &self.plan.clients[client];
                let (home, of) = (self.network(plan.home), plan.session);
                self.clients[client].wants
                    && self.plan.sessions[of].name == *session
                    && home == self.network(*at)
            };
            let is_wanted = (0..self.clients.len()).any(wants);
            if tree.clients && !is_wanted {
                wrong.push(format!(
                    "gateway {at} serves {session}, and no client wants it"
                ));
            }
            for below in &tree.downstream {
                let far = trees.get(&(below.0 as usize, session.clone()));
                let up = far.and_then(|far| far.upstream);
                if up.map(|up| up.0 as usize) != Some(*at) {
                    wrong.push(format!(
                        "gateway {at} sends {session} to {}, whose upstream is {up:?}",
                        below.0
                    ));
                }
            }
            if !tree.clients && tree.downstream.is_empty() && tree.attached {
                wrong.push(format!("gateway {at} carries {session} for nothing"));
            }
            if let Some(up) = tree.upstream {
                let far = trees.get(&(up.0 as usize, session.clone()));
                let is_known =
                    far.is_some_and(|far| far.downstream.iter().any(|one| one.0 as usize == *at));
                if !is_known {
                    wrong.push(format!(
                        "gateway {at} waits for {session} from {}, which does not know",
                        up.0
                    ));
                }
            }
            if self.loops(*at, session, &trees) {
                wrong.push(format!("the tree of {session} has a loop at gateway {at}"));
            }
        }
        wrong.extend(self.served_twice(&trees));
        wrong.into_iter().for_each(|words| self.fault(words));
    }

    /// Where all gateways of a network receive requests, only one answers.
    fn served_twice(&self, trees: &BTreeMap<(usize, SessionName), TreeStatus>) -> Vec<String> {
        let mut wrong = Vec::new();
        for network in &self.plan.heard {
            let mut by: BTreeMap<&SessionName, Vec<usize>> = BTreeMap::new();
            for ((at, session), tree) in trees {
                if self.network(*at) == *network && tree.clients {
                    by.entry(session).or_default().push(*at);
                }
            }
            let several = by.into_iter().filter(|(_, at)| at.len() > 1);
            wrong.extend(
                several.map(|(session, at)| format!("gateways {at:?} all serve {session}")),
            );
        }
        wrong
    }

    fn loops(
        &self,
        at: usize,
        session: &SessionName,
        trees: &BTreeMap<(usize, SessionName), TreeStatus>,
    ) -> bool {
        let mut seen = BTreeSet::new();
        let mut at = at;
        while seen.insert(at) {
            let tree = trees.get(&(at, session.clone()));
            match tree.and_then(|tree| tree.upstream) {
                Some(up) => at = up.0 as usize,
                None => return false,
            }
        }
        true
    }

    /// Data nodes carry what the trees say, and nothing else; counts agree.
    fn judge_nodes(&mut self) {
        let mut wrong = Vec::new();
        for at in 0..self.gateways.len() {
            let Some(control) = &self.gateways[at].control else {
                continue;
            };
            let trees: BTreeSet<_> = control
                .trees()
                .filter(|tree| tree.node.is_some())
                .map(|tree| tree.session)
                .collect();
            let mut count = 0;
            let mut channels = BTreeSet::new();
            for &host in &self.gateways[at].hosts {
                let host = self.sim.node(HostId(host as u32));
                if let Some(node) = host.and_then(|host| host.node.as_ref()) {
                    count += node.session_count();
                    channels.extend(node.native().sessions());
                }
            }
            if count != trees.len() {
                wrong.push(format!(
                    "gateway {at} has {} trees, its data nodes carry {count} sessions",
                    trees.len()
                ));
            }
            if let Some(session) = channels.difference(&trees).next() {
                wrong.push(format!(
                    "gateway {at} has channels for {session}, and no tree"
                ));
            }
            for peer in control.peers() {
                let joined = control
                    .trees()
                    .filter(|tree| tree.downstream.contains(&peer.peer))
                    .count();
                if joined != peer.sessions {
                    wrong.push(format!(
                        "gateway {at} counts {} sessions of peer {}, and has {joined}",
                        peer.sessions, peer.peer.0
                    ));
                }
            }
        }
        wrong.into_iter().for_each(|words| self.fault(words));
    }

    /// Once all clients have left, no state remains.
    pub(super) fn judge_empty(&mut self) {
        let left: Vec<_> = self.trees().into_keys().collect();
        if let Some((at, session)) = left.first() {
            self.fault(format!("gateway {at} still has a tree of {session}"));
        }
        for host in 0..self.hosts.len() {
            if !self.runs(End::Node(host)) || !self.runs(End::Control(self.hosts[host].gateway)) {
                continue;
            }
            let mut left = (0, 0, 0);
            self.with_node(host, |host, now, io| {
                host.act(now, io, |node| {
                    left.0 = node.session_count();
                    left.1 = node.plane().edge_count();
                    left.2 = node.native().sessions().len();
                })
            });
            if left != (0, 0, 0) {
                self.fault(format!(
                    "data node {host} still has {} sessions, {} edges, native channels of {} sessions",
                    left.0, left.1, left.2
                ));
            }
        }
    }
}

/// The gateway at the other end of a peering, what this end announces, and what that end accepts.
fn sides(ends: &[(usize, PeerConfig); 2], at: usize) -> Option<(usize, &PeerConfig, &PeerConfig)> {
    match ends {
        [(a, own), (b, far)] if *a == at => Some((*b, own, far)),
        [(a, far), (b, own)] if *b == at => Some((*a, own, far)),
        _ => None,
    }
}

/// Rules of a plan depend on the destination's network alone.
fn accepts(policy: &Policy, destination: GatewayId) -> bool {
    let mut rules = policy.rules.iter();
    let rule = rules.find(|rule| rule.when.network == Some(destination.network));
    rule.is_none_or(|rule| rule.then != Action::Reject)
}
