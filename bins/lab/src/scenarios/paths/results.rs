//! Tables, plots and verdicts.

use super::grid::{Path as NetworkPath, Shaping};
use super::tool::Choice;
use crate::prelude::*;

/// One transfer.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measured {
    /// From the sender's start until the last receiver has the file.
    pub(super) seconds: f64,
    /// The file's bits in that time.
    pub(super) goodput_bps: f64,
    /// Ethernet bytes on the sender's wire / bytes of the file.
    pub(super) overhead: f64,
}

impl Measured {
    /// Of a file of `bytes`.
    pub(super) fn of(seconds: f64, wire_bytes: u64, bytes: u64) -> Measured {
        Measured {
            seconds,
            goodput_bps: bytes as f64 * 8.0 / seconds,
            overhead: wire_bytes as f64 / bytes as f64,
        }
    }
}

/// What one tool did over one path.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    /// As `--tools` names it.
    tool: &'static str,
    #[serde(skip)]
    choice: &'static Choice,
    path: NetworkPath,
    pub(super) runs: Vec<Measured>,
    /// Why the last run failed, if it did; the path then counts as failed.
    pub(super) failed: Option<String>,
}

impl Line {
    pub(super) fn new(choice: &'static Choice, path: NetworkPath) -> Line {
        Line {
            tool: choice.name,
            choice,
            path,
            runs: Vec::new(),
            failed: None,
        }
    }

    fn median(&self, value: impl Fn(&Measured) -> f64) -> f64 {
        median(self.runs.iter().map(value))
    }

    /// The panel and the table that it belongs to.
    fn panel(&self) -> (Shaping, u64) {
        (self.path.shaping, self.path.rtt_ms)
    }
}

/// Adds everything to the report.
pub(super) fn fill(report: &mut Report, lines: &[Line], limit: Duration) {
    let mut panels: Vec<(Shaping, u64)> = lines.iter().map(Line::panel).collect();
    panels.dedup();
    for panel in panels {
        let mine: Vec<&Line> = lines.iter().filter(|line| line.panel() == panel).collect();
        let title = match panel {
            (Shaping::Emulator, rtt_ms) => format!("round trip {rtt_ms} ms, by the emulator"),
            (Shaping::Htb, _) => "HTB, no delay added".to_owned(),
        };
        report.tables.push(table(&title, &mine));
        report.plots.push(plot(&title, &mine));
    }
    judge(report, lines, limit);
    report.datum("lines", lines);
}

fn table(title: &str, lines: &[&Line]) -> Table {
    let header =
        "loss % | receivers | queue | tool | s | least | most | Mbit/s | wire / file | failed";
    let mut table = Table::with_header(title, header);
    for line in lines {
        let path = &line.path;
        let mut row: Vec<Cell> = vec![
            path.loss.name.into(),
            path.receivers.into(),
            path.queue.into(),
            line.choice.label.into(),
        ];
        if let Some(why) = &line.failed {
            row.extend(["failed", "-", "-", "-", "-"].map(Cell::from));
            row.push(why.as_str().into());
        } else {
            let seconds = || line.runs.iter().map(|run| run.seconds);
            row.extend([
                Cell::number(line.median(|run| run.seconds), 2),
                Cell::number(seconds().fold(f64::INFINITY, f64::min), 2),
                Cell::number(most(seconds()), 2),
                Cell::number(line.median(|run| run.goodput_bps) / 1e6, 1),
                Cell::number(line.median(|run| run.overhead), 3),
                "".into(),
            ]);
        }
        table.row(row);
    }
    table
}

/// Speed by tool and loss, the median over receivers and queues; a tool that failed over a path counts as 0 there.
fn plot(title: &str, lines: &[&Line]) -> Plot {
    let mut tools: Vec<&str> = Vec::new();
    let mut losses: Vec<&str> = Vec::new();
    for line in lines {
        if !tools.contains(&line.choice.label) {
            tools.push(line.choice.label);
        }
        if !losses.contains(&line.path.loss.name) {
            losses.push(line.path.loss.name);
        }
    }
    let speed = |tool: &str, loss: &str| {
        let mine = lines
            .iter()
            .filter(|line| line.choice.label == tool && line.path.loss.name == loss);
        median(mine.map(|line| match line.failed {
            Some(_) => 0.0,
            None => line.median(|run| run.goodput_bps) / 1e6,
        }))
    };
    let plot = Plot::bars(title, "Mbit/s to each receiver", tools.iter().copied());
    losses.iter().fold(plot, |plot, loss| {
        let name = match *loss {
            "bursts" => "loss 1 % in bursts".to_owned(),
            share => format!("loss {share} %"),
        };
        plot.heights(&name, tools.iter().map(|tool| speed(tool, loss)))
    })
}

/// Our tools must deliver over every path; a failure of another tool is named.
fn judge(report: &mut Report, lines: &[Line], limit: Duration) {
    let mut names: Vec<&str> = lines.iter().map(|line| line.tool).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let mine: Vec<&Line> = lines.iter().filter(|line| line.tool == name).collect();
        let failures: Vec<&Line> = mine
            .iter()
            .copied()
            .filter(|line| line.failed.is_some())
            .collect();
        let choice = mine[0].choice;
        if choice.is_ours() {
            report.timed(
                format!(
                    "{}: paths without a whole copy at each receiver within {limit:.0?}",
                    choice.label
                ),
                failures.len() as f64,
                "",
                Bound::Exactly(0.0),
            );
        } else if let [first, ..] = &failures[..] {
            let why = first.failed.as_deref().unwrap_or_default();
            report.skip(
                choice.label,
                format!(
                    "failed over {} of {} paths; first: {why}",
                    failures.len(),
                    mine.len()
                ),
            );
        }
    }
}
