//! The metrics, in the order of the page.

use std::sync::Arc;

use daemon_kit::metric::{Metric, counter, gauge, reloads, uptime};

use crate::control::Readings;
use crate::daemon::RouterState;

/// The number of routes among the counters of the IGMP proxy: the only one that may decrease.
pub(crate) const IGMP_ROUTES: &str = "routes";

/// What the metrics are made from.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) readings: Readings,
    pub(crate) state: Arc<RouterState>,
}

/// All metrics.
pub const METRICS: &[Metric<Snapshot>] = &[
    gauge(
        "info",
        &["version", "source", "policy"],
        "1; the labels identify the running program",
        |page, lines| {
            let Snapshot { readings, state } = &page.now;
            let version = env!("CARGO_PKG_VERSION");
            lines.line(&[version, state.source, readings.summary.policy], 1)
        },
    ),
    uptime(),
    reloads(),
    gauge("groups", &[], "Multicast routes known", |page, lines| {
        lines.value(page.now.readings.summary.groups)
    }),
    gauge(
        "neighbours",
        &[],
        "Pairs of a group and a downstream neighbour whose cost is known",
        |page, lines| lines.value(page.now.readings.summary.neighbours),
    ),
    gauge(
        "xdp_groups",
        &[],
        "Multicast routes that the XDP program forwards",
        |page, lines| lines.value(page.now.readings.summary.fast_groups.unwrap_or_default()),
    ),
    gauge("interfaces", &[], "Interfaces in use", |page, lines| {
        lines.value(page.now.readings.summary.interfaces)
    }),
    counter(
        "packets",
        &["verdict"],
        "LMS packets, by verdict",
        |page, lines| lines.map(&page.now.readings.counters.packets),
    ),
    counter(
        "drops",
        &["reason"],
        "LMS packets dropped, by reason",
        |page, lines| lines.map(&page.now.readings.counters.drops),
    ),
    counter(
        "hierarchy",
        &["event"],
        "Replier hierarchy: messages, elections and refusals",
        |page, lines| lines.map(&page.now.readings.counters.hierarchy),
    ),
    counter(
        "routes",
        &["event"],
        "Multicast routes: changes and refusals",
        |page, lines| lines.map(&page.now.readings.counters.routes),
    ),
    counter(
        "queues",
        &["event"],
        "Packet ring and sender: packets passed and lost",
        |page, lines| lines.map(&page.now.readings.counters.queues),
    ),
    counter(
        "igmp",
        &["event"],
        "IGMP proxy: messages and refusals",
        |page, lines| {
            let igmp = &page.now.readings.counters.igmp;
            let mut counts = igmp.iter().filter(|(name, _)| *name != IGMP_ROUTES);
            counts.try_for_each(|(name, count)| lines.line(&[name], *count))
        },
    ),
    gauge(
        "igmp_routes",
        &[],
        "IGMP proxy: multicast routes set in the kernel",
        |page, lines| {
            let routes = page.now.readings.counters.igmp.get(IGMP_ROUTES);
            lines.value(routes.copied().unwrap_or_default())
        },
    ),
    counter(
        "interface_packets",
        &["interface", "kind"],
        "Packets of one interface: received, requests_sent, dmcasts_sent, control_sent, dropped, too_long",
        |page, lines| {
            for interface in &page.now.readings.interfaces {
                let counts = &interface.counters;
                for (kind, count) in [
                    ("received", counts.received),
                    ("requests_sent", counts.requests_sent),
                    ("dmcasts_sent", counts.dmcasts_sent),
                    ("control_sent", counts.control_sent),
                    ("dropped", counts.dropped),
                    ("too_long", counts.too_long),
                ] {
                    lines.line(&[&interface.name, kind], count)?;
                }
            }
            Ok(())
        },
    ),
];
