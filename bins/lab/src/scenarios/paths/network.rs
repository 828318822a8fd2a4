//! A path as a network.

use super::super::stage::Stage;
use super::grid::{Path, RATE_BPS, Shaping};
use super::tool::Runner;
use crate::prelude::*;

/// The seed of the losses on the switch.
const SEED: u64 = 29;

/// The sender behind one interface of a router, each receiver behind another.
pub(super) struct Routed {
    pub(super) network: Network,
    pub(super) source: NodeId,
    pub(super) router: NodeId,
    pub(super) receivers: Vec<NodeId>,
    /// The sender's link.
    pub(super) link: LinkId,
}

/// Sender and receivers on one switch.
pub(super) fn switched(path: &Path, runner: &Runner) -> Result<Stage> {
    let mut plan = Plan::default();
    let sender = plan.host("sender");
    let receivers = hosts(&mut plan, path);
    let mut ports = vec![(sender, path.sender_link())];
    ports.extend(receivers.iter().map(|node| (*node, path.receiver_link())));
    let link = plan.shared(&ports);
    let network = Network::build(plan, SEED)?;
    let links: Vec<_> = receivers.iter().map(|node| (*node, link)).collect();
    by_system(&network, path, (sender, link), &links)?;
    let mut stage = Stage::new(network, sender, receivers, link, runner.bytes)?;
    stage.limit = Some(runner.limit);
    Ok(stage)
}

/// A router between sender and receivers; `seed` decides which packets are lost.
pub(super) fn routed(path: &Path, seed: u64) -> Result<Routed> {
    let mut plan = Plan::default();
    let (source, router) = (plan.host("sender"), plan.router("router"));
    let link = plan.link(source, router, path.sender_link());
    let receivers = hosts(&mut plan, path);
    let links: Vec<_> = receivers
        .iter()
        .map(|node| (*node, plan.link(*node, router, path.receiver_link())))
        .collect();
    let network = Network::build(plan, seed)?;
    by_system(&network, path, (source, link), &links)?;
    Ok(Routed {
        network,
        source,
        router,
        receivers,
        link,
    })
}

fn hosts(plan: &mut Plan, path: &Path) -> Vec<NodeId> {
    (1..=path.receivers)
        .map(|number| plan.host(&format!("h{number}")))
        .collect()
}

/// Has the kernel shape the path, where the emulator does not.
fn by_system(
    network: &Network,
    path: &Path,
    (sender, link): (NodeId, LinkId),
    receivers: &[(NodeId, LinkId)],
) -> Result<()> {
    if path.shaping == Shaping::Emulator {
        return Ok(());
    }
    for (receiver, link) in receivers {
        if path.loss.share > 0.0 {
            network.lose_by_nftables(*receiver, *link, path.loss.share)?;
        }
    }
    network.shape_by_htb_with_queue(sender, link, RATE_BPS, path.queue_packets())
}
