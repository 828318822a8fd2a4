//! `dyram-election`: the cost of finding a replier (DyRAM Figure 5).

use super::timed_relay::{TimedRelay, quantile};
use crate::prelude::*;

/// What it costs to find a replier among 5 to 4096 receivers, when all but one lost the packet
#[derive(Debug, clap::Args)]
pub(crate) struct Election {
    /// NACKs for each size (quick: 20000)
    #[arg(
        long,
        default_value_t = 400_000,
        default_value_if("quick", "true", "20000")
    )]
    nacks: usize,
}

/// Receivers below the relay: the paper's numbers, and more.
const GROUPS: [u16; 7] = [5, 10, 15, 20, 25, 256, 4096];
/// Groups of this size and larger are not drawn.
const LARGE: u16 = 256;

impl Scenario for Election {
    const NAME: &'static str = "dyram-election";
    const FIGURE: &'static str = "DyRAM Figure 5";
    const NEEDS: &'static [Need] = &[];

    fn run(&self, _: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "election on the fly, nanoseconds for a NACK");
        let nacks: usize = self.nacks;
        let columns = "receivers | the default replier's | 99 % | any, first to last | 99 % | any, last to \
             first | 99 % | when the delay is over";
        let mut table = Table::with_header(
            "all but the last lost the packet: median of a NACK, ns",
            columns,
        );
        let mut plot = Plot::lines(
            "NACKs from the first receiver on",
            "receivers scanned",
            "ns",
        );
        let mut moved = Vec::new();
        for receivers in GROUPS {
            let up = Trial::run(receivers, nacks, false)?;
            let mut down = Trial::run(receivers, nacks, true)?;
            // Only the default replier's own NACK makes another one the replier, and it comes last.
            let mut default = std::mem::take(&mut down.last);
            let (mut each, mut reverse) = (up.each, down.each);
            moved.push(quantile(&mut each, 0.5));
            table.row([
                u64::from(receivers).into(),
                Cell::number(quantile(&mut default, 0.5), 0),
                Cell::number(quantile(&mut default, 0.99), 0),
                Cell::number(quantile(&mut each, 0.5), 0),
                Cell::number(quantile(&mut each, 0.99), 0),
                Cell::number(quantile(&mut reverse, 0.5), 0),
                Cell::number(quantile(&mut reverse, 0.99), 0),
                Cell::number(quantile(&mut down.decided, 0.5), 0),
            ]);
            if receivers < LARGE {
                let points = up.by_place.into_iter().zip(1u16..);
                let points =
                    points.map(|(mut times, place)| (f64::from(place), quantile(&mut times, 0.5)));
                plot = plot.series(&format!("{receivers} receivers"), points);
            }
        }
        report.tables.push(table);
        report.plots.push(plot);
        let ratio = moved.last().copied().unwrap_or(f64::NAN) / moved[0];
        let name = "a NACK that moves the replier on, 4096 receivers over 5";
        report.timed(name, ratio, "", Bound::AtMost(1.1));
        report.note("first to last: each NACK is that of the replier chosen so far, which moves on to the next");
        report.note("last to first: the default replier stays until its own NACK, the last, makes one look for the only \
                     one left: a bit set of the losers is read, 64 receivers at a time");
        report.note("the paper: finding a replier after 4 tries takes 30 us more among 25 receivers than among 5");
        Ok(report)
    }
}

/// Times of NACKs, nanoseconds.
#[derive(Default)]
struct Trial {
    /// All but the first, which makes the state.
    each: Vec<f64>,
    last: Vec<f64>,
    /// By place in the order.
    by_place: Vec<Vec<f64>>,
    /// When the delay to decide is over, and the NACK to the replier is written.
    decided: Vec<f64>,
}

impl Trial {
    /// All receivers but the last one ask, in order of their numbers or against it.
    fn run(receivers: u16, nacks: usize, reverse: bool) -> Result<Trial> {
        let mut relay = TimedRelay::new(receivers)?;
        let losers = receivers - 1;
        let mut trial = Trial {
            by_place: vec![Vec::new(); usize::from(losers)],
            ..Trial::default()
        };
        relay.data(1, b"first")?;
        for seq in 2..2 + nacks.div_ceil(usize::from(losers)) as u32 {
            relay.data(seq, b"data")?;
            for place in 0..losers {
                let loser = if reverse { losers - 1 - place } else { place };
                let took = relay.nack(loser, seq)?;
                trial.by_place[usize::from(place)].push(took);
                if place > 0 {
                    trial.each.push(took);
                }
                if place + 1 == losers {
                    trial.last.push(took);
                }
            }
            trial.decided.push(relay.pass(2)?);
            for _ in 0..12 {
                relay.pass(10)?;
            }
        }
        Ok(trial)
    }
}
