//! One rate for all flows of a session, and whose turn it is.
//!
//! A flow that the rate stops goes to the end of a queue. When the rate allows, the first flow sends a burst
//! and queues again: all proceed at the same pace, whatever their number and that of their receivers. Neither
//! this nor a flow's own pace involves other flows.

use alloc::collections::{BTreeSet, VecDeque};

use proto_core::time::{Duration, Instant};

/// The flows of a session that wait for time to pass.
#[derive(Default)]
pub(crate) struct Turns {
    /// Holds all copies of all flows to the rate that the user allows.
    pub(crate) cap: Pace,
    /// Flows that wait for it.
    pub(crate) waiting: VecDeque<u32>,
    /// The flow whose turn it is: it is about to send a burst.
    pub(crate) given: Option<u32>,
    /// Flows that wait for their own pace, and until when.
    pub(crate) spreading: BTreeSet<(Instant, u32)>,
}

/// A rate that new data is held to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pace {
    /// Bits a second; 0: no bound.
    pub(crate) rate_bps: u64,
    /// When the next burst may start.
    next: Option<Instant>,
}

/// Sending may fall behind its schedule by this much and catch up.
const PACE_SLACK: Duration = Duration::from_millis(2);

impl Pace {
    /// Bits a second; 0: no bound.
    pub(crate) const fn at(rate_bps: u64) -> Self {
        Self {
            rate_bps,
            next: None,
        }
    }

    /// Changes the rate, also for bytes that were sent already.
    pub(crate) fn change(&mut self, now: Instant, rate_bps: u64) {
        let old = core::mem::replace(&mut self.rate_bps, rate_bps);
        self.next = self.next.filter(|&next| next > now && rate_bps > 0);
        if let Some(next) = &mut self.next {
            let us = u128::from((*next - now).total_micros()) * u128::from(old);
            let us = u64::try_from(us / u128::from(rate_bps)).unwrap_or(u64::MAX);
            *next = now + Duration::from_micros(us.min(1 << 50));
        }
    }

    pub(crate) fn allows(&self, now: Instant) -> bool {
        self.rate_bps == 0 || self.next.is_none_or(|next| next <= now)
    }

    pub(crate) fn spend(&mut self, now: Instant, bytes: u64) {
        if self.rate_bps == 0 {
            self.next = None;
            return;
        }
        let us = bytes.saturating_mul(8_000_000) / self.rate_bps;
        let from = self.next.map_or(now, |next| next.max(now - PACE_SLACK));
        self.next = Some(from + Duration::from_micros(us));
    }

    /// When sending may go on, if not now.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.next.filter(|_| !self.allows(now))
    }
}
