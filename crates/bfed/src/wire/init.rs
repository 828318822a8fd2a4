//! INIT and INIT_REQUEST: the initialisation of a flow's container, for data nodes that join in the middle of it.
//!
//! ```text
//!  INIT                                  INIT_REQUEST
//! +-------------------------------+     +-------------------------------+
//! |  generation                   |     |  generation                   |
//! +---------------+---------------+     +---------------+---------------+
//! |  total        |  offset       |     |  0            |  offset       |
//! +---------------+---------------+     +---------------+---------------+
//! |  bytes from the offset on     |
//! +-------------------------------+
//! ```
//!
//! The payloads of packets of types 7 and 8. INIT goes down the tree, before the first data: as one packet on streams,
//! in pieces on datagrams. `total` is the length of the whole initialisation, at most 64,000 bytes; 0 says that the flow
//! has none. Each initialisation has a random generation, which it keeps from hop to hop; a new generation replaces the
//! old one.
//!
//! INIT_REQUEST goes up the tree, in datagrams only: its sender has the first `offset` bytes of a generation, and gets
//! the others. On streams the ATTACH asks instead: its sequence has the bit [`ATTACH_INIT`].

use super::ParseError;
use super::data::MAX_PAYLOAD_LEN;

/// Length of an INIT_REQUEST, and of an INIT before its bytes.
pub const LEN: usize = 8;
/// Most bytes of an initialisation: it fits in one packet of a stream.
pub const MAX_INIT_LEN: usize = 64_000;
/// Bit of an ATTACH's sequence: its sender understands INIT. Releases without INIT send 0, and ignore the field.
pub const ATTACH_INIT: u32 = 1;

const _: () = assert!(LEN + MAX_INIT_LEN <= MAX_PAYLOAD_LEN);

/// The front of an INIT; its bytes follow after [`LEN`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Number of this initialisation.
    pub generation: u32,
    /// Length of the whole initialisation in bytes; 0: the flow has none.
    pub total: u16,
    /// Bytes before those of this packet.
    pub offset: u16,
}

impl Repr {
    /// Parses an INIT and returns its bytes with it.
    ///
    /// # Errors
    /// It is truncated, or its bytes do not lie within the initialisation.
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (front, bytes) = payload
            .split_first_chunk::<LEN>()
            .ok_or(ParseError::Truncated)?;
        let [a, b, c, d, e, f, g, h] = *front;
        let repr = Repr {
            generation: u32::from_be_bytes([a, b, c, d]),
            total: u16::from_be_bytes([e, f]),
            offset: u16::from_be_bytes([g, h]),
        };
        let (total, end) = (
            usize::from(repr.total),
            usize::from(repr.offset) + bytes.len(),
        );
        if total > MAX_INIT_LEN || end > total {
            return Err(ParseError::Length);
        }
        if bytes.is_empty() && total > 0 {
            return Err(ParseError::Truncated);
        }
        Ok((repr, bytes))
    }

    /// Writes the front.
    ///
    /// # Panics
    /// `payload` is shorter than [`LEN`].
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.generation.to_be_bytes());
        payload[4..6].copy_from_slice(&self.total.to_be_bytes());
        payload[6..LEN].copy_from_slice(&self.offset.to_be_bytes());
    }
}

/// An INIT_REQUEST.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Request {
    /// The initialisation that its sender has, or has a part of.
    pub generation: u32,
    /// The bytes of it that its sender has, from the first one on.
    pub offset: u16,
}

impl Request {
    /// Parses an INIT_REQUEST.
    ///
    /// # Errors
    /// It has another length, or a reserved field is not 0.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let [a, b, c, d, e, f, g, h] =
            <[u8; LEN]>::try_from(payload).map_err(|_| ParseError::Length)?;
        match [e, f] {
            [0, 0] => Ok(Request {
                generation: u32::from_be_bytes([a, b, c, d]),
                offset: u16::from_be_bytes([g, h]),
            }),
            _ => Err(ParseError::Reserved),
        }
    }

    /// Writes it.
    ///
    /// # Panics
    /// `payload` is shorter than [`LEN`].
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.generation.to_be_bytes());
        payload[4..6].fill(0);
        payload[6..LEN].copy_from_slice(&self.offset.to_be_bytes());
    }
}
