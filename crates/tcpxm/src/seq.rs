//! Sequence numbers that wrap (RFC 9293 §3.4) beside stream offsets that do not.
//!
//! The wire counts modulo 2^32; internally the bytes of a stream are numbered from 0 in 64 bits. Offset
//! 0 is the first byte of data: the octet after the SYN. A FIN has the offset after the last
//! byte.

pub use proto_core::Seq;

/// The sequence numbers of a stream, counted from that of its SYN.
pub trait SynNumber {
    /// Returns the number of the byte at `offset`.
    fn at(self, offset: u64) -> Seq;

    /// Returns the offset of `seq`: of all offsets with these low 32 bits the one nearest to `near`. Negative for
    /// numbers before the stream's first byte.
    fn offset_of(self, seq: Seq, near: u64) -> i64;
}

impl SynNumber for Seq {
    fn at(self, offset: u64) -> Seq {
        Seq::of(offset, self.plus(1))
    }

    fn offset_of(self, seq: Seq, near: u64) -> i64 {
        near as i64 + i64::from(seq.since(self.at(near)))
    }
}

/// Whether timestamp `a` is older than `b` (RFC 7323 §4.2 compares them as sequence numbers).
pub(crate) const fn stamp_before(a: u32, b: u32) -> bool {
    Seq(a).before(Seq(b))
}
