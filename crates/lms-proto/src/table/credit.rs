//! The repairs that turned requests allow, and for how long.

use crate::{Duration, Instant};

/// Resolution of an entry's credit time.
pub(crate) const CREDIT_TICK: Duration = Duration::from_millis(250);
/// Longest credit time: an hour.
const MAX_TICKS: u16 = 4 * 3_600;

/// How many repairs a turned request lets pass, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
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
#[inline]
pub(crate) fn tick(now: Instant) -> u32 {
    let tick = CREDIT_TICK.total_micros() as i64;
    now.total_micros().div_euclid(tick) as u32
}

/// The repairs that the requests turned here still let pass, and until when. Times are ticks ([`tick`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Credit {
    /// When it expires.
    until: u32,
    /// The repairs.
    repairs: u16,
    /// How long before `until` repairs in the classic form expire.
    classic_lead: u16,
}

impl Credit {
    /// Returns it with that of a turned request, up to 65,535 repairs. A request in the classic form also admits repairs in
    /// that form, for its own credit time and while there is credit.
    #[inline]
    pub(crate) fn with_request(self, now: u32, limit: &CreditLimit, is_classic: bool) -> Credit {
        let left = self.ticks_left(now);
        let repairs = if left > 0 { self.repairs } else { 0 };
        let classic_left = match is_classic {
            true => limit.ticks,
            false => left.saturating_sub(self.classic_lead),
        };
        Credit {
            until: now.wrapping_add(u32::from(limit.ticks)),
            repairs: repairs.saturating_add(limit.per_request),
            // 0 left: a lead of the whole time.
            classic_lead: limit.ticks.saturating_sub(classic_left),
        }
    }

    /// Returns whether a repair may pass, in the classic form or in one with a cookie.
    #[inline]
    pub(crate) fn allows(self, now: u32, is_classic: bool) -> bool {
        let lead = if is_classic { self.classic_lead } else { 0 };
        self.ticks_left(now) > lead
    }

    /// Returns the ticks until it expires, 0 where there is none.
    #[inline]
    fn ticks_left(self, now: u32) -> u16 {
        let left = self.until.wrapping_sub(now);
        let has_credit = self.repairs > 0 && left <= u32::from(MAX_TICKS) + 1;
        if has_credit { left as u16 } else { 0 }
    }

    /// Returns it without the credit of one repair.
    #[inline]
    pub(crate) fn spent(self) -> Credit {
        Credit {
            repairs: self.repairs.saturating_sub(1),
            ..self
        }
    }

    /// Returns it as a word.
    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.until) << 32 | u64::from(self.repairs) << 16 | u64::from(self.classic_lead)
    }

    /// Returns that of a word.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Credit {
        Credit {
            until: (bits >> 32) as u32,
            repairs: (bits >> 16) as u16,
            classic_lead: bits as u16,
        }
    }
}
