//! Sequence numbers that wrap (RFC 9293 §3.4) beside stream offsets that do not.
//!
//! The wire counts modulo 2^32; inside, the bytes of a stream are numbered from 0 in 64 bits. Offset
//! 0 is the first byte of data: the octet after the SYN. A FIN stands at the offset behind the last
//! byte.

use core::fmt;

/// A sequence number on the wire, modulo 2^32.
///
/// There is no `Ord`: "less" has no meaning on a circle beyond half of it. [`Seq::before`] compares
/// in the sense of RFC 9293 §3.4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// The number `octets` further on.
    #[must_use]
    pub const fn plus(self, octets: u32) -> Seq {
        Seq(self.0.wrapping_add(octets))
    }

    /// The number `octets` before.
    #[must_use]
    pub const fn minus(self, octets: u32) -> Seq {
        Seq(self.0.wrapping_sub(octets))
    }

    /// How far this number lies after `origin`: negative when before it. Exact within 2^31 octets.
    #[must_use]
    pub const fn since(self, origin: Seq) -> i32 {
        self.0.wrapping_sub(origin.0) as i32
    }

    /// Whether this number comes before the other.
    #[must_use]
    pub const fn before(self, other: Seq) -> bool {
        self.since(other) < 0
    }

    /// The number of the byte at `offset` of a stream whose SYN has this number.
    #[must_use]
    pub const fn at(self, offset: u64) -> Seq {
        Seq(self.0.wrapping_add(1).wrapping_add(offset as u32))
    }

    /// The offset of `seq` in a stream whose SYN has this number: of all offsets with these low 32
    /// bits the one nearest to `near`. Negative for numbers before the stream's first byte.
    #[must_use]
    pub const fn offset_of(self, seq: Seq, near: u64) -> i64 {
        near as i64 + seq.since(self.at(near)) as i64
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Whether timestamp `a` is older than `b` (RFC 7323 §4.2 compares them as sequence numbers).
pub(crate) const fn stamp_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
