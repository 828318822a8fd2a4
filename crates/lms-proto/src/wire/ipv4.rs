//! IPv4 headers: what `smoltcp::wire` lacks. Validation with one error for each fault, options,
//! and edits in place that update the header checksum incrementally (RFC 1624).
//!
//! ```text
//!  0               1               2               3
//! +-------+-------+---------------+-------------------------------+
//! |   4   |  IHL  | service       | total length                  |
//! +-------+-------+---------------+-------+-----------------------+
//! | identification                | flags | fragment offset       |
//! +---------------+---------------+-------+-----------------------+
//! | time to live  | protocol      | header checksum               |
//! +---------------+---------------+-------------------------------+
//! | source                                                        |
//! +---------------------------------------------------------------+
//! | destination                                                   |
//! +---------------------------------------------------------------+
//! | options, 0 to 40 bytes                                        |
//! +---------------------------------------------------------------+
//! ```
//!
//! [`Layout::check`] comes first; the getters and edits below it expect a packet that passed and
//! answer zeros, or do nothing, on one that is too short.

use core::fmt;
use core::net::Ipv4Addr;

use super::option::{self, ParseError, View, body_at};
use crate::{Iface, Kind};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Length of the longest header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;
/// Protocol number of IPv4 in IPv4.
pub const PROTOCOL_IPIP: u8 = 4;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Option type "end of options list" (RFC 791 §3.1).
pub const IPOPT_EOL: u8 = 0;
/// Option type "no operation" (RFC 791 §3.1).
pub const IPOPT_NOP: u8 = 1;

const TTL_AT: usize = 8;
const CHECKSUM_AT: usize = 10;

proto_core::errors! {
    /// What is wrong with a header. Nothing can be believed of such a packet: drop it.
    pub enum HeaderError {
        /// Fewer bytes than a header has, or than its length field says.
        Truncated = "IPv4 header is truncated",
        /// The version is not 4.
        Version = "IP version is not 4",
        /// The header length is below 20 bytes.
        HeaderLength = "IPv4 header length is below 20",
        /// The total length is below the header length.
        TotalLength = "IPv4 total length is below the header length",
        /// Fewer bytes than the total length says.
        PacketTruncated = "IPv4 packet is truncated",
        /// The header checksum is wrong.
        Checksum = "IPv4 header checksum is wrong",
    }
}

/// What is wrong with the options of a header that carries, or seems to carry, LMS's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OptionError {
    /// An option has no length byte, or reaches past the header.
    Truncated,
    /// An option says it is shorter than 2 bytes.
    Length,
    /// The LMS option itself is malformed.
    Lms(ParseError),
    /// A second LMS option.
    Duplicate,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Truncated => f.write_str("IPv4 option reaches past the header"),
            OptionError::Length => f.write_str("IPv4 option length is below 2"),
            OptionError::Lms(error) => error.fmt(f),
            OptionError::Duplicate => f.write_str("two LMS options in one header"),
        }
    }
}

impl core::error::Error for OptionError {}

/// The lengths of a packet, checked against each other and the length of the buffer. The checksum is
/// not part of it: see [`checksum_ok`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Length of the header with its options, in bytes: 20 to 60.
    pub header_len: usize,
    /// Length of the packet in bytes; what follows is padding of the frame.
    pub total_len: usize,
}

impl Layout {
    /// Checks version and lengths.
    ///
    /// # Errors
    /// [`HeaderError`] when the version is not 4, a length field is too small, or the bytes end before the
    /// header or the packet does. The checksum is not checked.
    #[inline]
    pub fn check(packet: &[u8]) -> Result<Layout, HeaderError> {
        let Some(fixed) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(HeaderError::Truncated);
        };
        if fixed[0] >> 4 != 4 {
            return Err(HeaderError::Version);
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if header_len < HEADER_LEN {
            return Err(HeaderError::HeaderLength);
        }
        if packet.len() < header_len {
            return Err(HeaderError::Truncated);
        }
        if total_len < header_len {
            return Err(HeaderError::TotalLength);
        }
        if packet.len() < total_len {
            return Err(HeaderError::PacketTruncated);
        }
        Ok(Layout {
            header_len,
            total_len,
        })
    }
}

#[inline]
fn address(packet: &[u8], at: usize) -> Ipv4Addr {
    let octets = packet.get(at..).and_then(<[u8]>::first_chunk::<4>);
    octets.map_or(Ipv4Addr::UNSPECIFIED, |octets| Ipv4Addr::from(*octets))
}

/// The source address.
#[inline]
pub fn source(packet: &[u8]) -> Ipv4Addr {
    address(packet, 12)
}

/// The destination address.
#[inline]
pub fn destination(packet: &[u8]) -> Ipv4Addr {
    address(packet, 16)
}

/// The time to live, in hops.
#[inline]
pub fn ttl(packet: &[u8]) -> u8 {
    packet.get(TTL_AT).copied().unwrap_or(0)
}

/// The protocol of what follows the header.
#[inline]
pub fn protocol(packet: &[u8]) -> u8 {
    packet.get(9).copied().unwrap_or(0)
}

/// Whether the packet is one of several fragments.
#[inline]
pub fn is_fragment(packet: &[u8]) -> bool {
    let more_and_offset = 0x3fff;
    let field = packet.get(6..).and_then(<[u8]>::first_chunk::<2>);
    field.is_some_and(|field| u16::from_be_bytes(*field) & more_and_offset != 0)
}

/// One's complement sum of a header, folded to 16 bits, in the machine's own byte order (RFC 1071
/// §2.B): right for comparing with 0xffff and for storing as it is. Headers are whole 32-bit
/// words.
#[inline]
fn sum(header: &[u8]) -> u16 {
    let (pairs, rest) = header.as_chunks::<8>();
    let mut sum = rest
        .first_chunk()
        .map_or(0, |word| u64::from(u32::from_ne_bytes(*word)));
    for pair in pairs {
        let (next, carry) = sum.overflowing_add(u64::from_ne_bytes(*pair));
        sum = next + u64::from(carry);
    }
    fold(sum)
}

/// Folds a one's complement sum to 16 bits. Each step adds the two halves of a word: in the upper half of the sum of a
/// word and itself turned by half its length, the carry of the lower half is in.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Whether the checksum of a header (exactly its bytes) is right.
#[inline]
pub fn checksum_ok(header: &[u8]) -> bool {
    sum(header) == 0xffff
}

/// Computes the checksum of a header (exactly its bytes) anew and writes it.
pub fn fill_checksum(header: &mut [u8]) {
    if let Some(field) = header.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        field.fill(0);
        let sum = !sum(header);
        header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_ne_bytes());
    }
}

/// RFC 1624 §3, equation 3: HC' = ~(~HC + ~m + m'), with `delta` the sum of all ~m + m' in the
/// machine's own byte order, below 2^40.
#[inline]
fn add_to_checksum(packet: &mut [u8], delta: u64) {
    let field = packet
        .get_mut(CHECKSUM_AT..)
        .and_then(<[u8]>::first_chunk_mut::<2>);
    if let Some(field) = field {
        let old = u64::from(!u16::from_ne_bytes(*field));
        *field = (!fold(old + delta)).to_ne_bytes();
    }
}

/// Takes one hop off the time to live and updates the checksum. A time to live of 0 stays.
#[inline]
pub fn decrement_ttl(packet: &mut [u8]) {
    let delta = take_hop(packet);
    add_to_checksum(packet, delta);
}

/// Takes a hop off, leaves the checksum: the answer is what to add to it.
#[inline]
fn take_hop(packet: &mut [u8]) -> u64 {
    let word = packet
        .get_mut(TTL_AT..)
        .and_then(<[u8]>::first_chunk_mut::<2>);
    let Some(word) = word else { return 0 };
    let [ttl, protocol] = *word;
    let new = [ttl.saturating_sub(1), protocol];
    *word = new;
    u64::from(!u16::from_ne_bytes([ttl, protocol])) + u64::from(u16::from_ne_bytes(new))
}

/// Writes the turning point into an LMS option whose common part starts at `body_at`
/// ([`Found::body_at`]), and updates the checksum.
#[inline]
pub fn set_turning_point(packet: &mut [u8], body_at: usize, router: Ipv4Addr, iface: Iface) {
    let delta = write_turning_point(packet, body_at, router, iface);
    add_to_checksum(packet, delta);
}

/// [`decrement_ttl`] and [`set_turning_point`] in one.
#[inline]
pub fn hop_and_turn(packet: &mut [u8], body_at: usize, router: Ipv4Addr, iface: Iface) {
    let delta = take_hop(packet) + write_turning_point(packet, body_at, router, iface);
    add_to_checksum(packet, delta);
}

/// Writes the turning point, leaves the checksum: the answer is what to add to it.
#[inline]
fn write_turning_point(packet: &mut [u8], body_at: usize, router: Ipv4Addr, iface: Iface) -> u64 {
    let body = packet
        .get_mut(body_at..)
        .and_then(<[u8]>::first_chunk_mut::<6>);
    let Some(body) = body else { return 0 };
    let [i0, i1, r0, r1, r2, r3] = *body;
    let (new_iface, new_router) = (iface.0.to_be_bytes(), router.octets());
    body[..2].copy_from_slice(&new_iface);
    body[2..].copy_from_slice(&new_router);
    let delta = u64::from(!u16::from_ne_bytes([i0, i1]))
        + u64::from(u16::from_ne_bytes(new_iface))
        + u64::from(!u32::from_ne_bytes([r0, r1, r2, r3]))
        + u64::from(u32::from_ne_bytes(new_router));
    at_parity(delta, body_at)
}

/// Returns the sum of words from offset `at` as part of the header's sum: after an odd number of
/// bytes each of them lies across two words of the header.
#[inline]
fn at_parity(sum: u64, at: usize) -> u64 {
    if at.is_multiple_of(2) {
        sum
    } else {
        u64::from(fold(sum).swap_bytes())
    }
}

/// Where one option lies in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OptionAt {
    /// Offset in the packet of the option's type byte.
    pub at: usize,
    /// Length of the option in bytes.
    pub len: usize,
}

/// Walks the options of a header, without end-of-list and no-operation. Ends after an error.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    /// The options of `header`, exactly the header's bytes.
    #[inline]
    pub fn new(header: &'a [u8]) -> Self {
        Options {
            header,
            at: HEADER_LEN,
        }
    }
}

impl Iterator for Options<'_> {
    type Item = Result<OptionAt, OptionError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let end = self.header.len();
        while self.at < end {
            let at = self.at;
            match self.header[at] {
                IPOPT_EOL => self.at = end,
                IPOPT_NOP => self.at += 1,
                _ => {
                    self.at = end;
                    let Some(&len) = self.header.get(at + 1) else {
                        return Some(Err(OptionError::Truncated));
                    };
                    let len = usize::from(len);
                    if len < 2 {
                        return Some(Err(OptionError::Length));
                    }
                    if len > end - at {
                        return Some(Err(OptionError::Truncated));
                    }
                    self.at = at + len;
                    return Some(Ok(OptionAt { at, len }));
                }
            }
        }
        None
    }
}

/// An LMS option found in a header, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Request or dmcast.
    pub kind: Kind,
    /// Where the whole option lies.
    pub option: OptionAt,
    /// Offset in the packet of the turning-point interface, where both forms become the same.
    pub body_at: usize,
    /// The turning-point interface, [`Iface::UNSET`] while no router has turned the packet.
    pub turning_iface: Iface,
    /// The turning-point address, `0.0.0.0` while no router has turned the packet.
    pub turning_router: Ipv4Addr,
    /// The original source.
    pub source: Ipv4Addr,
    /// The multicast group.
    pub group: Ipv4Addr,
}

/// Looks for the LMS option in a header (exactly its bytes), among any others. `Ok(None)`: there
/// is none. Options before and after it are walked too, so that two of them are an error.
///
/// # Errors
/// [`OptionError::Truncated`] or [`OptionError::Length`] when an option's length is wrong,
/// [`OptionError::Lms`] when an LMS option is malformed, [`OptionError::Duplicate`] when there are two.
#[inline]
pub fn find_lms(header: &[u8]) -> Result<Option<Found>, OptionError> {
    let options = header.get(HEADER_LEN..).unwrap_or(&[]);
    let [kind, len, ..] = *options else {
        return if options.is_empty() {
            Ok(None)
        } else {
            find_among_others(header)
        };
    };
    // The LMS option is nearly always the only one.
    if is_lms(kind) && usize::from(len) == options.len() {
        return found_at(
            header,
            OptionAt {
                at: HEADER_LEN,
                len: options.len(),
            },
        );
    }
    find_among_others(header)
}

fn find_among_others(header: &[u8]) -> Result<Option<Found>, OptionError> {
    let mut found = None;
    for option in Options::new(header) {
        let option = option?;
        if !is_lms(header[option.at]) {
            continue;
        }
        let Some(new) = found_at(header, option)? else {
            continue;
        };
        if found.replace(new).is_some() {
            return Err(OptionError::Duplicate);
        }
    }
    Ok(found)
}

#[inline]
fn is_lms(option_type: u8) -> bool {
    matches!(
        option_type,
        option::IPOPT_MREQ | option::IPOPT_DMCAST | option::IPOPT_LMS
    )
}

/// Reads the option at a place in the header; `Ok(None)`: it is of another experiment.
#[inline]
fn found_at(header: &[u8], option: OptionAt) -> Result<Option<Found>, OptionError> {
    let OptionAt { at, len } = option;
    let bytes = header.get(at..at + len).ok_or(OptionError::Truncated)?;
    let view = match View::new_checked(bytes) {
        Ok(view) => view,
        Err(ParseError::Experiment) => return Ok(None),
        Err(error) => return Err(OptionError::Lms(error)),
    };
    Ok(Some(Found {
        kind: view.kind(),
        option,
        body_at: at + body_at(view.form()),
        turning_iface: view.turning_point_iface(),
        turning_router: view.turning_point_address(),
        source: view.source(),
        group: view.group(),
    }))
}

/// Removes an option from the packet's header: the bytes before it move up to close the gap,
/// the bytes after it stay, and the checksum is updated. Returns where the packet now starts. Other
/// options are kept. `option` must be a whole number of 32-bit words long and lie in the header,
/// else nothing changes and the answer is 0.
pub fn strip_option(packet: &mut [u8], option: OptionAt) -> usize {
    let OptionAt { at, len } = option;
    let Some(&[first, service, t0, t1]) = packet.first_chunk::<4>() else {
        return 0;
    };
    let header_len = usize::from(first & 0x0f) * 4;
    if at < HEADER_LEN || len % 4 != 0 || at + len > header_len || header_len > packet.len() {
        return 0;
    }
    let total = u16::from_be_bytes([t0, t1]).saturating_sub(len as u16);
    let [n0, n1] = total.to_be_bytes();
    let (old, new) = (
        [first, service, t0, t1],
        [first - (len / 4) as u8, service, n0, n1],
    );
    let (words, _) = packet[at..at + len].as_chunks::<4>();
    let gone = words
        .iter()
        .map(|word| u64::from(!u32::from_ne_bytes(*word)))
        .sum();
    let delta = at_parity(gone, at)
        + u64::from(!u32::from_ne_bytes(old))
        + u64::from(u32::from_ne_bytes(new));
    packet.copy_within(0..at, len);
    let rest = &mut packet[len..];
    rest[..4].copy_from_slice(&new);
    add_to_checksum(rest, delta);
    len
}
