//! `beside`: each of our transports beside a kernel TCP flow, and beside another of ours, on one bottleneck; and kernel TCP
//! in the place of ours, as a control.

mod flow;
mod network;

use self::flow::{Flow, Kind};
use super::stage::Stage;
use super::stage::play::reason;
use crate::prelude::*;

/// Mcp and LTP beside kernel TCP and beside each other on one bottleneck: shares over time
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The bottleneck carries 100 Mbit/s with a round trip of 20 ms and a queue of one round trip. A flow of \
                  ours has two receivers, of which the first is counted; a TCP flow has one."
)]
pub(crate) struct Beside {
    /// Our transports, with commas; tcp-cubic is a control: kernel TCP in their place
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = OURS)]
    ours: Vec<String>,
    /// What each of them has beside it, with commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = OTHERS)]
    other: Vec<String>,
    /// Seconds of each pair (quick: 8)
    #[arg(long, default_value_t = 30.0, default_value_if("quick", "true", "8"))]
    #[arg(value_parser = within::<f64>(2.0..=600.0))]
    seconds: f64,
}

const OURS: [&str; 5] = ["all", "mcp-cubic", "mcp-bbr", "ltp", "tcp-cubic"];
const OTHERS: [&str; 6] = ["all", "tcp-cubic", "tcp-bbr", "mcp-cubic", "mcp-bbr", "ltp"];
const SAMPLE: Duration = Duration::from_millis(500);
/// Time limit for a flow to start, and the bytes at its receiver that show that it has.
const START: (Duration, u64) = (Duration::from_secs(20), 200_000);
/// The part of the time at its start that the mean shares leave out.
const SETTLE: f64 = 1.0 / 3.0;

impl Scenario for Beside {
    const NAME: &'static str = "beside";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "two flows on one bottleneck");
        let mut stage = network::build(self.seconds)?;
        let mut lines = Vec::new();
        for (ours, other) in self.pairs() {
            context.note(format!("{ours} beside {other}"));
            let mut line = Line {
                ours,
                other,
                samples: Vec::new(),
                failed: None,
            };
            if let Err(error) = line.play(&mut stage, self.seconds) {
                line.failed = Some(reason(&error));
            }
            lines.push(line);
        }
        report.tables.push(table(&lines));
        for line in &lines {
            let name = format!("{} beside {}", line.ours, line.other);
            line.judge(&mut report, &name);
            report.plots.extend(line.plot(&name));
        }
        report.datum("pairs", &lines);
        report.note(format!(
            "Ethernet bytes at the first receiver of each flow, headers included; means of the last {:.0} of {} s, which \
             begin when both flows run",
            self.seconds * (1.0 - SETTLE),
            self.seconds
        ));
        report.note(
            "each frame is held up by up to the time of one on the bottleneck, because full queues otherwise favour one \
             flow (docs/decisions/0014-phases.md)",
        );
        Ok(report)
    }
}

/// What the flow that has less must have; with less it starves.
const LEAST_MBPS: f64 = 5.0;

impl Beside {
    /// Each pair once, whichever of two of ours comes first.
    fn pairs(&self) -> Vec<(Kind, Kind)> {
        let others = chosen(&self.other, &OTHERS);
        let mut pairs: Vec<(Kind, Kind)> = Vec::new();
        for ours in chosen(&self.ours, &OURS).into_iter().map(Kind::of) {
            for other in others.iter().copied().map(Kind::of) {
                if !pairs.contains(&(other, ours)) {
                    pairs.push((ours, other));
                }
            }
        }
        pairs
    }
}

/// Two flows beside each other.
#[derive(Debug, Serialize)]
struct Line {
    ours: Kind,
    other: Kind,
    /// Seconds since both run, and the bytes that the first receiver of each has had since then.
    samples: Vec<(f64, [u64; 2])>,
    failed: Option<String>,
}

impl Line {
    fn play(&mut self, stage: &mut Stage, seconds: f64) -> Result<()> {
        let mut first = Flow::start(self.ours, 0, stage)?;
        wait_for_bytes(stage, &mut first)?;
        let mut second = Flow::start(self.other, 1, stage)?;
        wait_for_bytes(stage, &mut second)?;
        let start = Instant::now();
        let before = [first.received(stage)?, second.received(stage)?];
        self.samples.push((0.0, [0, 0]));
        while start.elapsed().as_secs_f64() < seconds {
            std::thread::sleep(SAMPLE);
            for flow in [&mut first, &mut second] {
                flow.check()?;
            }
            let now = [first.received(stage)?, second.received(stage)?];
            let since = [now[0] - before[0], now[1] - before[1]];
            self.samples.push((start.elapsed().as_secs_f64(), since));
        }
        first.end()?;
        second.end()
    }

    /// Mbit/s of each, after the first third; `None` where it has no result.
    fn means(&self) -> Option<[f64; 2]> {
        let last = self.samples.last().filter(|_| self.failed.is_none())?;
        let settled = last.0 * SETTLE;
        let first = self.samples.iter().find(|(at, _)| *at >= settled)?;
        let seconds = last.0 - first.0;
        let rate = |flow: usize| (last.1[flow] - first.1[flow]) as f64 * 8e-6 / seconds;
        (seconds > 0.0).then(|| [rate(0), rate(1)])
    }

    /// Both must have run, and neither may starve. How the kernel's flows share in the control is not judged.
    fn judge(&self, report: &mut Report, name: &str) {
        report.holds(
            format!("{name}: both ran all the time"),
            self.means().is_some(),
        );
        if let Some([ours, other]) = self.means().filter(|_| !self.ours.is_tcp()) {
            let name = format!("{name}: the flow that has less");
            let least = ours.min(other);
            report.timed(name, least, "Mbit/s", Bound::AtLeast(LEAST_MBPS));
        }
    }

    /// Rates over time.
    fn plot(&self, title: &str) -> Option<Plot> {
        self.means()?;
        let rates = |flow: usize| {
            self.samples.windows(2).map(move |pair| {
                let ((from, before), (to, after)) = (pair[0], pair[1]);
                let bits = (after[flow] - before[flow]) as f64 * 8e-6;
                (to, bits / (to - from))
            })
        };
        let plot = Plot::lines(title, "s since both run", "Mbit/s at the first receiver");
        let second = match self.ours == self.other {
            true => format!("{} 2", self.other),
            false => self.other.to_string(),
        };
        Some(
            plot.series(&self.ours.to_string(), rates(0))
                .series(&second, rates(1)),
        )
    }
}

/// Waits until a flow's first receiver gets data.
fn wait_for_bytes(stage: &mut Stage, flow: &mut Flow) -> Result<()> {
    let (limit, bytes) = START;
    let end = Instant::now() + limit;
    let before = flow.received(stage)?;
    while flow.received(stage)? - before < bytes {
        flow.check()?;
        ensure!(
            Instant::now() < end,
            "{} does not start within {limit:.0?}",
            flow.kind
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn table(lines: &[Line]) -> Table {
    let header = "first | second | first Mbit/s | second Mbit/s | share of the first % | failed";
    let mut table = Table::with_header("shares of 100 Mbit/s", header);
    for line in lines {
        let mut row: Vec<Cell> = vec![line.ours.to_string().into(), line.other.to_string().into()];
        match line.means() {
            Some([ours, other]) => row.extend([
                Cell::number(ours, 1),
                Cell::number(other, 1),
                Cell::number(100.0 * ours / (ours + other), 0),
                "".into(),
            ]),
            None => {
                let why = line.failed.as_deref().unwrap_or("no samples");
                row.extend(["failed", "-", "-", why].map(Cell::from));
            }
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_played_once() {
        let all = || vec!["all".to_owned()];
        let beside = Beside {
            ours: all(),
            other: all(),
            seconds: 2.0,
        };
        let pairs = beside.pairs();
        // Three of ours beside two of TCP, six pairs of ours, and the control beside two of TCP.
        assert_eq!(pairs.len(), 14);
        let twice = |(a, b): &(Kind, Kind)| a != b && pairs.contains(&(*b, *a));
        assert!(!pairs.iter().any(twice), "{pairs:?}");
    }

    #[test]
    fn means_leave_out_the_start() {
        let mut line = Line {
            ours: Kind::of("ltp"),
            other: Kind::of("tcp-bbr"),
            samples: vec![
                (0.0, [0, 0]),
                (1.0, [9_000_000, 0]),
                (3.0, [10_000_000, 5_000_000]),
            ],
            failed: None,
        };
        assert_eq!(line.means(), Some([4.0, 20.0]));
        let mut report = Report::new("beside", "");
        line.judge(&mut report, "pair");
        let passed: Vec<bool> = report.checks.iter().map(|check| check.passed).collect();
        assert_eq!(passed, [true, false], "4 Mbit/s are too few");
        line.failed = Some("mcp refuses".to_owned());
        assert_eq!(line.means(), None);
    }
}
