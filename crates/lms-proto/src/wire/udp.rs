//! The UDP carrier: requests and directed multicasts in datagrams to a port of their own, for hosts without privileges and
//! networks that drop options.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | identifier 0x4c4d             | 1 request     | hop limit of  |
//! |                               | 2 dmcast      | the repair    |
//! +-------------------------------+---------------+---------------+
//! | turning-point interface       | turning-point address,        |
//! +-------------------------------+ original source, group:       |
//! | 4 bytes each in IPv4, 16 in IPv6                              |
//! +---------------------------------------------------------------+
//! | cookie of the turning point, 8 bytes                          |
//! +-------------------------------+-------------------------------+
//! | port of the source            | port of the group             |
//! +-------------------------------+-------------------------------+
//! | payload: the request, or the payload of the repair            |
//! +---------------------------------------------------------------+
//! ```
//!
//! | datagram | from | to |
//! | --- | --- | --- |
//! | request, not turned | the receiver | the original source, by unicast: routers of LMS on the way take it |
//! | request, turned | the receiver | [`GROUP`](super::hier::GROUP) of the family, in a frame to the replier |
//! | dmcast | the replier | the turning-point router |
//!
//! All go to the carrier's port. The repair's own headers are not carried: the router writes them, from the original
//! source and its port to the group and its port.

use super::option::{Body, COOKIE_LEN, EmitError, Kind, LmsOption};
use crate::Family;

/// UDP port of the carrier, unless configured otherwise.
pub const PORT: u16 = 4144;
/// The identifier in every datagram, `LM`.
pub const IDENTIFIER: u16 = 0x4c4d;

const BODY_AT: usize = 4;

proto_core::errors! {
    /// Why the payload of a datagram is not one of this carrier.
    pub enum ParseError {
        /// The identifier, and fewer bytes after it than the header has.
        Truncated = "LMS datagram is truncated",
        /// The datagram does not start with the identifier: not one of LMS.
        Identifier = "not an LMS datagram",
        /// Neither request nor dmcast.
        Kind = "unknown kind of LMS datagram",
        /// Only one of turning-point interface and address is set, or a cookie without them.
        TurningPoint = "turning point is only half set",
    }
}

/// The UDP ports of a data stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ports {
    /// The source's port.
    pub source: u16,
    /// The group's port.
    pub group: u16,
}

/// What stands in front of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header<A> {
    /// Request or dmcast.
    pub kind: Kind,
    /// Of a dmcast: the hop limit that the repair leaves the router with, one less. Of a request 0, and ignored.
    pub hop_limit: u8,
    /// Turning point, source and group.
    pub body: Body<A>,
    /// The cookie of the turning point; 0 while there is none.
    pub cookie: u64,
    /// The ports of the data that is requested or repaired.
    pub ports: Ports,
}

impl<A: Family> Header<A> {
    /// Length in bytes: 30 for IPv4, 66 for IPv6.
    pub const LEN: usize = Self::PORTS_AT + 4;
    /// Offset of the hop limit of the repair.
    pub const HOP_LIMIT_AT: usize = 3;
    /// Offset of the turning-point interface.
    pub const BODY_AT: usize = BODY_AT;
    /// Offset of the cookie.
    pub const COOKIE_AT: usize = BODY_AT + Body::<A>::LEN;
    /// Offset of the ports.
    pub const PORTS_AT: usize = Self::COOKIE_AT + COOKIE_LEN;

    /// Reads the header at the start of a datagram's payload.
    ///
    /// # Errors
    /// [`ParseError`]: see there.
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        if !payload.starts_with(&IDENTIFIER.to_be_bytes()) {
            return Err(ParseError::Identifier);
        }
        let Some(&[_, _, kind, hop_limit]) = payload.first_chunk() else {
            return Err(ParseError::Truncated);
        };
        let kind = Kind::from_number(kind).ok_or(ParseError::Kind)?;
        let header = payload.get(..Self::LEN).ok_or(ParseError::Truncated)?;
        let body = Body::read(&header[BODY_AT..]).ok_or(ParseError::Truncated)?;
        let (cookie, ports) = header[Self::COOKIE_AT..].split_at(COOKIE_LEN);
        let cookie = cookie.first_chunk().map_or(0, |c| u64::from_be_bytes(*c));
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        if !body.is_consistent() || (cookie != 0 && !body.turning_iface.is_set()) {
            return Err(ParseError::TurningPoint);
        }
        Ok(Header {
            kind,
            hop_limit,
            body,
            cookie,
            ports: Ports {
                source: port(0),
                group: port(2),
            },
        })
    }

    /// The header of a datagram that says the same as an option.
    ///
    /// # Errors
    /// As [`Body::of`].
    pub fn of(option: &LmsOption, hop_limit: u8, ports: Ports) -> Result<Self, EmitError> {
        Ok(Header {
            kind: option.kind,
            hop_limit,
            body: Body::of(option)?,
            cookie: option.turning_point.map_or(0, |at| at.cookie),
            ports,
        })
    }

    /// What it says, as an option.
    pub fn option(&self) -> LmsOption {
        LmsOption {
            kind: self.kind,
            turning_point: self.body.turning_point(self.cookie),
            source: self.body.source.into(),
            group: self.body.group.into(),
        }
    }

    /// Length in bytes.
    pub const fn buffer_len(&self) -> usize {
        Self::LEN
    }

    /// Writes the header at the start of `buffer`, and returns its length.
    ///
    /// # Errors
    /// [`EmitError::Space`] when `buffer` is shorter than [`Header::LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let out = buffer.get_mut(..Self::LEN).ok_or(EmitError::Space)?;
        out[..2].copy_from_slice(&IDENTIFIER.to_be_bytes());
        out[2] = self.kind.number();
        out[3] = self.hop_limit;
        let (body, rest) = out[BODY_AT..].split_at_mut(Body::<A>::LEN);
        self.body.write(body).ok_or(EmitError::Space)?;
        rest[..COOKIE_LEN].copy_from_slice(&self.cookie.to_be_bytes());
        rest[COOKIE_LEN..COOKIE_LEN + 2].copy_from_slice(&self.ports.source.to_be_bytes());
        rest[COOKIE_LEN + 2..].copy_from_slice(&self.ports.group.to_be_bytes());
        Ok(Self::LEN)
    }
}
