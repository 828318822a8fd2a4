//! Groups of a stream, for networks that deliver groups and may lose some: Media over QUIC.
//!
//! A stream is cut into groups where a decoder can start. The first frame of each group is a [`Header`] with what a
//! reader needs that starts there; the other frames are the bytes of the stream, unchanged. A reader that has the
//! whole group before continues with the bytes, and ignores the header: so the frames of all groups in a row are exactly
//! the stream.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Version = 0  |     Flags   |S|     Length of the initial-    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  isation                      |  initialisation, prefix ...
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! S is set if a reader can start with the group: other groups only continue a stream whose key frames are far apart.
//! Other flags are 0 when sent, and ignored.

use alloc::vec::Vec;

use crate::unit::MAX_INIT;

/// Bytes before the initialisation.
const FIXED: usize = 6;
const VERSION: u8 = 0;
const START: u8 = 1;
/// Longest prefix: the head of a cluster.
const MAX_PREFIX: usize = 64;

proto_core::errors! {
    /// Why bytes are not the header of a group.
    pub enum HeaderError {
        /// The bytes end early.
        Truncated = "the header of a group ends early",
        /// Of another version.
        Version = "the header of a group is of an unknown version",
        /// Longer than any initialisation with a prefix.
        TooLong = "the header of a group is too long",
    }
}

/// What a reader needs that starts with a group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Header<'a> {
    /// A reader can start here.
    pub is_start: bool,
    /// The initialisation of the stream, at most [`MAX_INIT`] times 2 bytes.
    pub init: &'a [u8],
    /// Bytes between the initialisation and the group: see [`Prefix`](crate::Prefix).
    pub prefix: &'a [u8],
}

impl<'a> Header<'a> {
    /// Most bytes of a header.
    pub const MAX: usize = FIXED + 2 * MAX_INIT + MAX_PREFIX;

    /// Parses the first frame of a group.
    ///
    /// # Errors
    /// The bytes are not a header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        if bytes.len() > Header::MAX {
            return Err(HeaderError::TooLong);
        }
        let (fixed, rest) = bytes
            .split_at_checked(FIXED)
            .ok_or(HeaderError::Truncated)?;
        if fixed[0] != VERSION {
            return Err(HeaderError::Version);
        }
        let len = u32::from_be_bytes([fixed[2], fixed[3], fixed[4], fixed[5]]);
        let len = usize::try_from(len).map_err(|_| HeaderError::Truncated)?;
        let (init, prefix) = rest.split_at_checked(len).ok_or(HeaderError::Truncated)?;
        if init.len() > 2 * MAX_INIT || prefix.len() > MAX_PREFIX {
            return Err(HeaderError::TooLong);
        }
        Ok(Header {
            is_start: fixed[1] & START != 0,
            init,
            prefix,
        })
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + self.init.len() + self.prefix.len());
        bytes.push(VERSION);
        bytes.push(if self.is_start { START } else { 0 });
        bytes.extend_from_slice(&(self.init.len() as u32).to_be_bytes());
        bytes.extend_from_slice(self.init);
        bytes.extend_from_slice(self.prefix);
        bytes
    }
}
