//! The metrics, in the order of the page.

use std::fmt;

pub use daemon_kit::metric::Metric;
use daemon_kit::metric::{self, RELOADS, UPTIME, counter, gauge};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::status::StatusHandle;

const INFO: Metric = gauge(
    "info",
    &["version", "listen"],
    "Version and address of the program; always 1",
);
const RUNNING: Metric = gauge("running_copies", &[], "Copies that are running");
const COPIES: Metric = counter("copies", &["result"], "Copies that have ended, by result");
const RECEIVED: Metric = counter(
    "received_bytes",
    &[],
    "Bytes received over data connections",
);
const REFUSED: Metric = counter(
    "refused_connections",
    &[],
    "Connections refused or evicted before they offered a copy",
);

/// All metrics.
pub const METRICS: &[Metric] = &[INFO, UPTIME, RELOADS, RUNNING, COPIES, RECEIVED, REFUSED];

/// The metrics at one moment.
#[derive(Debug)]
pub(crate) struct Page(pub(crate) StatusHandle);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let Page(handle) = self;
        let listen = handle.address.to_string();
        let info = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("listen", listen.as_str()),
        ];
        INFO.info(encoder, &info)?;
        metric::daemon_state(encoder, &handle.daemon)?;
        let (totals, running) = handle.shared.activity.totals();
        RUNNING.value(encoder, running as u64)?;
        let mut copies = COPIES.start(encoder)?;
        copies.count(&[("result", "copied")], totals.copied)?;
        copies.count(&[("result", "failed")], totals.failed)?;
        RECEIVED.total(encoder, totals.received)?;
        REFUSED.total(encoder, totals.refused)
    }
}
