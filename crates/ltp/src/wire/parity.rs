//! PARITY: a packet computed from a whole block, which stands for any packet of it, as in NORM (RFC 5740).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | 1, type 10    |  flags        |  tag of the request           |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  number of the block                                          |
//! +---------------------------------------------------------------+
//! |  number of the transmission                                   |
//! +---------------+---------------+-------------------------------+
//! |  index        |  packets      |  0                            |
//! +---------------+---------------+-------------------------------+
//! |  shard: as long as the payload of DATA, or one byte longer    |
//! |  where that is odd                                            |
//! +---------------------------------------------------------------+
//! ```
//!
//! A block of `packets` packets, 1 to 64, has as many parity packets; `index` counts them from 0. Flag 1 says that the
//! transmission has a number, as in [DATA and REPAIR](super::data). The tag is that of the request that is answered; 0
//! also where the source sends parity in advance.

use super::{HEADER_LEN, Header, ParseError, Type};
use crate::{Geometry, SessionId};

/// Bytes before the shard.
pub const PARITY_HEADER_LEN: usize = HEADER_LEN + 12;
/// Flag: the transmission has a number.
const NUMBERED: u8 = 1;

/// The fields of a PARITY packet, without the shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The tag of the request; 0: none was made.
    pub tag: u16,
    /// The session.
    pub session: SessionId,
    /// The block.
    pub block: u32,
    /// The number of the transmission; `None` without congestion control, to one receiver, or from another host.
    pub number: Option<u32>,
    /// Which parity of the block, less than `packets`.
    pub index: u8,
    /// Packets of the block, 1 to 64.
    pub packets: u8,
}

impl Repr {
    /// Reads the packet. Returns the fields and the shard.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not PARITY of this version,
    /// [`ParseError::Truncated`] without a shard, [`ParseError::Reserved`] when unknown flags or reserved bytes are set,
    /// or a number without its flag, and [`ParseError::Value`] when the index or the number of packets is out of bounds.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::Parity)?;
        let (block, number) = (fields.u32()?, fields.u32()?);
        let (index, packets, zero) = (fields.u8()?, fields.u8()?, fields.u16()?);
        let shard = fields.rest();
        if shard.is_empty() {
            return Err(ParseError::Truncated);
        }
        if header.flags > NUMBERED || zero != 0 {
            return Err(ParseError::Reserved);
        }
        let number = super::optional(header.flags == NUMBERED, number, 0)?;
        if u32::from(packets) > Geometry::MAX_PACKETS_PER_BLOCK || index >= packets {
            return Err(ParseError::Value);
        }
        let repr = Repr {
            tag: header.specific,
            session: header.session,
            block,
            number,
            index,
            packets,
        };
        Ok((repr, shard))
    }

    /// Length of the header that [`Repr::emit`] writes; the shard follows it.
    pub const fn buffer_len(&self) -> usize {
        PARITY_HEADER_LEN
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If the buffer is shorter than [`PARITY_HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        Header {
            kind: Type::Parity,
            flags: if self.number.is_some() { NUMBERED } else { 0 },
            specific: self.tag,
            session: self.session,
        }
        .emit(buffer)
        .u32(self.block)
        .u32(self.number.unwrap_or(0))
        .u8(self.index)
        .u8(self.packets)
        .u16(0);
    }
}
