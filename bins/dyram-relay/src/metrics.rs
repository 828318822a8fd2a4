//! The metrics: one table says what there is, and the page is made from it.

use std::fmt;
use std::sync::Arc;

use daemon_kit::exporter::Exporter;
pub use daemon_kit::metric::Metric;
use daemon_kit::metric::{self, RELOADS, UPTIME, counter, gauge};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::control::{Command, Controller, Snapshot};
use crate::daemon::Standing;

const INFO: Metric = gauge(
    "info",
    &["version", "id", "carriage"],
    "1, and in its labels what is running",
);
const DRAINING: Metric = gauge("draining", &[], "1 while children are sent away");
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
    "Children that joined, left, fell silent, stalled or were refused",
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
    "Events that were not logged because too many came at once",
);
/// Families of one count each, and what status calls that count.
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

/// Serves until the task is dropped.
pub(crate) async fn serve(exporter: Exporter, controller: Controller, standing: Arc<Standing>) {
    let gather = move || {
        let (controller, standing) = (controller.clone(), Arc::clone(&standing));
        async move {
            let snapshot = controller.ask(Command::Counters).await.ok()?;
            let mut registry = Registry::with_prefix("dyram_relay");
            registry.register_collector(Box::new(Page { snapshot, standing }));
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
    standing: Arc<Standing>,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let (snapshot, standing) = (&self.snapshot, &self.standing);
        let info = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("id", standing.id.as_str()),
            ("carriage", standing.carriage),
        ];
        INFO.info(encoder, &info)?;
        let daemon = &standing.of_daemon;
        metric::daemon_state(encoder, daemon.uptime_s(), &daemon.configuration())?;
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
