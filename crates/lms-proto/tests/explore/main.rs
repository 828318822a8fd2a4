//! All runs of LMS-HIER in a small network of real routers and hosts.
//!
//! Two routers and three hosts elect repliers for one entry, while packets are lost, duplicated and overtaken, and nodes
//! die, leave and restart. At the end of every run each router has elected the cheapest host that is left, the hosts know
//! it, and the request of each host comes to a host that answers, or to the source.

mod network;
mod requests;

use lms_proto::Duration;
use netsim::explore::{Bounds, Faults, Network, explore};

use crate::network::{CHEAP, Change, Changes, DEAR, HOSTS, LOWER, MIDDLE, Site, UPPER};

const REFRESH: Duration = Duration::from_millis(100);
/// How long a silent neighbour is believed.
const HOLD: Duration = lms_proto::hier::hold_time(REFRESH);
/// When the network that nothing happened to has settled.
const SETTLED: Duration = Duration::from_millis(150);

/// Packets overtake others of the same burst. Everything settles within two hold times: the lower router's offer and the
/// upper router's, one after the other.
const FAULTS: Faults = Faults {
    losses: 0,
    duplicates: 0,
    max_delay: Duration::from_millis(4),
    max_lateness: Duration::ZERO,
    horizon: Duration::from_millis(30),
    settle: Duration::from_millis(2 * 350 + 100),
};

const DEATHS: Changes = Changes {
    deaths: &HOSTS,
    leaves: &[],
    restarts: &[],
};

/// Explores all runs from the state after `before`.
fn all(name: &str, changes: Changes, faults: Faults, before: impl Fn(&mut Network<Site>)) {
    let make = || {
        let mut network = Network::new(Site::new(changes, faults), faults);
        before(&mut network);
        network
    };
    let report = explore(make, Bounds::default()).unwrap_or_else(|example| panic!("{example}"));
    assert!(report.is_complete && report.ends > 1, "{report}");
    println!("LMS-HIER, {name}: {report}");
}

/// Lets a host die, and time pass until shortly before its offer expires.
fn until_failover(host: usize) -> impl Fn(&mut Network<Site>) {
    move |network| {
        network.run_for(SETTLED);
        network.execute(&Change::Death(host));
        network.run_for(HOLD - Duration::from_millis(110));
    }
}

#[test]
fn a_host_dies_during_the_first_election() {
    let faults = Faults {
        max_delay: Duration::from_millis(2),
        horizon: Duration::from_millis(20),
        ..FAULTS
    };
    all("first election", DEATHS, faults, |_| {});
}

#[test]
fn where_nothing_is_lost_no_hold_time_has_to_pass() {
    let faults = Faults {
        max_delay: Duration::from_millis(2),
        horizon: Duration::from_millis(20),
        // Two advertisements one after the other, each delayed by damping.
        settle: Duration::from_millis(2 * 100 + 20),
        ..FAULTS
    };
    all("no loss", Changes::default(), faults, |_| {});
}

#[test]
fn another_host_is_elected_when_the_offer_of_a_dead_one_expires() {
    let faults = Faults {
        losses: 1,
        duplicates: 1,
        horizon: Duration::from_millis(120),
        ..FAULTS
    };
    let before = until_failover(CHEAP);
    all("failover", Changes::default(), faults, before);
}

#[test]
fn hosts_leave_die_and_restart() {
    let faults = Faults {
        losses: 1,
        // A router that has restarted is believed after a second (`restart_interval`).
        settle: Duration::from_millis(1_000 + 350 + 100),
        ..FAULTS
    };
    let changes = Changes {
        leaves: &[CHEAP],
        restarts: &[LOWER, MIDDLE],
        ..DEATHS
    };
    all("departures", changes, faults, |network| {
        network.run_for(SETTLED);
    });
}

#[test]
#[ignore = "large: minutes in a release build"]
fn first_election_large() {
    let faults = Faults {
        losses: 1,
        duplicates: 1,
        horizon: Duration::from_millis(20),
        ..FAULTS
    };
    all("first election, large", DEATHS, faults, |_| {});
}

#[test]
#[ignore = "large: minutes in a release build"]
fn failover_large() {
    let faults = Faults {
        losses: 3,
        duplicates: 1,
        max_delay: Duration::from_millis(30),
        max_lateness: Duration::from_millis(2),
        horizon: Duration::from_millis(120),
        ..FAULTS
    };
    for (name, host) in [("lower", CHEAP), ("middle", MIDDLE), ("upper", DEAR)] {
        let name = format!("failover of a {name} host, large");
        all(&name, Changes::default(), faults, until_failover(host));
    }
}

#[test]
#[ignore = "large: minutes in a release build"]
fn departures_large() {
    let faults = Faults {
        losses: 1,
        horizon: Duration::from_millis(38),
        settle: Duration::from_millis(1_000 + 350 + 100),
        ..FAULTS
    };
    let changes = Changes {
        deaths: &[LOWER, DEAR, CHEAP, MIDDLE],
        leaves: &HOSTS,
        restarts: &[UPPER, LOWER, DEAR, CHEAP, MIDDLE],
    };
    all("departures, large", changes, faults, |network| {
        network.run_for(SETTLED);
    });
}
