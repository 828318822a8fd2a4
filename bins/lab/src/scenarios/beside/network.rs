//! The bottleneck: one sender, a router, and two receivers of each of two flows.

use super::super::stage::Stage;
use super::flow::{GROUPS, RECEIVERS};
use crate::prelude::*;
use netlab::mroute::{self, Wanted};

const RATE_BPS: u64 = 100_000_000;
const DELAY: Duration = Duration::from_millis(10);
/// One round trip of 20 ms.
const QUEUE_BYTES: usize = 250_000;
/// The time of a full frame on the bottleneck.
const JITTER: Duration = Duration::from_micros(121);
/// A flow may run this long before the other one does.
const BEFORE_SECONDS: f64 = 20.0;
const SEED: u64 = 31;

/// Builds the network, and a file that no flow can end within the time.
pub(super) fn build(seconds: f64) -> Result<Stage> {
    let mut plan = Plan::default();
    let (sender, router) = (plan.host("sender"), plan.router("router"));
    let link = plan.link(
        sender,
        router,
        Shape {
            rate_bps: RATE_BPS,
            queue_bytes: QUEUE_BYTES,
            jitter: JITTER,
            ..Shape::default().delayed(DELAY)
        },
    );
    let receivers: Vec<NodeId> = (1..=GROUPS.len() * RECEIVERS)
        .map(|number| plan.host(&format!("h{number}")))
        .collect();
    for receiver in &receivers {
        plan.link(router, *receiver, Shape::default());
    }
    let network = Network::build(plan, SEED)?;
    let plan = network.plan();
    let mut routes = Vec::new();
    let mut branch = None;
    // Each flow's group reaches its own receivers only.
    for (group, members) in GROUPS.iter().zip(receivers.chunks(RECEIVERS)) {
        for part in plan.tree(sender, members) {
            routes.push(Wanted::of(plan, &part, plan.address(sender), *group)?);
            branch = Some(part);
        }
    }
    let branch = branch.context("no router")?;
    let owner = mroute::own(&network, &branch, &routes)?;
    let bytes = RATE_BPS as f64 / 8.0 * (seconds + BEFORE_SECONDS);
    let mut stage = Stage::new(network, sender, receivers, link, bytes as u64)?;
    stage.routes = vec![owner];
    Ok(stage)
}
