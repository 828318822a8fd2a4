//! The rate of a sender without a configured rate.
//!
//! It grows until a receiver loses more than 2 % of what the source sends, repaired or not,
//! and slows down then. What receivers report decides ([`crate::wire::report::Loss`]): requests do not
//! tell, since most of them never reach a source that has helpers. This is not congestion control: it
//! does not yield to flows that slow down at less loss, such as TCP.

use proto_core::time::{Duration, Instant};

/// A receiver that loses more than this, in thousandths, slows the sender down.
pub const TOLERATED_PER_MILLE: u16 = 20;
/// The rate never falls below this, bit/s.
pub const FLOOR_BPS: u64 = 64_000;
/// Where it starts, bit/s. A slow link on the way then loses a few megabytes, not a whole window, before
/// the first reports come, and a fast host is at 4 Gbit/s after 90 ms.
pub const START_BPS: u64 = 500_000_000;
/// Rates from this on count as unlimited, bit/s.
pub const CEILING_BPS: u64 = 100_000_000_000;

/// Length of a measurement before the rate changes.
const INTERVAL: Duration = Duration::from_millis(50);
/// Likewise before the first loss, while the rate doubles.
const SEARCH_INTERVAL: Duration = Duration::from_millis(30);
/// Smallest number of packets in a measurement.
const LEAST_PACKETS: u64 = 64;
/// Time after slowing down in which reports are still of older packets.
const PAUSE: Duration = Duration::from_millis(300);
/// The first loss is reported two or three doublings late: that much of the rate is left.
const FIRST_CUT: u64 = 8;
/// In each interval the rate grows by one part in this number.
const GROWTH: u64 = 32;

/// Totals of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Data packets, without repairs.
    pub packets: u64,
    /// Ethernet frame bytes.
    pub frame_bytes: u64,
}

/// Looks for the rate at which no receiver loses more than [`TOLERATED_PER_MILLE`].
#[derive(Clone, Debug)]
pub struct RateSearch {
    rate_bps: u64,
    searching: bool,
    sent: Sent,
    since: Instant,
    paused_until: Instant,
    worst: Option<u16>,
}

impl RateSearch {
    /// Starts at [`START_BPS`].
    pub fn new(now: Instant) -> Self {
        RateSearch {
            rate_bps: START_BPS,
            searching: true,
            sent: Sent::default(),
            since: now,
            paused_until: now,
            worst: None,
        }
    }

    /// The rate to send with, bit/s of Ethernet frames; `None` while it counts as unlimited.
    pub fn rate_bps(&self) -> Option<u64> {
        (self.rate_bps < CEILING_BPS).then_some(self.rate_bps)
    }

    /// Updates the rate from what was sent and lost. Returns whether it changed. `loss` is the worst of
    /// the receivers since the last call, in thousandths ([`crate::Sender::take_worst_loss`]).
    pub fn update(&mut self, now: Instant, sent: Sent, loss: Option<u16>) -> bool {
        self.worst = self.worst.max(loss);
        let elapsed = now - self.since;
        let interval = if self.searching {
            SEARCH_INTERVAL
        } else {
            INTERVAL
        };
        if elapsed < interval {
            return false;
        }
        let packets = sent.packets - self.sent.packets;
        let bits = 8_000_000 * (sent.frame_bytes - self.sent.frame_bytes);
        let achieved = bits / elapsed.total_micros().max(1);
        let old = self.rate_bps;
        let is_worse = self.worst.is_some_and(|loss| loss > TOLERATED_PER_MILLE);
        if is_worse && now >= self.paused_until {
            self.slow_down(now, achieved);
        } else if packets == 0 {
            // Time in which nothing was sent shows nothing.
        } else if packets < LEAST_PACKETS {
            return false;
        } else if !is_worse && now >= self.paused_until {
            self.speed_up(achieved, elapsed);
        }
        (self.since, self.sent) = (now, sent);
        self.worst = None;
        self.rate_bps != old
    }

    fn slow_down(&mut self, now: Instant, achieved: u64) {
        self.paused_until = now + PAUSE;
        let lost = u64::from(self.worst.unwrap_or(0).min(875));
        // What got through, and a tenth less, so that queues on the way drain.
        let passed = self.rate_bps / 1000 * (1000 - lost) / 10 * 9;
        // A rate that was not reached is not reduced step by step.
        let mut rate = passed.min(achieved.max(self.rate_bps / FIRST_CUT));
        if core::mem::take(&mut self.searching) {
            rate = rate.min(self.rate_bps / FIRST_CUT);
        }
        self.rate_bps = rate.max(FLOOR_BPS);
    }

    fn speed_up(&mut self, achieved: u64, elapsed: Duration) {
        if achieved < self.rate_bps / 2 {
            // Something else holds the sender back; more would only be a burst later.
            return;
        }
        let step = if self.searching {
            self.rate_bps
        } else {
            // At low rates an interval takes longer.
            let intervals = elapsed.total_micros() / INTERVAL.total_micros().max(1);
            self.rate_bps / GROWTH * intervals.clamp(1, GROWTH / 2)
        };
        self.rate_bps = (self.rate_bps + step).min(CEILING_BPS);
    }
}
