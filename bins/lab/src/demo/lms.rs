//! `lab demo lms`: a real file to four receivers through three LMS routers over lossy links, the real
//! programs on the real kernel.
//!
//! ```text
//!                    ,- r2 --- h1
//! source --- r1 ---<    `----- h2       2 % loss on each link, both directions
//!                    `- r3 --- h3
//!                         `--- h4
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::session::{Carrier, Ip, Owner, Replies, Session};
use crate::transfer::{Outcome, Transfer, count};
use netlab::SCRATCH;
use netlab::{Network, NodeId, Plan, Process, Shape, text};
use sims::bars::Bars;
use sims::report::{Bound, Cell, Report, Table};
use sims::scenario::Context;

const LOSS: f64 = 0.02;
const TIMEOUT: Duration = Duration::from_secs(45);

/// The sender's rate, bit/s.
const RATE_BPS: u64 = 40_000_000;

/// Runs it in namespaces: one transfer without LMS routers, then the same with them.
pub(crate) fn run(context: &Context, ip: Ip, carrier: Carrier) -> Result<Report> {
    let mib: u64 = if context.quick { 2 } else { 48 };
    let begin = Instant::now();
    let size = format!("{mib} MiB at {} Mbit/s", RATE_BPS / 1_000_000);
    let mut report = Report::new("demo", format!("{size} to four receivers"));
    context.note("source -- r1 -- r2 -- h1, h2    2 % of all packets are lost");
    context.note("           `--- r3 -- h3, h4    on every link, both ways");
    let mut session = build(ip).context("build the network")?;
    session.carrier = carrier;
    let from = session.source_address().to_string();
    session.receive_more = ["--source", &from].map(str::to_owned).to_vec();
    session.own(Owner::Lab)?;
    session.wait_for_routes(Duration::from_secs(40))?;
    let file = Path::new(SCRATCH).join("file.bin");
    crate::transfer::write_file(&file, mib << 20)?;
    context.note(format!(
        "{size} without LMS routers: the source repairs alone"
    ));
    let nodes = session.receivers.iter().chain([&session.source]);
    session.assist = nodes.map(|node| (*node, "none".to_owned())).collect();
    let alone = transfer(&session, &file, context)?;
    context.note(format!("{size} with lms-router in r1, r2 and r3"));
    session.assist.clear();
    session.start_routers(&Replies::default())?;
    let helped = transfer(&session, &file, context)?;
    compare(&mut report, &alone, &helped);
    summary(&mut report, &mut session, &helped)?;
    report.holds(
        "every receiver has every byte, without routers",
        alone.whole(),
    );
    if !context.quick {
        let seconds = begin.elapsed().as_secs_f64();
        report.timed("seconds", seconds, "s", Bound::AtMost(60.0));
    }
    Ok(report)
}

/// Sends the file to all receivers and shows their progress.
fn transfer(session: &Session, file: &Path, context: &Context) -> Result<Outcome> {
    let mut transfer = Transfer::start(session, file, &["--rate", &RATE_BPS.to_string()])?;
    let names = transfer.receivers.iter().map(|receiver| &*receiver.name);
    let mut bars = Bars::new(context, names, transfer.bytes);
    transfer.watch(TIMEOUT, |transfer| {
        let receivers = transfer.receivers.iter();
        bars.show(receivers.map(|receiver| state(&receiver.process)));
    })?;
    bars.done();
    transfer.finish(session, Duration::from_secs(10))
}

/// Shows both transfers side by side, what the counters mean, and what the routers gain.
fn compare(report: &mut Report, alone: &Outcome, helped: &Outcome) {
    let columns = "LMS routers | s | requests at source | repairs by source | by receivers";
    let mut table = Table::with_header("two transfers", columns);
    let counters = [("no", alone), ("yes", helped)].map(|(name, outcome)| {
        let requests = ["requests_group", "requests_unicast"].map(|c| count(&outcome.sender, c));
        let (dmcasts, repairs) = outcome.repairs();
        let counters = [requests.iter().sum(), repairs - dmcasts, dmcasts];
        let row = [name.into(), Cell::number(outcome.seconds, 1)];
        table.row(row.into_iter().chain(counters.map(Cell::Count)));
        counters
    });
    report.tables.push(table);
    report.note("request: a receiver asks for packets that it has lost");
    report.note("repair: a lost packet is sent again, by the source or by a receiver");
    let [[before, alone, _], [after, source, _]] = counters;
    report.conclusion = format!(
        "With LMS routers the source received {after} requests instead of {before},\n\
         and sent {source} repairs instead of {alone}."
    );
}

fn build(ip: Ip) -> Result<Session> {
    let mut plan = Plan::default();
    let source = plan.host("source");
    let [r1, r2, r3] = ["r1", "r2", "r3"].map(|name| plan.router(name));
    let receivers: Vec<NodeId> = ["h1", "h2", "h3", "h4"].map(|name| plan.host(name)).into();
    let shape = Shape {
        delay: Duration::from_millis(1),
        ..Shape::lossy(LOSS)
    };
    plan.link(source, r1, shape);
    plan.link(r1, r2, shape);
    plan.link(r1, r3, shape);
    for (receiver, router) in receivers.iter().zip([r2, r2, r3, r3]) {
        plan.link(router, *receiver, shape);
    }
    Ok(Session::new(
        Network::build(ip.addresses(plan), 2)?,
        source,
        receivers,
        ip.group(),
    ))
}

/// Reports the results.
fn summary(report: &mut Report, session: &mut Session, outcome: &Outcome) -> Result<()> {
    let links = session.network.emulated()?;
    let lost: u64 = links
        .iter()
        .map(|link| link.forward.lost + link.backward.lost)
        .sum();
    let (dmcasts, repairs) = outcome.repairs();
    report.datum("outcome", outcome);
    report.datum("links", &links);
    let routers: Vec<Value> = session
        .routers
        .iter()
        .map(|router| Ok(json!({"router": router.name, "counters": router.counters()?})))
        .collect::<Result<_>>()?;
    report.datum("routers", routers);
    report.holds(
        "every receiver has every byte, and the sender's digest",
        outcome.whole(),
    );
    report.holds("packets were lost on the way", lost > 0);
    let name = "repairs by receivers, with LMS routers";
    let share = dmcasts as f64 * 100.0 / (repairs as f64).max(1.0);
    report.check(name, share, "%", Bound::AtLeast(40.0));
    Ok(())
}

/// The bytes that a receiver has, and its state in words.
fn state(process: &Process) -> (u64, String) {
    if let Some(complete) = process.last("complete") {
        let digest = text(&complete, "digest")
            .get(..16)
            .unwrap_or_default()
            .to_owned();
        return (
            complete["length"].as_u64().unwrap_or(0),
            format!("whole, BLAKE3 {digest}..."),
        );
    }
    let progress = process.last("progress").unwrap_or_default();
    let lost = progress["lost_packets"].as_u64().unwrap_or(0);
    (
        progress["bytes"].as_u64().unwrap_or(0),
        format!("{lost} packets lost on the way"),
    )
}
