//! `ltp-throughput`: LTP on one machine beside other tools and kernel TCP, in the same run.

mod stage;
mod tools;

use anyhow::Result;

use self::stage::{Setting, Stage};
use self::tools::{Ltp, Outcome, Tool, Udpcast, Uftp, play, tcp};
use crate::plot::Plot;
use crate::report::{Bound, Cell, Report, Table};
use crate::scenario::{Context, Need, Opt, Scenario};

/// The scenario.
pub(crate) struct Throughput;

impl Scenario for Throughput {
    fn name(&self) -> &'static str {
        "ltp-throughput"
    }

    fn about(&self) -> &'static str {
        "LTP to 8 receivers on one machine, beside uftp, udpcast, NORM and kernel TCP"
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Namespaces]
    }

    fn options(&self) -> &'static [Opt] {
        &[
            Opt {
                name: "mib",
                help: "size of the file in MiB (quick: 16)",
                default: "256",
            },
            Opt {
                name: "slow-mib",
                help: "its size on 100 Mbit/s (quick: 8)",
                default: "64",
            },
            Opt {
                name: "receivers",
                help: "number of receivers (quick: 4)",
                default: "8",
            },
            Opt {
                name: "rounds",
                help: "transfers of each tool, the best counts (quick: 1)",
                default: "3",
            },
        ]
    }

    fn run(&self, context: &Context) -> Result<Report> {
        let mut run = Run {
            context,
            report: Report::new(self.name(), "one file to many receivers on one machine"),
            rounds: context.sized("rounds", 1)?,
            missing: Vec::new(),
        };
        let setting = Setting {
            receivers: context.sized("receivers", 4)?,
            bytes: context.sized("mib", 16u64)? << 20,
            offloads: false,
            rate_bps: 0,
            loss: 0.0,
        };
        run.offloads_off(setting)?;
        run.offloads_on(Setting {
            offloads: true,
            ..setting
        })?;
        let bytes = context.sized("slow-mib", 8u64)? << 20;
        let slow = Setting {
            bytes,
            rate_bps: SLOW_BPS,
            ..setting
        };
        run.slow("100 Mbit/s, no loss", slow, 95.0, Some(1.06))?;
        run.slow(
            "100 Mbit/s, 1 % loss at each receiver",
            Setting { loss: 0.01, ..slow },
            88.0,
            None,
        )?;
        let mut report = run.report;
        report.note(
            "seconds: from the sender's start until it and every receiver have ended; each copy is \
                     compared with the original afterwards",
        );
        report.note(
            "TCP streams go from memory to nowhere, all others from file to file (tmpfs); LTP \
                     verifies BLAKE3 meanwhile",
        );
        report.note("NORM: Debian has its library but no program that sends a file: left out");
        Ok(report)
    }
}

/// The slow sender's link.
const SLOW_BPS: u64 = 100_000_000;

/// One run of the scenario under way.
struct Run<'a> {
    context: &'a Context,
    report: Report,
    rounds: usize,
    /// Tools that were remarked upon as absent.
    missing: Vec<String>,
}

impl Run<'_> {
    /// The best of some rounds of each tool that is installed.
    fn compare(
        &mut self,
        title: &str,
        stage: &mut Stage,
        tools: &[&dyn Tool],
    ) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for tool in tools {
            if let Some(remark) = tool.missing() {
                if !self.missing.contains(&remark) {
                    self.report.note(remark.clone());
                    self.missing.push(remark);
                }
                continue;
            }
            self.context.note(format!("{title}: {}", tool.name()));
            let mut best: Option<Outcome> = None;
            let mut failure = None;
            for _ in 0..self.rounds {
                match play(*tool, stage) {
                    Ok(outcome) if best.as_ref().is_none_or(|b| outcome.seconds < b.seconds) => {
                        best = Some(outcome);
                    }
                    Ok(_) => {}
                    Err(error) => failure = Some(error),
                }
            }
            match (best, failure) {
                (Some(best), _) => outcomes.push(best),
                // A foreign tool's failure is a result; ours is an error.
                (None, Some(error)) if tool.name() == "LTP" => return Err(error),
                (None, error) => {
                    let words = error.map_or(String::new(), |error| format!("{error:#}"));
                    let line = words.lines().next().unwrap_or_default().to_owned();
                    self.report
                        .note(format!("{title}: {} failed: {line}", tool.name()));
                }
            }
        }
        Ok(outcomes)
    }

    fn table(&mut self, title: &str, outcomes: &[Outcome]) {
        let mut table = Table::new(title, &["tool", "s", "Mbit/s", "wire / file"]);
        for outcome in outcomes {
            row(&mut table, outcome);
        }
        self.report.tables.push(table);
        let names: Vec<&str> = outcomes
            .iter()
            .map(|outcome| outcome.tool.as_str())
            .collect();
        let points = outcomes
            .iter()
            .enumerate()
            .map(|(at, o)| (at as f64, o.goodput_bps / 1e6));
        let plot = Plot::bars(title, "Mbit/s at each receiver", &names);
        self.report
            .plots
            .push(plot.series("goodput", points.collect()));
        self.report.datum(title, outcomes);
    }

    fn offloads_off(&mut self, setting: Setting) -> Result<()> {
        let title = "no segmentation offloads";
        let mut stage = Stage::build(setting)?;
        let (ltp, uftp) = (Ltp { rate: "unlimited" }, Uftp { rate_kbps: -1 });
        let outcomes = self.compare(title, &mut stage, &[&ltp, &uftp, &Udpcast { rate_bps: 0 }])?;
        for other in outcomes.iter().filter(|outcome| outcome.tool != "LTP") {
            let ratio = outcomes[0].goodput_bps / other.goodput_bps;
            let name = format!("{title}: LTP / {}", other.tool);
            self.report.check(name, ratio, "", Bound::AtLeast(2.0));
        }
        self.table(title, &outcomes);
        Ok(())
    }

    fn offloads_on(&mut self, setting: Setting) -> Result<()> {
        let title = "with segmentation offloads";
        let mut stage = Stage::build(setting)?;
        let mut outcomes = self.compare(title, &mut stage, &[&Ltp { rate: "unlimited" }])?;
        self.context.note(format!("{title}: kernel TCP"));
        let streams = (0..self.rounds)
            .map(|_| tcp(&mut stage))
            .collect::<Result<Vec<_>>>()?;
        outcomes.extend(
            streams
                .into_iter()
                .min_by(|a, b| a.seconds.total_cmp(&b.seconds)),
        );
        let ratio = outcomes[0].goodput_bps / outcomes[1].goodput_bps;
        let name = format!("{title}: LTP / each TCP stream");
        self.report.check(name, ratio, "", Bound::AtLeast(1.0));
        self.table(title, &outcomes);
        Ok(())
    }

    fn slow(&mut self, title: &str, setting: Setting, mbps: f64, wire: Option<f64>) -> Result<()> {
        let mut stage = Stage::build(setting)?;
        let (uftp, udpcast) = (Uftp { rate_kbps: 97_000 }, Udpcast { rate_bps: 0 });
        let outcomes =
            self.compare(title, &mut stage, &[&Ltp { rate: "100M" }, &uftp, &udpcast])?;
        let ltp = &outcomes[0];
        let (goodput, overhead) = (ltp.goodput_bps / 1e6, ltp.overhead);
        self.report.check(
            format!("{title}: LTP"),
            goodput,
            "Mbit/s",
            Bound::AtLeast(mbps),
        );
        if let Some(most) = wire {
            let name = format!("{title}: Ethernet bytes of the sender / file");
            self.report.check(name, overhead, "", Bound::AtMost(most));
        }
        self.table(title, &outcomes);
        Ok(())
    }
}

fn row(table: &mut Table, outcome: &Outcome) {
    table.row([
        outcome.tool.clone().into(),
        Cell::number(outcome.seconds, 2),
        Cell::number(outcome.goodput_bps / 1e6, 1),
        Cell::number(outcome.overhead, 3),
    ]);
}
