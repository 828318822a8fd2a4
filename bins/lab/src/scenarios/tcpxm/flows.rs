//! `tcpxm-flows`: three sessions from one host share links whose bandwidth changes (§4.1, Figures 9
//! and 10).

use super::super::stage::copy::{Copied, Copying, Running};
use super::testbed::{Pc, Session, Testbed};
use crate::prelude::*;

/// Three sessions of mcp share links whose bandwidth changes
#[derive(Debug, clap::Args)]
pub(crate) struct Flows {
    /// The paper's seconds and bytes divided by this (quick: 20)
    #[arg(long, default_value_t = 1.0, default_value_if("quick", "true", "20"))]
    #[arg(value_parser = within::<f64>(1.0..=1e6))]
    faster: f64,
}

const NAMES: [&str; 3] = ["AB", "AX", "XB"];
const PAIRS: [[Pc; 2]; 3] = [[Pc::A, Pc::B], [Pc::A, Pc::X], [Pc::X, Pc::B]];
/// Each session's maximum bitrate.
const CAP: &str = "10.4M";
const LOSS: f64 = 0.0001;
const FILE_BYTES: f64 = 256e6;
/// Ethernet bytes for each byte of data.
const FRAMES: f64 = 1514.0 / 1440.0;
/// How far from its fair share a session may be.
const TARGET: f64 = 0.15;
/// Rates still change at the start of a phase: this long is left out, or this part of the phase.
const SETTLE_SECONDS: f64 = 10.0;
const SETTLE_PART: f64 = 0.25;

/// A part of the experiment. Rates in Mbit/s, of sessions AB, AX and XB; 0: not running.
struct Phase {
    /// When it ends; `None`: with the next end of a session.
    until: Option<f64>,
    /// Of links A, B and C.
    bandwidths: [u64; 3],
    fair: [f64; 3],
    paper: [f64; 3],
}

const PHASES: [Phase; 6] = [
    Phase {
        until: Some(60.0),
        bandwidths: [15, 25, 35],
        fair: [7.5, 7.5, 10.4],
        paper: [7.5, 7.5, 10.4],
    },
    Phase {
        until: Some(160.0),
        bandwidths: [15, 5, 35],
        fair: [2.5, 10.4, 2.5],
        paper: [2.4, 10.4, 2.4],
    },
    Phase {
        until: Some(215.0),
        bandwidths: [20, 20, 20],
        fair: [20.0 / 3.0, 20.0 / 3.0, 20.0 / 3.0],
        paper: [6.4, 6.4, 6.4],
    },
    Phase {
        until: None,
        bandwidths: [15, 25, 35],
        fair: [7.5, 7.5, 10.4],
        paper: [7.5, 7.5, 10.4],
    },
    Phase {
        until: None,
        bandwidths: [15, 25, 35],
        fair: [10.4, 0.0, 10.4],
        paper: [10.4, 0.0, 10.4],
    },
    Phase {
        until: None,
        bandwidths: [15, 25, 35],
        fair: [10.4, 0.0, 0.0],
        paper: [10.4, 0.0, 0.0],
    },
];

impl Scenario for Flows {
    const NAME: &'static str = "tcpxm-flows";
    const FIGURE: &'static str = "TCP-XM Figures 9 and 10";

    fn run(&self, context: &Context) -> Result<Report> {
        let faster = self.faster;
        let flows = play(context, faster)?;
        let mut report = Report::new(Self::NAME, "three sessions over changing links");
        let spans = flows.spans(faster);
        report
            .tables
            .extend([phases(&flows, &spans), sessions(&flows)]);
        judge(&mut report, &flows, &spans, context.quick);
        report.plots.push(flows.plot());
        report.datum("sessions", &flows.copies);
        report.datum("phases s", &spans);
        report.note(format!(
            "PC-C sends {:.0} MB to each pair; links A, B and C have these bandwidths (C is the \
             sender's, X's is no bottleneck), 5 ms of delay each way, a queue of 50 packets and \
             0.01 % of loss; every session has --rate {CAP}",
            FILE_BYTES / faster / 1e6
        ));
        report.note(
            "rates are of Ethernet frames at the receivers' hosts, by what mcpd reports, without the \
             start of each phase; phases 4 to 6 end when sessions do, which is earlier than in the \
             paper (285, 335 and 350 s), where 256 MB took longer",
        );
        Ok(report)
    }
}

/// The results of the sessions.
struct Played {
    copies: Vec<Copied>,
    /// When each was started, seconds after the first.
    began: Vec<f64>,
}

fn play(context: &Context, faster: f64) -> Result<Played> {
    let group = |number: usize| Ipv4Addr::new(239, 192, 9, number as u8 + 1);
    let sessions: Vec<Session> = PAIRS
        .iter()
        .enumerate()
        .map(|(number, to)| Session {
            group: group(number),
            to: *to,
        })
        .collect();
    let bytes = (FILE_BYTES / faster) as u64;
    let mut testbed = Testbed::build(&sessions, Shape::lossy(LOSS), bytes)?;
    testbed.bandwidths(PHASES[0].bandwidths)?;
    let mut runs = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        let copying = Copying {
            port: Some(4200 + number as u16),
            receivers: session.to.iter().map(|pc| *pc as usize).collect(),
            ..Copying::default()
        };
        let group = session.group.to_string();
        let copying = copying.send(&["--rate", CAP, "--group", &group]);
        runs.push(Running::start(&mut testbed.stage, &copying)?);
    }
    let start = runs[0].sender.started();
    let began = runs.iter().map(|run| run.sender.started() - start);
    let began = began.map(|since| since.as_secs_f64()).collect();
    watch(context, &mut testbed, &mut runs, start, faster)?;
    let copies = runs
        .into_iter()
        .map(|run| run.finish(&mut testbed.stage, |_, _| Ok(())))
        .collect::<Result<_>>()?;
    Ok(Played { copies, began })
}

/// Changes the links at their times until all sessions are over.
fn watch(
    context: &Context,
    testbed: &mut Testbed,
    runs: &mut [Running],
    start: Instant,
    faster: f64,
) -> Result<()> {
    let mut changes = PHASES.windows(2).filter_map(|two| {
        let until = two[0].until?;
        Some((until / faster, two[1].bandwidths))
    });
    let mut next = changes.next();
    let timeout = 3.0 * 370.0 / faster + 30.0;
    loop {
        let mut open = 0;
        for run in runs.iter_mut() {
            open += usize::from(run.look());
        }
        if open == 0 {
            return Ok(());
        }
        let now = start.elapsed().as_secs_f64();
        if let Some((at, bandwidths)) = next
            && now >= at
        {
            context.note(format!("{now:.1} s: links {bandwidths:?} Mbit/s"));
            testbed.bandwidths(bandwidths)?;
            next = changes.next();
        }
        ensure!(now < timeout, "{open} sessions still run after {now:.0} s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Played {
    fn end(&self, session: usize) -> f64 {
        self.began[session] + self.copies[session].seconds
    }

    /// From when to when rates are measured in each phase.
    fn spans(&self, faster: f64) -> Vec<(f64, f64)> {
        let mut ends: Vec<f64> = (0..PAIRS.len()).map(|session| self.end(session)).collect();
        ends.sort_by(f64::total_cmp);
        let mut ends = ends.into_iter();
        let mut from = self.began.last().copied().unwrap_or(0.0);
        let mut spans = Vec::new();
        for phase in &PHASES {
            let until = match phase.until {
                Some(until) => until / faster,
                None => ends.next().unwrap_or(from),
            };
            let settle = (SETTLE_SECONDS / faster).max(SETTLE_PART * (until - from));
            spans.push(((from + settle).min(until), until));
            from = until.max(from);
        }
        spans
    }

    /// A session's mean rate in a span of time, as Ethernet frames, in Mbit/s.
    fn rate(&self, session: usize, (from, until): (f64, f64)) -> f64 {
        let began = self.began[session];
        let hosts = &self.copies[session].hosts;
        let bytes = hosts.iter().map(|host| {
            let at = |seconds: f64| super::reached(&host.progress, seconds - began);
            at(until) - at(from)
        });
        let bytes = bytes.sum::<f64>() / hosts.len() as f64;
        bytes * 8.0 * FRAMES / (until - from) / 1e6
    }

    /// Figure 10 as it comes out here.
    fn plot(&self) -> Plot {
        let plot = Plot::lines("sessions (Figure 10)", "s", "Mbit/s");
        NAMES
            .iter()
            .enumerate()
            .fold(plot, |plot, (session, name)| {
                let host = &self.copies[session].hosts[0];
                let points = super::rates(&host.progress).into_iter();
                let began = self.began[session];
                let points = points.map(|(at, mbps)| (at + began, mbps * FRAMES));
                plot.series(name, points)
            })
    }
}

fn judge(report: &mut Report, flows: &Played, spans: &[(f64, f64)], quick: bool) {
    for (session, copied) in flows.copies.iter().enumerate() {
        let whole = copied.hosts.iter().all(|host| host.whole);
        report.holds(format!("{}: both copies are whole", NAMES[session]), whole);
    }
    if quick {
        return;
    }
    for (number, (phase, span)) in PHASES.iter().zip(spans).enumerate() {
        for (session, fair) in phase
            .fair
            .iter()
            .enumerate()
            .filter(|(_, fair)| **fair > 0.0)
        {
            let rate = flows.rate(session, *span);
            let off = (rate - fair).abs() / fair;
            let name = format!(
                "phase {}: {} off its fair share",
                number + 1,
                NAMES[session]
            );
            report.check(name, off * 100.0, "%", Bound::AtMost(TARGET * 100.0));
        }
    }
}

fn phases(flows: &Played, spans: &[(f64, f64)]) -> Table {
    let columns = "phase | measured s | links A, B, C | AB | fair | paper | AX | fair | paper | XB | fair | \
         paper";
    let mut table = Table::with_header("rates in Mbit/s (§4.1)", columns);
    for (number, (phase, span)) in PHASES.iter().zip(spans).enumerate() {
        let [a, b, c] = phase.bandwidths;
        let mut row: Vec<Cell> = vec![
            (number + 1).into(),
            format!("{:.1} to {:.1}", span.0, span.1).into(),
            format!("{a}, {b}, {c}").into(),
        ];
        for session in 0..PAIRS.len() {
            let fair = phase.fair[session];
            if fair == 0.0 {
                row.extend(["".into(), "".into(), "".into()]);
                continue;
            }
            row.push(Cell::number(flows.rate(session, *span), 2));
            row.push(Cell::number(fair, 2));
            row.push(Cell::number(phase.paper[session], 1));
        }
        table.row(row);
    }
    table
}

fn sessions(flows: &Played) -> Table {
    let columns = ["session", "began s", "ended s", "at the end by"];
    let mut table = Table::new("sessions", &columns);
    for (session, copied) in flows.copies.iter().enumerate() {
        let modes: Vec<&str> = copied
            .hosts
            .iter()
            .map(|host| host.modes.last().map_or("-", |(_, mode)| mode.as_str()))
            .collect();
        table.row([
            NAMES[session].into(),
            Cell::number(flows.began[session], 2),
            Cell::number(flows.end(session), 1),
            modes.join(", ").into(),
        ]);
    }
    table
}
