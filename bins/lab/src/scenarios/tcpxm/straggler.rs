//! `tcpxm-straggler`: three hosts at 100 Mbit/s and one at 20, with `--min-rate` (beyond the paper).

use super::super::stage::copy::{Copied, Copying, Running};
use super::super::stage::tcp::{Ends, streams};
use super::super::stage::{Port, Setting, Stage};
use super::{COLUMNS, cells, mbps, seconds};
use crate::prelude::*;

/// Mcp to three hosts at 100 Mbit/s and one at 20, with --min-rate RATE, auto and none
#[derive(Debug, clap::Args)]
pub(crate) struct Straggler {
    /// Size of the file in MiB (quick: 16)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "16"))]
    mib: u64,
}

const FAST_BPS: u64 = 100_000_000;
const SLOW_BPS: u64 = 20_000_000;
const MIN_RATE: &str = "50M";
const AUTO: &str = "auto";
const NONE: &str = "none";
/// What a port of the switch holds.
const QUEUE_BYTES: usize = 256 * 1024;
/// Ethernet frames for each byte of the file, when every frame is full.
const FRAMES: f64 = 1514.0 / 1440.0;
/// Which of the hosts is slow.
const SLOW: usize = 3;
/// The three take at most this multiple of their time without the fourth; the fourth takes what its link
/// needs; the sender's wire carries the file.
const FAST_TARGET: f64 = 1.2;
const SLOW_TARGET: f64 = 1.1;
const WIRE_TARGET: f64 = 2.1;

impl Scenario for Straggler {
    const NAME: &'static str = "tcpxm-straggler";
    const FIGURE: &'static str =
        "beyond the paper: TCP-XM peaks at the speed of the slowest receiver (§4)";

    fn run(&self, context: &Context) -> Result<Report> {
        let bytes = self.mib << 20;
        let mut report = Report::new(Self::NAME, "three hosts at 100 Mbit/s and one at 20");
        let port = |rate_bps| Port {
            shape: Shape {
                rate_bps,
                queue_bytes: QUEUE_BYTES,
                ..Shape::default()
            },
            ..Port::default()
        };
        let mut ports = vec![port(FAST_BPS); SLOW];
        ports.push(port(SLOW_BPS));
        let setting = Setting {
            ports,
            bytes,
            ..Setting::default()
        };
        let mut stage = Stage::build(&setting)?;
        let mut lines = Vec::new();
        for case in cases(context.quick) {
            context.note(case.name);
            lines.push(case.play(&mut stage)?);
        }
        if !context.quick {
            context.note("kernel TCP streams");
            let tcp = streams(&mut stage, &[0, 1, 2, SLOW], Ends::Files)?;
            let took: Vec<f64> = tcp.took.iter().map(|took| took.as_secs_f64()).collect();
            report.datum("TCP seconds", &took);
            report.note(format!(
                "four kernel TCP streams: {:.1} s, {:.1} s, {:.1} s and {:.1} s, {:.2} times the \
                 file on the sender's wire",
                took[0],
                took[1],
                took[2],
                took[3],
                tcp.wire.bytes as f64 / bytes as f64
            ));
        }
        judge(&mut report, &lines, bytes, context.quick);
        report.tables.push(table(&lines));
        report.plots.extend(lines.iter().map(Line::plot));
        report.datum("copies", &lines);
        report.note(format!(
            "each port holds {} KiB; the sender's own link has no limit; multicast no longer leaves a \
             port when its host has left the group, as with IGMP snooping and immediate leave",
            QUEUE_BYTES >> 10
        ));
        Ok(report)
    }
}

/// A copy to be made.
struct Case {
    name: &'static str,
    hosts: usize,
    min_rate: &'static str,
    sealed: bool,
}

fn cases(quick: bool) -> Vec<Case> {
    let case = |name, hosts, min_rate, sealed| Case {
        name,
        hosts,
        min_rate,
        sealed,
    };
    let mut cases = vec![
        case("without the fourth", SLOW, NONE, false),
        case("with --min-rate", SLOW + 1, MIN_RATE, false),
        case("with --min-rate, sealed", SLOW + 1, MIN_RATE, true),
        case("with --min-rate auto", SLOW + 1, AUTO, false),
        case("with --min-rate auto, sealed", SLOW + 1, AUTO, true),
    ];
    if !quick {
        cases.push(case("without --min-rate", SLOW + 1, NONE, false));
    }
    cases
}

impl Case {
    fn play(&self, stage: &mut Stage) -> Result<Line> {
        let mut copying = Copying {
            sealed: self.sealed,
            receivers: (0..self.hosts).collect(),
            ..Copying::default()
        };
        copying = copying.send(&["--min-rate", self.min_rate]);
        for receiver in 0..=SLOW {
            stage.multicast(receiver, true)?;
        }
        let running = Running::start(stage, &copying)?;
        let (mut member, mut left) = (false, None);
        let slow = (self.hosts > SLOW).then_some(SLOW);
        let copied = running.finish(stage, |running, stage| {
            let Some(slow) = slow.filter(|_| left.is_none()) else {
                return Ok(());
            };
            let is = running.is_member(slow);
            if member && !is {
                stage.multicast(slow, false)?;
                left = Some(running.elapsed());
            }
            member |= is;
            Ok(())
        })?;
        Ok(Line {
            case: self.name,
            left,
            copied,
        })
    }
}

/// A copy that was made.
#[derive(Clone, Debug, Serialize)]
struct Line {
    case: &'static str,
    /// When the fourth had left the group.
    left: Option<f64>,
    copied: Copied,
}

impl Line {
    /// When the last of the three was verified.
    fn fast(&self) -> f64 {
        let fast = self.copied.hosts.iter().take(SLOW);
        let seconds = fast.map(|host| host.seconds.unwrap_or(f64::INFINITY));
        most(seconds)
    }

    fn slow(&self) -> Option<f64> {
        self.copied.hosts.get(SLOW)?.seconds
    }

    fn plot(&self) -> Plot {
        let hosts = self.copied.hosts.iter();
        super::progress(self.case, hosts.map(|host| (&*host.name, host)))
    }
}

fn judge(report: &mut Report, lines: &[Line], bytes: u64, quick: bool) {
    let alone = lines[0].fast();
    let own_link = bytes as f64 * 8.0 * FRAMES / SLOW_BPS as f64;
    for line in lines {
        super::all_whole(report, line.case, &line.copied);
        if !line.case.starts_with("with --min-rate") {
            continue;
        }
        let slow = &line.copied.hosts[SLOW];
        let name = format!("{}: the fourth is detached, and leaves", line.case);
        report.holds(name, slow.detached.is_some() && line.left.is_some());
        if quick {
            continue;
        }
        let mut check = |what: &str, measured, most| {
            let name = format!("{}: {what}", line.case);
            report.check(name, measured, "", Bound::AtMost(most));
        };
        check(
            "time of the three / without the fourth",
            line.fast() / alone,
            FAST_TARGET,
        );
        check(
            "time of the fourth / what its link needs",
            line.slow().unwrap_or(f64::INFINITY) / own_link,
            SLOW_TARGET,
        );
        check("wire / file", line.copied.overhead, WIRE_TARGET);
    }
}

fn table(lines: &[Line]) -> Table {
    let columns = format!(
        "copy | three s | fourth s | detached s | left s | {COLUMNS} | Mbit/s to the three"
    );
    let mut table = Table::with_header("copies", &columns);
    for line in lines {
        let detached = line.copied.hosts.get(SLOW).and_then(|host| host.detached);
        let times = [line.slow(), detached, line.left].map(|time| seconds(time, 2));
        let first = [line.case.into(), Cell::number(line.fast(), 2)];
        let bits = line.copied.wire.bytes as f64 / line.copied.overhead * 8.0;
        let row = first.into_iter().chain(times).chain(cells(&line.copied));
        table.row(row.chain([mbps(bits / line.fast())]));
    }
    table
}
