//! `ldc-throughput`: a ring drained into a socket beside a loop of plain `send`, over the same loopback.

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
        let mut bars = [Vec::new(), Vec::new()];
        for size in SIZES {
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
            let pairs = ours.iter().zip(&theirs);
            let ratios: Vec<f64> = pairs.map(|(a, b)| a.bps / b.bps).collect();
            let ratio = median(ratios.iter().copied());
            let of = |runs: &[Run], figure: fn(&Run) -> f64| median(runs.iter().map(figure));
            let rates = [
                of(&theirs, |run| run.bps / 1e9),
                of(&ours, |run| run.bps / 1e9),
            ];
            table.row([
                size.into(),
                Cell::number(rates[0], 2),
                Cell::number(rates[1], 2),
                Cell::number(ratio, 3),
                Cell::number(confidence(&ratios), 3),
                Cell::number(of(&ours, Run::wakes_per_1000), 2),
            ]);
            for (bar, rate) in bars.iter_mut().zip(rates) {
                bar.push(rate);
            }
            if !context.quick {
                let name = format!("{size} bytes: LDC / plain send");
                report.timed(name, ratio, "", Bound::AtLeast(0.95));
            }
            report.datum(&format!("{size} bytes, plain send"), &theirs);
            report.datum(&format!("{size} bytes, LDC"), &ours);
        }
        report.tables.push(table);
        let [plain, late] = bars;
        let plot = Plot::bars("one stream over loopback", "Gbit/s", names);
        report
            .plots
            .push(plot.heights("plain send", plain).heights("LDC", late));
        report.note(
            "a message is copied into the ring, and from there into the socket by another thread; the \
             receiver throws everything away",
        );
        report.note("the thesis: above 3 Gbit/s, on the machines of 2006");
        Ok(report)
    }
}
