//! `bfed-frame-size`: what one data node forwards, by the length of frames.

use super::load::{Facts, Flow, Load, Relay, Splice, Stage, has_haproxy};
use super::rounds::prepare;
use crate::prelude::*;

/// Throughput of one session through one data node, by the length of its frames
#[derive(Debug, clap::Args)]
pub(crate) struct FrameSize {
    /// What the data node gets of a core, in percent
    #[arg(long, default_value_t = 20.0, value_parser = within::<f64>(1.0..=100.0))]
    share: f64,
    /// Time that is measured, for each length (quick: 0.4)
    #[arg(long, default_value_t = 2.0, default_value_if("quick", "true", "0.4"))]
    seconds: f64,
    /// Times that each length is measured; the median counts (quick: 1)
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=1_000_000))]
    rounds: usize,
}

/// From a voice frame to the longest.
const FRAMES: [usize; 9] = [
    256,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64_000,
];
/// Where the paper's throughput no longer grew.
const SATURATED: usize = 16 << 10;

impl Scenario for FrameSize {
    const NAME: &'static str = "bfed-frame-size";
    const FIGURE: &'static str = "Broadcast Federation §6.2, Figure 11";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "one session, one data node");
        let stage = prepare(self.share, &mut report)?;
        let &Self {
            seconds, rounds, ..
        } = self;
        let frames: Vec<usize> = match context.quick {
            true => vec![FRAMES[0], SATURATED],
            false => FRAMES.to_vec(),
        };
        let measured = Measured::take(context, &stage, frames, rounds, seconds)?;
        let line = measured.describe(context, &mut report);
        let plot = Plot::lines("one session, one data node", "bytes of a frame", "Mbit/s");
        report
            .plots
            .push(plot.series("data node", line).log(true, false));
        report.holds(
            "every byte arrives, as it was sent",
            measured.facts.iter().all(Facts::hold),
        );
        report.datum("flows", &measured.flows);
        report.datum("haproxy", &measured.beside);
        report.note(
            "the paper (§6.2): throughput grows with the length of frames, and no longer from about \
             16 KB on",
        );
        Ok(report)
    }
}

/// All rounds.
struct Measured {
    frames: Vec<usize>,
    /// Of each length.
    flows: Vec<Vec<Flow>>,
    facts: Vec<Facts>,
    /// haproxy, where it is installed.
    beside: Vec<Flow>,
}

impl Measured {
    fn take(
        context: &Context,
        stage: &Stage,
        frames: Vec<usize>,
        rounds: usize,
        seconds: f64,
    ) -> Result<Measured> {
        let mut flows: Vec<Vec<Flow>> = frames.iter().map(|_| Vec::new()).collect();
        let (mut facts, mut beside): (Vec<Facts>, Vec<Flow>) = Default::default();
        for round in 1..=rounds {
            for (frame, flows) in frames.iter().zip(&mut flows) {
                context.note(format!("frames of {frame} bytes, round {round}"));
                let (flow, fact) = stage.play(Load::one(Relay::DataNodes, *frame), seconds)?;
                flows.push(flow);
                facts.push(fact);
            }
            if has_haproxy() {
                let relay = Relay::Haproxy(Splice::Off);
                beside.push(stage.play(Load::one(relay, SATURATED), seconds)?.0);
            }
        }
        Ok(Measured {
            frames,
            flows,
            facts,
            beside,
        })
    }

    /// The table and its check; throughput by length.
    fn describe(&self, context: &Context, report: &mut Report) -> Vec<(f64, f64)> {
        let Measured {
            frames,
            flows,
            beside,
            ..
        } = self;
        let rate = |flows: &[Flow]| median(flows.iter().map(Flow::bps));
        let work = |flows: &[Flow]| median(flows.iter().map(Flow::bits_per_cpu_s));
        let mut table = Table::with_header(
            "one session, one data node",
            "frame, bytes | Mbit/s | frames/s | Gbit for 1 s of a core",
        );
        let mut line = Vec::new();
        for (&frame, flows) in frames.iter().zip(flows) {
            table.row([
                frame.into(),
                Cell::number(rate(flows) / 1e6, 1),
                Cell::number(
                    rate(flows) / 8.0 / (frame + bfed::data::HEADER_LEN) as f64,
                    0,
                ),
                Cell::number(work(flows) / 1e9, 2),
            ]);
            line.push((frame as f64, rate(flows) / 1e6));
        }
        if !beside.is_empty() {
            table.row([
                "haproxy, no frames".into(),
                Cell::number(rate(beside) / 1e6, 1),
                "-".into(),
                Cell::number(work(beside) / 1e9, 2),
            ]);
        }
        report.tables.push(table);
        let most = most(flows.iter().map(|flows| work(flows)));
        let saturated = frames.iter().position(|&frame| frame == SATURATED);
        if let Some(at) = saturated.filter(|_| !context.quick) {
            let name = format!("frames of {SATURATED} bytes / the best length");
            report.timed(name, work(&flows[at]) / most, "", Bound::AtLeast(0.8));
        }
        line
    }
}
