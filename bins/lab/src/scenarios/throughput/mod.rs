//! `ltp-throughput`: LTP on one machine beside other tools and kernel TCP, in the same run.

mod ltp;

use self::ltp::Ltp;
use super::stage::contest::Contest;
use super::stage::play::{Outcome, Tool};
use super::stage::tools::{Udpcast, Uftp};
use super::stage::{Setting, Stage};
use crate::prelude::*;
use crate::session::Ip;

/// LTP to 8 receivers on one machine, beside uftp, udpcast, NORM and kernel TCP
#[derive(Debug, clap::Args)]
pub(crate) struct Throughput {
    /// Size of the file in MiB (quick: 16)
    #[arg(long, default_value_t = 256, default_value_if("quick", "true", "16"))]
    mib: u64,
    /// Its size on 100 Mbit/s (quick: 8)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "8"))]
    slow_mib: u64,
    /// Number of receivers (quick: 4)
    #[arg(long, default_value_t = 8, default_value_if("quick", "true", "4"))]
    #[arg(value_parser = within::<usize>(1..=250))]
    receivers: usize,
    /// Transfers of each tool, after one that does not count; the best counts (quick: 1, the first counts)
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=1_000))]
    rounds: usize,
    /// Settings to run, with commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = SETTINGS)]
    settings: Vec<String>,
}

impl Scenario for Throughput {
    const NAME: &'static str = "ltp-throughput";

    fn run(&self, context: &Context) -> Result<Report> {
        let wanted = chosen(&self.settings, &SETTINGS);
        let report = Report::new(Self::NAME, "one file to many receivers on one machine");
        let mut run = Run(Contest::new(context, report, self.rounds)?);
        let fast = Setting::plain(self.receivers, self.mib << 20);
        let slow = Setting {
            bytes: self.slow_mib << 20,
            rate_bps: SLOW_BPS,
            ..fast.clone()
        };
        for setting in wanted {
            match setting {
                "plain" => run.plain(&fast)?,
                "offloads" => run.offloads(&fast)?,
                "versions" => run.versions(&fast)?,
                "slow" => run.slow("100 Mbit/s, no loss", &slow, 95.0, Some(1.06))?,
                "loss-in" => {
                    let title = "100 Mbit/s, 1 % of what comes to each receiver is lost";
                    run.slow(title, &slow.clone().lossy(LOSS), 88.0, None)?;
                }
                _ => {
                    let title = "100 Mbit/s, 1 % lost at each receiver, both ways";
                    let both = slow.clone().shaped(Shape::lossy(LOSS));
                    run.slow(title, &both, 88.0, None)?;
                }
            }
        }
        notes(&mut run.0.report);
        Ok(run.0.report)
    }
}

const SETTINGS: [&str; 7] = [
    "all",
    "plain",
    "offloads",
    "versions",
    "slow",
    "loss-in",
    "loss-both",
];

fn notes(report: &mut Report) {
    report.note(
        "seconds: from the sender's start until it and every receiver have ended; each copy is \
         compared with the original afterwards",
    );
    report.note(
        "files lie on tmpfs; LTP verifies BLAKE3 while it receives, poured away or stored; TCP and \
         NORM verify nothing",
    );
}

/// What receivers lose where some is lost.
const LOSS: f64 = 0.01;

/// The slow sender's link.
const SLOW_BPS: u64 = 100_000_000;

/// NORM's rate there: with its headers just under what the link carries.
const NORM_SLOW_BPS: u64 = 96_000_000;

/// A comparison in progress.
struct Run<'a>(Contest<'a>);

impl Run<'_> {
    fn table(&mut self, title: &str, outcomes: &[Outcome]) {
        let mut table = Table::new(title, &["tool", "s", "Mbit/s", "wire / file"]);
        for outcome in outcomes {
            row(&mut table, outcome);
        }
        for tool in self.0.failed() {
            table.row([tool.into(), "failed".into(), "-".into(), "-".into()]);
        }
        self.0.report.tables.push(table);
        let names = outcomes.iter().map(|outcome| outcome.tool.as_str());
        let plot = Plot::bars(title, "Mbit/s at each receiver", names);
        let goodput = outcomes.iter().map(|outcome| outcome.goodput_bps / 1e6);
        self.0.report.plots.push(plot.heights("goodput", goodput));
        self.0.report.datum(title, outcomes);
    }

    fn plain(&mut self, setting: &Setting) -> Result<()> {
        let title = "no segmentation offloads";
        let rate_bps = self.0.norm_rate(title, setting)?;
        let mut stage = Stage::build(setting)?;
        let uftp = Uftp {
            rate_kbps: -1,
            tfmcc: false,
        };
        let tools: [&dyn Tool; 3] = [&FAST, &uftp, &Udpcast::default()];
        let outcomes = self.0.compare(title, &mut stage, &tools, rate_bps)?;
        for other in &outcomes[1..] {
            let ratio = outcomes[0].goodput_bps / other.goodput_bps;
            let name = format!("{title}: LTP / {}", other.tool);
            self.0.report.timed(name, ratio, "", Bound::AtLeast(2.0));
        }
        self.table(title, &outcomes);
        Ok(())
    }

    fn offloads(&mut self, setting: &Setting) -> Result<()> {
        let title = "with segmentation offloads";
        let mut stage = Stage::build(&Setting {
            offloads: true,
            ..setting.clone()
        })?;
        let poured = Ltp {
            poured: true,
            ..FAST
        };
        let mut outcomes = self.0.compare(title, &mut stage, &[&poured, &FAST], None)?;
        let pairs = [
            (false, "LTP verified and poured away", 0.8),
            (true, "LTP file to file", 1.0),
        ];
        for (ours, (is_file, name, least)) in pairs.into_iter().enumerate() {
            let streams = self.0.strongest(&mut stage, is_file)?;
            let first = streams.first().context("no TCP was run")?;
            let ratio = outcomes[ours].goodput_bps / first.goodput_bps;
            let name = format!("{title}, each stream: {name} / {}", first.tool);
            self.0.report.timed(name, ratio, "", Bound::AtLeast(least));
            outcomes.extend(streams);
        }
        self.table(title, &outcomes);
        Ok(())
    }

    fn versions(&mut self, setting: &Setting) -> Result<()> {
        let title = "IPv4 and IPv6, with segmentation offloads";
        let mut stage = Stage::build(&Setting {
            offloads: true,
            ipv6: true,
            ..setting.clone()
        })?;
        let [v4, v6] = [Ip::V4, Ip::V6].map(|ip| Ltp { ip, ..FAST });
        let outcomes = self.0.compare(title, &mut stage, &[&v4, &v6], None)?;
        let ratio = outcomes[1].goodput_bps / outcomes[0].goodput_bps;
        let name = "LTP file to file, over IPv6 / over IPv4";
        self.0.report.timed(name, ratio, "", Bound::AtLeast(0.97));
        self.table(title, &outcomes);
        Ok(())
    }

    fn slow(&mut self, title: &str, setting: &Setting, mbps: f64, wire: Option<f64>) -> Result<()> {
        let mut stage = Stage::build(setting)?;
        let ltp = Ltp {
            rate: "100M",
            ..FAST
        };
        let uftp = Uftp {
            rate_kbps: 97_000,
            tfmcc: false,
        };
        let tools: [&dyn Tool; 3] = [&ltp, &uftp, &Udpcast::default()];
        let norm = Some(NORM_SLOW_BPS);
        let outcomes = self.0.compare(title, &mut stage, &tools, norm)?;
        let ltp = &outcomes[0];
        let name = format!("{title}: LTP");
        let goodput = ltp.goodput_bps / 1e6;
        self.0
            .report
            .timed(name, goodput, "Mbit/s", Bound::AtLeast(mbps));
        if let Some(most) = wire {
            let name = format!("{title}: Ethernet bytes of the sender / file");
            self.0
                .report
                .check(name, ltp.overhead, "", Bound::AtMost(most));
        }
        self.table(title, &outcomes);
        Ok(())
    }
}

/// LTP as fast as it can, file to file.
const FAST: Ltp = Ltp {
    rate: "unlimited",
    ip: Ip::V4,
    poured: false,
};

fn row(table: &mut Table, outcome: &Outcome) {
    table.row([
        outcome.tool.clone().into(),
        Cell::number(outcome.seconds, 2),
        Cell::number(outcome.goodput_bps / 1e6, 1),
        Cell::number(outcome.overhead, 3),
    ]);
}
