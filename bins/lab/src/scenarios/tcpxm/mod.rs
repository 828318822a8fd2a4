//! The experiments of the TCP-XM paper (§4) and beyond it, by `mcp` and `mcpd`. All run on
//! [`super::stage`], two of them over the paper's own testbed.
//!
//! | scenario | paper |
//! | --- | --- |
//! | [`Lan`] | Figures 5 and 6 |
//! | [`Wan`] | Figures 7 and 8, Tables 1 and 2 |
//! | [`Peers`] | Figures 12 and 13 |
//! | [`JoinLatency`] | Table 3 |
//! | [`KernelInterop`] | §2: ordinary TCPs as receivers |
//! | [`Flows`] | Figures 9 and 10 |
//! | [`Versus`] | Figure 11 |
//! | [`Fallback`] | Figure 1, §2.5 |
//! | [`Bottleneck`] | §2.2 |
//! | [`Straggler`], [`Overlay`] | beyond it |

mod bottleneck;
mod fallback;
mod flows;
mod interop;
mod join_latency;
mod lan;
mod overlay;
mod peers;
mod sites;
mod straggler;
mod testbed;
mod versus;
mod wan;

pub(super) use bottleneck::Bottleneck;
pub(super) use fallback::Fallback;
pub(super) use flows::Flows;
pub(super) use interop::KernelInterop;
pub(super) use join_latency::JoinLatency;
pub(super) use lan::Lan;
pub(super) use overlay::Overlay;
pub(super) use peers::Peers;
pub(super) use straggler::Straggler;
pub(super) use versus::Versus;
pub(super) use wan::Wan;

use super::stage::Wire;
use super::stage::copy::{Copied, HostCopied};
use crate::prelude::*;

/// Mbit/s.
fn mbps(bits_per_s: f64) -> Cell {
    Cell::number(bits_per_s / 1e6, 1)
}

/// MB, millions of bytes.
fn megabytes(bytes: u64) -> Cell {
    Cell::number(bytes as f64 / 1e6, 3)
}

/// Columns of [`cells`].
const COLUMNS: &str = "s | Mbit/s | wire / file | unicast MB | multicast MB";

/// Seconds, if there are any.
fn seconds(seconds: Option<f64>, decimals: usize) -> Cell {
    seconds.map_or("".into(), |seconds| Cell::number(seconds, decimals))
}

/// Checks that every host has the file.
fn all_whole(report: &mut Report, case: &str, copied: &Copied) {
    for host in &copied.hosts {
        report.holds(
            format!("{case}: the copy of {} is whole", host.name),
            host.whole,
        );
    }
}

/// Bytes at each host over time.
fn progress<'h>(title: &str, hosts: impl IntoIterator<Item = (&'h str, &'h HostCopied)>) -> Plot {
    let plot = Plot::lines(title, "s since the start", "MB at the host");
    hosts.into_iter().fold(plot, |plot, (name, host)| {
        let points = host.progress.iter();
        plot.series(name, points.map(|(at, bytes)| (*at, *bytes as f64 / 1e6)))
    })
}

/// The result of a copy, for a table.
fn cells(copied: &Copied) -> [Cell; 5] {
    let Wire { multicast, .. } = copied.wire;
    [
        Cell::number(copied.seconds, 2),
        mbps(copied.goodput_bps),
        Cell::number(copied.overhead, 3),
        megabytes(copied.wire.unicast()),
        megabytes(multicast),
    ]
}

/// Bytes that a host had at a time (seconds), from its progress reports.
fn reached(progress: &[(f64, u64)], at: f64) -> f64 {
    let after = progress.partition_point(|(then, _)| *then <= at);
    let before = after.checked_sub(1).map_or((0.0, 0), |last| progress[last]);
    let Some(next) = progress.get(after) else {
        return before.1 as f64;
    };
    let part = (at - before.0) / (next.0 - before.0);
    before.1 as f64 + part.max(0.0) * (next.1 - before.1) as f64
}

/// Mbit/s from one report of progress to the next, half a second or more later.
fn rates(progress: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut last = (0.0, 0);
    for &(at, bytes) in progress {
        if at - last.0 >= 0.5 {
            let bits = (bytes - last.1) as f64 * 8.0;
            points.push(((at + last.0) / 2.0, bits / (at - last.0) / 1e6));
            last = (at, bytes);
        }
    }
    points
}
