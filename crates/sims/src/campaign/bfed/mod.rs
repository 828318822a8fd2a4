//! Broadcast Federation: gateways of several networks, their clients and sources, and what fails between them.
//!
//! Control nodes and data nodes are those of `bfed`. Control messages, and bulk data between data nodes, travel on
//! [streams](netsim::streams); real-time data in datagrams over the simulator's links; native networks lose nothing. A
//! trace holds the datagrams, which are those of real-time sessions and the probes of data nodes.
//!
//! While things fail, anything may be lost or come twice. Then nothing fails any more, links lose nothing, and after a
//! while:
//!
//! - each client that wants a session receives it if a route leads from its gateway to the owner, or knows why not;
//! - each frame comes once, in bulk sessions all of them and in order;
//! - trees have no loops, agree with those above and below, and each is wanted; the data nodes carry what the trees say;
//! - once every client has gone, nothing is left: at once, or, if some went without a word, once soft state has expired.

mod carry;
mod clients;
mod host;
mod judge;
mod plan;
mod world;

use anyhow::Result;
use bfed::Duration;
use netsim::LinkConfig;

use super::outcome::Outcome;
use super::transports::Watch;
use crate::scenario::print_progress;
use plan::{Plan, WINDOW};
use world::World;

/// Until the last frames have arrived.
const DRAIN: Duration = Duration::from_secs(4);

/// Runs one seed.
///
/// # Errors
/// The trace cannot be written.
pub(super) fn run(seed: u64, watch: &Watch) -> Result<Outcome> {
    let plan = Plan::new(seed)?;
    watch.print(|| plan.describe());
    let mut world = World::new(plan)?;
    if let Some(path) = &watch.trace {
        let file = std::io::BufWriter::new(std::fs::File::create(path)?);
        world.sim.capture(netsim::Filter::Sent, file)?;
    }
    let mut outcome = Outcome::default();
    drive(&mut world, &mut outcome, watch);
    world.sim.finish_captures()?;
    outcome.packets = world.sim.stats().packets;
    outcome.virtual_ms = world.now.total_millis() as u64;
    for fault in world.faults.drain(..) {
        outcome.fault(fault);
    }
    Ok(outcome)
}

fn drive(world: &mut World, outcome: &mut Outcome, watch: &Watch) {
    let calm_at = world.plan.calm_at;
    world.run_until(calm_at);
    world.calm_down();
    world.run_until(calm_at + world.plan.settle);
    world.is_window = true;
    world.run_until(world.now + WINDOW);
    world.is_publishing = false;
    world.run_until(world.now + DRAIN);
    if watch.verbose {
        print_progress(world.describe());
    }
    world.judge(outcome, watch);
    // A client that sends a LEAVE leaves no state; the state of a client that does not expires.
    let silent_share = if world.rng.chance(0.5) { 0.0 } else { 0.5 };
    for client in 0..world.clients.len() {
        let is_silent = world.rng.chance(silent_share);
        if world.clients[client].wants {
            world.wants(client, false, is_silent);
        }
    }
    let lifetime = world.plan.lifetime;
    let time = match silent_share > 0.0 {
        // From gateway to gateway, and to the data nodes.
        true => lifetime * 3,
        false => DRAIN,
    };
    world.run_until(world.now + time);
    world.judge_empty();
}

impl World {
    /// From now on links lose nothing.
    fn calm_down(&mut self) {
        for at in 0..self.links.len() {
            let delay = self.plan.peerings[at].delay;
            let link = LinkConfig::new().delay(delay);
            for id in self.links[at].1.clone() {
                self.sim.set_link(id, link, link);
            }
        }
    }

    /// Routes and trees, for people.
    fn describe(&self) -> String {
        let mut lines = vec![format!("at {}", self.now)];
        for (at, gateway) in self.gateways.iter().enumerate() {
            let Some(control) = &gateway.control else {
                lines.push(format!("gateway {at} is dead"));
                continue;
            };
            for peer in control.peers() {
                lines.push(format!("gateway {at}: {peer:?}"));
            }
            for tree in control.trees() {
                lines.push(format!("gateway {at}: {tree:?}"));
            }
            let nodes: Vec<_> = control.nodes().collect();
            lines.push(format!("gateway {at}: data nodes {nodes:?}"));
        }
        lines.join("\n")
    }
}
