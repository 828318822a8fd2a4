//! The metrics, in the order of the page.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bfed::data::AGE_BOUNDS_MS;
use daemon_kit::metric::{Kind, Lines, Metric, Page, counter, gauge, reloads, uptime};

use crate::daemon::GatewayState;
use crate::native::LATENCY_BOUNDS_S;
use crate::status::{self, Counts};
use crate::{control, data};

/// What the metrics are made from.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) counters: status::Snapshot,
    pub(crate) state: Arc<GatewayState>,
}

type OnPage<'a> = &'a Page<Snapshot>;

/// Writes a value of the control node, if this process has one.
fn control(
    page: OnPage<'_>,
    lines: &mut Lines<'_>,
    value: fn(&control::Snapshot) -> u64,
) -> fmt::Result {
    let control = page.now.counters.control.as_ref();
    control.map_or(Ok(()), |control| lines.value(value(control)))
}

/// Writes counters of the control node, if this process has one.
fn control_counts(
    page: OnPage<'_>,
    lines: &mut Lines<'_>,
    counts: fn(&control::Snapshot) -> &Counts,
) -> fmt::Result {
    let control = page.now.counters.control.as_ref();
    control.map_or(Ok(()), |control| lines.map(counts(control)))
}

/// Writes a value of each data node that has it.
fn nodes(
    page: OnPage<'_>,
    lines: &mut Lines<'_>,
    value: fn(&data::Snapshot) -> Option<u64>,
) -> fmt::Result {
    for node in &page.now.counters.data {
        if let Some(value) = value(node) {
            lines.line(&[&node.node.to_string()], value)?;
        }
    }
    Ok(())
}

/// Writes counters of each data node.
fn node_counts(
    page: OnPage<'_>,
    lines: &mut Lines<'_>,
    counts: fn(&data::Snapshot) -> &BTreeMap<String, u64>,
) -> fmt::Result {
    for node in &page.now.counters.data {
        let number = node.node.to_string();
        for (name, count) in counts(node) {
            lines.line(&[&number, name], *count)?;
        }
    }
    Ok(())
}

/// All metrics.
pub const METRICS: &[Metric<Snapshot>] = &[
    gauge(
        "info",
        &["version", "gateway", "mode", "network"],
        "1; the labels identify the running program",
        |page, lines| {
            let state = &page.now.state;
            let version = env!("CARGO_PKG_VERSION");
            lines.line(
                &[version, &state.gateway, state.mode.name(), state.network],
                1,
            )
        },
    ),
    uptime(),
    reloads(),
    gauge(
        "active",
        &[],
        "1 where this is the active control node",
        |page, lines| control(page, lines, |control| control.active.into()),
    ),
    gauge(
        "peers",
        &["state"],
        "Peers configured, and those established",
        |page, lines| {
            let Some(control) = &page.now.counters.control else {
                return Ok(());
            };
            lines.line(&["configured"], control.peers)?;
            lines.line(&["established"], control.established)
        },
    ),
    gauge(
        "routes",
        &[],
        "Routes known, over all tables",
        |page, lines| control(page, lines, |control| control.routes),
    ),
    gauge(
        "link_latency_microseconds",
        &["peer"],
        "Measured latency of the link to a peer, as routes use it",
        |page, lines| control_counts(page, lines, |control| &control.latencies),
    ),
    gauge(
        "sessions",
        &[],
        "Sessions whose trees go through this gateway",
        |page, lines| control(page, lines, |control| control.sessions),
    ),
    gauge("nodes", &[], "Data nodes registered", |page, lines| {
        control(page, lines, |control| control.nodes)
    }),
    counter(
        "control",
        &["event"],
        "What the control node did; `trees_examined`: sessions examined because routes, peers or data nodes changed",
        |page, lines| control_counts(page, lines, |control| &control.control),
    ),
    counter("routing", &["event"], "What routing did", |page, lines| {
        control_counts(page, lines, |control| &control.routing)
    }),
    counter(
        "control_drops",
        &["reason"],
        "Messages dropped by the control node, by reason",
        |page, lines| control_counts(page, lines, |control| &control.drops),
    ),
    counter(
        "authorisation_denied",
        &["rule"],
        "Requests denied by each authorisation rule, and by the default",
        |page, lines| {
            let mut denied = Counts::new();
            let control = page.now.counters.control.as_ref();
            let here = control
                .into_iter()
                .flat_map(|control| control.denied.clone());
            for (rule, count) in here.chain(page.now.state.access.denied()) {
                *denied.entry(rule).or_default() += count;
            }
            lines.map(&denied)
        },
    ),
    gauge(
        "authorisation_sessions",
        &["rule"],
        "Sessions that each authorisation rule admits now",
        |page, lines| control_counts(page, lines, |control| &control.admitted),
    ),
    counter(
        "mediator",
        &["event"],
        "What the native network's mediator did",
        |page, lines| control_counts(page, lines, |control| &control.native),
    ),
    gauge(
        "mediator_client_sessions",
        &[],
        "Sessions that clients of the native network's mediator have",
        |page, lines| {
            control(page, lines, |control| {
                let sessions = control.native_gauges.get("client_sessions");
                sessions.copied().unwrap_or_default()
            })
        },
    ),
    Metric::new(
        Kind::Histogram,
        "join_latency_seconds",
        &[],
        "Time from a client's JOIN to the address of the session",
        |page, lines| {
            let Some(control) = &page.now.counters.control else {
                return Ok(());
            };
            let latency = &control.join_latency;
            let bounds = LATENCY_BOUNDS_S.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(latency.buckets).collect();
            lines.histogram(latency.sum_us as f64 / 1e6, &buckets)
        },
    ),
    Metric::new(
        Kind::Histogram,
        "frame_age_seconds",
        &[],
        "Age of real-time frames when the native network gets them, from the source's gateway on",
        |page, lines| {
            let nodes = &page.now.counters.data;
            let sum_us: u64 = nodes.iter().map(|node| node.ages.sum_us).sum();
            let bounds = AGE_BOUNDS_MS.into_iter().map(|bound| bound as f64 / 1e3);
            let bounds = bounds.chain([f64::INFINITY]).enumerate();
            let count = |at: usize| nodes.iter().map(|node| node.ages.buckets[at]).sum();
            let buckets: Vec<(f64, u64)> = bounds.map(|(at, bound)| (bound, count(at))).collect();
            lines.histogram(sum_us as f64 / 1e6, &buckets)
        },
    ),
    gauge(
        "viewers",
        &["network", "kind"],
        "Viewers that this process knows: `http`: readers of streams, `hls`: addresses that asked for a playlist in the last 30 s, `moq`: subscribers, `ip` and `ssm`: sessions with receivers, or receivers, at the mediator, `external`: its clients",
        |page, lines| {
            let (state, counters) = (&page.now.state, &page.now.counters);
            let control = counters.control.as_ref();
            let network = state.network_number.to_string();
            for (kind, count) in status::viewers(state.network, control, &counters.data) {
                lines.line(&[&network, kind], count)?;
            }
            Ok(())
        },
    ),
    gauge(
        "native_channels",
        &["node"],
        "Channels of a data node in a network of groups",
        |page, lines| {
            nodes(page, lines, |node| {
                node.native_gauges.get("channels").copied()
            })
        },
    ),
    gauge(
        "native_readers",
        &["node"],
        "Readers at a data node's HTTP server, or receivers of its LTP sessions",
        |page, lines| {
            nodes(page, lines, |node| {
                node.native_gauges.get("readers").copied()
            })
        },
    ),
    gauge(
        "native_streams",
        &["node"],
        "Streams at a data node's HTTP server, or LTP sessions and channels for them",
        |page, lines| {
            nodes(page, lines, |node| {
                node.native_gauges.get("streams").copied()
            })
        },
    ),
    gauge(
        "node_sessions",
        &["node"],
        "Sessions of a data node of this process",
        |page, lines| nodes(page, lines, |node| Some(node.sessions)),
    ),
    gauge(
        "node_edges",
        &["node"],
        "Ways in and out of its flows",
        |page, lines| nodes(page, lines, |node| Some(node.edges)),
    ),
    gauge(
        "node_streams",
        &["node"],
        "Its TCP channels and QUIC streams",
        |page, lines| nodes(page, lines, |node| Some(node.streams)),
    ),
    gauge(
        "node_repair_bytes",
        &["node"],
        "Bytes of packets that it keeps to repair losses",
        |page, lines| nodes(page, lines, |node| Some(node.repair_bytes)),
    ),
    gauge(
        "node_connected",
        &["node"],
        "1 while it has a control node",
        |page, lines| nodes(page, lines, |node| Some(node.connected.into())),
    ),
    counter(
        "plane",
        &["node", "event"],
        "What a data node forwarded",
        |page, lines| node_counts(page, lines, |node| &node.plane),
    ),
    counter(
        "drops",
        &["node", "reason"],
        "Packets and copies dropped, by reason",
        |page, lines| node_counts(page, lines, |node| &node.drops),
    ),
    counter(
        "repairs",
        &["node", "event"],
        "Lost packets of real-time sessions on links, and what became of them",
        |page, lines| node_counts(page, lines, |node| &node.repairs),
    ),
    counter(
        "sockets",
        &["node", "event"],
        "What went through a data node's sockets",
        |page, lines| node_counts(page, lines, |node| &node.sockets),
    ),
    counter(
        "native",
        &["node", "event"],
        "What the native network did for a data node",
        |page, lines| node_counts(page, lines, |node| &node.native),
    ),
];
