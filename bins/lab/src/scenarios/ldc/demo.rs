//! `lab demo ldc`: live layers over a link that carries less than their rate, by plain TCP and with late data
//! choice side by side.
//!
//! ```text
//! plain TCP          sender ---- receiver      3 Mbit/s each, for a stream of 6 Mbit/s
//! late data choice   sender ---- receiver
//! ```

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lanes::{Lanes, Outcome};
use netlab::Shape;
use sims::bars::Bars;
use sims::report::{Bound, Cell, Report, Table};
use sims::scenario::Context;

const NAMES: [&str; 2] = ["plain TCP", "late data choice"];
/// What the links carry, bit/s.
const LINK_BPS: u64 = 3_000_000;
/// Eight layers of the stream, bit/s each: 6 Mbit/s in all.
const LAYER_BPS: u64 = 750_000;
/// How long the receivers listen, seconds.
const SECONDS: u64 = 16;

/// Runs both streams at the same time.
pub(crate) fn run(context: &Context) -> Result<Report> {
    let seconds = if context.quick { 6 } else { SECONDS };
    let mut report = Report::new("demo", "live layers over a slow link");
    context.note("sender ---- receiver, twice    a live stream of 8 layers, 6 Mbit/s,");
    context.note("                               over a link of 3 Mbit/s");
    let shape = Shape {
        delay: Duration::from_millis(10),
        rate_bps: LINK_BPS,
        queue_bytes: 64 << 10,
        ..Shape::default()
    };
    let lanes = Lanes::build(&[shape; 2], 1)?;
    let mut args = vec![
        "--layer-rate".to_owned(),
        LAYER_BPS.to_string(),
        "--congestion".to_owned(),
        "cubic".to_owned(),
    ];
    let late = lanes.start(1, &args, seconds)?;
    args.push("--no-ldc".to_owned());
    let plain = lanes.start(0, &args, seconds)?;
    let streams = [plain, late];
    let mut bars = Bars::new(context, NAMES, seconds);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(250));
        bars.show(streams.iter().map(|stream| {
            let playable = stream.progress()["playable_s"].as_f64().unwrap_or(0.0);
            (playable as u64, format!("{playable:.0} s playable"))
        }));
    }
    let limit = Duration::from_secs(10);
    let [plain, late] = streams.map(|stream| stream.finish(limit));
    let outcomes = [plain?, late?];
    // The end settles the last window.
    bars.show(outcomes.iter().map(|end| {
        let whole = end.playable_s as u64;
        (whole, format!("{:.0} s playable", end.playable_s))
    }));
    bars.done();
    report.tables.push(table(&outcomes));
    report.note("playable: the base layer was complete at most a second after its time");
    report.note("plain TCP delivers everything in order, later and later; with late data");
    report.note("choice the sender drops what would be late, the highest layer first");
    let [plain, late] = &outcomes;
    let whole = late.windows as f64;
    let name = "playable with late data choice";
    report.timed(name, late.playable_s, "s", Bound::AtLeast(whole));
    if !context.quick {
        let name = "playable with plain TCP";
        report.timed(name, plain.playable_s, "s", Bound::AtMost(whole / 2.0));
    }
    let sound = outcomes.iter().all(|end| end.windows > 0);
    report.holds("both receivers measured", sound);
    report.conclusion = format!(
        "With late data choice {:.0} of {} s can be played, with plain TCP {:.0}.",
        late.playable_s, late.windows, plain.playable_s
    );
    report.datum("outcomes", &outcomes);
    Ok(report)
}

fn table(outcomes: &[Outcome; 2]) -> Table {
    let columns = "sender | playable s | of | layers usable | median age s | received MB";
    let mut table = Table::with_header("two streams", columns);
    for (name, outcome) in NAMES.into_iter().zip(outcomes) {
        let age = outcome.age_ms.map_or(f64::NAN, |age| age.p50 / 1e3);
        table.row([
            name.into(),
            Cell::number(outcome.playable_s, 0),
            outcome.windows.into(),
            Cell::number(outcome.usable_layers, 1),
            Cell::number(age, 1),
            Cell::number(outcome.bytes as f64 / 1e6, 1),
        ]);
    }
    table
}
