//! `bfed-low-rate`: sessions of 100 kbit/s each get just that, however many there are.

use super::load::{Flow, Load, Relay};
use super::rounds::prepare;
use crate::prelude::*;

/// Sessions of 100 kbit/s through one data node: each keeps its rate
#[derive(Debug, clap::Args)]
pub(crate) struct LowRate {
    /// What the data node gets of a core, in percent
    #[arg(long, default_value_t = 50.0, value_parser = within::<f64>(1.0..=100.0))]
    share: f64,
    /// Time that is measured, for each number of sessions (quick: 2)
    #[arg(long, default_value_t = 8.0, default_value_if("quick", "true", "2"))]
    seconds: f64,
    /// Most sessions (quick: 20)
    #[arg(long, default_value_t = 500, default_value_if("quick", "true", "20"))]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    sessions: usize,
}

const RATE_BPS: u64 = 100_000;
/// Twelve and a half frames a second.
const FRAME: usize = 1000;
const SESSIONS: [usize; 7] = [1, 5, 20, 50, 100, 200, 500];
/// How far a session may be from its rate: a frame more or less in the time that is measured, and
/// timers.
const NEAR: f64 = 0.02;

/// The rate is that of frames: their headers on the way are left out.
const PART: f64 = FRAME as f64 / (FRAME + bfed::data::HEADER_LEN) as f64;

impl Scenario for LowRate {
    const NAME: &'static str = "bfed-low-rate";
    const FIGURE: &'static str = "Broadcast Federation §6.2, last experiment";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "sources of 100 kbit/s");
        let stage = prepare(self.share, &mut report)?;
        let &Self {
            seconds,
            sessions: most,
            ..
        } = self;
        let mut table = Table::with_header(
            "one data node, TCP channels",
            "sessions | mean, kbit/s | slowest | fastest | core used | µs of a core for a frame",
        );
        let (mut line, mut flows) = (Vec::new(), Vec::new());
        let mut whole = true;
        for sessions in SESSIONS.into_iter().filter(|&sessions| sessions <= most) {
            context.note(format!("{sessions} sessions"));
            let load = Load {
                sessions,
                rate_bps: Some(RATE_BPS),
                ..Load::one(Relay::DataNodes, FRAME)
            };
            let (flow, facts) = stage.play(load, seconds)?;
            whole &= facts.hold();
            let mean = flow.bps() * PART / sessions as f64;
            table.row(row(sessions, mean, &flow));
            line.push((sessions as f64, mean / 1e3));
            if !context.quick {
                judge(&mut report, sessions, mean, &flow);
            }
            flows.push((sessions, flow));
        }
        report.tables.push(table);
        let plot = Plot::lines("sources of 100 kbit/s", "sessions", "kbit/s of each");
        report
            .plots
            .push(plot.series("mean", line).log(true, false));
        report.holds("every byte arrives, as it was sent", whole);
        report.datum("flows", &flows);
        report.note(
            "the paper (§6.2): throughput stayed essentially constant at 100 kbit/s as the number of \
             sessions grew",
        );
        Ok(report)
    }
}

/// Neither the mean nor any session is off its rate.
fn judge(report: &mut Report, sessions: usize, mean: f64, flow: &Flow) {
    let (slowest, fastest) = (flow.slowest_bps * PART, flow.fastest_bps * PART);
    for (which, bps) in [("mean", mean), ("slowest", slowest), ("fastest", fastest)] {
        let name = format!("{sessions} sessions: off 100 kbit/s, {which}");
        let off = (bps / RATE_BPS as f64 - 1.0).abs();
        report.timed(name, off, "", Bound::AtMost(NEAR));
    }
}

/// A row of the table; `mean` in bit/s.
fn row(sessions: usize, mean: f64, flow: &Flow) -> [Cell; 6] {
    let frames = flow.bytes as f64 * PART / FRAME as f64;
    [
        sessions.into(),
        Cell::number(mean / 1e3, 2),
        Cell::number(flow.slowest_bps * PART / 1e3, 2),
        Cell::number(flow.fastest_bps * PART / 1e3, 2),
        Cell::number(flow.cpu_s / flow.seconds, 3),
        Cell::number(flow.cpu_s / frames * 1e6, 2),
    ]
}
