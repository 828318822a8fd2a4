//! `ldc-notify`: when the sender notifies the drain of new data (§4.2.4).

use super::loopback::{Notify as When, Run, late};
use crate::prelude::*;

/// The loop of send and notify that held the thesis to 250 kbit/s, and ours
#[derive(Debug, clap::Args)]
pub(crate) struct Notify {
    /// Bytes of a stream in MiB (quick: 32)
    #[arg(long, default_value_t = 1024, default_value_if("quick", "true", "32"))]
    #[arg(value_parser = within::<u64>(1..=1 << 20))]
    mib: u64,
    /// Streams of each kind, the median counts (quick: 1)
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = within::<usize>(1..=1_000))]
    rounds: usize,
}

const WAYS: [(&str, When); 3] = [
    (
        "each message, and wait until it has left",
        When::EachAndWait,
    ),
    ("each message", When::Each),
    ("when the ring is full", When::WhenFull),
];
const SIZES: [usize; 2] = [1_460, 16_384];

impl Scenario for Notify {
    const NAME: &'static str = "ldc-notify";
    const FIGURE: &'static str = "LDC thesis, §4.2.4";
    const NEEDS: &'static [Need] = &[];

    fn run(&self, context: &Context) -> Result<Report> {
        let bytes = self.mib << 20;
        let rounds: usize = self.rounds;
        let mut report = Report::new(
            Self::NAME,
            "messages over loopback, by when the drain is woken",
        );
        let mut table = Table::with_header(
            "median of the rounds",
            "message, bytes | notified | Mbit/s | wake-ups for 1,000 messages",
        );
        for size in SIZES {
            let mut rates = Vec::new();
            for (name, when) in WAYS {
                context.note(format!("{size} bytes, {name}"));
                // The slow one would take the longest by far.
                let bytes = if when == When::EachAndWait {
                    bytes / 16
                } else {
                    bytes
                };
                let runs: Vec<Run> = (0..rounds)
                    .map(|_| late(size, bytes.max(1 << 20), when))
                    .collect::<Result<_>>()?;
                let of = |figure: fn(&Run) -> f64| median(runs.iter().map(figure));
                let rate = of(|run| run.bps / 1e6);
                table.row([
                    size.into(),
                    name.into(),
                    Cell::number(rate, 0),
                    Cell::number(of(Run::wakes_per_1000), 2),
                ]);
                rates.push(rate);
                report.datum(&format!("{size} bytes, {name}"), &runs);
            }
            let name = format!("{size} bytes: notified for each message / when full");
            report.timed(name, rates[1] / rates[2], "", Bound::AtLeast(0.5));
            let name = format!("{size} bytes: notified for each message");
            report.timed(name, rates[1], "Mbit/s", Bound::AtLeast(250.0));
        }
        report.tables.push(table);
        report.note(
            "the thesis: 250 kbit/s with 1,460 bytes and a notification for each message, above 3 Gbit/s when \
             the ring is filled first",
        );
        report.note("a notification is a system call here only when the drain sleeps");
        Ok(report)
    }
}
