//! `ldc-latency`: how old data is when it arrives, which the thesis could not document (§5.3, §6.2).

use super::lanes::{Ages, Comparison, Limit, Outcome, mean_of};
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
        let ways = WAYS.map(|(_, how)| how);
        let outcomes = Comparison {
            limits: &Limit::LIMITED,
            ways: &ways,
            runs: self.runs,
            seconds: self.seconds,
            message: 1_400,
            congestion: &self.congestion,
            seed: 1,
        };
        let outcomes = outcomes.play(context)?;
        let mut report = Report::new(Self::NAME, "age of data on arrival");
        let mut plots = ["median", "99 %"].map(|part| {
            let title = format!("age of messages on arrival, {part}");
            Plot::bars(&title, "ms", Limit::LIMITED.map(Limit::name)).log(false, true)
        });
        let mut table = columns();
        let mut medians = Vec::new();
        for ((name, _), by_limit) in WAYS.iter().zip(&outcomes) {
            let limits = by_limit.iter().zip(Limit::LIMITED);
            let figures: Vec<(f64, f64)> = limits
                .map(|(outcomes, limit)| row(&mut table, name, limit, outcomes))
                .collect();
            let [middle, late] = plots;
            plots = [
                middle.heights(name, figures.iter().map(|figure| figure.0)),
                late.heights(name, figures.iter().map(|figure| figure.1)),
            ];
            medians.push(figures);
            report.datum(name, by_limit.concat());
        }
        report.tables.push(table);
        report.plots = plots.into();
        judge(&mut report, &medians);
        report.note("age: from when a message was due at the sender until it has arrived whole");
        report.note(format!("the senders skip or drop a layer when its second is over, LDC in the ring (the base \
             layer a second later), the others before `send`; --unsent {LOWAT} is three segments; {}", self.congestion));
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
    let of = |figure: &dyn Fn(&Outcome) -> f64| mean_of(outcomes, figure);
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
        Cell::number(of(&Outcome::kbit_per_s), 1),
        Cell::number(of(&Outcome::on_time_percent), 1),
        Cell::number(of(&|one| one.base_percent(|base| base.windows_on_time)), 1),
        Cell::number(of(&|one| one.usable_layers), 2),
    ]);
    figures
}

/// `figures`: for each way, for each link: median and 99 %.
fn judge(report: &mut Report, figures: &[Vec<(f64, f64)>]) {
    for (at, limit) in Limit::LIMITED.into_iter().enumerate() {
        let (plain, late) = (figures[0][at], figures[3][at]);
        for (what, ratio) in [("median", late.0 / plain.0), ("99 %", late.1 / plain.1)] {
            let name = format!(
                "{}: {what} age, LDC with deadlines / plain TCP",
                limit.name()
            );
            report.check(name, ratio, "", Bound::AtMost(0.5));
        }
    }
}
