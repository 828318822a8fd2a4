//! Metrics as a table: each is declared once, and its lines of the page are made from that.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;

use crate::state::Configuration;

/// How long a daemon has been running.
pub const UPTIME: Metric = gauge("uptime_seconds", &[], "Seconds since the start");
/// What became of its reloads.
pub const RELOADS: Metric = counter("reloads", &["result"], "Reloads, accepted and rejected");

/// The lines of [`UPTIME`] and [`RELOADS`].
///
/// # Errors
/// The page takes no more.
pub fn daemon_state(
    encoder: &mut DescriptorEncoder<'_>,
    uptime_s: u64,
    configuration: &Configuration,
) -> fmt::Result {
    UPTIME.value(encoder, uptime_s)?;
    let mut reloads = RELOADS.start(encoder)?;
    reloads.count(&[("result", "accepted")], configuration.reloads)?;
    reloads.count(&[("result", "rejected")], configuration.rejected)
}

/// One metric: its name without the program's prefix (and without `_total`, which counters
/// get), its labels, and what it says.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name.
    pub name: &'static str,
    /// Labels.
    pub labels: &'static [&'static str],
    /// Counter or gauge.
    pub counter: bool,
    /// What it says.
    pub help: &'static str,
}

/// A counter.
#[must_use]
pub const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        labels,
        counter: true,
        help,
    }
}

/// A gauge.
#[must_use]
pub const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        labels,
        counter: false,
        help,
    }
}

/// One metric's lines of the page.
#[derive(Debug)]
pub struct Lines<'e>(MetricEncoder<'e>);

impl Metric {
    /// Begins the metric's lines.
    ///
    /// # Errors
    /// The page takes no more.
    pub fn start<'e>(
        &self,
        encoder: &'e mut DescriptorEncoder<'_>,
    ) -> Result<Lines<'e>, fmt::Error> {
        let kind = if self.counter {
            MetricType::Counter
        } else {
            MetricType::Gauge
        };
        encoder
            .encode_descriptor(self.name, self.help, None, kind)
            .map(Lines)
    }

    /// A line for each name, under the metric's one label.
    ///
    /// # Errors
    /// The page takes no more.
    pub fn map(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        counts: &BTreeMap<String, u64>,
    ) -> fmt::Result {
        let mut lines = self.start(encoder)?;
        for (name, count) in counts {
            lines.count(&[(self.labels[0], name)], *count)?;
        }
        Ok(())
    }

    /// The one line of a gauge without labels.
    ///
    /// # Errors
    /// The page takes no more.
    pub fn value(&self, encoder: &mut DescriptorEncoder<'_>, value: u64) -> fmt::Result {
        self.start(encoder)?.0.encode_gauge(&value)
    }

    /// The one line of a counter without labels.
    ///
    /// # Errors
    /// The page takes no more.
    pub fn total(&self, encoder: &mut DescriptorEncoder<'_>, count: u64) -> fmt::Result {
        self.start(encoder)?
            .0
            .encode_counter::<[(&str, &str); 0], _, u64>(&count, None)
    }

    /// The one line of a gauge that is 1 and says everything in its labels.
    ///
    /// # Errors
    /// The page takes no more.
    pub fn info(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        labels: &[(&str, &str)],
    ) -> fmt::Result {
        self.start(encoder)?
            .0
            .encode_family(&labels)?
            .encode_gauge(&1u64)
    }
}

impl Lines<'_> {
    /// A line of a counter.
    ///
    /// # Errors
    /// The page takes no more.
    pub fn count(&mut self, labels: &[(&str, &str)], count: u64) -> fmt::Result {
        self.0
            .encode_family(&labels)?
            .encode_counter::<[(&str, &str); 0], _, u64>(&count, None)
    }

    /// A line of a gauge.
    ///
    /// # Errors
    /// The page takes no more.
    pub fn gauge(&mut self, labels: &[(&str, &str)], value: u64) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_gauge(&value)
    }
}
