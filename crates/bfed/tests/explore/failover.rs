//! The takeover between two control nodes of a gateway, with the real machines of control and data nodes.
//!
//! The active control node dies, or is cut off from etcd or from everything; it returns. Messages, timers, the end of leases
//! and the viewer come in every order.
//!
//! | property | when |
//! | --- | --- |
//! | at most one control node holds a lease | in every state |
//! | the data node obeys no older epoch after a newer one | in every state |
//! | data reaches the viewer that had it, once | in every state, also without any control node |
//! | no request is answered twice, no session is refused, numbers of sessions are right | in every state |
//! | exactly one control node is active, the one that etcd knows, if any is alive | at the end |
//! | the session is assigned to the data node, which has its two edges and one channel | at the end, for a viewer that stayed |
//! | nothing is left of the session in etcd, at the control nodes and at both data nodes | at the end, for one that left |
//! | each request has an answer, or its control node has ended | at the end |
//!
//! Without clocks two control nodes believe that they are active, and only epochs keep the data node from obeying both.

use bfed::Duration;
use netsim::explore::{Faults, Network};

use crate::cluster::{Change, Cluster, Setup};
use crate::gateway::SECOND;

/// Messages arrive before time passes.
const FAULTS: Faults = Faults {
    losses: 0,
    duplicates: 0,
    max_delay: Duration::ZERO,
    max_lateness: Duration::ZERO,
    horizon: Duration::from_millis(3500),
    settle: Duration::from_secs(20),
};

/// When the session is assigned.
const SETTLED: Duration = Duration::from_millis(100);

const NONE: Setup = Setup {
    deaths: 0,
    etcd_cuts: 0,
    cuts: 0,
    returns: 0,
    breaks: 0,
    leaves: false,
    is_blind: false,
    cut_for: SECOND,
    until: Duration::from_millis(1100),
};

/// Explores all runs from an assigned session on.
fn all(name: &str, setup: Setup, faults: Faults) {
    crate::all(&format!("failover, {name}"), || {
        let mut network = Network::new(Cluster::new(setup), faults);
        network.run_for(SETTLED);
        network.execute(&Change::Join);
        network.run_for(SETTLED);
        network
    });
}

fn until(horizon_ms: u64) -> Faults {
    Faults {
        horizon: Duration::from_millis(horizon_ms),
        ..FAULTS
    }
}

const DEATH: Setup = Setup { deaths: 1, ..NONE };
const RETURN: Setup = Setup {
    returns: 1,
    ..DEATH
};
const LEAVE: Setup = Setup {
    leaves: true,
    ..DEATH
};
const CUT: Setup = Setup {
    cuts: 1,
    // Longer than the lease.
    cut_for: Duration::from_millis(2500),
    ..NONE
};
const ETCD_CUT: Setup = Setup {
    etcd_cuts: 1,
    cuts: 0,
    ..CUT
};
const NO_CLOCK: Setup = Setup {
    breaks: 2,
    is_blind: true,
    cut_for: Duration::from_millis(6000),
    ..ETCD_CUT
};

#[test]
fn the_active_one_dies() {
    all("death", DEATH, FAULTS);
}

#[test]
fn the_viewer_leaves_meanwhile() {
    all("leave", LEAVE, until(1900));
}

#[test]
fn the_active_one_is_cut_off_from_etcd() {
    all("etcd cut", ETCD_CUT, FAULTS);
}

#[test]
fn the_active_one_is_cut_off() {
    all("cut", CUT, FAULTS);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn the_active_one_dies_large() {
    let until = SECOND * 3;
    all("death, large", Setup { until, ..DEATH }, FAULTS);
    all("return, large", RETURN, FAULTS);
    all("leave, large", LEAVE, FAULTS);
    let both = Setup {
        leaves: true,
        ..RETURN
    };
    all("return and leave, large", both, FAULTS);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn the_active_one_is_cut_off_large() {
    let cut_for = SECOND;
    all("short cut, large", Setup { cut_for, ..CUT }, FAULTS);
    let leaves = true;
    all("cut and leave, large", Setup { leaves, ..CUT }, FAULTS);
    all(
        "etcd cut and leave, large",
        Setup { leaves, ..ETCD_CUT },
        FAULTS,
    );
    let until = SECOND * 3;
    let death = Setup {
        deaths: 1,
        until,
        ..CUT
    };
    all("cut and death, large", death, FAULTS);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn messages_take_time_large() {
    let faults = Faults {
        max_delay: Duration::from_millis(300),
        max_lateness: Duration::from_millis(100),
        ..until(1900)
    };
    all("death, slow, large", DEATH, faults);
    all("etcd cut, slow, large", ETCD_CUT, faults);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn a_control_node_whose_clock_stands_is_fenced_large() {
    all("no clock, large", NO_CLOCK, until(5500));
}
