//! `dyram-services`: what a data packet, a NACK and a repair cost a relay (DyRAM Figure 4).

use super::timed_relay::{TimedRelay, quantile};
use crate::prelude::*;

/// What a data packet, a NACK and a repair cost a relay, with and without loss, 1 to 32 KiB
#[derive(Debug, clap::Args)]
pub(crate) struct Services {
    /// Data packets of each size (quick: 5000)
    #[arg(
        long,
        default_value_t = 100_000,
        default_value_if("quick", "true", "5000")
    )]
    #[arg(value_parser = within::<u32>(1_000..=10_000_000))]
    packets: u32,
}

/// One packet in this many is lost between the source and the relay.
const LOST: u32 = 25;
/// Receivers below, as in the paper's first topology.
const RECEIVERS: u16 = 2;
/// Sizes of messages, KiB.
const SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Packets drawn.
const DRAWN: u32 = 200;
/// The size drawn, as in the paper.
const DRAWN_SIZE: u32 = 4;

/// Times by service, nanoseconds.
#[derive(Default)]
struct Times {
    data: Vec<f64>,
    gap: Vec<f64>,
    nack: Vec<f64>,
    repair: Vec<f64>,
    /// The first ones of each, with the data packet's number at that time.
    curves: [Vec<(f64, f64)>; 3],
}

impl Scenario for Services {
    const NAME: &'static str = "dyram-services";
    const FIGURE: &'static str = "DyRAM Figure 4";
    const NEEDS: &'static [Need] = &[];

    fn run(&self, _: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "processing times at a relay, nanoseconds");
        let packets: u32 = self.packets;
        let columns = "KiB | loss | data | 99 % | after a gap | 99 % | NACK | 99 % | repair | 99 %";
        let mut table = Table::with_header("median and 99 % of each service, ns", columns);
        let mut in_order = Vec::new();
        for size in SIZES {
            for loss in [false, true] {
                let mut times = measure(packets, size, loss)?;
                let mut row: Vec<Cell> = vec![
                    u64::from(size).into(),
                    if loss { "1 in 25" } else { "none" }.into(),
                ];
                for values in [
                    &mut times.data,
                    &mut times.gap,
                    &mut times.nack,
                    &mut times.repair,
                ] {
                    for share in [0.5, 0.99] {
                        row.push(match values.is_empty() {
                            true => "-".into(),
                            false => Cell::number(quantile(values, share), 0),
                        });
                    }
                }
                table.row(row);
                if !loss {
                    in_order.push(quantile(&mut times.data, 0.5));
                }
                if loss && size == DRAWN_SIZE {
                    targets(&mut report, &mut times);
                    report.plots.push(draw(times));
                }
            }
        }
        report.tables.push(table);
        let (least, most) = in_order
            .iter()
            .fold((f64::MAX, 0f64), |(a, b), x| (a.min(*x), b.max(*x)));
        let name = "data in order, the slowest size over the quickest";
        report.timed(name, most / least, "", Bound::AtMost(1.5));
        report.note("the paper measured 20 us for data, 250 us after a gap, 135 us for a NACK, 123 us for a repair \
                     (Java on a Pentium II at 400 MHz), and 12 to 17 ms more where a timer thread was set up");
        report.note(format!(
            "the time of `forward` and of reading out where the packet goes, one packet at a time, less {:.0} ns for \
             the clock; sending is the driver's work",
            TimedRelay::new(RECEIVERS)?.clock_ns()
        ));
        Ok(report)
    }
}

fn measure(packets: u32, size: u32, loss: bool) -> Result<Times> {
    let mut relay = TimedRelay::new(RECEIVERS)?;
    let mut times = Times::default();
    let payload = vec![7; size as usize * 1024 - 64];
    let mut lost = None;
    for seq in 1..=packets {
        if loss && seq % LOST == LOST - 1 {
            lost = Some(seq);
            continue;
        }
        let x = f64::from(seq);
        let took = relay.data(seq, &payload)?;
        if seq <= DRAWN {
            times.curves[0].push((x, took));
        }
        let Some(missing) = lost.take() else {
            times.data.push(took);
            continue;
        };
        times.gap.push(took);
        // Its NACK goes up; NACKs of the receivers arrive; the source repairs.
        relay.pass(1)?;
        for receiver in 0..RECEIVERS {
            let took = relay.nack(receiver, missing)?;
            times.nack.push(took);
            if seq <= DRAWN {
                times.curves[1].push((x, took));
            }
        }
        let took = relay.repair(missing, &payload)?;
        times.repair.push(took);
        if seq <= DRAWN {
            times.curves[2].push((x, took));
        }
        relay.pass(20)?;
    }
    Ok(times)
}

fn targets(report: &mut Report, times: &mut Times) {
    for (what, values, most) in [
        ("data in order", &mut times.data, 50.0),
        ("data after a gap", &mut times.gap, 150.0),
        ("NACK", &mut times.nack, 150.0),
        ("repair", &mut times.repair, 150.0),
    ] {
        let name = format!("{what}, median at {DRAWN_SIZE} KiB");
        report.timed(name, quantile(values, 0.5), "ns", Bound::AtMost(most));
    }
}

fn draw(times: Times) -> Plot {
    let title = format!("one packet in {LOST} lost, {DRAWN_SIZE} KiB");
    let plot = Plot::lines(&title, "data packet", "ns");
    let names = ["data", "NACK", "repair"];
    names
        .into_iter()
        .zip(times.curves)
        .fold(plot, |plot, (name, points)| plot.series(name, points))
}
