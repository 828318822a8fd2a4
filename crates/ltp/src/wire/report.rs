//! REPORT and REPORT_ACK: progress of a receiver, and the source's answer.
//!
//! ```text
//!  REPORT (receiver to source, unicast)
//! +---------------+---------------+-------------------------------+
//! | 1, type 6     |  status       |  tag                          |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  receiver identifier (64 bits, random)                        |
//! +---------------------------------------------------------------+
//! |  blocks held from the start on, without a hole (64 bits)      |
//! +---------------------------------------------------------------+
//! |  token the source gave to this address; 0: none yet (64 bits) |
//! +---------------------------------------------------------------+
//! |  if complete: first 8 bytes of the digest of the whole; 0: no |
//! |  digests, or started late and the whole is not known. With    |
//! |  progress: packets expected (32 bits), and how many of them   |
//! |  the source's own packets did not bring (32 bits). Else 0     |
//! +---------------------------------------------------------------+
//!
//!  REPORT_ACK (source to receiver, unicast)
//! +---------------+---------------+-------------------------------+
//! | 1, type 7     |  verdict      |  tag, as in the cause         |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  receiver identifier, or nonce of the request (64 bits)       |
//! +---------------------------------------------------------------+
//! |  token for this address (64 bits)                             |
//! +---------------------------------------------------------------+
//! ```
//!
//! Status 0 joined, 1 progress, 2 complete, 3 failed, 4 leaving. Verdict 0 noted, 1 the digest
//! is not the content's, 2 the source's table of receivers, or its host's share, is full, 3 this only brings a token
//! (it answers a packet by unicast that had none, and is no longer than it), 4 the receiver was given up because it is
//! too slow.

use super::{Header, ParseError, Type, expect_end};
use crate::SessionId;

/// Length of a REPORT.
pub const REPORT_LEN: usize = 40;
/// Length of a REPORT_ACK.
pub const REPORT_ACK_LEN: usize = 24;

proto_core::numbered! {
    /// State of a receiver.
    pub enum Status: u8 {
        /// It has received a heartbeat of the session and takes part.
        Joined = 0,
        /// It continues.
        Progress = 1,
        /// It has everything.
        Complete = 2,
        /// It gave up.
        Failed = 3,
        /// It leaves.
        Leaving = 4,
    }
}

proto_core::numbered! {
    /// The source's answer to a report.
    pub enum Verdict: u8 {
        /// Accepted.
        Noted = 0,
        /// The receiver's digest of the whole is not the content's.
        Mismatch = 1,
        /// The table of receivers, or this host's share of it, is full: the source will not wait for this one.
        Full = 2,
        /// Not an answer to a report: the token of a receiver that sent a unicast request without it.
        Token = 3,
        /// The receiver was given up because it is too slow. With its token, which no other host has.
        TooSlow = 4,
    }
}

/// Loss of a receiver among the packets that the source sent to all, repaired or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Loss {
    /// Packets that the source sent, as far as the receiver knows, since it last reported loss.
    pub expected: u32,
    /// Those of them that did not come as DATA, at most `expected`.
    pub lost: u32,
}

impl Loss {
    /// Fewer packets than these show no rate: they are reported, and counted on.
    pub const LEAST: u32 = 64;

    /// The share that was lost, in thousandths; `None` when it says nothing yet.
    pub fn per_mille(&self) -> Option<u16> {
        let enough = self.expected >= Self::LEAST;
        enough.then(|| (u64::from(self.lost) * 1000 / u64::from(self.expected)) as u16)
    }
}

/// The fields of a REPORT packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Report {
    /// How the receiver is.
    pub status: Status,
    /// Mark that the answer echoes.
    pub tag: u16,
    /// The session.
    pub session: SessionId,
    /// The receiver's random identifier.
    pub receiver: u64,
    /// Blocks held from the start on, without a hole.
    pub blocks: u64,
    /// The token the source gave to this address; 0: none yet.
    pub token: u64,
    /// First 8 bytes of the digest of the whole; 0 unless complete, digests are in use, and the
    /// whole is known, which it may not be after a late start.
    pub digest: u64,
    /// What was lost; 0 of 0 unless the status is [`Status::Progress`].
    pub loss: Loss,
}

impl Report {
    /// Reads the packet.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not REPORT of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when it is not [`REPORT_LEN`] bytes long,
    /// [`ParseError::Reserved`] when the status is unknown or an unused field is not 0, and
    /// [`ParseError::Value`] when more packets are lost than expected.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::Report)?;
        let (receiver, blocks, token) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let last = fields.u64()?;
        expect_end(&fields)?;
        let status = Status::from_number(header.flags).ok_or(ParseError::Reserved)?;
        let (mut digest, mut loss) = (0, Loss::default());
        match status {
            Status::Complete => digest = last,
            Status::Progress => {
                let (expected, lost) = ((last >> 32) as u32, last as u32);
                if lost > expected {
                    return Err(ParseError::Value);
                }
                loss = Loss { expected, lost };
            }
            _ if last != 0 => return Err(ParseError::Reserved),
            _ => {}
        }
        Ok(Report {
            status,
            tag: header.specific,
            session: header.session,
            receiver,
            blocks,
            token,
            digest,
            loss,
        })
    }

    /// Length of the packet.
    pub const fn buffer_len(&self) -> usize {
        REPORT_LEN
    }

    /// Writes the packet.
    ///
    /// # Panics
    /// If the buffer is shorter than [`REPORT_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let last = match self.status {
            Status::Progress => u64::from(self.loss.expected) << 32 | u64::from(self.loss.lost),
            _ => self.digest,
        };
        let header = Header {
            kind: Type::Report,
            flags: self.status as u8,
            specific: self.tag,
            session: self.session,
        };
        let fields = header.emit(buffer).u64(self.receiver).u64(self.blocks);
        fields.u64(self.token).u64(last);
    }
}

/// The fields of a REPORT_ACK packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReportAck {
    /// What the source says.
    pub verdict: Verdict,
    /// The tag of the report or request.
    pub tag: u16,
    /// The session.
    pub session: SessionId,
    /// The receiver's identifier, or the nonce of its request.
    pub receiver: u64,
    /// Token that proves, in later packets, that this address was reached.
    pub token: u64,
}

impl ReportAck {
    /// Reads the packet.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not REPORT-ACK of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when it is not [`REPORT_ACK_LEN`] bytes long, and
    /// [`ParseError::Reserved`] when the verdict is unknown.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::ReportAck)?;
        let (receiver, token) = (fields.u64()?, fields.u64()?);
        expect_end(&fields)?;
        Ok(ReportAck {
            verdict: Verdict::from_number(header.flags).ok_or(ParseError::Reserved)?,
            tag: header.specific,
            session: header.session,
            receiver,
            token,
        })
    }

    /// Length of the packet.
    pub const fn buffer_len(&self) -> usize {
        REPORT_ACK_LEN
    }

    /// Writes the packet.
    ///
    /// # Panics
    /// If the buffer is shorter than [`REPORT_ACK_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = Header {
            kind: Type::ReportAck,
            flags: self.verdict as u8,
            specific: self.tag,
            session: self.session,
        };
        header.emit(buffer).u64(self.receiver).u64(self.token);
    }
}
