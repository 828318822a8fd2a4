//! Tables, targets and plots of the recovery scenario.

use crate::plot::Plot;
use crate::report::{Bound, Cell, Report, Table};
use crate::stats::median;

use super::Protocol;
use super::watch::Outcome;
use super::world::World;

/// One size of the group.
pub(super) struct Sample {
    /// One for each seed.
    pub(super) worlds: Vec<World>,
    /// By protocol, then by seed.
    pub(super) outcomes: Vec<Vec<Outcome>>,
}

impl Sample {
    pub(super) fn receivers(&self) -> u32 {
        self.worlds[0].plan.receivers
    }
}

/// Median, least and most of a figure over the seeds.
struct Range {
    median: f64,
    least: f64,
    most: f64,
}

impl Range {
    fn of<T>(runs: &[T], figure: impl Fn(&T) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        Self {
            median: median(values.iter().copied()),
            least: values[0],
            most: values[values.len() - 1],
        }
    }

    fn cells(&self, decimals: usize) -> [Cell; 2] {
        let Self { least, most, .. } = self;
        [
            Cell::number(self.median, decimals),
            format!("{least:.decimals$}-{most:.decimals$}").into(),
        ]
    }
}

/// Everything that was found.
pub(super) fn report(
    name: &str,
    title: &str,
    protocols: &[Protocol],
    samples: &[Sample],
) -> Report {
    let mut report = Report::new(name, title);
    report.tables = vec![
        recovery_table(samples),
        hierarchy_table(samples),
        trees_table(samples),
        costs_table(samples),
        loads_table(samples),
    ];
    for line in NOTES {
        report.note(*line);
    }
    for sample in samples {
        check_repaired(&mut report, sample);
        report.datum(
            &format!("receivers_{}", sample.receivers()),
            sample.outcomes.concat(),
        );
    }
    report.plots = plots(protocols, samples);
    report
}

const NOTES: &[&str] = &[
    "each figure: median over the seeds, and the range from the least to the most",
    "latency: from knowing of a loss to having the packet, over the receiver's round trip to the source",
    "requests at source: REQUEST packets that reached it, for each packet that anybody lost",
    "exposed: repairs received by those who had not lost the packet, for each packet lost",
    "losses: pairs of a receiver and a packet, the same for every protocol: a data packet's loss on a link \
     depends on the loss seed, the link and the packet alone; noticed: those not mended before",
    "paced source: all it sends leaves at 20 Mbit/s, of which data takes 43 %, as with LMS; \
     ideal source: no limit, answers at once",
    "SRM: C1 = C2 = 2, exact distances, no limit to any member's rate, and in every packet 13 bytes",
    "processor s: with GLIBC_TUNABLES=glibc.malloc.hugetlb=1 large networks take a quarter to a third less",
    "processor s: this thread's processor time; a simulation beside others (--jobs) takes longer",
];

fn rows(samples: &[Sample]) -> impl Iterator<Item = (&Sample, &[Outcome])> {
    let each = |sample| std::iter::repeat(sample).zip(Sample::runs(sample));
    samples.iter().flat_map(each)
}

impl Sample {
    fn runs(&self) -> impl Iterator<Item = &[Outcome]> {
        self.outcomes.iter().map(Vec::as_slice)
    }
}

fn recovery_table(samples: &[Sample]) -> Table {
    let columns = "receivers | protocol | packets | losses | noticed | latency mean | range | 95 % | range \
         | requests at source | range | exposed | range";
    let seeds = samples.first().map_or(0, |sample| sample.worlds.len());
    let mut table = Table::with_header(format!("recovery, {seeds} seeds"), columns);
    for (sample, runs) in rows(samples) {
        let pairs = |figure: fn(&Outcome) -> u64| Range::of(runs, |o| figure(o) as f64).median;
        let mut row: Vec<Cell> = vec![
            u64::from(sample.receivers()).into(),
            runs[0].protocol.into(),
            u64::from(runs[0].packets).into(),
            (pairs(|o| o.losses) as u64).into(),
            (pairs(|o| o.noticed) as u64).into(),
        ];
        row.extend(Range::of(runs, |o| o.latency_mean).cells(2));
        row.extend(Range::of(runs, |o| o.latency_p95).cells(2));
        row.extend(Range::of(runs, |o| o.source_requests_per_lost_packet).cells(3));
        row.extend(Range::of(runs, |o| o.exposed_per_lost_packet).cells(1));
        table.row(row);
    }
    table
}

fn hierarchy_table(samples: &[Sample]) -> Table {
    let columns = [
        "receivers",
        "seed",
        "routers",
        "with a replier",
        "the nearest",
        "messages",
    ];
    let mut table = Table::new(
        "LMS-HIER when the first data packet leaves: whom it has elected by then",
        &columns,
    );
    for (sample, runs) in rows(samples) {
        for outcome in runs {
            let Some(hierarchy) = outcome.hierarchy else {
                continue;
            };
            table.row([
                u64::from(sample.receivers()).into(),
                outcome.seed.into(),
                u64::from(hierarchy.routers).into(),
                u64::from(hierarchy.elected).into(),
                u64::from(hierarchy.nearest).into(),
                hierarchy.messages.into(),
            ]);
        }
    }
    table
}

fn trees_table(samples: &[Sample]) -> Table {
    let columns = [
        "receivers",
        "seed",
        "routers",
        "deepest receiver",
        "loss of a link, %",
        "packets lost",
    ];
    let mut table = Table::new("trees: fan-out 2 to 8, link delays 1 to 20 ms", &columns);
    for world in samples.iter().flat_map(|sample| &sample.worlds) {
        let (deepest, routers) = world.figures();
        table.row([
            u64::from(world.plan.receivers).into(),
            world.plan.seed.into(),
            u64::from(routers).into(),
            u64::from(deepest).into(),
            Cell::number(world.link_loss * 100.0, 3),
            u64::from(world.packets_lost).into(),
        ]);
    }
    table
}

fn loads_table(samples: &[Sample]) -> Table {
    let columns = "receivers | protocol | by the source | by receivers | receivers that sent some | most by \
         one | range | most by one, % of all";
    let mut table = Table::with_header("repairs sent, and the load on repliers", columns);
    for (sample, runs) in rows(samples) {
        let median = |figure: fn(&Outcome) -> f64| Range::of(runs, figure);
        let count = |figure: fn(&Outcome) -> f64| Cell::Count(median(figure).median as u64);
        let mut row: Vec<Cell> = vec![
            u64::from(sample.receivers()).into(),
            runs[0].protocol.into(),
            count(|o| o.source_repairs as f64),
            count(|o| o.receiver_repairs as f64),
            count(|o| f64::from(o.repliers)),
        ];
        row.extend(median(|o| o.most_by_one as f64).cells(0));
        let share = |o: &Outcome| {
            let all = o.source_repairs + o.receiver_repairs;
            o.most_by_one as f64 * 100.0 / all.max(1) as f64
        };
        row.push(Cell::number(Range::of(runs, share).median, 2));
        table.row(row);
    }
    table
}

fn costs_table(samples: &[Sample]) -> Table {
    let columns = "receivers | protocol | events | simulated s | processor s | range | ns an event";
    let mut table = Table::with_header("cost of the simulation", columns);
    for (sample, runs) in rows(samples) {
        let median = |figure: fn(&Outcome) -> f64| Range::of(runs, figure).median;
        let mut row: Vec<Cell> = vec![
            u64::from(sample.receivers()).into(),
            runs[0].protocol.into(),
            (median(|o| o.events as f64) as u64).into(),
            Cell::number(median(|o| o.simulated_s), 1),
        ];
        row.extend(Range::of(runs, |o| o.processor_s).cells(2));
        row.push(Cell::number(
            median(|o| o.processor_s * 1e9 / o.events as f64),
            0,
        ));
        table.row(row);
    }
    table
}

/// The worst ratio of a figure of one protocol to that of another in the same world.
pub(super) fn worst(lms: &[Outcome], other: &[Outcome], figure: fn(&Outcome) -> f64) -> f64 {
    let ratios = lms.iter().zip(other).map(|(a, b)| figure(a) / figure(b));
    ratios.fold(f64::NEG_INFINITY, |worst, ratio| {
        if ratio > worst || ratio.is_nan() {
            ratio
        } else {
            worst
        }
    })
}

fn check_repaired(report: &mut Report, sample: &Sample) {
    let n = sample.receivers();
    let unrepaired: u64 = sample.outcomes.iter().flatten().map(|o| o.unrepaired).sum();
    let name = format!("{n} receivers: losses not repaired, all protocols and seeds");
    report.check(name, unrepaired as f64, "", Bound::Exactly(0.0));
}

/// The targets of `lms-recovery`.
pub(super) fn lms_targets(report: &mut Report, protocols: &[Protocol], samples: &[Sample]) {
    for sample in samples {
        lms_target(report, protocols, sample);
    }
}

fn lms_target(report: &mut Report, protocols: &[Protocol], sample: &Sample) {
    let n = sample.receivers();
    let seeds = sample.worlds.len();
    let Some(lms) = protocols.iter().position(|protocol| protocol.is_lms()) else {
        return;
    };
    let lms = &sample.outcomes[lms];
    for (protocol, other) in protocols.iter().zip(&sample.outcomes) {
        if protocol.is_lms() {
            continue;
        }
        let over = format!("LMS over {}, worst of {seeds} seeds", protocol.name());
        if protocol.is_unicast() {
            let ratio = worst(lms, other, |o| o.source_requests_per_lost_packet);
            let name = format!("{n} receivers: requests at the source, {over}");
            report.check(name, ratio, "", Bound::AtMost(0.2));
        }
        let ratio = worst(lms, other, |o| o.latency_mean);
        let name = format!("{n} receivers: mean latency, {over}");
        report.check(name, ratio, "", Bound::AtMost(1.0));
    }
    if n == 10_000 && lms[0].packets == 1_000 {
        let seconds = Range::of(lms, |o| o.processor_s).most;
        let name =
            format!("{n} receivers, 1000 packets: LMS on one core, slowest of {seeds} seeds");
        report.timed(name, seconds, "s", Bound::AtMost(10.0));
    }
    if n >= 100_000
        && let Some(gib) = peak_memory_gib()
    {
        let name = format!("{n} receivers: largest memory of the process");
        report.check(name, gib, "GiB", Bound::AtMost(4.0));
    }
}

/// The process's largest resident set so far.
fn peak_memory_gib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / f64::from(1 << 20))
}

fn plots(protocols: &[Protocol], samples: &[Sample]) -> Vec<Plot> {
    let draw = |title: &str, y: &str, figure: fn(&Outcome) -> f64| {
        if let [sample] = samples {
            let names = protocols.iter().map(|protocol| protocol.name());
            let outcomes = sample.outcomes.iter();
            let medians = outcomes.map(|outcomes| Range::of(outcomes, figure).median);
            let title = format!("{title}, {} receivers", sample.receivers());
            return Plot::bars(&title, y, names).heights("median", medians);
        }
        let mut plot = Plot::lines(title, "receivers", y).log(true, true);
        for (index, protocol) in protocols.iter().enumerate() {
            // Through the medians, with the range of the seeds as an upright line at each.
            let points = samples.iter().flat_map(|sample| {
                let Range {
                    median,
                    least,
                    most,
                } = Range::of(&sample.outcomes[index], figure);
                let x = f64::from(sample.receivers());
                [median, least, most, median].map(|y| (x, y))
            });
            plot = plot.series(protocol.name(), points);
        }
        plot
    };
    vec![
        draw("Mean recovery latency", "round trips to the source", |o| {
            o.latency_mean
        }),
        draw("Requests at the source", "for each packet lost", |o| {
            o.source_requests_per_lost_packet
        }),
        draw(
            "Repairs received for nothing",
            "for each packet lost",
            |o| o.exposed_per_lost_packet,
        ),
        draw("Repairs sent by the busiest receiver", "repairs", |o| {
            o.most_by_one as f64
        }),
    ]
}
