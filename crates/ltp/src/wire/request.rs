//! REQUEST: a receiver lacks data, digests or a heartbeat (LMS §6.3.1, Figure 6.7).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | 1, type 5     |  kind         |  tag                          |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  lo: first missing                 (Figure 6.7: nak_lo)       |
//! +---------------------------------------------------------------+
//! |  hi: last missing                  (Figure 6.7: nak_hi)       |
//! +---------------------------------------------------------------+
//! |  request number: 1, 2, ...         (Figure 6.7: nak_seqn)     |
//! +---------------------------------------------------------------+
//! |  round-trip time estimate of the requester, microseconds      |
//! +---------------------------------------------------------------+
//! |  token the source gave to this address; 0: none yet (64 bits) |
//! +---------------------------------------------------------------+
//! |  nonce, echoed in a unicast answer; 0: none (64 bits)         |
//! +---------------------------------------------------------------+
//! |  further ranges: lo, hi (0 to 31 times)                       |
//! +---------------------------------------------------------------+
//! ```
//!
//! Kind 0 asks for packets, 1 for digests (lo and hi are block numbers), 2 for a SYNC, 3 for what
//! lies to the left of block lo = hi > 0 (by unicast, with a nonce; one range). Kind 2 has lo = hi =
//! 0 and is filled with zeros to the length of its answer, so that an attacker cannot use the source to
//! send a victim more than the request. In a request of kind 0 or 4 to the group the nonce is
//! [`REPAIR_ALONE`] or 0. Kind 4 asks for packets as kind 0 does, and [parity](super::parity) of their blocks, as many
//! as packets are named, serves as well.

use proto_core::wire::Reader;

use super::{Header, ParseError, Type, expect_end};
use crate::SessionId;

/// Length with one range.
pub const REQUEST_LEN: usize = 40;
/// Most ranges in one packet.
pub const MAX_RANGES: usize = 32;
/// Nonce of a request for packets to the group that asks for the requester alone: no other receiver has asked
/// it for repairs lately, so that a repair by unicast suffices.
pub const REPAIR_ALONE: u64 = 1;
/// Length of a request for a SYNC: as long as the answer.
pub const SYNC_REQUEST_LEN: usize = super::sync::SYNC_LEN;

proto_core::numbered! {
    /// What is requested.
    pub enum Kind: u8 {
        /// Packets; the ranges are sequences.
        Data = 0,
        /// Digests; the ranges are block numbers.
        Digests = 1,
        /// A heartbeat by unicast, with the nonce.
        Sync = 2,
        /// The chaining values that lie to the left of a block; the one range is that block.
        Left = 3,
        /// Packets, or as much parity of each block; the ranges are sequences.
        DataOrParity = 4,
    }
}

/// An inclusive range of sequences or block numbers; both wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Range {
    /// First missing.
    pub lo: u32,
    /// Last missing.
    pub hi: u32,
}

impl Range {
    fn read(fields: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (lo, hi) = (fields.u32()?, fields.u32()?);
        Ok(Range { lo, hi })
    }
}

/// The fields of a REQUEST packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repr {
    /// What is asked for.
    pub kind: Kind,
    /// The requester's mark on this packet, echoed in repairs.
    pub tag: u16,
    /// The session.
    pub session: SessionId,
    /// The request number.
    pub number: u32,
    /// The requester's round-trip time estimate, in microseconds.
    pub round_trip_us: u32,
    /// The token the source gave to this address; 0: none yet.
    pub token: u64,
    /// The nonce to echo; 0: none.
    pub nonce: u64,
    /// 1 to [`MAX_RANGES`] ranges; empty for a SYNC.
    pub ranges: heapless::Vec<Range, MAX_RANGES>,
}

impl Repr {
    /// Reads the packet.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not REQUEST of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when its length does not fit its kind,
    /// [`ParseError::Reserved`] when the kind is unknown or padding is not 0, and [`ParseError::Value`] when a
    /// range or the block is out of bounds.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::Request)?;
        let first = Range::read(&mut fields)?;
        let (number, round_trip_us) = (fields.u32()?, fields.u32()?);
        let (token, nonce) = (fields.u64()?, fields.u64()?);
        let kind = Kind::from_number(header.flags).ok_or(ParseError::Reserved)?;
        let mut ranges = heapless::Vec::new();
        if kind == Kind::Sync {
            let padding: [u8; SYNC_REQUEST_LEN - REQUEST_LEN] = fields.array()?;
            expect_end(&fields)?;
            if first != Range::default() || padding.iter().any(|&byte| byte != 0) {
                return Err(ParseError::Reserved);
            }
        } else {
            let _ = ranges.push(first);
        }
        if kind == Kind::Left {
            expect_end(&fields)?;
            if first.lo == 0 || first.lo != first.hi {
                return Err(ParseError::Value);
            }
        }
        if !fields.rest().len().is_multiple_of(8) {
            return Err(ParseError::Length);
        }
        while !fields.rest().is_empty() {
            let range = Range::read(&mut fields)?;
            ranges.push(range).map_err(|_| ParseError::Length)?;
        }
        // Serial numbers: a range spans less than half of the space (RFC 1982).
        let spans_half = |range: &Range| range.hi.wrapping_sub(range.lo) > i32::MAX as u32;
        if ranges.iter().any(spans_half) {
            return Err(ParseError::Value);
        }
        Ok(Repr {
            kind,
            tag: header.specific,
            session: header.session,
            number,
            round_trip_us,
            token,
            nonce,
            ranges,
        })
    }

    /// Length of the packet.
    pub fn buffer_len(&self) -> usize {
        match self.kind {
            Kind::Sync => SYNC_REQUEST_LEN,
            _ => REQUEST_LEN + 8 * self.ranges.len().saturating_sub(1),
        }
    }

    /// Writes the packet.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = Header {
            kind: Type::Request,
            flags: self.kind as u8,
            specific: self.tag,
            session: self.session,
        };
        let mut ranges = self.ranges.iter().filter(|_| self.kind != Kind::Sync);
        let first = ranges.next().copied().unwrap_or_default();
        let fields = header
            .emit(&mut buffer[..self.buffer_len()])
            .u32(first.lo)
            .u32(first.hi)
            .u32(self.number)
            .u32(self.round_trip_us)
            .u64(self.token)
            .u64(self.nonce);
        ranges
            .fold(fields, |fields, range| fields.u32(range.lo).u32(range.hi))
            .zeros();
    }
}
