//! Encapsulation of directed multicasts (LMS-ENCAP, LMS §6.3.2): IPv4 in IPv4 (RFC 2003) from
//! the replier to the turning-point router.
//!
//! ```text
//! Placement::Outer                        Placement::Inner (LMS §6.4.5)
//! +---------------------------------+     +---------------------------------+
//! | IPv4, replier to router,        |     | IPv4, replier to router,        |
//! | protocol 4                      |     | protocol 4                      |
//! +---------------------------------+     +---------------------------------+
//! | LMS option, dmcast              |     | IPv4, source to group           |
//! +---------------------------------+     +---------------------------------+
//! | IPv4, source to group, payload  |     | LMS option, dmcast; payload     |
//! +---------------------------------+     +---------------------------------+
//! ```

use core::fmt;
use core::net::Ipv4Addr;
use core::ops::Range;

use super::found::{Found, HeaderError, OptionAt, OptionError};
use super::ipv4::{self, Layout};
use super::option::{EmitError, Form, Kind, LmsOption, TurningPoint, option_len};
use crate::Iface;

/// Which header carries the option of a dmcast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// The outer one (LMS §6.4.4): what LMS does.
    Outer,
    /// The inner one, as LMS §6.4.5 would have it where hosts decapsulate in general.
    Inner,
}

/// A dmcast to compose. Source and group of its option are those of the inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DmcastRepr {
    /// The replier's own address.
    pub replier: Ipv4Addr,
    /// The turning-point router's address: where the packet goes.
    pub router: Ipv4Addr,
    /// The turning-point interface, as the request named it: a number that its router alone reads.
    pub iface: Iface,
    /// The cookie, as the request carried it; the classic form has no place for it.
    pub cookie: u64,
    /// Form of the option.
    pub form: Form,
    /// Which header carries it.
    pub placement: Placement,
    /// Time to live of the outer packet, hops.
    pub ttl: u8,
    /// Identification of the outer packet, for the case that it is fragmented.
    pub identification: u16,
}

/// Why a dmcast cannot be composed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ComposeError {
    /// The inner packet is not a valid IPv4 packet of exactly the given bytes.
    Inner(HeaderError),
    /// The turning point is unset.
    TurningPoint,
    /// The buffer is shorter than [`DmcastRepr::buffer_len`].
    Space,
    /// The outer packet would be longer than 65,535 bytes, or the inner header than 60.
    TooLong,
}

impl fmt::Display for ComposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComposeError::Inner(error) => write!(f, "inner packet: {error}"),
            ComposeError::TurningPoint => f.write_str("the turning point is unset"),
            ComposeError::Space => f.write_str("buffer too short for the dmcast"),
            ComposeError::TooLong => f.write_str("the dmcast would be too long for IPv4"),
        }
    }
}

impl core::error::Error for ComposeError {}

impl DmcastRepr {
    /// Length in bytes of the dmcast around `inner_len` bytes: 36 more with the classic form.
    pub const fn buffer_len(&self, inner_len: usize) -> usize {
        ipv4::HEADER_LEN + option_len::<Ipv4Addr>(self.form) + inner_len
    }

    /// Writes the whole packet around `inner`, a whole IPv4 packet, and returns its length.
    ///
    /// # Errors
    /// [`ComposeError::Inner`] when `inner` is not exactly one IPv4 packet, [`ComposeError::TooLong`] when
    /// the packet or the inner header would be too long for IPv4, [`ComposeError::Space`] when `buffer` is
    /// shorter than [`DmcastRepr::buffer_len`], and [`ComposeError::TurningPoint`] when router or interface is unset.
    pub fn emit(&self, inner: &[u8], buffer: &mut [u8]) -> Result<usize, ComposeError> {
        let layout = Layout::check(inner).map_err(ComposeError::Inner)?;
        if layout.total_len != inner.len() {
            return Err(ComposeError::Inner(HeaderError::TotalLength));
        }
        let option = LmsOption {
            kind: Kind::Dmcast,
            turning_point: Some(TurningPoint {
                router: self.router.into(),
                iface: self.iface,
                cookie: self.cookie,
            }),
            source: ipv4::source(inner).into(),
            group: ipv4::destination(inner).into(),
        };
        let len = self.buffer_len(inner.len());
        let total = u16::try_from(len).map_err(|_| ComposeError::TooLong)?;
        let option_len = option_len::<Ipv4Addr>(self.form);
        let inner_header_len = layout.header_len + option_len;
        if self.placement == Placement::Inner && inner_header_len > ipv4::MAX_HEADER_LEN {
            return Err(ComposeError::TooLong);
        }
        let out = buffer.get_mut(..len).ok_or(ComposeError::Space)?;
        let (option_at, inner_at) = match self.placement {
            Placement::Outer => (ipv4::HEADER_LEN, ipv4::HEADER_LEN + option_len),
            Placement::Inner => (ipv4::HEADER_LEN + layout.header_len, ipv4::HEADER_LEN),
        };
        option
            .emit(self.form, &mut out[option_at..])
            .map_err(|error| match error {
                EmitError::TurningPoint => ComposeError::TurningPoint,
                EmitError::Space | EmitError::Family => ComposeError::Space,
            })?;
        match self.placement {
            Placement::Outer => out[inner_at..].copy_from_slice(inner),
            Placement::Inner => {
                let (header, payload) = inner.split_at(layout.header_len);
                out[inner_at..option_at].copy_from_slice(header);
                out[option_at + option_len..].copy_from_slice(payload);
                let inner = &mut out[inner_at..];
                inner[0] += (option_len / 4) as u8;
                inner[2..4].copy_from_slice(&(total - ipv4::HEADER_LEN as u16).to_be_bytes());
                ipv4::fill_checksum(&mut inner[..inner_header_len]);
            }
        }
        self.emit_outer(total, inner, out);
        Ok(len)
    }

    /// The fixed outer header; "don't fragment" and the service are the inner packet's (RFC 2003
    /// §3.1).
    fn emit_outer(&self, total: u16, inner: &[u8], out: &mut [u8]) {
        let header_len = match self.placement {
            Placement::Outer => ipv4::HEADER_LEN + option_len::<Ipv4Addr>(self.form),
            Placement::Inner => ipv4::HEADER_LEN,
        };
        let header = &mut out[..header_len];
        header[0] = 4 << 4 | (header_len / 4) as u8;
        header[1] = inner[1];
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        header[6] = inner[6] & 0x40;
        header[7] = 0;
        header[8] = self.ttl;
        header[9] = ipv4::PROTOCOL_IPIP;
        header[12..16].copy_from_slice(&self.replier.octets());
        header[16..20].copy_from_slice(&self.router.octets());
        ipv4::fill_checksum(header);
    }
}

/// Why an encapsulated packet with the dmcast option is not a dmcast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpenError {
    /// The outer packet is a fragment.
    OuterFragment,
    /// The outer header checksum is wrong.
    OuterChecksum,
    /// The inner header is malformed.
    Inner(HeaderError),
    /// The length of the inner packet does not match the outer one.
    InnerLength,
    /// The inner options are malformed, or an LMS option is where none belongs.
    InnerOption,
}

/// The inner packet of a dmcast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inner {
    /// Where it lies in the outer packet.
    pub packet: Range<usize>,
    /// The option where the inner header carries it, counted from the inner packet's start.
    pub strip: Option<OptionAt>,
}

/// Opens a packet whose own header, of checked lengths, carries the dmcast option: checks both
/// headers.
///
/// # Errors
/// [`OpenError`] when the outer packet is a fragment or its checksum is wrong, or the inner packet is
/// malformed, does not fill the outer one, or carries an LMS option.
#[inline]
pub fn open_outer(packet: &[u8], outer: Layout) -> Result<Inner, OpenError> {
    let inner = packet.get(outer.header_len..outer.total_len).unwrap_or(&[]);
    check_outer(packet, outer)?;
    let layout = Layout::check(inner).map_err(OpenError::Inner)?;
    check_inner(inner, layout)?;
    if layout.header_len > ipv4::HEADER_LEN && !carries_no_option(&inner[..layout.header_len]) {
        return Err(OpenError::InnerOption);
    }
    Ok(Inner {
        packet: outer.header_len..outer.total_len,
        strip: None,
    })
}

fn carries_no_option(header: &[u8]) -> bool {
    matches!(ipv4::find_lms(header), Ok(None))
}

/// Opens a packet whose own header carries nothing of LMS (LMS §6.4.5). `Ok(None)`: the inner
/// one carries no dmcast option either, it belongs to another tunnel.
///
/// # Errors
/// [`OpenError::InnerOption`] when the LMS option of the inner header is malformed or there are two; with a
/// dmcast option, [`OpenError`] also when the outer packet is a fragment, a checksum is wrong, or the inner
/// packet does not fill the outer one.
pub fn open_inner(
    packet: &[u8],
    outer: Layout,
) -> Result<Option<(Found<Ipv4Addr>, Inner)>, OpenError> {
    let inner = packet.get(outer.header_len..outer.total_len).unwrap_or(&[]);
    let Ok(layout) = Layout::check(inner) else {
        return Ok(None);
    };
    let option = match ipv4::find_lms(&inner[..layout.header_len]) {
        Ok(Some(option)) if option.kind == Kind::Dmcast => option,
        Ok(_) | Err(OptionError::Truncated | OptionError::Length | OptionError::Unknown) => {
            return Ok(None);
        }
        Err(OptionError::Lms(_) | OptionError::Duplicate) => return Err(OpenError::InnerOption),
    };
    check_outer(packet, outer)?;
    check_inner(inner, layout)?;
    let inner = Inner {
        packet: outer.header_len..outer.total_len,
        strip: Some(option.option),
    };
    Ok(Some((option, inner)))
}

#[inline]
fn check_outer(packet: &[u8], outer: Layout) -> Result<(), OpenError> {
    if ipv4::is_fragment(packet) {
        return Err(OpenError::OuterFragment);
    }
    if !ipv4::checksum_ok(&packet[..outer.header_len]) {
        return Err(OpenError::OuterChecksum);
    }
    Ok(())
}

#[inline]
fn check_inner(inner: &[u8], layout: Layout) -> Result<(), OpenError> {
    if layout.total_len != inner.len() {
        return Err(OpenError::InnerLength);
    }
    if !ipv4::checksum_ok(&inner[..layout.header_len]) {
        return Err(OpenError::Inner(HeaderError::Checksum));
    }
    Ok(())
}

/// Takes encapsulation and option off, in place: the answer is where the inner packet now lies.
#[inline]
pub fn decapsulate(packet: &mut [u8], inner: &Inner) -> Range<usize> {
    let Range { start, end } = inner.packet.clone();
    match (inner.strip, packet.get_mut(start..end)) {
        (Some(option), Some(inner)) => start + ipv4::strip_option(inner, option)..end,
        _ => start..end,
    }
}
