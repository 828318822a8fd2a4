//! `tcpxm-vs-tcp`: a session beside a kernel TCP flow (§4.1, Figure 11).

use super::super::stage::Stage;
use super::super::stage::copy::{Copied, Copying, Running};
use super::super::stage::endless::Flow;
use super::testbed::{Pc, Session, Testbed};
use crate::prelude::*;

/// A session of mcp and a kernel TCP flow share a link
#[derive(Debug, clap::Args)]
pub(crate) struct Versus {
    /// Size of the file in MB (quick: 4)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "4"))]
    mb: u64,
    /// Congestion control of mcp: cubic or newreno
    #[arg(long, default_value = "cubic")]
    cc: String,
    /// Most microseconds that a link holds a frame up by chance
    #[arg(long, default_value_t = 1514)]
    jitter_us: u64,
    /// For how long a kernel TCP flow is in mcp's place first (quick: 0)
    #[arg(long, default_value_t = 60, default_value_if("quick", "true", "0"))]
    control_seconds: u64,
}

const RATE_BPS: u64 = 8_000_000;
const FILE_MB: u64 = 64;
/// Least and largest share of each, in per cent.
const TARGET: (f64, f64) = (40.0, 60.0);
const PORT: u16 = 7_002;
/// Kernel TCP pins this control; what the machine's default is does not matter.
const CONTROL: &str = "cubic";
/// Both have started by then, and slow start is over; seconds.
const SETTLE: f64 = 5.0;
const SAMPLE: Duration = Duration::from_millis(200);

impl Scenario for Versus {
    const NAME: &'static str = "tcpxm-vs-tcp";
    const FIGURE: &'static str = "TCP-XM Figure 11";

    fn run(&self, context: &Context) -> Result<Report> {
        let &Self {
            mb: megabytes,
            cc: ref control,
            jitter_us: jitter,
            control_seconds: seconds,
            ..
        } = self;
        let mut report = Report::new(Self::NAME, "a session beside a TCP flow");
        let mut testbed = build(Duration::from_micros(jitter), megabytes * 1_000_000)?;
        let columns = ["in PC-C's place", "Mbit/s", "kernel TCP, X to A", "share %"];
        let mut table = Table::new("shares of link A (Figure 11)", &columns);
        if seconds > 0 {
            context.note("kernel TCP from C and from X");
            let (ours, other) = kernels(&testbed.stage, seconds)?;
            row(&mut table, "kernel TCP, C to A", ours, other);
        }
        context.note("mcp from C, kernel TCP from X");
        let (copied, tcp) = play(&mut testbed, control)?;
        let whole = copied.hosts.iter().all(|host| host.whole);
        report.holds("both copies are whole", whole);
        let until = copied.seconds;
        let settle = SETTLE.min(until / 4.0);
        let rate = |progress: &[(f64, u64)]| mean_rate(progress, settle, until);
        let ours = &copied.hosts[0].progress;
        let share = row(&mut table, "TCP-XM, C to A and B", rate(ours), rate(&tcp));
        if !context.quick {
            let (least, most) = TARGET;
            report.check("TCP-XM's share", share, "%", Bound::AtLeast(least));
            report.check("TCP-XM's share", share, "%", Bound::AtMost(most));
        }
        report.tables.push(table);
        let plot = Plot::lines("flows (Figure 11)", "s", "Mbit/s")
            .series("TCP-XM", super::rates(ours))
            .series("TCP", super::rates(&tcp));
        report.plots.push(plot);
        report.datum("copy", &copied);
        report.datum("TCP", &tcp);
        report.note(format!(
            "every link carries 8 Mbit/s, 5 ms of delay each way and up to {jitter} us more, a queue of \
             50 packets, no loss; TCP is the kernel's, {CONTROL}, mcp has --congestion {control}; goodput from \
             {settle:.0} s to the end of mcp at {until:.0} s; paper: both take approximately 50 % \
             ({FILE_MB} MB)"
        ));
        Ok(report)
    }
}

/// Two rates beside each other; the first one's share in per cent.
fn row(table: &mut Table, what: &str, ours: f64, other: f64) -> f64 {
    let share = 100.0 * ours / (ours + other);
    table.row([
        what.into(),
        Cell::number(ours, 2),
        Cell::number(other, 2),
        Cell::number(share, 1),
    ]);
    share
}

/// Mbit/s from one time (seconds) to another.
fn mean_rate(progress: &[(f64, u64)], from: f64, to: f64) -> f64 {
    let bytes = super::reached(progress, to) - super::reached(progress, from);
    bytes * 8.0 / (to - from) / 1e6
}

fn build(jitter: Duration, bytes: u64) -> Result<Testbed> {
    let session = Session {
        group: Ipv4Addr::new(239, 192, 11, 1),
        to: [Pc::A, Pc::B],
    };
    let shape = Shape {
        jitter,
        ..Shape::default()
    };
    let mut testbed = Testbed::build(&[session], shape, bytes)?;
    testbed.all(RATE_BPS)?;
    Ok(testbed)
}

/// What a kernel TCP flow in mcp's place and the other one have, in Mbit/s.
fn kernels(stage: &Stage, seconds: u64) -> Result<(f64, f64)> {
    let x = stage.receivers[Pc::X as usize];
    let flows = [to_a(stage, x, PORT)?, to_a(stage, stage.sender, PORT + 1)?];
    std::thread::sleep(Duration::from_secs_f64(SETTLE));
    let read = || flows.each_ref().map(Flow::delivered);
    let (began, before) = (Instant::now(), read());
    std::thread::sleep(Duration::from_secs(seconds));
    let (took, after) = (began.elapsed().as_secs_f64(), read());
    for flow in flows {
        flow.end()?;
    }
    let rate = |flow: usize| (after[flow] - before[flow]) as f64 * 8.0 / took / 1e6;
    Ok((rate(1), rate(0)))
}

/// The copy, and how many bytes the TCP flow had delivered when, from the start of mcp.
fn play(testbed: &mut Testbed, control: &str) -> Result<(Copied, Vec<(f64, u64)>)> {
    let stage = &mut testbed.stage;
    let flow = to_a(stage, stage.receivers[Pc::X as usize], PORT)?;
    let copying = Copying {
        receivers: vec![Pc::A as usize, Pc::B as usize],
        ..Copying::default()
    };
    let group = ["--group", "239.192.11.1", "--congestion", control];
    let running = Running::start(stage, &copying.send(&group))?;
    let began = running.sender.started();
    let mut progress = Vec::new();
    let mut next = Instant::now();
    let copied = running.finish(stage, |running, _| {
        if Instant::now() >= next {
            next += SAMPLE;
            progress.push((running.elapsed(), flow.delivered()));
        }
        Ok(())
    })?;
    progress.push((began.elapsed().as_secs_f64(), flow.delivered()));
    flow.end()?;
    Ok((copied, progress))
}

/// A kernel TCP flow to PC-A.
fn to_a(stage: &Stage, from: NodeId, port: u16) -> Result<Flow> {
    let a = stage.receivers[Pc::A as usize];
    Flow::start(&stage.network, (from, a), port, CONTROL)
}
