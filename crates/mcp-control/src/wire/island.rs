//! MULTICAST and LISTEN: a host that is fed over a link passes blocks on by multicast, to hosts on its own link.
//!
//! ```text
//!  MULTICAST (client, to the head of the island)
//! +---------------------------------------------------------------+
//! |  island (16 bytes)                                            |
//! +---------------------------------------------------------------+
//! |  secret of the island (32 bytes)                              |
//! +---------------------------------------------------------------+
//! |  group: IPv6, or IPv4 as ::ffff:a.b.c.d (16 bytes)            |
//! +-------------------------------+-------------------------------+
//! |  UDP port of the head         |  UDP port of the members      |
//! +---------------+---------------+-------------------------------+
//! |  0x01: sealed |  members      |  0                            |
//! +---------------+---------------+-------------------------------+
//! |  address of a member, as the group (16 bytes)                 |
//! +---------------------------------------------------------------+
//! |  ... 2 to 64 members                                          |
//! +---------------------------------------------------------------+
//!
//!  LISTEN (client, to a member): the same, with the address of the head in place of the members, and 0 for their number
//! ```
//!
//! The head opens a TCP-XM connection to the members, by multicast only. The stream, encrypted with the secret where it is
//! sealed, has [`PREAMBLE_LEN`] zeros, then blocks as on a link: a header ([`BlockHeader`](super::link::BlockHeader)), then the
//! bytes. The head sends the blocks in the order in which it has verified them, and leaves out those that it is too late
//! for: members get what they lack over their links. With LINK a member reports 6 when it listens, 0 when the first block
//! arrives, 2 when the stream has ended, 3 for wrong bytes, and 5 when it cannot listen; the head reports 1 when it cannot
//! send, 2 when it has ended, and 5 when it feeds no hosts or may not connect to a member.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use super::relay::{LinkId, LinkSecret, sealed};
use super::{Message, ParseError, Type};
use super::{address_at, array_at, put_address, put_u16, u16_at};

/// Zeros before the first block: enough segments for the head to see whom multicast reaches.
pub const PREAMBLE_LEN: usize = 64 << 10;
/// Fewest members of an island, without its head: a single one is fed over its link as well.
pub const MIN_MEMBERS: usize = 2;
/// Most members of an island.
pub const MAX_MEMBERS: usize = 64;

const FIXED_LEN: usize = 72;
const ADDRESS_LEN: usize = 16;
/// Longest body of a MULTICAST.
pub(super) const MAX_MULTICAST_LEN: usize = FIXED_LEN + MAX_MEMBERS * ADDRESS_LEN;

/// What the head and the members of an island know of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Island {
    /// Identifies it; random.
    pub link: LinkId,
    /// Its secret, which is the key of a sealed stream.
    pub secret: LinkSecret,
    /// The multicast group.
    pub group: IpAddr,
    /// The UDP port that the head sends from.
    pub source: u16,
    /// The UDP port that members listen on.
    pub destination: u16,
    /// Whether the stream is sealed.
    pub sealed: bool,
}

impl Island {
    /// Returns the key of the stream, if it is sealed.
    pub fn key(&self) -> Option<[u8; 32]> {
        self.sealed.then_some(self.secret.0)
    }

    fn parse(body: &[u8]) -> Result<Self, ParseError> {
        if body[70..FIXED_LEN] != [0; 2] {
            return Err(ParseError::Reserved);
        }
        let island = Island {
            link: LinkId(array_at(body, 0)),
            secret: LinkSecret(array_at(body, 16)),
            group: address_at(body, 48),
            source: u16_at(body, 64),
            destination: u16_at(body, 66),
            sealed: sealed(body[68])?,
        };
        if !island.group.is_multicast() || island.source == 0 || island.destination == 0 {
            return Err(ParseError::Value);
        }
        Ok(island)
    }

    fn emit(&self, body: &mut [u8], members: u8) {
        body[..16].copy_from_slice(&self.link.0);
        body[16..48].copy_from_slice(&self.secret.0);
        put_address(body, 48, self.group);
        put_u16(body, 64, self.source);
        put_u16(body, 66, self.destination);
        body[68..FIXED_LEN].copy_from_slice(&[self.sealed.into(), members, 0, 0]);
    }

    /// Reads the address of a host that can be in this island.
    fn host(&self, body: &[u8], at: usize) -> Result<IpAddr, ParseError> {
        let host = address_at(body, at);
        let is_host = !host.is_unspecified() && !host.is_multicast();
        if is_host && host.is_ipv4() == self.group.is_ipv4() {
            Ok(host)
        } else {
            Err(ParseError::Value)
        }
    }
}

/// A MULTICAST: pass blocks on to the members of an island, in place of the one before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// The stream.
    pub island: Island,
    /// The members, [`MIN_MEMBERS`] to [`MAX_MEMBERS`], of the IP version of the group.
    pub members: Vec<IpAddr>,
}

impl Message for Multicast {
    const TYPE: Type = Type::Multicast;
    const LENGTHS: RangeInclusive<usize> =
        FIXED_LEN + MIN_MEMBERS * ADDRESS_LEN..=MAX_MULTICAST_LEN;

    fn body_len(&self) -> usize {
        FIXED_LEN + self.members.len() * ADDRESS_LEN
    }

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let island = Island::parse(body)?;
        if body.len() != FIXED_LEN + usize::from(body[69]) * ADDRESS_LEN {
            return Err(ParseError::Length);
        }
        let members = (FIXED_LEN..body.len()).step_by(ADDRESS_LEN);
        let members = members.map(|at| island.host(body, at));
        Ok(Multicast {
            island,
            members: members.collect::<Result<_, _>>()?,
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        self.island.emit(body, self.members.len() as u8);
        for (at, member) in self.members.iter().enumerate() {
            put_address(body, FIXED_LEN + at * ADDRESS_LEN, *member);
        }
    }
}

/// A LISTEN: receive what the head of an island multicasts, in place of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// The stream.
    pub island: Island,
    /// The head, of the IP version of the group.
    pub head: IpAddr,
}

impl Message for Listen {
    const TYPE: Type = Type::Listen;
    const LENGTHS: RangeInclusive<usize> = FIXED_LEN + ADDRESS_LEN..=FIXED_LEN + ADDRESS_LEN;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let island = Island::parse(body)?;
        if body[69] != 0 {
            return Err(ParseError::Reserved);
        }
        Ok(Listen {
            head: island.host(body, FIXED_LEN)?,
            island,
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        self.island.emit(body, 0);
        put_address(body, FIXED_LEN, self.head);
    }
}
