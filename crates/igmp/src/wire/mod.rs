//! IGMP messages of all three versions (RFC 3376 §4, RFC 2236 §2, RFC 1112 appendix I), with the
//! replier cost as auxiliary data of version 3 reports (LMS §6.7.1, `docs/wire.md`).
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

mod report;

use core::fmt;
use core::net::Ipv4Addr;

use crate::Duration;

pub use report::{Record, RecordType, Records, ReportWriter};

/// IP protocol number of IGMP.
pub const PROTOCOL: u8 = 2;
/// General queries go to all systems.
pub const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Version 2 leaves go to all routers.
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Version 3 reports go to all IGMPv3-capable routers.
pub const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Identifier of the replier cost in auxiliary data, `LM`.
pub const COST_IDENTIFIER: u16 = 0x4c4d;

const TYPE_QUERY: u8 = 0x11;
const TYPE_V1_REPORT: u8 = 0x12;
const TYPE_V2_REPORT: u8 = 0x16;
const TYPE_V2_LEAVE: u8 = 0x17;
const TYPE_V3_REPORT: u8 = 0x22;
const SHORT_LEN: usize = 8;
const V3_QUERY_LEN: usize = 12;

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
    /// Why bytes are not an IGMP message.
    pub enum ParseError {
        /// The bytes end before the message does.
        Truncated = "IGMP message is truncated",
        /// The checksum is wrong.
        Checksum = "wrong IGMP checksum",
        /// A message type that is not IGMP's group membership (RFC 3376 §4: ignore silently).
        Type = "unknown IGMP type",
        /// A query of 9 to 11 bytes, which no version has (RFC 3376 §7.1: ignore silently).
        Length = "invalid length of an IGMP query",
        /// The group is not multicast where one must be, or a source is not unicast.
        Address = "invalid address",
    }
}

/// The buffer is too short for the message, or a count too large for its field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EmitError;

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("buffer too short for the IGMP message")
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

/// A time or interval in the floating-point code of RFC 3376 §4.1.1 and §4.1.7: below 128 the
/// number itself, then 3 bits of exponent and 4 of mantissa. Up to 31,744 units.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Code(pub u8);

impl Code {
    /// The largest code whose value is at most `value`, saturating at 31,744.
    pub const fn from_value(value: u32) -> Code {
        if value < 128 {
            return Code(value as u8);
        }
        let mut exponent = 0u32;
        while exponent < 7 && (value >> (exponent + 3)) > 0x1f {
            exponent += 1;
        }
        let mantissa = value >> (exponent + 3);
        let mantissa = if mantissa > 0x1f {
            0x0f
        } else {
            mantissa & 0x0f
        };
        Code(0x80 | (exponent as u8) << 4 | mantissa as u8)
    }

    /// Returns the number that the code represents.
    pub const fn value(self) -> u32 {
        if self.0 < 128 {
            return self.0 as u32;
        }
        let (mantissa, exponent) = ((self.0 & 0x0f) as u32, (self.0 >> 4 & 7) as u32);
        (mantissa | 0x10) << (exponent + 3)
    }

    /// As a span, of a code in tenths of a second.
    pub const fn tenths(self) -> Duration {
        Duration::from_millis(self.value() as u64 * 100)
    }

    /// As a span, of a code in seconds.
    pub const fn seconds(self) -> Duration {
        Duration::from_secs(self.value() as u64)
    }
}

/// A list of source addresses, as they lie in a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sources<'a>(&'a [u8]);

impl<'a> Sources<'a> {
    /// No source.
    pub const NONE: Sources<'static> = Sources(&[]);

    /// The list of these addresses.
    pub fn from_octets(addresses: &'a [[u8; 4]]) -> Self {
        Sources(addresses.as_flattened())
    }

    /// Number of addresses.
    pub const fn len(&self) -> usize {
        self.0.len() / 4
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The addresses in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Ipv4Addr> + Clone + 'a {
        self.0
            .chunks_exact(4)
            .map(|b| Ipv4Addr::new(b[0], b[1], b[2], b[3]))
    }

    fn check(self) -> Result<Self, ParseError> {
        let ok = |a: Ipv4Addr| !a.is_multicast() && !a.is_broadcast() && !a.is_unspecified();
        if self.iter().all(ok) {
            Ok(self)
        } else {
            Err(ParseError::Address)
        }
    }
}

/// A query of any version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Query<'a> {
    /// The group asked about; 0 in a general query.
    pub group: Ipv4Addr,
    /// How long hosts may wait, in tenths of a second; 0 in version 1, which means 10 s.
    pub max_response: Code,
    /// What only version 3 has.
    pub v3: Option<QueryV3<'a>>,
}

/// The fields that version 3 adds to a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueryV3<'a> {
    /// S: other routers do not update their timers (§4.1.5).
    pub suppress: bool,
    /// QRV: the querier's robustness variable, 0 where above 7 (§4.1.6).
    pub robustness: u8,
    /// QQIC: the querier's query interval in seconds (§4.1.7).
    pub interval: Code,
    /// The sources asked about.
    pub sources: Sources<'a>,
}

impl Query<'_> {
    /// Returns the version, which length and code determine (RFC 3376 §7.1).
    pub const fn version(&self) -> u8 {
        match (&self.v3, self.max_response.0) {
            (Some(_), _) => 3,
            (None, 0) => 1,
            (None, _) => 2,
        }
    }

    /// How long hosts may wait. The code of version 2 is linear (RFC 2236 §2.2).
    pub const fn max_response_time(&self) -> Duration {
        match self.version() {
            1 => Duration::from_secs(10),
            2 => Duration::from_millis(self.max_response.0 as u64 * 100),
            _ => self.max_response.tenths(),
        }
    }

    /// Whether it asks about every group.
    pub fn is_general(&self) -> bool {
        self.group.is_unspecified()
    }
}

/// An IGMP message as a value that borrows its lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message<'a> {
    /// Membership query of any version.
    Query(Query<'a>),
    /// Version 1 report of one group.
    V1Report(Ipv4Addr),
    /// Version 2 report of one group.
    V2Report(Ipv4Addr),
    /// Version 2 leave of one group.
    V2Leave(Ipv4Addr),
    /// Version 3 report.
    V3Report(Records<'a>),
}

impl<'a> Message<'a> {
    /// Reads an IGMP message, the whole payload of its packet. Bytes after the last field are
    /// covered by the checksum and otherwise ignored (RFC 3376 §4.1.10, §4.2.11).
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when the bytes end before the message or its lists do,
    /// [`ParseError::Checksum`] when the checksum is wrong, [`ParseError::Type`] for an unknown type,
    /// [`ParseError::Length`] for a query of 9 to 11 bytes, and [`ParseError::Address`] when a group is not
    /// multicast, a source is not unicast, or a general query lists sources.
    pub fn parse(b: &'a [u8]) -> Result<Self, ParseError> {
        let head = b.first_chunk::<SHORT_LEN>().ok_or(ParseError::Truncated)?;
        if !cfg!(fuzzing) && checksum(b, 0) != 0 {
            return Err(ParseError::Checksum);
        }
        let group = Ipv4Addr::new(head[4], head[5], head[6], head[7]);
        let single = |group: Ipv4Addr| {
            if group.is_multicast() {
                Ok(group)
            } else {
                Err(ParseError::Address)
            }
        };
        match head[0] {
            TYPE_QUERY => Self::parse_query(b, group).map(Message::Query),
            TYPE_V1_REPORT => single(group).map(Message::V1Report),
            TYPE_V2_REPORT => single(group).map(Message::V2Report),
            TYPE_V2_LEAVE => single(group).map(Message::V2Leave),
            TYPE_V3_REPORT => {
                let count = u16::from_be_bytes([head[6], head[7]]);
                Records::parse(&b[SHORT_LEN..], count).map(Message::V3Report)
            }
            _ => Err(ParseError::Type),
        }
    }

    fn parse_query(b: &'a [u8], group: Ipv4Addr) -> Result<Query<'a>, ParseError> {
        if !group.is_unspecified() && !group.is_multicast() {
            return Err(ParseError::Address);
        }
        let max_response = Code(b[1]);
        if b.len() == SHORT_LEN {
            return Ok(Query {
                group,
                max_response,
                v3: None,
            });
        }
        let (head, rest) = b.split_at_checked(V3_QUERY_LEN).ok_or(ParseError::Length)?;
        let len = 4 * usize::from(u16::from_be_bytes([head[10], head[11]]));
        let sources = Sources(rest.get(..len).ok_or(ParseError::Truncated)?).check()?;
        if group.is_unspecified() && !sources.is_empty() {
            return Err(ParseError::Address);
        }
        let v3 = QueryV3 {
            suppress: head[8] & 8 != 0,
            robustness: head[8] & 7,
            interval: Code(head[9]),
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
            Message::Query(Query { v3: Some(v3), .. }) => V3_QUERY_LEN + v3.sources.0.len(),
            Message::V3Report(records) => SHORT_LEN + records.bytes.len(),
            _ => SHORT_LEN,
        }
    }

    /// Writes the message, checksum included, at the start of `buffer`; returns its length.
    ///
    /// # Errors
    /// [`EmitError`] when `buffer` is shorter than [`Message::buffer_len`], or a query lists more than
    /// 65,535 sources.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let out = buffer.get_mut(..self.buffer_len()).ok_or(EmitError)?;
        out[..SHORT_LEN].fill(0);
        let group = match *self {
            Message::Query(query) => {
                out[0] = TYPE_QUERY;
                out[1] = query.max_response.0;
                if let Some(v3) = query.v3 {
                    out[8] = u8::from(v3.suppress) << 3 | (v3.robustness & 7);
                    out[9] = v3.interval.0;
                    let count = u16::try_from(v3.sources.len()).map_err(|_| EmitError)?;
                    out[10..12].copy_from_slice(&count.to_be_bytes());
                    out[12..].copy_from_slice(v3.sources.0);
                }
                query.group
            }
            Message::V1Report(group) | Message::V2Report(group) | Message::V2Leave(group) => {
                out[0] = match self {
                    Message::V1Report(_) => TYPE_V1_REPORT,
                    Message::V2Report(_) => TYPE_V2_REPORT,
                    _ => TYPE_V2_LEAVE,
                };
                group
            }
            Message::V3Report(records) => {
                out[0] = TYPE_V3_REPORT;
                out[SHORT_LEN..].copy_from_slice(records.bytes);
                Ipv4Addr::from_bits(records.count.into())
            }
        };
        out[4..8].copy_from_slice(&group.octets());
        let sum = checksum(out, 0);
        out[2..4].copy_from_slice(&sum.to_be_bytes());
        Ok(out.len())
    }
}
