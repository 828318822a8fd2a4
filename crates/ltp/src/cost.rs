//! The replier cost of a receiver that loses packets itself.
//!
//! Routers elect the host that offers the lowest cost (LMS-HIER). A host cannot
//! repair packets that it has lost itself, and each request for them that is sent to it ends in a timeout. So its
//! cost rises with its own loss:
//!
//! | it lost | cost |
//! | --- | --- |
//! | less than 1 % | as configured |
//! | 1 % or more | twice the configured cost |
//! | 2, 4, 8, 16 % or more | three, four, five, six times |
//!
//! It rises with the first interval that shows the loss, and falls by one step after three intervals in a row
//! that show less, so that elections do not swing back and forth.

use proto_core::time::{Duration, Instant};

/// Length of a measurement before the cost may change.
const INTERVAL: Duration = Duration::from_secs(2);
/// Smallest number of packets in a measurement.
const LEAST_PACKETS: u64 = 256;
/// Intervals with less loss before the cost falls by a step.
const QUIET_INTERVALS: u8 = 3;
/// Highest cost that is an offer.
const HIGHEST: u16 = u16::MAX - 1;

/// The replier cost to offer: see the [module documentation](self).
#[derive(Clone, Debug)]
pub struct ReplierCost {
    base: u16,
    step: u16,
    quiet: u8,
    since: Instant,
    expected: u64,
    came: u64,
}

impl ReplierCost {
    /// Starts with the configured cost; loss is measured from here on, with the receiver's
    /// [`loss_counters`](crate::Receiver::loss_counters).
    pub fn new(base: u16, now: Instant, (expected, came): (u64, u64)) -> Self {
        ReplierCost {
            base,
            step: 0,
            quiet: 0,
            since: now,
            expected,
            came,
        }
    }

    /// The cost to offer now.
    pub fn cost(&self) -> u16 {
        self.base.saturating_mul(self.step + 1).min(HIGHEST)
    }

    /// Takes in the receiver's counters; returns whether the cost has changed.
    pub fn update(&mut self, now: Instant, (expected, came): (u64, u64)) -> bool {
        let packets = expected.saturating_sub(self.expected);
        if now < self.since + INTERVAL || packets < LEAST_PACKETS {
            return false;
        }
        let lost = packets.saturating_sub(came.saturating_sub(self.came));
        (self.since, self.expected, self.came) = (now, expected, came);
        let old = self.cost();
        let step = step(100 * lost / packets);
        if step >= self.step {
            self.quiet = 0;
            self.step = step;
        } else {
            self.quiet += 1;
            if self.quiet == QUIET_INTERVALS {
                self.quiet = 0;
                self.step -= 1;
            }
        }
        self.cost() != old
    }
}

fn step(percent: u64) -> u16 {
    match percent {
        0 => 0,
        1 => 1,
        2..4 => 2,
        4..8 => 3,
        8..16 => 4,
        _ => 5,
    }
}
