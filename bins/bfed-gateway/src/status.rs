//! The status socket: the question is one line such as `{"show": "sessions"}`, the answer one JSON object, then the end
//! of the stream. `{"drain": 3}` drains data node 3.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use daemon_kit::Unavailable;
use daemon_kit::client::{self, QueryError};
use daemon_kit::daemon::StatusSource;
use daemon_kit::metric::Metric;
use daemon_kit::server::{Failure, Out};
use daemon_kit::status::{Document, Layout};
pub use daemon_kit::status::{query, render};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::control::{self, Command};
use crate::daemon::GatewayState;
use crate::native::{PresentedFlow, listing};
use crate::page::quantile_ms;
use crate::{data, metrics};

/// Counts by name.
pub(crate) type Counts = BTreeMap<String, u64>;

/// A status document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Overview of the program
    Overview,
    /// Routes of every table
    Routes,
    /// Peers: state, and why the last session ended
    Peers,
    /// Sessions and their trees
    Sessions,
    /// Data nodes
    Nodes,
    /// Links to peers: sessions' edges, and the age of frames that came over them
    Links,
    /// Viewers of the native network, by the way they watch
    Viewers,
    /// Authorisation rules: sessions that each admits, and requests that it denied
    Rules,
    /// Sessions that hosts of the native network announce by SAP
    Announced,
    /// All counters
    Counters,
}

/// A question on the status socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Question {
    /// Show a document.
    Show(Show),
    /// Drain a data node.
    Drain(u32),
}

impl Document for Show {
    const PROGRAM: &'static str = "bfed-gateway";

    fn layout(self) -> Layout {
        match self {
            Show::Overview => Layout::Overview(&[
                ("gateway", "gateway"),
                ("mode", "mode"),
                ("active", "active"),
                ("etcd answers", "store_answers"),
                ("peers", "{established} of {peers} established"),
                ("sessions", "sessions"),
                ("viewers", "viewers"),
                ("data nodes", "nodes"),
                ("native network", "network"),
                ("peer connections", "listen"),
                ("data node connections", "cluster"),
                ("data", "data"),
                ("status page", "page"),
            ]),
            Show::Routes => Layout::List(&[
                "table",
                "destination",
                "best",
                "cost",
                "peer",
                "path",
                "tags",
            ]),
            Show::Peers => Layout::List(&[
                "gateway", "address", "state", "stale", "routes", "sessions", "queued", "last_end",
            ]),
            Show::Sessions => Layout::List(&[
                "session",
                "attached",
                "upstream",
                "downstream",
                "clients",
                "viewers",
                "node",
                "rate_bps",
                "packets",
                "copies",
                "dropped",
                "path",
            ]),
            Show::Nodes => Layout::List(&[
                "node",
                "sessions",
                "rate_bps",
                "connected",
                "edges",
                "streams",
                "packets",
                "copies",
            ]),
            Show::Links => Layout::List(&[
                "node",
                "gateway",
                "edges",
                "frames",
                "age_p50_ms",
                "age_p95_ms",
                "lost",
                "repaired",
                "late",
            ]),
            Show::Viewers => Layout::List(&["network", "kind", "viewers"]),
            Show::Rules => Layout::List(&["rule", "action", "sessions", "denied"]),
            Show::Announced => Layout::List(&["session", "title", "host"]),
            Show::Counters => Layout::Counters,
        }
    }
}

impl Show {
    /// Returns whether a process that has data nodes alone has the document.
    fn is_of_data_nodes(self) -> bool {
        use Show::{Counters, Links, Nodes, Overview, Viewers};
        matches!(self, Overview | Nodes | Counters | Links | Viewers)
    }
}

/// Tells the gateway at `socket` to drain a data node.
///
/// # Errors
/// There is no answer, or no such node.
pub fn drain(socket: &Path, node: u32) -> Result<Value, QueryError> {
    client::query(socket, Show::PROGRAM, &Question::Drain(node))
}

/// The parts of the process that answer questions.
#[derive(Clone, Debug)]
pub(crate) struct StatusHandle {
    pub(crate) driver: Option<mpsc::Sender<Command>>,
    pub(crate) data: Vec<data::Controller>,
    pub(crate) state: Arc<GatewayState>,
}

/// The counters and gauges of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) control: Option<control::Snapshot>,
    pub(crate) data: Vec<data::Snapshot>,
}

impl StatusHandle {
    /// Asks the control node's driver.
    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Option<Result<T, Unavailable>> {
        let driver = self.driver.as_ref()?;
        let (reply, answer) = oneshot::channel();
        if driver.send(command(reply)).await.is_err() {
            return Some(Err(Unavailable));
        }
        Some(answer.await.map_err(|_| Unavailable))
    }

    pub(crate) async fn counters(&self) -> Result<Snapshot, Unavailable> {
        let control = self.ask(Command::Counters).await.transpose()?;
        let mut nodes = Vec::new();
        for node in &self.data {
            nodes.push(node.ask(data::Command::Counters).await?);
        }
        Ok(Snapshot {
            control,
            data: nodes,
        })
    }

    /// Returns a document; `None` if this process does not have it.
    pub(crate) async fn document(&self, show: Show) -> Option<Result<Value, Unavailable>> {
        let mut document = match self.ask(|reply| Command::Show(show, reply)).await {
            Some(Ok(document)) => document,
            Some(Err(unavailable)) => return Some(Err(unavailable)),
            None if show.is_of_data_nodes() => json!({}),
            None => return None,
        };
        let mut own = Vec::new();
        for node in &self.data {
            match node.ask(data::Command::Counters).await {
                Ok(snapshot) => own.push(snapshot),
                Err(unavailable) => return Some(Err(unavailable)),
            }
        }
        match show {
            Show::Overview => match self.viewers(&own).await {
                Ok(viewers) => document = self.overview(document, &own, viewers.values().sum()),
                Err(unavailable) => return Some(Err(unavailable)),
            },
            Show::Nodes => nodes(&mut document, &own),
            Show::Counters => add_counters(&mut document, &own),
            Show::Links => document = links(&document, &own),
            Show::Viewers => match self.viewers_document(&own).await {
                Ok(viewers) => document = viewers,
                Err(unavailable) => return Some(Err(unavailable)),
            },
            Show::Sessions => match self.presented().await {
                Ok(presented) => add_viewers(&mut document, &presented),
                Err(unavailable) => return Some(Err(unavailable)),
            },
            Show::Rules => self.add_denials(&mut document),
            Show::Routes | Show::Peers | Show::Announced => {}
        }
        Some(Ok(document))
    }

    /// Returns the list of sessions that members of the native network can have: those that this process presents, and
    /// those that hosts of the network announce.
    pub(crate) async fn listing(&self) -> Result<Value, Unavailable> {
        let mut rows = BTreeMap::new();
        let announced = self.ask(Command::Announced).await.transpose()?;
        for one in announced.into_iter().flatten() {
            for flow in 0..one.session.flow_count() {
                let mut row = listing::row(&one.session, flow);
                row.insert("title".to_owned(), json!(one.title));
                row.insert("announced_by".to_owned(), json!(one.host));
                rows.insert((one.session.clone(), flow), row);
            }
        }
        for one in self.presented().await? {
            rows.insert((one.session.clone(), one.flow), one.row());
        }
        let (network, kind) = (self.state.network_number, self.state.network);
        let mediator = self.state.mediator.as_deref();
        let rows = rows.into_values().collect();
        Ok(listing::document(network, kind, mediator, rows))
    }

    /// Returns what the status page shows of the control node.
    pub(crate) async fn page(&self) -> Option<Result<Value, Unavailable>> {
        let mut page = match self.ask(Command::Page).await? {
            Ok(page) => page,
            Err(unavailable) => return Some(Err(unavailable)),
        };
        let presented = self.presented().await;
        Some(presented.map(|presented| {
            add_viewers(&mut page, &presented);
            page
        }))
    }

    /// Returns the flows that members of the native network receive at this process.
    async fn presented(&self) -> Result<Vec<PresentedFlow>, Unavailable> {
        let mut all = Vec::new();
        for node in &self.data {
            all.extend(node.ask(data::Command::Presented).await?);
        }
        Ok(all)
    }

    async fn viewers(&self, own: &[data::Snapshot]) -> Result<Viewers, Unavailable> {
        let control = self.ask(Command::Counters).await.transpose()?;
        Ok(viewers(self.state.network, control.as_ref(), own))
    }

    async fn viewers_document(&self, own: &[data::Snapshot]) -> Result<Value, Unavailable> {
        let network = self.state.network_number;
        let viewers = self.viewers(own).await?.into_iter();
        let row = |(kind, count)| json!({"network": network, "kind": kind, "viewers": count});
        Ok(json!({"viewers": viewers.map(row).collect::<Vec<_>>()}))
    }

    /// Adds the denials of readers and sources at this process's own servers.
    fn add_denials(&self, document: &mut Value) {
        let denied: Counts = self.state.access.denied().into_iter().collect();
        for row in document["rules"].as_array_mut().into_iter().flatten() {
            let more = row["rule"].as_str().and_then(|rule| denied.get(rule));
            row["denied"] = json!(row["denied"].as_u64().unwrap_or(0) + more.copied().unwrap_or(0));
        }
    }

    fn overview(&self, mut document: Value, own: &[data::Snapshot], viewers: u64) -> Value {
        let state = &self.state;
        document["gateway"] = json!(state.gateway);
        document["mode"] = json!(state.mode.name());
        document["network"] = json!(state.network);
        document["listen"] = json!(state.listen);
        document["cluster"] = json!(state.cluster);
        document["data"] = json!(state.data);
        document["own_nodes"] = json!(own.len());
        document["viewers"] = json!(viewers);
        document["page"] = json!(state.page);
        state.daemon.overview(env!("CARGO_PKG_VERSION"), document)
    }
}

/// Viewers by the way they watch.
pub(crate) type Viewers = BTreeMap<&'static str, u64>;

/// Counts viewers: readers over HTTP, addresses that ask for playlists of HLS, subscribers of MoQ at data nodes, and
/// otherwise the clients of the mediator. The clients of the mediator of an HTTP network are its servers.
pub(crate) fn viewers(
    network: &'static str,
    control: Option<&control::Snapshot>,
    data: &[data::Snapshot],
) -> Viewers {
    let mut viewers = Viewers::new();
    let gauges = data.iter().flat_map(|node| &node.native_gauges);
    for (name, count) in gauges {
        if let Some((_, kind)) = HTTP_VIEWERS.iter().find(|(gauge, _)| gauge == name) {
            *viewers.entry(kind).or_default() += count;
        }
    }
    let members = control.and_then(|control| control.native_gauges.get("members"));
    if let Some(members) = members.filter(|_| !matches!(network, "http" | "moq")) {
        viewers.insert(network, *members);
    }
    viewers
}

/// Gauges of the servers of an HTTP network, and the kinds of viewers that they count.
const HTTP_VIEWERS: [(&str, &str); 3] = [
    ("http_viewers", "http"),
    ("hls_viewers", "hls"),
    ("moq_viewers", "moq"),
];

/// Returns the links of this process's own data nodes; `peers` has the names of peers.
fn links(peers: &Value, own: &[data::Snapshot]) -> Value {
    let peers = peers["peers"].as_array().map_or(&[][..], Vec::as_slice);
    let name = |peer: u32| {
        let mut known = peers.iter().filter(|row| row["peer"] == json!(peer));
        known.next().map(|row| row["gateway"].clone())
    };
    let mut rows = Vec::new();
    for (node, link) in own
        .iter()
        .flat_map(|node| node.links.iter().map(move |link| (node, link)))
    {
        let mut row = json!(link.counts);
        row["node"] = json!(node.node);
        row["peer"] = json!(link.peer);
        row["gateway"] = json!(name(link.peer));
        row["age_p50_ms"] = json!(quantile_ms(&link.ages, 50));
        row["age_p95_ms"] = json!(quantile_ms(&link.ages, 95));
        rows.push(row);
    }
    json!({"links": rows})
}

/// Adds the viewers of each session at this process's own data nodes; none where the network does not know them.
fn add_viewers(document: &mut Value, presented: &[PresentedFlow]) {
    let mut counts = BTreeMap::<&str, usize>::new();
    for one in presented {
        if let Some(viewers) = one.viewers {
            *counts.entry(one.session.as_str()).or_default() += viewers;
        }
    }
    for row in document["sessions"].as_array_mut().into_iter().flatten() {
        let viewers = row["session"].as_str().and_then(|name| counts.get(name));
        row["viewers"] = json!(viewers);
    }
}

/// Adds the state of this process's own data nodes.
fn nodes(document: &mut Value, own: &[data::Snapshot]) {
    let known = document["nodes"].as_array().cloned().unwrap_or_default();
    let mut rows = known;
    for node in own {
        let at = rows.iter().position(|row| row["node"] == json!(node.node));
        let at = at.unwrap_or_else(|| {
            rows.push(json!({"node": node.node, "sessions": node.sessions}));
            rows.len() - 1
        });
        let row = &mut rows[at];
        row["connected"] = json!(node.connected);
        row["edges"] = json!(node.edges);
        row["streams"] = json!(node.streams);
        row["packets"] = json!(node.plane.get("packets"));
        row["copies"] = json!(node.plane.get("copies"));
    }
    document["nodes"] = json!(rows);
}

/// Adds the counters of this process's own data nodes.
fn add_counters(document: &mut Value, own: &[data::Snapshot]) {
    let add = |sum: &mut Counts, of: fn(&data::Snapshot) -> &Counts| {
        for (name, count) in own.iter().flat_map(of) {
            *sum.entry(name.clone()).or_default() += count;
        }
    };
    let sum = |of| {
        let mut sum = Counts::new();
        add(&mut sum, of);
        sum
    };
    if !own.is_empty() {
        document["plane"] = json!(sum(|node| &node.plane));
        document["drops"] = json!(sum(|node| &node.drops));
        document["repairs"] = json!(sum(|node| &node.repairs));
        document["sockets"] = json!(sum(|node| &node.sockets));
        let mut native = sum(|node| &node.native);
        add(&mut native, |node| &node.native_gauges);
        document["native"] = json!(native);
    }
}

const NO_CONTROL: &str = "this process has only data nodes; ask the one with the control node";

impl StatusSource for StatusHandle {
    type Question = Question;
    const USAGE: &'static str = "ask with one line such as {\"show\": \"overview\"}; known: overview, routes, peers, sessions, nodes, links, viewers, rules, announced, counters; or {\"drain\": NODE}";
    const PREFIX: &'static str = "bfed_gateway";
    type Snapshot = metrics::Snapshot;
    const METRICS: &'static [Metric<metrics::Snapshot>] = metrics::METRICS;

    async fn answer(&self, question: Question, out: &mut Out) -> Result<(), Failure> {
        // Complete before anything is written: a part could pass for the whole answer.
        let document = match question {
            Question::Show(show) => self
                .document(show)
                .await
                .transpose()?
                .ok_or_else(|| NO_CONTROL.to_owned()),
            Question::Drain(node) => self.drain_node(node).await?,
        };
        match document {
            Ok(document) => out.document(&document).await?,
            Err(refusal) => out.refuse(refusal).await?,
        }
        Ok(())
    }

    async fn snapshot(&self) -> Option<metrics::Snapshot> {
        let counters = self.counters().await.ok()?;
        let state = Arc::clone(&self.state);
        Some(metrics::Snapshot { counters, state })
    }
}

impl StatusHandle {
    /// Drains a data node; returns the answer, or why it is refused.
    async fn drain_node(&self, node: u32) -> Result<Result<Value, String>, Unavailable> {
        let drain = |reply| Command::Drain(bfed::NodeId(node), reply);
        Ok(match self.ask(drain).await.transpose()? {
            Some(true) => Ok(json!({"draining": node})),
            Some(false) => Err(format!("there is no data node {node}")),
            None => Err(NO_CONTROL.to_owned()),
        })
    }
}
