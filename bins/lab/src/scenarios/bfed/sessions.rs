//! `bfed-sessions`: what data nodes forward in all, by the number of sessions; and 10,000 sessions on
//! one.

use super::load::{Datagrams, Flow, Load, Relay, Stage};
use super::rounds::prepare;
use crate::prelude::*;

/// Throughput of 1 to 500 sessions on one and five data nodes; 10,000 sessions on one
#[derive(Debug, clap::Args)]
pub(crate) struct Sessions {
    /// What each data node gets of a core, in percent (one of five: half of it)
    #[arg(long, default_value_t = 20.0, value_parser = within::<f64>(1.0..=100.0))]
    share: f64,
    /// Time that is measured, for each number of sessions (quick: 0.4)
    #[arg(long, default_value_t = 3.0, default_value_if("quick", "true", "0.4"))]
    seconds: f64,
    /// Times that all numbers are measured, up and down in turn; medians count (quick: 1)
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    rounds: usize,
    /// Numbers of sessions of the first two parts (quick: up to 20)
    #[arg(
        long,
        default_value = "1,5,10,20,50,100,200,500",
        value_delimiter = ',',
        default_value_if("quick", "true", "1,5,10,20")
    )]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    sessions: Vec<usize>,
    /// Receive buffers of the TCP channels that come in, in MiB: all sessions share them
    #[arg(long, default_value_t = 256)]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    buffers: usize,
    /// Each of them, in KiB, whatever the number of sessions (0: its part of --buffers)
    #[arg(long, default_value_t = 0)]
    buffer: usize,
    /// Sessions of 100 kbit/s of the last part (quick: 300)
    #[arg(
        long,
        default_value_t = 10000,
        default_value_if("quick", "true", "300")
    )]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    live: usize,
    /// How long they last (quick: 2)
    #[arg(long, default_value_t = 20.0, default_value_if("quick", "true", "2"))]
    live_seconds: f64,
    /// Which: one, five, live, or several with commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = PARTS)]
    parts: Vec<String>,
}

/// What `--parts` takes.
const PARTS: [&str; 4] = ["all", "one", "five", "live"];
const FRAME: usize = 16 << 10;
/// The number of sessions that many sessions are compared with.
const FEW: usize = 5;
const MANY: usize = 500;
/// The least share of it, in all.
const KEPT: f64 = 0.95;
/// A real-time session: 100 kbit/s in frames that fit every path.
const LIVE_BPS: u64 = 100_000;
const LIVE_FRAME: usize = 1200;
/// Memory of a data node for each session, without the kernel's buffers, in bytes.
const MEMORY: f64 = 16384.0;

impl Scenario for Sessions {
    const NAME: &'static str = "bfed-sessions";
    const FIGURE: &'static str = "Broadcast Federation §6.2, Figures 12, 13";

    fn run(&self, context: &Context) -> Result<Report> {
        let parts = chosen(&self.parts, &PARTS);
        let mut report = Report::new(Self::NAME, "many sessions");
        let mut run = Run {
            context,
            options: self,
            stage: prepare(self.share, &mut report)?,
        };
        if parts.contains(&"one") {
            run.aggregate(&mut report, 1, "Figure 12")?;
        }
        if parts.contains(&"five") {
            run.stage.cores /= 2.0;
            let nodes = if context.quick { 2 } else { 5 };
            run.aggregate(&mut report, nodes, "Figure 13")?;
        }
        if parts.contains(&"live") {
            run.live(&mut report)?;
        }
        report.note(match self.buffer {
            0 => format!(
                "sources fill receive buffers of {} MiB in all, of which each session has an equal part",
                self.buffers
            ),
            each => format!("sources fill each session's receive buffer of {each} KiB"),
        });
        report.note(
            "the paper (§6.2): high, with a slow decrease beyond a few tens of sessions, by the poll() \
             interface; at most 509 sessions a data node, by 1,024 descriptors",
        );
        Ok(report)
    }
}

struct Run<'a> {
    context: &'a Context,
    options: &'a Sessions,
    stage: Stage,
}

impl Run<'_> {
    /// Figures 12 and 13: `sessions` in all, spread over the nodes.
    fn aggregate(&mut self, report: &mut Report, nodes: usize, figure: &str) -> Result<()> {
        let sessions = self.options.sessions.iter().copied();
        let counts: Vec<usize> = sessions.filter(|count| count % nodes == 0).collect();
        let (flows, whole) = self.play(nodes, &counts)?;
        let mut table = Table::with_header(
            format!("{figure}: {nodes} data nodes, frames of {FRAME} bytes"),
            "sessions | Mbit/s in all | slowest session | fastest session | Gbit for 1 s of a \
             core | of the shares used",
        );
        let of = |flows: &[Flow], figure: &dyn Fn(&Flow) -> f64| median(flows.iter().map(figure));
        let mut line = Vec::new();
        let cores = self.stage.cores * nodes as f64;
        for (&count, flows) in counts.iter().zip(&flows) {
            let rate = of(flows, &Flow::bps) / 1e6;
            table.row([
                count.into(),
                Cell::number(rate, 1),
                Cell::number(of(flows, &|flow| flow.slowest_bps) / 1e6, 2),
                Cell::number(of(flows, &|flow| flow.fastest_bps) / 1e6, 2),
                Cell::number(of(flows, &Flow::bits_per_cpu_s) / 1e9, 2),
                Cell::number(of(flows, &|flow| flow.cpu_s / flow.seconds / cores), 2),
            ]);
            line.push((count as f64, rate));
        }
        report.tables.push(table);
        if let Some(kept) = self.kept(&counts, &flows) {
            let name = format!("{nodes} data nodes: in all at {MANY} sessions / at {FEW}");
            report.timed(name, kept, "", Bound::AtLeast(KEPT));
        }
        let title = format!("{nodes} data nodes");
        let plot = Plot::lines(&title, "sessions", "Mbit/s in all");
        report
            .plots
            .push(plot.series("throughput", line).log(true, false));
        let name = format!("{nodes} data nodes: every byte arrives, as it was sent");
        report.holds(name, whole);
        report.datum(&title, &flows);
        Ok(())
    }

    /// Throughput of many sessions relative to a few: the median of all rounds, each compared separately.
    fn kept(&self, counts: &[usize], flows: &[Vec<Flow>]) -> Option<f64> {
        let figure = match self.stage.has_shares() {
            true => Flow::bps,
            false => Flow::bits_per_cpu_s,
        };
        let at = |count: usize| Some(&flows[counts.iter().position(|&other| other == count)?]);
        let (few, many) = at(FEW).zip(at(MANY))?;
        let rounds = few.iter().zip(many);
        Some(median(rounds.map(|(few, many)| figure(many) / figure(few))))
    }

    /// Bytes that flowed with this many sessions, in each round, and whether everything arrived. A machine
    /// whose speed changes meanwhile favours no number: every other round runs in reverse order.
    ///
    /// Sources fill the buffers, so that with buffers of one size a hundred times the sessions have a hundred
    /// times the bytes on their way: copied bytes then no longer come from a cache, and the figures compare
    /// is the machine's memory. All numbers of sessions share the same bytes instead.
    fn play(&mut self, nodes: usize, counts: &[usize]) -> Result<(Vec<Vec<Flow>>, bool)> {
        let mut flows: Vec<Vec<Flow>> = counts.iter().map(|_| Vec::new()).collect();
        let mut whole = true;
        for round in 1..=self.options.rounds {
            let mut places: Vec<usize> = (0..counts.len()).collect();
            if round % 2 == 0 {
                places.reverse();
            }
            for place in places {
                let count = counts[place];
                self.context.note(format!(
                    "{nodes} data nodes, {count} sessions, round {round}"
                ));
                let load = Load {
                    nodes,
                    sessions: count / nodes,
                    ..Load::one(Relay::DataNodes, FRAME)
                };
                self.stage.buffer = match self.options.buffer {
                    0 => (self.options.buffers << 20) / count,
                    each => each << 10,
                };
                let (flow, facts) = self.stage.play(load, self.options.seconds)?;
                whole &= facts.hold();
                flows[place].push(flow);
            }
        }
        Ok((flows, whole))
    }

    /// Real-time sessions over UDP, far more than the paper's.
    fn live(&self, report: &mut Report) -> Result<()> {
        let sessions = self.options.live;
        let seconds: f64 = self.options.live_seconds;
        self.context.note(format!("{sessions} real-time sessions"));
        let load = Datagrams {
            sessions,
            frame: LIVE_FRAME,
            rate_bps: LIVE_BPS,
        };
        let live = self.stage.live(load, seconds)?;
        let per_session = live.per_session(sessions);
        let mut table = Table::with_header(
            "real-time sessions of 100 kbit/s on one data node, over UDP, congestion-controlled",
            "sessions | frames sent | arrived | Mbit/s | core used | µs of a core for a frame | \
             memory a session, bytes",
        );
        table.row([
            sessions.into(),
            live.sent.into(),
            live.arrived.into(),
            Cell::number(
                live.arrived as f64 * LIVE_FRAME as f64 * 8.0 / live.seconds / 1e6,
                1,
            ),
            Cell::number(live.cpu_s / live.seconds, 3),
            Cell::number(live.cpu_s / live.sent as f64 * 1e6, 2),
            Cell::number(per_session, 0),
        ]);
        report.tables.push(table);
        let lost = live.sent - live.arrived.min(live.sent);
        let name = format!("{sessions} sessions of 100 kbit/s: frames lost");
        report.timed(name, lost as f64, "", Bound::Exactly(0.0));
        let name = format!("{sessions} sessions of 100 kbit/s: the source falls behind");
        report.timed(name, live.behind_s, "s", Bound::AtMost(0.02 * seconds));
        report.check(
            "memory of a data node for each session",
            per_session,
            "bytes",
            Bound::AtMost(MEMORY),
        );
        report.holds("no frame arrives changed or twice", live.wrong == 0);
        report.datum("live", &live);
        Ok(())
    }
}
