//! Metrics as a table: each is declared once, with the function that writes its lines of the page.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;

use crate::state::DaemonState;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never decreases while the daemon runs; its name ends in `_total`.
    Counter,
    /// May increase and decrease.
    Gauge,
    /// Counts observations in buckets.
    Histogram,
}

/// A metric whose lines are made from a [`Page`] of `S`.
#[derive(Clone, Copy, Debug)]
pub struct Metric<S: 'static> {
    /// Name without the program's prefix and without `_total`.
    pub name: &'static str,
    /// Labels.
    pub labels: &'static [&'static str],
    /// Kind.
    pub kind: Kind,
    /// What it measures.
    pub help: &'static str,
    lines: Write<S>,
}

/// Writes the lines of a metric.
pub type Write<S> = fn(&Page<S>, &mut Lines<'_>) -> fmt::Result;

impl<S> Metric<S> {
    /// Creates a metric of any kind.
    #[must_use]
    pub const fn new(
        kind: Kind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        lines: Write<S>,
    ) -> Self {
        Metric {
            name,
            labels,
            kind,
            help,
            lines,
        }
    }

    /// Returns the row of the metric in a table of documentation: name, kind, labels and help.
    #[must_use]
    pub fn documentation(&self, prefix: &str) -> String {
        let Metric {
            name, labels, help, ..
        } = self;
        let (total, kind) = match self.kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
            Kind::Histogram => ("", "histogram"),
        };
        let labels = labels.join(", ");
        format!("| `{prefix}_{name}{total}` | {kind} | {labels} | {help} |")
    }
}

/// Creates a counter.
#[must_use]
pub const fn counter<S>(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    lines: Write<S>,
) -> Metric<S> {
    Metric::new(Kind::Counter, name, labels, help, lines)
}

/// Creates a gauge.
#[must_use]
pub const fn gauge<S>(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    lines: Write<S>,
) -> Metric<S> {
    Metric::new(Kind::Gauge, name, labels, help, lines)
}

/// The uptime of a daemon.
#[must_use]
pub const fn uptime<S>() -> Metric<S> {
    let help = "Seconds since the start";
    gauge("uptime_seconds", &[], help, |page, lines| {
        lines.value(page.daemon.uptime_s())
    })
}

/// The reloads of a daemon.
#[must_use]
pub const fn reloads<S>() -> Metric<S> {
    let help = "Reloads, accepted and rejected";
    counter("reloads", &["result"], help, |page, lines| {
        let configuration = page.daemon.configuration();
        lines.line(&["accepted"], configuration.reloads)?;
        lines.line(&["rejected"], configuration.rejected)
    })
}

/// All metrics of a program at one moment.
#[derive(Debug)]
pub struct Page<S: 'static> {
    /// The state that every daemon has.
    pub daemon: Arc<DaemonState>,
    /// What the program contributes.
    pub now: S,
    /// The metrics, in the order of the page.
    pub metrics: &'static [Metric<S>],
}

impl<S: fmt::Debug + Send + Sync> Collector for Page<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.metrics {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut lines = Lines {
                encoder: encoder.encode_descriptor(metric.name, metric.help, None, kind)?,
                labels: metric.labels,
                kind: metric.kind,
            };
            (metric.lines)(self, &mut lines)?;
        }
        Ok(())
    }
}

/// The lines of one metric on the page.
#[derive(Debug)]
pub struct Lines<'e> {
    encoder: MetricEncoder<'e>,
    labels: &'static [&'static str],
    kind: Kind,
}

type NoLabels = [(&'static str, &'static str); 0];

impl Lines<'_> {
    /// Writes the line of a metric without labels.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn value(&mut self, value: u64) -> fmt::Result {
        number(self.kind, &mut self.encoder, value)
    }

    /// Writes a line with these values of the labels.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn line(&mut self, values: &[&str], value: u64) -> fmt::Result {
        let labels: Vec<_> = self.labels.iter().zip(values).collect();
        let labels: Vec<_> = labels.into_iter().map(|(name, of)| (*name, *of)).collect();
        number(
            self.kind,
            &mut self.encoder.encode_family(&labels.as_slice())?,
            value,
        )
    }

    /// Writes a line for each name, which is the value of the only label.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn map(&mut self, counts: &BTreeMap<String, u64>) -> fmt::Result {
        for (name, count) in counts {
            self.line(&[name], *count)?;
        }
        Ok(())
    }

    /// Writes a histogram: the sum of the observations, and the number of them in each bucket, with its upper bound.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn histogram(&mut self, sum: f64, buckets: &[(f64, u64)]) -> fmt::Result {
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.encoder
            .encode_histogram::<NoLabels>(sum, count, buckets, None)
    }
}

fn number(kind: Kind, encoder: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabels, _, u64>(&value, None),
        _ => encoder.encode_gauge(&value),
    }
}
