//! FRAGMENT: a part of a frame that is longer than one datagram.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  frame: all its fragments have the same number                |
//! +---------------+---------------+-------------------------------+
//! |  index        |  count        |  0                            |
//! +---------------+---------------+-------------------------------+
//! |  bytes of the frame, at least one                             |
//! +---------------------------------------------------------------+
//! ```
//!
//! The payload of a packet of type 6, on UDP channels only. The frame consists of the bytes of its fragments from
//! index 0 to count - 1, at most 65,000 bytes; count is 2 to 64. Data nodes forward fragments unchanged; only the
//! one that delivers the frame to its native network reassembles it.

use super::ParseError;

/// Length of the header of a fragment in bytes.
pub const LEN: usize = 8;
/// Most fragments of one frame.
pub const MAX_COUNT: usize = 64;

/// Header of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Number of the frame, unique among those in flight.
    pub frame: u32,
    /// Index of the fragment, from 0.
    pub index: u8,
    /// Number of fragments.
    pub count: u8,
}

impl Repr {
    /// Parses the front of a payload; the bytes of the frame follow after [`LEN`].
    ///
    /// # Errors
    /// It is not a fragment.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let (front, bytes) = payload
            .split_first_chunk::<LEN>()
            .ok_or(ParseError::Truncated)?;
        let [a, b, c, d, index, count, reserved @ ..] = *front;
        if reserved != [0, 0] {
            return Err(ParseError::Reserved);
        }
        if bytes.is_empty() {
            return Err(ParseError::Truncated);
        }
        if count < 2 || usize::from(count) > MAX_COUNT || index >= count {
            return Err(ParseError::Value);
        }
        Ok(Repr {
            frame: u32::from_be_bytes([a, b, c, d]),
            index,
            count,
        })
    }

    /// Writes the header.
    ///
    /// # Panics
    /// `payload` is shorter than [`LEN`].
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.frame.to_be_bytes());
        payload[4..LEN].copy_from_slice(&[self.index, self.count, 0, 0]);
    }
}
