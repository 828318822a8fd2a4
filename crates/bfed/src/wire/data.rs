//! Packets between data nodes (§5.3.2, §5.3.3): a header and a frame of the session as its source sent it.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  version 1 (4)|  flags:       |  length of the payload        |
//! |  type      (4)|  class        |                               |
//! +---------------+---------------+-------------------------------+
//! |  flow label                                                   |
//! +---------------------------------------------------------------+
//! |  sequence: + 1 for each packet of the flow on this link       |
//! +---------------------------------------------------------------+
//! |  time when it was sent, microseconds of the sender's clock    |
//! +---------------------------------------------------------------+
//! |  round-trip time that the sender knows, microseconds; 0: none |
//! +---------------------------------------------------------------+
//! ```
//!
//! Flags are the [class](super::class) of a frame, in DATA, FRAGMENT, TAIL and PARITY over UDP, and 0 in all others. With a class,
//! the last word is the round-trip time in units of 32 us, and the age of the frame. The highest flag says that the packet
//! was sent before, with the same sequence: it is the answer to a REPAIR_REQUEST.
//!
//! Type 1, DATA: the label is the sender's. Type 2, ATTACH, opens a TCP channel: the dialling side names the flow
//! by its label; no payload. Type 3, REPORT: see [`report`](super::report); its label is that of the DATA that it
//! reports on. On TCP and native channels, sequence, time and round-trip time are 0. The sequence of a label does not
//! begin anew while the label is in use, whatever becomes of the channels at the other end.
//!
//! Type 4, PROBE, and type 5, ECHO, check that the sender of a flow is alive, and that its receiver receives at its
//! address. Over UDP only, without payload. The label is the sender's, as in DATA; the sequence of a PROBE is
//! random, and its ECHO has the same. A PROBE with sequence 0 says that a new receiver is ready, and gets no ECHO.
//!
//! Type 6, FRAGMENT: like DATA, with a [`fragment`](super::fragment) of a frame that is too long for one datagram
//! as its payload. Over UDP only.
//!
//! Type 7, INIT: an [initialisation](super::init) of the flow, or a piece of one; its label is that of the DATA. Type 8,
//! INIT_REQUEST: the receiver of a flow asks for it. Over UDP only. In an ATTACH, the sequence says what the
//! receiver understands: [`ATTACH_INIT`](super::init::ATTACH_INIT).
//!
//! Type 9, REPAIR_REQUEST: the receiver of a flow asks for [packets](super::repair) that have not arrived; its label is that
//! of the DATA. Type 10, TAIL, without payload: the packet with this sequence was the last one for now, so that its loss
//! is noticed. It has the class and the age of that packet. Both over UDP only, and only between data nodes that use
//! classes. Over QUIC, packets with a class have sequences from 1, others 0.
//!
//! Type 11, PARITY: restores lost packets of a [block](super::parity), of which its sequence is the first. Like TAIL, it has no
//! place in the sequence of its own.
//!
//! In PROBE and ECHO, the last two words are a cookie of 64 bits. The cookie of an ECHO is random for each address
//! and peer; a PROBE repeats the cookie of the last ECHO, and has 0 before the first. DATA is sent only to an
//! address from which a PROBE with its cookie came.

use super::ParseError;
use super::class::Class;
use crate::types::FlowLabel;

/// Length of the header of a data packet.
pub const HEADER_LEN: usize = 20;
/// Longest payload: with UDP and IPv6 headers it still fits a datagram.
pub const MAX_PAYLOAD_LEN: usize = 65_000;

/// Type of a packet between data nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A frame of the session.
    Data = 1,
    /// Names the flow of a TCP channel.
    Attach = 2,
    /// The receiver's report on the sender's rate (RFC 5348 §6).
    Report = 3,
    /// Asks whether the sender is alive.
    Probe = 4,
    /// Answer to a PROBE.
    Echo = 5,
    /// A part of a frame of the session.
    Fragment = 6,
    /// The initialisation of the flow's container, or a piece of it.
    Init = 7,
    /// Asks for the initialisation.
    InitRequest = 8,
    /// Asks for packets that have not arrived.
    RepairRequest = 9,
    /// Names the last packet that was sent.
    Tail = 10,
    /// Restores lost packets.
    Parity = 11,
}

/// The version of data packets. They follow the control protocol, whose OPEN agrees on a version: a new one here comes
/// with a new one there.
const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;

/// Flag of a packet that was sent before.
const AGAIN: u8 = 1 << 7;

/// Microseconds of one unit of the round-trip time in a header with a class.
const RTT_UNIT_US: u32 = 32;

/// Returns a round-trip time in units, rounded up: only 0 is none.
#[inline]
fn rtt_units(rtt_us: u32) -> u32 {
    rtt_us.div_ceil(RTT_UNIT_US).min(u32::from(u16::MAX))
}

/// View of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

#[inline]
fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[at..at + N]);
    word
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Returns a view of a whole packet.
    ///
    /// # Errors
    /// It is malformed, or its length is not that of `buffer`.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, ParseError> {
        let len = Packet::<&[u8]>::check_header(buffer.as_ref())?;
        match buffer.as_ref().len() {
            have if have < len => Err(ParseError::Truncated),
            have if have > len => Err(ParseError::Length),
            _ => Ok(Packet { buffer }),
        }
    }

    /// Returns the length of the whole packet that the header at the front of `bytes` begins. A driver splits a TCP
    /// channel's stream into packets with it.
    ///
    /// # Errors
    /// The header is malformed.
    #[inline]
    pub fn check_header(bytes: &[u8]) -> Result<usize, ParseError> {
        if bytes.first().is_some_and(|first| first >> 4 != VERSION) {
            return Err(ParseError::Version);
        }
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        if !(1..=11).contains(&(bytes[0] & 15)) {
            return Err(ParseError::Type);
        }
        if bytes[1] != 0 {
            let class = match bytes[0] & 15 {
                1 | 6 => bytes[1] & !AGAIN,
                10 | 11 => bytes[1],
                _ => return Err(ParseError::Reserved),
            };
            if Class::from_bits(class).is_none_or(|class| !class.is_some()) {
                return Err(ParseError::Reserved);
            }
        }
        let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if len > MAX_PAYLOAD_LEN {
            return Err(ParseError::Length);
        }
        if bytes[4..8] == [0; 4] {
            return Err(ParseError::Value);
        }
        Ok(HEADER_LEN + len)
    }

    /// Returns type and label of a header that [`check_header`](Self::check_header) accepts.
    #[inline]
    pub(crate) fn kind_and_label(header: &[u8; HEADER_LEN]) -> (Kind, FlowLabel) {
        let packet = Packet { buffer: header };
        (packet.kind(), packet.label())
    }

    /// Returns the type.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.buffer.as_ref()[0] & 15 {
            1 => Kind::Data,
            2 => Kind::Attach,
            3 => Kind::Report,
            4 => Kind::Probe,
            5 => Kind::Echo,
            6 => Kind::Fragment,
            7 => Kind::Init,
            8 => Kind::InitRequest,
            9 => Kind::RepairRequest,
            10 => Kind::Tail,
            _ => Kind::Parity,
        }
    }

    /// Returns the flow label.
    #[inline]
    pub fn label(&self) -> FlowLabel {
        let label = u32::from_be_bytes(word(self.buffer.as_ref(), 4));
        FlowLabel::new(label).unwrap_or(const { FlowLabel::new(u32::MAX).unwrap() })
    }

    /// Returns the sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes(word(self.buffer.as_ref(), 8))
    }

    /// Returns when it was sent, in microseconds of the sender's clock.
    #[inline]
    pub fn timestamp_us(&self) -> u32 {
        u32::from_be_bytes(word(self.buffer.as_ref(), 12))
    }

    /// Returns the sender's round-trip time in microseconds; 0 for none.
    #[inline]
    pub fn rtt_us(&self) -> u32 {
        let last = word(self.buffer.as_ref(), 16);
        match self.class().is_some() {
            true => u32::from(u16::from_be_bytes([last[0], last[1]])) * RTT_UNIT_US,
            false => u32::from_be_bytes(last),
        }
    }

    /// Returns the class.
    #[inline]
    pub fn class(&self) -> Class {
        Class::from_bits(self.buffer.as_ref()[1] & !AGAIN).unwrap_or_default()
    }

    /// Returns whether the packet was sent before.
    #[inline]
    pub fn is_again(&self) -> bool {
        self.buffer.as_ref()[1] & AGAIN != 0
    }

    /// Returns the age of the frame in milliseconds; 0 without a class.
    #[inline]
    pub fn age_ms(&self) -> u16 {
        match self.class().is_some() {
            true => u16::from_be_bytes(word(self.buffer.as_ref(), 18)),
            false => 0,
        }
    }

    /// Returns the cookie of a PROBE or ECHO; 0 for none.
    #[inline]
    pub fn cookie(&self) -> u64 {
        u64::from_be_bytes(word(self.buffer.as_ref(), 12))
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[HEADER_LEN..]
    }
}

/// The header of a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The type.
    pub kind: Kind,
    /// The flow label.
    pub label: FlowLabel,
    /// Increases by 1 with each packet of the flow on this link.
    pub sequence: u32,
    /// When it is sent, in microseconds.
    pub timestamp_us: u32,
    /// The sender's round-trip time in microseconds; 0 for none. With a class: a multiple of 32, up to 2 s.
    pub rtt_us: u32,
    /// Length of the payload in bytes.
    pub payload_len: usize,
    /// The class of the frame.
    pub class: Class,
    /// The age of the frame in milliseconds; it counts only with a class.
    pub age_ms: u16,
    /// The packet was sent before; it counts only with a class.
    pub is_again: bool,
}

impl Repr {
    /// Creates a header with a type and a label; everything else is 0.
    #[inline]
    #[must_use]
    pub const fn new(kind: Kind, label: FlowLabel) -> Self {
        Repr {
            kind,
            label,
            sequence: 0,
            timestamp_us: 0,
            rtt_us: 0,
            payload_len: 0,
            class: Class::NONE,
            age_ms: 0,
            is_again: false,
        }
    }

    /// Sets the cookie of a PROBE or ECHO.
    #[inline]
    #[must_use]
    pub const fn with_cookie(self, cookie: u64) -> Self {
        Repr {
            timestamp_us: (cookie >> 32) as u32,
            rtt_us: cookie as u32,
            ..self
        }
    }

    /// Parses the header of a checked packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            kind: packet.kind(),
            label: packet.label(),
            sequence: packet.sequence(),
            timestamp_us: packet.timestamp_us(),
            rtt_us: packet.rtt_us(),
            payload_len: packet.payload().len(),
            class: packet.class(),
            age_ms: packet.age_ms(),
            is_again: packet.is_again(),
        }
    }

    /// Returns the length of the packet in bytes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN + self.payload_len
    }

    /// Writes the header to the front of `packet`; the payload is not touched.
    ///
    /// # Panics
    /// `packet` is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) {
        // Written in words: assembling single bytes costs as much as the lookup of the flow.
        let packet = &mut packet[..HEADER_LEN];
        let again = AGAIN * u8::from(self.is_again && self.class.is_some());
        let flags = self.class.bits() | again;
        let first = u32::from(VERSION << 4 | self.kind as u8) << 24
            | u32::from(flags) << 16
            | self.payload_len as u32 & 0xffff;
        let label = u64::from(first) << 32 | u64::from(self.label.get());
        let time = u64::from(self.sequence) << 32 | u64::from(self.timestamp_us);
        packet[..8].copy_from_slice(&label.to_be_bytes());
        packet[8..16].copy_from_slice(&time.to_be_bytes());
        let last = match self.class.is_some() {
            true => rtt_units(self.rtt_us) << 16 | u32::from(self.age_ms),
            false => self.rtt_us,
        };
        packet[16..].copy_from_slice(&last.to_be_bytes());
    }
}
