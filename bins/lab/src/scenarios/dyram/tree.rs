//! `dyram-tree`: a file through 15 relays to 64 receivers, without multicast routing; or, with
//! `--carriage multicast`, with relays beside a group that routers forward.

use super::stage::Stage;
use crate::prelude::*;
use crate::transfer::{Outcome, Transfer};

/// 15 relays, 64 receivers, loss on each link, with or without multicast routing
#[derive(Debug, clap::Args)]
pub(crate) struct Tree {
    /// Size of the file in MiB (quick: 2)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "2"))]
    mib: u64,
    /// Loss on each link, 0.02 is 2 %
    #[arg(long, default_value_t = 0.02)]
    loss: f64,
    /// Relays, or multicast: routers forward the group, and relays serve recovery beside it
    #[arg(long, default_value = "relays", value_parser = ["relays", "multicast"])]
    carriage: String,
    /// The sender's rate
    #[arg(long, default_value = "12M")]
    rate: String,
    /// What shapes the links
    #[arg(long, value_enum, default_value_t)]
    network: Shaper,
}

/// Relays: four levels, each with two below.
const RELAYS: usize = 15;
/// What the source's interface lets go in a network of the system.
const SYSTEM_BPS: u64 = 100_000_000;
/// Receivers below each of the last eight.
const BELOW: usize = 8;

impl Scenario for Tree {
    const NAME: &'static str = "dyram-tree";
    const FIGURE: &'static str = "DyRAM §3";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "a file to 64 receivers through 15 relays");
        let bytes = self.mib << 20;
        let beside = self.carriage == "multicast";
        let by_system = self.network == Shaper::System;
        if by_system && let Some(reason) = system::missing() {
            report.skip("all of it", reason);
            return Ok(report);
        }
        let mut stage = build(self.loss, beside, by_system)?;
        let file = Path::new(SCRATCH).join("file.bin");
        write_file(&file, bytes)?;
        let options = [
            "--rate",
            &self.rate,
            "--connect-timeout",
            "60s",
            "--timeout",
            "60s",
        ];
        let mut transfer = Transfer::start(&stage.session, &file, &options)?;
        context.note("transfer");
        let mut last = None;
        transfer.watch(Duration::from_secs(120 + bytes / 250_000), |_| {
            // Counters of relays stay when their sessions end.
            last = stage.table().ok().or(last.take());
        })?;
        let outcome = transfer.finish(&stage.session, Duration::from_secs(20))?;
        judge(&mut report, &mut stage, &outcome, bytes)?;
        let routes = if beside {
            "routers forward the group"
        } else {
            "no router has a multicast route"
        };
        report.holds(routes, stage.has_multicast()? == beside);
        Ok(report)
    }
}

/// Relays in a binary tree, the receivers below the last eight.
fn build(loss: f64, beside: bool, by_system: bool) -> Result<Stage> {
    let mut plan = Plan::default();
    let shape = match by_system {
        true => Shape::default(),
        false => Shape::lossy(loss).delayed(Duration::from_millis(1)),
    };
    let (source, nodes, hosts) = plan.binary_tree(RELAYS, BELOW, shape);
    let relays: Vec<(NodeId, Vec<NodeId>)> = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| (*node, at.checked_sub(1).map(|above| nodes[above / 2])))
        .map(|(node, parent)| (node, parent.into_iter().collect()))
        .collect();
    let last = nodes[RELAYS / 2..].iter();
    let relay_of_each = last.flat_map(|relay| std::iter::repeat_n(vec![*relay], BELOW));
    let receivers: Vec<_> = hosts.into_iter().zip(relay_of_each).collect();
    let network = Network::build(plan, 17)?;
    if by_system {
        network.lose_everywhere(loss)?;
        network.shape_by_htb(source, LinkId(0), SYSTEM_BPS)?;
    }
    let mut stage = Stage::new(network, (source, nodes[0]), &receivers)?;
    if beside {
        stage.over_multicast()?;
    }
    stage.start(&relays, "")?;
    Ok(stage)
}

fn judge(report: &mut Report, stage: &mut Stage, outcome: &Outcome, bytes: u64) -> Result<()> {
    let (table, totals) = stage.table()?;
    report.tables.push(table);
    let repairs = outcome.sum("repairs_sent");
    let source =
        count(&outcome.sender, "repairs_group") + count(&outcome.sender, "repairs_unicast");
    let whole = outcome.receivers.iter().filter(|r| r.whole).count();
    let lost: u64 = stage
        .session
        .network
        .lost_downward()?
        .iter()
        .map(|(_, lost)| lost)
        .sum();
    let mut table = Table::with_header(
        "repairs",
        "s | Mbit/s to each | whole | lost by receivers | lost on links downward | sent by \
         receivers | sent by the source | unneeded | requests to the source itself",
    );
    table.row([
        Cell::number(outcome.seconds, 1),
        Cell::number(bytes as f64 * 8e-6 / outcome.seconds, 2),
        format!("{whole} of {}", outcome.receivers.len()).into(),
        outcome.sum("lost_packets").into(),
        lost.into(),
        repairs.into(),
        source.into(),
        outcome.sum("unneeded_repairs").into(),
        outcome.sum("requests_source").into(),
    ]);
    report.tables.push(table);
    let all = outcome.whole() && outcome.receivers.len() == 64;
    report.holds("64 receivers have every byte, and the sender's digest", all);
    let asked = totals.asked_source as f64 / (totals.nacked as f64).max(1.0);
    report.check(
        "packets asked of the source, for each that receivers and relays asked for",
        asked,
        "",
        Bound::AtMost(0.2),
    );
    let share = repairs as f64 * 100.0 / ((repairs + source) as f64).max(1.0);
    report.check(
        "repairs that receivers sent",
        share,
        "%",
        Bound::AtLeast(50.0),
    );
    report.note("lost on links downward: packets of every kind; of a loss near the source all below it know");
    let per_receiver: Vec<(f64, f64)> = outcome
        .receivers
        .iter()
        .enumerate()
        .map(|(at, r)| (at as f64 + 1.0, count(&r.end, "repairs_sent") as f64))
        .collect();
    let plot = Plot::lines("repairs sent by each receiver", "receiver", "repairs");
    report.plots.push(plot.series("repairs", per_receiver));
    report.datum("outcome", outcome);
    Ok(())
}
