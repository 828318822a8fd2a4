//! `tcpxm-peers`: the same file to the same hosts by TCP-XM, uftp, udpcast, NORM and kernel TCP
//! (Figures 12 and 13).

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::super::stage::copy::{Copying, copy};
use super::super::stage::norm::{self, Norm};
use super::super::stage::play::{Outcome, Tool, best, missing, play, reason};
use super::super::stage::tcp::{Ends, tcp};
use super::super::stage::tools::{Udpcast, Uftp};
use super::super::stage::{Setting, Stage};
use super::mbps;
use crate::plot::Plot;
use crate::report::{Bound, Cell, Report, Table};
use crate::scenario::{Context, Need, Scenario, chosen, within};

/// Mcp beside uftp, udpcast, NORM and kernel TCP, group by group
#[derive(Debug, clap::Args)]
pub(in crate::scenarios) struct Peers {
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
    #[arg(value_parser = within(1..=250))]
    receivers: Vec<usize>,
    /// Size of the file in MiB, plain (quick: 8)
    #[arg(long, default_value_t = 256, default_value_if("quick", "true", "8"))]
    mib: u64,
    /// Its size on 100 Mbit/s (quick: 4)
    #[arg(long, default_value_t = 32, default_value_if("quick", "true", "4"))]
    slow_mib: u64,
    /// Transfers of each tool, the best counts (quick: 1)
    #[arg(long, default_value_t = 1, value_parser = within(1..=1_000))]
    rounds: usize,
}

const SETTINGS: [&str; 3] = ["all", "slow", "plain"];
const SLOW_BPS: u64 = 100_000_000;
/// With their headers just under what the slow link carries.
const UFTP_SLOW_KBPS: i64 = 97_000;
const NORM_SLOW_BPS: u64 = 96_000_000;
/// As fast as the machine can, of the fastest of the others, at least, with so many hosts.
const TARGET: f64 = 2.5;
const TARGET_HOSTS: usize = 8;
/// The paper's TCP, Mbit/s, to groups of one and of eight (§4.2).
const PAPER_TCP_MBPS: [(usize, f64); 2] = [(1, 71.0), (8, 11.0)];

impl Scenario for Peers {
    const NAME: &'static str = "tcpxm-peers";
    const FIGURE: &'static str = "TCP-XM Figures 12 and 13";
    const NEEDS: &'static [Need] = &[Need::Namespaces];

    fn run(&self, context: &Context) -> Result<Report> {
        let mut run = Run {
            context,
            report: Report::new(Self::NAME, "one file to n hosts, by several tools"),
            sizes: self.receivers.clone(),
            rounds: self.rounds,
            norm: None,
            failures: Vec::new(),
        };
        match norm::compile()? {
            Ok(program) => run.norm = Some(program),
            Err(reason) => run.report.skip("NORM", reason),
        }
        let others: [&dyn Tool; 2] = [&Udpcast, &Uftp { rate_kbps: -1 }];
        for tool in others {
            if let Some(reason) = missing(tool) {
                run.report.skip(tool.name(), reason);
            }
        }
        for setting in chosen(&self.settings, &SETTINGS) {
            let bytes = if setting == "slow" {
                self.slow_mib
            } else {
                self.mib
            };
            run.setting(setting == "slow", bytes << 20)?;
        }
        notes(&mut run.report, run.rounds);
        Ok(run.report)
    }
}

fn notes(report: &mut Report, rounds: usize) {
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
    report.note(match rounds {
        1 => "one transfer of each tool".to_owned(),
        rounds => format!("the best of {rounds} transfers of each tool"),
    });
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
    context: &'a Context,
    report: Report,
    sizes: Vec<usize>,
    rounds: usize,
    /// The program around NORM's library, when it could be made.
    norm: Option<PathBuf>,
    /// Tools of others that failed in the setting under way, with the size of the group: rows of its table.
    failures: Vec<(usize, String)>,
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
        for hosts in self.sizes.clone() {
            let setting = Setting {
                rate_bps: if slow { SLOW_BPS } else { 0 },
                ..Setting::plain(hosts, bytes)
            };
            lines.extend(self.group(title, &setting, slow)?);
        }
        if !slow && !self.context.quick {
            self.judge(title, &lines);
        }
        self.table(title, &lines);
        Ok(())
    }

    /// All tools to one group.
    fn group(&mut self, title: &str, setting: &Setting, slow: bool) -> Result<Vec<Line>> {
        let hosts = setting.ports.len();
        let norm_bps = if slow {
            Some(NORM_SLOW_BPS)
        } else {
            self.norm_rate(title, setting)?
        };
        let mut stage = Stage::build(setting)?;
        let mut lines = Vec::new();
        let mut keep = |tool, outcome| {
            lines.push(Line {
                hosts,
                tool,
                outcome,
            });
        };
        self.context.note(format!("{title}, {hosts} hosts: mcp"));
        keep("mcp", self.best(|| mcp(&mut stage))?);
        let uftp = Uftp {
            rate_kbps: if slow { UFTP_SLOW_KBPS } else { -1 },
        };
        let program = self.norm.clone();
        let norm = program.as_deref().zip(norm_bps);
        let norm = norm.map(|(program, rate_bps)| Norm { program, rate_bps });
        let mut others: Vec<(&'static str, &dyn Tool)> =
            vec![("udpcast", &Udpcast), ("uftp", &uftp)];
        others.extend(norm.as_ref().map(|norm| ("NORM", norm as &dyn Tool)));
        for (name, tool) in others {
            if missing(tool).is_some() {
                continue;
            }
            self.context.note(format!("{title}, {hosts} hosts: {name}"));
            match self.best(|| play(tool, &mut stage)) {
                Ok(outcome) => keep(name, outcome),
                Err(error) => self.failed(title, hosts, name, &error),
            }
        }
        self.context.note(format!("{title}, {hosts} hosts: TCP"));
        keep("TCP", self.best(|| tcp(&mut stage, Ends::Files))?);
        Ok(lines)
    }

    /// The rate that serves NORM best, found with an eighth of the file.
    fn norm_rate(&mut self, title: &str, setting: &Setting) -> Result<Option<u64>> {
        let Some(program) = self.norm.clone() else {
            return Ok(None);
        };
        let hosts = setting.ports.len();
        self.context
            .note(format!("{title}, {hosts} hosts: the best rate for NORM"));
        let mut stage = Stage::build(&Setting {
            bytes: (setting.bytes / 8).max(1 << 20),
            ..setting.clone()
        })?;
        match norm::best_rate(&program, &mut stage) {
            Ok((rate_bps, _)) => Ok(Some(rate_bps)),
            Err(error) => {
                self.failed(title, hosts, "NORM", &error);
                Ok(None)
            }
        }
    }

    /// The fastest round; an error when none succeeds.
    fn best(&self, round: impl FnMut() -> Result<Outcome>) -> Result<Outcome> {
        best(self.rounds, round, |outcome| outcome.seconds)
    }

    fn failed(&mut self, title: &str, hosts: usize, tool: &str, error: &anyhow::Error) {
        let reason = reason(error);
        self.report.skip(
            format!("{title}, {hosts} hosts: {tool}"),
            format!("failed: {reason}"),
        );
        self.failures.push((hosts, tool.to_owned()));
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
            self.report.timed(name, ratio, "", Bound::AtLeast(TARGET));
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
        for (hosts, tool) in self.failures.drain(..) {
            let failed = ["failed".into(), "-".into(), "-".into()];
            table.row([hosts.into(), tool.into()].into_iter().chain(failed));
        }
        self.report.tables.push(table);
        let tools = ["mcp", "udpcast", "uftp", "NORM", "TCP"];
        let plot = |title: &str, what: &str, value: fn(&Outcome) -> f64| {
            let plot = Plot::lines(title, "hosts", what);
            tools.into_iter().fold(plot, |plot, tool| {
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
        self.report.plots.extend([speed, wire]);
        self.report.datum(title, lines);
    }
}

/// TCP-XM as one more tool.
fn mcp(stage: &mut Stage) -> Result<Outcome> {
    let copied = copy(stage, &Copying::plain())?;
    let took = std::time::Duration::from_secs_f64(copied.seconds);
    Ok(Outcome::of("mcp".to_owned(), stage, took, copied.wire))
}
