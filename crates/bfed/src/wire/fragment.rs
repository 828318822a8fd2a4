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
//! The payload of a packet of type 6, on UDP channels alone. The frame is the bytes of its fragments from
//! index 0 to count - 1, one after another, 65,000 bytes at most; count is 2 to 64. Data nodes on the way
//! pass fragments on as they are; only the one that gives the frame to its native network joins them.

use super::ParseError;

/// Length of what precedes the bytes.
pub const LEN: usize = 8;
/// Most fragments of one frame.
pub const MAX_COUNT: usize = 64;

/// What precedes the bytes of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Which frame it is of: unique among those that are on their way.
    pub frame: u32,
    /// Which fragment it is, from 0 on.
    pub index: u8,
    /// How many there are.
    pub count: u8,
}

impl Repr {
    /// Reads the front of a payload; the bytes of the frame follow after [`LEN`].
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

    /// Writes it.
    ///
    /// # Panics
    /// `payload` is shorter than [`LEN`].
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.frame.to_be_bytes());
        payload[4..LEN].copy_from_slice(&[self.index, self.count, 0, 0]);
    }
}
