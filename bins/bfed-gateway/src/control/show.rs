//! Status documents and counters of the control node.

use std::collections::BTreeSet;

use bfed::authorise::{Action, Subject};
use bfed::session::{CloseReason, State};
use bfed::wire::notification::Reason;
use bfed::{Coordinator, GatewayId};
use serde_json::{Value, json};

use super::{Driver, Snapshot};
use crate::native::AnnouncedSession;
use crate::status::{Counts, Show};

/// Most sessions on the status page, those with the highest rates.
const PAGE_SESSIONS: usize = 500;
/// Most links on the status page.
const PAGE_LINKS: usize = 2000;

fn named((name, count): (&str, u64)) -> (String, u64) {
    (name.to_owned(), count)
}

fn counts<const N: usize>(all: [(&str, u64); N]) -> Counts {
    all.map(named).into()
}

/// Describes who made a request.
pub(super) fn subject(subject: Subject) -> String {
    match subject {
        Subject::Client(Some(address)) => format!("client {address}"),
        Subject::Client(None) => "a client".to_owned(),
        Subject::Clients => "clients".to_owned(),
        Subject::Peer(gateway) => format!("peer {gateway}"),
    }
}

/// Describes why a peering ended.
pub(super) fn down(why: &CloseReason) -> String {
    match why {
        CloseReason::Local(why) => format!("ended here: {}: {}", why.reason.name(), why.text),
        CloseReason::Remote(why) => {
            format!("ended by the peer: {}: {}", why.reason.name(), why.text)
        }
        CloseReason::Lost => "the connection broke".to_owned(),
    }
}

/// Returns whether an administrator ended the peering, by a stop or a new configuration.
pub(super) fn is_ordered(why: &CloseReason) -> bool {
    match why {
        CloseReason::Local(why) | CloseReason::Remote(why) => {
            matches!(why.reason, Reason::Shutdown | Reason::Reconfigured)
        }
        CloseReason::Lost => false,
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Connecting => "connecting",
        State::OpenSent => "open-sent",
        State::OpenConfirm => "open-confirm",
        State::Established => "established",
    }
}

fn path(path: &[GatewayId]) -> Vec<String> {
    path.iter().map(ToString::to_string).collect()
}

impl Driver {
    pub(super) fn show(&mut self, what: Show) -> Value {
        match what {
            Show::Overview => json!({
                "gateway": self.config.machine.gateway.to_string(),
                "active": self.node.coordinator().is_active(),
                "store_answers": self.node.coordinator().answers(),
                "epoch": self.node.coordinator().epoch(),
                "peers": self.node.peers().count(),
                "established": self.node.peers().filter(|peer| peer.state == State::Established).count(),
                "sessions": self.node.trees().count(),
                "nodes": self.node.nodes().count(),
            }),
            Show::Routes => self.routes(),
            Show::Peers => self.peers(),
            Show::Sessions => self.sessions(),
            Show::Nodes => self.data_nodes(),
            Show::Rules => self.rules(),
            Show::Announced => self.announced(),
            // The data nodes of this process have them.
            Show::Viewers => json!({}),
            Show::Links => self.peers(),
            Show::Counters => {
                let mut s = self.snapshot();
                s.native.append(&mut s.native_gauges);
                json!({"authorisation_denied": s.denied, "control": s.control, "routing": s.routing, "control_drops": s.drops, "mediator": s.native})
            }
        }
    }

    /// Returns peers, sessions and data nodes, and the links between gateways that routes tell of. The page shows
    /// a bounded number of each; the overview has the totals.
    pub(super) fn page(&self) -> Value {
        let own = self.config.machine.gateway;
        let mut links = BTreeSet::new();
        let peers = self.node.peers().map(|peer| [own, peer.gateway]);
        links.extend(peers);
        for route in self.node.routes().filter(|route| route.best) {
            let path = [&[own], &route.route.path[..]].concat();
            links.extend(
                path.windows(2)
                    .map(|pair| [pair[0].min(pair[1]), pair[0].max(pair[1])]),
            );
            if links.len() > PAGE_LINKS {
                break;
            }
        }
        let ordered = |[a, b]: [GatewayId; 2]| [a.min(b).to_string(), a.max(b).to_string()];
        let links: BTreeSet<_> = links.into_iter().map(ordered).collect();
        let mut page = json!({"links": links});
        let all = self.sessions();
        let mut sessions = all["sessions"].as_array().cloned().unwrap_or_default();
        sessions.sort_by_key(|row| std::cmp::Reverse(row["rate_bps"].as_u64()));
        sessions.truncate(PAGE_SESSIONS);
        page["sessions"] = json!(sessions);
        page["peers"] = self.peers()["peers"].take();
        page
    }

    fn peers(&self) -> Value {
        let row = |peer: bfed::control::PeerStatus| {
            let known = self.config.peers.get(&peer.peer);
            json!({
                "peer": peer.peer.0,
                "gateway": peer.gateway.to_string(),
                "address": known.and_then(|known| known.address.as_ref()).map(ToString::to_string),
                "state": state(peer.state),
                "stale": peer.stale,
                "routes": peer.routes,
                "sessions": peer.sessions,
                "queued": peer.queued,
                "cost": known.map(|known| known.machine.link.get(bfed::Table::new(
                    bfed::Metric::Hops, bfed::Content::Bulk, false)).0),
                "measured": peer.delay.map(|delay| json!({
                    "round_trip_us": delay.round_trip.map(|time| time.total_micros()),
                    "latency_cost": delay.cost.map(|cost| cost.0),
                })),
                "last_end": self.last_down.get(&peer.peer),
            })
        };
        let mut peers: Vec<_> = self.node.peers().collect();
        peers.sort_by_key(|peer| peer.gateway);
        json!({"peers": peers.into_iter().map(row).collect::<Vec<_>>()})
    }

    fn routes(&self) -> Value {
        let row = |route: bfed::control::RouteStatus| {
            json!({
                "table": route.table.to_string(),
                "destination": route.destination.to_string(),
                "peer": self.name(route.peer),
                "best": route.best,
                "cost": route.route.cost.is_finite().then_some(route.route.cost.0),
                "path": path(&route.route.path),
                "tags": route.route.tags.to_vec(),
            })
        };
        json!({"routes": self.node.routes().map(row).collect::<Vec<_>>()})
    }

    fn sessions(&self) -> Value {
        let row = |tree: bfed::control::TreeStatus| {
            let carried = self.carried.get(&tree.session);
            json!({
                "session": tree.session.as_str(),
                "attached": tree.attached,
                "upstream": tree.upstream.map(|peer| self.name(peer)),
                "path": path(&tree.path),
                "downstream": tree.downstream.iter().map(|&peer| self.name(peer)).collect::<Vec<_>>(),
                "clients": tree.clients,
                "node": tree.node.map(|node| node.0),
                "packets": carried.map(|carried| carried.packets),
                "bytes": carried.map(|carried| carried.bytes),
                "copies": carried.map(|carried| carried.copies),
                "dropped": carried.map(|carried| carried.dropped),
                "rate_bps": carried.map(|carried| carried.rate_bps),
            })
        };
        json!({"sessions": self.node.trees().map(row).collect::<Vec<_>>()})
    }

    fn data_nodes(&self) -> Value {
        let row = |(node, sessions, rate_bps): (bfed::NodeId, usize, u64)| json!({"node": node.0, "sessions": sessions, "rate_bps": rate_bps});
        json!({"nodes": self.node.nodes().map(row).collect::<Vec<_>>()})
    }

    fn announced(&self) -> Value {
        let row = |one: AnnouncedSession| json!({"session": one.session.as_str(), "title": one.title, "host": one.host});
        let rows = self.network.announced().into_iter().map(row);
        json!({"announced": rows.collect::<Vec<_>>()})
    }

    fn rules(&self) -> Value {
        let row = |rule: bfed::authorise::RuleStatus<'_>| {
            let action = match rule.action {
                Action::Allow => "allow",
                Action::Deny => "deny",
            };
            json!({"rule": rule.name, "action": action, "sessions": rule.sessions, "denied": rule.denied})
        };
        json!({"rules": self.node.rules().map(row).collect::<Vec<_>>()})
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        let stats = self.node.stats().clone();
        let routes = stats.routes;
        let established = |peer: &bfed::control::PeerStatus| peer.state == State::Established;
        let latency = |peer: bfed::control::PeerStatus| {
            let cost = peer.delay?.cost?;
            Some((peer.gateway.to_string(), u64::from(cost.0)))
        };
        Snapshot {
            active: self.node.coordinator().is_active(),
            peers: self.node.peers().count() as u64,
            established: self.node.peers().filter(established).count() as u64,
            routes: self.node.routes().count() as u64,
            latencies: self.node.peers().filter_map(latency).collect(),
            sessions: self.node.trees().count() as u64,
            nodes: self.node.nodes().count() as u64,
            rate_bps: self.node.nodes().map(|(.., rate_bps)| rate_bps).sum(),
            control: counts([
                ("messages_received", stats.messages_received),
                ("messages_sent", stats.messages_sent),
                ("peerings", stats.peerings),
                ("strangers", self.strangers),
                ("evicted", self.ports.evicted()),
                ("trees", stats.trees),
                ("trees_examined", stats.trees_examined),
                ("reroutes", stats.reroutes),
                ("loops", stats.loops),
                ("discoveries", stats.discoveries),
                ("discoveries_failed", stats.discoveries_failed),
                ("clients", stats.clients),
                ("redirected", stats.redirected),
                ("refused", stats.refused),
                ("nodes_lost", stats.nodes_lost),
                ("silent", stats.silent),
                ("moved", stats.moved),
                ("expired", stats.expired),
                ("echoes", stats.echoes),
                ("echoes_unanswered", stats.echoes_unanswered),
                ("delay_changes", stats.delay_changes),
            ]),
            routing: counts([
                ("announced", routes.announced),
                ("withdrawn", routes.withdrawn),
                ("loops", routes.loops),
                ("not_from_peer", routes.not_from_peer),
                ("not_granted", routes.not_granted),
                ("attributes_discarded", routes.attributes_discarded),
                ("faulty", routes.faulty),
                ("suppressed", routes.suppressed),
                ("changes", routes.changes),
                ("told", routes.told),
            ]),
            denied: self
                .node
                .rules()
                .map(|rule| (rule.name.to_owned(), rule.denied))
                .collect(),
            admitted: self
                .node
                .rules()
                .map(|rule| (rule.name.to_owned(), rule.sessions as u64))
                .collect(),
            drops: stats
                .drops
                .iter()
                .map(|(reason, count)| (reason.name().to_owned(), count))
                .collect(),
            native: self.network.counters().into_iter().map(named).collect(),
            native_gauges: self.network.gauges().into_iter().map(named).collect(),
            join_latency: self.network.join_latency().copied().unwrap_or_default(),
        }
    }
}
