//! `ldc-throughput`: a ring drained into a socket beside a loop of plain `send`, over the same loopback.

use super::figures::{confidence, median};
use super::loopback::{Notify, Run, late, plain};
use crate::prelude::*;

/// Late data choice beside a loop of plain send, as fast as loopback allows
#[derive(Debug, clap::Args)]
pub(crate) struct Throughput {
    /// Bytes of a stream in MiB (quick: 64)
    #[arg(long, default_value_t = 2048, default_value_if("quick", "true", "64"))]
    #[arg(value_parser = within::<u64>(1..=1 << 20))]
    mib: u64,
    /// Streams of each kind, in turns; the median counts (quick: 3)
    #[arg(long, default_value_t = 7, default_value_if("quick", "true", "3"))]
    #[arg(value_parser = within::<usize>(1..=1_000))]
    rounds: usize,
}

const SIZES: [usize; 3] = [1_460, 16_384, 65_536];

impl Scenario for Throughput {
    const NAME: &'static str = "ldc-throughput";
    const FIGURE: &'static str = "LDC thesis, §4.2.4";
    const NEEDS: &'static [Need] = &[];

    fn run(&self, context: &Context) -> Result<Report> {
        let bytes = self.mib << 20;
        let rounds: usize = self.rounds;
        let mut report = Report::new(Self::NAME, "bytes a second over loopback");
        let mut table = Table::with_header(
            "median of the rounds",
            "message, bytes | plain send, Gbit/s | LDC, Gbit/s | LDC / plain | 95 % +- | wake-ups \
             for 1,000 messages",
        );
        let names = SIZES.map(|size| format!("{size} bytes"));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut bars = [Vec::new(), Vec::new()];
        for (at, size) in SIZES.into_iter().enumerate() {
            context.note(format!("{size} bytes"));
            let (mut ours, mut theirs): (Vec<Run>, Vec<Run>) = Default::default();
            // The first of each warms the machine up.
            for round in 0..=rounds {
                let pair = (plain(size, bytes)?, late(size, bytes, Notify::Each)?);
                if round > 0 {
                    theirs.push(pair.0);
                    ours.push(pair.1);
                }
            }
            let ratios: Vec<f64> = ours
                .iter()
                .zip(&theirs)
                .map(|(a, b)| a.bps / b.bps)
                .collect();
            let of = |runs: &[Run], figure: fn(&Run) -> f64| {
                let figures: Vec<f64> = runs.iter().map(figure).collect();
                median(&figures)
            };
            let rates = [
                of(&theirs, |run| run.bps / 1e9),
                of(&ours, |run| run.bps / 1e9),
            ];
            table.row([
                size.into(),
                Cell::number(rates[0], 2),
                Cell::number(rates[1], 2),
                Cell::number(median(&ratios), 3),
                Cell::number(confidence(&ratios), 3),
                Cell::number(
                    of(&ours, |run| run.wakes as f64 * 1e3 / run.messages as f64),
                    2,
                ),
            ]);
            for (bar, rate) in bars.iter_mut().zip(rates) {
                bar.push((at as f64, rate));
            }
            if !context.quick {
                report.timed(
                    format!("{size} bytes: LDC / plain send"),
                    median(&ratios),
                    "",
                    Bound::AtLeast(0.95),
                );
            }
            report.datum(&format!("{size} bytes, plain send"), &theirs);
            report.datum(&format!("{size} bytes, LDC"), &ours);
        }
        report.tables.push(table);
        let [plain, late] = bars;
        let plot = Plot::bars("one stream over loopback", "Gbit/s", &names);
        report
            .plots
            .push(plot.series("plain send", plain).series("LDC", late));
        report.note(
            "a message is copied into the ring, and from there into the socket by another thread; the \
             receiver throws everything away",
        );
        report.note("the thesis: above 3 Gbit/s, on the machines of 2006");
        Ok(report)
    }
}
