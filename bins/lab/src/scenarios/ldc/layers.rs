//! `ldc-layers`: Figures 5.3 and 5.4 and Table 5.1 again.

use super::figures::{confidence, mean};
use super::lanes::{KBIT, LAYER_BPS, LAYERS, Lanes, Limit, Outcome, run_all, sender_args};
use crate::prelude::*;

/// Eight layers over slow, lossy links: plain TCP and late data choice
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
    /// Congestion control of both; the thesis: NewReno
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
        let &Self {
            runs,
            seconds,
            message,
            ref congestion,
            seed,
            ..
        } = self;
        let limits = Limit::ALL;
        let shapes: Vec<_> = limits
            .iter()
            .flat_map(|limit| std::iter::repeat_n(limit.shape(), runs))
            .collect();
        context.note(format!(
            "{} pairs of hosts, twice: with the same losses for both",
            shapes.len()
        ));
        let (plain, late) = (Lanes::build(&shapes, seed)?, Lanes::build(&shapes, seed)?);
        context.note(format!(
            "{} streams side by side, {seconds} s",
            2 * shapes.len()
        ));
        let mut streams = Vec::new();
        for lane in 0..shapes.len() {
            for (lanes, how) in [(&plain, &["--no-ldc"][..]), (&late, &[])] {
                streams.push((lanes, lane, sender_args(how, message, congestion)));
            }
        }
        let outcomes = run_all(&streams, seconds)?;
        ensure!(outcomes.len() == 2 * shapes.len(), "runs are missing");
        let mut report = Report::new(Self::NAME, "bytes of each layer, plain TCP and LDC");
        let results: Vec<Config> = limits
            .iter()
            .zip(outcomes.chunks(2 * runs))
            .map(|(limit, outcomes)| Config::new(*limit, outcomes))
            .collect();
        describe(&mut report, &results, seconds);
        judge(&mut report, &results, seconds, context.quick);
        report.note(format!(
            "{runs} runs of {seconds} s each, all side by side; congestion control {congestion}; messages \
             of {message} bytes at most; a kbit is 1,024 bits"
        ));
        report.note(
            "links: 1 ms, 32 KiB of queue, loss of data alone; the thesis does not say what its NetEm was \
             set to beside rate and loss",
        );
        Ok(report)
    }
}

/// The runs of one configuration.
struct Config {
    limit: Limit,
    plain: Vec<Outcome>,
    late: Vec<Outcome>,
}

impl Config {
    /// Outcomes alternate: plain TCP, LDC.
    fn new(limit: Limit, outcomes: &[Outcome]) -> Config {
        let every_second = |first| outcomes.iter().skip(first).step_by(2).cloned().collect();
        Config {
            limit,
            plain: every_second(0),
            late: every_second(1),
        }
    }

    /// LDC's bytes to plain TCP's, for each pair of runs with the same losses.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.plain.iter().zip(&self.late);
        pairs
            .map(|(plain, late)| late.bytes as f64 / plain.bytes as f64)
            .collect()
    }
}

fn mean_of(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    let figures: Vec<f64> = outcomes.iter().map(figure).collect();
    mean(&figures)
}

/// kbit/s at the receiver.
fn rate(outcomes: &[Outcome]) -> f64 {
    mean_of(outcomes, |one| {
        one.bytes as f64 * 8.0 / KBIT as f64 / one.seconds
    })
}

fn layer_bytes(outcomes: &[Outcome], layer: usize) -> f64 {
    mean_of(outcomes, |one| one.layers[layer].bytes as f64)
}

fn describe(report: &mut Report, results: &[Config], seconds: u64) {
    report.tables.push(table_5_1(results));
    report.tables.push(usefulness(results));
    let names: Vec<String> = (1..=LAYERS).map(|layer| format!("layer {layer}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = Table::with_header(
        format!("bytes of each layer in {seconds} s (Figures 5.3 and 5.4): plain TCP, LDC"),
        "link | sender | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | all",
    );
    for config in results {
        let mut plot = Plot::bars(&config.limit.name(), "KiB received", &names);
        for (name, outcomes) in [("plain TCP", &config.plain), ("LDC", &config.late)] {
            let bytes: Vec<f64> = (0..LAYERS)
                .map(|layer| layer_bytes(outcomes, layer))
                .collect();
            let points = bytes.iter().enumerate();
            let points = points.map(|(at, bytes)| (at as f64, bytes / 1024.0));
            plot = plot.series(name, points.collect());
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
        let name = format!("{} kbit/s", config.limit.kbit);
        report.datum(&format!("{name}, plain TCP"), &config.plain);
        report.datum(&format!("{name}, LDC"), &config.late);
    }
    report.tables.push(table);
}

fn table_5_1(results: &[Config]) -> Table {
    let mut table = Table::with_header(
        "Table 5.1, receive rate in kbit/s: ours, and the thesis's",
        "link | plain TCP | LDC | LDC / plain | 95 % +- | thesis plain | thesis LDC | thesis \
         ratio",
    );
    for config in results {
        let ratios = config.ratios();
        let mut row = vec![
            Cell::from(config.limit.name()),
            Cell::number(rate(&config.plain), 2),
            Cell::number(rate(&config.late), 2),
            Cell::number(mean(&ratios), 4),
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

fn usefulness(results: &[Config]) -> Table {
    let mut table = Table::with_header(
        "what of it is of use: windows are on time within 1 s of their end (the thesis did not look)",
        "link | sender | on time % | base layer whole, windows % | base layer on time % | layers \
         usable, mean | age, median ms | age, 99 % ms",
    );
    for config in results {
        for (name, outcomes) in [("plain TCP", &config.plain), ("LDC", &config.late)] {
            let part = |figure: fn(&Outcome) -> f64| mean_of(outcomes, figure);
            let base = |count: fn(&super::lanes::Layer) -> u64| {
                mean_of(outcomes, |one| {
                    count(&one.layers[0]) as f64 * 100.0 / one.windows.max(1) as f64
                })
            };
            let age = |part: fn(&super::lanes::Ages) -> f64| {
                mean_of(outcomes, |one| one.age_ms.as_ref().map_or(f64::NAN, part))
            };
            table.row([
                config.limit.name().into(),
                name.into(),
                Cell::number(
                    part(|one| one.on_time_bytes as f64 * 100.0 / one.bytes.max(1) as f64),
                    1,
                ),
                Cell::number(base(|layer| layer.windows_complete), 1),
                Cell::number(base(|layer| layer.windows_on_time), 1),
                Cell::number(part(|one| one.usable_layers), 2),
                Cell::number(age(|age| age.p50), 0),
                Cell::number(age(|age| age.p99), 0),
            ]);
        }
    }
    table
}

fn judge(report: &mut Report, results: &[Config], seconds: u64, quick: bool) {
    for config in results {
        let name = config.limit.name();
        if config.limit.kbit == 0 {
            // 983,040 bytes in 60 s.
            let whole = LAYER_BPS / 8 * seconds;
            let all = config.plain.iter().chain(&config.late);
            let least = all
                .flat_map(|one| one.layers.iter().map(|layer| layer.bytes))
                .min();
            report.check(
                format!("{name}: bytes of every layer, plain TCP and LDC"),
                least.unwrap_or(0) as f64,
                "",
                Bound::AtLeast(whole as f64),
            );
            continue;
        }
        let missing = config.late.iter().map(|one| {
            let whole = one.layers[0].windows_complete;
            one.windows - whole.min(one.windows)
        });
        report.check(
            format!("{name}: windows whose base layer is not whole, LDC, all runs"),
            missing.sum::<u64>() as f64,
            "",
            Bound::Exactly(0.0),
        );
        if !quick {
            report.check(
                format!("{name}: LDC's rate / plain TCP's, mean of paired runs"),
                mean(&config.ratios()),
                "",
                Bound::AtLeast(0.985),
            );
        }
    }
}
