//! The explorer finds what it should in toy protocols with known defects, and visits exactly the states that there are.

mod alternating_bit;
mod counts;
mod endless;
mod wake_up;

use netsim::Duration;
use netsim::explore::{Bounds, Counterexample, Faults, Network, Nodes, Report, explore};

/// No faults, and no time but that of the first packets.
const QUIET: Faults = Faults {
    losses: 0,
    duplicates: 0,
    max_delay: Duration::from_secs(1),
    max_lateness: Duration::ZERO,
    horizon: Duration::from_secs(3),
    settle: Duration::from_secs(60),
};

/// Explores all runs of some nodes.
fn all<N: Nodes>(nodes: impl Fn() -> N, faults: Faults) -> Result<Report, Box<Counterexample>> {
    let report = explore(|| Network::new(nodes(), faults), Bounds::default())?;
    assert!(report.is_complete, "{report}");
    Ok(report)
}

/// The counterexample that a search must find.
fn found<N: Nodes>(nodes: impl Fn() -> N, faults: Faults) -> Counterexample {
    *all(nodes, faults).expect_err("a defect")
}
