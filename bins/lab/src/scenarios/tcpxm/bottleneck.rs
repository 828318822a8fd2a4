//! `tcpxm-bottleneck`: a deep queue before each host, so that only congestion control can find the
//! rate (beyond the paper).

use super::super::stage::copy::{Copied, Copying, copy};
use super::super::stage::tcp::{Ends, streams};
use super::super::stage::{Setting, Stage};
use super::{COLUMNS, cells};
use crate::prelude::*;

/// Mcp to four hosts behind deep queues of 100 Mbit/s, no loss and 1 %
#[derive(Debug, clap::Args)]
pub(crate) struct Bottleneck {
    /// Size of the file in MiB (quick: 8)
    #[arg(long, default_value_t = 128, default_value_if("quick", "true", "8"))]
    mib: u64,
    /// Congestion control of mcp: cubic, newreno, bbr, or several with a comma
    #[arg(long, value_delimiter = ',', default_value = "cubic", value_parser = CONTROLS)]
    cc: Vec<String>,
}

const RATE_BPS: u64 = 100_000_000;
const HOSTS: usize = 4;
/// What a port of the switch holds: 84 ms at its rate.
const QUEUE_BYTES: usize = 1 << 20;
const LOSSES: [f64; 2] = [0.0, 0.01];
const TARGET_MBPS: f64 = 88.0;

/// What `--cc` takes.
const CONTROLS: [&str; 4] = ["all", "cubic", "newreno", "bbr"];

impl Scenario for Bottleneck {
    const NAME: &'static str = "tcpxm-bottleneck";
    const FIGURE: &'static str = "TCP-XM §2.2";

    fn run(&self, context: &Context) -> Result<Report> {
        let bytes = self.mib << 20;
        let controls = chosen(&self.cc, &CONTROLS);
        let mut report = Report::new(Self::NAME, "deep queues of 100 Mbit/s before four hosts");
        let mut lines = Vec::new();
        for loss in LOSSES {
            let shape = Shape {
                rate_bps: RATE_BPS,
                queue_bytes: QUEUE_BYTES,
                inbound_only: true,
                ..Shape::lossy(loss)
            };
            let mut stage = Stage::build(&Setting::plain(HOSTS, bytes).shaped(shape))?;
            for control in &controls {
                context.note(format!("{control}, {} % loss", loss * 100.0));
                let copying = Copying::plain().send(&["--congestion", control]);
                let copied = copy(&mut stage, &copying)?;
                if !context.quick {
                    let name = format!("{control}, {} % loss: goodput", loss * 100.0);
                    let goodput = copied.goodput_bps / 1e6;
                    report.timed(name, goodput, "Mbit/s", Bound::AtLeast(TARGET_MBPS));
                }
                lines.push(Line {
                    loss,
                    control,
                    copied,
                });
            }
            let tcp = streams(&mut stage, &[0, 1, 2, 3], Ends::Files)?;
            let goodput = bytes as f64 * 8.0 / tcp.last().as_secs_f64();
            report.note(format!(
                "four kernel TCP streams, {} % loss: {:.1} Mbit/s each, {:.2} times the file on the \
                 sender's wire",
                loss * 100.0,
                goodput / 1e6,
                tcp.wire.bytes as f64 / bytes as f64
            ));
        }
        report.tables.push(table(&lines));
        report.plots.extend(lines.iter().map(Line::plot));
        report.datum("copies", &lines);
        report.note(format!(
            "each port drops what its queue of {} KiB has no room for; the sender's own link has no \
             limit",
            QUEUE_BYTES >> 10
        ));
        Ok(report)
    }
}

/// A copy that was made.
#[derive(Clone, Debug, Serialize)]
struct Line {
    loss: f64,
    control: &'static str,
    copied: Copied,
}

impl Line {
    /// The rate at the first host, from one report to the next.
    fn plot(&self) -> Plot {
        let title = format!("{}, {} % loss", self.control, self.loss * 100.0);
        let plot = Plot::lines(&title, "s since the start", "Mbit/s at the first host");
        let told = self.copied.hosts.first().map_or(&[][..], |h| &h.progress);
        plot.series(self.control, super::rates(told))
    }
}

fn table(lines: &[Line]) -> Table {
    let columns = format!("loss % | control | {COLUMNS} | mcp CPU s | mcpd CPU s");
    let mut table = Table::with_header("copies to four hosts", &columns);
    for line in lines {
        let name = [Cell::number(line.loss * 100.0, 0), line.control.into()];
        let Copied {
            sender_cpu,
            receivers_cpu,
            ..
        } = line.copied;
        let cpu = [sender_cpu, receivers_cpu].map(|seconds| Cell::number(seconds, 2));
        table.row(name.into_iter().chain(cells(&line.copied)).chain(cpu));
    }
    table
}
