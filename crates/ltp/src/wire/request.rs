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
//! send a victim more than he sent himself. In a request of kind 0 to the group the nonce is
//! [`REPAIR_ALONE`] or 0.

use super::{HEADER_LEN, Header, ParseError, Type, put_u32, put_u64, u32_at, u64_at};
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

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Packets; the ranges are sequences.
    Data = 0,
    /// Digests; the ranges are block numbers.
    Digests = 1,
    /// A heartbeat by unicast, with the nonce.
    Sync = 2,
    /// The chaining values that lie to the left of a block; the one range is that block.
    Left = 3,
}

/// An inclusive range of sequences or block numbers; both wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Range {
    /// First missing.
    pub lo: u32,
    /// Last missing.
    pub hi: u32,
}

/// A view over a REQUEST packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks lengths and kind, and wraps the bytes.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not REQUEST of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when its length does not fit its kind,
    /// [`ParseError::Reserved`] when the kind is unknown or padding is not 0, and [`ParseError::Value`] when a
    /// range or the block is out of bounds.
    pub fn new_checked(bytes: T) -> Result<Self, ParseError> {
        let b = bytes.as_ref();
        let header = Header::parse_as(b, Type::Request, REQUEST_LEN)?;
        match header.flags {
            0 | 1 => {
                let rest = b.len() - REQUEST_LEN;
                if !rest.is_multiple_of(8) || rest / 8 >= MAX_RANGES {
                    return Err(ParseError::Length);
                }
            }
            2 => {
                if b.len() < SYNC_REQUEST_LEN {
                    return Err(ParseError::Truncated);
                }
                if b.len() > SYNC_REQUEST_LEN {
                    return Err(ParseError::Length);
                }
                if b[8..16]
                    .iter()
                    .chain(&b[REQUEST_LEN..])
                    .any(|&byte| byte != 0)
                {
                    return Err(ParseError::Reserved);
                }
            }
            3 => {
                if b.len() > REQUEST_LEN {
                    return Err(ParseError::Length);
                }
                let block = u32_at(b, HEADER_LEN);
                if block == 0 || block != u32_at(b, 12) {
                    return Err(ParseError::Value);
                }
            }
            _ => return Err(ParseError::Reserved),
        }
        let packet = Packet { bytes };
        // Serial numbers: a range spans less than half of the space (RFC 1982).
        if packet
            .ranges()
            .any(|range| range.hi.wrapping_sub(range.lo) > i32::MAX as u32)
        {
            return Err(ParseError::Value);
        }
        Ok(packet)
    }

    /// What is asked for.
    pub fn kind(&self) -> Kind {
        match self.bytes.as_ref()[1] {
            0 => Kind::Data,
            1 => Kind::Digests,
            2 => Kind::Sync,
            _ => Kind::Left,
        }
    }

    /// The requester's mark on this packet, echoed in repairs.
    pub fn tag(&self) -> u16 {
        let b = self.bytes.as_ref();
        u16::from_be_bytes([b[2], b[3]])
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        SessionId(u32_at(self.bytes.as_ref(), 4))
    }

    /// The request number: how often these ranges were asked for.
    pub fn number(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 16)
    }

    /// The requester's round-trip time estimate, in microseconds.
    pub fn round_trip_us(&self) -> u32 {
        u32_at(self.bytes.as_ref(), 20)
    }

    /// The token the source gave to this address.
    pub fn token(&self) -> u64 {
        u64_at(self.bytes.as_ref(), 24)
    }

    /// The nonce to echo.
    pub fn nonce(&self) -> u64 {
        u64_at(self.bytes.as_ref(), 32)
    }

    /// The ranges, 1 to [`MAX_RANGES`] (one, of zeros, in a request for a SYNC).
    pub fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        let b = self.bytes.as_ref();
        let first = Range {
            lo: u32_at(b, HEADER_LEN),
            hi: u32_at(b, 12),
        };
        let rest = if self.kind() == Kind::Sync {
            &[][..]
        } else {
            &b[REQUEST_LEN..]
        };
        let more = rest.chunks_exact(8).map(|r| Range {
            lo: u32_at(r, 0),
            hi: u32_at(r, 4),
        });
        core::iter::once(first).chain(more)
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
    /// Reads the fields.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        let ranges = match packet.kind() {
            Kind::Sync => heapless::Vec::new(),
            _ => packet.ranges().collect(),
        };
        Repr {
            kind: packet.kind(),
            tag: packet.tag(),
            session: packet.session(),
            number: packet.number(),
            round_trip_us: packet.round_trip_us(),
            token: packet.token(),
            nonce: packet.nonce(),
            ranges,
        }
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
        buffer[..self.buffer_len()].fill(0);
        let header = Header {
            kind: Type::Request,
            flags: self.kind as u8,
            specific: self.tag,
            session: self.session,
        };
        header.emit(buffer);
        put_u32(buffer, 16, self.number);
        put_u32(buffer, 20, self.round_trip_us);
        put_u64(buffer, 24, self.token);
        put_u64(buffer, 32, self.nonce);
        if self.kind == Kind::Sync {
            return;
        }
        for (index, range) in self.ranges.iter().enumerate() {
            let at = if index == 0 {
                HEADER_LEN
            } else {
                REQUEST_LEN + 8 * (index - 1)
            };
            put_u32(buffer, at, range.lo);
            put_u32(buffer, at + 4, range.hi);
        }
    }
}
