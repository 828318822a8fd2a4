//! Messages between routers, and from a router to its link (LMS-HIER, LMS §6.7.1,
//! `docs/wire.md`): the payload of UDP port 4138 to 224.0.0.254 or ff02::114, TTL 1.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  version 1    |  type         |  identifier 0x4c4d            |
//! |               |  1 UPDATE     |                               |
//! |               |  2 ELECTED    |                               |
//! +---------------+---------------+-------------------------------+
//! |  boot: random, new at every start of the router               |
//! +---------------------------------------------------------------+
//! |  sequence: + 1 for each message of this boot                  |
//! +-------------------------------+-------------------------------+
//! |  hold time, milliseconds      |  number of entries, 1 to 64   |
//! +-------------------------------+-------------------------------+
//! |  source (0 for (*, G))                                        | entry, addresses of the
//! |  group, of 4 or 16 bytes                                      | packet's own family
//! |  neighbour: ELECTED: the elected one, 0 for none on this link.|
//! |             UPDATE: 0                                         |
//! |  cost                         |  reserved, 0                  |
//! +-------------------------------+-------------------------------+
//! ```

use core::fmt;
use core::marker::PhantomData;
use core::net::{Ipv4Addr, Ipv6Addr};

pub use igmp::wire::Cost;

use crate::{Duration, Family, Key};

/// UDP port of LMS-HIER, source and destination.
pub const PORT: u16 = 4138;
/// Where messages go: link-local, set aside for experiments (RFC 4727).
pub const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 254);
/// Where messages over IPv6 go: link-local, set aside for experiments (RFC 4727).
pub const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x114);
/// The version written, and the only one understood. One more in a build of the next version (`docs/wire.md`).
pub const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;
/// The identifier in every message, `LM`.
pub const IDENTIFIER: u16 = 0x4c4d;
/// Length of the header in bytes.
pub const HEADER_LEN: usize = 16;
/// The most entries of one message over IPv4.
pub const MAX_ENTRIES: usize = max_entries::<Ipv4Addr>();
/// Length of one entry over IPv4 in bytes.
pub const ENTRY_LEN: usize = entry_len::<Ipv4Addr>();
/// Length of the longest message of both families in bytes: it fits an Ethernet frame with its headers.
pub const MAX_LEN: usize = HEADER_LEN + 27 * entry_len::<Ipv6Addr>();

/// Length of one entry in bytes: 16 with IPv4 addresses, 52 with those of IPv6.
pub const fn entry_len<A: Family>() -> usize {
    3 * A::LEN + 4
}

/// The most entries of one message: 64 with IPv4 addresses, 27 with those of IPv6.
pub const fn max_entries<A: Family>() -> usize {
    if A::BITS == 32 { 64 } else { 27 }
}

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// To the parent's link: what the best replier below the sender costs.
    Update,
    /// To a downstream link: which neighbour is elected.
    Elected,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Kind::Update => 1,
            Kind::Elected => 2,
        }
    }
}

proto_core::errors! {
    /// Why bytes are not an LMS-HIER message: drop it.
    pub enum ParseError {
        /// Shorter than the header, or than its entries.
        Truncated = "message is truncated",
        /// Another version of LMS-HIER.
        Version = "another version of LMS-HIER",
        /// Neither UPDATE nor ELECTED.
        Type = "unknown type",
        /// The identifier is not 0x4c4d.
        Identifier = "wrong identifier",
        /// No entry, or more than 64.
        Count = "wrong number of entries",
        /// Bytes after the last entry.
        Trailing = "bytes after the last entry",
        /// The hold time is 0.
        HoldTime = "hold time is zero",
        /// An entry's group is not multicast, its source is not unicast, or its neighbour is not.
        Address = "invalid address",
        /// An UPDATE names a neighbour, or an ELECTED has a cost without one or one without a cost.
        Neighbour = "neighbour and cost or type disagree",
        /// A reserved field is not 0.
        Reserved = "reserved field is not zero",
    }
}

/// One entry of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry<A = Ipv4Addr> {
    /// The multicast forwarding entry it is about.
    pub key: Key<A>,
    /// The elected neighbour; `None` in every UPDATE, and where no neighbour of this link is elected.
    pub neighbour: Option<A>,
    /// What that replier costs; [`Cost::WITHDRAWN`] where there is none.
    pub cost: Cost,
}

impl<A: Family> Entry<A> {
    /// Fills arrays that a message is parsed into.
    pub const EMPTY: Self = Entry {
        key: Key::any_source(A::UNSPECIFIED),
        neighbour: None,
        cost: Cost(0xffff),
    };
}

fn unicast_or_zero<A: Family>(a: A) -> bool {
    a.is_unicast() || a.is_unspecified()
}

impl<A: Family> Entry<A> {
    /// Reads an entry from exactly its bytes, and the reserved field.
    fn read(b: &[u8]) -> (Self, u16) {
        let address = |n: usize| b.get(n * A::LEN..).and_then(A::read);
        let address = |n| address(n).unwrap_or(A::UNSPECIFIED);
        let last = b.get(3 * A::LEN..).and_then(<[u8]>::first_chunk::<4>);
        let [c0, c1, r0, r1] = last.copied().unwrap_or_default();
        let neighbour = address(2);
        let entry = Entry {
            key: Key {
                source: address(0),
                group: address(1),
            },
            neighbour: (!neighbour.is_unspecified()).then_some(neighbour),
            cost: Cost(u16::from_be_bytes([c0, c1])),
        };
        (entry, u16::from_be_bytes([r0, r1]))
    }

    fn check(&self, kind: Kind) -> Result<(), ParseError> {
        let neighbour_ok = self.neighbour.is_none_or(unicast_or_zero);
        if !self.key.group.is_multicast() || !unicast_or_zero(self.key.source) || !neighbour_ok {
            return Err(ParseError::Address);
        }
        let agrees = match kind {
            Kind::Update => self.neighbour.is_none(),
            Kind::Elected => self.neighbour.is_some() == self.cost.is_offer(),
        };
        if agrees {
            Ok(())
        } else {
            Err(ParseError::Neighbour)
        }
    }

    fn write(&self, out: &mut [u8]) {
        let neighbour = self.neighbour.unwrap_or(A::UNSPECIFIED);
        let (addresses, last) = out.split_at_mut(3 * A::LEN);
        let each = [self.key.source, self.key.group, neighbour];
        for (out, address) in addresses.chunks_exact_mut(A::LEN).zip(each) {
            out.copy_from_slice(address.octets().as_ref());
        }
        last[..2].copy_from_slice(&self.cost.0.to_be_bytes());
        last[2..4].fill(0);
    }
}

/// The fields of a message's header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// UPDATE or ELECTED.
    pub kind: Kind,
    /// Random, new at every start of the sender.
    pub boot: u32,
    /// One more for each message of this boot; wraps.
    pub sequence: u32,
    /// How long the entries hold unless refreshed, in milliseconds; never 0.
    pub hold_time_ms: u16,
}

impl Header {
    /// The hold time as a span.
    pub fn hold_time(&self) -> Duration {
        Duration::from_millis(self.hold_time_ms.into())
    }
}

/// Returns the version of a message, `None` for bytes that are no LMS-HIER message. The first four bytes have the same
/// meaning in all versions.
pub fn version(b: &[u8]) -> Option<u8> {
    let [version, _, identifier @ ..] = *b.first_chunk::<4>()?;
    (identifier == IDENTIFIER.to_be_bytes()).then_some(version)
}

/// A view over the bytes of one message, all of it checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, A = Ipv4Addr> {
    header: Header,
    entries: &'a [u8],
    family: PhantomData<A>,
}

impl<'a, A: Family> View<'a, A> {
    /// Checks the header and every entry.
    ///
    /// # Errors
    /// [`ParseError`] names the first fault in the header, the number of entries, the length or an entry.
    pub fn new_checked(b: &'a [u8]) -> Result<Self, ParseError> {
        match version(b) {
            Some(VERSION) => {}
            Some(_) => return Err(ParseError::Version),
            None if b.len() < 4 => return Err(ParseError::Truncated),
            None => return Err(ParseError::Identifier),
        }
        let (head, entries) = b
            .split_at_checked(HEADER_LEN)
            .ok_or(ParseError::Truncated)?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let kind = match head[1] {
            1 => Kind::Update,
            2 => Kind::Elected,
            _ => return Err(ParseError::Type),
        };
        let hold_time_ms = half(12);
        if hold_time_ms == 0 {
            return Err(ParseError::HoldTime);
        }
        let count = usize::from(half(14));
        if !(1..=max_entries::<A>()).contains(&count) {
            return Err(ParseError::Count);
        }
        match entries.len().cmp(&(count * entry_len::<A>())) {
            core::cmp::Ordering::Less => return Err(ParseError::Truncated),
            core::cmp::Ordering::Greater => return Err(ParseError::Trailing),
            core::cmp::Ordering::Equal => {}
        }
        for bytes in entries.chunks_exact(entry_len::<A>()) {
            let (entry, reserved) = Entry::<A>::read(bytes);
            if reserved != 0 {
                return Err(ParseError::Reserved);
            }
            entry.check(kind)?;
        }
        let header = Header {
            kind,
            boot: word(4),
            sequence: word(8),
            hold_time_ms,
        };
        Ok(View {
            header,
            entries,
            family: PhantomData,
        })
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Number of entries, 1 to 64.
    pub fn entry_count(&self) -> usize {
        self.entries.len() / entry_len::<A>()
    }

    /// The entries, in the order of the message.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<A>> + 'a {
        self.entries
            .chunks_exact(entry_len::<A>())
            .map(|b| Entry::read(b).0)
    }
}

/// A message as a value: a header and borrowed entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr<'a, A = Ipv4Addr> {
    /// The header.
    pub header: Header,
    /// 1 to 64 entries.
    pub entries: &'a [Entry<A>],
}

/// Why a message cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EmitError {
    /// The buffer is shorter than [`Repr::buffer_len`].
    Space,
    /// The receiver would refuse it for this reason.
    Invalid(ParseError),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::Space => f.write_str("buffer too short for the message"),
            EmitError::Invalid(why) => write!(f, "not a valid message: {why}"),
        }
    }
}

impl core::error::Error for EmitError {}

impl<'a, A: Family> Repr<'a, A> {
    /// Reads a message; `entries` is where its entries go, and must hold them all.
    ///
    /// # Errors
    /// As [`View::new_checked`].
    pub fn parse(
        bytes: &[u8],
        entries: &'a mut [Entry<A>; MAX_ENTRIES],
    ) -> Result<Self, ParseError> {
        let view = View::<A>::new_checked(bytes)?;
        for (to, from) in entries.iter_mut().zip(view.entries()) {
            *to = from;
        }
        Ok(Repr {
            header: view.header(),
            entries: &entries[..view.entry_count()],
        })
    }

    /// Length in bytes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN + self.entries.len() * entry_len::<A>()
    }

    /// Writes the message at the start of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::Space`] when `buffer` is shorter than [`Repr::buffer_len`]; [`EmitError::Invalid`] when the
    /// hold time is 0, there are no entries or more than [`max_entries`], or an entry is not valid.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let mut writer = Writer::new(buffer).ok_or(EmitError::Space)?;
        if self.header.hold_time_ms == 0 {
            return Err(EmitError::Invalid(ParseError::HoldTime));
        }
        if !(1..=max_entries::<A>()).contains(&self.entries.len()) {
            return Err(EmitError::Invalid(ParseError::Count));
        }
        for entry in self.entries {
            entry.check(self.header.kind).map_err(EmitError::Invalid)?;
            if !writer.push(entry) {
                return Err(EmitError::Space);
            }
        }
        Ok(writer.finish(&self.header))
    }
}

/// Writes a message entry by entry, where it is not known before how many there will be.
#[derive(Debug)]
pub struct Writer<'a, A = Ipv4Addr> {
    buffer: &'a mut [u8],
    /// Entries written; at most [`max_entries`] and no more than fit `buffer`.
    count: usize,
    family: PhantomData<A>,
}

impl<'a, A: Family> Writer<'a, A> {
    /// A writer into `buffer`; `None` where not even the header fits.
    pub fn new(buffer: &'a mut [u8]) -> Option<Self> {
        (buffer.len() >= HEADER_LEN).then_some(Writer {
            buffer,
            count: 0,
            family: PhantomData,
        })
    }

    /// Whether one more entry fits.
    pub fn has_room(&self) -> bool {
        self.count < max_entries::<A>()
            && self.buffer.len() >= HEADER_LEN + (self.count + 1) * entry_len::<A>()
    }

    /// Appends an entry; `false` where it does not fit.
    pub fn push(&mut self, entry: &Entry<A>) -> bool {
        if !self.has_room() {
            return false;
        }
        let len = entry_len::<A>();
        let at = HEADER_LEN + self.count * len;
        entry.write(&mut self.buffer[at..at + len]);
        self.count += 1;
        true
    }

    /// Entries written so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Writes the header and returns the length of the message.
    pub fn finish(self, header: &Header) -> usize {
        let out = self.buffer;
        out[0] = VERSION;
        out[1] = header.kind.number();
        out[2..4].copy_from_slice(&IDENTIFIER.to_be_bytes());
        out[4..8].copy_from_slice(&header.boot.to_be_bytes());
        out[8..12].copy_from_slice(&header.sequence.to_be_bytes());
        out[12..14].copy_from_slice(&header.hold_time_ms.to_be_bytes());
        out[14..16].copy_from_slice(&(self.count as u16).to_be_bytes());
        HEADER_LEN + self.count * entry_len::<A>()
    }
}
