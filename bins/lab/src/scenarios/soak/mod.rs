//! `soak`: the programs under load for a chosen time, while some of them are disturbed, and the memory and descriptors
//! that the others use.
//!
//! | from the start to the end, and sampled | repeatedly |
//! | --- | --- |
//! | `lms-router`, `dyram-relay`, two `mcpd`; `lms-send` and two `lms-recv` with an endless stream; `ldc-stream` at both ends; a control node, a data node, a source and a viewer of a federation | files by `lms-send` to two `lms-recv`, with LMS and through relays; copies by `mcp` to two `mcpd`, one of them started for each; two viewers that join the federation's session and leave |
//!
//! | what is disturbed (`list.rs` has each, and what it must lead to) | how |
//! | --- | --- |
//! | a second `lms-router`, a second `dyram-relay`, the control node and a data node of a second gateway | restarted or killed and started again; frozen (SIGSTOP) for a short and for a long time: the transfers above succeed nevertheless |
//! | `lms-recv` with LMS and with a relay, `mcpd`, `ldc-stream recv`, `bfed-join recv` | frozen, shorter and longer than peers wait: it catches up, or it is dropped with an error that both ends name |
//! | the same, but for relays | a full disk: an error that names it at both ends, and the next transfer succeeds when the disk was freed |
//!
//! Daemons write neither logs nor state to a disk, except empty files beside their status socket.
//!
//! Memory is a process's own (`RssAnon` and `RssShmem`). The first fifth of the time is
//! warm-up; after it the slope by least squares is compared with a bound. The noise of such a slope
//! falls with the time: below ten minutes it is shown and not checked.

mod disk;
mod disturb;
mod list;
mod sample;
mod transfers;
mod world;

use crate::prelude::*;
use disturb::Lane;
use sample::{Sample, look, slope};
use world::World;

/// All programs under load; restarts, frozen peers, full disks: memory and descriptors stay flat
#[derive(Debug, clap::Args)]
pub(crate) struct Soak {
    /// How long, and until each disturbance was made (quick: 0.5)
    #[arg(long, default_value_t = 30.0, default_value_if("quick", "true", "0.5"))]
    #[arg(value_parser = within::<f64>(0.1..=100_000.0))]
    minutes: f64,
    /// Size of the files in MiB
    #[arg(long, default_value_t = 2)]
    mib: u64,
    /// Between two disturbances of a kind; there are seven kinds (quick: 0)
    #[arg(long, default_value_t = 30, default_value_if("quick", "true", "0"))]
    pause_seconds: u64,
}

/// Time between two turns of the main loop.
const TURN: Duration = Duration::from_millis(100);
/// Time between two samples of memory and descriptors.
const LOOK: Duration = Duration::from_secs(2);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(60);
/// Share of the time that does not count.
const WARM_UP: f64 = 0.2;
/// Slopes of shorter soaks are not checked.
const LEAST_MINUTES: f64 = 10.0;
/// A megabyte an hour: a leak for each session or packet is larger.
const KIB_A_MINUTE: f64 = 17.0;
/// One descriptor in twenty minutes: there are some ten transfers a minute.
const DESCRIPTORS_A_MINUTE: f64 = 0.05;

impl Scenario for Soak {
    const NAME: &'static str = "soak";

    fn run(&self, context: &Context) -> Result<Report> {
        let minutes: f64 = self.minutes;
        let pause = Duration::from_secs(self.pause_seconds);
        let mut lanes = list::LANES.map(Lane::new);
        let seconds = (minutes * 60.0) as u64;
        let mut world = World::start(seconds, self.mib << 20)?;
        let mut watched: Vec<(String, u32, Vec<Sample>)> = world
            .observed()
            .into_iter()
            .map(|(name, pid)| (name, pid, Vec::new()))
            .collect();
        let begin = Instant::now();
        let mut faults = Vec::new();
        let (mut looked, mut told) = (begin, begin);
        loop {
            let ends = begin.elapsed().as_secs() >= seconds;
            if ends && !lanes.iter().any(Lane::is_busy) {
                break;
            }
            let mut found = world.turn()?;
            for lane in &mut lanes {
                found.extend(lane.turn(&mut world, pause, ends)?);
            }
            for fault in found {
                let at = begin.elapsed().as_secs();
                context.note(format!("after {at} s: {fault}"));
                faults.push(fault);
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let at = begin.elapsed().as_secs_f64() / 60.0;
                for (_, pid, samples) in &mut watched {
                    samples.extend(look(*pid, at));
                }
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let gone = begin.elapsed().as_secs() / 60;
                context.note(format!("{gone} of {minutes} minutes"));
            }
            std::thread::sleep(TURN);
        }
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        Ok(report(minutes, &watched, &lanes, world.finish(faults)))
    }
}

fn report(
    minutes: f64,
    watched: &[(String, u32, Vec<Sample>)],
    lanes: &[Lane],
    tally: world::Tally,
) -> Report {
    let title = format!("{minutes:.1} minutes of load with disturbances");
    let mut report = Report::new("soak", title);
    let columns = "program | KiB after warm-up | KiB at the end | most KiB | KiB a minute | descriptors | \
         most | descriptors a minute";
    let mut table = Table::with_header("what each program has of its own", columns);
    let mut plot = Plot::lines("memory", "minutes", "KiB");
    for (name, _, samples) in watched {
        let after: Vec<Sample> = samples
            .iter()
            .copied()
            .filter(|sample| sample.minutes >= minutes * WARM_UP)
            .collect();
        let (Some(first), Some(last)) = (after.first(), after.last()) else {
            report.holds(format!("{name}: it was there to the end"), false);
            continue;
        };
        let kib = slope(after.iter().map(|one| (one.minutes, one.kib)));
        let descriptors = slope(after.iter().map(|one| (one.minutes, one.descriptors)));
        let most = |value: fn(&Sample) -> f64| most(after.iter().map(value));
        let (kib, descriptors) = (kib.unwrap_or(f64::NAN), descriptors.unwrap_or(f64::NAN));
        table.row([
            name.as_str().into(),
            Cell::number(first.kib, 0),
            Cell::number(last.kib, 0),
            Cell::number(most(|one| one.kib), 0),
            Cell::number(kib, 2),
            Cell::number(last.descriptors, 0),
            Cell::number(most(|one| one.descriptors), 0),
            Cell::number(descriptors, 4),
        ]);
        plot = plot.series(name, samples.iter().map(|one| (one.minutes, one.kib)));
        report.datum(
            name,
            json!({"kib_a_minute": kib, "descriptors_a_minute": descriptors, "samples": samples}),
        );
        if minutes >= LEAST_MINUTES {
            let words = format!("{name}: growth of memory");
            report.check(words, kib, "KiB/min", Bound::AtMost(KIB_A_MINUTE));
            let words = format!("{name}: growth of descriptors");
            report.check(
                words,
                descriptors,
                "1/min",
                Bound::AtMost(DESCRIPTORS_A_MINUTE),
            );
        }
    }
    report.tables.push(table);
    report.plots.push(plot);
    let mut rounds = Table::new("transfers", &["what", "made"]);
    for (name, done) in &tally.rounds {
        rounds.row([(*name).into(), (*done).into()]);
        report.holds(format!("{name}: at least one was made"), *done > 0);
    }
    report.tables.push(rounds);
    let columns = "what | made | as expected";
    let mut disturbances = Table::with_header("disturbances", columns);
    for (name, tally) in lanes.iter().flat_map(Lane::tallies) {
        disturbances.row([name.into(), tally.made.into(), tally.as_expected.into()]);
    }
    report.tables.push(disturbances);
    for fault in &tally.faults {
        report.note(fault);
    }
    report.check(
        "faults: transfers and programs that did not do what was expected",
        tally.faults.len() as f64,
        "",
        Bound::Exactly(0.0),
    );
    report
}
