//! Sequence numbers that wrap.

use core::fmt;

/// A 32-bit sequence number on the wire, modulo 2^32 (RFC 1982).
///
/// There is no `Ord`: "less" has no meaning on a circle beyond half of it. [`Seq::before`] compares numbers that are
/// less than 2^31 apart (RFC 9293 §3.4).
///
/// ```
/// use proto_core::Seq;
///
/// let last = Seq(u32::MAX);
/// assert_eq!(last.plus(2), Seq(1));
/// assert!(last.before(Seq(1)));
/// assert_eq!(Seq(1).since(last), 2);
/// // The full number nearest to 2^32 of which these are the low 32 bits.
/// assert_eq!(last.expand(1 << 32), Some(u64::from(u32::MAX)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns the number `count` after this one.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Seq {
        Seq(self.0.wrapping_add(count))
    }

    /// Returns the number `count` before this one.
    #[inline]
    #[must_use]
    pub const fn minus(self, count: u32) -> Seq {
        Seq(self.0.wrapping_sub(count))
    }

    /// Returns how far this number lies after `origin`; negative when it lies before. Exact within 2^31.
    #[inline]
    #[must_use]
    pub const fn since(self, origin: Seq) -> i32 {
        self.0.wrapping_sub(origin.0) as i32
    }

    /// Whether this number lies before the other.
    #[inline]
    #[must_use]
    pub const fn before(self, other: Seq) -> bool {
        self.since(other) < 0
    }

    /// Returns the full number nearest to `near` whose low 32 bits are this one; `None` below zero.
    ///
    /// Right if the true number is less than 2^31 away from `near`.
    #[inline]
    #[must_use]
    pub const fn expand(self, near: u64) -> Option<u64> {
        near.checked_add_signed(self.since(Seq(near as u32)) as i64)
    }

    /// Returns the sequence number of element `number`, where `first` is that of element 0.
    #[inline]
    #[must_use]
    pub const fn of(number: u64, first: Seq) -> Seq {
        first.plus(number as u32)
    }

    /// Returns the number of the element nearest to `near` that has this sequence number, where `first` is that of
    /// element 0; `None` below zero.
    #[inline]
    #[must_use]
    pub const fn number(self, first: Seq, near: u64) -> Option<u64> {
        self.minus(first.0).expand(near)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_lies_below_zero() {
        assert_eq!(Seq(u32::MAX).expand(0), None);
        assert_eq!(Seq(u32::MAX).expand(1 << 31), Some(u64::from(u32::MAX)));
        assert_eq!(Seq(3).number(Seq(4), 7), None);
    }

    #[test]
    fn no_number_lies_before_itself() {
        assert!(!Seq(7).before(Seq(7)));
    }

    #[test]
    fn it_shows_its_number() {
        assert_eq!(std::format!("{}", Seq(7)), "7");
    }

    proptest! {
        #[test]
        fn a_number_is_found_again(first: u32, number in 0..u64::MAX / 2, off in -0x7fff_ffff_i64..0x7fff_ffff) {
            let wire = Seq::of(number, Seq(first));
            let near = number.saturating_add_signed(off);
            prop_assert_eq!(wire.number(Seq(first), near), Some(number));
        }

        #[test]
        fn differences_wrap(origin: u32, distance in -0x7fff_ffff_i32..=0x7fff_ffff) {
            let other = Seq(origin).plus(distance as u32);
            prop_assert_eq!(other.since(Seq(origin)), distance);
            prop_assert_eq!(other.minus(distance as u32), Seq(origin));
            prop_assert_eq!(other.before(Seq(origin)), distance < 0);
        }
    }
}
