//! Relays and hosts of two releases.

use super::stage::Stage;
use crate::prelude::*;
use crate::scenarios::upgrade::{Outcome, Sides, carry, judge};

/// The rate of the transfers.
const RATE: &str = "20M";

/// A relay of one release, its source and its receivers of another.
pub(in crate::scenarios) fn upgrade_hosts(sides: &Sides) -> Result<Outcome> {
    let mut plan = Plan::default();
    let [source, h1, h2] = ["source", "h1", "h2"].map(|name| plan.host(name));
    let relay = plan.router("relay");
    plan.link(source, relay, Shape::default());
    for host in [h1, h2] {
        plan.link(relay, host, Shape::lossy(0.02));
    }
    let mut network = Network::build(plan, 5)?;
    sides.first(&mut network, &[relay]);
    sides.second(&mut network, &[source, h1, h2]);
    let receivers = [(h1, vec![relay]), (h2, vec![relay])];
    let mut stage = Stage::new(network, (source, relay), &receivers)?;
    stage.start(&[(relay, vec![])], "")?;
    run(&mut stage, sides)
}

/// A relay of one release below one of another, each with its hosts.
pub(in crate::scenarios) fn upgrade_tree(sides: &Sides) -> Result<Outcome> {
    let mut plan = Plan::default();
    let [source, h1, h2] = ["source", "h1", "h2"].map(|name| plan.host(name));
    let [upper, lower] = ["upper", "lower"].map(|name| plan.router(name));
    plan.link(source, upper, Shape::default());
    plan.link(upper, lower, Shape::lossy(0.02));
    for host in [h1, h2] {
        plan.link(lower, host, Shape::default());
    }
    let mut network = Network::build(plan, 6)?;
    sides.first(&mut network, &[source, upper]);
    sides.second(&mut network, &[lower, h1, h2]);
    let receivers = [(h1, vec![lower]), (h2, vec![lower])];
    let mut stage = Stage::new(network, (source, upper), &receivers)?;
    stage.start(&[(upper, vec![]), (lower, vec![upper])], "")?;
    run(&mut stage, sides)
}

fn run(stage: &mut Stage, sides: &Sides) -> Result<Outcome> {
    // The options of a refusal follow: the stage's own are for busy machines.
    stage.session.receive_more.truncate(2);
    let mut carried = carry(&mut stage.session, sides, RATE, |_| {})?;
    let arrived = carried.arrived.clone();
    let mut processes = carried.processes();
    processes.extend(stage.relays.iter_mut().map(|relay| &mut relay.process));
    Ok(judge(processes, arrived, true))
}
