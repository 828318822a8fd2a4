//! The metrics: one table, from which the page is generated.

use std::fmt;
use std::sync::Arc;

pub use daemon_kit::metric::Metric;
use daemon_kit::metric::{self, RELOADS, UPTIME, counter, gauge};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::control::Snapshot;
use crate::daemon::RelayState;

const INFO: Metric = gauge(
    "info",
    &["version", "id", "carriage"],
    "1; the labels identify the running program",
);
const DRAINING: Metric = gauge("draining", &[], "1 while the relay drains");
const SESSIONS: Metric = gauge("sessions", &[], "Sessions served");
const CHILDREN: Metric = gauge("children", &[], "Children of all sessions");
const RECOVERY: Metric = counter(
    "recovery",
    &["event"],
    "Packets missed, asked for, repaired and given up",
);
const MEMBERS: Metric = counter(
    "members",
    &["event"],
    "Children that joined, left, timed out, stalled or were refused",
);
const DROPS: Metric = counter("drops", &["reason"], "Packets dropped, by reason");
const RECEIVED_PACKETS: Metric = counter("received_packets", &[], "Packets received");
const RECEIVED_BYTES: Metric = counter("received_bytes", &[], "Bytes of packets received");
const SENT_PACKETS: Metric = counter("sent_packets", &[], "Packets sent");
const SEND_FAILURES: Metric = counter("send_failures", &[], "Packets that could not be sent");
const RECEIVE_FAILURES: Metric =
    counter("receive_failures", &[], "Attempts to receive that failed");
const EVENTS_LOST: Metric = counter(
    "events_lost",
    &[],
    "Events that were not logged because too many occurred at once",
);
/// Metrics with one value each, and the name of that value in `status`.
const SOCKETS: [(Metric, &str); 6] = [
    (RECEIVED_PACKETS, "received"),
    (RECEIVED_BYTES, "received_bytes"),
    (SENT_PACKETS, "sent"),
    (SEND_FAILURES, "send_failed"),
    (RECEIVE_FAILURES, "receive_failed"),
    (EVENTS_LOST, "events_lost"),
];

/// All metrics, in the order of the page.
pub const METRICS: &[Metric] = &[
    INFO,
    UPTIME,
    RELOADS,
    DRAINING,
    SESSIONS,
    CHILDREN,
    RECOVERY,
    MEMBERS,
    DROPS,
    RECEIVED_PACKETS,
    RECEIVED_BYTES,
    SENT_PACKETS,
    SEND_FAILURES,
    RECEIVE_FAILURES,
    EVENTS_LOST,
];

/// The metrics at one moment.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) snapshot: Snapshot,
    pub(crate) state: Arc<RelayState>,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let (snapshot, state) = (&self.snapshot, &self.state);
        let info = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("id", state.id.as_str()),
            ("carriage", state.carriage),
        ];
        INFO.info(encoder, &info)?;
        metric::daemon_state(encoder, &state.daemon)?;
        DRAINING.value(encoder, u64::from(snapshot.draining))?;
        SESSIONS.value(encoder, snapshot.sessions)?;
        CHILDREN.value(encoder, snapshot.children)?;
        RECOVERY.map(encoder, &snapshot.recovery)?;
        MEMBERS.map(encoder, &snapshot.members)?;
        DROPS.map(encoder, &snapshot.drops)?;
        for (metric, name) in SOCKETS {
            let count = snapshot.sockets.get(name).copied().unwrap_or_default();
            metric.total(encoder, count)?;
        }
        Ok(())
    }
}
