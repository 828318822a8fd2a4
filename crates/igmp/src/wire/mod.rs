//! IGMP messages of all three versions (RFC 3376 §4, RFC 2236 §2, RFC 1112 appendix I) and MLD messages of both
//! (RFC 9777 §5, RFC 2710 §3), with the replier cost as auxiliary data of the newest reports (LMS §6.7.1,
//! `docs/wire.md`).
//!
//! ```text
//! query, version 3                          report, version 3
//! +--------+--------+-----------------+     +--------+--------+-----------------+
//! | 0x11   | code   | checksum        |     | 0x22   | 0      | checksum        |
//! +--------+--------+-----------------+     +--------+--------+-----------------+
//! | group (0: general)                |     | 0               | records         |
//! +----+-+---+------+-----------------+     +--------+--------+-----------------+
//! |  0 |S|QRV| QQIC | sources         |     | type   | aux len| sources         | record
//! +----+-+---+------+-----------------+     +--------+--------+-----------------+
//! | source addresses                  |     | group                             |
//! +-----------------------------------+     | source addresses                  |
//!                                           | auxiliary data: 0x4c4d, cost      |
//! version 1, 2: the first 8 bytes           +-----------------------------------+
//! ```
//!
//! MLD differs in its numbers (query 130, report 143; version 1: report 131, done 132), in addresses of 16 bytes, in the
//! code of queries, which has 16 bits and precedes the group, and in the checksum, which covers the addresses of the
//! packet. Its version 1 is here version 2, its version 2 version 3 ([`Family`]):
//!
//! ```text
//! +--------+--------+-----------------+
//! | 130    | 0      | checksum        |
//! +--------+--------+-----------------+
//! | code            | 0               |
//! +-----------------+-----------------+
//! | group, 16 bytes (0: general)      |
//! ```

mod code;
mod report;

use core::fmt;
use core::marker::PhantomData;
use core::net::Ipv4Addr;

use crate::datagram::{Ip, pseudo_header};
use crate::family::{CodeField, short_len};
use crate::{Duration, Family, ResponseCode};

pub use code::{Code, MldCode};
pub use report::{Record, RecordType, Records, ReportWriter};

/// IP protocol number of IGMP.
pub const PROTOCOL: u8 = Ipv4Addr::PROTOCOL;
/// General queries of IGMP go to all systems.
pub const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::QUERY_DESTINATION;
/// Version 3 reports of IGMP go to all IGMPv3-capable routers.
pub const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::REPORT_DESTINATION;
/// Identifier of the replier cost in auxiliary data, `LM`.
pub const COST_IDENTIFIER: u16 = 0x4c4d;

/// Bytes before the records of a report; all messages are at least as long.
const HEAD_LEN: usize = 8;
/// What version 3 adds to a query before the sources.
const V3_LEN: usize = 4;

/// Replier cost; routers prefer lower values. The operator chooses the unit (hops by default).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cost(pub u16);

impl Cost {
    /// No offer, or a withdrawn one: 0xffff on the wire.
    pub const WITHDRAWN: Cost = Cost(0xffff);
    /// The highest cost that still is an offer.
    pub const MAX: Cost = Cost(0xfffe);

    /// Whether this is an offer.
    pub const fn is_offer(self) -> bool {
        self.0 != Self::WITHDRAWN.0
    }

    /// Returns this offer as a router with its own cost `own` reports it: the sum, at most
    /// [`Cost::MAX`], so that adding never withdraws. What is withdrawn stays withdrawn.
    pub const fn through(self, own: u16) -> Cost {
        if !self.is_offer() {
            return self;
        }
        let sum = self.0.saturating_add(own);
        if sum > Self::MAX.0 {
            Self::MAX
        } else {
            Cost(sum)
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_offer() {
            write!(f, "{}", self.0)
        } else {
            f.write_str("withdrawn")
        }
    }
}

proto_core::errors! {
    /// Why bytes are not a membership message.
    pub enum ParseError {
        /// The bytes end before the message does.
        Truncated = "membership message is truncated",
        /// The checksum is wrong.
        Checksum = "wrong checksum of a membership message",
        /// A message type that is not of group membership (RFC 3376 §4: ignore silently).
        Type = "unknown type of a membership message",
        /// A query of 9 to 11 bytes, or of MLD of 25 to 27, which no version has (RFC 3376 §7.1, RFC 9777 §8.1: ignore
        /// silently).
        Length = "invalid length of a membership query",
        /// The group is not multicast where one must be, or a source is not unicast.
        Address = "invalid address",
    }
}

/// The buffer is too short for the message, a count is too large for its field, or MLD has no such message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EmitError;

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("buffer too short for the membership message")
    }
}

impl core::error::Error for EmitError {}

/// The Internet checksum (RFC 1071) of `bytes`; 0 where these include a correct one.
pub(crate) fn checksum(bytes: &[u8], initial: u32) -> u16 {
    let mut sum = u64::from(initial);
    let mut chunks = bytes.chunks_exact(2);
    for pair in &mut chunks {
        sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    if let [last] = chunks.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A list of source addresses, as they lie in a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sources<'a, A = Ipv4Addr>(&'a [u8], PhantomData<A>);

impl<'a, A: Family> Sources<'a, A> {
    /// No source.
    pub const NONE: Sources<'static, A> = Sources(&[], PhantomData);

    /// The list of these addresses.
    pub fn from_octets(addresses: &'a [A::Octets]) -> Self {
        Sources(A::flatten(addresses), PhantomData)
    }

    /// Number of addresses.
    pub const fn len(&self) -> usize {
        self.0.len() / A::LEN
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The addresses in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = A> + Clone + 'a {
        self.0
            .chunks_exact(A::LEN)
            .map(|bytes| A::read(bytes).unwrap_or(A::UNSPECIFIED))
    }

    fn check(self) -> Result<Self, ParseError> {
        if self.iter().all(A::is_unicast) {
            Ok(self)
        } else {
            Err(ParseError::Address)
        }
    }
}

impl<A: Family> Default for Sources<'_, A> {
    fn default() -> Self {
        Self::NONE
    }
}

/// A query of any version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Query<'a, A: Family = Ipv4Addr> {
    /// The group asked about; 0 in a general query.
    pub group: A,
    /// How long hosts may wait: of IGMP in tenths of a second, of MLD in milliseconds. 0 in version 1, which means
    /// 10 s.
    pub max_response: A::ResponseCode,
    /// What only version 3 has.
    pub v3: Option<QueryV3<'a, A>>,
}

/// The fields that version 3 adds to a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueryV3<'a, A = Ipv4Addr> {
    /// S: other routers do not update their timers (§4.1.5).
    pub suppress: bool,
    /// QRV: the querier's robustness variable, 0 where above 7 (§4.1.6).
    pub robustness: u8,
    /// QQIC: the querier's query interval in seconds (§4.1.7).
    pub interval: Code,
    /// The sources asked about.
    pub sources: Sources<'a, A>,
}

impl<A: Family> Query<'_, A> {
    /// Returns the version, which length and code determine (RFC 3376 §7.1); [`Family`] says which of MLD it is.
    pub fn version(&self) -> u8 {
        match self.v3 {
            Some(_) => 3,
            None if A::HAS_VERSION_1 && self.max_response.is_zero() => 1,
            None => 2,
        }
    }

    /// How long hosts may wait. The code of version 2 is linear (RFC 2236 §2.2, RFC 2710 §3.4).
    pub fn max_response_time(&self) -> Duration {
        match self.version() {
            1 => Duration::from_secs(10),
            2 => self.max_response.time_v2(),
            _ => self.max_response.time(),
        }
    }

    /// Whether it asks about every group.
    pub fn is_general(&self) -> bool {
        self.group == A::UNSPECIFIED
    }
}

/// A membership message as a value that borrows its lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message<'a, A: Family = Ipv4Addr> {
    /// Membership query of any version.
    Query(Query<'a, A>),
    /// Version 1 report of one group, which MLD does not have.
    V1Report(A),
    /// Version 2 report of one group; of MLD version 1.
    V2Report(A),
    /// Version 2 leave of one group; the Done of MLD version 1.
    V2Leave(A),
    /// Version 3 report; of MLD version 2.
    V3Report(Records<'a, A>),
}

impl<'a> Message<'a, Ipv4Addr> {
    /// Reads an IGMP message, the whole payload of its packet, as [`Message::of`] does.
    ///
    /// # Errors
    /// Those of [`Message::of`].
    pub fn parse(b: &'a [u8]) -> Result<Self, ParseError> {
        Self::read(b, 0)
    }
}

impl<'a, A: Family> Message<'a, A> {
    /// Reads the membership message that is the whole payload of a packet. Bytes after the last field are covered by the
    /// checksum and otherwise ignored (RFC 3376 §4.1.10, §4.2.11; RFC 9777 §5.1, §5.2).
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when the bytes end before the message or its lists do,
    /// [`ParseError::Checksum`] when the checksum is wrong, [`ParseError::Type`] for an unknown type,
    /// [`ParseError::Length`] for a query of a length between those of two versions, and [`ParseError::Address`] when a
    /// group is not multicast, a source is not unicast, or a general query lists sources.
    pub fn of(ip: &Ip<'a, A>) -> Result<Self, ParseError> {
        let initial = match A::CHECKSUM_COVERS_ADDRESSES {
            true => pseudo_header(ip.source, ip.destination, A::PROTOCOL, ip.payload.len()),
            false => 0,
        };
        Self::read(ip.payload, initial)
    }

    fn read(b: &'a [u8], initial: u32) -> Result<Self, ParseError> {
        let head = b.first_chunk::<HEAD_LEN>().ok_or(ParseError::Truncated)?;
        if !cfg!(fuzzing) && checksum(b, initial) != 0 {
            return Err(ParseError::Checksum);
        }
        let group = || A::read(&b[A::GROUP_AT..]).ok_or(ParseError::Truncated);
        let single = || match group()? {
            group if group.is_multicast() => Ok(group),
            _ => Err(ParseError::Address),
        };
        let types = A::TYPES;
        match head[0] {
            kind if kind == types.query => {
                Self::read_query(b, group()?, A::ResponseCode::read(head)).map(Message::Query)
            }
            kind if Some(kind) == types.v1_report => single().map(Message::V1Report),
            kind if kind == types.v2_report => single().map(Message::V2Report),
            kind if kind == types.v2_leave => single().map(Message::V2Leave),
            kind if kind == types.v3_report => {
                let count = u16::from_be_bytes([head[6], head[7]]);
                Records::parse(&b[HEAD_LEN..], count).map(Message::V3Report)
            }
            _ => Err(ParseError::Type),
        }
    }

    fn read_query(
        b: &'a [u8],
        group: A,
        max_response: A::ResponseCode,
    ) -> Result<Query<'a, A>, ParseError> {
        let is_general = group == A::UNSPECIFIED;
        if !is_general && !group.is_multicast() {
            return Err(ParseError::Address);
        }
        let after = &b[short_len::<A>()..];
        if after.is_empty() {
            return Ok(Query {
                group,
                max_response,
                v3: None,
            });
        }
        let (head, rest) = after
            .split_first_chunk::<V3_LEN>()
            .ok_or(ParseError::Length)?;
        let len = A::LEN * usize::from(u16::from_be_bytes([head[2], head[3]]));
        let bytes = rest.get(..len).ok_or(ParseError::Truncated)?;
        let sources = Sources(bytes, PhantomData).check()?;
        if is_general && !sources.is_empty() {
            return Err(ParseError::Address);
        }
        let v3 = QueryV3 {
            suppress: head[0] & 8 != 0,
            robustness: head[0] & 7,
            interval: Code(head[1]),
            sources,
        };
        Ok(Query {
            group,
            max_response,
            v3: Some(v3),
        })
    }

    /// Length in bytes.
    pub const fn buffer_len(&self) -> usize {
        match self {
            Message::Query(Query { v3: Some(v3), .. }) => {
                short_len::<A>() + V3_LEN + v3.sources.0.len()
            }
            Message::V3Report(records) => HEAD_LEN + records.bytes.len(),
            _ => short_len::<A>(),
        }
    }

    /// Writes the message at the start of `buffer`; returns its length. The checksum of IGMP is included, that of MLD is
    /// written with the addresses ([`finish_membership`](crate::datagram::finish_membership)).
    ///
    /// # Errors
    /// [`EmitError`] when `buffer` is shorter than [`Message::buffer_len`], a query lists more than 65,535 sources, or
    /// MLD has no such message.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let out = buffer.get_mut(..self.buffer_len()).ok_or(EmitError)?;
        let (head, rest) = out.split_first_chunk_mut::<HEAD_LEN>().ok_or(EmitError)?;
        head.fill(0);
        let types = A::TYPES;
        head[0] = match self {
            Message::Query(_) => types.query,
            Message::V1Report(_) => types.v1_report.ok_or(EmitError)?,
            Message::V2Report(_) => types.v2_report,
            Message::V2Leave(_) => types.v2_leave,
            Message::V3Report(_) => types.v3_report,
        };
        let group = match *self {
            Message::Query(query) => {
                query.max_response.write(head);
                if let Some(v3) = query.v3 {
                    let count = u16::try_from(v3.sources.len()).map_err(|_| EmitError)?;
                    let (fields, sources) = out[short_len::<A>()..].split_at_mut(V3_LEN);
                    fields[0] = u8::from(v3.suppress) << 3 | (v3.robustness & 7);
                    fields[1] = v3.interval.0;
                    fields[2..].copy_from_slice(&count.to_be_bytes());
                    sources.copy_from_slice(v3.sources.0);
                }
                Some(query.group)
            }
            Message::V1Report(group) | Message::V2Report(group) | Message::V2Leave(group) => {
                Some(group)
            }
            Message::V3Report(records) => {
                head[6..].copy_from_slice(&records.count.to_be_bytes());
                rest.copy_from_slice(records.bytes);
                None
            }
        };
        if let Some(group) = group {
            out[A::GROUP_AT..short_len::<A>()].copy_from_slice(group.octets().as_ref());
        }
        Ok(fill_checksum::<A>(out))
    }
}

/// Writes the checksum of a message that has none yet, unless it covers addresses; returns the length.
fn fill_checksum<A: Family>(message: &mut [u8]) -> usize {
    if !A::CHECKSUM_COVERS_ADDRESSES {
        let sum = checksum(message, 0);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message.len()
}
