//! The alternating bit protocol: correct where packets stay in order, wrong where they overtake each other.

use std::convert::Infallible;

use netsim::explore::{Faults, Fingerprint, Network, Nodes, Outbox, START, replay};
use netsim::{Duration, Instant};

use crate::{QUIET, all, found};

const SENDER: usize = 0;
const RECEIVER: usize = 1;
const RETRY: Duration = Duration::from_secs(1);

/// An item or an acknowledgement under a sequence number that wraps at `modulus`.
#[derive(Clone, Copy, Hash, Debug)]
struct Packet {
    sequence: u8,
    item: u8,
}

#[derive(Debug)]
struct Transfer {
    modulus: u8,
    items: u8,
    acknowledged: u8,
    retry_at: Instant,
    received: Vec<u8>,
}

impl Transfer {
    fn new(modulus: u8, items: u8) -> Self {
        Transfer {
            modulus,
            items,
            acknowledged: 0,
            retry_at: START,
            received: Vec::new(),
        }
    }

    fn send(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        let item = self.acknowledged;
        if item < self.items {
            let sequence = item % self.modulus;
            out.send(RECEIVER, Packet { sequence, item });
            self.retry_at = now + RETRY;
        }
    }
}

impl Nodes for Transfer {
    type Packet = Packet;
    type Command = Infallible;

    fn count(&self) -> usize {
        2
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        node: usize,
        packet: &Packet,
        out: &mut Outbox<Packet>,
    ) {
        if node == SENDER {
            if packet.sequence == self.acknowledged % self.modulus {
                self.acknowledged += 1;
                self.send(now, out);
            }
            return;
        }
        if packet.sequence == self.received.len() as u8 % self.modulus {
            self.received.push(packet.item);
        }
        out.send(SENDER, *packet);
    }

    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        if node == SENDER && self.retry_at <= now {
            self.send(now, out);
        }
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        Some(self.retry_at).filter(|_| node == SENDER && !self.has_ended())
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.debug(self);
    }

    fn check(&self, _now: Instant) -> Result<(), String> {
        let is_right = (0..self.items).zip(&self.received).all(|(a, b)| a == *b);
        match is_right && self.received.len() <= usize::from(self.items) {
            true => Ok(()),
            false => Err(format!("received {:?}", self.received)),
        }
    }

    fn has_ended(&self) -> bool {
        self.acknowledged == self.items
    }

    fn check_end(&mut self, _now: Instant) -> Result<(), String> {
        match self.received.len() == usize::from(self.items) && self.has_ended() {
            true => Ok(()),
            false => Err(format!("the end after {:?}", self.received)),
        }
    }
}

/// Packets that are in flight for longer than a retry.
const OVERTAKING: Faults = Faults {
    max_delay: Duration::from_millis(1_500),
    ..QUIET
};

#[test]
fn one_bit_is_not_enough_where_packets_overtake() {
    let example = found(|| Transfer::new(2, 4), OVERTAKING);
    assert!(example.violation.contains("received"), "{example}");
    // Item 0 comes, is sent again, and the copy comes as item 2, after item 1.
    assert_eq!(example.choices.len(), 5, "{example}");
    let world = replay(
        || Network::new(Transfer::new(2, 4), OVERTAKING),
        &example.choices,
    );
    world.nodes().check(START).expect_err("the same violation");
}

#[test]
fn numbers_that_do_not_wrap_are() {
    let report = all(|| Transfer::new(8, 4), OVERTAKING).expect("no defect");
    assert!(report.states > 20 && report.ends > 1, "{report}");
}

#[test]
fn one_bit_is_enough_where_no_packet_outlives_its_retry() {
    let faults = Faults {
        losses: 3,
        max_delay: Duration::from_millis(400),
        ..QUIET
    };
    all(|| Transfer::new(2, 4), faults).expect("no defect");
}
