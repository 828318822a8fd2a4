//! Worlds whose states can be counted by hand.

use netsim::explore::{Bounds, Faults, Fingerprint, Network, Nodes, Outbox, START, explore};
use netsim::{Duration, Instant};

use crate::{QUIET, all};

/// Node 0 sends one packet to each other node, or all to node 1 in a stream; commands take nodes away, or end the stream.
#[derive(Clone, Debug, Default)]
struct Fan {
    nodes: usize,
    is_stream: bool,
    deaths: u32,
    received: Vec<usize>,
    dead: Vec<usize>,
    /// Counts what makes no difference.
    stats: u32,
}

impl Nodes for Fan {
    type Packet = usize;
    type Command = usize;

    fn count(&self) -> usize {
        self.nodes
    }

    fn is_alive(&self, node: usize) -> bool {
        !self.dead.contains(&node)
    }

    fn handle_packet(&mut self, _: Instant, _: usize, packet: &usize, _: &mut Outbox<usize>) {
        self.stats += 1;
        if !self.is_stream {
            assert!(
                !self.received.contains(packet),
                "packet {packet} came twice"
            );
        }
        self.received.push(*packet);
        if !self.is_stream {
            self.received.sort_unstable();
        }
    }

    fn handle_timeout(&mut self, _: Instant, node: usize, out: &mut Outbox<usize>) {
        for other in (1..self.nodes).filter(|_| node == 0) {
            match self.is_stream {
                true => out.send_in_stream(1, 5, other),
                false => out.send(other, other),
            }
        }
    }

    fn poll_timeout(&self, _: usize) -> Option<Instant> {
        None
    }

    fn commands(&self, commands: &mut Vec<usize>) {
        if (self.dead.len() as u32) < self.deaths {
            commands.extend((1..self.nodes).filter(|&node| self.is_alive(node)));
        }
    }

    fn command(&mut self, _: Instant, node: &usize, out: &mut Outbox<usize>) {
        if self.is_stream {
            self.deaths = 0;
            out.end_stream(*node, 5);
        } else {
            self.dead.push(*node);
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.debug(self);
    }

    fn check(&self, _: Instant) -> Result<(), String> {
        let is_sorted = self.received.is_sorted();
        if is_sorted {
            Ok(())
        } else {
            Err("out of order".into())
        }
    }

    fn check_end(&mut self, _: Instant) -> Result<(), String> {
        Ok(())
    }
}

fn fan(nodes: usize) -> Fan {
    Fan {
        nodes,
        ..Fan::default()
    }
}

#[test]
fn packets_that_do_not_depend_on_each_other() {
    // Each of 6 packets is in flight or has arrived.
    let report = all(|| fan(7), QUIET).expect("no defect");
    let counts = (report.states, report.transitions, report.ends, report.depth);
    assert_eq!(counts, (64, 6 * 32, 1, 6), "{report}");
}

#[test]
fn losses_are_counted() {
    // Of 3 packets each is in flight, has arrived, or is lost, at most one of them.
    let faults = Faults { losses: 1, ..QUIET };
    let report = all(|| fan(4), faults).expect("no defect");
    assert_eq!((report.states, report.ends), (8 + 3 * 4, 4), "{report}");
}

#[test]
fn a_copy_is_found() {
    let faults = Faults {
        duplicates: 1,
        ..QUIET
    };
    let example = crate::found(|| fan(4), faults);
    assert_eq!(example.choices.len(), 2, "{example}");
    assert!(example.violation.starts_with("panic: packet "), "{example}");
    let text = example.to_string();
    let lines = ["deliver and keep to node 1: 1", "deliver to node 1: 1"];
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
}

#[test]
fn a_stream_keeps_its_order_and_loses_nothing() {
    let faults = Faults {
        losses: 2,
        duplicates: 2,
        ..QUIET
    };
    let stream = || Fan {
        is_stream: true,
        ..fan(7)
    };
    let report = all(stream, faults).expect("no defect");
    assert_eq!((report.states, report.transitions), (7, 6), "{report}");
}

#[test]
fn what_is_in_flight_is_lost_when_its_stream_ends() {
    let stream = || Fan {
        is_stream: true,
        deaths: 1,
        ..fan(3)
    };
    // 0 to 2 packets have arrived, and the stream lasts, or has ended, or another one has, with packets in flight.
    let report = all(stream, QUIET).expect("no defect");
    assert_eq!((report.states, report.ends), (3 + 3 + 2, 1 + 3), "{report}");
}

#[test]
fn the_dead_receive_nothing() {
    // Each of 2 packets is in flight, has arrived, or its receiver is dead, before or after; not both are dead. A run
    // may end without a death.
    let world = || Fan {
        deaths: 1,
        ..fan(3)
    };
    let report = all(world, QUIET).expect("no defect");
    assert_eq!(
        (report.states, report.ends),
        (4 * 4 - 2 * 2, 1 + 4),
        "{report}"
    );
}

#[test]
fn bounds_cut_the_search() {
    let make = || Network::new(fan(7), QUIET);
    let depth = Bounds {
        depth: 2,
        ..Bounds::default()
    };
    let report = explore(make, depth).expect("no defect");
    assert_eq!(
        (report.states, report.ends, report.depth),
        (1 + 6 + 15, 15, 2)
    );
    assert!(!report.is_complete);

    let states = Bounds {
        states: 20,
        ..Bounds::default()
    };
    let report = explore(make, states).expect("no defect");
    // The last state that is expanded may lead to some more.
    assert!((20..26).contains(&report.states), "{report}");
    assert!(!report.is_complete);
}

/// Nodes that note when their timers expired, first at 1 s and 1.1 s.
#[derive(Debug)]
struct Timers {
    due: [Option<Instant>; 2],
    expired: Vec<(usize, Instant)>,
}

impl Nodes for Timers {
    type Packet = ();
    type Command = ();

    fn count(&self) -> usize {
        2
    }

    fn handle_packet(&mut self, _: Instant, _: usize, _: &(), _: &mut Outbox<()>) {}

    fn handle_timeout(&mut self, now: Instant, node: usize, _: &mut Outbox<()>) {
        if self.due[node].is_some_and(|at| at <= now) {
            self.due[node] = None;
            self.expired.push((node, now));
        }
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        self.due[node]
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.debug(self);
    }

    fn check_end(&mut self, _: Instant) -> Result<(), String> {
        let times = self.expired.iter().map(|&(_, at)| at);
        let latest = START + Duration::from_millis(1_100);
        match times.max() == Some(latest) && self.expired.len() == 2 {
            true => Ok(()),
            false => Err(format!("{:?}", self.expired)),
        }
    }
}

fn timers() -> Timers {
    Timers {
        due: [1_000, 1_100].map(|at| Some(START + Duration::from_millis(at))),
        expired: Vec::new(),
    }
}

#[test]
fn timers_expire_in_order_or_late() {
    assert_eq!(all(timers, QUIET).expect("no defect").states, 3);
    let late = |by| Faults {
        max_lateness: Duration::from_millis(by),
        ..QUIET
    };
    assert_eq!(all(timers, late(99)).expect("no defect").states, 3);
    assert_eq!(all(timers, late(100)).expect("no defect").states, 5);
    // Beyond the horizon they expire on the way to the end.
    let short = Faults {
        horizon: Duration::from_millis(1_050),
        ..QUIET
    };
    assert_eq!(all(timers, short).expect("no defect").states, 2);
}

#[test]
fn exploration_may_start_later() {
    let report = explore(
        || {
            let mut network = Network::new(timers(), QUIET);
            network.run_for(Duration::from_millis(1_050));
            network
        },
        Bounds::default(),
    );
    assert_eq!(report.expect("no defect").states, 2);
    let report = explore(
        || {
            let mut network = Network::new(fan(3), QUIET);
            network.execute(&1);
            network
        },
        Bounds::default(),
    );
    assert_eq!(report.expect("no defect").states, 2);
}
