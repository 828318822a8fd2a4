//! The metrics, in the order of the page.

use daemon_kit::metric::{Metric, counter, gauge, reloads, uptime};

use crate::activity::Totals;
use crate::status::StatusHandle;

fn totals(handle: &StatusHandle) -> Totals {
    handle.shared.activity.totals().0
}

/// All metrics.
pub const METRICS: &[Metric<StatusHandle>] = &[
    gauge(
        "info",
        &["version", "listen"],
        "Version and address of the program; always 1",
        |page, lines| {
            let listen = page.now.address.to_string();
            lines.line(&[env!("CARGO_PKG_VERSION"), &listen], 1)
        },
    ),
    uptime(),
    reloads(),
    gauge(
        "running_copies",
        &[],
        "Copies that are running",
        |page, lines| lines.value(page.now.shared.activity.totals().1 as u64),
    ),
    counter(
        "copies",
        &["result"],
        "Copies that have ended, by result",
        |page, lines| {
            let totals = totals(&page.now);
            lines.line(&["copied"], totals.copied)?;
            lines.line(&["failed"], totals.failed)
        },
    ),
    counter(
        "received_bytes",
        &[],
        "Bytes received over data connections",
        |page, lines| lines.value(totals(&page.now).received),
    ),
    gauge(
        "children",
        &[],
        "Hosts that blocks are relayed to",
        |page, lines| lines.value(totals(&page.now).children),
    ),
    counter(
        "relayed_blocks",
        &[],
        "Blocks relayed to other hosts",
        |page, lines| lines.value(totals(&page.now).relayed_blocks),
    ),
    counter(
        "relayed_bytes",
        &[],
        "Bytes of the blocks relayed to other hosts",
        |page, lines| lines.value(totals(&page.now).relayed),
    ),
    counter(
        "refused_connections",
        &[],
        "Connections refused or evicted before they offered a copy",
        |page, lines| lines.value(totals(&page.now).refused),
    ),
];
