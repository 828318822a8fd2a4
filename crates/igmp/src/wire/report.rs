//! Version 3 reports: group records, and writing them.

use core::marker::PhantomData;
use core::net::Ipv4Addr;

use super::{COST_IDENTIFIER, Cost, HEAD_LEN, ParseError, Sources, fill_checksum};
use crate::Family;

/// Bytes of a record before its group.
const GROUP_AT: usize = 4;

/// Bytes of a record before its sources.
const fn record_len<A: Family>() -> usize {
    GROUP_AT + A::LEN
}

/// What a group record says (RFC 3376 §4.2.12).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordType {
    /// 1, IS_IN: current state, filter mode INCLUDE.
    ModeIsInclude,
    /// 2, IS_EX: current state, filter mode EXCLUDE.
    ModeIsExclude,
    /// 3, TO_IN: the filter mode changed to INCLUDE.
    ChangeToInclude,
    /// 4, TO_EX: the filter mode changed to EXCLUDE.
    ChangeToExclude,
    /// 5, ALLOW: more sources are included.
    AllowNewSources,
    /// 6, BLOCK: sources are no longer wanted.
    BlockOldSources,
    /// Any other number: the record is ignored (§4.2.12).
    Unknown(u8),
}

impl From<u8> for RecordType {
    fn from(number: u8) -> Self {
        match number {
            1 => RecordType::ModeIsInclude,
            2 => RecordType::ModeIsExclude,
            3 => RecordType::ChangeToInclude,
            4 => RecordType::ChangeToExclude,
            5 => RecordType::AllowNewSources,
            6 => RecordType::BlockOldSources,
            other => RecordType::Unknown(other),
        }
    }
}

impl From<RecordType> for u8 {
    fn from(kind: RecordType) -> Self {
        match kind {
            RecordType::ModeIsInclude => 1,
            RecordType::ModeIsExclude => 2,
            RecordType::ChangeToInclude => 3,
            RecordType::ChangeToExclude => 4,
            RecordType::AllowNewSources => 5,
            RecordType::BlockOldSources => 6,
            RecordType::Unknown(other) => other,
        }
    }
}

/// One group record of a version 3 report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record<'a, A = Ipv4Addr> {
    /// What it says.
    pub kind: RecordType,
    /// The group; multicast, unless the type is unknown.
    pub group: A,
    /// The sources.
    pub sources: Sources<'a, A>,
    /// Auxiliary data, whole words; what we do not know is ignored (§4.2.6).
    pub auxiliary: &'a [u8],
}

impl<'a, A: Family> Record<'a, A> {
    /// The replier cost, where the auxiliary data is ours.
    pub fn cost(&self) -> Option<Cost> {
        let (&[a, b, c, d], _) = self.auxiliary.split_first_chunk::<4>()?;
        (u16::from_be_bytes([a, b]) == COST_IDENTIFIER).then(|| Cost(u16::from_be_bytes([c, d])))
    }

    fn split(b: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = b.split_at_checked(record_len::<A>())?;
        let sources_len = A::LEN * usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (sources, rest) = rest.split_at_checked(sources_len)?;
        let (auxiliary, rest) = rest.split_at_checked(4 * usize::from(head[1]))?;
        let record = Record {
            kind: RecordType::from(head[0]),
            group: A::read(&head[GROUP_AT..])?,
            sources: Sources(sources, PhantomData),
            auxiliary,
        };
        Some((record, rest))
    }
}

/// The group records of a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Records<'a, A = Ipv4Addr> {
    /// Holds exactly `count` whole records.
    pub(super) bytes: &'a [u8],
    pub(super) count: u16,
    family: PhantomData<A>,
}

impl<'a, A: Family> Records<'a, A> {
    /// Number of records.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The records in order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'a, A>> + Clone + 'a {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let (record, after) = Record::split(rest)?;
            rest = after;
            Some(record)
        })
    }

    pub(super) fn parse(b: &'a [u8], count: u16) -> Result<Self, ParseError> {
        let mut rest = b;
        for _ in 0..count {
            let (record, after) = Record::<A>::split(rest).ok_or(ParseError::Truncated)?;
            rest = after;
            if matches!(record.kind, RecordType::Unknown(_)) {
                continue;
            }
            record.sources.check()?;
            if !record.group.is_multicast() {
                return Err(ParseError::Address);
            }
        }
        Ok(Records {
            bytes: &b[..b.len() - rest.len()],
            count,
            family: PhantomData,
        })
    }
}

/// Writes a version 3 report record by record.
#[derive(Debug)]
pub struct ReportWriter<'a, A = Ipv4Addr> {
    buffer: &'a mut [u8],
    len: usize,
    count: u16,
    family: PhantomData<A>,
}

impl<'a, A: Family> ReportWriter<'a, A> {
    /// A writer into `buffer`; `None` where not even the header fits.
    pub fn new(buffer: &'a mut [u8]) -> Option<Self> {
        (buffer.len() >= HEAD_LEN).then_some(ReportWriter {
            buffer,
            len: HEAD_LEN,
            count: 0,
            family: PhantomData,
        })
    }

    /// Records written so far.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Returns how many sources fit into a further record; `None` if its header does not fit.
    pub fn room(&self, with_cost: bool) -> Option<usize> {
        let fixed = record_len::<A>() + if with_cost { 4 } else { 0 };
        let free = self.buffer.len().checked_sub(self.len + fixed)?;
        (self.count < u16::MAX).then_some((free / A::LEN).min(usize::from(u16::MAX)))
    }

    /// Appends a record; `false`, with nothing written, where it does not fit.
    pub fn push(
        &mut self,
        kind: RecordType,
        group: A,
        sources: impl Iterator<Item = A>,
        cost: Option<Cost>,
    ) -> bool {
        let Some(room) = self.room(cost.is_some()) else {
            return false;
        };
        let mut at = self.len + record_len::<A>();
        let mut count = 0u16;
        for source in sources {
            if usize::from(count) == room {
                return false;
            }
            self.buffer[at..at + A::LEN].copy_from_slice(source.octets().as_ref());
            at += A::LEN;
            count += 1;
        }
        if let Some(cost) = cost {
            self.buffer[at..at + 2].copy_from_slice(&COST_IDENTIFIER.to_be_bytes());
            self.buffer[at + 2..at + 4].copy_from_slice(&cost.0.to_be_bytes());
            at += 4;
        }
        let head = &mut self.buffer[self.len..self.len + record_len::<A>()];
        head[0] = kind.into();
        head[1] = u8::from(cost.is_some());
        head[2..4].copy_from_slice(&count.to_be_bytes());
        head[GROUP_AT..].copy_from_slice(group.octets().as_ref());
        self.len = at;
        self.count += 1;
        true
    }

    /// Writes the header, and returns the length of the message. The checksum of IGMP is included, that of MLD is
    /// written with the addresses ([`finish_membership`](crate::datagram::finish_membership)).
    pub fn finish(self) -> usize {
        let out = &mut self.buffer[..self.len];
        out[..HEAD_LEN].fill(0);
        out[0] = A::TYPES.v3_report;
        out[6..8].copy_from_slice(&self.count.to_be_bytes());
        fill_checksum::<A>(out)
    }
}
