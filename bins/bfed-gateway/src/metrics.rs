//! The metrics: a table declares them, and the page is made from it.

use std::fmt;
use std::sync::Arc;

pub use daemon_kit::metric::Metric;
use daemon_kit::metric::{self, RELOADS, UPTIME, counter, gauge};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use crate::daemon::GatewayState;
use crate::native::{JoinLatency, LATENCY_BOUNDS_S};
use crate::status::{Counts, Snapshot};
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
const NATIVE_CHANNELS: Metric = gauge(
    "native_channels",
    &["node"],
    "Channels of a data node in a network of groups",
);
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
/// Gauges of native networks and their names there. A network has some of them.
const NATIVE_GAUGES: [(Metric, &str); 3] = [
    (NATIVE_CHANNELS, "channels"),
    (NATIVE_READERS, "readers"),
    (NATIVE_STREAMS, "streams"),
];

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

/// Name and help of the histogram of the time from a client's request to the address of its session.
pub const JOIN_LATENCY: (&str, &str) = (
    "join_latency_seconds",
    "Time from a client's JOIN to the address of the session",
);

/// All counters and gauges, in the order of the page.
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
    NATIVE_CHANNELS,
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

/// The metrics at one moment.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) snapshot: Snapshot,
    pub(crate) state: Arc<GatewayState>,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (encoder, state) = (&mut encoder, &self.state);
        let info = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("gateway", state.gateway.as_str()),
            ("mode", state.mode.name()),
            ("network", state.network),
        ];
        INFO.info(encoder, &info)?;
        metric::daemon_state(encoder, &state.daemon)?;
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
    MEDIATOR.map(encoder, &control.native)?;
    let sessions = control.native_gauges.get("client_sessions").copied();
    MEDIATOR_CLIENT_SESSIONS.value(encoder, sessions.unwrap_or_default())?;
    join_latency(encoder, &control.join_latency)
}

fn join_latency(encoder: &mut DescriptorEncoder<'_>, latency: &JoinLatency) -> fmt::Result {
    let bounds = LATENCY_BOUNDS_S.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(latency.buckets).collect();
    let (name, help) = JOIN_LATENCY;
    let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    histogram.encode_histogram::<[(&str, &str); 0]>(
        latency.sum_us as f64 / 1e6,
        latency.buckets.iter().sum(),
        &buckets,
        None,
    )
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
            if let Some(value) = node.native_gauges.get(name) {
                lines.gauge(&[("node", &node.node.to_string())], *value)?;
            }
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
            for (name, count) in of(node) {
                lines.count(&[("node", &number), (metric.labels[1], name)], *count)?;
            }
        }
    }
    Ok(())
}
