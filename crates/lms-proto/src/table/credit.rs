//! The repairs that turned requests allow, and for how long.

use super::Entry;
use crate::{Duration, Instant};

/// Resolution of an entry's credit time.
const CREDIT_TICK: Duration = Duration::from_millis(250);
/// Longest credit time: an hour.
const MAX_TICKS: u16 = 4 * 3_600;

/// How many repairs a turned request lets pass, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CreditLimit {
    per_request: u16,
    /// The ticks of the credit time and the one that has begun, which is not counted.
    ticks: u16,
}

impl CreditLimit {
    /// Creates a limit. The time is rounded up to quarters of a second, and is at most an hour.
    pub(crate) fn new(per_request: u16, time: Duration) -> Self {
        let ticks = time
            .total_micros()
            .div_ceil(CREDIT_TICK.total_micros())
            .clamp(1, u64::from(MAX_TICKS));
        CreditLimit {
            per_request,
            ticks: ticks as u16 + 1,
        }
    }
}

/// Returns the time in quarters of a second, modulo 2^32 (34 years).
fn tick(now: Instant) -> u32 {
    let tick = CREDIT_TICK.total_micros() as i64;
    now.total_micros().div_euclid(tick) as u32
}

impl<A> Entry<A> {
    /// Adds the credit of a turned request, up to 65,535 repairs. A request in the classic form also admits repairs in
    /// that form, for its own credit time and while the entry has credit.
    #[inline]
    pub(crate) fn add_credit(&mut self, now: Instant, limit: &CreditLimit, is_classic: bool) {
        let now = tick(now);
        let left = self.ticks_left(now);
        let credit = if left > 0 { self.credit } else { 0 };
        let classic_left = match is_classic {
            true => limit.ticks,
            false => left.saturating_sub(self.classic_lead),
        };
        self.credit = credit.saturating_add(limit.per_request);
        self.credit_until = now.wrapping_add(u32::from(limit.ticks));
        // 0 left: a lead of the whole time.
        self.classic_lead = limit.ticks.saturating_sub(classic_left);
    }

    /// Returns whether a repair may pass, in the classic form or in one with a cookie.
    #[inline]
    pub(crate) fn has_credit(&self, now: Instant, is_classic: bool) -> bool {
        let lead = if is_classic { self.classic_lead } else { 0 };
        self.ticks_left(tick(now)) > lead
    }

    /// Returns the ticks until the credit expires, 0 where there is none.
    #[inline]
    fn ticks_left(&self, tick: u32) -> u16 {
        let left = self.credit_until.wrapping_sub(tick);
        let has_credit = self.credit > 0 && left <= u32::from(MAX_TICKS) + 1;
        if has_credit { left as u16 } else { 0 }
    }

    /// Consumes the credit of one repair.
    #[inline]
    pub(crate) fn spend_credit(&mut self) {
        self.credit = self.credit.saturating_sub(1);
    }
}
