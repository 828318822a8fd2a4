//! All runs of LTP through a relay in a small tree of real machines.
//!
//! A sender brings four packets in two blocks to three receivers below a DyRAM relay, while packets are lost, duplicated
//! and overtaken, the replier that the relay has elected dies or leaves, and the relay dies or starts again. In every run
//! each application gets every byte once, in order and verified, or, without a relay, the reason why not; the relay asks
//! one receiver at a time for a packet, and none that lacks it; it acknowledges what its receivers have and no more; and
//! nothing of the session stays there.

mod tree;

use ltp::Duration;
use netsim::explore::{Bounds, Faults, Network, explore};

use self::tree::{RELAY, REPLIER, Setup, Tree};
use super::{BEFORE_DATA, FAULTS, ONE_LOSS};

/// When two receivers are about to request packets.
const BEFORE_NACKS: Duration = Duration::from_micros(10_200);
/// When the relay has collected their NACKs and is about to ask a replier, and the sender has announced the end.
const BEFORE_REPAIR: Duration = Duration::from_micros(11_190);

/// Two receivers lack a packet that the replier has, and one notices it later.
const REPAIR: Setup = Setup {
    lost: &[(3, 1), (4, 1), (4, 2)],
    ..Setup::NOTHING
};

/// A receiver lacks a packet that the others have; the relay, the replier and a receiver lack parts of the last block.
const SCATTERED: Setup = Setup {
    lost: &[(3, 1), (RELAY, 2), (REPLIER, 3), (4, 3)],
    ..Setup::NOTHING
};

/// Explores all runs that begin at `start`.
fn all(name: &str, setup: Setup, faults: Faults, start: Duration) {
    let make = || {
        let mut network = Network::new(Tree::new(setup), faults);
        network.run_for(start);
        network
    };
    let report = explore(make, Bounds::default()).unwrap_or_else(|example| panic!("{example}"));
    assert!(report.is_complete && report.states > 100, "{report}");
    println!("LTP through a relay, {name}: {report}");
}

#[test]
fn any_packet_is_lost() {
    let faults = Faults {
        horizon: Duration::from_millis(4),
        ..ONE_LOSS
    };
    all("loss", Setup::NOTHING, faults, BEFORE_DATA);
}

#[test]
fn a_nack_or_a_repair_is_lost() {
    let faults = Faults {
        horizon: Duration::from_millis(15),
        ..ONE_LOSS
    };
    all("loss in recovery", REPAIR, faults, BEFORE_NACKS);
}

#[test]
fn nacks_and_repairs_come_twice() {
    let faults = Faults {
        duplicates: 1,
        horizon: Duration::from_micros(1_050),
        ..FAULTS
    };
    all("duplicates", REPAIR, faults, BEFORE_NACKS);
}

#[test]
fn nacks_and_repairs_overtake_others() {
    let faults = Faults {
        duplicates: 1,
        max_delay: Duration::from_micros(300),
        horizon: Duration::from_millis(3),
        ..FAULTS
    };
    all("overtaking", REPAIR, faults, BEFORE_REPAIR);
}

#[test]
fn the_replier_dies_and_receivers_leave() {
    let setup = Setup {
        deaths: &[REPLIER],
        leaves: &[REPLIER, 3],
        ..REPAIR
    };
    all("death of the replier", setup, FAULTS, BEFORE_NACKS);
}

#[test]
fn the_relay_dies_or_starts_again() {
    let setup = Setup {
        deaths: &[RELAY],
        restarts: true,
        ..SCATTERED
    };
    let faults = Faults {
        horizon: Duration::from_millis(20),
        ..FAULTS
    };
    all("death of the relay", setup, faults, BEFORE_NACKS);
}

#[test]
fn nodes_die_where_receivers_report() {
    let setup = Setup {
        has_reports: true,
        deaths: &[REPLIER, RELAY],
        ..REPAIR
    };
    all("reports", setup, FAULTS, Duration::ZERO);
}

#[test]
fn the_replier_dies_below_a_relay_beside_ip_multicast() {
    let setup = Setup {
        is_over_multicast: true,
        deaths: &[REPLIER],
        ..SCATTERED
    };
    let faults = Faults {
        horizon: Duration::from_millis(5),
        ..FAULTS
    };
    all("beside IP multicast", setup, faults, BEFORE_NACKS);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn losses_large() {
    let faults = Faults {
        losses: 2,
        horizon: Duration::from_millis(20),
        ..FAULTS
    };
    all("losses, large", Setup::NOTHING, faults, BEFORE_DATA);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn recovery_large() {
    let faults = Faults {
        max_delay: Duration::from_micros(300),
        horizon: Duration::from_millis(2),
        ..ONE_LOSS
    };
    all("recovery, large", REPAIR, faults, BEFORE_NACKS);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn changes_large() {
    let setup = Setup {
        deaths: &[REPLIER, RELAY],
        leaves: &[REPLIER, 3],
        restarts: true,
        ..SCATTERED
    };
    let faults = Faults {
        duplicates: 1,
        horizon: Duration::from_millis(30),
        ..ONE_LOSS
    };
    all("changes, large", setup, faults, BEFORE_NACKS);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn reports_large() {
    let setup = Setup {
        has_reports: true,
        deaths: &[REPLIER, RELAY],
        restarts: true,
        ..REPAIR
    };
    all("reports, large", setup, ONE_LOSS, Duration::ZERO);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn beside_multicast_large() {
    let setup = Setup {
        is_over_multicast: true,
        deaths: &[REPLIER, RELAY],
        leaves: &[REPLIER, 3],
        ..SCATTERED
    };
    all("beside IP multicast, large", setup, ONE_LOSS, BEFORE_NACKS);
}
