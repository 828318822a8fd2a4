//! `ldc-misuse`: Figure 5.5, an application that drops at the wrong time.

use super::lanes::{Comparison, Limit, Outcome, layer_bytes, layer_plot, mean_of};
use crate::prelude::*;

/// Late data choice used improperly: what waits is dropped whenever the next layer is due
#[derive(Debug, clap::Args)]
pub(crate) struct Misuse {
    /// Runs of each configuration, side by side (quick: 2)
    #[arg(long, default_value_t = 10, default_value_if("quick", "true", "2"))]
    #[arg(value_parser = within::<usize>(1..=30))]
    runs: usize,
    /// Length of a run (quick: 10)
    #[arg(long, default_value_t = 60, default_value_if("quick", "true", "10"))]
    #[arg(value_parser = within::<u64>(4..=600))]
    seconds: u64,
}

/// A message is a layer's second, as in the thesis: the mistake shows because the one that was just sent is
/// dropped whole.
const MESSAGE: u64 = 16_384;
const POLICIES: [&str; 2] = ["naive", "lowest-first"];

impl Scenario for Misuse {
    const NAME: &'static str = "ldc-misuse";
    const FIGURE: &'static str = "LDC thesis, Figure 5.5";

    fn run(&self, context: &Context) -> Result<Report> {
        let seconds = self.seconds;
        let ways = POLICIES.map(|policy| ["--policy", policy]);
        let outcomes = Comparison {
            limits: &Limit::LIMITED,
            ways: &ways.each_ref().map(|how| &how[..]),
            runs: self.runs,
            seconds,
            message: MESSAGE,
            congestion: "reno",
            seed: 1,
        };
        let outcomes = outcomes.play(context)?;
        let mut report = Report::new(Self::NAME, "bytes of each layer, dropped at the wrong time");
        let mut table = Table::with_header(
            format!("bytes of each layer in {seconds} s"),
            "link | policy | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | base layer on time % | layers \
             usable, mean",
        );
        for (at, limit) in Limit::LIMITED.into_iter().enumerate() {
            let outcomes = [0, 1].map(|policy: usize| &outcomes[policy][at][..]);
            describe(&mut report, &mut table, limit, outcomes);
        }
        report.tables.push(table);
        report.note(
            "messages of 16,384 bytes, a layer's second, as in the thesis; congestion control reno",
        );
        report.note(
            "Figure 5.5 says only: very little in the middle layers when the bandwidth is limited",
        );
        Ok(report)
    }
}

fn describe(report: &mut Report, table: &mut Table, limit: Limit, outcomes: [&[Outcome]; 2]) {
    let name = limit.name();
    let mut plot = layer_plot(limit);
    let mut usable = Vec::new();
    for (policy, outcomes) in POLICIES.into_iter().zip(outcomes) {
        let bytes = layer_bytes(outcomes);
        plot = plot.heights(policy, bytes.iter().map(|bytes| bytes / 1024.0));
        let layers = mean_of(outcomes, |one| one.usable_layers);
        let on_time = mean_of(outcomes, |one| {
            one.base_percent(|base| base.windows_on_time)
        });
        let cells = bytes.iter().map(|bytes| Cell::from(bytes.round() as u64));
        let row = [name.as_str().into(), policy.into()]
            .into_iter()
            .chain(cells);
        table.row(row.chain([Cell::number(on_time, 1), Cell::number(layers, 2)]));
        if policy == "naive" {
            // A layer without the layers below it is of no use: some layer has more bytes than the one below.
            let rises = bytes.windows(2).filter(|pair| pair[1] > pair[0]).count();
            let name = format!("{name}: layers with more data than the one below, naive");
            report.check(name, rises as f64, "", Bound::AtLeast(1.0));
        }
        usable.push(layers);
        report.datum(&format!("{} kbit/s, {policy}", limit.kbit), outcomes);
    }
    let name = format!("{name}: usable layers, naive / lowest-first");
    report.check(name, usable[0] / usable[1], "", Bound::AtMost(0.8));
    report.plots.push(plot);
}
