//! `lms-adapt`: a sender without a set rate finds what the link carries, and keeps to it although
//! packets are lost at random.

use crate::prelude::*;
use crate::session::Session;
use crate::transfer::Transfer;
/// A sender without a set rate finds what the link carries, with and without random loss
#[derive(Debug, clap::Args)]
pub(crate) struct Adapt {
    /// Length of the file: the bytes that the link carries in this many seconds (quick: 4)
    #[arg(long, default_value_t = 10, default_value_if("quick", "true", "4"))]
    seconds: u64,
}

const GROUP: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(239, 9, 3, 1), 5_000);
const DELAY: Duration = Duration::from_millis(2);
/// Queue of the link: 20 ms at its rate, as small switches have, and a few packets at least.
const QUEUE_MS: u64 = 20;
const LEAST_QUEUE: u64 = 32 * 1514;
/// The share of a link without random loss that the file's own bytes use, at least; headers, the search
/// for the rate and repairs of the losses that it causes take the rest.
const TARGET_PERCENT: f64 = 85.0;

/// The result of one transfer.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    rate_bps: u64,
    loss: f64,
    seconds: f64,
    goodput_bps: f64,
    share_percent: f64,
    /// Ethernet bytes that the sender sent / bytes of the file.
    wire: f64,
    /// (seconds since the start, the rate that the sender allowed itself in bit/s)
    rates: Vec<(f64, f64)>,
}

impl Scenario for Adapt {
    const NAME: &'static str = "lms-adapt";

    fn run(&self, context: &Context) -> Result<Report> {
        let seconds: u64 = self.seconds;
        let rates: &[u64] = if context.quick {
            &[50_000_000]
        } else {
            &[10_000_000, 50_000_000, 100_000_000, 200_000_000]
        };
        let mut outcomes = Vec::new();
        for (at, rate_bps) in rates.iter().enumerate() {
            for loss in [0.0, 0.01] {
                let percent = loss * 100.0;
                context.note(format!("{} Mbit/s, {percent} % lost", rate_bps / 1_000_000));
                outcomes.push(transfer(*rate_bps, loss, seconds, at as u64)?);
            }
        }
        Ok(report(Self::NAME, context, &outcomes))
    }
}

/// One transfer over one link, with `--rate unlimited`.
fn transfer(rate_bps: u64, loss: f64, seconds: u64, seed: u64) -> Result<Outcome> {
    let mut plan = Plan::default();
    let (source, receiver) = (plan.host("source"), plan.host("receiver"));
    let shape = Shape {
        delay: DELAY,
        rate_bps,
        queue_bytes: (rate_bps / 8_000 * QUEUE_MS).max(LEAST_QUEUE) as usize,
        ..Shape::lossy(loss)
    };
    plan.link(source, receiver, shape);
    let network = Network::build(plan, seed)?;
    let mut session = Session::new(network, source, vec![receiver], GROUP);
    session.assist = [source, receiver]
        .map(|node| (node, "none".to_owned()))
        .into();
    let file = Path::new(SCRATCH).join("file.bin");
    write_file(&file, rate_bps / 8 * seconds)?;
    let mut transfer = Transfer::start(&session, &file, &["--rate", "unlimited"])?;
    let limit = Duration::from_secs(30 + 10 * seconds);
    transfer.watch(limit, |_| ())?;
    let (bytes, began) = (transfer.bytes as f64, transfer.sender.started());
    let changes = transfer.sender.events().into_iter().filter_map(|event| {
        let rate = event.value["rate_bps"].as_f64()?;
        let told = event.value["event"] == "rate" || event.value["event"] == "opened";
        told.then(|| ((event.at - began).as_secs_f64(), rate))
    });
    let rates = changes.collect();
    let outcome = transfer.finish(&session, limit)?;
    ensure!(outcome.whole(), "the copy differs from the file");
    let complete = &outcome.receivers[0].complete;
    let goodput_bps = complete["goodput_bps"].as_f64().unwrap_or(0.0);
    Ok(Outcome {
        rate_bps,
        loss,
        seconds: complete["seconds"].as_f64().unwrap_or(0.0),
        goodput_bps,
        share_percent: goodput_bps * 100.0 / rate_bps as f64,
        wire: count(&outcome.sender, "frame_bytes") as f64 / bytes,
        rates,
    })
}

fn report(name: &str, context: &Context, outcomes: &[Outcome]) -> Report {
    let mut report = Report::new(name, "lms-send --rate unlimited behind a slow link");
    let columns = "link Mbit/s | lost % | s | Mbit/s | % of the link | sent / file";
    let mut table = Table::with_header("one transfer each", columns);
    for outcome in outcomes {
        table.row([
            Cell::Count(outcome.rate_bps / 1_000_000),
            Cell::number(outcome.loss * 100.0, 0),
            Cell::number(outcome.seconds, 2),
            Cell::number(outcome.goodput_bps / 1e6, 1),
            Cell::number(outcome.share_percent, 1),
            Cell::number(outcome.wire, 3),
        ]);
        let (mbps, percent) = (outcome.rate_bps / 1_000_000, outcome.loss * 100.0);
        let curve = format!("{mbps} Mbit/s, {percent} % lost");
        let title = format!("the sender's rate over {curve}");
        let plot = Plot::lines(&title, "s since the start", "Mbit/s").log(false, true);
        let points = outcome.rates.iter().map(|(at, bps)| (*at, bps / 1e6));
        let end = most(outcome.rates.iter().map(|point| point.0));
        let link = outcome.rate_bps as f64 / 1e6;
        let plot = plot.series("lms-send", points);
        let plot = plot.series("the link", vec![(0.0, link), (end, link)]);
        report.plots.push(plot);
        if outcome.loss == 0.0 && !context.quick {
            let name = format!("{mbps} Mbit/s, nothing lost at random: share of the link");
            let bound = Bound::AtLeast(TARGET_PERCENT);
            report.check(name, outcome.share_percent, "%", bound);
        }
    }
    report.tables.push(table);
    report.datum("transfers", outcomes);
    report.note(format!(
        "one link by the lab's emulator, {} ms each way, with a queue of {QUEUE_MS} ms; random loss on it \
         both ways",
        DELAY.as_millis()
    ));
    report.note(
        "Mbit/s: the file's bytes, from the first word of the sender until all is verified at the \
         receiver; sent: Ethernet bytes, repairs among them",
    );
    report
}
