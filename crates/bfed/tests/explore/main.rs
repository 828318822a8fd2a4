//! All runs of small federations of real control nodes: trees of three gateways whose link fails and returns, and the
//! takeover between two control nodes of a gateway.

mod carrier;
mod cluster;
mod election;
mod failover;
mod federation;
mod gateway;
#[path = "../support/native.rs"]
pub mod native;
#[path = "../federation/node.rs"]
#[allow(dead_code, reason = "some fields are for other tests")]
mod node;
mod streams;
mod trees;

use netsim::explore::{Bounds, Network, Nodes, explore};

/// Explores all runs from a state on.
fn all<N: Nodes>(name: &str, make: impl Fn() -> Network<N>) {
    let report = explore(make, Bounds::default()).unwrap_or_else(|example| panic!("{example}"));
    assert!(report.is_complete && report.ends > 1, "{report}");
    println!("BFed, {name}: {report}");
}
