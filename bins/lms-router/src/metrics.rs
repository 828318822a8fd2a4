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
use crate::status::{InterfaceCounters, Overview};

const INFO: Metric = gauge(
    "info",
    &["version", "source", "policy"],
    "1, and in its labels what is running",
);
const GROUPS: Metric = gauge("groups", &[], "Multicast routes known");
const NEIGHBOURS: Metric = gauge(
    "neighbours",
    &[],
    "Pairs of a group and a downstream neighbour whose cost is known",
);
const INTERFACES: Metric = gauge("interfaces", &[], "Interfaces in use");
const PACKETS: Metric = counter(
    "packets",
    &["verdict"],
    "LMS packets by what became of them",
);
const DROPS: Metric = counter("drops", &["reason"], "LMS packets dropped, by reason");
const HIERARCHY: Metric = counter(
    "hierarchy",
    &["event"],
    "Replier hierarchy: messages, elections, what was refused",
);
const ROUTES: Metric = counter(
    "routes",
    &["event"],
    "Multicast routes: changes, what was refused",
);
const QUEUES: Metric = counter(
    "queues",
    &["event"],
    "Packet ring and sender: what passed and what was lost there",
);
const IGMP: Metric = counter("igmp", &["event"], "IGMP proxy: messages, what was refused");
const INTERFACE_PACKETS: Metric = counter(
    "interface_packets",
    &["interface", "kind"],
    "Packets of one interface: received, requests_sent, dmcasts_sent, control_sent, dropped, too_long",
);

/// All metrics, in the order of the page.
pub const METRICS: &[Metric] = &[
    INFO,
    UPTIME,
    RELOADS,
    GROUPS,
    NEIGHBOURS,
    INTERFACES,
    PACKETS,
    DROPS,
    HIERARCHY,
    ROUTES,
    QUEUES,
    IGMP,
    INTERFACE_PACKETS,
];

/// Serves until the task is dropped.
pub(crate) async fn serve(exporter: Exporter, controller: Controller, standing: Arc<Standing>) {
    let gather = move || {
        let (controller, standing) = (controller.clone(), Arc::clone(&standing));
        async move {
            let snapshot = controller.ask(Command::Counters).await.ok()?;
            let overview = standing.overview(snapshot.summary.clone());
            let mut registry = Registry::with_prefix("lms_router");
            registry.register_collector(Box::new(Page { snapshot, overview }));
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
    overview: Overview,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let (overview, counters) = (&self.overview, &self.snapshot.counters);
        let info = [
            ("version", overview.version.as_str()),
            ("source", overview.source.as_str()),
            ("policy", overview.policy.as_str()),
        ];
        INFO.info(encoder, &info)?;
        metric::daemon_state(encoder, overview.uptime_s, &overview.configuration)?;
        GROUPS.value(encoder, overview.groups)?;
        NEIGHBOURS.value(encoder, overview.neighbours)?;
        INTERFACES.value(encoder, overview.interfaces)?;
        PACKETS.map(encoder, &counters.packets)?;
        DROPS.map(encoder, &counters.drops)?;
        HIERARCHY.map(encoder, &counters.hierarchy)?;
        ROUTES.map(encoder, &counters.routes)?;
        QUEUES.map(encoder, &counters.queues)?;
        IGMP.map(encoder, &counters.igmp)?;
        let mut packets = INTERFACE_PACKETS.start(encoder)?;
        for interface in &self.snapshot.interfaces {
            for (kind, count) in interface.counters.named() {
                packets.count(&[("interface", &interface.name), ("kind", kind)], count)?;
            }
        }
        Ok(())
    }
}

impl InterfaceCounters {
    /// Each counter with its name.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("received", self.received),
            ("requests_sent", self.requests_sent),
            ("dmcasts_sent", self.dmcasts_sent),
            ("control_sent", self.control_sent),
            ("dropped", self.dropped),
            ("too_long", self.too_long),
        ]
    }
}
