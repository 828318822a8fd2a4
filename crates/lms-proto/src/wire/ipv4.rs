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

use core::net::Ipv4Addr;

use super::checksum::Sum;
use super::found::{Found, HeaderError, OptionAt, OptionError, Turn, TurnAt};
use super::option;

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

/// Whether the checksum of a header (exactly its bytes) is right.
#[inline]
pub fn checksum_ok(header: &[u8]) -> bool {
    Sum::of_words(header).is_correct()
}

/// Computes the checksum of a header (exactly its bytes) anew and writes it.
pub fn fill_checksum(header: &mut [u8]) {
    if let Some(field) = header.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        field.fill(0);
        let sum = Sum::of_words(header).checksum();
        header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum);
    }
}

/// RFC 1624 §3, equation 3: HC' = ~(~HC + ~m + m'), with `delta` the sum of all ~m + m'.
#[inline]
fn add_to_checksum(packet: &mut [u8], delta: Sum) {
    let field = packet
        .get_mut(CHECKSUM_AT..)
        .and_then(<[u8]>::first_chunk_mut::<2>);
    if let Some(field) = field {
        *field = Sum::of_checksum(*field).plus(delta).checksum();
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
fn take_hop(packet: &mut [u8]) -> Sum {
    let word = packet
        .get_mut(TTL_AT..)
        .and_then(<[u8]>::first_chunk_mut::<2>);
    let Some(word) = word else {
        return Sum::default();
    };
    let [ttl, protocol] = *word;
    replace(word, [ttl.saturating_sub(1), protocol])
}

/// Replaces bytes at an even offset of the header, leaves the checksum: the answer is what to add to it.
#[inline]
fn replace<const LEN: usize>(field: &mut [u8; LEN], new: [u8; LEN]) -> Sum {
    let old = core::mem::replace(field, new);
    Sum::of(&new).minus(Sum::of(&old))
}

/// Writes the turning point into an LMS option, and updates the checksum.
#[inline]
pub fn set_turning_point(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) {
    let delta = write_turning_point(packet, at, turn);
    add_to_checksum(packet, delta);
}

/// [`decrement_ttl`] and [`set_turning_point`] in one.
#[inline]
pub fn hop_and_turn(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) {
    let delta = take_hop(packet).plus(write_turning_point(packet, at, turn));
    add_to_checksum(packet, delta);
}

/// Writes the turning point, leaves the checksum: the answer is what to add to it.
#[inline]
fn write_turning_point(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) -> Sum {
    let body = packet
        .get_mut(at.body_at..)
        .and_then(<[u8]>::first_chunk_mut::<6>);
    let Some(body) = body else {
        return Sum::default();
    };
    let [i0, i1] = turn.number.0.to_be_bytes();
    let [r0, r1, r2, r3] = turn.router.octets();
    let delta = replace(body, [i0, i1, r0, r1, r2, r3]).at(at.body_at);
    let Some(cookie_at) = at.cookie_at else {
        return delta;
    };
    let cookie = packet
        .get_mut(cookie_at..)
        .and_then(<[u8]>::first_chunk_mut::<8>);
    let Some(cookie) = cookie else { return delta };
    delta.plus(replace(cookie, turn.cookie.to_be_bytes()).at(cookie_at))
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

/// Looks for the LMS option in a header (exactly its bytes), among any others. `Ok(None)`: there
/// is none. Options before and after it are walked too, so that two of them are an error.
///
/// # Errors
/// [`OptionError::Truncated`] or [`OptionError::Length`] when an option's length is wrong,
/// [`OptionError::Lms`] when an LMS option is malformed, [`OptionError::Duplicate`] when there are two.
#[inline]
pub fn find_lms(header: &[u8]) -> Result<Option<Found<Ipv4Addr>>, OptionError> {
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
        return Found::read(
            header,
            OptionAt {
                at: HEADER_LEN,
                len: options.len(),
            },
        );
    }
    find_among_others(header)
}

fn find_among_others(header: &[u8]) -> Result<Option<Found<Ipv4Addr>>, OptionError> {
    let mut found = None;
    for option in Options::new(header) {
        let option = option?;
        if !is_lms(header[option.at]) {
            continue;
        }
        let Some(new) = Found::read(header, option)? else {
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

/// Changes the destination address and updates the checksum.
#[inline]
pub fn set_destination(packet: &mut [u8], destination: Ipv4Addr) {
    let field = packet.get_mut(16..).and_then(<[u8]>::first_chunk_mut::<4>);
    let Some(field) = field else { return };
    let delta = replace(field, destination.octets());
    add_to_checksum(packet, delta);
}

/// Writes the header, without options and not to be fragmented, of a packet whose payload has `payload_len` bytes;
/// `None` where the buffer is too short or the packet too long.
#[inline]
pub fn emit_header(
    out: &mut [u8],
    payload_len: usize,
    protocol: u8,
    ttl: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
) -> Option<()> {
    let out = out.first_chunk_mut::<HEADER_LEN>()?;
    let total_len = u16::try_from(HEADER_LEN + payload_len).ok()?;
    *out = [0; HEADER_LEN];
    out[0] = 4 << 4 | (HEADER_LEN / 4) as u8;
    out[2..4].copy_from_slice(&total_len.to_be_bytes());
    out[6] = 0x40;
    out[TTL_AT] = ttl;
    out[9] = protocol;
    out[12..16].copy_from_slice(&source.octets());
    out[16..].copy_from_slice(&destination.octets());
    fill_checksum(out);
    Some(())
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
    let gone = Sum::of(&packet[at..at + len]).at(at);
    let delta = Sum::of(&new).minus(Sum::of(&old)).minus(gone);
    packet.copy_within(0..at, len);
    let rest = &mut packet[len..];
    rest[..4].copy_from_slice(&new);
    add_to_checksum(rest, delta);
    len
}
