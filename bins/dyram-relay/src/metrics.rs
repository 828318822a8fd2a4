//! The metrics, in the order of the page.

use std::sync::Arc;

use daemon_kit::metric::{Metric, counter, gauge, reloads, uptime};

use crate::control::Counters;
use crate::daemon::RelayState;

/// What the metrics are made from.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) counters: Counters,
    pub(crate) state: Arc<RelayState>,
}

/// Creates the metric of a counter of the sockets, by its name in `status`.
macro_rules! sockets {
    ($name:literal, $key:literal, $help:literal) => {
        counter($name, &[], $help, |page, lines| {
            let count = page.now.counters.sockets.get($key);
            lines.value(count.copied().unwrap_or_default())
        })
    };
}

/// All metrics.
pub const METRICS: &[Metric<Snapshot>] = &[
    gauge(
        "info",
        &["version", "id", "carriage"],
        "1; the labels identify the running program",
        |page, lines| {
            let state = &page.now.state;
            lines.line(&[env!("CARGO_PKG_VERSION"), &state.id, state.carriage], 1)
        },
    ),
    uptime(),
    reloads(),
    gauge(
        "draining",
        &[],
        "1 while the relay drains",
        |page, lines| lines.value(page.now.counters.draining.into()),
    ),
    gauge("sessions", &[], "Sessions served", |page, lines| {
        lines.value(page.now.counters.sessions)
    }),
    gauge(
        "children",
        &[],
        "Children of all sessions",
        |page, lines| lines.value(page.now.counters.children),
    ),
    counter(
        "recovery",
        &["event"],
        "Packets missed, asked for, repaired and given up",
        |page, lines| lines.map(&page.now.counters.recovery),
    ),
    counter(
        "feedback",
        &["event"],
        "Feedback of children that was passed on, or suppressed because a lower one is",
        |page, lines| lines.map(&page.now.counters.feedback),
    ),
    counter(
        "members",
        &["event"],
        "Children that joined, left, timed out, stalled or were refused",
        |page, lines| lines.map(&page.now.counters.members),
    ),
    counter(
        "drops",
        &["reason"],
        "Packets dropped, by reason",
        |page, lines| lines.map(&page.now.counters.drops),
    ),
    sockets!("received_packets", "received", "Packets received"),
    sockets!(
        "received_bytes",
        "received_bytes",
        "Bytes of packets received"
    ),
    sockets!("sent_packets", "sent", "Packets sent"),
    sockets!(
        "send_failures",
        "send_failed",
        "Packets that could not be sent"
    ),
    sockets!(
        "receive_failures",
        "receive_failed",
        "Attempts to receive that failed"
    ),
    sockets!(
        "events_lost",
        "events_lost",
        "Events that were not logged because too many occurred at once"
    ),
];
