//! PACE and FEEDBACK: congestion control by TFMCC (RFC 4654).
//!
//! ```text
//!  PACE (source to the group)
//! +---------------+---------------+-------------------------------+
//! | 1, type 8     |  flags        |  feedback round               |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  timestamp of the source, microseconds                        |
//! +---------------------------------------------------------------+
//! |  longest round-trip time in the group, microseconds           |
//! +---------------------------------------------------------------+
//! |  rate of the source, bit/s (64 bits)                          |
//! +---------------------------------------------------------------+
//! |  receivers that can have a higher rate than this need not     |
//! |  answer in this round, bit/s; all ones: none (64 bits)        |
//! +---------------------------------------------------------------+
//! |  identifier of the limiting receiver; 0: none (64 bits)       |
//! +---------------------------------------------------------------+
//! |  receivers in the group, estimated from above                 |
//! +---------------------------------------------------------------+
//! |  up to 16 echoes: identifier of a receiver (64 bits), its     |
//! |  timestamp, microseconds that the source held it (32 bits     |
//! |  each)                                                        |
//! +---------------------------------------------------------------+
//!
//!  FEEDBACK (receiver to source, unicast)
//! +---------------+---------------+-------------------------------+
//! | 1, type 9     |  flags        |  feedback round of the PACE   |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  receiver identifier (64 bits, random)                        |
//! +---------------------------------------------------------------+
//! |  token the source gave to this address; 0: none yet (64 bits) |
//! +---------------------------------------------------------------+
//! |  timestamp of the receiver, microseconds                      |
//! +---------------------------------------------------------------+
//! |  timestamp of the newest PACE                                 |
//! +---------------------------------------------------------------+
//! |  microseconds since it came                                   |
//! +---------------------------------------------------------------+
//! |  round-trip time of the receiver, microseconds; 0: unknown    |
//! +---------------------------------------------------------------+
//! |  loss event rate, in parts of 2^32; 0: no loss                |
//! +---------------------------------------------------------------+
//! |  rate that the receiver can have, bit/s; all ones before the  |
//! |  first loss (64 bits)                                         |
//! +---------------------------------------------------------------+
//! |  rate at which packets came, bit/s (64 bits)                  |
//! +---------------------------------------------------------------+
//! ```
//!
//! Flag 1 of PACE: slow start, in which the rate at which packets come counts. FEEDBACK has no flags. Both are
//! no shorter than what they cause: a source answers FEEDBACK without a token by one, in 24 bytes.

use super::{Header, ParseError, Type, expect_end};
use crate::SessionId;

/// Length of a PACE without echoes.
pub const PACE_LEN: usize = 44;
/// Length of an echo.
pub const ECHO_LEN: usize = 16;
/// Most echoes in one PACE.
pub const MAX_ECHOES: usize = 16;
/// Length of a FEEDBACK.
pub const FEEDBACK_LEN: usize = 60;
/// Flag of PACE: slow start.
const SLOW_START: u8 = 1;

/// The timestamp of a receiver, on its way back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Echo {
    /// The receiver's random identifier.
    pub receiver: u64,
    /// Timestamp of its FEEDBACK, microseconds.
    pub stamp_us: u32,
    /// How long the source held it, microseconds.
    pub held_us: u32,
}

/// The fields of a PACE packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The session.
    pub session: SessionId,
    /// The feedback round; wraps around.
    pub round: u16,
    /// The rate doubles until the first loss.
    pub slow_start: bool,
    /// Clock of the source, microseconds; wraps around.
    pub stamp_us: u32,
    /// Longest round-trip time in the group, microseconds.
    pub max_round_trip_us: u32,
    /// The source's rate, bit/s of Ethernet frames.
    pub rate_bps: u64,
    /// Receivers that can have a higher rate need not answer in this round; `u64::MAX`: all answer.
    pub suppress_bps: u64,
    /// The receiver whose rate the source follows; 0: none.
    pub limiting: u64,
    /// No fewer receivers than there are.
    pub receivers: u32,
    /// Timestamps of receivers.
    pub echoes: heapless::Vec<Echo, MAX_ECHOES>,
}

impl Pace {
    /// Reads the packet.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not PACE of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when its length is not that of 0 to [`MAX_ECHOES`] echoes,
    /// [`ParseError::Reserved`] when an unknown flag is set, and [`ParseError::Value`] when the rate is 0.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::Pace)?;
        if header.flags & !SLOW_START != 0 {
            return Err(ParseError::Reserved);
        }
        let mut pace = Pace {
            session: header.session,
            round: header.specific,
            slow_start: header.flags & SLOW_START != 0,
            stamp_us: fields.u32()?,
            max_round_trip_us: fields.u32()?,
            rate_bps: fields.u64()?,
            suppress_bps: fields.u64()?,
            limiting: fields.u64()?,
            receivers: fields.u32()?,
            echoes: heapless::Vec::new(),
        };
        if !fields.rest().len().is_multiple_of(ECHO_LEN) {
            return Err(ParseError::Length);
        }
        while !fields.rest().is_empty() {
            let echo = Echo {
                receiver: fields.u64()?,
                stamp_us: fields.u32()?,
                held_us: fields.u32()?,
            };
            pace.echoes.push(echo).map_err(|_| ParseError::Length)?;
        }
        if pace.rate_bps == 0 {
            return Err(ParseError::Value);
        }
        Ok(pace)
    }

    /// Length of the packet.
    pub fn buffer_len(&self) -> usize {
        PACE_LEN + ECHO_LEN * self.echoes.len()
    }

    /// Writes the packet.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Pace::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = Header {
            kind: Type::Pace,
            flags: if self.slow_start { SLOW_START } else { 0 },
            specific: self.round,
            session: self.session,
        };
        let fields = header
            .emit(buffer)
            .u32(self.stamp_us)
            .u32(self.max_round_trip_us)
            .u64(self.rate_bps)
            .u64(self.suppress_bps)
            .u64(self.limiting)
            .u32(self.receivers);
        self.echoes.iter().fold(fields, |fields, echo| {
            let fields = fields.u64(echo.receiver);
            fields.u32(echo.stamp_us).u32(echo.held_us)
        });
    }
}

/// The fields of a FEEDBACK packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Feedback {
    /// The session.
    pub session: SessionId,
    /// Round of the newest PACE.
    pub round: u16,
    /// The receiver's random identifier.
    pub receiver: u64,
    /// The token the source gave to this address; 0: none yet.
    pub token: u64,
    /// Clock of the receiver, microseconds; wraps around.
    pub stamp_us: u32,
    /// Timestamp of the newest PACE.
    pub echo_us: u32,
    /// How long the receiver held it, microseconds.
    pub held_us: u32,
    /// The receiver's round-trip time, microseconds; 0: unknown.
    pub round_trip_us: u32,
    /// Loss event rate in parts of 2^32; 0 before the first loss.
    pub loss: u32,
    /// The rate that the receiver can have by the throughput equation, bit/s; `u64::MAX` before the first loss.
    pub rate_bps: u64,
    /// The rate at which packets came since the last feedback, bit/s.
    pub received_bps: u64,
}

impl Feedback {
    /// Reads the packet.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not FEEDBACK of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when it is not [`FEEDBACK_LEN`] bytes long,
    /// [`ParseError::Reserved`] when flags are set, and [`ParseError::Value`] when a rate is named without loss or
    /// none with loss, or the receiver is 0.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::Feedback)?;
        let feedback = Feedback {
            session: header.session,
            round: header.specific,
            receiver: fields.u64()?,
            token: fields.u64()?,
            stamp_us: fields.u32()?,
            echo_us: fields.u32()?,
            held_us: fields.u32()?,
            round_trip_us: fields.u32()?,
            loss: fields.u32()?,
            rate_bps: fields.u64()?,
            received_bps: fields.u64()?,
        };
        expect_end(&fields)?;
        if header.flags != 0 {
            return Err(ParseError::Reserved);
        }
        let is_unlimited = feedback.rate_bps == u64::MAX;
        if is_unlimited != (feedback.loss == 0) || feedback.receiver == 0 {
            return Err(ParseError::Value);
        }
        Ok(feedback)
    }

    /// Length of the packet.
    pub const fn buffer_len(&self) -> usize {
        FEEDBACK_LEN
    }

    /// Writes the packet.
    ///
    /// # Panics
    /// If the buffer is shorter than [`FEEDBACK_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = Header {
            kind: Type::Feedback,
            flags: 0,
            specific: self.round,
            session: self.session,
        };
        header
            .emit(buffer)
            .u64(self.receiver)
            .u64(self.token)
            .u32(self.stamp_us)
            .u32(self.echo_us)
            .u32(self.held_us)
            .u32(self.round_trip_us)
            .u32(self.loss)
            .u64(self.rate_bps)
            .u64(self.received_bps);
    }
}
