//! The options of a segment, all at once.

use core::fmt;

use super::{Feedback, GroupOption, KIND_FEEDBACK, KIND_GROUP, ParseError, Tag};
use crate::seq::Seq;

/// Limit of the options of one segment in bytes (RFC 9293 §3.1: the data offset has 4 bits).
pub const MAX_OPTIONS_BYTES: usize = 40;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// One block of received data above the cumulative acknowledgement: its first octet, and the one after its last
/// (RFC 2018 §3).
pub type SackBlock = (Seq, Seq);

/// Up to four SACK blocks.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; 4],
    len: u8,
}

impl SackBlocks {
    /// Appends a block; a fifth one is ignored.
    pub fn push(&mut self, block: SackBlock) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            *slot = block;
            self.len += 1;
        }
    }

    /// Returns the blocks in the order of the segment.
    #[must_use]
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }

    /// How many blocks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps only the first `len` blocks.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len.min(4) as u8);
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// The options that this TCP understands.
///
/// Unknown options are passed over (RFC 9293 MUST-6), and so are known ones of a length that they
/// cannot have, as other TCPs do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// Maximum segment size (RFC 9293 §3.7.1), in SYN segments.
    pub mss: Option<u16>,
    /// Window scale shift (RFC 7323 §2), in SYN segments; above 14 it is read as 14.
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018 §2), in SYN segments.
    pub sack_permitted: bool,
    /// TSval and TSecr (RFC 7323 §3).
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks (RFC 2018 §3).
    pub sack: SackBlocks,
    /// The group option: a group in SYN segments, a request to leave it in others.
    pub group: Option<GroupOption>,
    /// The feedback option.
    pub feedback: Option<Feedback>,
    /// The tag option, never in SYN segments. [`SegmentKey`](super::SegmentKey) computes it when the segment is
    /// written, and expects it in one place: after timestamps, and before all other options.
    pub tag: Option<Tag>,
}

impl Options {
    /// Reads the options part of a header. The last of several options of one kind counts.
    ///
    /// # Errors
    ///
    /// [`ParseError::Option`] when an option's length is illegal.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, ParseError> {
        let mut options = Self::default();
        // Nearly all segments: timestamps alone, in the usual place (RFC 7323 app. A).
        if let [NOP, NOP, TIMESTAMPS, 10, value @ ..] = bytes
            && value.len() == 8
        {
            options.timestamps = Some((word(value, 0), word(value, 4)));
            return Ok(options);
        }
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                END => break,
                NOP => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let len = usize::from(*rest.first().ok_or(ParseError::Option)?);
            if len < 2 || len > bytes.len() {
                return Err(ParseError::Option);
            }
            options.take(kind, &bytes[2..len]);
            bytes = &bytes[len..];
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(14)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, value) if value.len() == 8 => {
                self.timestamps = Some((word(value, 0), word(value, 4)));
            }
            (SACK, value) if value.len().is_multiple_of(8) => {
                self.sack = SackBlocks::default();
                for block in value.chunks_exact(8) {
                    self.sack.push((Seq(word(block, 0)), Seq(word(block, 4))));
                }
            }
            (KIND_GROUP, value) => self.group = GroupOption::parse(value).or(self.group),
            // One kind for both: the lengths differ.
            (KIND_FEEDBACK, value) => {
                self.feedback = Feedback::parse(value).or(self.feedback);
                self.tag = Tag::parse(value).or(self.tag);
            }
            _ => {}
        }
    }

    /// Returns the bytes of the options with padding.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let mut len = 0;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += match (self.sack_permitted, self.timestamps.is_some()) {
            (_, true) => 12,
            (true, false) => 4,
            (false, false) => 0,
        };
        len += self.tag.map_or(0, |_| Tag::LEN);
        len += if self.window_scale.is_some() { 4 } else { 0 };
        len += self.group.map_or(0, |group| group.buffer_len());
        len += self.feedback.map_or(0, |_| Feedback::LEN);
        if !self.sack.is_empty() {
            len += 2 + 8 * self.sack.len();
        }
        len.next_multiple_of(4)
    }

    /// Drops SACK blocks until the options fit: with timestamps and feedback two are left.
    pub fn shrink_to_fit(&mut self) {
        while self.buffer_len() > MAX_OPTIONS_BYTES && !self.sack.is_empty() {
            self.sack.truncate(self.sack.len() - 1);
        }
    }

    /// Writes the options and their padding into a buffer of exactly [`Options::buffer_len`] bytes. Timestamps
    /// follow two NOPs, where other TCPs expect them (RFC 7323 app. A).
    ///
    /// # Panics
    ///
    /// When the buffer has another length.
    pub fn emit(&self, buffer: &mut [u8]) {
        assert_eq!(buffer.len(), self.buffer_len(), "options buffer");
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[MSS, 4, high, low]);
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => put(&[SACK_PERMITTED, 2]),
            (true, false) => put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, true) => put(&[NOP, NOP]),
            (false, false) => {}
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(tag) = self.tag {
            let mut bytes = [0; Tag::LEN];
            tag.emit(&mut bytes);
            put(&bytes);
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if let Some(group) = self.group {
            let mut bytes = [0; 20];
            let len = group.emit(&mut bytes);
            put(&bytes[..len]);
        }
        if let Some(feedback) = self.feedback {
            let mut bytes = [0; Feedback::LEN];
            feedback.emit(&mut bytes);
            put(&bytes);
        }
        if !self.sack.is_empty() {
            put(&[SACK, (2 + 8 * self.sack.len()) as u8]);
            for (start, end) in self.sack.as_slice() {
                put(&start.0.to_be_bytes());
                put(&end.0.to_be_bytes());
            }
        }
        buffer[at..].fill(END);
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
