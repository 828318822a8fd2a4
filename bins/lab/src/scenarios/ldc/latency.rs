//! `ldc-latency`: how old data is when it arrives, which the thesis could not document (§5.3, §6.2), over today's
//! transports and links.

use super::lanes::{Ages, Comparison, Limit, Outcome, mean_of};
use crate::prelude::*;

/// Age of data on arrival: plain TCP, TCP_NOTSENT_LOWAT alone, late data choice over TCP and over QUIC
#[derive(Debug, clap::Args)]
pub(crate) struct Latency {
    /// Runs of each sender on each link, side by side (quick: 1)
    #[arg(long, default_value_t = 2, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=7))]
    runs: usize,
    /// Length of a run (quick: 10)
    #[arg(long, default_value_t = 60, default_value_if("quick", "true", "10"))]
    #[arg(value_parser = within::<u64>(4..=600))]
    seconds: u64,
    /// Congestion controls, one after the other: reno, cubic, bbr
    #[arg(long, value_delimiter = ',', default_value = "cubic,bbr")]
    congestion: Vec<String>,
}

/// Three segments of 1,448 bytes: what LDC keeps unsent on slow links.
const LOWAT: &str = "4344";

/// The senders compared. Except for the first, none sends data that is late already.
const WAYS: [(&str, &[&str]); 7] = [
    ("plain TCP", &["--no-ldc"]),
    (
        "plain TCP, late data skipped",
        &["--no-ldc", "--policy", "deadline"],
    ),
    (
        "TCP_NOTSENT_LOWAT alone, late data skipped",
        &["--no-ldc", "--policy", "deadline", "--unsent", LOWAT],
    ),
    ("LDC over TCP, deadlines", &["--policy", "deadline"]),
    (
        "LDC over TCP, priority-progress",
        &["--policy", "priority-progress"],
    ),
    (
        "LDC over QUIC, deadlines",
        &["--policy", "deadline", "--transport", "quic"],
    ),
    (
        "LDC over QUIC, deadlines, base layer first",
        &[
            "--policy",
            "deadline",
            "--transport",
            "quic",
            "--order",
            "strict",
        ],
    ),
];
/// Places in [`WAYS`].
const PLAIN: usize = 0;
const LDC_TCP: usize = 3;
const LDC_QUIC: usize = 5;

impl Scenario for Latency {
    const NAME: &'static str = "ldc-latency";
    const FIGURE: &'static str = "LDC thesis, §3.2.4, §5.3, §6.2";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "age of data on arrival");
        for congestion in &self.congestion {
            self.compare(context, congestion, &mut report)?;
        }
        report.note("age: from when a message was due at the sender until it has arrived whole");
        report.note(format!(
            "the senders skip or drop a layer when its second is over, LDC in the ring (the base \
             layer a second later), the others before `send`; --unsent {LOWAT} is three segments"
        ));
        report.note(
            "512 kbit/s: half of the stream's rate; 1 ms, 32 KiB of queue, loss of data alone",
        );
        report.note("mobile links: rates measured second by second (Winstein et al., NSDI 2013, see traces.rs); 25 ms, \
             a second of queue; a run begins at the start of the measurement");
        Ok(report)
    }
}

impl Latency {
    /// Runs all senders on all links with one congestion control.
    fn compare(&self, context: &Context, congestion: &str, report: &mut Report) -> Result<()> {
        let ways = WAYS.map(|(_, how)| how);
        let outcomes = Comparison {
            limits: &Limit::TODAY,
            ways: &ways,
            runs: self.runs,
            seconds: self.seconds,
            message: 1_400,
            congestion,
            seed: 1,
        };
        let outcomes = outcomes.play(context)?;
        let mut plots = ["median", "99 %"].map(|part| {
            let title = format!("age of messages on arrival, {part}, {congestion}");
            Plot::bars(&title, "ms", Limit::TODAY.map(Limit::name)).log(false, true)
        });
        let mut table = columns(congestion);
        let mut all = Vec::new();
        for ((name, _), by_limit) in WAYS.iter().zip(&outcomes) {
            let limits = by_limit.iter().zip(Limit::TODAY);
            let figures: Vec<Figures> = limits
                .map(|(outcomes, limit)| row(&mut table, name, limit, outcomes))
                .collect();
            let [middle, late] = plots;
            plots = [
                middle.heights(name, figures.iter().map(|figures| figures.median)),
                late.heights(name, figures.iter().map(|figures| figures.late)),
            ];
            all.push(figures);
            report.datum(&format!("{name}, {congestion}"), by_limit.concat());
        }
        report.tables.push(table);
        report.plots.extend(plots);
        judge(report, congestion, &all);
        Ok(())
    }
}

/// What one sender reached on one link.
struct Figures {
    /// Median age, ms.
    median: f64,
    /// 99 % of the messages were younger, ms.
    late: f64,
    /// Windows whose base layer was not whole, in all runs.
    base_missing: u64,
}

fn columns(congestion: &str) -> Table {
    Table::with_header(
        format!("age on arrival, ms; mean of the runs; {congestion}"),
        "sender | link | median | 90 % | 99 % | base layer, median | base layer, 99 % | kbit/s | \
         on time % | base layer whole % | base layer on time % | layers usable",
    )
}

/// A row, and its figures.
fn row(table: &mut Table, name: &str, limit: Limit, outcomes: &[Outcome]) -> Figures {
    let of = |figure: &dyn Fn(&Outcome) -> f64| mean_of(outcomes, figure);
    let age = |part: fn(&Ages) -> f64| of(&|one| one.age_ms.as_ref().map_or(f64::NAN, part));
    let base = |part: fn(&Ages) -> f64| of(&|one| one.base_age_ms.as_ref().map_or(f64::NAN, part));
    let figures = Figures {
        median: age(|age| age.p50),
        late: age(|age| age.p99),
        base_missing: outcomes.iter().map(Outcome::base_missing).sum(),
    };
    table.row([
        name.into(),
        limit.name().into(),
        Cell::number(figures.median, 0),
        Cell::number(age(|age| age.p90), 0),
        Cell::number(figures.late, 0),
        Cell::number(base(|age| age.p50), 0),
        Cell::number(base(|age| age.p99), 0),
        Cell::number(of(&Outcome::kbit_per_s), 1),
        Cell::number(of(&Outcome::on_time_percent), 1),
        Cell::number(of(&|one| one.base_percent(|base| base.windows_complete)), 1),
        Cell::number(of(&|one| one.base_percent(|base| base.windows_on_time)), 1),
        Cell::number(of(&|one| one.usable_layers), 2),
    ]);
    figures
}

/// `figures`: for each way, for each link.
fn judge(report: &mut Report, congestion: &str, figures: &[Vec<Figures>]) {
    for (at, limit) in Limit::TODAY.into_iter().enumerate() {
        if !limit.is_fixed() {
            continue;
        }
        let name = format!("{}, {congestion}", limit.name());
        let of = |way: usize| &figures[way][at];
        for (what, ratio) in [
            ("median", of(LDC_TCP).median / of(PLAIN).median),
            ("99 %", of(LDC_TCP).late / of(PLAIN).late),
        ] {
            let name = format!("{name}: {what} age, LDC over TCP with deadlines / plain TCP");
            report.check(name, ratio, "", Bound::AtMost(0.5));
        }
        report.check(
            format!("{name}: windows whose base layer is not whole, LDC over QUIC"),
            of(LDC_QUIC).base_missing as f64,
            "",
            Bound::Exactly(0.0),
        );
        report.check(
            format!("{name}: median age, LDC over QUIC / LDC over TCP"),
            of(LDC_QUIC).median / of(LDC_TCP).median,
            "",
            Bound::AtMost(1.0),
        );
    }
}
