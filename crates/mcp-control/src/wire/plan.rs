//! PLAN and RUNS: how the data comes, and which blocks it is.
//!
//! ```text
//!  PLAN (client)
//! +---------------+---------------+-------------------------------+
//! |  carrier:     |  flags        |  0                            |
//! |  17 UDP, 6 IP |  0x01 AEAD    |                               |
//! |               |  0x02 RELAY   |                               |
//! +---------------+---------------+-------------------------------+
//! |  group: IPv6, or IPv4 as ::ffff:a.b.c.d; 0: none (16 bytes)   |
//! +-------------------------------+-------------------------------+
//! |  source port                  |  destination port             |
//! +-------------------------------+-------------------------------+
//! |  number of runs; 0: nothing is sent to this receiver          |
//! +---------------------------------------------------------------+
//! |  bytes of the data stream (64 bits)                           |
//! +---------------------------------------------------------------+
//! |  key of the data; 0 unless AEAD (32 bytes)                    |
//! +---------------------------------------------------------------+
//!
//!  RUNS (client): 1 to 2048 of
//! +---------------------------------------------------------------+
//! |  number of the first block (64 bits)                          |
//! +---------------------------------------------------------------+
//! |  number of blocks (64 bits)                                   |
//! +---------------------------------------------------------------+
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::ops::RangeInclusive;

use super::hello::Capabilities;
use super::{HEADER_LEN, Message, ParseError, Type, address_at, array_at, begin, body};
use super::{put_address, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::blocks::Run;
use crate::limits::{MAX_BLOCKS, MAX_RUNS, MAX_RUNS_PER_FRAME};

/// How data packets travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Carrier {
    /// In UDP: no privileges.
    Udp = 17,
    /// As IP protocol 6.
    Ip = 6,
}

impl Carrier {
    pub(super) fn parse(byte: u8) -> Result<Self, ParseError> {
        match byte {
            17 => Ok(Carrier::Udp),
            6 => Ok(Carrier::Ip),
            _ => Err(ParseError::Value),
        }
    }

    /// Returns the capability that a peer needs for it.
    pub const fn capability(self) -> Capabilities {
        match self {
            Carrier::Udp => Capabilities::UDP,
            Carrier::Ip => Capabilities::IP,
        }
    }
}

/// The key of one copy's data, not shown in debug output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DataKey(pub [u8; 32]);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(..)")
    }
}

/// A PLAN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How data travels.
    pub carrier: Carrier,
    /// The multicast group, if data may come by multicast.
    pub group: Option<IpAddr>,
    /// The port that data comes from.
    pub source: u16,
    /// The agreed port that data goes to.
    pub destination: u16,
    /// Runs that follow in RUNS, at most [`MAX_RUNS`].
    pub runs: u32,
    /// Bytes of the data stream.
    pub stream_len: u64,
    /// The key, if the data is encrypted.
    pub key: Option<DataKey>,
    /// Links may be arranged for this copy. Without ports they are the only way that data comes.
    pub relay: bool,
}

const FLAG_AEAD: u8 = 0x01;
const FLAG_RELAY: u8 = 0x02;
const NO_GROUP: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

impl Plan {
    /// Whether no data connection is opened: all data comes over links.
    pub fn has_links_only(&self) -> bool {
        self.relay && self.runs > 0 && self.destination == 0
    }
}

impl Message for Plan {
    const TYPE: Type = Type::Plan;
    const LENGTHS: RangeInclusive<usize> = 68..=68;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        if body[1] & !(FLAG_AEAD | FLAG_RELAY) != 0 || u16_at(body, 2) != 0 {
            return Err(ParseError::Reserved);
        }
        let carrier = Carrier::parse(body[0])?;
        let key: [u8; 32] = array_at(body, 36);
        let sealed = body[1] & FLAG_AEAD != 0;
        if !sealed && key != [0; 32] {
            return Err(ParseError::Reserved);
        }
        let plan = Plan {
            carrier,
            group: parse_group(body)?,
            source: u16_at(body, 20),
            destination: u16_at(body, 22),
            runs: u32_at(body, 24),
            stream_len: u64_at(body, 28),
            key: sealed.then_some(DataKey(key)),
            relay: body[1] & FLAG_RELAY != 0,
        };
        let empty = plan.runs == 0;
        if plan.runs > MAX_RUNS || empty != (plan.stream_len == 0) {
            return Err(ParseError::Value);
        }
        let ports = [plan.source, plan.destination];
        if !empty && ports.contains(&0) && !(plan.relay && ports == [0; 2]) {
            return Err(ParseError::Value);
        }
        Ok(plan)
    }

    fn emit_body(&self, body: &mut [u8]) {
        body[0] = self.carrier as u8;
        body[1] = if self.key.is_some() { FLAG_AEAD } else { 0 };
        body[1] |= if self.relay { FLAG_RELAY } else { 0 };
        put_u16(body, 2, 0);
        put_address(body, 4, self.group.unwrap_or(NO_GROUP));
        put_u16(body, 20, self.source);
        put_u16(body, 22, self.destination);
        put_u32(body, 24, self.runs);
        put_u64(body, 28, self.stream_len);
        body[36..68].copy_from_slice(&self.key.map_or([0; 32], |key| key.0));
    }
}

fn parse_group(body: &[u8]) -> Result<Option<IpAddr>, ParseError> {
    match address_at(body, 4) {
        NO_GROUP => Ok(None),
        group if group.is_multicast() => Ok(Some(group)),
        _ => Err(ParseError::Value),
    }
}

/// Reads the runs of a RUNS frame.
///
/// # Errors
/// The frame is not a valid RUNS, or a run is empty or out of bounds.
pub fn parse_runs(frame: &[u8]) -> Result<Vec<Run>, ParseError> {
    let body = body(frame, Type::Runs, 16..=16 * MAX_RUNS_PER_FRAME)?;
    let (runs, rest) = body.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(ParseError::Length);
    }
    let read = |bytes: &[u8; 16]| {
        let run = Run {
            first: u64_at(bytes, 0),
            count: u64_at(bytes, 8),
        };
        let end = run.first.checked_add(run.count);
        match end {
            Some(end) if run.count > 0 && end <= MAX_BLOCKS => Ok(run),
            _ => Err(ParseError::Value),
        }
    };
    runs.iter().map(read).collect()
}

/// Writes a RUNS frame with as many of `runs` as fit the buffer and a frame: its length, and how many
/// there are in it. None fits, or there is none: `None`.
pub fn emit_runs(runs: &[Run], frame: &mut [u8]) -> Option<(usize, usize)> {
    let room = frame.len().checked_sub(HEADER_LEN)? / 16;
    let count = runs.len().min(room).min(MAX_RUNS_PER_FRAME);
    if count == 0 {
        return None;
    }
    let len = HEADER_LEN + 16 * count;
    let body = begin(frame, Type::Runs, len);
    for (place, run) in body.chunks_mut(16).zip(runs) {
        put_u64(place, 0, run.first);
        put_u64(place, 8, run.count);
    }
    Some((len, count))
}
