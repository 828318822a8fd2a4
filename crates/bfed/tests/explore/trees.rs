//! JOIN, LEAVE, TRANSLATION and NO_ROUTE among three gateways, with a link that fails and returns.
//!
//! Streams keep the order of their messages; messages on different streams, timers, the link and the clients come in every
//! order. In every state no data goes in a circle or comes twice, and the counts of sessions are right. At the end of every
//! run the tree leads to all clients that want the session and nowhere else, and each request has an answer.

use bfed::Duration;
use bfed::wire::no_route::Reason;
use netsim::explore::{Faults, Network};

use crate::federation::{Change, FAR, Federation, MIDDLE, OWNER, Setup};

/// Messages arrive before time passes.
const FAULTS: Faults = Faults {
    losses: 0,
    duplicates: 0,
    max_delay: Duration::ZERO,
    max_lateness: Duration::ZERO,
    horizon: Duration::from_millis(900),
    settle: Duration::from_secs(20),
};

/// Messages take longer than a gateway waits for the answer to a JOIN.
const SLOW: Faults = Faults {
    max_delay: Duration::from_secs(1),
    horizon: Duration::from_secs(1),
    ..FAULTS
};

/// When peerings and trees have settled.
const SETTLED: Duration = Duration::from_millis(100);

/// The tree to the far gateway leads through the middle one.
const LINE: Setup = Setup {
    cost: 5,
    both_dial: false,
    restart_time_s: 0,
    clients: &[],
    failing: ((OWNER, MIDDLE), 0),
    slow_nodes: false,
    refusals: &[],
};

/// The link between the owner and the middle gateway fails: the tree turns round.
const FAILURE: Setup = Setup {
    failing: ((OWNER, MIDDLE), 1),
    // A route was withdrawn; a gateway that does not know that yet is refused.
    refusals: &[Reason::Unreachable, Reason::Policy],
    ..LINE
};

/// Peers keep what they have of each other for a while.
const GRACEFUL: Setup = Setup {
    restart_time_s: 2,
    ..FAILURE
};

const BOTH: &[Change] = &[Change::Join(MIDDLE), Change::Join(FAR)];

/// Explores all runs that follow the changes in `before`.
fn all(name: &str, setup: Setup, faults: Faults, before: &[Change]) {
    crate::all(&format!("trees, {name}"), || {
        let mut network = Network::new(Federation::new(setup), faults);
        network.run_for(SETTLED);
        for change in before {
            network.execute(change);
            network.run_for(SETTLED);
        }
        network
    });
}

fn clients(clients: &'static [(usize, u32)], setup: Setup) -> Setup {
    Setup { clients, ..setup }
}

const EACH: &[(usize, u32)] = &[(MIDDLE, 1), (FAR, 1)];

#[test]
fn clients_join_and_leave() {
    all("joins", clients(EACH, LINE), FAULTS, &[]);
    let setup = Setup {
        slow_nodes: true,
        ..clients(&[(FAR, 1)], LINE)
    };
    all("joins, slow data nodes", setup, FAULTS, &[]);
}

#[test]
fn answers_come_too_late() {
    let setup = Setup {
        refusals: &[Reason::Timeout],
        ..clients(&[(MIDDLE, 2)], LINE)
    };
    all("late answers", setup, SLOW, &[]);
}

#[test]
fn a_link_fails_and_returns() {
    all("failure", FAILURE, FAULTS, BOTH);
    let setup = Setup {
        failing: ((MIDDLE, FAR), 1),
        ..FAILURE
    };
    all("failure of the second link", setup, FAULTS, BOTH);
    let setup = Setup {
        cost: 1,
        failing: ((OWNER, FAR), 1),
        ..FAILURE
    };
    all("failure of a direct link", setup, FAULTS, BOTH);
}

#[test]
fn what_is_kept_of_a_lost_peer_is_right_when_it_returns() {
    all("graceful", clients(EACH, GRACEFUL), FAULTS, BOTH);
    let setup = clients(&[(MIDDLE, 1)], GRACEFUL);
    all("graceful, with a new client", setup, FAULTS, &[]);
}

#[test]
fn both_ends_of_a_link_dial() {
    let setup = Setup {
        both_dial: true,
        ..FAILURE
    };
    all("both dial", setup, FAULTS, &[]);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn clients_join_and_leave_large() {
    let twice = clients(&[(MIDDLE, 2), (FAR, 2)], LINE);
    all("joins, large", twice, FAULTS, &[]);
    let setup = Setup {
        slow_nodes: true,
        ..clients(EACH, LINE)
    };
    all("joins, slow data nodes, large", setup, FAULTS, &[]);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn answers_come_too_late_large() {
    let setup = Setup {
        refusals: &[Reason::Timeout],
        ..clients(EACH, LINE)
    };
    all("late answers, large", setup, SLOW, &[]);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn a_link_fails_and_returns_large() {
    all("failure, large", clients(EACH, FAILURE), FAULTS, BOTH);
    let setup = clients(&[(MIDDLE, 1)], FAILURE);
    all("failure with a new client, large", setup, FAULTS, &[]);
    let setup = Setup {
        cost: 1,
        failing: ((OWNER, FAR), 1),
        ..clients(&[(FAR, 1)], FAILURE)
    };
    all("failure of a direct link, large", setup, FAULTS, &[]);
    let setup = Setup {
        failing: ((OWNER, MIDDLE), 2),
        ..FAILURE
    };
    let faults = Faults {
        horizon: Duration::from_millis(300),
        ..FAULTS
    };
    all("two failures, large", setup, faults, BOTH);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn what_is_kept_of_a_lost_peer_is_right_when_it_returns_large() {
    let setup = Setup {
        failing: ((OWNER, MIDDLE), 2),
        ..clients(EACH, GRACEFUL)
    };
    all("graceful, two failures, large", setup, FAULTS, BOTH);
    let setup = Setup {
        slow_nodes: true,
        ..clients(EACH, GRACEFUL)
    };
    all("graceful, slow data nodes, large", setup, FAULTS, BOTH);
    // Longer than anything is kept.
    let faults = Faults {
        horizon: Duration::from_secs(3),
        ..FAULTS
    };
    all("graceful, in vain, large", GRACEFUL, faults, BOTH);
}
