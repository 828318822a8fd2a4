//! IPv6 headers and the hop-by-hop options behind them: what `smoltcp::wire` lacks.
//!
//! ```text
//!  0               1               2               3
//! +-------+---------------+-------+-------------------------------+
//! |   6   | traffic class | flow label                            |
//! +-------+---------------+-------+---------------+---------------+
//! | payload length                | next header   | hop limit     |
//! +-------------------------------+---------------+---------------+
//! | source, 16 bytes; destination, 16 bytes                       |
//! +---------------+---------------+-------------------------------+
//! | next header   | words of 8    | options: LMS's, and padding   |  where next header is 0
//! |               | bytes, less 1 |                               |
//! +---------------+---------------+-------------------------------+
//! ```
//!
//! The hop-by-hop header is the first of the extension headers or absent (RFC 8200 §4.1), so no other one is parsed;
//! [`Layout::is_fragment`] alone looks past others, for a fragment header. [`Layout::check`] comes first; the getters and
//! edits below it expect a packet that passed and answer zeros, or do nothing, on one that is too short. There is no header
//! checksum to update.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::found::{Found, HeaderError, OptionAt, OptionError, Turn, TurnAt};
use super::{ipv4, option};
use crate::Address as _;

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 40;
/// Next header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: IPv6 in IPv6.
pub const IPV6_IN_IPV6: u8 = 41;
/// Next header: routing.
pub const ROUTING: u8 = 43;
/// Next header: a fragment.
pub const FRAGMENT: u8 = 44;
/// Next header: authentication.
pub const AUTHENTICATION: u8 = 51;
/// Next header: destination options.
pub const DESTINATION_OPTIONS: u8 = 60;

const PAD1: u8 = 0;
const PADN: u8 = 1;
const HOP_LIMIT_AT: usize = 7;

/// The lengths of a packet, checked against each other and the length of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Length of the fixed header and the hop-by-hop header behind it, in bytes: 40, or 48 to 2,088.
    pub header_len: usize,
    /// Length of the packet in bytes; what follows is padding of the frame.
    pub total_len: usize,
    /// Protocol number of what follows these headers.
    pub next_header: u8,
}

impl Layout {
    /// Checks version and lengths. Jumbograms (RFC 2675) are refused as too short.
    ///
    /// # Errors
    /// [`HeaderError`] when the version is not 6, the bytes end before the headers or the packet do, or the payload
    /// before the hop-by-hop header does.
    #[inline]
    pub fn check(packet: &[u8]) -> Result<Layout, HeaderError> {
        let Some(fixed) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(HeaderError::Truncated);
        };
        if fixed[0] >> 4 != 6 {
            return Err(HeaderError::Version);
        }
        let total_len = HEADER_LEN + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        if packet.len() < total_len {
            return Err(HeaderError::PacketTruncated);
        }
        if fixed[6] != HOP_BY_HOP {
            return Ok(Layout {
                header_len: HEADER_LEN,
                total_len,
                next_header: fixed[6],
            });
        }
        let Some(&[next_header, words]) = packet[HEADER_LEN..total_len].first_chunk::<2>() else {
            return Err(HeaderError::TotalLength);
        };
        let header_len = HEADER_LEN + 8 * (usize::from(words) + 1);
        if header_len > total_len {
            return Err(HeaderError::TotalLength);
        }
        Ok(Layout {
            header_len,
            total_len,
            next_header,
        })
    }

    /// Returns whether the packet, which has this layout, is a fragment: whether a fragment header follows, at once or
    /// after routing, authentication and options headers. The time is linear in the number of these.
    ///
    /// # Errors
    /// [`HeaderError::TotalLength`] when the payload ends before one of these headers does.
    #[inline]
    pub fn is_fragment(self, packet: &[u8]) -> Result<bool, HeaderError> {
        // Nearly every packet is a datagram without other headers.
        if self.next_header == ipv4::PROTOCOL_UDP {
            return Ok(false);
        }
        self.has_fragment_header(packet)
    }

    fn has_fragment_header(self, packet: &[u8]) -> Result<bool, HeaderError> {
        let (mut at, mut next) = (self.header_len, self.next_header);
        // Each header takes at least 8 bytes, so that the length of the packet bounds the walk.
        loop {
            // Destination options and routing headers may stand there (RFC 8200 §4.1). The others are skipped, too: a
            // receiver may accept any order.
            match next {
                FRAGMENT => return Ok(true),
                HOP_BY_HOP | ROUTING | AUTHENTICATION | DESTINATION_OPTIONS => {}
                _ => return Ok(false),
            }
            let header = packet.get(at..self.total_len);
            let header = header.and_then(<[u8]>::first_chunk::<2>);
            let [following, units] = *header.ok_or(HeaderError::TotalLength)?;
            let units = usize::from(units);
            at += match next {
                // RFC 4302 §2.2: words of four bytes, less two.
                AUTHENTICATION => 4 * (units + 2),
                _ => 8 * (units + 1),
            };
            if at > self.total_len {
                return Err(HeaderError::TotalLength);
            }
            next = following;
        }
    }
}

#[inline]
fn address(packet: &[u8], at: usize) -> Ipv6Addr {
    let bytes = packet.get(at..).unwrap_or(&[]);
    Ipv6Addr::read(bytes).unwrap_or(Ipv6Addr::UNSPECIFIED)
}

/// The source address.
#[inline]
pub fn source(packet: &[u8]) -> Ipv6Addr {
    address(packet, 8)
}

/// The destination address.
#[inline]
pub fn destination(packet: &[u8]) -> Ipv6Addr {
    address(packet, 24)
}

/// The hop limit.
#[inline]
pub fn hop_limit(packet: &[u8]) -> u8 {
    packet.get(HOP_LIMIT_AT).copied().unwrap_or(0)
}

/// Decrements the hop limit; 0 stays 0.
#[inline]
pub fn decrement_hop_limit(packet: &mut [u8]) {
    if let Some(limit) = packet.get_mut(HOP_LIMIT_AT) {
        *limit = limit.saturating_sub(1);
    }
}

/// Writes the turning point into an LMS option.
#[inline]
pub fn set_turning_point(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv6Addr>) {
    let body = packet
        .get_mut(at.body_at..)
        .and_then(<[u8]>::first_chunk_mut::<18>);
    if let Some(body) = body {
        body[..2].copy_from_slice(&turn.number.0.to_be_bytes());
        body[2..].copy_from_slice(&turn.router.octets());
    }
    let cookie = at.cookie_at.and_then(|at| packet.get_mut(at..));
    if let Some(cookie) = cookie.and_then(<[u8]>::first_chunk_mut::<8>) {
        *cookie = turn.cookie.to_be_bytes();
    }
}

/// Looks for the LMS option in the hop-by-hop header of a packet that passed [`Layout::check`], among any others.
/// `Ok(None)`: there is none. All options are parsed, so that a second LMS option is an error, as is an LMS option beside
/// an unrecognized one whose type forbids forwarding.
///
/// # Errors
/// [`OptionError::Truncated`] when an option reaches past the header, [`OptionError::Lms`] when an LMS option is
/// malformed, [`OptionError::Duplicate`] when there are two, [`OptionError::Unknown`] when the type of an unrecognized
/// option requires that the packet be discarded.
#[inline]
pub fn find_lms(packet: &[u8], layout: Layout) -> Result<Option<Found<Ipv6Addr>>, OptionError> {
    find_in_options(packet, HEADER_LEN..layout.header_len)
}

/// [`find_lms`] in the hop-by-hop header at this place of `packet`.
#[inline]
pub(crate) fn find_in_options(
    packet: &[u8],
    header: Range<usize>,
) -> Result<Option<Found<Ipv6Addr>>, OptionError> {
    let at = header.start + 2;
    let options = packet.get(at..header.end).unwrap_or(&[]);
    // The LMS option is nearly always the first, and only padding follows it.
    if let [option::HOP_BY_HOP_LMS, len, ..] = *options {
        let len = 2 + usize::from(len);
        if options.get(len..).is_some_and(is_padding) {
            return Found::read(packet, OptionAt { at, len });
        }
    }
    find_among_others(packet, header)
}

/// Whether one option of padding fills these bytes, if there are any.
#[inline]
fn is_padding(bytes: &[u8]) -> bool {
    match *bytes {
        [] | [PAD1] => true,
        [PADN, len, ref data @ ..] => usize::from(len) == data.len(),
        _ => false,
    }
}

fn find_among_others(
    packet: &[u8],
    header: Range<usize>,
) -> Result<Option<Found<Ipv6Addr>>, OptionError> {
    let end = header.end.min(packet.len());
    let mut at = header.start + 2;
    let mut found = None;
    let mut is_forbidden = false;
    while at < end {
        let option_type = packet[at];
        if option_type == PAD1 {
            at += 1;
            continue;
        }
        let len = packet.get(at + 1).filter(|_| at + 1 < end);
        let len = 2 + usize::from(*len.ok_or(OptionError::Truncated)?);
        if at + len > end {
            return Err(OptionError::Truncated);
        }
        let own = match option_type {
            option::HOP_BY_HOP_LMS => Found::read(packet, OptionAt { at, len })?,
            PADN => None,
            // The two highest bits: 0 is "skip if unknown" (RFC 8200 §4.2).
            other => {
                is_forbidden |= other >> 6 != 0;
                None
            }
        };
        if own.is_some() && core::mem::replace(&mut found, own).is_some() {
            return Err(OptionError::Duplicate);
        }
        at += len;
    }
    if found.is_some() && is_forbidden {
        return Err(OptionError::Unknown);
    }
    Ok(found)
}

/// Length of a hop-by-hop header with the LMS option alone, padding included, in bytes.
pub const OPTIONS_LEN: usize = (2 + option::MAX_LEN).next_multiple_of(8);

/// Writes a hop-by-hop header that holds the LMS option and padding, with this next header; returns its length,
/// [`OPTIONS_LEN`].
///
/// # Errors
/// As [`LmsOption::emit`](option::LmsOption::emit).
pub fn emit_options(
    lms: &option::LmsOption,
    next_header: u8,
    buffer: &mut [u8],
) -> Result<usize, option::EmitError> {
    let out = buffer
        .get_mut(..OPTIONS_LEN)
        .ok_or(option::EmitError::Space)?;
    out[0] = next_header;
    out[1] = (OPTIONS_LEN / 8 - 1) as u8;
    let len = lms.emit(option::Form::Own, &mut out[2..])?;
    let padding = &mut out[2 + len..];
    padding.fill(0);
    if let [kind, data_len, rest @ ..] = padding {
        *kind = PADN;
        *data_len = rest.len() as u8;
    }
    Ok(OPTIONS_LEN)
}

/// Writes the fixed header of a packet whose payload, extension headers included, has `payload_len` bytes; returns `None`
/// when the buffer is too short or the payload too long.
#[inline]
pub fn emit_header(
    out: &mut [u8],
    payload_len: usize,
    next_header: u8,
    hop_limit: u8,
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Option<()> {
    let out = out.first_chunk_mut::<HEADER_LEN>()?;
    out[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    out[4..6].copy_from_slice(&u16::try_from(payload_len).ok()?.to_be_bytes());
    out[6] = next_header;
    out[HOP_LIMIT_AT] = hop_limit;
    out[8..24].copy_from_slice(&source.octets());
    out[24..].copy_from_slice(&destination.octets());
    Some(())
}
