//! `tcpxm-fallback`: multicast dies in the middle of a copy, and returns (§2.5).

use super::super::stage::copy::{Copied, Copying, HostCopied, Running};
use super::super::stage::{Setting, Stage};
use super::{COLUMNS, cells};
use crate::prelude::*;

/// Mcp to three hosts while multicast dies and returns
#[derive(Debug, clap::Args)]
pub(crate) struct Fallback {
    /// How long multicast works, is dead, and works again (quick: 1.5)
    #[arg(long, default_value_t = 4.0, default_value_if("quick", "true", "1.5"))]
    seconds: f64,
}

const HOSTS: usize = 3;
const RATE: &str = "60M";
const RATE_BPS: f64 = 60e6;
/// Longest until a host is served by unicast again, and by multicast again; seconds.
const MOST_SECONDS: f64 = 1.0;

impl Scenario for Fallback {
    const NAME: &'static str = "tcpxm-fallback";
    const FIGURE: &'static str = "TCP-XM §2.5 and Figure 1";

    fn run(&self, context: &Context) -> Result<Report> {
        let seconds = self.seconds;
        let mut report = Report::new(Self::NAME, "multicast dies in mid copy, and returns");
        let mut lines = Vec::new();
        for case in CASES {
            context.note(case.name);
            lines.push(case.play(seconds)?);
        }
        for line in &lines {
            line.judge(&mut report);
            report.plots.push(line.plot());
        }
        report.tables.extend([hosts(&lines), copies(&lines)]);
        report.datum("copies", &lines);
        report.note(format!(
            "--rate {RATE}, all copies counted; the port of the switch to the hosts named lets no \
             multicast out in the middle third; every copy is compared with the original"
        ));
        report.note(
            "paper: TCP-XM's ability to switch between TCP unicast and UDP multicast by falling back \
             and forward is unique among reliable multicast protocols (§5)",
        );
        Ok(report)
    }
}

/// The hosts that multicast stops reaching.
struct Case {
    name: &'static str,
    unreachable: &'static [usize],
    sealed: bool,
}

const CASES: [Case; 3] = [
    Case {
        name: "for one of three",
        unreachable: &[0],
        sealed: false,
    },
    Case {
        name: "for all",
        unreachable: &[0, 1, 2],
        sealed: false,
    },
    Case {
        name: "for one of three, sealed",
        unreachable: &[1],
        sealed: true,
    },
];

impl Case {
    fn play(&self, seconds: f64) -> Result<Line> {
        // While d hosts are unreachable a byte costs d copies, and one for the group.
        let copies = (self.unreachable.len() + 1) as f64;
        let bytes = RATE_BPS / 8.0 * seconds * (2.0 + 1.0 / copies);
        let mut stage = Stage::build(&Setting::plain(HOSTS, bytes as u64))?;
        let copying = Copying {
            sealed: self.sealed,
            ..Copying::default()
        };
        let running = Running::start(&mut stage, &copying.send(&["--rate", RATE]))?;
        let mut changes = vec![(2.0 * seconds, true), (seconds, false)];
        let mut times = [f64::NAN; 2];
        let copied = running.finish(&mut stage, |running, stage| {
            let now = running.elapsed();
            if changes.last().is_some_and(|(at, _)| now >= *at)
                && let Some((_, on)) = changes.pop()
            {
                for host in self.unreachable {
                    stage.multicast(*host, on)?;
                }
                times[usize::from(on)] = now;
            }
            Ok(())
        })?;
        let unreachable = self
            .unreachable
            .iter()
            .map(|host| copied.hosts[*host].clone());
        Ok(Line {
            case: self.name,
            died: times[0],
            returned: times[1],
            unreachable: unreachable
                .map(|host| Unreachable::of(host, times))
                .collect(),
            copied,
        })
    }
}

/// A copy that was made.
#[derive(Clone, Debug, Serialize)]
struct Line {
    case: &'static str,
    died: f64,
    returned: f64,
    unreachable: Vec<Unreachable>,
    copied: Copied,
}

/// A host that multicast did not reach for a while.
#[derive(Clone, Debug, Serialize)]
struct Unreachable {
    host: HostCopied,
    /// Served by multicast, by unicast, and by multicast again, since then.
    forward: Option<f64>,
    back: Option<f64>,
    again: Option<f64>,
}

impl Unreachable {
    fn of(host: HostCopied, [died, returned]: [f64; 2]) -> Unreachable {
        let first = |mode: &str, from: f64, until: f64| {
            let mut modes = host.modes.iter();
            let found = modes.find(|(at, name)| name == mode && *at >= from && *at < until);
            found.map(|(at, _)| *at)
        };
        Unreachable {
            forward: first("multicast", 0.0, died),
            back: first("unicast_group", died, returned),
            again: first("multicast", returned, f64::INFINITY),
            host,
        }
    }
}

impl Line {
    fn judge(&self, report: &mut Report) {
        super::all_whole(report, self.case, &self.copied);
        for unreachable in &self.unreachable {
            let mut check = |what: &str, at: Option<f64>, since: f64| {
                let name = format!("{}: {} {what}", self.case, unreachable.host.name);
                let later = at.map_or(f64::INFINITY, |at| at - since);
                report.timed(name, later, "s", Bound::AtMost(MOST_SECONDS));
            };
            let &Unreachable {
                forward,
                back,
                again,
                ..
            } = unreachable;
            check("served by multicast after the start", forward, 0.0);
            check("fell back after multicast died", back, self.died);
            check("fell forward after it returned", again, self.returned);
            let stays = unreachable.host.modes.iter().all(|(at, mode)| {
                let dead = *at >= self.died && *at < self.returned;
                !dead || mode == "unicast_group"
            });
            let name = format!(
                "{}: {} stayed with unicast meanwhile",
                self.case, unreachable.host.name
            );
            report.holds(name, stays);
        }
    }

    fn plot(&self) -> Plot {
        let title = format!("multicast dies {}", self.case);
        let plot = Plot::lines(&title, "s since the start", "Mbit/s");
        self.copied.hosts.iter().fold(plot, |plot, host| {
            plot.series(&host.name, super::rates(&host.progress))
        })
    }
}

fn hosts(lines: &[Line]) -> Table {
    let columns = "multicast dies | host | died s | fell back after s | returned s | fell forward after s | \
         verified s";
    let title = "hosts that multicast did not reach for a while";
    let mut table = Table::with_header(title, columns);
    for line in lines {
        for unreachable in &line.unreachable {
            let after =
                |at: Option<f64>, since: f64| Cell::number(at.map_or(f64::NAN, |at| at - since), 3);
            table.row([
                line.case.into(),
                unreachable.host.name.as_str().into(),
                Cell::number(line.died, 2),
                after(unreachable.back, line.died),
                Cell::number(line.returned, 2),
                after(unreachable.again, line.returned),
                Cell::number(unreachable.host.seconds.unwrap_or(f64::NAN), 2),
            ]);
        }
    }
    table
}

fn copies(lines: &[Line]) -> Table {
    let mut table = Table::with_header("copies", &format!("multicast dies | {COLUMNS}"));
    for line in lines {
        table.row([line.case.into()].into_iter().chain(cells(&line.copied)));
    }
    table
}
