//! `ldc-latency`: how old data is when it arrives, which the thesis could not document (§5.3, §6.2).

use super::figures::mean;
use super::lanes::{Ages, Lanes, Limit, Outcome, run_all, sender_args};
use crate::prelude::*;

/// Age of data on arrival: plain TCP, TCP_NOTSENT_LOWAT alone, late data choice
#[derive(Debug, clap::Args)]
pub(crate) struct Latency {
    /// Runs of each sender on each link, side by side (quick: 1)
    #[arg(long, default_value_t = 4, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=15))]
    runs: usize,
    /// Length of a run (quick: 10)
    #[arg(long, default_value_t = 60, default_value_if("quick", "true", "10"))]
    #[arg(value_parser = within::<u64>(4..=600))]
    seconds: u64,
    /// Congestion control
    #[arg(long, default_value = "reno")]
    congestion: String,
}

/// Three segments of 1,448 bytes: what LDC keeps unsent on slow links.
const LOWAT: &str = "4344";

/// The senders compared. Except for the first, none sends data that is late already.
const WAYS: [(&str, &[&str]); 5] = [
    ("plain TCP", &["--no-ldc"]),
    (
        "plain TCP, late data skipped",
        &["--no-ldc", "--policy", "deadline"],
    ),
    (
        "TCP_NOTSENT_LOWAT alone, late data skipped",
        &["--no-ldc", "--policy", "deadline", "--unsent", LOWAT],
    ),
    ("LDC, deadlines", &["--policy", "deadline"]),
    ("LDC, priority-progress", &["--policy", "priority-progress"]),
];

impl Scenario for Latency {
    const NAME: &'static str = "ldc-latency";
    const FIGURE: &'static str = "LDC thesis, §3.2.4, §5.3, §6.2";

    fn run(&self, context: &Context) -> Result<Report> {
        let &Self {
            runs,
            seconds,
            ref congestion,
            ..
        } = self;
        let shapes: Vec<_> = Limit::LIMITED
            .iter()
            .flat_map(|limit| std::iter::repeat_n(limit.shape(), runs))
            .collect();
        let mut networks = Vec::new();
        for _ in WAYS {
            networks.push(Lanes::build(&shapes, 1)?);
        }
        context.note(format!(
            "{} streams side by side, {seconds} s",
            WAYS.len() * shapes.len()
        ));
        let mut streams = Vec::new();
        for ((_, how), lanes) in WAYS.iter().zip(&networks) {
            for lane in 0..shapes.len() {
                streams.push((lanes, lane, sender_args(how, 1_400, congestion)));
            }
        }
        let outcomes = run_all(&streams, seconds)?;
        let mut report = Report::new(Self::NAME, "age of data on arrival");
        let mut plots: Vec<Plot> = ["median", "99 %"]
            .iter()
            .map(|part| {
                let names: Vec<String> = Limit::LIMITED.map(Limit::name).into();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let title = format!("age of messages on arrival, {part}");
                Plot::bars(&title, "ms", &names).log(false, true)
            })
            .collect();
        let mut table = columns();
        let mut medians = Vec::new();
        for ((name, _), outcomes) in WAYS.iter().zip(outcomes.chunks(shapes.len())) {
            let by_limit: Vec<&[Outcome]> = outcomes.chunks(runs).collect();
            let figures: Vec<(f64, f64)> = by_limit
                .iter()
                .zip(Limit::LIMITED)
                .map(|(outcomes, limit)| row(&mut table, name, limit, outcomes))
                .collect();
            let points = |part: fn(&(f64, f64)) -> f64| {
                let figures = figures.iter().map(part).enumerate();
                figures.map(|(at, value)| (at as f64, value)).collect()
            };
            plots[0] = plots[0].clone().series(name, points(|figure| figure.0));
            plots[1] = plots[1].clone().series(name, points(|figure| figure.1));
            medians.push(figures);
            report.datum(name, outcomes);
        }
        report.tables.push(table);
        report.plots = plots;
        judge(&mut report, &medians);
        report.note("age: from when a message was due at the sender until it has arrived whole");
        report.note(format!("the senders skip or drop a layer when its second is over, LDC in the ring (the base \
             layer a second later), the others before `send`; --unsent {LOWAT} is three segments; {congestion}"));
        Ok(report)
    }
}

fn columns() -> Table {
    Table::with_header(
        "age on arrival, ms; mean of the runs",
        "sender | link | median | 90 % | 99 % | base layer, median | base layer, 99 % | kbit/s | \
         on time % | base layer on time % | layers usable",
    )
}

/// A row; its median and 99 % age.
fn row(table: &mut Table, name: &str, limit: Limit, outcomes: &[Outcome]) -> (f64, f64) {
    let of = |figure: &dyn Fn(&Outcome) -> f64| {
        let figures: Vec<f64> = outcomes.iter().map(figure).collect();
        mean(&figures)
    };
    let age = |part: fn(&Ages) -> f64| of(&|one| one.age_ms.as_ref().map_or(f64::NAN, part));
    let base = |part: fn(&Ages) -> f64| of(&|one| one.base_age_ms.as_ref().map_or(f64::NAN, part));
    let figures = (age(|age| age.p50), age(|age| age.p99));
    table.row([
        name.into(),
        limit.name().into(),
        Cell::number(figures.0, 0),
        Cell::number(age(|age| age.p90), 0),
        Cell::number(figures.1, 0),
        Cell::number(base(|age| age.p50), 0),
        Cell::number(base(|age| age.p99), 0),
        Cell::number(of(&|one| one.bytes as f64 * 8.0 / 1024.0 / one.seconds), 1),
        Cell::number(
            of(&|one| one.on_time_bytes as f64 * 100.0 / one.bytes.max(1) as f64),
            1,
        ),
        Cell::number(
            of(&|one| one.layers[0].windows_on_time as f64 * 100.0 / one.windows.max(1) as f64),
            1,
        ),
        Cell::number(of(&|one| one.usable_layers), 2),
    ]);
    figures
}

/// `figures`: for each way, for each link: median and 99 %.
fn judge(report: &mut Report, figures: &[Vec<(f64, f64)>]) {
    for (at, limit) in Limit::LIMITED.into_iter().enumerate() {
        let (plain, late) = (figures[0][at], figures[3][at]);
        report.check(
            format!(
                "{}: median age, LDC with deadlines / plain TCP",
                limit.name()
            ),
            late.0 / plain.0,
            "",
            Bound::AtMost(0.5),
        );
        report.check(
            format!("{}: 99 % age, LDC with deadlines / plain TCP", limit.name()),
            late.1 / plain.1,
            "",
            Bound::AtMost(0.5),
        );
    }
}
