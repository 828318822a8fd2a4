//! `tcpxm-peers`: the same file to the same hosts by TCP-XM, uftp, udpcast, NORM and kernel TCP
//! (Figures 12 and 13).

use super::super::stage::contest::Contest;
use super::super::stage::copy::{Copying, copy};
use super::super::stage::play::{Outcome, Tool};
use super::super::stage::tcp::{Ends, tcp};
use super::super::stage::tools::{Udpcast, Uftp};
use super::super::stage::{Setting, Stage};
use super::mbps;
use crate::prelude::*;

/// Mcp beside uftp, udpcast, NORM and kernel TCP, group by group
#[derive(Debug, clap::Args)]
pub(crate) struct Peers {
    /// Which: slow (sender's link 100 Mbit/s), plain (no limit, no segmentation offloads), or both
    /// with a comma
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = SETTINGS)]
    settings: Vec<String>,
    /// Group sizes (quick: 2)
    #[arg(
        long,
        default_value = "1,2,4,8",
        value_delimiter = ',',
        default_value_if("quick", "true", "2")
    )]
    #[arg(value_parser = within::<usize>(1..=250))]
    receivers: Vec<usize>,
    /// Size of the file in MiB, plain (quick: 8)
    #[arg(long, default_value_t = 256, default_value_if("quick", "true", "8"))]
    mib: u64,
    /// Its size on 100 Mbit/s (quick: 4)
    #[arg(long, default_value_t = 32, default_value_if("quick", "true", "4"))]
    slow_mib: u64,
    /// Transfers of each tool, the best counts (quick: 1)
    #[arg(long, default_value_t = 1, value_parser = within::<usize>(1..=1_000))]
    rounds: usize,
}

/// Short names of the tools; each is part of the full one.
const TOOLS: [&str; 5] = ["mcp", "udpcast", "uftp", "NORM", "TCP"];
const SETTINGS: [&str; 3] = ["all", "slow", "plain"];
const SLOW_BPS: u64 = 100_000_000;
/// With their headers just under what the slow link carries.
const UFTP_SLOW_KBPS: i64 = 97_000;
const NORM_SLOW_BPS: u64 = 96_000_000;
/// Unlimited rate: least multiple of the fastest other tool, and the number of hosts.
const TARGET: f64 = 2.5;
const TARGET_HOSTS: usize = 8;
/// The paper's TCP, Mbit/s, to groups of one and of eight (§4.2).
const PAPER_TCP_MBPS: [(usize, f64); 2] = [(1, 71.0), (8, 11.0)];

impl Scenario for Peers {
    const NAME: &'static str = "tcpxm-peers";
    const FIGURE: &'static str = "TCP-XM Figures 12 and 13";

    fn run(&self, context: &Context) -> Result<Report> {
        let report = Report::new(Self::NAME, "one file to n hosts, by several tools");
        let mut run = Run {
            contest: Contest::new(context, report, self.rounds)?,
            sizes: &self.receivers,
            failed: Vec::new(),
        };
        for setting in chosen(&self.settings, &SETTINGS) {
            let bytes = if setting == "slow" {
                self.slow_mib
            } else {
                self.mib
            };
            run.setting(setting == "slow", bytes << 20)?;
        }
        notes(&mut run.contest.report);
        Ok(run.contest.report)
    }
}

fn notes(report: &mut Report) {
    let [(_, alone), (_, eight)] = PAPER_TCP_MBPS;
    report.note(format!(
        "paper: TCP's speed drops from {alone} Mbit/s to one receiver to {eight} Mbit/s to eight; among \
         the multicast protocols there is no clear winner; TCP's overhead grows linearly with the \
         group, that of the others is small (Figures 12 and 13; the plots are lost)",
    ));
    report.note(
        "seconds: from the sender's start until the last receiver is done; every copy is compared with \
         the original afterwards; mcp also verifies BLAKE3 on every host, files on tmpfs",
    );
}

/// What one tool did with one group.
#[derive(Clone, Debug, Serialize)]
struct Line {
    hosts: usize,
    /// The tool's name without its settings.
    tool: &'static str,
    outcome: Outcome,
}

struct Run<'a> {
    contest: Contest<'a>,
    sizes: &'a [usize],
    /// Other tools that failed in the current setting, with the size of the group: rows of its table.
    failed: Vec<(usize, String)>,
}

impl Run<'_> {
    /// All tools, group by group.
    fn setting(&mut self, slow: bool, bytes: u64) -> Result<()> {
        let title = if slow {
            "sender's link 100 Mbit/s"
        } else {
            "unshaped, no segmentation offloads"
        };
        let mut lines = Vec::new();
        for &hosts in self.sizes {
            let setting = Setting {
                rate_bps: if slow { SLOW_BPS } else { 0 },
                ..Setting::plain(hosts, bytes)
            };
            lines.extend(self.group(title, &setting, slow)?);
        }
        if !slow && !self.contest.context.quick {
            self.judge(title, &lines);
        }
        self.table(title, &lines);
        Ok(())
    }

    /// All tools to one group.
    fn group(&mut self, title: &str, setting: &Setting, slow: bool) -> Result<Vec<Line>> {
        let hosts = setting.ports.len();
        let title = format!("{title}, {hosts} hosts");
        let contest = &mut self.contest;
        let norm_bps = if slow {
            Some(NORM_SLOW_BPS)
        } else {
            contest.norm_rate(&title, setting)?
        };
        let mut stage = Stage::build(setting)?;
        contest.context.note(format!("{title}: mcp"));
        let mut outcomes = vec![contest.best(|| mcp(&mut stage))?];
        let uftp = Uftp {
            rate_kbps: if slow { UFTP_SLOW_KBPS } else { -1 },
            tfmcc: false,
        };
        let others: [&dyn Tool; 2] = [&Udpcast::default(), &uftp];
        outcomes.extend(contest.compare(&title, &mut stage, &others, norm_bps)?);
        contest.context.note(format!("{title}: TCP"));
        outcomes.push(contest.best(|| tcp(&mut stage, Ends::Files))?);
        let failed = contest.failed().into_iter();
        self.failed.extend(failed.map(|tool| (hosts, tool)));
        let lines = outcomes.into_iter().map(|outcome| Line {
            hosts,
            tool: TOOLS
                .into_iter()
                .find(|tool| outcome.tool.contains(tool))
                .unwrap_or_default(),
            outcome,
        });
        Ok(lines.collect())
    }

    /// TCP-XM against the fastest of the other multicast tools.
    fn judge(&mut self, title: &str, lines: &[Line]) {
        let here = || lines.iter().filter(|line| line.hosts == TARGET_HOSTS);
        let bps = |line: &Line| line.outcome.goodput_bps;
        let ours = here().find(|line| line.tool == "mcp").map(bps);
        let others = here().filter(|line| !["mcp", "TCP"].contains(&line.tool));
        let fastest = others.max_by(|a, b| bps(a).total_cmp(&bps(b)));
        if let (Some(ours), Some(fastest)) = (ours, fastest) {
            let name = format!("{title}, {TARGET_HOSTS} hosts: mcp / {}", fastest.tool);
            let ratio = ours / bps(fastest);
            self.contest
                .report
                .timed(name, ratio, "", Bound::AtLeast(TARGET));
        }
    }

    fn table(&mut self, title: &str, lines: &[Line]) {
        let columns = ["hosts", "tool", "s", "Mbit/s", "wire / file"];
        let mut table = Table::new(title, &columns);
        for Line { hosts, outcome, .. } in lines {
            table.row([
                (*hosts).into(),
                outcome.tool.clone().into(),
                Cell::number(outcome.seconds, 2),
                mbps(outcome.goodput_bps),
                Cell::number(outcome.overhead, 3),
            ]);
        }
        for (hosts, tool) in self.failed.drain(..) {
            let failed = ["failed".into(), "-".into(), "-".into()];
            table.row([hosts.into(), tool.into()].into_iter().chain(failed));
        }
        self.contest.report.tables.push(table);
        let plot = |title: &str, what: &str, value: fn(&Outcome) -> f64| {
            let plot = Plot::lines(title, "hosts", what);
            TOOLS.into_iter().fold(plot, |plot, tool| {
                let mine = lines.iter().filter(|line| line.tool == tool);
                let points = mine.map(|line| (line.hosts as f64, value(&line.outcome)));
                let points: Vec<_> = points.collect();
                if points.is_empty() {
                    return plot;
                }
                plot.series(tool, points)
            })
        };
        let speed = plot(
            &format!("speed (Figure 12): {title}"),
            "Mbit/s to each",
            |outcome| outcome.goodput_bps / 1e6,
        );
        let wire = plot(
            &format!("bytes on the sender's wire (Figure 13): {title}"),
            "bytes for each byte of the file",
            |outcome| outcome.overhead,
        );
        self.contest.report.plots.extend([speed, wire]);
        self.contest.report.datum(title, lines);
    }
}

/// TCP-XM as one more tool.
fn mcp(stage: &mut Stage) -> Result<Outcome> {
    let copied = copy(stage, &Copying::plain())?;
    let took = std::time::Duration::from_secs_f64(copied.seconds);
    Ok(Outcome::of("mcp".to_owned(), stage, took, copied.wire))
}
