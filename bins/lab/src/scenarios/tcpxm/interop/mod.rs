//! `tcpxm-kernel-interop`: the engine over IP protocol 6 and the kernel's own TCP, on the two ends of
//! one link.

mod group;
mod segments;
mod stage;
mod stories;

use crate::prelude::*;
use segments::Side;
use stage::{Role, Stage};

/// The TCP-XM engine over IP against the kernel's own TCP: loss, options, closing, windows, groups
#[derive(Debug, clap::Args)]
pub(crate) struct KernelInterop {
    /// KiB that each side sends the other (quick: 512)
    #[arg(long, default_value_t = 4096, default_value_if("quick", "true", "512"))]
    kib: usize,
}

/// One way; the round trip takes twice as long.
const DELAY: Duration = Duration::from_millis(2);
/// What waits for the link: the kernel's own limit is above it.
const QUEUE_BYTES: usize = 1 << 20;
/// Share of segments that others overtake.
const REORDERED: f64 = 0.03;

/// A link between the two.
struct Link {
    name: &'static str,
    loss: f64,
    reorder: f64,
}

const LINKS: [Link; 4] = [
    Link {
        name: "no loss",
        loss: 0.0,
        reorder: 0.0,
    },
    Link {
        name: "no loss, reordered",
        loss: 0.0,
        reorder: REORDERED,
    },
    Link {
        name: "1 % loss, reordered",
        loss: 0.01,
        reorder: REORDERED,
    },
    Link {
        name: "5 % loss, reordered",
        loss: 0.05,
        reorder: REORDERED,
    },
];

fn shape(loss: f64, reorder: f64) -> Shape {
    Shape {
        delay: DELAY,
        queue_bytes: QUEUE_BYTES,
        loss,
        reorder,
        ..Shape::default()
    }
}

impl Scenario for KernelInterop {
    const NAME: &'static str = "tcpxm-kernel-interop";
    const FIGURE: &'static str = "TCP-XM §2: a receiver may be any ordinary TCP (UnicastGroupOnly)";

    fn run(&self, context: &Context) -> Result<Report> {
        let kib: usize = self.kib;
        let mut report = Report::new(Self::NAME, "the engine and the kernel's TCP");
        transfers(context, &mut report, kib << 10)?;
        plain_kernel(context, &mut report, kib << 10)?;
        whole_segments(context, &mut report, kib << 10)?;
        closings(context, &mut report)?;
        group::run(context, &mut report, (kib << 10) * 2)?;
        report.note("the engine's segments travel in IP (protocol 6) through a raw socket, the kernel's own TCP on the other end of the link is as Linux ships it");
        report.note(
            "each transfer goes both ways at once on one connection, and every byte is compared",
        );
        report.note("what was negotiated is read from the segments captured at the engine's end");
        Ok(report)
    }
}

/// Adds a check that holds if the exchange succeeded; otherwise a note with the error.
fn check(report: &mut Report, name: impl Into<String>, story: Result<()>) {
    let name = name.into();
    if let Err(error) = &story {
        report.note(format!("{name}: {error:#}"));
    }
    report.holds(name, story.is_ok());
}

/// Data both ways, as client and as server, on every link.
fn transfers(context: &Context, report: &mut Report, bytes: usize) -> Result<()> {
    let mut table = Table::with_header(
        format!("{} KiB each way, round trip 4 ms", bytes >> 10),
        "link | the engine is | s | segments | engine's SACKs | kernel's SACKs | widest window \
         KiB",
    );
    for (number, link) in LINKS.iter().enumerate() {
        for role in [Role::Client, Role::Server] {
            // A network of its own: a FIN of the exchange before, sent again after a loss, would be
            // captured as the first segment of this one.
            let stage = Stage::new(shape(link.loss, link.reorder), number as u64 + 1)?;
            context.note(format!("{}, the engine as {}", link.name, role.label()));
            let name = format!(
                "{}: data both ways, the engine as {}",
                link.name,
                role.label()
            );
            let watch = stage.watch()?;
            let began = Instant::now();
            let story = stories::exchange(&stage, role, bytes);
            let seconds = began.elapsed().as_secs_f64();
            let seen = watch.finish()?;
            check(report, name, story);
            let sacks = |side| seen.count(|segment| segment.from == side && segment.sacks > 0);
            table.row([
                link.name.into(),
                role.label().into(),
                Cell::number(seconds, 2),
                seen.all.len().into(),
                sacks(Side::Engine).into(),
                sacks(Side::Kernel).into(),
                (seen.widest_window() >> 10).into(),
            ]);
            let name =
                |what: &str| format!("{}: {what}, the engine as {}", link.name, role.label());
            seen.judge_options(report, &name, role, link.loss > 0.0);
        }
    }
    report.tables.push(table);
    Ok(())
}

/// A kernel whose TCP options are switched off: the engine must not use them.
fn plain_kernel(context: &Context, report: &mut Report, bytes: usize) -> Result<()> {
    let stage = Stage::new(shape(0.01, 0.0), 11)?;
    stage.switch_kernel_options_off()?;
    for role in [Role::Client, Role::Server] {
        context.note(format!(
            "a kernel without options, the engine as {}",
            role.label()
        ));
        let watch = stage.watch()?;
        let story = stories::exchange(&stage, role, bytes / 4);
        let seen = watch.finish()?;
        let kind = role.label();
        check(
            report,
            format!(
                "kernel without SACK, timestamps and scaling, 1 % loss: data both ways, the engine as {kind}"
            ),
            story,
        );
        let used = |segment: &segments::Seen| segment.timestamps || segment.sacks > 0;
        let unasked = seen.count(|segment| !segment.syn && used(segment));
        report.holds(
            format!("kernel without options: none is used, the engine as {kind}"),
            unasked == 0 && !seen.all.is_empty(),
        );
    }
    Ok(())
}

/// On a plain wire the kernel hands over several segments as one, their checksums not computed.
fn whole_segments(context: &Context, report: &mut Report, bytes: usize) -> Result<()> {
    context.note("a wire with segmentation offloads");
    let stage = Stage::new(Shape::default(), 12)?;
    for role in [Role::Client, Role::Server] {
        let name = format!(
            "a wire with offloads, segments of up to 64 KiB: data both ways, the engine as {}",
            role.label()
        );
        check(report, name, stories::exchange(&stage, role, bytes * 4));
    }
    Ok(())
}

/// How connections end, and what a closed window does.
fn closings(context: &Context, report: &mut Report) -> Result<()> {
    let stage = Stage::new(shape(0.0, 0.0), 13)?;
    for role in [Role::Client, Role::Server] {
        for (what, story) in stories::ENDINGS {
            context.note(format!("{what}, the engine as {}", role.label()));
            let name = format!("{what}, the engine as {}", role.label());
            check(report, name, story(&stage, role));
        }
    }
    for (what, story) in stories::REFUSALS {
        context.note(*what);
        check(report, *what, story(&stage));
    }
    for (what, story) in stories::WINDOWS {
        context.note(*what);
        check(report, *what, story(&stage));
    }
    Ok(())
}
