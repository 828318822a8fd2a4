//! What differs between IPv4 and IPv6 for LMS.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use igmp::Address as _;

use crate::carrier::{Carrier, HopByHop, Ipv4Option};
use crate::wire::found::HeaderError;
use crate::wire::option::EmitError;
use crate::wire::{hier, ipv4, ipv6, option};
use crate::{Form, LmsOption};

/// The parsed part of an IP header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ip<A> {
    /// The source address.
    pub source: A,
    /// The destination address.
    pub destination: A,
    /// Remaining hop limit or TTL, as in the header.
    pub hop_limit: u8,
    /// Protocol number of the payload; in IPv6 the next header after a hop-by-hop header.
    pub protocol: u8,
    /// Whether the packet is a fragment.
    pub is_fragment: bool,
    /// Bytes of the packet after its headers.
    pub payload: Range<usize>,
}

/// An address family: the option that carries LMS in it, and the headers around the UDP carrier.
pub trait Family: igmp::Family {
    /// The carrier by an option of its headers.
    type Option: Carrier<Address = Self>;

    /// Type of the option in its own form.
    const OPTION_TYPE: u8;
    /// Bytes of an option that its length byte does not count.
    const UNCOUNTED: usize;
    /// Whether there is the classic form of the option.
    const HAS_CLASSIC_FORM: bool;
    /// Length of a header without options in bytes.
    const IP_HEADER_LEN: usize;
    /// Whether every UDP datagram has a checksum.
    const NEEDS_UDP_CHECKSUM: bool;
    /// The MTU that every link has, in bytes (RFC 791, RFC 8200 §5).
    const SMALLEST_MTU: usize;
    /// The group on each link of routers of LMS and its hosts.
    const LINK_GROUP: Self;

    /// Parses the header of a packet; for IPv4 also verifies its checksum.
    ///
    /// # Errors
    /// [`HeaderError`] when the header is malformed.
    fn read_ip(packet: &[u8]) -> Result<Ip<Self>, HeaderError>;

    /// The source address of a checked packet.
    fn source(packet: &[u8]) -> Self;

    /// The destination address of a checked packet.
    fn destination(packet: &[u8]) -> Self;

    /// Remaining hop limit or TTL of a checked packet.
    fn hop_limit(packet: &[u8]) -> u8;

    /// Offset of the UDP header according to version and protocol number, which alone are checked. The offset may lie
    /// outside the packet.
    fn udp_at(packet: &[u8]) -> Option<usize>;

    /// Decrements the packet's hop limit.
    fn take_hop(packet: &mut [u8]);

    /// Changes the destination address of a checked packet.
    fn set_destination(packet: &mut [u8], destination: Self);

    /// Writes the header of a packet at the start of `out`; returns `None` when `out` is too short or the packet would be
    /// longer than its length field can say.
    fn write_ip(
        out: &mut [u8],
        payload_len: usize,
        protocol: u8,
        hop_limit: u8,
        source: Self,
        destination: Self,
    ) -> Option<()>;

    /// Length in bytes of the outer header of a dmcast, with the option in this form.
    fn outer_len(form: Form) -> usize;

    /// Writes the outer header of a dmcast around `inner_len` bytes; `ends` are its source and destination addresses.
    ///
    /// # Errors
    /// [`EmitError`] when the option cannot be written, or there is no room.
    fn emit_outer(
        out: &mut [u8],
        inner_len: usize,
        hop_limit: u8,
        ends: (Self, Self),
        option: &LmsOption,
        form: Form,
    ) -> Result<(), EmitError>;

    /// Writes an option as ancillary data of `sendmsg`: the IPv4 option (`IP_RETOPTS`), or the hop-by-hop header with it,
    /// whose next header the kernel fills in (`IPV6_HOPOPTS`). Returns its length.
    ///
    /// # Errors
    /// [`EmitError`] when the option cannot be written, or there is no room.
    fn emit_ancillary(
        option: &LmsOption,
        form: Form,
        buffer: &mut [u8],
    ) -> Result<usize, EmitError>;

    /// The LMS option in what `recvmsg` gives as ancillary data: the options of a packet (`IP_RECVOPTS`), or its
    /// hop-by-hop header (`IPV6_RECVHOPOPTS`). `None` where there is none, or options that cannot be read.
    fn find_option(ancillary: &[u8]) -> Option<LmsOption>;
}

impl Family for Ipv4Addr {
    type Option = Ipv4Option;

    const OPTION_TYPE: u8 = option::IPOPT_LMS;
    const UNCOUNTED: usize = 0;
    const HAS_CLASSIC_FORM: bool = true;
    const IP_HEADER_LEN: usize = ipv4::HEADER_LEN;
    const NEEDS_UDP_CHECKSUM: bool = false;
    const SMALLEST_MTU: usize = 576;
    const LINK_GROUP: Self = hier::GROUP;

    #[inline]
    fn read_ip(packet: &[u8]) -> Result<Ip<Self>, HeaderError> {
        let layout = ipv4::Layout::check(packet)?;
        if !ipv4::checksum_ok(&packet[..layout.header_len]) {
            return Err(HeaderError::Checksum);
        }
        Ok(Ip {
            source: ipv4::source(packet),
            destination: ipv4::destination(packet),
            hop_limit: ipv4::ttl(packet),
            protocol: ipv4::protocol(packet),
            is_fragment: ipv4::is_fragment(packet),
            payload: layout.header_len..layout.total_len,
        })
    }

    #[inline]
    fn source(packet: &[u8]) -> Self {
        ipv4::source(packet)
    }

    #[inline]
    fn destination(packet: &[u8]) -> Self {
        ipv4::destination(packet)
    }

    #[inline]
    fn hop_limit(packet: &[u8]) -> u8 {
        ipv4::ttl(packet)
    }

    #[inline]
    fn udp_at(packet: &[u8]) -> Option<usize> {
        let first = *packet.first()?;
        let is_udp = ipv4::protocol(packet) == ipv4::PROTOCOL_UDP && first >> 4 == 4;
        is_udp.then_some(usize::from(first & 0xf) * 4)
    }

    #[inline]
    fn take_hop(packet: &mut [u8]) {
        ipv4::decrement_ttl(packet);
    }

    #[inline]
    fn set_destination(packet: &mut [u8], destination: Self) {
        ipv4::set_destination(packet, destination);
    }

    #[inline]
    fn write_ip(
        out: &mut [u8],
        payload_len: usize,
        protocol: u8,
        hop_limit: u8,
        source: Self,
        destination: Self,
    ) -> Option<()> {
        ipv4::emit_header(out, payload_len, protocol, hop_limit, source, destination)
    }

    fn outer_len(form: Form) -> usize {
        ipv4::HEADER_LEN + option::option_len::<Self>(form)
    }

    fn emit_outer(
        out: &mut [u8],
        inner_len: usize,
        hop_limit: u8,
        (from, to): (Self, Self),
        option: &LmsOption,
        form: Form,
    ) -> Result<(), EmitError> {
        let header_len = Self::outer_len(form);
        let header = out.get_mut(..header_len).ok_or(EmitError::Space)?;
        option.emit(form, &mut header[ipv4::HEADER_LEN..])?;
        let payload_len = header_len - ipv4::HEADER_LEN + inner_len;
        ipv4::emit_header(
            header,
            payload_len,
            ipv4::PROTOCOL_IPIP,
            hop_limit,
            from,
            to,
        )
        .ok_or(EmitError::Space)?;
        header[0] = 4 << 4 | (header_len / 4) as u8;
        ipv4::fill_checksum(header);
        Ok(())
    }

    fn emit_ancillary(
        option: &LmsOption,
        form: Form,
        buffer: &mut [u8],
    ) -> Result<usize, EmitError> {
        option.emit(form, buffer)
    }

    fn find_option(ancillary: &[u8]) -> Option<LmsOption> {
        let mut rest = ancillary;
        loop {
            match *rest.first()? {
                ipv4::IPOPT_EOL => return None,
                ipv4::IPOPT_NOP => rest = &rest[1..],
                _ => {
                    if let Ok((_, option)) = LmsOption::parse::<Self>(rest) {
                        return Some(option);
                    }
                    let len = usize::from(*rest.get(1)?);
                    rest = rest.get(len.max(2)..)?;
                }
            }
        }
    }
}

impl Family for Ipv6Addr {
    type Option = HopByHop;

    const OPTION_TYPE: u8 = option::HOP_BY_HOP_LMS;
    const UNCOUNTED: usize = 2;
    const HAS_CLASSIC_FORM: bool = false;
    const IP_HEADER_LEN: usize = ipv6::HEADER_LEN;
    const NEEDS_UDP_CHECKSUM: bool = true;
    const SMALLEST_MTU: usize = 1_280;
    const LINK_GROUP: Self = hier::GROUP6;

    #[inline]
    fn read_ip(packet: &[u8]) -> Result<Ip<Self>, HeaderError> {
        let layout = ipv6::Layout::check(packet)?;
        Ok(Ip {
            source: ipv6::source(packet),
            destination: ipv6::destination(packet),
            hop_limit: ipv6::hop_limit(packet),
            protocol: layout.next_header,
            is_fragment: layout.is_fragment(packet)?,
            payload: layout.header_len..layout.total_len,
        })
    }

    #[inline]
    fn source(packet: &[u8]) -> Self {
        ipv6::source(packet)
    }

    #[inline]
    fn destination(packet: &[u8]) -> Self {
        ipv6::destination(packet)
    }

    #[inline]
    fn hop_limit(packet: &[u8]) -> u8 {
        ipv6::hop_limit(packet)
    }

    #[inline]
    fn udp_at(packet: &[u8]) -> Option<usize> {
        // Datagrams of this carrier have no extension headers; one that has is not recognized.
        let is_udp = packet.first()? >> 4 == 6 && *packet.get(6)? == ipv4::PROTOCOL_UDP;
        is_udp.then_some(ipv6::HEADER_LEN)
    }

    #[inline]
    fn take_hop(packet: &mut [u8]) {
        ipv6::decrement_hop_limit(packet);
    }

    #[inline]
    fn set_destination(packet: &mut [u8], destination: Self) {
        if let Some(field) = packet.get_mut(24..40) {
            field.copy_from_slice(&destination.octets());
        }
    }

    #[inline]
    fn write_ip(
        out: &mut [u8],
        payload_len: usize,
        protocol: u8,
        hop_limit: u8,
        source: Self,
        destination: Self,
    ) -> Option<()> {
        ipv6::emit_header(out, payload_len, protocol, hop_limit, source, destination)
    }

    fn outer_len(_form: Form) -> usize {
        ipv6::HEADER_LEN + ipv6::OPTIONS_LEN
    }

    fn emit_outer(
        out: &mut [u8],
        inner_len: usize,
        hop_limit: u8,
        (from, to): (Self, Self),
        option: &LmsOption,
        _form: Form,
    ) -> Result<(), EmitError> {
        let payload_len = ipv6::OPTIONS_LEN + inner_len;
        ipv6::emit_header(out, payload_len, ipv6::HOP_BY_HOP, hop_limit, from, to)
            .ok_or(EmitError::Space)?;
        ipv6::emit_options(option, ipv6::IPV6_IN_IPV6, &mut out[ipv6::HEADER_LEN..])?;
        Ok(())
    }

    fn emit_ancillary(
        option: &LmsOption,
        _form: Form,
        buffer: &mut [u8],
    ) -> Result<usize, EmitError> {
        ipv6::emit_options(option, 0, buffer)
    }

    fn find_option(ancillary: &[u8]) -> Option<LmsOption> {
        let found = ipv6::find_in_options(ancillary, 0..ancillary.len()).ok()??;
        Some(LmsOption {
            kind: found.kind,
            turning_point: found.body.turning_point(found.cookie.unwrap_or(0)),
            source: found.body.source.into(),
            group: found.body.group.into(),
        })
    }
}
