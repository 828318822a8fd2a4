//! `ltp-throughput`: LTP on one machine beside other tools and kernel TCP, in the same run.

mod stage;
mod tools;

use anyhow::Result;

use self::stage::{Setting, Stage};
use self::tools::{Outcome, Tool, Udpcast, Uftp, play, tcp};
use crate::report::{Cell, Report, Table};
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
                name: "receivers",
                help: "number of receivers (quick: 4)",
                default: "8",
            },
        ]
    }

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(self.name(), "one file to many receivers on one machine");
        let receivers: usize = context.sized("receivers", 4)?;
        let bytes = context.sized("mib", 16u64)? << 20;
        let setting = Setting {
            receivers,
            bytes,
            offloads: false,
            rate_bps: 0,
            loss: 0.0,
        };
        let mut table = Table::new("offloads off", &["tool", "s", "Mbit/s", "wire / file"]);
        let mut stage = Stage::build(setting)?;
        for tool in [
            &Uftp { rate_kbps: -1 } as &dyn Tool,
            &Udpcast { rate_bps: 0 },
        ] {
            if let Some(remark) = tool.missing() {
                report.note(remark);
                continue;
            }
            context.note(tool.name());
            match play(tool, &mut stage) {
                Ok(outcome) => row(&mut table, &outcome),
                Err(error) => eprintln!("{error:#}"),
            }
        }
        drop(stage);
        let mut stage = Stage::build(Setting {
            offloads: true,
            ..setting
        })?;
        row(&mut table, &tcp(&mut stage)?);
        report.tables.push(table);
        Ok(report)
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
