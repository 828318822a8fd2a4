//! Adds IP and UDP headers to packets of the machines, and removes them from received packets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lms_proto::wire::ipv6;
use lms_proto::{Family, Form, Kind, LmsOption, TurningPoint};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, Ipv4Packet, UdpPacket, UdpRepr};

/// Longest payload of a datagram here.
pub(crate) const PAYLOAD_LEN: usize = 512;
/// Longest packet: two IP headers, both with options, UDP, payload.
pub(crate) const PACKET_LEN: usize = PAYLOAD_LEN + 2 * (40 + ipv6::OPTIONS_LEN) + UDP_LEN;

const UDP_LEN: usize = 8;
const UDP: u8 = 17;
const HOP_LIMIT: u8 = 16;

/// An address and a UDP port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct At<A> {
    pub(crate) address: A,
    pub(crate) port: u16,
}

impl<A: Into<IpAddr>> At<A> {
    pub(crate) fn socket(self) -> SocketAddr {
        SocketAddr::new(self.address.into(), self.port)
    }
}

/// What the packets of this network need of a version of IP.
pub(crate) trait Version: Family + Into<IpAddress> {
    /// Form of the option: the paper's, or our own where that is the only one.
    const FORM: Form;

    /// Writes the IP header of a UDP datagram, with the option if there is one; its length, or `None` without room.
    fn header(
        out: &mut [u8],
        udp_len: usize,
        from: Self,
        to: Self,
        option: Option<&LmsOption>,
    ) -> Option<usize>;

    fn of(address: IpAddr) -> Option<Self>;
}

impl Version for Ipv4Addr {
    const FORM: Form = Form::Classic;

    fn header(
        out: &mut [u8],
        udp_len: usize,
        from: Self,
        to: Self,
        option: Option<&LmsOption>,
    ) -> Option<usize> {
        let options = out.get_mut(Self::IP_HEADER_LEN..)?;
        let options_len = option.map_or(Some(0), |option| option.emit(Self::FORM, options).ok())?;
        let header_len = Self::IP_HEADER_LEN + options_len;
        let len = header_len + udp_len;
        Self::write_ip(out, options_len + udp_len, UDP, HOP_LIMIT, from, to)?;
        let mut ip = Ipv4Packet::new_unchecked(out.get_mut(..len)?);
        ip.set_header_len(header_len as u8);
        ip.fill_checksum();
        Some(header_len)
    }

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }
}

impl Version for Ipv6Addr {
    const FORM: Form = Form::Own;

    fn header(
        out: &mut [u8],
        udp_len: usize,
        from: Self,
        to: Self,
        option: Option<&LmsOption>,
    ) -> Option<usize> {
        let rest = out.get_mut(Self::IP_HEADER_LEN..)?;
        let (options_len, next) = match option {
            Some(option) => {
                let len = ipv6::emit_options(option, UDP, rest).ok()?;
                (len, ipv6::HOP_BY_HOP)
            }
            None => (0, UDP),
        };
        Self::write_ip(out, options_len + udp_len, next, HOP_LIMIT, from, to)?;
        Some(Self::IP_HEADER_LEN + options_len)
    }

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }
    }
}

/// Writes a datagram, with the option if there is one. Returns its length, or 0 without room.
fn datagram<A: Version>(
    from: At<A>,
    to: At<A>,
    option: Option<&LmsOption>,
    payload: &[u8],
    out: &mut [u8],
) -> usize {
    let udp_len = UDP_LEN + payload.len();
    let Some(header_len) = A::header(out, udp_len, from.address, to.address, option) else {
        return 0;
    };
    let len = header_len + udp_len;
    let Some(bytes) = out.get_mut(header_len..len) else {
        return 0;
    };
    let udp = UdpRepr {
        src_port: from.port,
        dst_port: to.port,
    };
    udp.emit(
        &mut UdpPacket::new_unchecked(bytes),
        &from.address.into(),
        &to.address.into(),
        payload.len(),
        |room| room.copy_from_slice(payload),
        &ChecksumCapabilities::default(),
    );
    len
}

/// Writes the next packet of `me`. Returns its length, or 0 if this network does not carry it.
pub(crate) fn outgoing<A: Version>(
    me: At<A>,
    source: At<A>,
    group: At<A>,
    transmit: &ltp::Transmit,
    payload: &[u8],
    out: &mut [u8; PACKET_LEN],
) -> usize {
    match transmit.destination {
        ltp::Destination::Group => datagram(me, group, None, payload, out),
        ltp::Destination::Request(option) => datagram(me, group, Some(&option), payload, out),
        ltp::Destination::Unicast(to) => {
            let Some(address) = A::of(to.ip()) else {
                return 0;
            };
            let port = to.port();
            datagram(me, At { address, port }, None, payload, out)
        }
        ltp::Destination::Dmcast(point) => dmcast(me, source, group, point, payload, out),
        ltp::Destination::Relay => 0,
    }
}

/// A repair, wrapped for the turning-point router.
fn dmcast<A: Version>(
    me: At<A>,
    source: At<A>,
    group: At<A>,
    point: TurningPoint,
    payload: &[u8],
    out: &mut [u8; PACKET_LEN],
) -> usize {
    let Some(router) = A::of(point.router) else {
        return 0;
    };
    let option = LmsOption {
        kind: Kind::Dmcast,
        turning_point: Some(point),
        source: source.address.into(),
        group: group.address.into(),
    };
    let outer = A::outer_len(A::FORM);
    let inner = datagram(source, group, None, payload, &mut out[outer..]);
    let ends = (me.address, router);
    match A::emit_outer(out, inner, HOP_LIMIT, ends, &option, A::FORM) {
        Ok(()) if inner > 0 => outer + inner,
        _ => 0,
    }
}

/// Where a packet goes, and whether it has no LMS message: neither options nor a packet inside.
pub(crate) fn destination<A: Version>(packet: &[u8]) -> Option<(A, bool)> {
    let ip = A::read_ip(packet).ok()?;
    let is_plain = ip.payload.start == A::IP_HEADER_LEN && ip.protocol == UDP;
    Some((ip.destination, is_plain))
}

/// Parses a datagram to a host. Returns its metadata for LTP and its payload.
pub(crate) fn incoming<A: Version>(packet: &[u8]) -> Option<(ltp::Meta, &[u8])> {
    let ip = A::read_ip(packet).ok()?;
    if ip.protocol != UDP {
        return None;
    }
    let options = &packet[A::IP_HEADER_LEN..ip.payload.start];
    let udp = UdpPacket::new_checked(&packet[ip.payload]).ok()?;
    let (source, destination): (IpAddr, IpAddr) = (ip.source.into(), ip.destination.into());
    if !udp.verify_checksum(&ip.source.into(), &ip.destination.into()) {
        return None;
    }
    let from = SocketAddr::new(source, udp.src_port());
    let mut meta = if destination.is_multicast() {
        ltp::Meta::group(from)
    } else {
        ltp::Meta::unicast(from)
    };
    if !options.is_empty() {
        meta.option = Some(A::find_option(options)?);
        // Each host is alone on its link.
        meta.elected = true;
    }
    Some((meta, udp.payload()))
}
