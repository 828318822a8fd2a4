//! The metrics: one table says what there is, and the page is made from it.

use std::fmt;

use daemon_kit::exporter::Exporter;
pub use daemon_kit::metric::Metric;
use daemon_kit::metric::{self, RELOADS, UPTIME, counter, gauge};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::status::{Counts, Desk, Snapshot};
use crate::{control, data};

const INFO: Metric = gauge(
    "info",
    &["version", "gateway", "mode", "network"],
    "1, and in its labels what is running",
);
const ACTIVE: Metric = gauge("active", &[], "1 where this is the active control node");
const PEERS: Metric = gauge(
    "peers",
    &["state"],
    "Peers configured, and those established",
);
const ROUTES: Metric = gauge("routes", &[], "Routes known, over all tables");
const SESSIONS: Metric = gauge(
    "sessions",
    &[],
    "Sessions whose trees go through this gateway",
);
const NODES: Metric = gauge("nodes", &[], "Data nodes registered");
const CONTROL: Metric = counter("control", &["event"], "What the control node did");
const ROUTING: Metric = counter("routing", &["event"], "What routing did");
const CONTROL_DROPS: Metric = counter(
    "control_drops",
    &["reason"],
    "Messages dropped by the control node, by reason",
);
const MEDIATOR: Metric = counter(
    "mediator",
    &["event"],
    "What the native network's mediator did",
);
const MEDIATOR_CLIENT_SESSIONS: Metric = gauge(
    "mediator_client_sessions",
    &[],
    "Sessions that clients of the native network's mediator have",
);
const MEDIATOR_READERS: Metric = gauge(
    "mediator_readers",
    &[],
    "Readers at the mediator's HTTP server",
);
const MEDIATOR_STREAMS: Metric = gauge(
    "mediator_streams",
    &[],
    "Streams at the mediator's HTTP server",
);
/// What the mediator and the native network count that goes up and down, and its gauge.
const MEDIATOR_GAUGES: [(Metric, &str); 3] = [
    (MEDIATOR_CLIENT_SESSIONS, "client_sessions"),
    (MEDIATOR_READERS, "readers"),
    (MEDIATOR_STREAMS, "streams"),
];
const NATIVE_READERS: Metric = gauge(
    "native_readers",
    &["node"],
    "Readers at a data node's HTTP server",
);
const NATIVE_STREAMS: Metric = gauge(
    "native_streams",
    &["node"],
    "Streams at a data node's HTTP server",
);
const NATIVE_GAUGES: [(Metric, &str); 2] =
    [(NATIVE_READERS, "readers"), (NATIVE_STREAMS, "streams")];

/// Whether a count of the native network goes up and down.
fn is_gauge(name: &str) -> bool {
    MEDIATOR_GAUGES.iter().any(|(_, gauge)| *gauge == name)
}

const NODE_SESSIONS: Metric = gauge(
    "node_sessions",
    &["node"],
    "Sessions of a data node of this process",
);
const NODE_EDGES: Metric = gauge("node_edges", &["node"], "Ways in and out of its flows");
const NODE_STREAMS: Metric = gauge("node_streams", &["node"], "Its TCP channels");
const NODE_CONNECTED: Metric = gauge("node_connected", &["node"], "1 while it has a control node");
const PLANE: Metric = counter("plane", &["node", "event"], "What a data node forwarded");
const DROPS: Metric = counter(
    "drops",
    &["node", "reason"],
    "Packets and copies dropped, by reason",
);
const SOCKETS: Metric = counter(
    "sockets",
    &["node", "event"],
    "What went through a data node's sockets",
);
const NATIVE: Metric = counter(
    "native",
    &["node", "event"],
    "What the native network did for a data node",
);

/// All metrics, in the order of the page.
pub const METRICS: &[Metric] = &[
    INFO,
    UPTIME,
    RELOADS,
    ACTIVE,
    PEERS,
    ROUTES,
    SESSIONS,
    NODES,
    CONTROL,
    ROUTING,
    CONTROL_DROPS,
    MEDIATOR,
    MEDIATOR_CLIENT_SESSIONS,
    MEDIATOR_READERS,
    MEDIATOR_STREAMS,
    NATIVE_READERS,
    NATIVE_STREAMS,
    NODE_SESSIONS,
    NODE_EDGES,
    NODE_STREAMS,
    NODE_CONNECTED,
    PLANE,
    DROPS,
    SOCKETS,
    NATIVE,
];

/// Serves until the task is dropped.
pub(crate) async fn serve(exporter: Exporter, desk: Desk) {
    let gather = move || {
        let desk = desk.clone();
        async move {
            let snapshot = desk.snapshot().await.ok()?;
            let mut registry = Registry::with_prefix("bfed_gateway");
            registry.register_collector(Box::new(Page { snapshot, desk }));
            Some(registry)
        }
    };
    if let Err(error) = exporter.serve(gather).await {
        tracing::error!(%error, "metrics");
    }
}

#[derive(Debug)]
struct Page {
    snapshot: Snapshot,
    desk: Desk,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (encoder, standing) = (&mut encoder, &self.desk.standing);
        let info = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("gateway", standing.gateway.as_str()),
            ("mode", standing.mode.name()),
            ("network", standing.network),
        ];
        INFO.info(encoder, &info)?;
        let daemon = &standing.of_daemon;
        metric::daemon_state(encoder, daemon.uptime_s(), &daemon.configuration())?;
        if let Some(control) = &self.snapshot.control {
            control_node(encoder, control)?;
        }
        data_nodes(encoder, &self.snapshot.data)
    }
}

fn control_node(encoder: &mut DescriptorEncoder<'_>, control: &control::Snapshot) -> fmt::Result {
    ACTIVE.value(encoder, u64::from(control.active))?;
    let mut peers = PEERS.start(encoder)?;
    peers.gauge(&[("state", "configured")], control.peers)?;
    peers.gauge(&[("state", "established")], control.established)?;
    ROUTES.value(encoder, control.routes)?;
    SESSIONS.value(encoder, control.sessions)?;
    NODES.value(encoder, control.nodes)?;
    CONTROL.map(encoder, &control.control)?;
    ROUTING.map(encoder, &control.routing)?;
    CONTROL_DROPS.map(encoder, &control.drops)?;
    let counters = control.native.iter().filter(|(name, _)| !is_gauge(name));
    let counters: Counts = counters
        .map(|(name, count)| (name.clone(), *count))
        .collect();
    MEDIATOR.map(encoder, &counters)?;
    for (metric, name) in MEDIATOR_GAUGES {
        metric.value(
            encoder,
            control.native.get(name).copied().unwrap_or_default(),
        )?;
    }
    Ok(())
}

fn data_nodes(encoder: &mut DescriptorEncoder<'_>, nodes: &[data::Snapshot]) -> fmt::Result {
    type Gauge = (Metric, fn(&data::Snapshot) -> u64);
    let gauges: [Gauge; 4] = [
        (NODE_SESSIONS, |node| node.sessions),
        (NODE_EDGES, |node| node.edges),
        (NODE_STREAMS, |node| node.streams),
        (NODE_CONNECTED, |node| u64::from(node.connected)),
    ];
    for (metric, of) in gauges {
        let mut lines = metric.start(encoder)?;
        for node in nodes {
            lines.gauge(&[("node", &node.node.to_string())], of(node))?;
        }
    }
    for (metric, name) in NATIVE_GAUGES {
        let mut lines = metric.start(encoder)?;
        for node in nodes {
            let value = node.native.get(name).copied().unwrap_or_default();
            lines.gauge(&[("node", &node.node.to_string())], value)?;
        }
    }
    type Counter = (Metric, fn(&data::Snapshot) -> &Counts);
    let counters: [Counter; 4] = [
        (PLANE, |node| &node.plane),
        (DROPS, |node| &node.drops),
        (SOCKETS, |node| &node.sockets),
        (NATIVE, |node| &node.native),
    ];
    for (metric, of) in counters {
        let mut lines = metric.start(encoder)?;
        for node in nodes {
            let number = node.node.to_string();
            let gauges_apart = metric.name == NATIVE.name;
            let counts = of(node).iter();
            for (name, count) in counts.filter(|(name, _)| !(gauges_apart && is_gauge(name))) {
                lines.count(&[("node", &number), (metric.labels[1], name)], *count)?;
            }
        }
    }
    Ok(())
}
