//! `bfed-node-crash`: a data node dies under load, three ways: killed, stopped (it holds its sockets and
//! is silent), and its host's link cut. Its sessions move to another node, here and in downstream
//! networks.

use std::collections::BTreeSet;

use super::federation::{Design, Federation, Kind, Part, Peering};
use super::under_way::{Load, millis, sessions};
use crate::prelude::*;

/// A data node is killed, stopped, cut off under load: its sessions flow again through another
#[derive(Debug, clap::Args)]
pub(crate) struct NodeCrash {
    /// Sessions, half bulk data, half real-time (quick: 4)
    #[arg(long, default_value_t = 8, default_value_if("quick", "true", "4"))]
    sessions: usize,
    /// Bit/s of each
    #[arg(long, default_value_t = 2_000_000)]
    rate: u64,
}

/// The island whose gateway has several processes; the source is upstream of it, another network downstream.
const MIDDLE: usize = 1;
const VIEWERS: [usize; 2] = [1, 2];
/// Its data nodes.
const NODES: [Part; 2] = [Part::Data(MIDDLE, 0), Part::Data(MIDDLE, 1)];
/// Target: milliseconds until sessions flow again.
const TARGET_MS: f64 = 1500.0;

/// How a data node dies.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Killed,
    Stopped,
    Cut,
}

impl Failure {
    const ALL: [Failure; 3] = [Failure::Killed, Failure::Stopped, Failure::Cut];

    fn words(self) -> &'static str {
        match self {
            Failure::Killed => "killed (-9)",
            Failure::Stopped => "stopped (SIGSTOP)",
            Failure::Cut => "its link cut",
        }
    }

    fn strike(self, federation: &mut Federation, node: Part) -> Result<()> {
        match self {
            Failure::Killed => federation.signal(node, Signal::SIGKILL),
            Failure::Stopped => federation.signal(node, Signal::SIGSTOP),
            Failure::Cut => federation.cut(node, true),
        }
    }

    fn heal(self, federation: &mut Federation, node: Part) -> Result<()> {
        match self {
            Failure::Killed => federation.start(node),
            Failure::Stopped => federation.signal(node, Signal::SIGCONT),
            Failure::Cut => federation.cut(node, false),
        }
    }
}

impl Scenario for NodeCrash {
    const NAME: &'static str = "bfed-node-crash";
    const FIGURE: &'static str = "Broadcast Federation §5.3.4: data node failure";

    fn run(&self, context: &Context) -> Result<Report> {
        let sessions = sessions(self.sessions);
        let mut report = Report::new(Self::NAME, "a data node dies under load");
        let mut federation = build()?;
        federation.settle()?;
        let control = Part::Control(MIDDLE, 0);
        federation.until(control, "nodes", |nodes| registered(nodes) == NODES.len())?;
        let load = Load::start(&federation, sessions, &VIEWERS, self.rate)?;
        let mut table = Table::with_header(
            "sessions of the dead node: until data comes again",
            "data node | sessions struck | viewers | mean ms | longest ms | others: longest pause \
             ms",
        );
        let (mut means, mut mosts) = (Vec::new(), Vec::new());
        let mut next = 0;
        for failure in Failure::ALL {
            // The node that carries more: after a failure the other one carries everything.
            let carried = carried(&federation)?;
            if carried[next].len() < carried[1 - next].len() {
                next = 1 - next;
            }
            let (node, struck) = (NODES[next], &carried[next]);
            context.note(format!(
                "{} {}, with {} sessions",
                node.name(),
                failure.words(),
                struck.len()
            ));
            let lost = load.lost();
            let then = Instant::now();
            failure.strike(&mut federation, node)?;
            // Sessions of the other node must not be affected; those of this node stop first.
            std::thread::sleep(Duration::from_millis(1000));
            let (mean, longest) = judge(
                &mut report,
                &mut table,
                failure,
                &load,
                (then, lost),
                struck,
            );
            means.push(mean);
            mosts.push(longest);
            failure.heal(&mut federation, node)?;
            federation.until(control, "nodes", |nodes| registered(nodes) == NODES.len())?;
            let name = format!("{}: everything flows on when it is back", failure.words());
            report.holds(name, load.flows_again());
            next = 1 - next;
        }
        let names = Failure::ALL.map(Failure::words);
        let plot = Plot::bars("until data comes again", "ms", names);
        let plot = plot.heights("mean", means).heights("longest", mosts);
        report.plots.push(plot);
        report.tables.push(table);
        load.stop()?;
        report.holds("gateways end in an orderly way", federation.stop());
        report.note(
            "networks 1, 2, 3 in a chain, 5 ms apart; network 2's gateway is a control node and two data \
             nodes on hosts of their own; sources in network 1, viewers in 2 and 3; heartbeats every \
             250 ms; struck is the node that carries most",
        );
        Ok(report)
    }
}

/// Reports what viewers of the failed node's sessions and of other sessions saw; returns the mean and the longest time until data
/// came again.
fn judge(
    report: &mut Report,
    table: &mut Table,
    failure: Failure,
    load: &Load,
    (then, lost): (Instant, Vec<u64>),
    struck: &BTreeSet<String>,
) -> (f64, f64) {
    let flows = load.flows_again();
    let outcomes = load.since(then);
    let (mine, others): (Vec<_>, Vec<_>) = outcomes
        .iter()
        .zip(
            load.lost()
                .into_iter()
                .zip(lost)
                .map(|(now, then)| now - then),
        )
        .partition(|(outcome, _)| struck.contains(outcome.session));
    let again = mine.iter().filter_map(|(outcome, _)| outcome.again_ms());
    let (mean, longest) = (mean(again.clone()), most(again));
    let pause = most(others.iter().map(|(outcome, _)| millis(outcome.seen.pause)));
    let words = failure.words();
    table.row([
        words.into(),
        struck.len().into(),
        mine.len().into(),
        Cell::number(mean, 0),
        Cell::number(longest, 0),
        Cell::number(pause, 0),
    ]);
    report.holds(format!("{words}: every session flows again"), flows);
    let name = format!("{words}: the node had sessions");
    report.holds(name, !struck.is_empty());
    let missed: u64 = others.iter().map(|(_, lost)| lost).sum();
    let name = format!("{words}: frames that sessions of the other node lost");
    report.check(name, missed as f64, "", Bound::Exactly(0.0));
    let name = format!("{words}: sessions flow again within");
    let within = if flows { longest } else { f64::INFINITY };
    report.timed(name, within, "ms", Bound::AtMost(TARGET_MS));
    let rows = mine.iter().map(|(outcome, lost)| {
        json!({
            "session": outcome.session, "island": outcome.island + 1, "lost": lost,
            "again_ms": outcome.again_ms(),
        })
    });
    let rows: Vec<Value> = rows.collect();
    report.datum(&format!("{failure:?}").to_lowercase(), rows);
    (mean, longest)
}

fn build() -> Result<Federation> {
    let mut designs = [Kind::Ip; 3].map(Design::new);
    designs[MIDDLE].data = NODES.len();
    let peerings = [Peering::new(0, 1), Peering::new(1, 2)];
    let shape = Shape::default().delayed(Duration::from_millis(5));
    let mut federation = Federation::build(&designs, &peerings, shape, "")?;
    federation.start_all()?;
    Ok(federation)
}

fn registered(nodes: &Value) -> usize {
    nodes["nodes"].as_array().map_or(0, Vec::len)
}

/// The sessions that each data node carries.
fn carried(federation: &Federation) -> Result<[BTreeSet<String>; 2]> {
    let shown = federation.show(MIDDLE, "sessions")?;
    let rows = shown["sessions"].as_array().context("no sessions")?;
    let of = |node: u64| {
        let rows = rows.iter().filter(|row| count(row, "node") == node);
        rows.map(|row| text(row, "session").to_owned()).collect()
    };
    Ok([of(1), of(2)])
}
