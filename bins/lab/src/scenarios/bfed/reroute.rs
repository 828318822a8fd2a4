//! `bfed-reroute`: links between gateways go silent, and a gateway dies: trees move to other ways.
//!
//! ```text
//!        1 --- 1          1: the source's network; 4: the viewers'
//!       /       \
//!      1         2 --- 4     the way through 2 costs less than that through 3
//!       \       /
//!        +- 3 -+
//! ```

use super::federation::{Design, Federation, Kind, Part, Peering};
use super::under_way::{Load, PAUSE, ViewerOutcome, millis, sessions};
use crate::prelude::*;

/// Links between gateways go silent, a gateway dies: trees move, and how long viewers wait
#[derive(Debug, clap::Args)]
pub(crate) struct Reroute {
    /// Sessions, half bulk data, half real-time (quick: 2)
    #[arg(long, default_value_t = 6, default_value_if("quick", "true", "2"))]
    sessions: usize,
    /// Bit/s of each
    #[arg(long, default_value_t = 2_000_000)]
    rate: u64,
}

/// The islands by their places: the near way leads through `NEAR`, the other through `FAR`.
const SOURCE: usize = 0;
const NEAR: usize = 1;
const FAR: usize = 2;
const END: usize = 3;
/// Where viewers are: on the way, and at its end.
const VIEWERS: [usize; 2] = [NEAR, END];
/// Sessions flow again within, milliseconds: six heartbeats of 250 ms until a data node's silence counts,
/// and the time for route updates (100 ms at each gateway) and for joining.
const TARGET_MS: f64 = 2500.0;

/// What breaks.
#[derive(Clone, Copy, Debug)]
enum Break {
    Last,
    First,
    Gateway,
}

impl Break {
    const ALL: [Break; 3] = [Break::Last, Break::First, Break::Gateway];

    fn words(self) -> &'static str {
        match self {
            Break::Last => "link 2-4 silent",
            Break::First => "link 1-2 silent",
            Break::Gateway => "gateway 2 killed (-9)",
        }
    }

    /// Islands whose viewers are affected and have another path.
    fn strikes(self) -> &'static [usize] {
        match self {
            Break::Last | Break::Gateway => &[END],
            Break::First => &VIEWERS,
        }
    }

    fn strike(self, federation: &mut Federation) -> Result<()> {
        match self {
            Break::Last => federation.cut_between(NEAR, END, true),
            Break::First => federation.cut_between(SOURCE, NEAR, true),
            Break::Gateway => federation.signal(Part::All(NEAR), Signal::SIGKILL),
        }
    }

    fn heal(self, federation: &mut Federation) -> Result<()> {
        match self {
            Break::Last => federation.cut_between(NEAR, END, false),
            Break::First => federation.cut_between(SOURCE, NEAR, false),
            Break::Gateway => federation.start(Part::All(NEAR)),
        }
    }
}

impl Scenario for Reroute {
    const NAME: &'static str = "bfed-reroute";
    const FIGURE: &'static str = "Broadcast Federation §5.1, §5.2.3: trees follow routes";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "trees move when links and gateways die");
        let mut federation = build()?;
        federation.settle()?;
        let names = sessions(self.sessions);
        let load = Load::start(&federation, names, &VIEWERS, self.rate)?;
        let mut table = Table::with_header(
            "until data comes again",
            "what breaks | viewers struck | mean ms | longest ms | back: longest pause ms",
        );
        let (mut means, mut mosts) = (Vec::new(), Vec::new());
        for broken in Break::ALL {
            let words = broken.words();
            on_the_near_way(&federation, load.sessions.len())?;
            context.note(words);
            let then = Instant::now();
            broken.strike(&mut federation)?;
            std::thread::sleep(Duration::from_millis(1000));
            let flows = wait_for(&load, broken.strikes(), then);
            let outcomes = load.since(then);
            let struck = outcomes.iter();
            let struck = struck.filter(|outcome| broken.strikes().contains(&outcome.island));
            let again: Vec<Option<f64>> = struck.map(ViewerOutcome::again_ms).collect();
            let times = again.iter().flatten().copied();
            let (mean, longest) = (mean(times.clone()), most(times));
            let name = format!("{words}: every session that can flows again");
            report.holds(name, flows);
            let name = format!("{words}: sessions flow again within");
            let within = if flows { longest } else { f64::INFINITY };
            report.timed(name, within, "ms", Bound::AtMost(TARGET_MS));
            let healed = Instant::now();
            broken.heal(&mut federation)?;
            on_the_near_way(&federation, load.sessions.len())?;
            report.holds(
                format!("{words}, and back: everything flows on the near way"),
                load.flows_again(),
            );
            let back = load.since(healed);
            let back = back.iter().filter(|outcome| outcome.island == END);
            let back = most(back.map(|outcome| millis(outcome.seen.pause)));
            table.row([
                words.into(),
                again.len().into(),
                Cell::number(mean, 0),
                Cell::number(longest, 0),
                Cell::number(back, 0),
            ]);
            means.push(mean);
            mosts.push(longest);
            report.datum(
                &format!("{broken:?}").to_lowercase(),
                json!({"again_ms": again, "back_pause_ms": back}),
            );
        }
        let names = Break::ALL.map(Break::words);
        let plot = Plot::bars("until data comes again", "ms", names);
        let plot = plot.heights("mean", means).heights("longest", mosts);
        report.plots.push(plot);
        report.tables.push(table);
        load.stop()?;
        report.holds("gateways end in an orderly way", federation.stop());
        report.note(
            "hold time 90 s and restart time 120 s, as they are unless told otherwise; links between \
             gateways 5 ms; a silent link drops everything and tells nobody; the near way is 1-2-4, the \
             other 1-3-4; viewers in 2 and 4",
        );
        Ok(report)
    }
}

fn build() -> Result<Federation> {
    let designs = [Kind::Ip; 4].map(Design::new);
    let far = |a, b| Peering {
        between: (a, b),
        cost: 2,
    };
    let peerings = [
        Peering::new(SOURCE, NEAR),
        Peering::new(NEAR, END),
        far(SOURCE, FAR),
        far(FAR, END),
    ];
    let shape = Shape::default().delayed(Duration::from_millis(5));
    let mut federation =
        Federation::build(&designs, &peerings, shape, "[timers]\nretry = \"500ms\"\n")?;
    federation.start_all()?;
    Ok(federation)
}

/// Waits until all trees are where the routes are best.
fn on_the_near_way(federation: &Federation, count: usize) -> Result<()> {
    for (at, upstream) in [(NEAR, "1.1"), (END, "2.1")] {
        federation.until(Part::All(at), "sessions", |sessions| {
            let rows = sessions["sessions"].as_array().into_iter().flatten();
            let there = |row: &&Value| row["attached"] == true && text(row, "upstream") == upstream;
            rows.filter(there).count() == count
        })?;
    }
    Ok(())
}

/// Waits until viewers of these islands have data again; returns whether they have. Data that was in flight
/// when it broke does not count.
fn wait_for(load: &Load, islands: &[usize], then: Instant) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(15) {
        let outcomes = load.since(then);
        let mut struck = outcomes
            .iter()
            .filter(|outcome| islands.contains(&outcome.island));
        if struck.all(|outcome| outcome.seen.again.is_some() && outcome.seen.ago < PAUSE) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
