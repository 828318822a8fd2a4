//! Packet formats: one view over bytes and one `Repr` for every service.
//!
//! A packet is the payload of a UDP datagram: an ANEP header (DyRAM §4.1; Alexander et al., "Active Network
//! Encapsulation Protocol", 1997) whose two options name the session, 12 bytes that all services share, and the body of
//! the service. All integers are big-endian.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | ANEP version 1| flags 0x80    |  type identifier 0x4459       |
//! +---------------+---------------+-------------------------------+
//! |  ANEP header, 32-bit words    |  whole packet, bytes          |
//! +-------------------------------+-------------------------------+
//! |  option 1: source identifier  |  option, 32-bit words: 3 or 6 |
//! +-------------------------------+-------------------------------+
//! |  scheme: 1 IPv4, 2 IPv6                                       |
//! +---------------------------------------------------------------+
//! |  address of the source (4 or 16 bytes)                        |
//! +-------------------------------+-------------------------------+
//! |  option 2: destination ident. |  option, 32-bit words: 3 or 6 |
//! +-------------------------------+-------------------------------+
//! |  scheme: as above                                             |
//! +---------------------------------------------------------------+
//! |  address of the group (4 or 16 bytes)                         |
//! +---------------+---------------+-------------------------------+
//! |  SVC          |  flags        |  child                        |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  sequence                                                     |
//! +---------------------------------------------------------------+
//! |  body                                                         |
//! +---------------------------------------------------------------+
//! ```
//!
//! Flags 0x80: an execution environment that does not know the type discards the packet. A packet has exactly these two
//! options, in this order. The type identifier names the version: 0x4459 is version 1, the 14 numbers after it are for
//! later versions ([`version`]).
//!
//! *Child* is the number that a parent assigned to a child when it joined; 0xffff if there is none. It is set in packets
//! that go up and in JOINED, and has no meaning in others. The source chooses a random *session identifier* when it
//! starts.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto_core::wire::Writer;

use crate::types::RawKey;
use crate::{Seq, SessionKey, SocketAddr, Transmit};

mod body;

pub use body::{
    Body, FEEDBACK_LEN, Feedback, JOIN_LEN, Join, Joined, MAX_MESSAGE, MAX_PATH, Nack, Path, Role,
    Stalled, Status,
};

/// Default UDP port of relays.
pub const PORT: u16 = 4143;
/// Length of everything before the body, sessions over IPv4.
pub const HEADER_LEN_V4: usize = 44;
/// Length of everything before the body, sessions over IPv6.
pub const HEADER_LEN_V6: usize = 68;
/// The version of DyRAM that this crate speaks. One more in a build of the next version (`docs/wire.md`).
pub const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;
/// Highest version that has a type identifier.
pub const MAX_VERSION: u8 = 15;
/// No child.
pub const NO_CHILD: u16 = 0xffff;

const ANEP_VERSION: u8 = 1;
const ANEP_DISCARD: u8 = 0x80;
/// Type identifier of version 1.
const TYPE_ID: u16 = 0x4459;
const OPTION_SOURCE: u16 = 1;
const OPTION_DESTINATION: u16 = 2;
const SCHEME_V4: u32 = 1;
const SCHEME_V6: u32 = 2;
/// Length of the fields that all services share after the ANEP header.
const COMMON_LEN: usize = 12;

proto_core::numbered! {
    /// The services (SVC): what a packet asks of its receiver.
    #[derive(PartialOrd, Ord)]
    pub enum Service: u8 {
        /// New data, downward.
        Data = 1,
        /// Data sent again: upward from a replier, downward to the receivers that lost it.
        Repair = 2,
        /// Packets are missing: upward to a parent, downward to a replier.
        Nack = 3,
        /// Every receiver below has everything before the sequence number.
        Ack = 4,
        /// A replier lacks the requested packets.
        Absent = 5,
        /// A child or the source announces itself; repeated at every refresh.
        Join = 6,
        /// The answer to JOIN.
        Joined = 7,
        /// A child leaves.
        Leave = 8,
        /// A message of the transport to all receivers. The sequence number is one past the newest.
        Cast = 9,
        /// A draining parent sends its children to their next parent.
        Move = 10,
        /// A relay no longer waits for a child; upward to the source.
        Stalled = 11,
        /// A message of the transport upward to the source; relays pass on that with the lowest rank.
        Feedback = 12,
    }
}

proto_core::errors! {
    /// Why bytes are not a DyRAM packet.
    pub enum ParseError {
        /// Shorter than its headers or its service require.
        Truncated = "packet is truncated",
        /// Another version of DyRAM.
        Version = "another version of DyRAM",
        /// Not ANEP version 1, or of another execution environment.
        Anep = "not an ANEP packet of DyRAM",
        /// The options do not name a session, or name one with two address families or IPv4-mapped IPv6 addresses.
        Options = "ANEP options do not name a session",
        /// The length in the header differs from that of the datagram, or is wrong for the service.
        Length = "wrong length",
        /// An unknown service.
        Service = "unknown service",
        /// Reserved bits or bytes are set.
        Reserved = "reserved bits are set",
        /// A field's value is outside its bounds.
        Value = "a field is out of bounds",
    }
}

/// A view over a packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    bytes: T,
    service: Service,
    header_len: u8,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks headers, lengths and reserved fields, and wraps the bytes.
    ///
    /// # Errors
    /// [`ParseError`] names the first fault in the ANEP header, its options, the shared fields or the body.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, ParseError> {
        let packet = bytes.as_ref();
        let header_len = check_anep(packet)?;
        let common = &packet[header_len - COMMON_LEN..];
        let service = Service::from_number(common[0]).ok_or(ParseError::Service)?;
        match service {
            Service::Data | Service::Repair | Service::Cast => check_carrier(common)?,
            _ => body::check(service, common)?,
        }
        Ok(Packet {
            bytes,
            service,
            header_len: header_len as u8,
        })
    }

    #[inline]
    fn common(&self) -> &[u8] {
        &self.bytes.as_ref()[usize::from(self.header_len) - COMMON_LEN..]
    }

    /// Returns the service.
    #[inline]
    pub fn service(&self) -> Service {
        self.service
    }

    /// Returns the session's name.
    #[inline]
    pub fn key(&self) -> SessionKey {
        let b = self.bytes.as_ref();
        let (source, group) = if usize::from(self.header_len) == HEADER_LEN_V4 {
            let at = |at| IpAddr::V4(Ipv4Addr::from(u32_at(b, at)));
            (at(16), at(28))
        } else {
            let at = |at: usize| {
                let octets: [u8; 16] = b[at..at + 16].try_into().unwrap_or_default();
                IpAddr::V6(Ipv6Addr::from(octets))
            };
            (at(16), at(40))
        };
        SessionKey { source, group }
    }

    /// The session's name as tables hold it.
    #[inline]
    pub(crate) fn raw_key(&self) -> RawKey {
        let b = self.bytes.as_ref();
        if usize::from(self.header_len) == HEADER_LEN_V4 {
            let mapped = |at| 0xffff << 32 | u64::from(u32_at(b, at));
            RawKey([0, mapped(16), 0, mapped(28)])
        } else {
            RawKey([u64_at(b, 16), u64_at(b, 24), u64_at(b, 40), u64_at(b, 48)])
        }
    }

    /// Flags, by service.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.common()[1]
    }

    /// The number of the child at its parent, [`NO_CHILD`] where there is none.
    #[inline]
    pub fn child(&self) -> u16 {
        u16_at(self.common(), 2)
    }

    /// The session identifier.
    #[inline]
    pub fn session(&self) -> u32 {
        u32_at(self.common(), 4)
    }

    /// The sequence, by service.
    #[inline]
    pub fn sequence(&self) -> Seq {
        Seq(u32_at(self.common(), 8))
    }

    /// The mask of an ABSENT; 0 in other packets.
    pub fn absent_mask(&self) -> u64 {
        match self.service {
            Service::Absent => u64_at(self.payload(), 0),
            _ => 0,
        }
    }

    /// The token of a LEAVE or MOVE; 0 in other packets.
    pub fn token(&self) -> u64 {
        match self.service {
            Service::Leave | Service::Move => u64_at(self.payload(), 0),
            _ => 0,
        }
    }

    /// The body: of DATA, REPAIR and CAST what the transport sent.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[usize::from(self.header_len)..]
    }
}

impl Packet<&mut [u8]> {
    /// Returns the same view, for reading only.
    pub(crate) fn as_view(&self) -> Packet<&[u8]> {
        Packet {
            bytes: &*self.bytes,
            service: self.service,
            header_len: self.header_len,
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes the number of the child.
    #[inline]
    pub fn set_child(&mut self, child: u16) {
        let at = usize::from(self.header_len) - COMMON_LEN + 2;
        self.bytes.as_mut()[at..at + 2].copy_from_slice(&child.to_be_bytes());
    }
}

/// Recognizes the DATA packets that follow one in sequence: all fields but the lengths and the sequence are the same, so
/// that what was checked in the first packet holds for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Successors<'a> {
    first: &'a [u8],
    header_len: usize,
    newest: Seq,
}

impl<'a> Successors<'a> {
    /// Returns what recognizes the successors of a packet that [`Packet::new_checked`] accepts; `None` unless it is DATA.
    #[inline]
    pub(crate) fn of_data(first: &'a [u8]) -> Option<Self> {
        let header_len = check_anep(first).ok()?;
        let common = &first[header_len - COMMON_LEN..];
        let data = common[0] == Service::Data as u8;
        data.then(|| Successors {
            first,
            header_len,
            newest: Seq(u32_at(common, 8)),
        })
    }

    /// Returns the sequence of the next packet if `packet` is that.
    #[inline]
    pub(crate) fn next(&mut self, packet: &[u8]) -> Option<Seq> {
        // The sequence is the last field before the body, which is not empty.
        let names_end = self.header_len - 4;
        if packet.len() <= self.header_len || usize::from(u16_at(packet, 6)) != packet.len() {
            return None;
        }
        let same =
            packet[..6] == self.first[..6] && packet[8..names_end] == self.first[8..names_end];
        let seq = Seq(u32_at(packet, names_end));
        let next = self.newest.plus(1);
        if !same || seq != next {
            return None;
        }
        self.newest = next;
        Some(next)
    }
}

/// The first four bytes of every packet: version, flags, type.
const START: [u8; 4] = {
    let [high, low] = (TYPE_ID - 1 + VERSION as u16).to_be_bytes();
    [ANEP_VERSION, ANEP_DISCARD, high, low]
};

/// Returns the start of an option: number, length in words, scheme of the address.
const fn option_start(number: u16, words: u16, scheme: u32) -> u64 {
    (number as u64) << 48 | (words as u64) << 32 | scheme as u64
}

/// Returns the version of DyRAM of a packet, `None` for bytes that are no DyRAM packet. The first four bytes have the same
/// meaning in all versions.
pub fn version(b: &[u8]) -> Option<u8> {
    let [ANEP_VERSION, _, identifier @ ..] = *b.first_chunk::<4>()? else {
        return None;
    };
    let number = u16::from_be_bytes(identifier).checked_sub(TYPE_ID - 1)?;
    let version = u8::try_from(number).ok()?;
    (1..=MAX_VERSION).contains(&version).then_some(version)
}

/// Returns why bytes that do not begin like a packet of this version are refused.
#[cold]
fn refuse(b: &[u8]) -> ParseError {
    match version(b) {
        Some(version) if version != VERSION => ParseError::Version,
        _ if b.len() < HEADER_LEN_V4 => ParseError::Truncated,
        _ => ParseError::Anep,
    }
}

/// Checks the ANEP header. Returns the length of everything before the body.
#[inline]
fn check_anep(b: &[u8]) -> Result<usize, ParseError> {
    // A known length lets the compiler compare words without bounds checks.
    let head: &[u8; HEADER_LEN_V4] = b.first_chunk().ok_or_else(|| refuse(b))?;
    if head[..4] != START {
        return Err(refuse(b));
    }
    let header_len = match u16_at(head, 4) {
        8 => HEADER_LEN_V4,
        14 => HEADER_LEN_V6,
        _ => return Err(ParseError::Options),
    };
    if b.len() < header_len {
        return Err(ParseError::Truncated);
    }
    if usize::from(u16_at(head, 6)) != b.len() {
        return Err(ParseError::Length);
    }
    let names = if header_len == HEADER_LEN_V4 {
        u64_at(head, 8) == option_start(OPTION_SOURCE, 3, SCHEME_V4)
            && u64_at(head, 20) == option_start(OPTION_DESTINATION, 3, SCHEME_V4)
    } else {
        let option = |at: usize, number| {
            let mapped = u64_at(b, at + 8) == 0 && u32_at(b, at + 16) == 0xffff;
            u64_at(b, at) == option_start(number, 6, SCHEME_V6) && !mapped
        };
        option(8, OPTION_SOURCE) && option(32, OPTION_DESTINATION)
    };
    if names {
        Ok(header_len)
    } else {
        Err(ParseError::Options)
    }
}

/// Checks a packet with a payload of the transport.
#[inline]
fn check_carrier(common: &[u8]) -> Result<(), ParseError> {
    if common.len() == COMMON_LEN {
        return Err(ParseError::Truncated);
    }
    if common[1] != 0 {
        return Err(ParseError::Reserved);
    }
    Ok(())
}

/// The fields of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repr<'a> {
    /// The session's name; both addresses of one family.
    pub key: SessionKey,
    /// The session identifier; 0 in JOIN, LEAVE and MOVE.
    pub session: u32,
    /// The number of the child, or [`NO_CHILD`].
    pub child: u16,
    /// The sequence; 0 in JOIN, LEAVE, MOVE and FEEDBACK.
    pub sequence: Seq,
    /// The service and its fields.
    pub body: Body<'a>,
}

impl<'a> Repr<'a> {
    /// Parses the fields.
    #[must_use]
    pub fn parse(packet: &Packet<&'a [u8]>) -> Self {
        Repr {
            key: packet.key(),
            session: packet.session(),
            child: packet.child(),
            sequence: packet.sequence(),
            body: Body::read(packet),
        }
    }

    /// Returns the length of everything before the body.
    #[must_use]
    pub fn header_len(&self) -> usize {
        match self.key.source {
            IpAddr::V4(_) => HEADER_LEN_V4,
            IpAddr::V6(_) => HEADER_LEN_V6,
        }
    }

    /// Returns the length of the packet.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.header_len() + self.body.len()
    }

    /// Writes the packet, and returns its length.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Repr::buffer_len`], or the addresses of the key are of two families.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let len = self.buffer_len();
        let header_len = self.emit_header(buffer, len);
        buffer[header_len - COMMON_LEN + 1] = self.body.flags();
        self.body.write(&mut buffer[header_len..len]);
        len
    }

    /// Writes the headers of a packet of `len` bytes whose payload is written separately. Returns the length of the
    /// headers.
    ///
    /// # Panics
    /// As [`Repr::emit`].
    pub fn emit_header(&self, buffer: &mut [u8], len: usize) -> usize {
        let header_len = self.header_len();
        let words = ((header_len - COMMON_LEN) / 4) as u16;
        let total = u16::try_from(len).expect("a datagram is at most 65,507 bytes");
        let mut fields = Writer::new(buffer).bytes(&START).u16(words).u16(total);
        let options = [
            (OPTION_SOURCE, self.key.source),
            (OPTION_DESTINATION, self.key.group),
        ];
        for (number, address) in options {
            fields = match address {
                IpAddr::V4(ip) => fields
                    .u64(option_start(number, 3, SCHEME_V4))
                    .bytes(&ip.octets()),
                IpAddr::V6(ip) => fields
                    .u64(option_start(number, 6, SCHEME_V6))
                    .bytes(&ip.octets()),
            };
        }
        fields
            .u8(self.body.service() as u8)
            .u8(0)
            .u16(self.child)
            .u32(self.session)
            .u32(self.sequence.0);
        header_len
    }
}

#[inline]
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

#[inline]
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(b[at..at + 4].try_into().unwrap_or_default())
}

#[inline]
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(b[at..at + 8].try_into().unwrap_or_default())
}

/// Writes a packet into the buffer, and returns its destination and length.
pub(crate) fn emit(
    destination: SocketAddr,
    key: SessionKey,
    session: u32,
    child: u16,
    sequence: Seq,
    body: Body<'_>,
    buffer: &mut [u8],
) -> Transmit {
    let repr = Repr {
        key,
        session,
        child,
        sequence,
        body,
    };
    Transmit {
        destination,
        len: repr.emit(buffer),
    }
}
