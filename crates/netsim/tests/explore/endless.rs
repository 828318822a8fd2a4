//! Runs that do not end.

use std::convert::Infallible;

use netsim::explore::{Faults, Fingerprint, Nodes, Outbox, START};
use netsim::{Duration, Instant};

use crate::{QUIET, found};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Defect {
    /// Each node answers every packet.
    Storm,
    /// A timer that expires leads to itself.
    Spin,
    /// As `Spin`, but only after the horizon.
    LateSpin,
    /// The timer is set again and again, and nothing comes of it.
    Retries,
}

#[derive(Debug)]
struct Endless {
    defect: Defect,
    timer: Option<Instant>,
}

impl Nodes for Endless {
    type Packet = u8;
    type Command = Infallible;

    fn count(&self) -> usize {
        2
    }

    fn handle_packet(&mut self, _: Instant, node: usize, packet: &u8, out: &mut Outbox<u8>) {
        out.send(1 - node, *packet);
    }

    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<u8>) {
        if node == 1 {
            return;
        }
        self.timer = match self.defect {
            Defect::Storm => {
                out.send(1, 0);
                None
            }
            Defect::Spin => Some(now),
            Defect::LateSpin => Some(now.max(START + QUIET.horizon + Duration::from_secs(1))),
            Defect::Retries => Some(now + Duration::from_secs(1)),
        };
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        self.timer.filter(|_| node == 0)
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.debug(self);
    }

    fn check_end(&mut self, _: Instant) -> Result<(), String> {
        Err("it has not ended".into())
    }
}

fn violation(defect: Defect, faults: Faults) -> (String, usize) {
    let timer = None;
    let example = found(|| Endless { defect, timer }, faults);
    (example.violation.clone(), example.choices.len())
}

#[test]
fn an_endless_storm() {
    let (violation, len) = violation(Defect::Storm, QUIET);
    assert!(violation.starts_with("the run need not end"), "{violation}");
    assert_eq!(len, 2);
}

#[test]
fn a_timer_that_spins() {
    let (text, len) = violation(Defect::Spin, QUIET);
    assert!(text.starts_with("the run need not end"), "{text}");
    assert_eq!(len, 1);
    let (text, _) = violation(Defect::LateSpin, QUIET);
    assert!(text.contains("actions at one instant"), "{text}");
}

#[test]
fn retries_without_end() {
    let (violation, _) = violation(Defect::Retries, QUIET);
    assert_eq!(violation, "it has not ended");
}
