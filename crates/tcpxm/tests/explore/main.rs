//! All runs of TCP-XM from one sender to two receivers.
//!
//! A real endpoint each; packets are lost, duplicated and overtaken, multicast to a receiver dies and returns, and a host
//! dies or starts again without its memory. In every state the applications have read the stream's bytes in order and
//! once, each receiver's mode is what TCP-XM §2.5 says, copies go where the mode says, and the store holds what a receiver
//! lacks. At the end of every run each receiver that lived has everything, both ends closed in good order, the sender has
//! named a receiver that died, and no connection is left.

mod group;
mod hosts;
mod modes;

use netsim::explore::{Bounds, Faults, Network, explore};
use tcpxm::Duration;

use crate::group::{Change, Group, SENDER, Setup};
use crate::hosts::SEGMENT;

/// Packets come in any order within an instant, and those without faults after it.
const FAULTS: Faults = Faults {
    losses: 0,
    duplicates: 0,
    max_delay: Duration::ZERO,
    max_lateness: Duration::ZERO,
    horizon: Duration::from_millis(1),
    settle: Duration::from_secs(120),
};

const ONE_LOSS: Faults = Faults {
    losses: 1,
    ..FAULTS
};

/// Packets overtake delayed acknowledgements and probes.
const LATE: Faults = Faults {
    max_delay: Duration::from_millis(50),
    horizon: Duration::from_millis(50),
    ..FAULTS
};

/// Three losses are found and repaired one after the other.
const LONG: Faults = Faults {
    horizon: Duration::from_secs(1),
    ..FAULTS
};

/// By then a group without losses is idle.
const SETTLED: Duration = Duration::from_secs(1);

/// Explores all runs that begin with the last change of `before`, or with the handshakes if there is none.
fn all(name: &str, setup: Setup, faults: Faults, before: &[Change]) {
    let make = || {
        let mut network = Network::new(Group::new(setup), faults);
        for change in before {
            network.run_for(SETTLED);
            network.execute(change);
        }
        network
    };
    let report = explore(make, Bounds::default()).unwrap_or_else(|example| panic!("{example}"));
    assert!(report.is_complete && report.ends > 1, "{report}");
    println!("TCP-XM, {name}: {report}");
}

#[test]
fn handshakes_and_ends_cross() {
    let setup = Setup {
        first: 0,
        ..Setup::AUTO
    };
    all("no data", setup, FAULTS, &[]);
}

#[test]
fn a_packet_of_the_handshake_is_lost() {
    let setup = Setup {
        first: 1,
        ..Setup::AUTO.beside()
    };
    let faults = Faults {
        duplicates: 1,
        ..ONE_LOSS
    };
    all("handshake", setup, faults, &[]);
}

#[test]
fn a_packet_to_a_receiver_without_multicast_is_lost() {
    let setup = Setup {
        refusing: Some(1),
        ..Setup::AUTO.beside()
    };
    all("refused group", setup, ONE_LOSS, &[]);
}

#[test]
fn any_packet_is_lost_by_unicast() {
    let setup = Setup::UNICAST.after(0).beside();
    all("unicast", setup, ONE_LOSS, &[Change::Last(2)]);
}

#[test]
fn any_packet_is_lost_by_both_ways() {
    let setup = Setup::AUTO.after(0).beside();
    all("both ways", setup, ONE_LOSS, &[Change::Last(1)]);
}

#[test]
fn any_packet_is_lost_by_multicast() {
    let setup = Setup::MULTICAST.after(0).beside();
    all("multicast", setup, ONE_LOSS, &[Change::Last(2)]);
}

#[test]
fn receivers_overtake_each_other() {
    let setup = Setup::MULTICAST.after(0);
    all("two receivers", setup, FAULTS, &[Change::Last(1)]);
}

#[test]
fn packets_are_late() {
    let setup = Setup::MULTICAST.after(0).beside();
    all("late packets", setup, LATE, &[Change::Last(1)]);
}

#[test]
fn the_store_is_filled_again() {
    let setup = Setup {
        capacity: SEGMENT,
        ..Setup::MULTICAST.after(0).beside()
    };
    let faults = Faults {
        horizon: Duration::from_millis(100),
        ..ONE_LOSS
    };
    all("small store", setup, faults, &[Change::Last(2)]);
}

/// One segment is on the way at a time.
const SINGLE: Setup = Setup {
    capacity: SEGMENT,
    ..Setup::AUTO.beside()
};

#[test]
fn a_receiver_falls_forward() {
    let setup = SINGLE.after(15);
    all("fall forward", setup, FAULTS, &[Change::Last(2)]);
}

/// Multicast has died, and may return.
const DEAD: Setup = Setup {
    failing: (&[1], 1),
    ..SINGLE.after(17)
};

#[test]
fn multicast_dies_and_returns() {
    let before = [Change::Fail(1), Change::Last(4)];
    all("fall back", DEAD, LONG, &before);
}

/// A receiver dies, and may start again.
const MORTAL: Setup = Setup {
    deaths: &[1],
    restarts: true,
    ..Setup::AUTO.beside()
};

#[test]
fn a_receiver_dies() {
    all("death of a receiver", MORTAL, LONG, &[]);
}

/// The sender dies; receivers probe a silent one.
const ORPHANS: Setup = Setup {
    deaths: &[SENDER],
    keep_alive: Some(Duration::from_millis(500)),
    ..Setup::AUTO.beside()
};

#[test]
fn the_sender_dies() {
    all("death of the sender", ORPHANS, LONG, &[]);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn handshakes_large() {
    let setup = Setup {
        first: 1,
        ..Setup::AUTO
    };
    all("handshakes, large", setup, FAULTS, &[]);
    let faults = Faults {
        losses: 2,
        duplicates: 1,
        horizon: Duration::from_secs(2),
        ..FAULTS
    };
    let name = "handshake, two losses, large";
    all(name, setup.beside(), faults, &[]);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn losses_large() {
    let last = [Change::Last(2)];
    let setup = Setup::AUTO.after(0).beside();
    all("both ways, large", setup, ONE_LOSS, &last);
    let faults = Faults {
        losses: 2,
        ..FAULTS
    };
    let setup = Setup::UNICAST.after(0).beside();
    all("unicast, two losses, large", setup, faults, &last);
    let setup = Setup::MULTICAST.after(0).beside();
    all("multicast, two losses, large", setup, faults, &last);
    let faults = Faults {
        duplicates: 1,
        ..LATE
    };
    all("late packets, large", setup, faults, &last);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn two_receivers_large() {
    let setup = Setup::MULTICAST.after(0);
    let last = [Change::Last(1)];
    all("two receivers, loss, large", setup, ONE_LOSS, &last);
    let setup = Setup::AUTO.after(0);
    all("two receivers, both ways, large", setup, FAULTS, &last);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn modes_large() {
    let name = "fall forward with a loss, large";
    all(name, SINGLE.after(15), ONE_LOSS, &[Change::Last(3)]);
    let before = [Change::Fail(1), Change::Last(5)];
    let faults = Faults { losses: 1, ..LONG };
    all("fall back with a loss, large", DEAD, faults, &before);
    let setup = Setup {
        capacity: 1 << 20,
        ..DEAD
    };
    let before = [Change::Fail(1), Change::Last(7)];
    all("fall back by flights, large", setup, LONG, &before);
    // The feedback counts again when 128 segments have followed the fall-back.
    let before = [
        Change::Fail(1),
        Change::More(8),
        Change::Return(1),
        Change::More(125),
        Change::Last(3),
    ];
    all("fall forward again, large", setup, FAULTS, &before);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn deaths_large() {
    let faults = Faults { losses: 1, ..LONG };
    all("death of a receiver, large", MORTAL, faults, &[]);
    let setup = Setup {
        deaths: &[1, 2],
        restarts: true,
        ..Setup::MULTICAST
    };
    all("death of one of two, large", setup, FAULTS, &[]);
    let name = "death of the sender, large";
    all(name, ORPHANS, faults, &[]);
}
