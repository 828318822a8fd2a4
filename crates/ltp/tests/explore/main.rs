//! All runs of LTP in a small group of real machines.
//!
//! A sender brings four packets in two blocks to a replier and two other receivers, while packets are lost, duplicated
//! and overtaken, and the sender or the replier dies. In every run each application gets every byte once, in order and
//! verified, or, without a sender, the reason why not; and each machine ends. [`relayed`] has the runs through a relay.

mod group;
mod relayed;

use ltp::Duration;
use netsim::explore::{Bounds, Faults, Network, explore};

use crate::group::{Group, REPLIER, SENDER, Setup};

/// When the sender has announced the content three times and begins to send data, unless receivers report.
const BEFORE_DATA: Duration = Duration::from_millis(7);
/// When the sender has sent two of the four packets.
const HALFWAY: Duration = Duration::from_millis(9);

/// Packets come in any order within an instant.
const FAULTS: Faults = Faults {
    losses: 0,
    duplicates: 0,
    max_delay: Duration::ZERO,
    max_lateness: Duration::ZERO,
    horizon: Duration::from_millis(100),
    // A receiver that failed reports that ten times, in up to two seconds each.
    settle: Duration::from_secs(30),
};

const ONE_LOSS: Faults = Faults {
    losses: 1,
    ..FAULTS
};

/// Both receivers lack a packet that the replier has.
const REPAIR: Setup = Setup {
    lost: &[(2, 1), (3, 1)],
    ..Setup::NOTHING
};

/// A receiver lacks a packet that the others have; it, the replier and the other receiver lack parts of the last block.
const SCATTERED: Setup = Setup {
    lost: &[(2, 2), (1, 3), (3, 3)],
    ..Setup::NOTHING
};

/// Explores all runs that begin at `start`.
fn all(name: &str, setup: Setup, faults: Faults, start: Duration) {
    let make = || {
        let mut network = Network::new(Group::new(setup), faults);
        network.run_for(start);
        network
    };
    let report = explore(make, Bounds::default()).unwrap_or_else(|example| panic!("{example}"));
    assert!(report.is_complete && report.states > 100, "{report}");
    println!("LTP, {name}: {report}");
}

#[test]
fn any_packet_is_lost() {
    let faults = Faults {
        horizon: Duration::from_millis(5),
        ..ONE_LOSS
    };
    all("loss", Setup::NOTHING, faults, BEFORE_DATA);
}

#[test]
fn any_packet_is_lost_where_receivers_report() {
    let setup = Setup {
        has_reports: true,
        ..Setup::NOTHING
    };
    let faults = Faults {
        horizon: Duration::from_millis(8),
        ..ONE_LOSS
    };
    all("loss, with reports", setup, faults, Duration::ZERO);
}

#[test]
fn a_request_or_a_repair_is_lost() {
    let faults = Faults {
        horizon: Duration::from_millis(2),
        ..ONE_LOSS
    };
    all("loss in recovery", REPAIR, faults, HALFWAY);
}

#[test]
fn requests_and_repairs_come_twice() {
    let faults = Faults {
        duplicates: 1,
        ..FAULTS
    };
    all("duplicates", SCATTERED, faults, HALFWAY);
}

#[test]
fn requests_and_repairs_overtake_others() {
    let faults = Faults {
        max_delay: Duration::from_micros(300),
        horizon: Duration::from_millis(2),
        ..FAULTS
    };
    all("overtaking", REPAIR, faults, HALFWAY);
}

#[test]
fn the_replier_dies() {
    let setup = Setup {
        deaths: &[REPLIER],
        ..REPAIR
    };
    all("death of the replier", setup, FAULTS, HALFWAY);
}

#[test]
fn the_sender_dies() {
    let setup = Setup {
        deaths: &[SENDER],
        ..SCATTERED
    };
    all("death of the sender", setup, FAULTS, HALFWAY);
    let setup = Setup {
        has_reports: true,
        ..setup
    };
    let name = "death of the sender, with reports";
    all(name, setup, FAULTS, Duration::ZERO);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn losses_large() {
    let faults = Faults {
        losses: 2,
        duplicates: 1,
        ..FAULTS
    };
    all("two losses, large", Setup::NOTHING, faults, BEFORE_DATA);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn losses_with_reports_large() {
    let setup = Setup {
        has_reports: true,
        ..Setup::NOTHING
    };
    let faults = Faults {
        losses: 2,
        horizon: Duration::from_millis(60),
        ..FAULTS
    };
    let name = "two losses with reports, large";
    all(name, setup, faults, Duration::ZERO);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn recovery_large() {
    let faults = Faults {
        losses: 1,
        duplicates: 1,
        max_delay: Duration::from_micros(400),
        max_lateness: Duration::from_micros(100),
        horizon: Duration::from_millis(2),
        ..FAULTS
    };
    all("recovery, large", REPAIR, faults, HALFWAY);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn deaths_large() {
    let setup = Setup {
        deaths: &[SENDER, REPLIER],
        has_reports: true,
        ..REPAIR
    };
    let faults = Faults {
        duplicates: 1,
        ..ONE_LOSS
    };
    all("deaths, large", setup, faults, Duration::ZERO);
}
