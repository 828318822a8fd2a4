//! The repairs that turned requests allow, and for how long.

use super::Entry;
use crate::{Duration, Instant};

/// Resolution of an entry's credit time.
const CREDIT_TICK: Duration = Duration::from_millis(250);
/// Longest credit time: an hour.
const MAX_TICKS: u64 = 4 * 3_600;
/// The bit of [`Entry::credit_until`] that says whether repairs in the classic form may pass; the other bits are ticks.
const CLASSIC: u32 = 1 << 31;

/// How many repairs a turned request lets pass, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CreditLimit {
    per_request: u16,
    ticks: u32,
}

impl CreditLimit {
    /// Creates a limit. The time is rounded up to quarters of a second, and is at most an hour.
    pub(crate) fn new(per_request: u16, time: Duration) -> Self {
        let ticks = time
            .total_micros()
            .div_ceil(CREDIT_TICK.total_micros())
            .clamp(1, MAX_TICKS);
        CreditLimit {
            per_request,
            ticks: ticks as u32,
        }
    }
}

/// Returns the time in quarters of a second, modulo 2^31 (17 years).
fn tick(now: Instant) -> u32 {
    let tick = CREDIT_TICK.total_micros() as i64;
    now.total_micros().div_euclid(tick) as u32 & !CLASSIC
}

impl<A> Entry<A> {
    /// Adds the credit of a turned request, up to 65,535 repairs. A request in the classic form also admits repairs in
    /// that form, for as long as the entry has credit.
    #[inline]
    pub(crate) fn add_credit(&mut self, now: Instant, limit: &CreditLimit, is_classic: bool) {
        let now = tick(now);
        let (left, form) = match self.has_credit_at(now) {
            true => (self.credit, self.credit_until & CLASSIC),
            false => (0, 0),
        };
        self.credit = left.saturating_add(limit.per_request);
        // The tick that has begun is not counted.
        let until = now.wrapping_add(limit.ticks).wrapping_add(1) & !CLASSIC;
        self.credit_until = until | form | if is_classic { CLASSIC } else { 0 };
    }

    /// Returns whether a repair may pass.
    #[inline]
    pub(crate) fn has_credit(&self, now: Instant) -> bool {
        self.has_credit_at(tick(now))
    }

    #[inline]
    fn has_credit_at(&self, tick: u32) -> bool {
        let left = self.credit_until.wrapping_sub(tick) & !CLASSIC;
        self.credit > 0 && (1..=MAX_TICKS as u32 + 1).contains(&left)
    }

    /// Returns whether the credit, if there is any, is of a request in the classic form among others.
    #[inline]
    pub(crate) fn admits_classic(&self) -> bool {
        self.credit_until & CLASSIC != 0
    }

    /// Consumes the credit of one repair.
    #[inline]
    pub(crate) fn spend_credit(&mut self) {
        self.credit = self.credit.saturating_sub(1);
    }
}
