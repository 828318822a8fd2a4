//! Segments and their options. `docs/wire.md` draws the formats that no RFC defines.
//!
//! The fixed header is read and written through [`smoltcp::wire::TcpPacket`]. The options are parsed here,
//! because a segment of TCP-XM carries some of its own, and up to four SACK blocks.

mod feedback;
mod group;
mod options;
mod segment;
mod tag;

use core::fmt;

pub use feedback::Feedback;
pub use group::{GroupOption, is_group};
pub use options::{MAX_OPTIONS_BYTES, Options, SackBlock, SackBlocks};
pub(crate) use segment::Run;
pub use segment::{Flags, HEADER_BYTES, Segment};
pub use tag::{Place, SegmentKey, Signer, Tag};

/// Kind of the group option: the first of the two shared experimental kinds (RFC 6994).
pub const KIND_GROUP: u8 = 253;
/// Kind of the feedback option: the second one.
pub const KIND_FEEDBACK: u8 = 254;
/// Kind of the tag option: that of feedback, from which its length distinguishes it.
pub const KIND_TAG: u8 = 254;
/// Experiment identifier after both kinds (RFC 6994 §3): `XM`.
pub const EXPERIMENT: u16 = 0x584d;

/// Why bytes are no segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// Shorter than its header says, or than any header.
    Truncated,
    /// The data offset is below five words.
    Header,
    /// An option's length is 0, 1, or reaches past the header (RFC 9293 MUST-7).
    Option,
    /// The checksum is wrong.
    Checksum,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Truncated => "segment is truncated",
            ParseError::Header => "data offset is below the header",
            ParseError::Option => "illegal option length",
            ParseError::Checksum => "wrong checksum",
        })
    }
}

impl core::error::Error for ParseError {}
