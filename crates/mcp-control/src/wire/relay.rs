//! BLOCKS, FEED, FED and LINK: hosts that relay to hosts.
//!
//! ```text
//!  BLOCKS (client)
//! +---------------------------------------------------------------+
//! |  number of the first block (64 bits)                          |
//! +---------------------------------------------------------------+
//! |  digest of the first block (32 bytes)                         |
//! +---------------------------------------------------------------+
//! |  ... 1 to 1024 digests                                        |
//! +---------------------------------------------------------------+
//!
//!  FEED (client, to the feeder)
//! +---------------------------------------------------------------+
//! |  link (16 bytes)                                              |
//! +---------------------------------------------------------------+
//! |  secret of the link (32 bytes)                                |
//! +---------------------------------------------------------------+
//! |  address of the child: IPv6, or IPv4 as ::ffff:a.b.c.d        |
//! |  (16 bytes)                                                   |
//! +-------------------------------+---------------+---------------+
//! |  TCP port of the child        |  0x01: sealed |  0            |
//! +-------------------------------+---------------+---------------+
//!
//!  FED (client, to the child)
//! +---------------------------------------------------------------+
//! |  link (16 bytes)                                              |
//! +---------------------------------------------------------------+
//! |  secret of the link (32 bytes)                                |
//! +---------------+-----------------------------------------------+
//! |  0x01: sealed |  0                                            |
//! |  0x02: alone  |                                               |
//! +---------------+-----------------------------------------------+
//!
//!  LINK (server)
//! +---------------------------------------------------------------+
//! |  link (16 bytes)                                              |
//! +---------------+-----------------------------------------------+
//! |  state        |  0                                            |
//! +---------------+-----------------------------------------------+
//! |  round trip in microseconds, of an open link                  |
//! +---------------------------------------------------------------+
//! |  block with wrong bytes, or that is gone (64 bits)            |
//! +---------------------------------------------------------------+
//! ```
//!
//! State: 0 open, 1 unreachable, 2 closed, 3 wrong bytes, 4 gone, 5 refused, 6 expected. The child reports 6 when its feeder
//! may connect, then 0, 2, 3 or 4; the feeder reports 1 and 5. BLOCKS come in rising order and never name a block twice. LINK
//! also reports on islands ([`super::island`]).

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;

use super::{Message, ParseError, Type, address_at, array_at, digests, put_address};
use super::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::digest::Digest;
use crate::limits::MAX_BLOCKS;

/// Identifies a connection from a feeder to its child; random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub [u8; 16]);

/// Proves to either end of a link that the sender arranged it; not shown in debug output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LinkSecret(pub [u8; 32]);

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret(..)")
    }
}

/// A BLOCKS: the digests of blocks as the sender has read them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Blocks {
    /// The first block.
    pub first: u64,
    /// Digests of that block and those after it: 1 to [`MAX_HELD`](crate::limits::MAX_HELD).
    pub digests: Vec<Digest>,
}

impl Message for Blocks {
    const TYPE: Type = Type::Blocks;
    const LENGTHS: RangeInclusive<usize> = digests::LENGTHS;

    fn body_len(&self) -> usize {
        digests::body_len(self.digests.len())
    }

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let (first, digests) = digests::parse(body)?;
        Ok(Blocks { first, digests })
    }

    fn emit_body(&self, body: &mut [u8]) {
        digests::emit(body, self.first, &self.digests);
    }
}

const FLAG_SEALED: u8 = 0x01;
const FLAG_ALONE: u8 = 0x02;

/// Parses the flags of FEED, FED, PREFACE, MULTICAST and LISTEN.
pub(super) fn sealed(flags: u8) -> Result<bool, ParseError> {
    match flags {
        0 => Ok(false),
        FLAG_SEALED => Ok(true),
        _ => Err(ParseError::Reserved),
    }
}

/// A FEED: connect to a child, and serve it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feed {
    /// The link.
    pub link: LinkId,
    /// Its secret.
    pub secret: LinkSecret,
    /// Address and port at which the child accepts it.
    pub child: SocketAddr,
    /// Whether data on the link is sealed.
    pub sealed: bool,
}

impl Message for Feed {
    const TYPE: Type = Type::Feed;
    const LENGTHS: RangeInclusive<usize> = 68..=68;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let address = address_at(body, 48);
        let port = u16_at(body, 64);
        if body[67] != 0 {
            return Err(ParseError::Reserved);
        }
        if port == 0 || address.is_unspecified() || address.is_multicast() {
            return Err(ParseError::Value);
        }
        Ok(Feed {
            link: LinkId(array_at(body, 0)),
            secret: LinkSecret(array_at(body, 16)),
            child: SocketAddr::new(address, port),
            sealed: sealed(body[66])?,
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        body[..16].copy_from_slice(&self.link.0);
        body[16..48].copy_from_slice(&self.secret.0);
        put_address(body, 48, self.child.ip());
        put_u16(body, 64, self.child.port());
        body[66..].copy_from_slice(&[self.sealed.into(), 0]);
    }
}

/// A FED: expect a feeder, in place of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fed {
    /// The link.
    pub link: LinkId,
    /// Its secret.
    pub secret: LinkSecret,
    /// Whether data on the link is sealed.
    pub sealed: bool,
    /// Whether the host no longer listens to the head of its island ([`super::island`]).
    pub alone: bool,
}

impl Message for Fed {
    const TYPE: Type = Type::Fed;
    const LENGTHS: RangeInclusive<usize> = 52..=52;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        if body[49..] != [0; 3] {
            return Err(ParseError::Reserved);
        }
        Ok(Fed {
            link: LinkId(array_at(body, 0)),
            secret: LinkSecret(array_at(body, 16)),
            sealed: sealed(body[48] & !FLAG_ALONE)?,
            alone: body[48] & FLAG_ALONE != 0,
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        body[..16].copy_from_slice(&self.link.0);
        body[16..48].copy_from_slice(&self.secret.0);
        let alone = if self.alone { FLAG_ALONE } else { 0 };
        body[48..].copy_from_slice(&[u8::from(self.sealed) | alone, 0, 0, 0]);
    }
}

/// The state of a link, as one of its ends reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkState {
    /// The child has authenticated its feeder, and asks it for blocks.
    Open {
        /// The round trip of the handshake in microseconds.
        round_trip_us: u32,
    },
    /// The feeder could not connect to the child.
    Unreachable,
    /// It was closed, or could not be read from.
    Closed,
    /// The bytes of a block do not have the digest that the sender named.
    Wrong {
        /// The block.
        block: u64,
    },
    /// The feeder cannot serve a block.
    Gone {
        /// The block.
        block: u64,
    },
    /// The feeder has as many children as it takes, or takes none.
    Refused,
    /// The child waits for its feeder.
    Expected,
}

/// A LINK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkReport {
    /// The link.
    pub link: LinkId,
    /// Its state.
    pub state: LinkState,
}

impl Message for LinkReport {
    const TYPE: Type = Type::Link;
    const LENGTHS: RangeInclusive<usize> = 32..=32;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let (round_trip_us, block) = (u32_at(body, 20), u64_at(body, 24));
        let has_block = matches!(body[16], 3 | 4);
        let is_open = body[16] == 0;
        if body[17..20] != [0; 3] || !has_block && block != 0 || !is_open && round_trip_us != 0 {
            return Err(ParseError::Reserved);
        }
        if block >= MAX_BLOCKS {
            return Err(ParseError::Value);
        }
        let state = match body[16] {
            0 => LinkState::Open { round_trip_us },
            1 => LinkState::Unreachable,
            2 => LinkState::Closed,
            3 => LinkState::Wrong { block },
            4 => LinkState::Gone { block },
            5 => LinkState::Refused,
            6 => LinkState::Expected,
            _ => return Err(ParseError::Value),
        };
        Ok(LinkReport {
            link: LinkId(array_at(body, 0)),
            state,
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        let (state, round_trip_us, block) = match self.state {
            LinkState::Open { round_trip_us } => (0, round_trip_us, 0),
            LinkState::Unreachable => (1, 0, 0),
            LinkState::Closed => (2, 0, 0),
            LinkState::Wrong { block } => (3, 0, block),
            LinkState::Gone { block } => (4, 0, block),
            LinkState::Refused => (5, 0, 0),
            LinkState::Expected => (6, 0, 0),
        };
        body[..16].copy_from_slice(&self.link.0);
        body[16..20].copy_from_slice(&[state, 0, 0, 0]);
        put_u32(body, 20, round_trip_us);
        put_u64(body, 24, block);
    }
}
