//! Tables, targets and plots of the recovery scenario.

use crate::plot::Plot;
use crate::report::{Bound, Cell, Report, Table};
use crate::scenario::{Context, Scenario};

use super::watch::Outcome;
use super::world::World;

/// One size of the group.
pub(super) struct Sample {
    pub(super) world: World,
    pub(super) lms: Outcome,
    pub(super) unicast: Outcome,
    pub(super) srm: Outcome,
}

impl Sample {
    fn outcomes(&self) -> [&Outcome; 3] {
        [&self.lms, &self.unicast, &self.srm]
    }

    fn receivers(&self) -> u32 {
        self.world.plan.receivers
    }
}

/// Everything that was found.
pub(super) fn report(scenario: &dyn Scenario, context: &Context, samples: &[Sample]) -> Report {
    let mut report = Report::new(scenario.name(), scenario.about());
    report.figure = scenario.figure().to_owned();
    report.quick = context.quick;
    report.tables = vec![
        recovery_table(samples),
        trees_table(samples),
        costs_table(samples),
    ];
    for line in NOTES {
        report.note(*line);
    }
    for sample in samples {
        check(&mut report, sample);
        report.datum(
            &format!("receivers_{}", sample.receivers()),
            sample.outcomes(),
        );
    }
    report.plots = plots(samples);
    report
}

const NOTES: &[&str] = &[
    "latency: from knowing of a loss to having the packet, over the receiver's round trip to the source",
    "requests at source: REQUEST packets that reached it, for each packet that anybody lost",
    "exposed: repairs received by those who had not lost the packet, for each packet lost",
    "every packet meets the same loss on every link, requests and repairs too; links have no rate limit, \
     and the source may repair at ten times its data rate, which favours unicast",
    "unicast is the same LTP with nobody's help: the source gathers requests for some milliseconds, \
     then repairs to the group, or to the one who asked",
    "SRM: C1 = C2 = 2, D1 = D2 = log10 of the group, exact distances instead of session messages",
    "repliers are set by the delay to the nearest receiver, as LMS-HIER finds them",
    "unicast and SRM repair to everybody; in large groups they send fewer packets (column packets)",
    "seconds: this thread's processor time",
];

fn recovery_table(samples: &[Sample]) -> Table {
    let columns = [
        "receivers",
        "protocol",
        "packets",
        "losses",
        "latency mean",
        "median",
        "95 %",
        "requests at source",
        "exposed",
    ];
    let mut table = Table::new("recovery", &columns);
    for sample in samples {
        for outcome in sample.outcomes() {
            table.row([
                u64::from(sample.receivers()).into(),
                outcome.protocol.into(),
                u64::from(outcome.packets).into(),
                outcome.losses.into(),
                Cell::number(outcome.latency_mean, 2),
                Cell::number(outcome.latency_median, 2),
                Cell::number(outcome.latency_p95, 2),
                Cell::number(outcome.source_requests_per_lost_packet, 3),
                Cell::number(outcome.exposed_per_lost_packet, 1),
            ]);
        }
    }
    table
}

fn trees_table(samples: &[Sample]) -> Table {
    let columns = [
        "receivers",
        "routers",
        "deepest receiver",
        "loss of a link, %",
    ];
    let mut table = Table::new("trees: fan-out 2 to 8, link delays 1 to 20 ms", &columns);
    for sample in samples {
        let (deepest, routers) = sample.world.figures();
        table.row([
            u64::from(sample.receivers()).into(),
            u64::from(routers).into(),
            u64::from(deepest).into(),
            Cell::number(sample.world.link_loss * 100.0, 3),
        ]);
    }
    table
}

fn costs_table(samples: &[Sample]) -> Table {
    let columns = [
        "receivers",
        "protocol",
        "events",
        "simulated s",
        "processor s",
        "ns an event",
    ];
    let mut table = Table::new("cost of the simulation", &columns);
    for sample in samples {
        for outcome in sample.outcomes() {
            table.row([
                u64::from(sample.receivers()).into(),
                outcome.protocol.into(),
                outcome.events.into(),
                Cell::number(outcome.simulated_s, 1),
                Cell::number(outcome.processor_s, 2),
                Cell::number(outcome.processor_s * 1e9 / outcome.events as f64, 0),
            ]);
        }
    }
    table
}

fn check(report: &mut Report, sample: &Sample) {
    let Sample {
        lms, unicast, srm, ..
    } = sample;
    let n = sample.receivers();
    let requests = lms.source_requests_per_lost_packet / unicast.source_requests_per_lost_packet;
    let name = format!("{n} receivers: requests at the source, LMS over unicast");
    report.check(name, requests, "", Bound::AtMost(0.2));
    for other in [unicast, srm] {
        let name = format!("{n} receivers: mean latency, LMS over {}", other.protocol);
        report.check(
            name,
            lms.latency_mean / other.latency_mean,
            "",
            Bound::AtMost(1.0),
        );
    }
    let unrepaired = (lms.unrepaired + unicast.unrepaired + srm.unrepaired) as f64;
    report.check(
        format!("{n} receivers: losses not repaired"),
        unrepaired,
        "",
        Bound::Exactly(0.0),
    );
    if n == 10_000 && lms.packets == 1_000 {
        let seconds = sample
            .outcomes()
            .iter()
            .map(|outcome| outcome.processor_s)
            .sum();
        let name = format!("{n} receivers, 1000 packets: all three simulations on one core");
        report.check(name, seconds, "s", Bound::AtMost(10.0));
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

fn plots(samples: &[Sample]) -> Vec<Plot> {
    let draw = |title: &str, y: &str, y_log: bool, figure: fn(&Outcome) -> f64| {
        let mut plot = Plot::lines(title, "receivers", y).log(true, y_log);
        for (index, protocol) in ["LTP with LMS", "LTP by unicast", "SRM"]
            .into_iter()
            .enumerate()
        {
            let points = samples
                .iter()
                .map(|sample| {
                    (
                        f64::from(sample.receivers()),
                        figure(sample.outcomes()[index]),
                    )
                })
                .filter(|(_, y)| !y_log || *y > 0.0);
            plot = plot.series(protocol, points.collect());
        }
        plot
    };
    vec![
        draw(
            "Mean recovery latency",
            "round trips to the source",
            false,
            |o| o.latency_mean,
        ),
        draw(
            "Requests at the source",
            "for each packet lost",
            true,
            |o| o.source_requests_per_lost_packet,
        ),
        draw(
            "Repairs received for nothing",
            "for each packet lost",
            true,
            |o| o.exposed_per_lost_packet,
        ),
    ]
}
