//! `ldc-layers`: Figures 5.3 and 5.4 and Table 5.1 again.

use super::lanes::{Comparison, LAYER_BPS, Limit, Outcome, layer_bytes, layer_plot, mean_of};
use crate::prelude::*;

/// Eight layers over slow, lossy links: plain TCP, and late data choice over TCP and over QUIC
#[derive(Debug, clap::Args)]
pub(crate) struct Layers {
    /// Runs of each configuration, side by side (quick: 2)
    #[arg(long, default_value_t = 10, default_value_if("quick", "true", "2"))]
    #[arg(value_parser = within::<usize>(1..=30))]
    runs: usize,
    /// Length of a run (quick: 10)
    #[arg(long, default_value_t = 60, default_value_if("quick", "true", "10"))]
    #[arg(value_parser = within::<u64>(4..=600))]
    seconds: u64,
    /// Most bytes of a message; the thesis: 16384, a layer's second
    #[arg(long, default_value_t = 1400)]
    message: u64,
    /// Congestion control of all: reno, cubic or bbr; the thesis: NewReno
    #[arg(long, default_value = "reno")]
    congestion: String,
    /// Which frames are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What the thesis measured, kbit/s: plain TCP, with LDC (Table 5.1).
fn thesis(limit: Limit) -> Option<(f64, f64)> {
    match limit.kbit {
        1_024 => Some((862.47, 851.96)),
        512 => Some((457.72, 456.30)),
        256 => Some((235.88, 235.24)),
        _ => None,
    }
}

impl Scenario for Layers {
    const NAME: &'static str = "ldc-layers";
    const FIGURE: &'static str = "LDC thesis, Figures 5.3 and 5.4, Table 5.1";

    fn run(&self, context: &Context) -> Result<Report> {
        let (runs, seconds) = (self.runs, self.seconds);
        let outcomes = Comparison {
            limits: &Limit::ALL,
            ways: &[&["--no-ldc"], &[], &["--transport", "quic"]],
            runs,
            seconds,
            message: self.message,
            congestion: &self.congestion,
            seed: self.seed,
        };
        let outcomes = outcomes.play(context)?;
        let mut report = Report::new(Self::NAME, "bytes of each layer, plain TCP and LDC");
        let results = Limit::ALL
            .into_iter()
            .enumerate()
            .map(|(at, limit)| Config {
                limit,
                plain: &outcomes[0][at],
                late: &outcomes[1][at],
                quic: &outcomes[2][at],
            });
        let results: Vec<Config<'_>> = results.collect();
        describe(&mut report, &results, seconds);
        judge(&mut report, &results, seconds, context.quick);
        report.note(format!(
            "{runs} runs of {seconds} s each, all side by side; congestion control {}; messages of {} bytes at \
             most; a kbit is 1,024 bits",
            self.congestion, self.message
        ));
        report.note(
            "links: 1 ms, 32 KiB of queue, loss of data alone; the thesis does not say what its NetEm was \
             set to beside rate and loss",
        );
        Ok(report)
    }
}

/// The runs of one configuration.
struct Config<'o> {
    limit: Limit,
    plain: &'o [Outcome],
    late: &'o [Outcome],
    quic: &'o [Outcome],
}

impl<'o> Config<'o> {
    /// The senders by name.
    fn senders(&self) -> [(&'static str, &'o [Outcome]); 3] {
        [
            ("plain TCP", self.plain),
            ("LDC", self.late),
            ("LDC over QUIC", self.quic),
        ]
    }

    /// LDC's bytes to plain TCP's, for each pair of runs with the same losses.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.plain.iter().zip(self.late);
        pairs
            .map(|(plain, late)| late.bytes as f64 / plain.bytes as f64)
            .collect()
    }
}

fn describe(report: &mut Report, results: &[Config<'_>], seconds: u64) {
    report.tables.push(table_5_1(results));
    report.tables.push(usefulness(results));
    let mut table = Table::with_header(
        format!("bytes of each layer in {seconds} s (Figures 5.3 and 5.4)"),
        "link | sender | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | all",
    );
    for config in results {
        let mut plot = layer_plot(config.limit);
        for (name, outcomes) in config.senders() {
            let bytes = layer_bytes(outcomes);
            plot = plot.heights(name, bytes.iter().map(|bytes| bytes / 1024.0));
            let cells = bytes.iter().map(|bytes| Cell::from(bytes.round() as u64));
            let all = bytes.iter().sum::<f64>().round() as u64;
            table.row(
                [config.limit.name().into(), name.into()]
                    .into_iter()
                    .chain(cells)
                    .chain([all.into()]),
            );
        }
        report.plots.push(plot);
        for (name, outcomes) in config.senders() {
            report.datum(&format!("{} kbit/s, {name}", config.limit.kbit), outcomes);
        }
    }
    report.tables.push(table);
}

fn table_5_1(results: &[Config<'_>]) -> Table {
    let mut table = Table::with_header(
        "Table 5.1, receive rate in kbit/s: ours, and the thesis's",
        "link | plain TCP | LDC | LDC / plain | 95 % +- | thesis plain | thesis LDC | thesis \
         ratio",
    );
    for config in results {
        let ratios = config.ratios();
        let mut row = vec![
            Cell::from(config.limit.name()),
            Cell::number(mean_of(config.plain, Outcome::kbit_per_s), 2),
            Cell::number(mean_of(config.late, Outcome::kbit_per_s), 2),
            Cell::number(mean(ratios.iter().copied()), 4),
            Cell::number(confidence(&ratios), 4),
        ];
        match thesis(config.limit) {
            Some((plain, late)) => row.extend([
                Cell::number(plain, 2),
                Cell::number(late, 2),
                Cell::number(late / plain, 4),
            ]),
            None => row.extend(["1024".into(), "1024".into(), "1".into()]),
        }
        table.row(row);
    }
    table
}

fn usefulness(results: &[Config<'_>]) -> Table {
    let mut table = Table::with_header(
        "what of it is of use: windows are on time within 1 s of their end (the thesis did not look)",
        "link | sender | on time % | base layer whole, windows % | base layer on time % | layers \
         usable, mean | age, median ms | age, 99 % ms",
    );
    for config in results {
        for (name, outcomes) in config.senders() {
            let base = |count| mean_of(outcomes, |one| one.base_percent(count));
            let age = |part: fn(&super::lanes::Ages) -> f64| {
                mean_of(outcomes, |one| one.age_ms.as_ref().map_or(f64::NAN, part))
            };
            table.row([
                config.limit.name().into(),
                name.into(),
                Cell::number(mean_of(outcomes, Outcome::on_time_percent), 1),
                Cell::number(base(|layer| layer.windows_complete), 1),
                Cell::number(base(|layer| layer.windows_on_time), 1),
                Cell::number(mean_of(outcomes, |one| one.usable_layers), 2),
                Cell::number(age(|age| age.p50), 0),
                Cell::number(age(|age| age.p99), 0),
            ]);
        }
    }
    table
}

fn judge(report: &mut Report, results: &[Config<'_>], seconds: u64, quick: bool) {
    for config in results {
        let name = config.limit.name();
        if config.limit.kbit == 0 {
            // 983,040 bytes in 60 s.
            let whole = LAYER_BPS / 8 * seconds;
            let all = config
                .senders()
                .into_iter()
                .flat_map(|(_, outcomes)| outcomes);
            let least = all
                .flat_map(|one| one.layers.iter().map(|layer| layer.bytes))
                .min();
            report.check(
                format!("{name}: bytes of every layer, all senders"),
                least.unwrap_or(0) as f64,
                "",
                Bound::AtLeast(whole as f64),
            );
            continue;
        }
        for (sender, outcomes) in &config.senders()[1..] {
            let missing: u64 = outcomes.iter().map(Outcome::base_missing).sum();
            report.check(
                format!("{name}: windows whose base layer is not whole, {sender}, all runs"),
                missing as f64,
                "",
                Bound::Exactly(0.0),
            );
        }
        if !quick {
            report.check(
                format!("{name}: LDC's rate / plain TCP's, mean of paired runs"),
                mean(config.ratios()),
                "",
                Bound::AtLeast(0.985),
            );
        }
    }
}
