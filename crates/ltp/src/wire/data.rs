//! DATA and REPAIR: one packet of the stream.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | 1, type 1/2   |  flags        | REPAIR: tag of the request    |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  sequence                                                     |
//! +---------------------------------------------------------------+
//! |  number of the transmission                                   |
//! +---------------------------------------------------------------+
//! |  payload: always as long as SYNC says; past the end of the    |
//! |  block it is zero                                             |
//! +---------------------------------------------------------------+
//! ```
//!
//! 16 bytes before the payload. Flag 1 says that the transmission has a number: a source with congestion control
//! counts all packets of both types that it sends to the group, so that receivers see which of them are lost. Other
//! packets have 0 in its place.
//!
//! A REPAIR echoes the tag of the request it answers, so that the
//! requester can measure a round-trip time even after repetitions. This serves the purpose of Karn's
//! rule (RFC 6298 §3) and discards no sample.

use super::{HEADER_LEN, Header, ParseError, Seq, Type};
use crate::SessionId;

/// Bytes before the payload.
pub const DATA_HEADER_LEN: usize = HEADER_LEN + 8;
/// Flag: the transmission has a number.
const NUMBERED: u8 = 1;

/// A view over a DATA or REPAIR packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks length, type and flags, and wraps the bytes.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] without a payload, [`ParseError::Version`] or [`ParseError::Type`] when it is not
    /// DATA or REPAIR of this version, [`ParseError::Reserved`] when unknown flags are set, or the tag of DATA, or a
    /// number without its flag, is not 0.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, ParseError> {
        let packet = bytes.as_ref();
        let header = Header::parse(packet)?;
        let tag_fits = match header.kind {
            Type::Data => header.specific == 0,
            Type::Repair => true,
            _ => return Err(ParseError::Type),
        };
        if packet.len() <= DATA_HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        let packet = Packet { bytes };
        let number_fits = header.flags == NUMBERED || packet.word(HEADER_LEN + 4) == 0;
        if header.flags > NUMBERED || !tag_fits || !number_fits {
            return Err(ParseError::Reserved);
        }
        Ok(packet)
    }

    /// Whether this is a REPAIR.
    #[inline]
    pub fn is_repair(&self) -> bool {
        self.bytes.as_ref()[0] & 0xf == Type::Repair as u8
    }

    /// The tag of the request that a REPAIR answers; 0 for DATA.
    #[inline]
    pub fn tag(&self) -> u16 {
        let b = self.bytes.as_ref();
        u16::from_be_bytes([b[2], b[3]])
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        let b = self.bytes.as_ref();
        u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
    }

    /// The session.
    #[inline]
    pub fn session(&self) -> SessionId {
        SessionId(self.word(4))
    }

    /// The packet's number.
    #[inline]
    pub fn sequence(&self) -> Seq {
        Seq(self.word(HEADER_LEN))
    }

    /// The number of the transmission, if it has one.
    #[inline]
    pub fn number(&self) -> Option<u32> {
        (self.bytes.as_ref()[1] == NUMBERED).then(|| self.word(HEADER_LEN + 4))
    }

    /// The bytes of the stream.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[DATA_HEADER_LEN..]
    }
}

/// The fields of a DATA or REPAIR packet, without the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// `None`: new data; the tag of the request: a repair.
    pub repair: Option<u16>,
    /// The session.
    pub session: SessionId,
    /// The packet's number.
    pub sequence: Seq,
    /// The number of the transmission; `None` without congestion control, to one receiver, or from another host.
    pub number: Option<u32>,
}

impl Repr {
    /// Reads the fields.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            repair: packet.is_repair().then(|| packet.tag()),
            session: packet.session(),
            sequence: packet.sequence(),
            number: packet.number(),
        }
    }

    /// Length of the header that [`Repr::emit`] writes; the payload follows it.
    pub const fn buffer_len(&self) -> usize {
        DATA_HEADER_LEN
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If the buffer is shorter than [`DATA_HEADER_LEN`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        Header {
            kind: self.repair.map_or(Type::Data, |_| Type::Repair),
            flags: if self.number.is_some() { NUMBERED } else { 0 },
            specific: self.repair.unwrap_or(0),
            session: self.session,
        }
        .emit(buffer)
        .u32(self.sequence.0)
        .u32(self.number.unwrap_or(0));
    }
}
