//! Time as machines see it: microseconds since an arbitrary start.
//!
//! A machine never reads a clock; its driver passes an [`Instant`] to each call. Arithmetic overflows as that of
//! integers does: it panics with debug assertions, and wraps without. No time of a real system comes near
//! the bounds (292,000 years), but a duration from the network must be clamped before it is added.

use core::fmt;
use core::ops::{
    Add, AddAssign, Div, DivAssign, Mul, MulAssign, Shl, ShlAssign, Shr, ShrAssign, Sub, SubAssign,
};

/// A point in time, in microseconds since an arbitrary start that all machines of a driver share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant {
    micros: i64,
}

impl Instant {
    /// The start.
    pub const ZERO: Instant = Instant::from_micros(0);

    /// Creates an instant from microseconds since the start.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Instant {
        Instant { micros }
    }

    /// Creates an instant from milliseconds since the start.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Instant {
        Instant::from_micros(millis * 1_000)
    }

    /// Creates an instant from seconds since the start.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    /// Returns the milliseconds of the current second, 0 to 999.
    #[must_use]
    pub const fn millis(&self) -> i64 {
        self.micros % 1_000_000 / 1_000
    }

    /// Returns the microseconds of the current second, 0 to 999,999.
    #[must_use]
    pub const fn micros(&self) -> i64 {
        self.micros % 1_000_000
    }

    /// Returns the whole seconds since the start.
    #[must_use]
    pub const fn secs(&self) -> i64 {
        self.micros / 1_000_000
    }

    /// Returns the whole milliseconds since the start.
    #[must_use]
    pub const fn total_millis(&self) -> i64 {
        self.micros / 1_000
    }

    /// Returns the microseconds since the start.
    #[must_use]
    pub const fn total_micros(&self) -> i64 {
        self.micros
    }
}

#[cfg(feature = "std")]
impl Instant {
    /// Returns the present time. The first call in a process defines the start.
    #[must_use]
    pub fn now() -> Instant {
        Instant::from(std::time::Instant::now())
    }
}

/// Times before the first conversion in this process become the start.
#[cfg(feature = "std")]
impl From<std::time::Instant> for Instant {
    fn from(time: std::time::Instant) -> Instant {
        static START: std::sync::LazyLock<std::time::Instant> =
            std::sync::LazyLock::new(std::time::Instant::now);
        let start = *START;
        let since = time.saturating_duration_since(start);
        Instant::ZERO + Duration::from(since)
    }
}

/// Seconds and milliseconds: `1.234s`.
impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.secs(), self.millis())
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant::from_micros(self.micros + duration.micros as i64)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant::from_micros(self.micros - duration.micros as i64)
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

/// The time between two instants, whichever is later.
impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, other: Instant) -> Duration {
        Duration::from_micros((self.micros - other.micros).unsigned_abs())
    }
}

/// A length of time, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Duration {
    micros: u64,
}

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration::from_micros(0);
    /// The longest duration. Adding it to an [`Instant`] overflows.
    pub const MAX: Duration = Duration::from_micros(u64::MAX);

    /// Creates a duration from microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Duration {
        Duration { micros }
    }

    /// Creates a duration from milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Duration {
        Duration::from_micros(millis * 1_000)
    }

    /// Creates a duration from seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Duration {
        Duration::from_micros(secs * 1_000_000)
    }

    /// Returns the milliseconds after the last whole second, 0 to 999.
    #[must_use]
    pub const fn millis(&self) -> u64 {
        self.micros / 1_000 % 1_000
    }

    /// Returns the microseconds after the last whole second, 0 to 999,999.
    #[must_use]
    pub const fn micros(&self) -> u64 {
        self.micros % 1_000_000
    }

    /// Returns the whole seconds.
    #[must_use]
    pub const fn secs(&self) -> u64 {
        self.micros / 1_000_000
    }

    /// Returns the whole milliseconds.
    #[must_use]
    pub const fn total_millis(&self) -> u64 {
        self.micros / 1_000
    }

    /// Returns the microseconds.
    #[must_use]
    pub const fn total_micros(&self) -> u64 {
        self.micros
    }
}

/// Rounds down to a microsecond; a longer duration becomes [`Duration::MAX`].
impl From<core::time::Duration> for Duration {
    fn from(duration: core::time::Duration) -> Duration {
        Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(duration: Duration) -> core::time::Duration {
        core::time::Duration::from_micros(duration.micros)
    }
}

/// Seconds and milliseconds: `1.234s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.secs(), self.millis())
    }
}

impl Add for Duration {
    type Output = Duration;

    fn add(self, other: Duration) -> Duration {
        Duration::from_micros(self.micros + other.micros)
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

/// Panics where the result would be negative, with and without debug assertions.
impl Sub for Duration {
    type Output = Duration;

    fn sub(self, other: Duration) -> Duration {
        let micros = self.micros.checked_sub(other.micros);
        Duration::from_micros(micros.expect("a duration minus a longer one"))
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Duration) {
        *self = *self - other;
    }
}

impl Mul<u32> for Duration {
    type Output = Duration;

    fn mul(self, factor: u32) -> Duration {
        Duration::from_micros(self.micros * u64::from(factor))
    }
}

impl MulAssign<u32> for Duration {
    fn mul_assign(&mut self, factor: u32) {
        *self = *self * factor;
    }
}

impl Div<u32> for Duration {
    type Output = Duration;

    fn div(self, divisor: u32) -> Duration {
        Duration::from_micros(self.micros / u64::from(divisor))
    }
}

impl DivAssign<u32> for Duration {
    fn div_assign(&mut self, divisor: u32) {
        *self = *self / divisor;
    }
}

impl Shl<u32> for Duration {
    type Output = Duration;

    fn shl(self, bits: u32) -> Duration {
        Duration::from_micros(self.micros << bits)
    }
}

impl ShlAssign<u32> for Duration {
    fn shl_assign(&mut self, bits: u32) {
        *self = *self << bits;
    }
}

impl Shr<u32> for Duration {
    type Output = Duration;

    fn shr(self, bits: u32) -> Duration {
        Duration::from_micros(self.micros >> bits)
    }
}

impl ShrAssign<u32> for Duration {
    fn shr_assign(&mut self, bits: u32) {
        *self = *self >> bits;
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn parts_add_up() {
        let time = Instant::from_micros(12_345_678);
        assert_eq!(
            (time.secs(), time.millis(), time.micros()),
            (12, 345, 345_678)
        );
        assert_eq!(
            (time.total_millis(), time.total_micros()),
            (12_345, 12_345_678)
        );
        assert_eq!(format!("{time}"), "12.345s");
        let duration = time - Instant::ZERO;
        assert_eq!(
            (duration.secs(), duration.millis(), duration.micros()),
            (12, 345, 345_678)
        );
        assert_eq!(duration.total_millis(), 12_345);
        assert_eq!(format!("{duration}"), "12.345s");
    }

    #[test]
    fn the_difference_of_instants_has_no_sign() {
        let (early, late) = (Instant::from_secs(-1), Instant::from_millis(500));
        assert_eq!(late - early, Duration::from_millis(1500));
        assert_eq!(early - late, Duration::from_millis(1500));
    }

    #[test]
    fn arithmetic() {
        let mut duration = Duration::from_secs(3) * 4 / 6;
        assert_eq!(duration, Duration::from_secs(2));
        duration <<= 2;
        duration -= Duration::from_secs(1);
        duration += Duration::from_millis(1);
        assert_eq!(duration, Duration::from_millis(7_001));
        assert_eq!(duration >> 1, Duration::from_micros(3_500_500));
        let mut other = duration;
        other *= 6;
        other /= 4;
        assert_eq!(other, Duration::from_micros(10_501_500));
        other >>= 2;
        assert_eq!(other, Duration::from_micros(2_625_375));
        let mut time = Instant::ZERO + duration;
        time -= Duration::from_millis(1);
        assert_eq!(time, Instant::from_secs(7));
    }

    #[test]
    #[should_panic(expected = "a duration minus a longer one")]
    fn no_duration_is_negative() {
        let _ = Duration::ZERO - Duration::from_micros(1);
    }

    #[test]
    fn long_durations_are_clamped() {
        assert_eq!(Duration::from(core::time::Duration::MAX), Duration::MAX);
        let short = core::time::Duration::from_nanos(1_999);
        assert_eq!(Duration::from(short), Duration::from_micros(1));
        let back = core::time::Duration::from(Duration::from_millis(5));
        assert_eq!(back, core::time::Duration::from_millis(5));
    }

    #[cfg(feature = "std")]
    #[test]
    fn the_clock_of_the_standard_library() {
        let before = std::time::Instant::now();
        let first = Instant::now();
        assert!(Instant::now() >= first);
        assert_eq!(Instant::from(before), Instant::ZERO);
        let later = before + std::time::Duration::from_secs(3600);
        assert!(Instant::from(later) > first + Duration::from_secs(3500));
        assert!(Instant::from(later) <= first + Duration::from_secs(3600));
        while Instant::now() <= first {}
    }
}
