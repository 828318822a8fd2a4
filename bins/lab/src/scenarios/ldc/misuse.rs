//! `ldc-misuse`: Figure 5.5, an application that drops at the wrong time.

use super::figures::mean;
use super::lanes::{LAYERS, Lanes, Limit, Outcome, run_all, sender_args};
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

impl Scenario for Misuse {
    const NAME: &'static str = "ldc-misuse";
    const FIGURE: &'static str = "LDC thesis, Figure 5.5";

    fn run(&self, context: &Context) -> Result<Report> {
        let &Self { runs, seconds, .. } = self;
        let shapes: Vec<_> = Limit::LIMITED
            .iter()
            .flat_map(|limit| std::iter::repeat_n(limit.shape(), runs))
            .collect();
        let (naive, proper) = (Lanes::build(&shapes, 1)?, Lanes::build(&shapes, 1)?);
        context.note(format!(
            "{} streams side by side, {seconds} s",
            2 * shapes.len()
        ));
        let mut streams = Vec::new();
        for lane in 0..shapes.len() {
            for (lanes, policy) in [(&naive, "naive"), (&proper, "lowest-first")] {
                let args = sender_args(&["--policy", policy], MESSAGE, "reno");
                streams.push((lanes, lane, args));
            }
        }
        let outcomes = run_all(&streams, seconds)?;
        let mut report = Report::new(Self::NAME, "bytes of each layer, dropped at the wrong time");
        let mut table = Table::with_header(
            format!("bytes of each layer in {seconds} s"),
            "link | policy | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | base layer on time % | layers \
             usable, mean",
        );
        for (limit, outcomes) in Limit::LIMITED.iter().zip(outcomes.chunks(2 * runs)) {
            describe(&mut report, &mut table, *limit, outcomes);
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

fn describe(report: &mut Report, table: &mut Table, limit: Limit, outcomes: &[Outcome]) {
    let names: Vec<String> = (1..=LAYERS).map(|layer| format!("layer {layer}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut plot = Plot::bars(&limit.name(), "KiB received", &names);
    let mut usable = Vec::new();
    for (first, policy) in [(0, "naive"), (1, "lowest-first")] {
        let outcomes: Vec<&Outcome> = outcomes.iter().skip(first).step_by(2).collect();
        let of = |figure: &dyn Fn(&Outcome) -> f64| {
            let figures: Vec<f64> = outcomes.iter().map(|one| figure(one)).collect();
            mean(&figures)
        };
        let bytes: Vec<f64> = (0..LAYERS)
            .map(|layer| of(&|one| one.layers[layer].bytes as f64))
            .collect();
        let points = bytes.iter().enumerate();
        let points = points.map(|(at, bytes)| (at as f64, bytes / 1024.0));
        plot = plot.series(policy, points.collect());
        usable.push(of(&|one| one.usable_layers));
        let on_time =
            of(&|one| one.layers[0].windows_on_time as f64 * 100.0 / one.windows.max(1) as f64);
        let cells = bytes.iter().map(|bytes| Cell::from(bytes.round() as u64));
        table.row(
            [limit.name().into(), policy.into()]
                .into_iter()
                .chain(cells)
                .chain([Cell::number(on_time, 1), Cell::number(usable[first], 2)]),
        );
        if policy == "naive" {
            // A layer without the layers below it is of no use: some layer has more bytes than the one below.
            let rises = bytes.windows(2).filter(|pair| pair[1] > pair[0]).count();
            report.check(
                format!(
                    "{}: layers with more data than the one below, naive",
                    limit.name()
                ),
                rises as f64,
                "",
                Bound::AtLeast(1.0),
            );
        }
        report.datum(&format!("{} kbit/s, {policy}", limit.kbit), &outcomes);
    }
    report.check(
        format!("{}: usable layers, naive / lowest-first", limit.name()),
        usable[0] / usable[1],
        "",
        Bound::AtMost(0.8),
    );
    report.plots.push(plot);
}
