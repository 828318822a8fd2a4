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

/// Writes the turning point into an LMS option, and updates the checksum.
#[inline]
pub fn set_turning_point(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) {
    let delta = write_turning_point(packet, at, turn);
    add_to_checksum(packet, delta);
}

/// [`decrement_ttl`] and [`set_turning_point`] in one.
#[inline]
pub fn hop_and_turn(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) {
    let delta = take_hop(packet) + write_turning_point(packet, at, turn);
    add_to_checksum(packet, delta);
}

/// Writes the turning point, leaves the checksum: the answer is what to add to it.
#[inline]
fn write_turning_point(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) -> u64 {
    let body = packet
        .get_mut(at.body_at..)
        .and_then(<[u8]>::first_chunk_mut::<6>);
    let Some(body) = body else { return 0 };
    let [i0, i1, r0, r1, r2, r3] = *body;
    let (new_iface, new_router) = (turn.number.0.to_be_bytes(), turn.router.octets());
    body[..2].copy_from_slice(&new_iface);
    body[2..].copy_from_slice(&new_router);
    let delta = u64::from(!u16::from_ne_bytes([i0, i1]))
        + u64::from(u16::from_ne_bytes(new_iface))
        + u64::from(!u32::from_ne_bytes([r0, r1, r2, r3]))
        + u64::from(u32::from_ne_bytes(new_router));
    let delta = at_parity(delta, at.body_at);
    let Some(cookie_at) = at.cookie_at else {
        return delta;
    };
    let cookie = packet
        .get_mut(cookie_at..)
        .and_then(<[u8]>::first_chunk_mut::<8>);
    let Some(cookie) = cookie else { return delta };
    let new = turn.cookie.to_be_bytes();
    let old = core::mem::replace(cookie, new);
    delta + at_parity(words(&old.map(|byte| !byte)) + words(&new), cookie_at)
}

/// The sum of the two words of 32 bits, in the machine's own byte order.
#[inline]
fn words(bytes: &[u8; 8]) -> u64 {
    let [a, b, c, d, e, f, g, h] = *bytes;
    u64::from(u32::from_ne_bytes([a, b, c, d])) + u64::from(u32::from_ne_bytes([e, f, g, h]))
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
pub fn set_destination(packet: &mut [u8], destination: Ipv4Addr) {
    let field = packet.get_mut(16..).and_then(<[u8]>::first_chunk_mut::<4>);
    let Some(field) = field else { return };
    let new = destination.octets();
    let old = core::mem::replace(field, new);
    let delta = u64::from(!u32::from_ne_bytes(old)) + u64::from(u32::from_ne_bytes(new));
    add_to_checksum(packet, delta);
}

/// Writes the header, without options and not to be fragmented, of a packet whose payload has `payload_len` bytes;
/// `None` where the buffer is too short or the packet too long.
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
